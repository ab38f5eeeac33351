"""Speech and transcription by themselves, in OpenAI's shape, for engines that lack a voice or ears.

`POST /v1/audio/speech` speaks a text clause by clause; `POST /v1/audio/transcriptions` writes a sound down.
"""

import asyncio
import hashlib
import json
import logging
from collections import OrderedDict
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager

from aiohttp import web
from aiohttp.web_request import FileField

from ..audio import RATE, Pcm
from ..errors import EngineBusy, EngineError, EngineRefused
from . import tongues
from .clauses import ClauseSplitter
from .contract import Sound
from .hearing import Hearing
from .refusals import CALLER_HEADER, MAX_CALLER, WRITE_S, busy, refusal
from .speech import Voice

logger = logging.getLogger(__name__)

MAX_INPUT = 4_096
"Characters of a text to speak: OpenAI's own bound."
_MAX_CALLS = 256
"Calls whose language is remembered."
_CHUNK_S = 0.5
"Longest piece of sound written at once."


class AudioApi:
    """The two routes. They answer 503 before `open`, and 404 for a part that this engine has not got."""

    def __init__(self, *, queue: int) -> None:
        """`queue` requests may wait beside the one that is served, of each kind."""
        self._limit = queue + 1
        self._hearing: Hearing | None = None
        self._voice: Voice | None = None
        self._opened = False
        self._active = {"speech": 0, "transcriptions": 0}
        self._languages: OrderedDict[str, str] = OrderedDict()
        "What each call spoke last: a text in Latin letters does not tell its language."

    def open(self, hearing: Hearing | None, voice: Voice | None) -> None:
        """Take requests from now on; None is a part that was not asked for."""
        self._hearing, self._voice, self._opened = hearing, voice, True

    def add_routes(self, router: web.UrlDispatcher) -> None:
        router.add_post("/v1/audio/speech", self._speech)
        router.add_post("/v1/audio/transcriptions", self._transcriptions)

    @property
    def active(self) -> int:
        """Requests being served or waiting."""
        return sum(self._active.values())

    @contextmanager
    def _place(self, kind: str) -> Iterator[None]:
        """Hold one of the places. Raises EngineBusy if there is none."""
        if self._active[kind] >= self._limit:
            raise EngineBusy(f"{self._limit} requests are already being served or waiting")
        self._active[kind] += 1
        try:
            yield
        finally:
            self._active[kind] -= 1

    async def _speech(self, request: web.Request) -> web.StreamResponse:
        if not self._opened:
            return busy("the voice is still being loaded")
        if self._voice is None:
            return refusal(404, "this engine was started without a voice", "not_found_error")
        caller = _caller(request)
        try:
            with self._place("speech"):
                text, language = _parse_speech(await _json(request))
                language = language or tongues.of_script(text) or self._languages.get(caller)
                sounds = _speak(self._voice, text, language or tongues.ENGLISH, caller)
                async with aclosing(sounds):
                    return await _stream(request, sounds)
        except EngineError as error:
            return _refuse(error, caller)

    async def _transcriptions(self, request: web.Request) -> web.StreamResponse:
        if not self._opened:
            return busy("the ears are still being loaded")
        if self._hearing is None:
            return refusal(404, "this engine was started without ears", "not_found_error")
        caller = _caller(request)
        try:
            with self._place("transcriptions"):
                wav, hint = await _read_sound(request)
                sound = Sound(wav, hashlib.sha256(wav).hexdigest())
                heard = await self._hearing.hear(sound, caller, hint or self._languages.get(caller))
        except EngineError as error:
            return _refuse(error, caller)
        if caller and heard.text:
            self._languages[caller] = heard.language
            self._languages.move_to_end(caller)
            while len(self._languages) > _MAX_CALLS:
                self._languages.popitem(last=False)
        return web.json_response({"text": heard.text, "language": heard.language})


def _caller(request: web.Request) -> str:
    return request.headers.get(CALLER_HEADER, "")[:MAX_CALLER]


async def _json(request: web.Request) -> object:
    try:
        return await request.json()
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise EngineRefused(f"the body is not JSON: {error}") from error


def _parse_speech(body: object) -> tuple[str, str | None]:
    """Return the text and its language, None where the body does not say. Raises EngineRefused.

    `voice` and `speed` are read past: there is one voice to a language. `language` is our addition.
    """
    if not isinstance(body, dict):
        raise EngineRefused("the body must be a JSON object")
    text = body.get("input")
    if not isinstance(text, str) or len(text) > MAX_INPUT:
        raise EngineRefused(f"input: a text of at most {MAX_INPUT} characters is needed")
    if body.get("response_format", "pcm") != "pcm":
        raise EngineRefused('response_format: only "pcm" is spoken here, 24 kHz, 16 bit, mono')
    language = body.get("language")
    if language is not None and not isinstance(language, str):
        raise EngineRefused("language: a code such as en is needed")
    return text, language


async def _read_sound(request: web.Request) -> tuple[bytes, str | None]:
    """Return the WAV file of a form's `file` or of a bare body, and the language that a form may name."""
    if request.content_type != "multipart/form-data":
        return await request.read(), None
    try:
        form = await request.post()
    except ValueError as error:
        raise EngineRefused(f"the form cannot be read: {error}") from error
    file, language = form.get("file"), form.get("language")
    if not isinstance(file, FileField):
        raise EngineRefused("file: a WAV file is needed")
    return file.file.read(), language if isinstance(language, str) and language else None


async def _speak(voice: Voice, text: str, language: str, caller: str) -> AsyncGenerator[Pcm, None]:
    splitter = ClauseSplitter()
    for clause in (*splitter.feed(text), splitter.flush()):
        pcm = await voice.say(clause, language, caller)
        step = int(_CHUNK_S * RATE)
        for at in range(0, len(pcm), step):
            yield pcm[at : at + step]


async def _stream(request: web.Request, sounds: AsyncGenerator[Pcm, None]) -> web.StreamResponse:
    """Send sounds as they come. A client that leaves cancels this task, which ends the work."""
    first = await anext(sounds, None)  # before the status, so that a failure can be one
    response = web.StreamResponse(headers={"Content-Type": "audio/pcm", "X-Sample-Rate": str(RATE)})
    await response.prepare(request)
    try:
        if first is not None:
            await _write(response, first)
        async for pcm in sounds:
            await _write(response, pcm)
    except (ConnectionError, TimeoutError):
        logger.info("call %s: the client is gone", _caller(request) or "-")
    except EngineError as error:
        logger.warning("call %s: %s", _caller(request) or "-", error)
        if request.transport is not None:  # an end without the last chunk tells that something is missing
            request.transport.abort()
    return response


async def _write(response: web.StreamResponse, pcm: Pcm) -> None:
    async with asyncio.timeout(WRITE_S):
        await response.write(pcm.astype("<i2", copy=False).tobytes())


def _refuse(error: EngineError, caller: str) -> web.Response:
    match error:
        case EngineRefused():
            return refusal(400, str(error), "invalid_request_error")
        case EngineBusy():
            return busy(str(error))
        case _:
            logger.warning("call %s: %s", caller or "-", error)
            return refusal(500, str(error), "server_error")
