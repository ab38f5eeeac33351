"""A hundred calls come and go, half of them killed, and nothing of them is left."""

import asyncio
import gc
import os
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest
from aiortc import RTCPeerConnection
from kit import Caller, until

from visavis.config import Config, RtcConfig, ServerConfig
from visavis.conversation import Conversation
from visavis.engine.scripted import Reply, ScriptedEngine
from visavis.rtc import Peer
from visavis.session import Session

pytestmark = [pytest.mark.loopback, pytest.mark.usefixtures("nothing_left")]

KINDS = (Session, Conversation, Peer, RTCPeerConnection)


def belongings() -> Counter[str]:
    """Count what a call could leave behind in this process."""
    gc.collect()
    kinds = Counter(type(thing).__name__ for thing in gc.get_objects() if isinstance(thing, KINDS))
    return kinds + Counter(
        tasks=len(asyncio.all_tasks()),
        sockets=sum(name.startswith("socket:") for name in open_files()),
        # Those of the loop's own pool are made one by one as need be, and stay.
        threads=sum(not thread.name.startswith("asyncio_") for thread in threading.enumerate()),
    )


def open_files() -> Iterator[str]:
    for link in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            yield str(link.readlink())


async def test_a_hundred_calls_half_of_them_killed_leave_nothing(serve, http):
    config = Config(
        server=replace(ServerConfig(), max_requests_per_s=1000.0),
        rtc=replace(RtcConfig(), dead_peer_s=2.0),
    )
    server = await serve(ScriptedEngine([Reply(text="word " * 100)]), config)

    async def ended() -> None:
        await until(lambda: len(server.calls) == 0, "all calls are over", 60)
        server.sessions.clear()

    async with Caller(server.url, http):
        pass
    await ended()
    before = belongings()

    for _ in range(5):
        process = await crowd(server.url, 10)
        assert len(server.calls) == 10
        process.kill()
        await process.wait()
        await ended()

    for _ in range(5):
        await ten_that_hang_up(server.url, http)
    await ended()

    await until(lambda: not (belongings() - before), f"no more than {before}", 20)


async def crowd(url: str, count: int) -> asyncio.subprocess.Process:
    here = Path(__file__).parent
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(here / "crowd.py"),
        url,
        str(count),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(here.parent), str(here)])},
    )
    assert process.stdout is not None
    assert await process.stdout.readline() == b"connected\n"
    return process


async def ten_that_hang_up(url: str, http: aiohttp.ClientSession) -> None:
    async with AsyncExitStack() as stack:
        for _ in range(10):
            caller = await stack.enter_async_context(Caller(url, http))
            caller.send({"type": "response.create"})
