"""What a session has others judge and write down: a turn that may be over, a word said over the answer."""

import asyncio
import json
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from prometheus_client import REGISTRY

from sim import SILENCE, UNHURRIED, VOICE, LevelEar
from visavis.audio import RATE, Pcm
from visavis.config import Config, ConversationConfig, EngineConfig, SessionConfig
from visavis.engine import AudioDelta, Delta, Request, TextDelta
from visavis.errors import EngineBusy
from visavis.metrics import COUNTED
from visavis.rtc import PeerStats
from visavis.session import Session
from visavis.trace import CallTrace

JUDGED = replace(UNHURRIED, turns=replace(UNHURRIED.turns, smart_turn=Path("model.onnx")))


class Peer:
    """The caller's end; notes what it is told."""

    told: list[str]

    def __init__(self, *_: object) -> None: ...

    def send_message(self, text: str) -> None:
        self.told.append(json.loads(text)["type"])

    def want_video(self, fps: float) -> None: ...

    def stats(self) -> PeerStats:
        return PeerStats()

    async def aclose(self) -> None: ...


class Talkative:
    """Says much, and has no end."""

    async def respond(self, request: Request) -> AsyncGenerator[Delta, None]:
        yield TextDelta("and so on and so forth")
        yield AudioDelta(np.full(30 * RATE, 1000, np.int16))
        await asyncio.Event().wait()

    async def ready(self) -> bool:
        return True

    async def aclose(self) -> None: ...


class Ears:
    """Write down what they are told to, once they are."""

    def __init__(self, text: str | None = None) -> None:
        self.text = text
        self.go = asyncio.Event()
        self.heard: list[Pcm] = []
        self.open = 0

    async def hear(self, call_id: str, pcm: Pcm) -> str:
        self.heard.append(pcm)
        self.open += 1
        try:
            await self.go.wait()
        finally:
            self.open -= 1
        if self.text is None:
            raise EngineBusy("no room")
        return self.text


class Call:
    def __init__(self, session: Session) -> None:
        self._session = session

    async def hears(self, seconds: float, block: Pcm = SILENCE) -> None:
        for _ in range(round(seconds * 50)):
            self._session.receive_audio(block)
            self._session.pull_audio()
            await asyncio.sleep(0)

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not condition():  # noqa: ASYNC110 - conditions of all kinds
                await asyncio.sleep(0)


@asynccontextmanager
async def calling(
    monkeypatch: pytest.MonkeyPatch,
    conversation: ConversationConfig = UNHURRIED,
    ears: Ears | None = None,
    judge: Callable[[Pcm], float] | None = None,
) -> AsyncIterator[Call]:
    monkeypatch.setattr(Peer, "told", [], raising=False)
    config = Config(engine=EngineConfig(name="vllm"), conversation=conversation)
    session = Session(
        "call",
        config,
        SessionConfig(),
        Talkative(),
        LevelEar(),
        CallTrace(config.trace, "call"),
        ears=ears,
        judge=judge,
        media=SimpleNamespace(peer=Peer),
    )
    running = asyncio.create_task(session.run())
    try:
        await asyncio.sleep(0)
        yield Call(session)
    finally:
        session.hang_up("the test is over")
        await running


async def say_a_word_over_the_answer(call: Call) -> None:
    await call.hears(1.0, VOICE)
    await call.hears(2.0)
    await call.hears(0.3, VOICE)
    await call.hears(0.1)


async def test_a_word_over_the_answer_is_written_down_and_decides(monkeypatch: pytest.MonkeyPatch):
    ears = Ears("the next one")
    async with calling(monkeypatch, ears=ears) as call:
        await say_a_word_over_the_answer(call)
        assert [np.count_nonzero(pcm) for pcm in ears.heard] == [pytest.approx(0.3 * RATE, abs=480)]
        assert "output_audio_buffer.cleared" not in Peer.told
        ears.go.set()
        await call.until(lambda: "output_audio_buffer.cleared" in Peer.told)


async def test_what_happens_between_the_two_is_counted(monkeypatch: pytest.MonkeyPatch):
    def count(what: str) -> float:
        return REGISTRY.get_sample_value("visavis_turn_taking_total", {"what": what}) or 0.0

    before = {what: count(what) for what in COUNTED}
    async with calling(monkeypatch, ConversationConfig()) as call:
        await say_a_word_over_the_answer(call)
        await call.hears(1.0)
        await call.hears(1.0, VOICE)
    counted = {what: count(what) - before[what] for what in COUNTED}
    assert {what for what, times in counted.items() if times} == {"draft_used", "aside", "barge_in"}


async def test_ears_that_fail_change_nothing(monkeypatch: pytest.MonkeyPatch):
    ears = Ears(None)
    ears.go.set()
    async with calling(monkeypatch, ears=ears) as call:
        await say_a_word_over_the_answer(call)
        await call.hears(1.0)
        assert len(ears.heard) == 1
        assert "output_audio_buffer.cleared" not in Peer.told


async def test_a_call_without_ears_goes_by_the_sound_alone(monkeypatch: pytest.MonkeyPatch):
    async with calling(monkeypatch) as call:
        await say_a_word_over_the_answer(call)
        await call.hears(1.0)
        assert "output_audio_buffer.cleared" not in Peer.told


async def test_a_newer_word_is_written_down_in_place_of_an_older_one_and_none_after_the_call(
    monkeypatch: pytest.MonkeyPatch,
):
    ears = Ears("the next one")
    async with calling(monkeypatch, ears=ears) as call:
        await say_a_word_over_the_answer(call)
        await call.hears(1.0)
        await call.hears(0.3, VOICE)
        await call.hears(0.1)
        assert len(ears.heard) == 2
        await call.until(lambda: ears.open == 1)
    assert ears.open == 0


async def test_a_model_judges_the_turn_one_silence_at_a_time(monkeypatch: pytest.MonkeyPatch):
    go = threading.Event()
    judged: list[int] = []

    def judge(pcm: Pcm) -> float:
        judged.append(len(pcm))
        go.wait(20)
        return 0.99

    async with calling(monkeypatch, JUDGED, judge=judge) as call:
        try:
            await call.hears(1.0, VOICE)
            await call.hears(0.3)
            await call.until(lambda: len(judged) == 1)
            assert "input_audio_buffer.committed" not in Peer.told
        finally:
            go.set()
        while "input_audio_buffer.committed" not in Peer.told:
            await call.hears(0.02)
        assert len(judged) == 1


async def test_without_a_model_nothing_is_judged(monkeypatch: pytest.MonkeyPatch):
    async with calling(monkeypatch, JUDGED) as call:
        await call.hears(1.0, VOICE)
        await call.hears(1.0)
        assert "input_audio_buffer.committed" in Peer.told
