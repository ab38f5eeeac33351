"""Calls without media, and a server in front of them."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from visavis.app import build_app
from visavis.carrier import Carrier
from visavis.config import Config, ResumeConfig, RtcConfig, ServerConfig, SessionConfig
from visavis.resume import Kept
from visavis.wire import MakeWire

OFFER = "v=0\r\no=- 1 1 IN IP4 0.0.0.0\r\ns=-\r\nt=0 0\r\n"
ANSWER = "v=0\r\no=- 2 2 IN IP4 0.0.0.0\r\ns=-\r\nt=0 0\r\n"
SDP = {"Content-Type": "application/sdp"}
CALLS_URL = "/v1/realtime/calls"
KEY = "key-of-a-friend"

Client = TestClient[web.Request, web.Application]


@dataclass(eq=False)
class FakeCall:
    """A call without media; `fault` is raised by the method of that name."""

    call_id: str
    settings: SessionConfig
    kept: Kept | None = None
    wire: MakeWire | None = None
    faults: dict[str, BaseException] = field(default_factory=dict)
    told: list[str] = field(default_factory=list)
    private: bool = False
    "It has no displays."
    shown: list["FakeCall"] = field(default_factory=list)
    "Its displays."
    heeds: bool = True
    "Ends when it is hung up."
    over: asyncio.Event = field(default_factory=asyncio.Event)
    stalled: asyncio.Event | None = None
    "What the answer waits for."

    async def answer(self, offer_sdp: str) -> str:
        self.told.append(offer_sdp)
        if self.stalled is not None:
            await self.stalled.wait()
        self._fail("answer")
        return ANSWER

    async def renegotiate(self, offer_sdp: str) -> str:
        self.told.append(f"again {offer_sdp}")
        if self.stalled is not None:
            await self.stalled.wait()
        self._fail("renegotiate")
        return ANSWER

    async def add_candidates(self, candidates: Iterable[tuple[str, str]], ufrag: str | None = None) -> None:
        self.told += [f"{mid}: {text}" for mid, text in candidates]
        self._fail("add_candidates")

    def display(self) -> "FakeCall | None":
        if self.private:
            return None
        self.shown.append(FakeCall(self.call_id, self.settings))
        return self.shown[-1]

    async def run(self) -> None:
        try:
            await self.over.wait()
            self._fail("run")
        finally:
            self.told.append("gone")

    def announce_end(self, seconds: float) -> None:
        self.told.append(f"ends in {seconds:g} s")
        self._fail("announce_end")

    def hang_up(self, reason: str) -> None:
        self.told.append(reason)
        self._fail("hang_up")
        if self.heeds:
            self.over.set()

    def _fail(self, method: str) -> None:
        if method in self.faults:
            raise self.faults[method]


class Switchboard:
    """Makes the fake calls and remembers them."""

    def __init__(self, **options: Any) -> None:
        self.calls: list[FakeCall] = []
        self.options = options
        self.ready: Callable[[], Awaitable[bool]] = self._yes

    def open(
        self,
        call_id: str,
        settings: SessionConfig,
        kept: Kept | None = None,
        wire: MakeWire | None = None,
        carrier: Carrier | None = None,
    ) -> FakeCall:
        self.calls.append(FakeCall(call_id, settings, kept=kept, wire=wire, **self.options))
        return self.calls[-1]

    async def _yes(self) -> bool:
        return True


@asynccontextmanager
async def serving(
    board: Switchboard | None = None,
    *,
    rtc: RtcConfig | None = None,
    resume: ResumeConfig | None = None,
    page: Path | None = None,
    **server: Any,
) -> AsyncIterator[Client]:
    """Serve on a free loopback port; yield a client of it. `server` are settings of ServerConfig."""
    board = board or Switchboard()
    config = Config(server=ServerConfig(**server), rtc=rtc or RtcConfig(), resume=resume or ResumeConfig())
    app = build_app(config, board.open, board.ready, page)
    async with TestClient(TestServer(app, host="127.0.0.1"), auto_decompress=False) as client:
        yield client


async def refusal(response: aiohttp.ClientResponse) -> dict[str, Any]:
    assert response.content_type == "application/json"
    body = await response.json()
    assert set(body) == {"error"}
    assert set(body["error"]) == {"message", "type", "code", "param"}
    error: dict[str, Any] = body["error"]
    assert error["message"]
    return error


async def raw_request(port: int | None, text: str) -> bytes:
    """Send what no client would, or what it would tidy up first."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(text.encode())
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110 - the fakes have no event for each of their states
            await asyncio.sleep(0.001)
