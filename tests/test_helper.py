"""The client of the embedded voice and ears, against their real routes with stand-ins for the models."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from pathlib import Path

import numpy as np
import pytest
from aiohttp import web

from test_local_audio_api import Ears, Voice
from visavis.audio import RATE
from visavis.engine.helper import HEARING_RATE, Helper
from visavis.errors import EngineBusy, EngineLost
from visavis.local.hearing import Hearing
from visavis.local.server import LocalServer

pytestmark = pytest.mark.slow

WAIT_S = 10.0
TEXT = "Well, hello there. This is the second sentence. And a third."


class Embedded:
    """The embedded engine's voice and ears on a socket, and the client."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.server, self.voice, self.ears = LocalServer("tiny", queue=0), Voice(), Ears()
        self.hearing = Hearing(self.ears)
        self.helper = Helper(str(path))

    async def spoken(self, text: str = TEXT) -> list[int]:
        """The number of each second of sound."""
        async with asyncio.timeout(WAIT_S), aclosing(self.helper.say("call", text)) as sounds:
            pieces = [pcm async for pcm in sounds]
        return [int(value) for value in np.concatenate(pieces)[::RATE]] if pieces else []


@pytest.fixture
async def embedded(tmp_path: Path) -> AsyncGenerator[Embedded, None]:
    embedded = Embedded(tmp_path / "s")
    runner = web.AppRunner(embedded.server.app(), handler_cancellation=True)
    await runner.setup()
    await web.UnixSite(runner, embedded.path).start()
    yield embedded
    await embedded.helper.aclose()
    await runner.cleanup()
    await embedded.hearing.aclose()


async def test_a_text_comes_back_as_sound_as_it_is_made(embedded: Embedded) -> None:
    embedded.server.open(None, embedded.hearing, embedded.voice)
    embedded.voice.gates[1] = asyncio.Event()
    async with asyncio.timeout(WAIT_S), aclosing(embedded.helper.say("call", TEXT)) as sounds:
        heard = 0
        while heard < RATE:
            heard += len(await anext(sounds))
        assert heard == RATE
        embedded.voice.gates[1].set()
        async for pcm in sounds:
            heard += len(pcm)
    assert heard == 3 * RATE
    assert {caller for _, _, caller in embedded.voice.said} == {"call"}
    assert await embedded.spoken() == [4, 5, 6]


async def test_sound_comes_back_as_text_and_its_language_is_spoken_from_then_on(embedded: Embedded) -> None:
    embedded.server.open(None, embedded.hearing, embedded.voice)
    pcm = np.ones(2 * RATE, np.int16)
    assert await embedded.helper.hear("call", pcm) == f"{2 * HEARING_RATE} samples"
    await embedded.spoken("Guten Tag.")
    assert embedded.voice.said[-1][1] == "de"


async def test_closing_ends_the_work(embedded: Embedded) -> None:
    embedded.server.open(None, embedded.hearing, embedded.voice)
    embedded.voice.gates[1] = asyncio.Event()
    sounds = embedded.helper.say("call", TEXT)
    await anext(sounds)
    await sounds.aclose()
    async with asyncio.timeout(WAIT_S):
        while embedded.server.active:  # noqa: ASYNC110 - the connection has no event of its own
            await asyncio.sleep(0.001)


async def test_what_goes_wrong_is_an_engine_error(
    embedded: Embedded, monkeypatch: pytest.MonkeyPatch
) -> None:
    pcm = np.ones(RATE, np.int16)
    with pytest.raises(EngineBusy, match="being loaded"):
        await embedded.spoken()
    with pytest.raises(EngineBusy, match="being loaded"):
        await embedded.helper.hear("call", pcm)
    embedded.server.open(None)
    with pytest.raises(EngineLost, match="without ears"):
        await embedded.helper.hear("call", pcm)
    embedded.server.open(None, embedded.hearing, embedded.voice)
    embedded.voice.fails_at = 1
    with pytest.raises(EngineLost):  # broken off in the middle
        await embedded.spoken()
    embedded.voice.gates[2] = asyncio.Event()
    monkeypatch.setattr("visavis.engine.helper._SPEECH_S", 0.05)
    with pytest.raises(EngineLost, match="in time"):
        await embedded.spoken()


async def test_where_nobody_is_that_is_an_engine_error_too(tmp_path: Path) -> None:
    helper = Helper(str(tmp_path / "nobody"))
    attempts: list[Callable[[], Awaitable[object]]] = [
        lambda: anext(helper.say("call", "Hi.")),
        lambda: helper.hear("call", np.ones(9, np.int16)),
    ]
    for attempt in attempts:
        with pytest.raises(EngineLost, match="cannot be asked"):
            await attempt()
    await helper.aclose()
