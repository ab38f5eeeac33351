"""Whatever an engine does to one answer, its caller hears something, and the next turn works.

A whole session over a real client and a server that misbehaves; only the caller's media are invented.
"""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from replay import replay

from engine_wire import (
    DONE,
    RAMP,
    ROLE,
    Clock,
    Play,
    Refuse,
    Server,
    Wire,
    chunk,
    event,
    hang,
    say_hello,
    serving,
    sound,
    until,
)
from visavis.audio import RATE
from visavis.config import Config, EngineConfig, SessionConfig, TraceConfig
from visavis.ear import Sound
from visavis.engine.vllm import VllmEngine
from visavis.lines import Line, Lines
from visavis.rtc import PeerStats
from visavis.session import Session
from visavis.trace import CallTrace

pytestmark = pytest.mark.slow

SORRY = Line("Sorry.", np.full(RATE // 10, 500, np.int16))


class Caller:
    """In place of the WebRTC peer: takes what the session sends, and plays its part."""

    def __init__(self, *_: object) -> None:
        self.told: list[dict[str, Any]] = []
        self.heard = 0
        "Blocks with sound in them."

    def send_message(self, text: str) -> None:
        self.told.append(json.loads(text))

    def want_video(self, fps: float) -> None: ...

    def stats(self) -> PeerStats:
        return PeerStats()

    async def aclose(self) -> None:
        pass

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.told if event["type"] == kind]


class NoVoice:
    """No speech: the caller types."""

    def receive(self, pcm: object) -> Sound:
        return Sound(0.0)

    def play(self, pcm: object) -> None:
        pass

    def reset(self) -> None:
        pass


class Call:
    def __init__(self, session: Session, caller: Caller) -> None:
        self._session = session
        self.caller = caller

    def ask(self, text: str) -> None:
        content = [{"type": "input_text", "text": text}]
        item = {"type": "message", "role": "user", "content": content}
        for message in ({"type": "conversation.item.create", "item": item}, {"type": "response.create"}):
            self._session.receive_message(json.dumps(message))

    async def listen(self, condition: Callable[[], bool]) -> None:
        """Take the sound of the call, faster than it would be played, until the condition holds."""
        async with asyncio.timeout(20):
            while not condition():
                self.caller.heard += bool(self._session.pull_audio().any())
                await asyncio.sleep(0.001)

    async def answer(self, number: int) -> dict[str, Any]:
        """Listen to the end of the call's nth response, and return it."""
        ends = ("output_audio_buffer.stopped", "output_audio_buffer.cleared")
        await self.listen(
            lambda: (
                len(self.caller.of("response.done")) == number
                and sum(len(self.caller.of(kind)) for kind in ends) == number
            )
        )
        response: dict[str, Any] = self.caller.of("response.done")[-1]["response"]
        return response


@asynccontextmanager
async def calling(
    play: Play, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> AsyncIterator[tuple[Call, Server]]:
    """A call to an engine that is played so."""
    async with serving(play, folder / "s") as server:
        config = Config(engine=EngineConfig(name="vllm", url=server.url), trace=TraceConfig(folder))
        engine = VllmEngine(config.engine)
        trace = CallTrace(config.trace, "rtc_1")
        media = SimpleNamespace(peer=Caller)
        lines = Lines(apology=SORRY)
        session = Session("rtc_1", config, SessionConfig(), engine, NoVoice(), trace, lines, media=media)
        caller = session._peer
        assert isinstance(caller, Caller)
        running = asyncio.create_task(session.run())
        try:
            await asyncio.sleep(0)
            yield Call(session, caller), server
        finally:
            session.hang_up("the test is over")
            await running
            await engine.aclose()


def faulty(fault: Play) -> Play:
    """Answer the first request so, the others as it should be."""

    async def play(wire: Wire) -> None:
        await (fault(wire) if wire.number == 1 else say_hello(wire))

    return play


def writes(*data: bytes, then: Play | None = None) -> Play:
    async def play(wire: Wire) -> None:
        await wire.write(*data)
        if then is not None:
            await then(wire)

    return play


async def drop(wire: Wire) -> None:
    wire.drop()


def refuses(status: int, body: str = '{"error": {"message": "because"}}') -> Play:
    async def play(wire: Wire) -> None:
        raise Refuse(status, body)

    return play


BEGUN = (ROLE, chunk("Hel", "text"))
HEARD = (*BEGUN, sound(RAMP), sound(RAMP))
HALF = chunk("lo.", "text", "stop")[:-20]
ERROR = event({"error": {"message": "because", "type": "x", "code": 500}})

ENDS = {
    "garbage": (writes(b"\x00\xff garbage\r\n\r\n"), "engine_lost"),
    "no JSON": (writes(b"data: {nope\n\n"), "engine_lost"),
    "no stream": (refuses(200, "<html>Welcome!</html>"), "engine_lost"),
    "no answer at all": (writes(), "engine_lost"),
    "half a line": (writes(HALF), "engine_lost"),
    "half a line within": (writes(*BEGUN, HALF), "engine_lost"),
    "half a line after sound": (writes(*HEARD, HALF, then=drop), "engine_lost"),
    "400": (refuses(400), "engine_refused"),
    "429": (refuses(429), "engine_busy"),
    "500": (refuses(500), "engine_lost"),
    "503": (refuses(503), "engine_busy"),
    "error under 200": (writes(ERROR, DONE), "engine_lost"),
    "error after sound": (writes(*HEARD, ERROR, DONE), "engine_lost"),
    "sound that is none": (writes(*BEGUN, chunk("no base64!", "audio")), "engine_lost"),
    "dies at once": (writes(ROLE, then=drop), "engine_lost"),
    "dies before the first sound": (writes(*BEGUN, then=drop), "engine_lost"),
    "dies after the first sound": (writes(*HEARD, then=drop), "engine_lost"),
}
HANGS = {
    "before it answers": (hang, False),
    "before the first delta": (writes(ROLE, then=hang), False),
    "before the first sound": (writes(*BEGUN, then=hang), True),
    "after the first sound": (writes(*HEARD, then=hang), True),
}


async def assert_that_the_next_turn_works(call: Call, server: Server) -> None:
    heard = call.caller.heard
    call.ask("And now?")
    answered = await call.answer(2)
    assert answered["status"] == "completed"
    assert answered["output"][0]["content"][0]["transcript"] == "Hello."
    assert call.caller.heard > heard
    kinds = Counter(event["type"] for event in call.caller.told)
    assert kinds["response.created"] == kinds["response.done"] == 2
    assert len(server.wires) == 2
    # Who asks next is not told of the apology, but of the question that has no answer yet.
    said = json.dumps(server.wires[1].body["messages"])
    assert "Sorry." not in said
    assert "Who are you?" in said


@pytest.mark.parametrize(("fault", "code"), ENDS.values(), ids=ENDS)
async def test_an_engine_that_fails_ends_one_response_with_an_apology(
    fault: Play, code: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with calling(faulty(fault), monkeypatch, tmp_path) as (call, server):
        call.ask("Who are you?")
        failed = await call.answer(1)
        assert failed["status"] == "failed"
        assert failed["status_details"]["error"]["code"] == code
        assert failed["output"][0]["content"][0]["transcript"].endswith("Sorry.")
        assert [event["error"]["code"] for event in call.caller.of("error")] == [code]
        assert call.caller.heard >= len(SORRY.pcm) // 480
        await assert_that_the_next_turn_works(call, server)


@pytest.mark.parametrize(("fault", "begins"), HANGS.values(), ids=HANGS)
async def test_an_engine_that_hangs_is_given_up_with_an_apology_and_told_so(
    fault: Play, begins: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    clock = Clock()
    async with calling(faulty(fault), monkeypatch, tmp_path) as (call, server):
        call.ask("Who are you?")
        await until(lambda: len(server.wires) == 1)
        if begins:
            await until(lambda: bool(call.caller.of("response.output_audio_transcript.delta")))
        assert not call.caller.of("response.done")
        assert not server.aborted.is_set()
        clock.advance(31)
        failed = await call.answer(1)
        assert failed["status"] == "failed"
        assert failed["status_details"]["error"]["code"] == "engine_lost"
        assert call.caller.heard >= len(SORRY.pcm) // 480
        await asyncio.wait_for(server.aborted.wait(), 20)
        await assert_that_the_next_turn_works(call, server)


@pytest.mark.parametrize("begun", [(), BEGUN, HEARD], ids=["unbegun", "written", "heard"])
async def test_an_answer_that_the_caller_stops_is_stopped_at_the_engine(
    begun: tuple[bytes, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with calling(faulty(writes(*begun, then=hang)), monkeypatch, tmp_path) as (call, server):
        call.ask("Who are you?")
        await until(lambda: len(server.wires) == 1)
        if begun:
            await until(lambda: bool(call.caller.of("response.output_audio_transcript.delta")))
        call._session.receive_message('{"type": "response.cancel"}')
        await asyncio.wait_for(server.aborted.wait(), 20)
        await until(lambda: bool(call.caller.of("response.done")))
        (done,) = call.caller.of("response.done")
        assert done["response"]["status"] == "cancelled"
        assert not call.caller.of("error")


async def test_a_call_that_ends_leaves_no_answer_at_the_engine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with calling(writes(*HEARD, then=hang), monkeypatch, tmp_path) as (call, server):
        call.ask("Who are you?")
        await until(lambda: bool(call.caller.of("response.output_audio_transcript.delta")))
        call._session.hang_up("the caller has gone")
        await asyncio.wait_for(server.aborted.wait(), 20)


async def test_a_call_with_a_failure_replays_to_the_same(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with calling(faulty(writes(*HEARD, then=drop)), monkeypatch, tmp_path) as (call, server):
        call.ask("Who are you?")
        await call.answer(1)
        await assert_that_the_next_turn_works(call, server)
    assert replay(tmp_path / "rtc_1.jsonl") is None
    record = (tmp_path / "rtc_1.jsonl").read_text()
    assert '"is":"Sent"' in record
    assert '"is":"Lines"' in record
