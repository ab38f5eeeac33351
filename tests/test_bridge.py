"""The client and the embedded engine's server, which must speak one contract."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import numpy as np
import pytest
from aiohttp import web

from visavis.audio import RATE, Pcm, resample
from visavis.config import EngineConfig
from visavis.engine import (
    AudioDelta,
    AudioPart,
    Delta,
    Done,
    Engine,
    FramesPart,
    Message,
    Request,
    Sent,
    TextDelta,
    TextPart,
    TranscriptDelta,
    Usage,
)
from visavis.engine.open import open_engine
from visavis.errors import EngineBusy, EngineError, EngineLost, EngineRefused
from visavis.frames import Frame
from visavis.local.contract import Ask, Audio, End, Piece, Text, Transcript
from visavis.local.server import LocalServer

pytestmark = pytest.mark.slow

WAVE: Pcm = np.rint(9_000 * np.sin(np.arange(RATE) / 30)).astype(np.int16)
FRAMES = tuple(Frame(b"jpeg %d" % number, 640, 360, number) for number in range(3))
QUESTION = Request(
    "call-1",
    (
        Message("system", (TextPart("Be kind."),)),
        Message("user", (TextPart("Hi."),)),
        Message("assistant", (TextPart("Hello."),)),
        Message("user", (AudioPart(WAVE, "u1"), FramesPart(FRAMES, "f1"))),
    ),
    voice="ethan",
    temperature=0.5,
    max_tokens=7,
)


class Responder:
    """Says its pieces in place of the models."""

    def __init__(self, pieces: Sequence[Piece | Exception], *, hang: bool = False) -> None:
        self.asks: list[Ask] = []
        self.closed = asyncio.Event()
        self._pieces = pieces
        self._hang = hang

    async def respond(self, ask: Ask) -> AsyncGenerator[Piece, None]:
        self.asks.append(ask)
        try:
            for piece in self._pieces:
                if isinstance(piece, Exception):
                    raise piece
                yield piece
            if self._hang:
                await asyncio.Event().wait()
        finally:
            self.closed.set()


@asynccontextmanager
async def bridge(responder: Responder | None, folder: Path) -> AsyncIterator[Engine]:
    """Serve a responder, or none yet, and give the client that reaches it."""
    server = LocalServer("tiny", queue=0)
    if responder is not None:
        server.open(responder)
    runner = web.AppRunner(server.app(), handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    await web.UnixSite(runner, str(folder / "s")).start()
    engine = open_engine(EngineConfig(name="local", url=f"unix://{folder / 's'}"))
    try:
        yield engine
    finally:
        await engine.aclose()
        await runner.cleanup()


async def collect(engine: Engine, request: Request = QUESTION) -> list[Delta]:
    async with asyncio.timeout(20), aclosing(engine.respond(request)) as deltas:
        return [delta async for delta in deltas if not isinstance(delta, Sent)]


async def test_all_that_is_asked_arrives(tmp_path: Path) -> None:
    responder = Responder([End()])
    async with bridge(responder, tmp_path) as engine:
        await collect(engine)
    (ask,) = responder.asks
    assert [(turn.role, turn.text) for turn in ask.turns] == [
        ("system", "Be kind."),
        ("user", "Hi."),
        ("assistant", "Hello."),
        ("user", ""),
    ]
    (heard,) = ask.turns[-1].sounds
    assert np.array_equal(heard.pcm(), resample(WAVE, RATE, 16_000))
    assert ask.turns[-1].jpegs == tuple(frame.jpeg for frame in FRAMES)
    assert (ask.caller, ask.speak, ask.temperature, ask.max_tokens) == ("call-1", True, 0.5, 7)


async def test_all_that_is_answered_comes_back(tmp_path: Path) -> None:
    pieces: list[Piece] = [
        Transcript("hi there"),
        Text("Hel"),
        Audio(WAVE),
        Text("lo."),
        Audio(WAVE),
        End("length", 5, 3),
    ]
    async with bridge(Responder(pieces), tmp_path) as engine:
        deltas = await collect(engine)
    assert [delta for delta in deltas if not isinstance(delta, AudioDelta)] == [
        TranscriptDelta("hi there"),
        TextDelta("Hel"),
        TextDelta("lo."),
        Usage(5, 3),
        Done("length"),
    ]
    assert [type(delta) for delta in deltas[1:5]] == [TextDelta, AudioDelta, TextDelta, AudioDelta]
    sound = np.concatenate([delta.pcm for delta in deltas if isinstance(delta, AudioDelta)])
    assert np.array_equal(sound, np.tile(WAVE, 2))


@pytest.mark.parametrize("kind", [EngineRefused, EngineBusy, EngineLost])
async def test_errors_keep_their_kind_and_the_engine_lives_on(
    kind: type[EngineError], tmp_path: Path
) -> None:
    responder = Responder([Text("Hel"), kind("because")])
    async with bridge(responder, tmp_path) as engine:
        for _ in range(2):
            with pytest.raises(EngineError, match="because") as caught:
                await collect(engine)
            assert type(caught.value) is kind
        assert await engine.ready()


async def test_an_engine_that_loads_its_models_is_busy_and_not_ready(tmp_path: Path) -> None:
    async with bridge(None, tmp_path) as engine:
        assert not await engine.ready()
        with pytest.raises(EngineBusy, match="being loaded"):
            await collect(engine)


async def test_a_full_queue_is_busy_and_a_cancelled_response_makes_room(tmp_path: Path) -> None:
    responder = Responder([Text("Hel")], hang=True)
    async with bridge(responder, tmp_path) as engine:
        deltas = engine.respond(QUESTION)
        assert isinstance(await anext(deltas), Sent)
        assert await anext(deltas) == TextDelta("Hel")
        with pytest.raises(EngineBusy, match="already being served"):
            await collect(engine)
        assert not responder.closed.is_set()
        await deltas.aclose()
        await asyncio.wait_for(responder.closed.wait(), 20)
        async with asyncio.timeout(20):
            while True:
                try:
                    async with aclosing(engine.respond(QUESTION)) as again:
                        assert isinstance(await anext(again), Sent)
                    break
                except EngineBusy:  # the server has not counted it out yet
                    await asyncio.sleep(0.01)
