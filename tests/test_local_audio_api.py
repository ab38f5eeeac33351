"""Speech and transcription by themselves, with stand-ins for the models, over a real Unix socket."""

import asyncio
import threading
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import numpy as np
import pytest
from aiohttp import web

from visavis.audio import RATE, Pcm, encode_wav
from visavis.config import Config, EngineConfig, LocalConfig
from visavis.errors import EngineLost
from visavis.local import models, parts
from visavis.local.contract import error_body
from visavis.local.hearing import Hearing
from visavis.local.refusals import CALLER_HEADER
from visavis.local.server import LocalServer
from visavis.local.whisper import Heard

pytestmark = pytest.mark.slow

WAIT_S = 10.0
SPEECH = "http://l/v1/audio/speech"
TRANSCRIPTIONS = "http://l/v1/audio/transcriptions"
TEXT = "Well, hello there. This is the second sentence. And a third."


@dataclass
class Ears:
    hold: threading.Event | None = None
    begun: threading.Event = field(default_factory=threading.Event)
    hints: list[str | None] = field(default_factory=list)
    stopped: threading.Event = field(default_factory=threading.Event)

    def recognise(self, pcm: Pcm, *, hint: str | None = None, stop: threading.Event | None = None) -> Heard:
        self.hints.append(hint)
        self.begun.set()
        if self.hold is not None:
            assert stop is not None
            while not self.hold.is_set() and not stop.wait(0.001):
                pass
            if stop.is_set():
                self.stopped.set()
        return Heard("" if len(pcm) < 100 else f"{len(pcm)} samples", "de")


@dataclass
class Voice:
    """Speaks a clause as one second of its number; `gates` hold the clauses of that number."""

    languages: frozenset[str] = frozenset({"en", "de"})
    said: list[tuple[str, str, str]] = field(default_factory=list)
    gates: dict[int, asyncio.Event] = field(default_factory=dict)
    fails_at: int | None = None

    async def say(self, text: str, language: str, caller: str) -> Pcm:
        number = len(self.said)
        self.said.append((text, language, caller))
        if number == self.fails_at:
            raise EngineLost("hoarse")
        if number in self.gates:
            await self.gates[number].wait()
        return np.full(RATE, number + 1, np.int16)

    async def aclose(self) -> None:
        pass


@dataclass
class Served:
    server: LocalServer
    ears: Ears
    voice: Voice
    session: aiohttp.ClientSession

    async def speak(self, text: str = TEXT, caller: str = "", **more: object) -> aiohttp.ClientResponse:
        body = {"input": text, "voice": "alloy", "response_format": "pcm"} | more
        return await self.session.post(SPEECH, json=body, headers={CALLER_HEADER: caller})

    async def transcribe(self, wav: bytes, caller: str = "") -> aiohttp.ClientResponse:
        headers = {CALLER_HEADER: caller, "Content-Type": "audio/wav"}
        return await self.session.post(TRANSCRIPTIONS, data=wav, headers=headers)

    async def until_idle(self) -> None:
        async with asyncio.timeout(WAIT_S):
            while self.server.active:  # noqa: ASYNC110 - the connection has no event of its own
                await asyncio.sleep(0.001)


def wav(samples: int = 16_000) -> bytes:
    return encode_wav(np.ones(samples, np.int16), 16_000)


@pytest.fixture
async def served(tmp_path: Path) -> AsyncGenerator[Served, None]:
    server, ears, voice = LocalServer("tiny", queue=1), Ears(), Voice()
    hearing = Hearing(ears)
    runner = web.AppRunner(server.app(), handler_cancellation=True)
    await runner.setup()
    await web.UnixSite(runner, tmp_path / "s").start()
    server.open(None, hearing, voice)
    async with aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(tmp_path / "s"))) as session:
        yield Served(server, ears, voice, session)
    await runner.cleanup()
    await hearing.aclose()


async def test_a_text_is_spoken_clause_by_clause_as_bare_samples(served: Served) -> None:
    response = await served.speak()
    assert response.status == 200
    assert response.headers["X-Sample-Rate"] == str(RATE)
    pcm = np.frombuffer(await response.read(), "<i2")
    assert [int(value) for value in pcm[:: RATE // 2]] == [1, 1, 2, 2, 3, 3]
    assert "".join(text for text, _, _ in served.voice.said).strip() == TEXT


async def test_the_first_clause_is_heard_while_the_second_is_being_made(served: Served) -> None:
    served.voice.gates[1] = asyncio.Event()
    async with asyncio.timeout(WAIT_S):
        response = await served.speak()
        assert len(await response.content.readexactly(2 * RATE)) == 2 * RATE
        served.voice.gates[1].set()
        assert len(await response.read()) == 2 * 2 * RATE


async def test_a_text_without_words_is_no_sound(served: Served) -> None:
    served.voice.say = lambda *_: asyncio.sleep(0, np.zeros(0, np.int16))  # type: ignore[method-assign]
    response = await served.speak("...")
    assert (response.status, await response.read()) == (200, b"")


async def test_the_language_is_the_requests_the_scripts_or_what_the_call_spoke(served: Served) -> None:
    await served.transcribe(wav(), "hans")
    for text, caller, more in [
        ("Guten Tag.", "hans", {}),
        ("Guten Tag.", "jane", {}),
        ("Привет.", "hans", {}),
        ("Guten Tag.", "jane", {"language": "de"}),
    ]:
        await (await served.speak(text, caller, **more)).read()
    assert [language for _, language, _ in served.voice.said] == ["de", "en", "ru", "de"]


async def test_a_wav_file_is_written_down_bare_or_in_a_form(served: Served) -> None:
    response = await served.transcribe(wav())
    assert await response.json() == {"text": "16000 samples", "language": "de"}
    form = aiohttp.FormData()
    form.add_field("file", wav(8_000), filename="a.wav", content_type="audio/wav")
    form.add_field("model", "whisper-1")
    form.add_field("language", "fr")
    response = await served.session.post(TRANSCRIPTIONS, data=form)
    assert await response.json() == {"text": "8000 samples", "language": "de"}
    assert served.ears.hints == [None, "fr"]


async def test_the_same_sound_is_heard_once(served: Served) -> None:
    first = await (await served.transcribe(wav(), "a")).json()
    assert await (await served.transcribe(wav(), "b")).json() == first
    assert len(served.ears.hints) == 1


async def test_silence_does_not_change_what_a_call_speaks(served: Served) -> None:
    await served.transcribe(wav(50), "jane")
    await (await served.speak("Guten Tag.", "jane")).read()
    assert served.voice.said[0][1] == "en"


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[]",
        b"{}",
        b'{"input": 7}',
        b'{"input": "' + b"x" * 5000 + b'"}',
        b'{"input": "hi", "response_format": "mp3"}',
        b'{"input": "hi", "language": 3}',
    ],
)
async def test_what_cannot_be_spoken_is_a_400(served: Served, body: bytes) -> None:
    response = await served.session.post(SPEECH, data=body, headers={"Content-Type": "application/json"})
    assert response.status == 400
    assert (await response.json())["error"]["type"] == "invalid_request_error"
    assert served.server.active == 0


async def test_what_is_no_sound_is_a_400(served: Served) -> None:
    assert (await served.transcribe(b"RIFF")).status == 400
    form = aiohttp.FormData()
    form.add_field("model", "whisper-1")
    form.add_field("x", b"", filename="x")
    assert (await served.session.post(TRANSCRIPTIONS, data=form)).status == 400


async def test_a_voice_that_fails_is_a_500_or_an_end_that_tells(served: Served) -> None:
    served.voice.fails_at = 0
    response = await served.speak()
    assert response.status == 500
    assert "hoarse" in (await response.json())["error"]["message"]
    served.voice.fails_at = 2
    response = await served.speak()
    assert response.status == 200
    with pytest.raises(aiohttp.ClientError):
        await response.read()
    await served.until_idle()
    assert (await served.speak()).status == 200


async def test_beyond_the_bound_requests_of_a_kind_are_refused(served: Served) -> None:
    served.ears.hold = threading.Event()
    async with asyncio.TaskGroup() as group, asyncio.timeout(WAIT_S):
        asks = [group.create_task(served.transcribe(wav(samples))) for samples in (200, 300)]
        while served.server.active < 2:  # noqa: ASYNC110 - the server has no event for it
            await asyncio.sleep(0.001)
        refused = await served.transcribe(wav(400))
        assert refused.status == 503
        assert int(refused.headers["Retry-After"]) > 0
        assert (await served.speak()).status == 200
        served.ears.hold.set()
    assert {task.result().status for task in asks} == {200}


async def test_a_client_that_leaves_ends_the_work(served: Served) -> None:
    served.ears.hold = threading.Event()
    served.voice.gates[1] = asyncio.Event()
    asking = asyncio.create_task(served.transcribe(wav()))
    assert await asyncio.to_thread(served.ears.begun.wait, WAIT_S)
    asking.cancel()
    response = await served.speak()
    await response.content.readexactly(RATE)
    response.close()
    await served.until_idle()
    assert await asyncio.to_thread(served.ears.stopped.wait, WAIT_S)


async def test_parts_that_are_not_there_are_404_and_before_loading_all_is_503(tmp_path: Path) -> None:
    server = LocalServer("tiny", queue=1)
    runner = web.AppRunner(server.app())
    await runner.setup()
    await web.UnixSite(runner, tmp_path / "s").start()
    chat = "http://l/v1/chat/completions"
    async with aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(tmp_path / "s"))) as session:
        for status in (503, 404):
            for url in (SPEECH, TRANSCRIPTIONS, chat):
                response = await session.post(url, json={"input": "hi"})
                assert response.status == status
                assert (await response.json()).keys() == error_body("", "", 0).keys()
            server.open(None)
        assert (await session.get("http://l/health")).status == 200
    await runner.cleanup()


VLLM = EngineConfig(name="vllm")


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (Config(), {"ears", "mind", "voice"}),
        (Config(engine=VLLM), {"ears", "voice"}),
        (Config(engine=VLLM, fallbacks=(EngineConfig(),)), {"ears", "mind", "voice"}),
        (Config(engine=EngineConfig(name="vllm", embedded_voice=False)), {"ears"}),
        (Config(engine=EngineConfig(name="vllm", embedded_ears=False)), {"voice"}),
        (Config(engine=EngineConfig(name="scripted")), set()),
        (Config(engine=EngineConfig(name="scripted"), candidate=VLLM), {"ears", "voice"}),
    ],
)
def test_what_the_configuration_needs_is_loaded_and_no_more(config: Config, expected: set[str]) -> None:
    assert parts.wanted(config) == expected


def test_only_the_models_of_the_parts_are_needed() -> None:
    assert len(models.needed(LocalConfig())) == 2
    assert models.needed(LocalConfig(), frozenset({"ears", "voice"})) == ("whisper-base",)
    assert models.needed(LocalConfig(), frozenset({"voice"})) == ()


def test_parts_are_named_on_the_command_line() -> None:
    assert parts.from_text(parts.to_text(parts.ALL)) == parts.ALL
    assert parts.from_text("ears") == {"ears"}
    for wrong in ("", "nose", "ears,nose"):
        with pytest.raises(ValueError, match="is not a list"):
            parts.from_text(wrong)
