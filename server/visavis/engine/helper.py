"""Client of the embedded engine's voice and ears, which help engines that lack them."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable
from typing import Any, TypeVar

import aiohttp
import numpy as np

from ..audio import RATE, Pcm, encode_wav, resample
from ..errors import EngineBusy, EngineLost

T = TypeVar("T")

HEARING_RATE = 16_000
"What the recogniser works at: a third less to send than ours."
_CONNECT_S = 2.0
_SPEECH_S = 5.0
"Between two pieces of sound: a clause takes it 50 ms, behind others in the queue some more."
_TRANSCRIPT_S = 30.0
"A minute of speech takes it some 5 s."
_MAX_REASON = 200
_CALL_HEADER = "X-Visavis-Call"


class Helper:
    """One instance serves all calls of an event loop. All methods raise EngineError and nothing else."""

    def __init__(self, socket: str) -> None:
        """`socket` is the path of the embedded engine's Unix socket."""
        self._socket = socket
        self._session: aiohttp.ClientSession | None = None

    async def say(self, call_id: str, text: str, language: str | None = None) -> AsyncGenerator[Pcm, None]:
        """Speak a text; sound (24 kHz) as it is made. Closing the generator ends the work.

        Without a language (two letters) it is the one that the call was heard to speak.
        """
        body = {"input": text, "voice": "embedded", "response_format": "pcm"}
        if language is not None:
            body["language"] = language
        response = await self._post("speech", call_id, json=body)
        try:
            odd = b""
            while data := await _in_time(response.content.readany(), _SPEECH_S):
                data = odd + data
                whole = len(data) & ~1
                odd = data[whole:]
                if whole:
                    yield np.frombuffer(data[:whole], "<i2").astype(np.int16)
        finally:
            response.close()

    async def hear(self, call_id: str, pcm: Pcm) -> str:
        """Write down what is said in `pcm` (24 kHz), "" where nobody speaks."""
        wav = await asyncio.to_thread(lambda: encode_wav(resample(pcm, RATE, HEARING_RATE), HEARING_RATE))
        response = await self._post("transcriptions", call_id, data=wav)
        try:
            heard = await _in_time(response.json(), _TRANSCRIPT_S)
            return str(heard["text"])
        except (KeyError, TypeError) as error:
            raise EngineLost("The embedded ears wrote nothing down.") from error
        finally:
            response.release()

    async def aclose(self) -> None:
        if self._session is not None:
            await self._session.close()

    def _client(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.UnixConnector(self._socket, limit=0),
                timeout=aiohttp.ClientTimeout(total=None, connect=_CONNECT_S),
            )
        return self._session

    async def _post(self, what: str, call_id: str, **content: Any) -> aiohttp.ClientResponse:
        """Post and return the answer if it is none of an error; whoever asked closes it."""
        headers = {_CALL_HEADER: call_id} | ({"Content-Type": "audio/wav"} if "data" in content else {})
        bound = _SPEECH_S if what == "speech" else _TRANSCRIPT_S
        asked = self._client().post(f"http://localhost/v1/audio/{what}", headers=headers, **content)
        response = await _in_time(asked, bound)
        if response.status == 200:
            return response
        try:
            if response.status == 503:
                raise EngineBusy("The embedded voice and ears are busy or being loaded.")
            reason = (await _in_time(response.text(), bound))[:_MAX_REASON]
            raise EngineLost(f"The embedded engine refused {what}: {response.status} {reason}")
        finally:
            response.close()


async def _in_time(answer: Awaitable[T], timeout_s: float) -> T:
    """Wait for a part of an answer. Raises EngineLost."""
    try:
        async with asyncio.timeout(timeout_s):
            return await answer
    except TimeoutError as error:
        raise EngineLost("The embedded voice and ears did not answer in time.") from error
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise EngineLost(f"The embedded voice and ears cannot be asked: {error}") from error
