"""A call in which the server's own functions are called: run, seen, heard, and ended by them."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import replay

from sim import SILENCE, UNHURRIED, VOICE, LevelEar
from visavis.config import Config, SessionConfig, Tool, ToolsConfig, TraceConfig
from visavis.engine import FramesPart, Request, ResultPart, ToolCall
from visavis.engine.scripted import Reply, ScriptedEngine
from visavis.frames import Frame
from visavis.local.candour import asks_for_things
from visavis.local.sight import About, asks_about_sight
from visavis.rtc import PeerStats
from visavis.session import Session
from visavis.tools import Arguments, Context, of_call
from visavis.tools.builtin import BuiltIn
from visavis.tools.toolbox import Toolbox
from visavis.trace import CallTrace

SHORT = replace(UNHURRIED, camera=replace(UNHURRIED.camera, idle_fps=0.0))


class Peer:
    """The caller's end."""

    def __init__(self) -> None:
        self.told: list[dict[str, Any]] = []
        self.wanted: list[float] = []

    def send_message(self, text: str) -> None:
        self.told.append(json.loads(text))

    def want_video(self, fps: float) -> None:
        self.wanted.append(fps)

    def stats(self) -> PeerStats:
        return PeerStats()

    async def aclose(self) -> None: ...


@dataclass
class Bell:
    """A function that rings until it is let go."""

    go: asyncio.Event = field(default_factory=asyncio.Event)
    rings: int = 0
    stopped: int = 0
    tools: Sequence[Tool] = (Tool("bell", "Rings."),)

    def timeout_s(self, name: str) -> float | None:
        return None

    async def run(self, name: str, arguments: Arguments, context: Context) -> str:
        self.rings += 1
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.stopped += 1
            raise
        return f"It rang in {context.call_id}."


class Call:
    def __init__(self, session: Session, peer: Peer, engine: ScriptedEngine) -> None:
        self.session, self.peer, self.engine = session, peer, engine
        self.over = False

    async def hears(self, seconds: float, block: Any = SILENCE) -> None:
        for _ in range(round(seconds * 50)):
            self.session.receive_audio(block)
            self.session.pull_audio()
            await asyncio.sleep(0)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Go on with the call, in silence, until then."""
        async with asyncio.timeout(20):
            while not condition():
                await self.hears(0.02)

    async def asks(self) -> None:
        await self.hears(1.0, VOICE)
        await self.until(lambda: "response.created" in self.kinds)

    @property
    def kinds(self) -> list[str]:
        return [event["type"] for event in self.peer.told]

    @property
    def requests(self) -> list[Request]:
        return list(self.engine.requests)


@asynccontextmanager
async def calling(
    *replies: Reply, bell: Bell | None = None, trace: Path | None = None, allow: str = "*"
) -> AsyncIterator[Call]:
    config = Config(conversation=SHORT, trace=TraceConfig(dir=trace))
    toolbox = Toolbox(ToolsConfig(allow=(allow,)), [BuiltIn(), *([bell] if bell else [])])
    engine, peer = ScriptedEngine(replies), Peer()
    session = Session(
        "call",
        config,
        SessionConfig(),
        engine,
        LevelEar(),
        CallTrace(config.trace, "call"),
        media=SimpleNamespace(peer=lambda *_: peer),
        toolbox=toolbox,
    )
    call = Call(session, peer, engine)
    running = asyncio.create_task(session.run())
    running.add_done_callback(lambda _: setattr(call, "over", True))
    try:
        await asyncio.sleep(0)
        yield call
    finally:
        session.hang_up("the test is over")
        await running


def calls(name: str, words: str = "") -> Reply:
    return Reply(words, calls=(ToolCall("c1", name, "{}"),))


ANSWER = Reply("It rang, I am told.")


async def test_a_function_is_run_and_what_it_gave_is_answered() -> None:
    bell = Bell()
    async with calling(calls("bell"), ANSWER, bell=bell) as call:
        await call.asks()
        await call.until(lambda: bell.rings == 1)
        assert len(call.requests) == 1
        bell.go.set()
        await call.until(lambda: len(call.requests) == 2)
        first, second = call.requests
        assert [tool.name for tool in first.tools] == ["look", "end_call", "bell"]
        results = [part for m in second.messages for part in m.parts if isinstance(part, ResultPart)]
        assert [part.output for part in results] == ["It rang in call."]
        await call.until(lambda: call.kinds.count("output_audio_buffer.stopped") == 1)


async def test_what_is_not_allowed_is_neither_offered_nor_run() -> None:
    bell = Bell()
    async with calling(calls("bell"), ANSWER, bell=bell, allow="look") as call:
        await call.asks()
        await call.hears(1.0)
        assert [tool.name for tool in call.requests[0].tools] == ["look"]
        assert bell.rings == 0


async def test_what_still_runs_at_the_end_of_the_call_is_cancelled() -> None:
    bell = Bell()
    async with calling(calls("bell"), ANSWER, bell=bell) as call:
        await call.asks()
        await call.until(lambda: bell.rings == 1)
    assert bell.stopped == 1


# Looking.


def picture(at: int) -> Frame:
    return Frame(b"fresh", 1280, 720, at)


async def test_a_look_asks_for_pictures_and_shows_the_newest_with_the_result() -> None:
    async with calling(calls("look"), ANSWER) as call:
        assert call.session.wants_frame(0)  # at first anything is looked at
        await call.asks()
        await call.until(lambda: of_call.LOOK_FPS in call.peer.wanted)
        at = call.session._conversation.position
        assert call.session.wants_frame(at)
        call.session.receive_frame(picture(at))
        await call.until(lambda: len(call.requests) == 2)
        *_, result, seen = call.requests[1].messages
        assert result.role == "tool"
        (shown,) = [part for part in seen.parts if isinstance(part, FramesPart)]
        assert shown.frames[-1].jpeg == b"fresh"
        assert call.peer.wanted[-1] != of_call.LOOK_FPS
        assert {"type": "visavis.camera.wanted", "fps": of_call.LOOK_FPS}.items() <= next(
            event for event in call.peer.told if event.get("fps") == of_call.LOOK_FPS
        ).items()


async def test_a_look_at_a_camera_that_is_off_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_call, "LOOK_S", 0.01)
    async with calling(calls("look"), ANSWER) as call:
        await call.asks()
        await call.until(lambda: len(call.requests) == 2)
        (result,) = call.requests[1].messages[-1].parts
        assert isinstance(result, ResultPart)
        assert "camera is off" in result.output


def test_the_embedded_engine_looks_at_the_picture_of_a_look() -> None:
    assert asks_about_sight(of_call._SEEN, "en") is About.YES
    assert not asks_for_things(of_call._SEEN, "en")


# Ending.

GOODBYE = Reply("Goodbye!")


async def test_a_call_ends_when_its_goodbye_has_been_heard() -> None:
    async with calling(calls("end_call", "All right."), GOODBYE) as call:
        await call.asks()
        await call.until(lambda: len(call.requests) == 2)
        await call.until(lambda: call.kinds.count("output_audio_buffer.started") == 2)
        assert not call.over
        await call.until(lambda: call.over)
        assert call.kinds.count("output_audio_buffer.stopped") == 2
        assert call.session._reason == "the assistant ended the call"


async def test_who_speaks_over_the_goodbye_keeps_the_call() -> None:
    long = Reply("Goodbye, and thank you for this nice talk, which I have enjoyed very much.")
    async with calling(calls("end_call"), long, *(ANSWER,) * 4) as call:
        await call.asks()
        await call.until(lambda: call.kinds.count("output_audio_buffer.started") == 1)
        await call.hears(1.5, VOICE)
        assert "output_audio_buffer.cleared" in call.kinds
        await call.until(lambda: call.kinds.count("output_audio_buffer.stopped") == 1)
        await call.hears(0.5)
        assert not call.over


async def test_a_call_with_functions_can_be_replayed(tmp_path: Path) -> None:
    async with calling(calls("look"), ANSWER, trace=tmp_path) as call:
        await call.asks()
        await call.until(lambda: of_call.LOOK_FPS in call.peer.wanted)
        at = call.session._conversation.position
        call.session.wants_frame(at)
        call.session.receive_frame(picture(at))
        await call.until(lambda: len(call.requests) == 2)
        await call.until(lambda: "output_audio_buffer.stopped" in call.kinds)
    assert replay.replay(tmp_path / "call.jsonl") is None
