"""A stand-in for the server: real WebRTC, but every answer and event is what the test says.

For what the real server cannot be brought to do on demand: refuse, be full, die, send one certain event.
"""

import asyncio
import contextlib
import fractions
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import av
import numpy as np
from aiohttp import web
from aiortc import MediaStreamTrack, RTCDataChannel, RTCPeerConnection, RTCSessionDescription

from visavis.page import Page, web_root
from visavis.resume import TOKEN_HEADER

RATE = 48_000
BLOCK = 960


class Voice(MediaStreamTrack):
    """Silence, or while `sounding` a tone that swells about three times a second, as syllables do."""

    kind = "audio"

    def __init__(self) -> None:
        super().__init__()
        self.sounding = False
        self._samples = 0
        self._start: float | None = None

    async def recv(self) -> av.AudioFrame:
        loop = asyncio.get_running_loop()
        if self._start is None:
            self._start = loop.time()
        await asyncio.sleep(self._start + self._samples / RATE - loop.time())
        time = (self._samples + np.arange(BLOCK)) / RATE
        wave = np.sin(2 * np.pi * 220 * time) * (0.25 + 0.2 * np.sin(2 * np.pi * 3 * time)) * self.sounding
        frame = av.AudioFrame.from_ndarray((wave * 32_000).astype(np.int16)[None, :], "s16", "mono")
        frame.sample_rate, frame.pts, frame.time_base = RATE, self._samples, fractions.Fraction(1, RATE)
        self._samples += BLOCK
        return frame


class StandIn:
    """The server's answers, to be set before they are asked for, and what clients sent."""

    def __init__(self) -> None:
        self.key: str | None = None
        self.refusals: list[tuple[int, str, dict[str, str]]] = []
        "Status, message and headers of the next answers to calls, used up in order."
        self.posted: list[dict[str, Any]] = []
        "Per call: offer, session and the token of the call that it goes on from."
        self.received: list[dict[str, Any]] = []
        self.deleted: list[str] = []
        self.voice = Voice()
        self.answers_media = True
        "Whether the peer behind an answer is there at all."
        self.remembers = False
        "Calls have tokens, by which later ones go on from them."
        self.call_status = 200
        "What is said of a call to who asks for it."
        self.looked_up: list[str] = []
        self.ready = False
        "Whether another server would take calls."
        self.asked_ready = 0
        self._peers: dict[str, RTCPeerConnection] = {}
        self._channel: RTCDataChannel | None = None
        "Of the newest call, once it is open."
        self._unsent: list[dict[str, Any]] = []
        self._news = asyncio.Event()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until something that a client did makes the condition true."""
        async with asyncio.timeout(10):
            while not condition():
                self._news.clear()
                await self._news.wait()

    def send(self, *events: dict[str, Any]) -> None:
        """Send events, or keep them until the channel is open: the call's media may be there before it."""
        if self._channel is None:
            self._unsent += events
            return
        for event in events:
            self._channel.send(json.dumps({"event_id": "event_1", **event}))

    def fall_silent(self) -> None:
        """Send no sound any more, in calls that stay."""
        for peer in self._peers.values():
            for sender in peer.getSenders():
                sender.replaceTrack(None)

    async def drop(self) -> None:
        """Close all calls without a word over HTTP."""
        self._channel = None
        while self._peers:
            # Their callers hang up meanwhile.
            await self._peers.popitem()[1].close()

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_post("/v1/realtime/calls", self._call)
        app.router.add_get("/v1/realtime/calls/{id}", self._look)
        app.router.add_get("/readyz", self._tell_ready)
        app.router.add_delete("/v1/realtime/calls/{id}", self._hang_up)
        app.add_routes(Page(web_root()).routes())
        return app

    async def _call(self, request: web.Request) -> web.Response:
        if self.key is not None and request.headers.get("Authorization") != f"Bearer {self.key}":
            return _refuse(401, "Incorrect API key provided.", {})
        if self.refusals:
            return _refuse(*self.refusals.pop(0))
        form = await request.post()
        offer = str(form["sdp"])
        session = json.loads(str(form["session"]))
        self.posted.append({"sdp": offer, "session": session, "former": request.headers.get(TOKEN_HEADER)})
        peer = RTCPeerConnection()
        call_id = f"rtc_{len(self.posted)}"
        self._peers[call_id] = peer
        self.voice = Voice()
        peer.addTrack(self.voice)
        peer.on("datachannel", self._opened)
        # Ours cannot resolve the names that browsers without permission give their addresses.
        lines = [line for line in offer.splitlines() if ".local" not in line]
        await peer.setRemoteDescription(RTCSessionDescription("\r\n".join(lines) + "\r\n", "offer"))
        await peer.setLocalDescription(await peer.createAnswer())
        answer = peer.localDescription.sdp
        if not self.answers_media:
            await peer.close()
        headers = {"Location": f"/v1/realtime/calls/{call_id}"}
        if self.remembers:
            headers[TOKEN_HEADER] = f"token of {call_id}"
        return web.Response(status=201, text=answer, content_type="application/sdp", headers=headers)

    def _opened(self, channel: RTCDataChannel) -> None:
        self._channel = channel
        channel.on("message", self._receive)
        unsent, self._unsent = self._unsent, []
        self.send({"type": "session.created", "session": {"type": "realtime"}}, *unsent)

    def _receive(self, message: str) -> None:
        self.received.append(json.loads(message))
        self._news.set()

    async def _look(self, request: web.Request) -> web.Response:
        self.looked_up.append(request.match_info["id"])
        self._news.set()
        return web.Response(status=self.call_status)

    async def _tell_ready(self, request: web.Request) -> web.Response:
        self.asked_ready += 1
        self._news.set()
        return web.Response(status=200 if self.ready else 503)

    async def _hang_up(self, request: web.Request) -> web.Response:
        call_id = request.match_info["id"]
        self.deleted.append(call_id)
        self._news.set()
        if peer := self._peers.pop(call_id, None):
            await peer.close()
        return web.Response()


@dataclass(frozen=True, slots=True)
class Served:
    server: StandIn
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"


@contextlib.asynccontextmanager
async def serving(standin: StandIn, port: int = 0) -> AsyncIterator[int]:
    """Serve on loopback; the port. At the end all calls are dropped."""
    runner = web.AppRunner(standin.app(), shutdown_timeout=1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", port)
        await site.start()
        yield runner.addresses[0][1]
    finally:
        await standin.drop()
        await runner.cleanup()


def _refuse(status: int, message: str, headers: dict[str, str]) -> web.Response:
    error = {"error": {"message": message, "type": "invalid_request_error", "code": "refused", "param": None}}
    return web.json_response(error, status=status, headers=headers)
