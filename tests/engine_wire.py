"""A server of a test's own that writes what vLLM-Omni writes, faults and all, and notes what it sees."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
from aiohttp import web

from visavis.audio import RATE, Pcm

RAMP: Pcm = np.arange(-600, 600, dtype=np.int16)
Play = Callable[["Wire"], Awaitable[None]]


def event(data: object) -> bytes:
    return b"data: " + json.dumps(data).encode() + b"\n\n"


def chunk(content: str, modality: str | None = None, finish: str | None = None, **choice: Any) -> bytes:
    data: dict[str, Any] = {
        "id": "x",
        "choices": [{"index": 0, "delta": {"content": content}, "finish_reason": finish, **choice}],
    }
    return event(data if modality is None else data | {"modality": modality})


def sound(pcm: Pcm, finish: str | None = None) -> bytes:
    metadata = {"format": "pcm16", "sample_rate_hz": RATE, "frame_count": len(pcm), "channels": 1}
    content = base64.b64encode(pcm.tobytes()).decode()
    return chunk(content, "audio", finish, audio_metadata=metadata)


ROLE = chunk("", "text", role="assistant")
USAGE = event({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}})
DONE = b"data: [DONE]\n\n"
ANSWER = (ROLE, chunk("Hel", "text"), sound(RAMP), chunk("lo.", "text"), sound(RAMP, "stop"), USAGE, DONE)


class Wire:
    """One request at the server, and its answer to write."""

    def __init__(self, request: web.Request, body: Any, number: int) -> None:
        self.request = request
        self.body = body
        self.number = number
        "Counted from 1."
        self._response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})

    async def write(self, *data: bytes) -> None:
        if not self._response.prepared:
            await self._response.prepare(self.request)
        for piece in data:
            await self._response.write(piece)

    async def end(self) -> web.StreamResponse:
        if not self._response.prepared:
            await self._response.prepare(self.request)
        await self._response.write_eof()
        return self._response

    def drop(self) -> None:
        assert self.request.transport is not None
        self.request.transport.abort()


class Refuse(Exception):
    """Answers without a stream."""

    def __init__(self, status: int, body: str = "", **headers: str) -> None:
        self.response = web.Response(status=status, text=body, headers=headers)


class Server:
    """Plays one script to all who ask and notes what it sees."""

    def __init__(self, play: Play) -> None:
        self.url = ""
        self.wires: list[Wire] = []
        self.aborted = asyncio.Event()
        self.connections: set[asyncio.BaseTransport] = set()
        self._play = play
        app = web.Application(client_max_size=2**26)
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_get("/health", self._health)
        self.health = 200
        self.runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)

    async def _health(self, _: web.Request) -> web.Response:
        return web.Response(status=self.health)

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        self.connections.add(request.transport)
        wire = Wire(request, await request.json(), len(self.wires) + 1)
        self.wires.append(wire)
        try:
            await self._play(wire)
            return await wire.end()
        except Refuse as refusal:
            return refusal.response
        except (asyncio.CancelledError, ConnectionError):
            self.aborted.set()
            raise

    @property
    def open_connections(self) -> int:
        return sum(not connection.is_closing() for connection in self.connections)


@asynccontextmanager
async def serving(play: Play, path: Path | None = None) -> AsyncIterator[Server]:
    server = Server(play)
    await server.runner.setup()
    try:
        if path is not None:
            await web.UnixSite(server.runner, str(path)).start()
            server.url = f"unix://{path}"
        else:
            await web.TCPSite(server.runner, "127.0.0.1", 0).start()
            host, port = server.runner.addresses[0][:2]
            server.url = f"http://{host}:{port}"
        yield server
    finally:
        await server.runner.cleanup()


class Clock:
    """Lets the time of the running loop jump ahead."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        real = loop.time
        self._ahead = 0.0
        loop.time = lambda: real() + self._ahead  # type: ignore[method-assign]

    def advance(self, seconds: float) -> None:
        self._ahead += seconds


async def settle() -> None:
    """Let what was written to a Unix socket arrive: the kernel passes it on at once."""
    for _ in range(100):
        await asyncio.sleep(0)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110, what is waited for has no event
            await asyncio.sleep(0.001)


def playing(*data: bytes) -> Play:
    async def play(wire: Wire) -> None:
        await wire.write(*data)

    return play


async def say_hello(wire: Wire) -> None:
    await wire.write(*ANSWER)


async def hang(wire: Wire) -> None:
    await asyncio.Event().wait()
