"""A call over a WebSocket: sound travels in events, both ways, and nothing paces it. There is no camera.

What the client plays is not known here. It is taken to play what it is told as it comes: so our own voice is
played into the void at its pace, which tells who has the floor and what was heard when somebody interrupts.
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Iterable
from typing import NoReturn

from aiohttp import WSMsgType, web

from .audio import BLOCK, RATE
from .carrier import Handler
from .errors import SignallingError
from .rtc import PeerStats

logger = logging.getLogger(__name__)

PROTOCOLS = ("realtime", "openai-beta.realtime-v1")
"Names of subprotocols that are accepted; browsers, which cannot send headers, name one beside their key."

_BEAT_S = BLOCK / RATE
_LATE_S = 0.2
"Who is so late has lost its beats: they are not caught up with."

HEARTBEAT_S = 10.0
"How often clients are pinged."
SILENT_S = 15.0
"A client of whom nothing came for so long, no answer to a ping either, is gone."
CLOSE_S = 2.0
"The most that a goodbye may take."
_MAX_UNSENT = 32 << 20
"Characters that a client may be behind: ten minutes of PCM. One that reads no more is gone."


def open_socket(max_message: int) -> web.WebSocketResponse:
    """Make the server's end of a WebSocket; `keep_alive` belongs to it.

    aiohttp's own heartbeat would take a client for gone whose answers wait unread behind its sound. This
    one's silence counts only while it is read: `receive` raises TimeoutError.
    """
    return web.WebSocketResponse(
        protocols=PROTOCOLS,
        timeout=CLOSE_S,
        receive_timeout=SILENT_S,
        max_msg_size=max_message,
        compress=False,  # base64 of sound: a third less on the wire would cost more than all the rest
    )


async def keep_alive(socket: web.WebSocketResponse) -> None:
    """Ping the client until it is gone."""
    with contextlib.suppress(ConnectionError):
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            await socket.ping()


class Socket:
    """A WebSocket that was asked for: the carrier of one call. `run` it once the call lives."""

    listener = None

    def __init__(self, max_message: int) -> None:
        self.response = open_socket(max_message)
        self._line: SocketLine | None = None

    def peer(self, handler: Handler, label: str) -> "SocketLine":
        assert self._line is None, "a socket carries one call"
        self._line = SocketLine(self.response, handler)
        return self._line

    async def run(self, request: web.Request, greeting: str) -> web.WebSocketResponse:
        """Accept the request and serve until either side has had enough.

        `greeting` is sent once the session has said that it is there.
        """
        assert self._line is not None, "the call comes first"
        try:
            await self.response.prepare(request)
            await self._line.run(greeting, request.transport)
        finally:
            await self._line.lose()
        return self.response


class SocketLine:
    """What a session has in the place of a peer."""

    def __init__(self, socket: web.WebSocketResponse, handler: Handler) -> None:
        self._socket = socket
        self._handler = handler
        self._loop = asyncio.get_running_loop()
        self._unsent: deque[str] = deque()
        self._behind = 0
        self._sent = asyncio.Event()
        self._more = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._transport: asyncio.Transport | None = None
        self._beating: asyncio.TimerHandle | None = None
        self._due = 0.0
        self._bytes_in = self._bytes_out = self._dropped = 0
        self._over = asyncio.Event()

    async def answer(self, offer_sdp: str) -> str:
        """Answer nothing: there is nothing to negotiate."""
        return ""

    async def add_candidates(
        self, candidates: Iterable[tuple[str, str]], ufrag: str | None = None
    ) -> NoReturn:
        raise SignallingError(409, "A call over a WebSocket has no candidates.", code="no_media")

    def send_message(self, text: str) -> None:
        if self._over.is_set():
            self._dropped += 1
            return
        self._unsent.append(text)
        self._behind += len(text)
        self._sent.clear()
        self._more.set()
        if self._behind > _MAX_UNSENT:
            self._handler.closed("dead")

    def want_video(self, fps: float) -> None:
        """Pay no heed: there are no pictures."""

    def stats(self) -> PeerStats:
        return PeerStats(bytes_in=self._bytes_in, bytes_out=self._bytes_out, messages_dropped=self._dropped)

    async def run(self, greeting: str, transport: asyncio.Transport | None) -> None:
        """Read until the client or the call is at its end."""
        self._transport = transport
        if self._over.is_set():
            await self._socket.close()
            return
        self._tasks = {asyncio.create_task(self._write()), asyncio.create_task(keep_alive(self._socket))}
        self._handler.channel_opened()
        self.send_message(greeting)
        self._handler.connected()
        self._due = self._loop.time() + _BEAT_S
        self._beating = self._loop.call_at(self._due, self._beat)
        try:
            async for message in self._socket:
                if message.type is not WSMsgType.TEXT:
                    await self._socket.close(code=1003, message=b"events are text")
                    break
                self._bytes_in += len(message.data)
                self._handler.receive_message(message.data)
                await self._handler.caught_up()
        except TimeoutError:
            self._handler.closed("dead")

    async def lose(self) -> None:
        """The client is gone: so is the call, soon."""
        self._stop()
        if not self._over.is_set():
            self._handler.closed("remote")
            await self._over.wait()

    async def aclose(self) -> None:
        """End the call: what was said last is sent, the socket closed."""
        if self._over.is_set():
            return
        self._stop()
        if self._transport is not None:
            # Who reads nothing would let the last words, and this, wait for ever.
            self._loop.call_later(CLOSE_S, self._transport.abort)
        if self._tasks and self._unsent:
            await self._sent.wait()
        if self._socket.prepared and not self._socket.closed:
            await self._socket.close()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        self._over.set()

    def _beat(self) -> None:
        now = self._loop.time()
        if now - self._due > _LATE_S:
            self._due = now
        self._due += _BEAT_S
        self._beating = self._loop.call_at(self._due, self._beat)
        self._handler.pull_audio()

    def _stop(self) -> None:
        if self._beating is not None:
            self._beating.cancel()
            self._beating = None

    async def _write(self) -> None:
        try:
            while True:
                await self._more.wait()
                self._more.clear()
                while self._unsent:
                    text = self._unsent[0]
                    await self._socket.send_str(text)
                    self._unsent.popleft()
                    self._behind -= len(text)
                    self._bytes_out += len(text)
                self._sent.set()
        except ConnectionError as error:
            logger.debug("a client is gone while it was written to: %s", error)
        finally:
            self._unsent.clear()
            self._sent.set()
