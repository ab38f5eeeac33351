"""Whole calls over the loopback interface: a real server in this process, real WebRTC, a scripted engine."""

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace

import aiohttp
import pytest
from kit import Server, running_server, until

from visavis.config import Config, RtcConfig
from visavis.engine import Engine

Serve = Callable[..., Awaitable[Server]]


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    """Start servers: `await serve(engine)`, with a config if need be."""
    async with AsyncExitStack() as stack:

        async def start(engine: Engine, config: Config | None = None) -> Server:
            config = config or Config(rtc=replace(RtcConfig(), connect_s=10.0))
            return await stack.enter_async_context(running_server(config, engine))

        yield start


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


@pytest.fixture
async def nothing_left() -> AsyncIterator[None]:
    """Fail if the test leaves a task behind."""
    before = asyncio.all_tasks()
    yield
    gc.collect()
    own = {asyncio.current_task()}
    await until(lambda: not (asyncio.all_tasks() - before - own), "no task left", 10)
