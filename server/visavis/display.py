"""Who listens in on a call: a display hears the assistant there, by a connection of its own (WHEP)."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import Protocol

import numpy as np

from .audio import BLOCK, Pcm
from .carrier import Line
from .errors import SignallingError
from .frames import Frame, Source
from .rtc import CloseReason, PeerHandler

CUSHION = 2
"Blocks that wait before a display plays: its clock and the call's tick alike, but not together."

MOST = 10
"Blocks that may wait; a display that lags so far behind loses the oldest."

_SILENCE: Pcm = np.zeros(BLOCK, np.int16)


class Ear(Protocol):
    def hear(self, block: Pcm) -> None: ...

    def hang_up(self, reason: str) -> None: ...


class Audience:
    """The displays of one call."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._ears: list[Ear] = []

    def join(self, ear: Ear) -> None:
        """Let one more listen. Raises SignallingError (409) if there are enough."""
        if len(self._ears) >= self._most:
            raise SignallingError(
                409, f"The call has {self._most} displays already.", code="too_many_displays"
            )
        self._ears.append(ear)

    def leave(self, ear: Ear) -> None:
        """It need not have joined."""
        if ear in self._ears:
            self._ears.remove(ear)

    def hear(self, block: Pcm) -> None:
        """Hand on what the caller hears."""
        for ear in self._ears:
            ear.hear(block)

    def dismiss(self, reason: str) -> None:
        for ear in list(self._ears):
            ear.hang_up(reason)


class Display(PeerHandler):
    """One display: a `calls.Call` that receives only. What comes from its side is not looked at."""

    def __init__(self, peer: Callable[[PeerHandler], Line], audience: Audience) -> None:
        """`peer` makes its connection."""
        self._peer = peer(self)
        self._audience = audience
        self._waiting: deque[Pcm] = deque(maxlen=MOST)
        self._plays = False
        self._over = asyncio.Event()

    async def answer(self, offer_sdp: str) -> str:
        """Return the answer to an offer. Raises SignallingError; nothing is left then."""
        try:
            self._audience.join(self)
            return await self._peer.answer(offer_sdp)
        except BaseException:
            await self._leave()
            raise

    async def renegotiate(self, offer_sdp: str) -> str:
        return await self._peer.answer(offer_sdp)

    async def add_candidates(self, candidates: Iterable[tuple[str, str]], ufrag: str | None = None) -> None:
        await self._peer.add_candidates(candidates, ufrag)

    def display(self) -> None:
        """It has none of its own."""

    async def run(self) -> None:
        """Live until it goes, or its call is over."""
        try:
            await self._over.wait()
        finally:
            await self._leave()

    def announce_end(self, seconds: float) -> None:
        """Say nothing: it ends with its call."""

    def hang_up(self, reason: str) -> None:
        self._over.set()

    def hear(self, block: Pcm) -> None:
        """Take the next block that the caller hears."""
        self._waiting.append(block)

    async def _leave(self) -> None:
        self._audience.leave(self)
        await self._peer.aclose()

    # What the peer calls.

    def pull_audio(self) -> Pcm:
        self._plays = len(self._waiting) >= (1 if self._plays else CUSHION)
        return self._waiting.popleft() if self._plays else _SILENCE

    def closed(self, reason: CloseReason) -> None:
        self._over.set()

    def connected(self) -> None: ...

    def receive_audio(self, pcm: Pcm) -> None: ...

    def wants_frame(self, at: int, source: Source = "camera") -> bool:
        return False

    def receive_frame(self, frame: Frame) -> None: ...

    def channel_opened(self) -> None: ...

    def receive_message(self, text: str) -> None: ...
