"""From the microphone to the server's samples: tones are sent, and the server notes when it hears them."""

import asyncio
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp
import numpy as np

from . import sdp
from .clips import RATE
from .crowd import Address
from .figures import LATEST_S, match
from .line import Exchange
from .relay import relaying

TEN_MS = RATE // 100
EVERY = 103
"Blocks of 10 ms from one tone to the next: odd, so that they begin in either half of a packet."
TONE = 10
"Blocks of 10 ms of a tone: what is softer at its beginning is loud after a millisecond."
SETTLE_S = 2.0
"At the beginning of a call nothing counts."


async def probe(
    exchange: Exchange, url: str, onsets: Path, seconds: float, loss: float | None = None
) -> tuple[list[float], int]:
    """Call, send tones for some seconds, and match them with what a `media_server` wrote.

    `loss` is the share of packets that a relay loses; None is no relay.
    """
    known = len(_times(onsets))
    address, line = Address(url), exchange.line()
    async with AsyncExitStack() as stack:
        stack.callback(line.close)
        http = await stack.enter_async_context(aiohttp.ClientSession())

        async def signal(offer: str) -> str:
            if loss is None:
                answer, place = await address.signal(http, offer)
            else:
                host = sdp.first_candidate(offer)[0]
                relay = await stack.enter_async_context(relaying(host, loss))
                answer, place = await address.signal(http, relay.offer(offer))
                answer = relay.answer(answer)
            stack.push_async_callback(address.hang_up, http, place)
            return answer

        await line.open(signal)
        sent = await _send_tones(line.push, seconds)
        await asyncio.sleep(LATEST_S)
    return match(sent, _times(onsets)[known:])


async def _send_tones(push: Callable[[bytes], None], seconds: float) -> list[float]:
    times = np.arange(TEN_MS) / RATE
    tone = (12_000 * np.sin(2 * np.pi * 1_000 * times)).astype("<i2").tobytes()
    noise = np.random.default_rng(0).normal(0, 8, TEN_MS).astype("<i2").tobytes()
    sent: list[float] = []
    began = time.monotonic()
    for number in range(round((seconds + SETTLE_S) * 100)):
        place = number % EVERY
        if place == 0 and number > 100 * SETTLE_S:
            sent.append(time.monotonic())
        push(tone if place < TONE else noise)
        await asyncio.sleep(max(0.0, began + (number + 1) / 100 - time.monotonic()))
    return sent


def _times(path: Path) -> list[float]:
    return [float(line) for line in path.read_text().splitlines()] if path.exists() else []
