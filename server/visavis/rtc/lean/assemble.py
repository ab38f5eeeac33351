"""From the packets of a video stream to its pictures, in order, and never frozen by a loss. Sans-I/O.

A packet that misses is asked for again; when it cannot come any more, its picture and all that depend on it
are given up, and the next key frame is waited for. After every call drain `next_picture`, send what
`lost_packets` tells, arm `next_timeout`, and ask for a key frame while `needs_key_frame` says so.
"""

from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

from ...jitter import signed
from .depacketize import Piece

REORDER_S = 0.01
"A packet is not asked for before that: networks that swap packets do so within milliseconds."

NACK_INTERVAL_S = 0.1
"It is asked for again so often; most round trips are shorter."

GIVE_UP_S = 0.35
"From noticing a loss. Three requests have gone out by then, and a key frame comes as soon as a fourth would."

MAX_LOST = 100
"More at a time are an outage: a key frame costs less than all of them again."

MAX_PACKETS = 1_024
"Held at most: a key frame of over a megabyte, or a second of a fast camera."

MAX_WAITING = 64
"Packets held while a key frame is waited for: its parts may overtake its beginning."

MAX_JUMP = 3_000
"Sequence numbers farther apart show that the sender has started anew (RFC 3550 A.1)."

ALL_LAYERS = 3
"The highest temporal layer there can be."


class Picture(NamedTuple):
    """A compressed picture, ready for the decoder."""

    data: bytes
    timestamp: int
    "RTP time, 90 kHz."
    key: bool


class _Packet(NamedTuple):
    timestamp: int
    marker: bool
    piece: Piece | None
    "None for what is not needed, which only shows that nothing is missing there."


@dataclass(slots=True)
class _Loss:
    noticed: float
    ask_at: float


class Assembler:
    """Numbers in here are sequence numbers that do not wrap."""

    def __init__(self) -> None:
        self.keys_only = False
        "Set by `restrict`."
        self._max_layer = ALL_LAYERS
        self._pictures: deque[Picture] = deque()
        self._packets: dict[int, _Packet] = {}
        self._losses: dict[int, _Loss] = {}
        self._highest: int | None = None
        self._anchored = False
        "Whether pictures can be decoded from `_next` on; otherwise one that needs no other is waited for."
        self._next = 0
        "The first packet of the picture that is being put together."
        self._scan = 0
        "The first packet from there on that has not come."
        self._base: int | None = None
        "TL0PICIDX of the newest picture of layer 0."
        self._layer = ALL_LAYERS
        "The highest layer that can be decoded: of others, pictures were lost."

    @property
    def needs_key_frame(self) -> bool:
        return not self._anchored

    def restrict(self, *, keys_only: bool, max_layer: int = ALL_LAYERS) -> None:
        """Give key frames alone from now on, or pictures up to a temporal layer."""
        self.keys_only, self._max_layer = keys_only, max_layer
        self._layer = min(self._layer, max_layer)

    def restart(self) -> None:
        """Forget all and wait for a key frame, as when the decoder has lost its way."""
        self._pictures.clear()
        self._packets.clear()
        self._losses.clear()
        self._highest = None
        self._anchored = False
        self._base = None

    def needs(self, piece: Piece) -> bool:
        """Tell whether the picture that begins with this piece is of any use; if not, pass None of it on."""
        if piece.key:
            return True
        if self.keys_only or not (self._anchored or self._continues(piece)):
            return False
        return piece.layer <= self._max_layer

    def receive(self, sequence: int, timestamp: int, marker: bool, piece: Piece | None, now: float) -> None:
        """Take a packet: 16-bit sequence number, 32-bit timestamp, monotonic seconds."""
        if self._highest is not None and abs(signed(sequence - self._highest, 16)) > MAX_JUMP:
            self.restart()
        if self._highest is None:
            self._highest = sequence - 1
        number = self._highest + signed(sequence - self._highest, 16)
        if number in self._packets:
            return
        packet = _Packet(timestamp, marker, piece)
        if self._anchored and number < self._next and not self._precedes(number, packet):
            return  # too late
        if piece is None and not self._anchored:
            self._highest = max(self._highest, number)
            return
        self._packets[number] = packet
        self._losses.pop(number, None)
        if number > self._highest:
            if self._anchored:
                self._notice(self._highest + 1, number, now)
            self._highest = number
        if not self._anchored:
            self._seek(number, now)
        if self._anchored:
            self._drain(now)
            if len(self._losses) > MAX_LOST or len(self._packets) > MAX_PACKETS:
                self._give_up(now)

    def next_picture(self) -> Picture | None:
        return self._pictures.popleft() if self._pictures else None

    def lost_packets(self, now: float) -> list[int]:
        """Return the sequence numbers to ask for now (RFC 4585 section 6.2.1)."""
        if not self._losses:
            return []
        due = []
        for number, loss in self._losses.items():
            if loss.ask_at <= now:
                loss.ask_at = now + NACK_INTERVAL_S
                due.append(number & 0xFFFF)
        return due

    def next_timeout(self) -> float | None:
        """Tell when `handle_timeout` is due and `lost_packets` may have something new."""
        if not self._losses:
            return None
        return min(min(loss.ask_at, loss.noticed + GIVE_UP_S) for loss in self._losses.values())

    def handle_timeout(self, now: float) -> None:
        """Give up what has been waited for long enough."""
        while any(loss.noticed + GIVE_UP_S <= now for loss in self._losses.values()):
            self._give_up(now)

    def _notice(self, start: int, end: int, now: float) -> None:
        """Count packets from `start` to before `end` as missing, unless they are there."""
        for number in range(max(start, end - MAX_LOST - 1), end):
            if number not in self._packets and number not in self._losses:
                self._losses[number] = _Loss(now, now + REORDER_S)

    def _continues(self, piece: Piece) -> bool:
        """Tell whether a picture of layer 0 can be decoded, whatever else was lost."""
        base = self._base
        return base is not None and piece.layer == 0 and piece.base == (base + 1) & 0xFF

    def _precedes(self, number: int, packet: _Packet) -> bool:
        """Tell whether a packet belongs before the beginning of the key frame (H264: SPS, PPS, then IDR)."""
        first = self._packets.get(self._next)
        if (
            first is None
            or number != self._next - 1
            or packet.timestamp != first.timestamp
            or packet.piece is None
        ):
            return False
        self._next = number
        return True

    def _seek(self, number: int, now: float) -> None:
        """Go on with this packet if pictures can be decoded from it; else keep only the newest few."""
        packet = self._packets[number]
        assert self._highest is not None
        if (piece := packet.piece) is not None and piece.begins and self.needs(piece):
            self._anchor(number, now)
        else:
            self._forget_before(self._highest - MAX_WAITING)

    def _anchor(self, number: int, now: float) -> None:
        assert self._highest is not None
        self._forget_before(number)
        self._anchored = True
        self._next = self._scan = number
        self._notice(number, self._highest, now)

    def _forget_before(self, number: int) -> None:
        for old in [old for old in self._packets if old < number]:
            del self._packets[old]
        for old in [old for old in self._losses if old < number]:
            del self._losses[old]

    def _drain(self, now: float) -> None:
        while self._anchored and (packet := self._packets.get(self._scan)) is not None:
            if packet.timestamp != self._packets[self._next].timestamp:
                self._finish(now)  # it had no marker
            else:
                self._scan += 1
                if packet.marker:
                    self._finish(now)

    def _finish(self, now: float) -> None:
        """Give out the picture from `_next` to before `_scan`, if there is one and it can be decoded."""
        packets = [self._packets.pop(number) for number in range(self._next, self._scan)]
        self._next = self._scan
        pieces = [packet.piece for packet in packets if packet.piece is not None]
        head = next((piece for piece in pieces if piece.begins), None)
        if head is None:
            return  # not needed, or padding
        if head.key:
            self._layer = self._max_layer
        elif head.sync:
            self._layer = max(self._layer, min(head.layer, self._max_layer))
        if head.layer == 0 and head.base is not None:
            self._base = head.base
        if head.layer <= self._layer:
            data = b"".join(piece.data for piece in pieces)
            self._pictures.append(Picture(data, packets[0].timestamp, head.key))
        if self.keys_only:
            self._resume(now)

    def _give_up(self, now: float) -> None:
        """What misses at `_scan` does not come: leave out all that depends on it."""
        self._layer = 0
        self._resume(now)
        self._drain(now)

    def _resume(self, now: float) -> None:
        """Go on with the next picture that needs none of those before, or wait for one."""
        self._anchored = False
        ahead = sorted(number for number in self._packets if number >= self._scan)
        for number in ahead:
            piece = self._packets[number].piece
            if piece is not None and piece.begins and self.needs(piece):
                self._anchor(number, now)
                return
        self._losses.clear()
        self._forget_before(self._scan)
