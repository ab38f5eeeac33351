"""Receive buffer for one RTP audio stream: in order, at once, with every hole told. Sans-I/O.

What is heard here is not played to anybody but listened to by a model, so nothing is gained by smoothing:
a packet that comes in order goes on at once, and no delay is ever built up. A hole is waited for only for as
long as packets commonly overtake each other.
"""

from collections.abc import Callable
from dataclasses import dataclass

MAX_JUMP = 100
"A packet farther behind or ahead than this many shows that the sender has started anew (RFC 3550 A.1)."

MAX_GAP_S = 2.0
"The longest jump of the timestamp within a stream; a longer one, or one back, is a new time line."

PACKET_S = 0.02

DTX_BYTES = 2
"A packet that is nothing but a header announces that the sender falls silent (RFC 6716 section 2.1.9)."

DTX_PATIENCE_S = 0.06
"After that, time goes on as silence with this lag, which hides the usual jitter of the next packet."

PATIENCE_S = 1.0
"Without the announcement, time goes on as silence only after a stall has become improbable."


@dataclass(frozen=True, slots=True)
class Audio:
    """A payload to decode."""

    payload: bytes
    ticks: int
    "How long it lasts, in ticks of the stream's clock."


@dataclass(frozen=True, slots=True)
class Lost:
    """Audio that was sent and will not come."""

    ticks: int
    following: bytes
    "The payload after the hole, which may hold a copy of its end."


@dataclass(frozen=True, slots=True)
class Silence:
    """Time in which the sender sent nothing."""

    ticks: int


Event = Audio | Lost | Silence


@dataclass(slots=True)
class Counts:
    """What became of a stream's packets."""

    received: int = 0
    lost: int = 0
    late: int = 0
    "Came after they had been told as lost."
    duplicate: int = 0
    malformed: int = 0
    overlapping: int = 0
    "Claimed a time that had been delivered already."
    restarts: int = 0
    excess: int = 0
    "Were not looked at: their sender runs ahead of time."


@dataclass(frozen=True, slots=True)
class _Held:
    timestamp: int
    payload: bytes
    arrived: float


class JitterBuffer:
    """Order packets and account for time: after every call drain `next_event` and arm `next_timeout`.

    The events make one gapless time line: within a stream their ticks add up to the RTP time elapsed, except
    that silence counted while nothing came is kept if late packets then fill that time as well.
    """

    def __init__(
        self, duration: Callable[[bytes], int], *, clock_rate: int = 48_000, max_hold_ms: int = 60
    ) -> None:
        """`duration` tells the ticks of a payload, 0 for a malformed one."""
        self.counts = Counts()
        self._duration = duration
        self._clock_rate = clock_rate
        self._max_gap = int(MAX_GAP_S * clock_rate)
        self._max_hold_s = max_hold_ms / 1000
        self._max_held = max(1, round(self._max_hold_s / PACKET_S))
        self._events: list[Event] = []
        self._held: dict[int, _Held] = {}
        self._sequence: int | None = None
        "The number expected next."
        self._delivered = 0
        "Bit n: number `_sequence - 1 - n` was delivered."
        self._end: int | None = None
        "Timestamp up to which audio was delivered; None before a time line."
        self._filled = 0
        "Ticks of silence told since `_end` because nothing came."
        self._packet_ticks = int(PACKET_S * clock_rate)
        "Length of the newest packet."
        self._fill_at: float | None = None

    @property
    def end(self) -> int | None:
        """The timestamp up to which time has been told; None before a time line."""
        return None if self._end is None else (self._end + self._filled) & 0xFFFF_FFFF

    def start(self, now: float) -> None:
        """Begin the time line: from here silence is told even if no packet ever comes."""
        if self._fill_at is None:
            self._fill_at = now + PATIENCE_S

    def receive(self, sequence: int, timestamp: int, payload: bytes, now: float) -> None:
        """Take a packet: 16-bit sequence number, 32-bit timestamp, monotonic seconds."""
        self.counts.received += 1
        if self._sequence is None:
            self._sequence = sequence
        ahead = signed(sequence - self._sequence, 16)
        if abs(ahead) > MAX_JUMP:
            self.restart()
            self._sequence = sequence
        elif ahead < 0:
            if self._delivered >> (-1 - ahead) & 1:
                self.counts.duplicate += 1
            else:
                self.counts.late += 1
            return
        elif sequence in self._held:
            self.counts.duplicate += 1
            return
        self._held[sequence] = _Held(timestamp, payload, now)
        self._drain(now)
        if len(self._held) > self._max_held:
            self._skip(now)

    def restart(self) -> None:
        """Forget the stream's numbers, as when its sender (SSRC) changes; the time line goes on."""
        self.counts.restarts += 1
        self.counts.late += len(self._held)
        self._held.clear()
        self._sequence = None
        self._delivered = 0
        self._end = None

    def handle_timeout(self, now: float) -> None:
        """Give up on a hole that has been waited for, or let silence pass."""
        while self._held and now >= self._hold_until():
            self._skip(now)
        if self._fill_at is None or now < self._fill_at:
            return
        self._fill_at = max(self._fill_at, now - MAX_GAP_S)
        block = int(PACKET_S * self._clock_rate)
        ticks = 0
        while now >= self._fill_at:
            self._fill_at += PACKET_S
            ticks += block
        self._filled += ticks
        self._events.append(Silence(ticks))

    def next_timeout(self) -> float | None:
        """Tell when `handle_timeout` is due."""
        return self._hold_until() if self._held else self._fill_at

    def next_event(self) -> Event | None:
        return self._events.pop(0) if self._events else None

    def _hold_until(self) -> float:
        return min(held.arrived for held in self._held.values()) + self._max_hold_s

    def _skip(self, now: float) -> None:
        """Declare the hole before the held packets lost."""
        assert self._sequence is not None
        expected = self._sequence
        following = min(self._held, key=lambda sequence: (sequence - expected) & 0xFFFF)
        missing = (following - expected) & 0xFFFF
        self.counts.lost += missing
        self._delivered <<= missing
        self._sequence = following
        self._drain(now, missing)

    def _drain(self, now: float, missing: int = 0) -> None:
        """Deliver what is in order; `missing` packets before the first were lost."""
        assert self._sequence is not None
        while (held := self._held.pop(self._sequence, None)) is not None:
            self._sequence = (self._sequence + 1) & 0xFFFF
            self._delivered = (self._delivered << 1 | 1) & (1 << MAX_JUMP + 1) - 1
            self._deliver(held, missing, now)
            missing = 0

    def _deliver(self, held: _Held, missing: int, now: float) -> None:
        ticks = self._duration(held.payload)
        if ticks <= 0:
            self.counts.malformed += 1
            return
        gap = 0 if self._end is None else signed(held.timestamp - self._end, 32)
        if abs(gap) > self._max_gap:
            self.counts.restarts += 1
        elif gap < 0:
            self.counts.overlapping += 1
            return
        else:
            self._tell_gap(gap - self._filled, missing, held.payload)
        self._end = (held.timestamp + ticks) & 0xFFFF_FFFF
        self._filled = 0
        self._packet_ticks = ticks
        patience = DTX_PATIENCE_S if len(held.payload) <= DTX_BYTES else PATIENCE_S
        self._fill_at = now + patience + ticks / self._clock_rate
        self._events.append(Audio(held.payload, ticks))

    def _tell_gap(self, gap: int, missing: int, following: bytes) -> None:
        """Split a hole of `gap` ticks into what was lost and what was never sent."""
        lost = max(0, min(gap, missing * self._packet_ticks))
        if gap > lost:
            self._events.append(Silence(gap - lost))
        if lost:
            self._events.append(Lost(lost, following))


def signed(value: int, bits: int) -> int:
    """Return a difference of two numbers of so many bits, which wrap, as the shorter way between them."""
    half = 1 << bits - 1
    return (value + half & (1 << bits) - 1) - half
