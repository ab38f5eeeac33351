"""A relay of UDP between one caller and one server that loses packets of the caller's media, by a seed."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import cast

from . import sdp

Place = tuple[str, int]


def is_rtp(data: bytes) -> bool:
    """Tell RTP from RTCP, STUN and DTLS on one port (RFC 5761, RFC 7983)."""
    return len(data) > 12 and 128 <= data[0] <= 191 and not 192 <= data[1] <= 223


class _End(asyncio.DatagramProtocol):
    """One side: what comes here goes out on the other one."""

    def __init__(self, loss: float, seed: int) -> None:
        self.far: Place | None = None
        "Where what comes from the other side is sent: told by a description, or who sent here first."
        self.other: _End | None = None
        self.lost = self.passed = 0
        self._loss = loss
        self._random = random.Random(seed)
        self._transport: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, address: Place) -> None:
        self.far = address
        if is_rtp(data):
            if self._random.random() < self._loss:
                self.lost += 1
                return
            self.passed += 1
        if self.other is not None:
            self.other.send(data)

    def error_received(self, error: Exception) -> None: ...  # the far end is not there yet, or no more

    def send(self, data: bytes) -> None:
        if self._transport is not None and self.far is not None:
            self._transport.sendto(data, self.far)

    @property
    def port(self) -> int:
        assert self._transport is not None
        return int(self._transport.get_extra_info("sockname")[1])

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


@dataclass
class Relay:
    """Stands for each side at the other: pass offers and answers through `offer` and `answer`."""

    host: str
    caller_end: _End
    server_end: _End
    "Where the server sends to."

    def offer(self, text: str) -> str:
        """Give the caller's offer with our address in place of its own."""
        self.caller_end.far = sdp.first_candidate(text)
        return sdp.through(text, self.host, self.server_end.port)

    def answer(self, text: str) -> str:
        """Give the server's answer with our address in place of its own."""
        self.server_end.far = sdp.first_candidate(text)
        return sdp.through(text, self.host, self.caller_end.port)

    @property
    def lost(self) -> float:
        """Tell the share of the caller's media that was lost."""
        end = self.caller_end
        return end.lost / max(1, end.lost + end.passed)


@asynccontextmanager
async def relaying(host: str, loss: float, seed: int = 5) -> AsyncIterator[Relay]:
    """Relay through an address of this machine that caller and server reach each other by."""
    loop = asyncio.get_running_loop()
    caller_end, server_end = _End(loss, seed), _End(0.0, seed)
    caller_end.other, server_end.other = server_end, caller_end
    try:
        for end in (caller_end, server_end):
            await loop.create_datagram_endpoint(lambda end=end: end, local_addr=(host, 0))  # type: ignore[misc]
        yield Relay(host, caller_end, server_end)
    finally:
        caller_end.close()
        server_end.close()
