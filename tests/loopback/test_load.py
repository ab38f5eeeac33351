"""A crowd of light callers talks with our media over loopback, and what it measures is what happened."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Literal

import numpy as np
import pytest
from aiohttp import web
from load.calls import Kinds
from load.clips import RATE, make_clip
from load.crowd import Address, Crowd, measure
from load.film import Film, film
from load.light import Light
from load.proc import Meter
from load.product.media_server import Server
from load.talk import Script

from visavis.config import CameraConfig, RtcConfig
from visavis.frames import Frame
from visavis.rtc import Media

pytestmark = pytest.mark.loopback

VOICE = 6_000 * np.sin(2 * np.pi * 300 * np.arange(RATE) / RATE)
CLIP = make_clip("voice", VOICE)
CALLS = 2


class Watched(Server):
    """Also keeps what its calls saw."""

    def __init__(self, media: Media) -> None:
        self.onsets: list[float] = []
        self.pictures: list[Frame] = []
        super().__init__(media, VOICE.astype(np.int16), CameraConfig(), self.onsets.append)

    def receive_frame(self, frame: Frame) -> None:
        self.pictures.append(frame)


@asynccontextmanager
async def served(backend: Literal["lean", "stock"]) -> AsyncIterator[tuple[str, Watched]]:
    async with Media(RtcConfig(backend=backend), CameraConfig()) as media:
        server = Watched(media)
        runner = web.AppRunner(server.app())
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        try:
            yield f"http://127.0.0.1:{runner.addresses[0][1]}", server
        finally:
            await server.aclose()
            await runner.cleanup()


def crowd(url: str, camera: Film | None = None) -> Crowd:
    light = Light([CLIP])
    return Crowd(Kinds(light, light), Address(url), Script((CLIP,), think_s=(0.2, 0.4), waits=False), camera)


@pytest.mark.parametrize("backend", ["lean", "stock"])
async def test_light_callers_are_heard_and_hear(backend: Literal["lean", "stock"]) -> None:
    async with served(backend) as (url, server), crowd(url) as callers:
        await callers.grow(CALLS)
        async with asyncio.timeout(20):
            while len(server.onsets) < 2 * CALLS:  # noqa: ASYNC110 - calls from elsewhere
                await asyncio.sleep(0.05)
        window = await measure(callers, 2.0, Meter(os.getpid()))
        assert window.calls == CALLS
        assert window.failed == 0
        assert len(window.connected_ms) == len(window.first_audio_ms) == CALLS
        assert window.sound_s > 0.5 * CALLS  # a second of sound in two
        assert window.server_cpu_s > 0
        again = await measure(callers, 0.1, Meter())
        assert again.connected_ms == []
    assert not server.calls


async def test_a_light_callers_camera_is_seen() -> None:
    async with served("lean") as (url, server), crowd(url, film("camera")) as callers:
        await callers.grow(1)
        async with asyncio.timeout(20):
            while len(server.pictures) < 3:  # noqa: ASYNC110 - calls from elsewhere
                await asyncio.sleep(0.05)
    assert (server.pictures[0].width, server.pictures[0].height) == (640, 360)


async def test_calls_that_are_refused_are_told() -> None:
    async with served("lean") as (url, _), crowd(f"{url}/elsewhere") as callers:
        await callers.grow(CALLS)
        window = await measure(callers, 0.05, Meter())
    assert (window.calls, window.failed) == (0, CALLS)
    assert "refused with 404" in (window.failure or "")
