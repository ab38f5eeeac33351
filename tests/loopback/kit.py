"""A real server in this process, and a way to wait for what a call does."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass

import pytest
from aiohttp import web

from visavis.app import CALLS, build_app
from visavis.calls import Calls
from visavis.config import Config, SessionConfig
from visavis.engine import Delta, Engine, Request
from visavis.session import Session
from visavis.trace import CallTrace
from visavis.vad import GatedVad, SileroPool


@dataclass
class Server:
    url: str
    calls: Calls
    sessions: list[Session]


async def until(condition: Callable[[], bool], what: str, patience_s: float = 30.0) -> None:
    """Wait for a condition; the patience only bounds a test that has failed."""
    try:
        async with asyncio.timeout(patience_s):
            while not condition():  # noqa: ASYNC110 - conditions of all kinds
                await asyncio.sleep(0.01)
    except TimeoutError:
        pytest.fail(f"never came: {what}")


@asynccontextmanager
async def running_server(config: Config, engine: Engine) -> AsyncIterator[Server]:
    pool = SileroPool()
    sessions: list[Session] = []

    def open_call(call_id: str, settings: SessionConfig) -> Session:
        vad = GatedVad(config.conversation.vad, pool)
        sessions.append(Session(call_id, config, settings, engine, vad, CallTrace(config.trace, call_id)))
        return sessions[-1]

    app = build_app(config, open_call, engine.ready)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield Server(f"http://127.0.0.1:{runner.addresses[0][1]}", app[CALLS], sessions)
    finally:
        await runner.cleanup()


class Counted:
    """An engine that knows how many of its responses run."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.running = 0

    async def respond(self, request: Request) -> AsyncGenerator[Delta, None]:
        self.running += 1
        try:
            async with aclosing(self._engine.respond(request)) as deltas:
                async for delta in deltas:
                    yield delta
        finally:
            self.running -= 1

    async def ready(self) -> bool:
        return await self._engine.ready()

    async def aclose(self) -> None:
        await self._engine.aclose()
