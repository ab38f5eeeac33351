"""From the audio packets of one call to its holes: gaps, lost and late sound. Sans-I/O.

A packet is a time of arrival, an RTP timestamp and the size of its Opus payload. Silence is some bytes long,
and nothing at all where the server saves it; so what is missing is counted only between two packets that
carry sound: a gap in silence is heard by nobody.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

CLOCK = 48_000
"Of Opus over RTP, whatever the sound's own rate."
PACKET_S = 0.02
SILENT_BYTES = 12
"An Opus packet of silence has 3; of the softest speech 30."
GAP_S = 0.06
"Longer is heard: a listener's jitter buffer holds about so much."


@dataclass(slots=True)
class Arrivals:
    """Fed packet by packet; `heard` says when sound came."""

    packets: int = 0
    sound_s: float = 0.0
    "Sound that came, in time or not."
    gap_s: float = 0.0
    "The longest time between two packets of sound that is none of `gaps`."
    gaps: list[tuple[float, float]] = field(default_factory=list)
    "(start, end) of times between two packets of sound longer than `GAP_S`."
    concealed_s: float = 0.0
    "Sound that a listener who waits `GAP_S` had to make up: it never came, or too late."
    first_at: float | None = None
    _at: float = 0.0
    _timestamp: int | None = None
    _sounding: bool = False
    _soonest: float = field(default=0.0)
    "Of the sound since the last silence, the least arrival time minus media time."

    def forget(self) -> None:
        """Begin to count anew."""
        self.packets, self.sound_s, self.gap_s, self.concealed_s = 0, 0.0, 0.0, 0.0
        self.gaps.clear()

    def receive(self, at: float, timestamp: int, size: int) -> bool:
        """Take a packet; tell whether it carries sound. `at` in seconds of a monotonic clock."""
        sounds = size > SILENT_BYTES
        if self.first_at is None:
            self.first_at = at
        self.packets += 1
        advance = _advance(self._timestamp, timestamp)
        if advance is not None and advance <= 0:
            return sounds  # out of order or twice: it was counted as missing, and came too late or in vain
        if sounds:
            self._receive_sound(at, timestamp, advance)
        self._at, self._timestamp, self._sounding = at, timestamp, sounds
        return sounds

    def _receive_sound(self, at: float, timestamp: int, advance: int | None) -> None:
        self.sound_s += PACKET_S
        offset = at - timestamp / CLOCK
        if not self._sounding or advance is None:
            self._soonest = offset
            return
        if timestamp < advance:  # the timestamp began again at 0
            self._soonest += 2**32 / CLOCK
        self._soonest = min(self._soonest, offset)
        if at - self._at > GAP_S:
            self.gaps.append((self._at, at))
        else:
            self.gap_s = max(self.gap_s, at - self._at)
        missing = advance / CLOCK - PACKET_S
        self.concealed_s += missing
        self.sound_s += missing
        if offset - self._soonest > GAP_S:
            self.concealed_s += PACKET_S


def _advance(before: int | None, after: int) -> int | None:
    """Ticks from one timestamp to the next; negative if that is the older one."""
    if before is None:
        return None
    return (after - before + 2**31) % 2**32 - 2**31


def heard_gaps(gaps: Iterable[tuple[float, float]], stalls: Iterable[tuple[float, float]]) -> list[float]:
    """Give the lengths of gaps in seconds, less the time in which the listener itself stood still.

    What is left of a gap counts if it is longer than `GAP_S`: a caller who is not let run hears late.
    """
    stood = list(stalls)
    lengths = (
        end - start - sum(max(0.0, min(end, until) - max(start, since)) for since, until in stood)
        for start, end in gaps
    )
    return [length for length in lengths if length > GAP_S]
