"""The chain but for the caller: the tiny model in its process, our bridge, calls that are listened to."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import pytest

from loopback.kit import Caller, Server, running_server, until
from visavis.audio import Pcm
from visavis.config import Config, EngineConfig, RtcConfig
from visavis.engine.vllm import VllmEngine
from visavis.playout import Playout
from visavis.session import Session

TESTS = Path(__file__).parents[1]
PATIENCE_S = 60.0
"Bounds a test that has failed: the model and the calls share two cores."


class Model:
    """The process that serves the tiny models; what it says it did."""

    def __init__(self, socket: Path) -> None:
        self.url = f"unix://{socket}"
        self._http = aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(socket)))

    async def aclose(self) -> None:
        await self._http.close()

    async def answers(self, call: str) -> list[dict[str, Any]]:
        """Tell of the answers to a call so far, in order."""
        async with self._http.get("http://omni/answers") as response:
            return [answer for answer in await response.json() if answer["call"] == call]

    async def sound(self, answer: Mapping[str, Any]) -> Pcm:
        """Give all that the vocoder made for an answer."""
        async with self._http.get(f"http://omni/answers/{answer['id']}/sound") as response:
            sound: Pcm = np.frombuffer(await response.read(), "<i2")
            return sound

    async def request(self, answer: Mapping[str, Any]) -> dict[str, Any]:
        """Give the body of the request that an answer is to."""
        async with self._http.get(f"http://omni/answers/{answer['id']}/request") as response:
            body: dict[str, Any] = json.loads(await response.read())
            return body

    async def until_answer(self, call: str, number: int, state: str) -> dict[str, Any]:
        """Wait until a call's answer of that number (from 0) is in that state; what is told of it."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                answers = await self.answers(call)
                if len(answers) > number and answers[number]["state"] == state:
                    return answers[number]
                await asyncio.sleep(0.02)


@contextmanager
def serving(socket: Path, models: Mapping[str, Mapping[str, Any]]) -> Iterator[None]:
    """Run the models' process; it is ready when the body begins."""
    command = [sys.executable, "-m", "omni.server", socket, json.dumps(models)]
    with subprocess.Popen(command, cwd=TESTS, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            yield
        finally:
            process.terminate()


class Listened(Session):
    """A call that keeps all that it hands to the encoder."""

    def __init__(self, *parts: Any, **more: Any) -> None:
        super().__init__(*parts, **more)
        self._given: list[Pcm] = []

    def pull_audio(self) -> Pcm:
        block = super().pull_audio()
        self._given.append(block)
        return block

    @property
    def given(self) -> Pcm:
        return np.concatenate(self._given)

    @property
    def playout(self) -> Playout:
        return self._conversation._speaker._playout


@dataclass(frozen=True)
class Chain:
    """A server of calls whose engine is a tiny model."""

    server: Server
    model: Model

    def session(self, caller: Caller) -> Listened:
        session = next(session for session in self.server.sessions if session.call_id == caller.call_id)
        assert isinstance(session, Listened)
        return session


@asynccontextmanager
async def running_chain(model: Model, /, **engine: Any) -> AsyncIterator[Chain]:
    """Serve calls; `engine` changes the settings of the bridge, of which `model` names which tiny model."""
    settings = replace(EngineConfig(), name="vllm", url=model.url, **engine)
    config = Config(engine=settings, rtc=RtcConfig(connect_s=10.0))
    bridge = VllmEngine(settings)
    try:
        async with running_server(config, bridge, Listened) as server:
            yield Chain(server, model)
    finally:
        await bridge.aclose()


def ask(caller: Caller, text: str = "Hello there") -> None:
    """Type a question."""
    item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}
    caller.send({"type": "conversation.item.create", "item": item})
    caller.send({"type": "response.create"})


async def until_heard(caller: Caller, replies: int = 1) -> None:
    """Wait until so many replies have been played to their end."""
    await until(
        lambda: caller.ear.kinds()["output_audio_buffer.stopped"] >= replies, "the end of a reply", PATIENCE_S
    )


def exact_part(given: Pcm, made: Pcm) -> float:
    """Tell how much of what was given out, of its blocks with sound, is in `made` sample by sample."""
    window = 16
    known = {made[at : at + window].tobytes() for at in range(len(made) - window + 1)}
    blocks = given[: len(given) // 480 * 480].reshape(-1, 480)
    loud = [block for block in blocks if np.count_nonzero(block) > 400]
    if not loud:
        pytest.fail("there was no sound")
    return sum(block[232 : 232 + window].tobytes() in known for block in loud) / len(loud)


def place_of(made: Pcm, given: Pcm) -> int:
    """Find where `made` begins in what was given out, by its first sound."""
    return int(np.argmax(given != 0)) - int(np.argmax(made != 0))
