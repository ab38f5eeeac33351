"""A real server in this process, and a way to wait for what a call does."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
import av
import pytest
from aiohttp import web

from speech import silence
from visavis.app import CALLS, build_app
from visavis.audio import BLOCK, RATE, Pcm, level_dbfs
from visavis.calls import Calls
from visavis.carrier import Carrier
from visavis.config import Config, RtcConfig, ServerConfig, SessionConfig
from visavis.ear import caller_ear
from visavis.engine import Delta, Engine, Request
from visavis.frames import Frame
from visavis.resume import TOKEN_HEADER, Kept
from visavis.rtc import Media, OutgoingPeer
from visavis.session import Session
from visavis.trace import CallTrace
from visavis.vad import SileroPool
from visavis.wire import MakeWire


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
async def running_server(
    config: Config, engine: Engine, session: type[Session] = Session, host: str = "127.0.0.1"
) -> AsyncIterator[Server]:
    """Serve on loopback, at `config.server.port` unless that is the usual one: then at any that is free."""
    pool = SileroPool()
    media = Media(config.rtc, config.conversation.camera)
    await media.open()
    sessions: list[Session] = []

    def open_call(
        call_id: str,
        settings: SessionConfig,
        kept: Kept,
        wire: MakeWire | None = None,
        carrier: Carrier | None = None,
    ) -> Session:
        ear = caller_ear(config.conversation, pool)
        trace = CallTrace(config.trace, call_id)
        parts = (call_id, config, settings, engine, ear, trace)
        most = None if carrier is None else config.server.max_socket_message
        sessions.append(session(*parts, media=carrier or media, kept=kept, wire=wire, max_message=most))
        return sessions[-1]

    app = build_app(config, open_call, engine.ready)
    runner = web.AppRunner(app)
    await runner.setup()
    port = 0 if config.server.port == ServerConfig().port else config.server.port
    try:
        await web.TCPSite(runner, host, port).start()
        yield Server(f"http://{host}:{runner.addresses[0][1]}", app[CALLS], sessions)
    finally:
        await runner.cleanup()
        await media.aclose()


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


class Ear:
    """A bare caller: says what it is given, keeps what it hears and is told."""

    def __init__(self) -> None:
        self.to_say: list[Pcm] = []
        self.heard: list[Pcm] = []
        self.events: list[dict[str, Any]] = []
        self.closed_with: str | None = None
        self.open = False

    def say(self, pcm: Pcm) -> None:
        self.to_say += [pcm[at : at + BLOCK] for at in range(0, len(pcm) - BLOCK + 1, BLOCK)]

    def kinds(self) -> Counter[str]:
        return Counter(event["type"] for event in self.events)

    def hears(self) -> bool:
        return bool(self.heard) and level_dbfs(self.heard[-1]) > -50

    def pull_audio(self) -> Pcm:
        return self.to_say.pop(0) if self.to_say else silence(BLOCK / RATE)

    def receive_audio(self, pcm: Pcm) -> None:
        self.heard.append(pcm)

    def wants_frame(self, at: int, source: str = "camera") -> bool:
        return False

    def receive_frame(self, frame: Frame) -> None:
        pass

    def receive_message(self, text: str) -> None:
        self.events.append(json.loads(text))
        self.open |= self.events[-1]["type"] == "session.created"

    def channel_opened(self) -> None:
        pass

    def connected(self) -> None:
        pass

    def closed(self, reason: str) -> None:
        self.closed_with = reason


class Caller:
    """A bare caller, with a camera if there is a film. `async with` it: a call, hung up at the end."""

    def __init__(
        self,
        url: str,
        http: aiohttp.ClientSession,
        ear: Ear | None = None,
        film: Callable[[], Awaitable[av.VideoFrame]] | None = None,
        fps: float = 12.0,
        token: str | None = None,
        key: str | None = None,
    ) -> None:
        """`token` is that of a call which this one goes on from, `key` one of the server's."""
        self.ear = ear or Ear()
        self.token = token
        self._key = key
        self.peer: OutgoingPeer
        self._media = Media(RtcConfig())
        self._film = (film, fps)
        self._url = url
        self._http = http
        self.call_id = ""

    async def __aenter__(self) -> "Caller":
        await self.connect()
        return self

    async def connect(self) -> None:
        await self._media.open()
        self.peer = self._media.caller(self.ear, *self._film)
        url = f"{self._url}/v1/realtime/calls"
        headers = {"Content-Type": "application/sdp"}
        if self.token is not None:
            headers[TOKEN_HEADER] = self.token
        if self._key is not None:
            headers["Authorization"] = f"Bearer {self._key}"
        async with self._http.post(url, data=await self.peer.offer(), headers=headers) as response:
            assert response.status == 201, await response.text()
            self.token = response.headers[TOKEN_HEADER]
            self.call_id = response.headers["Location"].rsplit("/", 1)[-1]
            await self.peer.accept(await response.text())
        await until(lambda: self.ear.open, "session.created")

    async def __aexit__(self, *_: object) -> None:
        await self.peer.aclose()
        await self._media.aclose()

    def send(self, event: dict[str, Any]) -> None:
        self.peer.send_message(json.dumps(event))
