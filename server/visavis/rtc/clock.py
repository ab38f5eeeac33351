"""When a picture was taken, on the clock of the caller's voice. Sans-I/O.

Positions are samples at 24 kHz of the voice as it was handed on. A sender's reports (RFC 3550 section 6.4.1)
say which time of its own each stream's RTP times are; where there are none, the picture that was least on its
way tells how the clocks lie to each other.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

from ..audio import RATE
from ..jitter import signed

VIDEO_RATE = 90_000
"Of the RTP times of all video codecs (RFC 3551)."

_SLACK = RATE
"What strays from the audio clock by more than a second is taken for an error."


class _Report(NamedTuple):
    ntp: int
    rtp: int


class LeastDelay:
    """The least delay seen is the truth, the rest is jitter."""

    def __init__(self) -> None:
        self._offset: float | None = None

    def place(self, media_s: float, position: int) -> int:
        """Give the position of a picture taken at `media_s` of its own clock that came at `position`."""
        taken = media_s * RATE
        offset = position - taken
        if self._offset is None or abs(offset - self._offset) > _SLACK or offset < self._offset:
            self._offset = offset
        else:  # clocks drift: creep towards the later arrivals
            self._offset += (offset - self._offset) / 100
        return round(taken + self._offset)


class MediaClock:
    """Gives the pictures of one stream their positions, which never go back."""

    def __init__(self, position_of: Callable[[int, float], int | None]) -> None:
        """`position_of` tells the position of what was said so long (s) after an RTP time of the voice."""
        self._position_of = position_of
        self._least_delay = LeastDelay()
        self._reports: dict[Literal["audio", "video"], _Report] = {}
        self._newest: int | None = None
        "RTP time of the newest picture, which does not wrap."
        self._last = 0

    def receive_report(self, kind: Literal["audio", "video"], ntp: int, rtp: int) -> None:
        """Take from a sender report that RTP time `rtp` was `ntp`, in 2^-32 s of the sender's clock."""
        self._reports[kind] = _Report(ntp, rtp)

    def place(self, timestamp: int, position: int) -> int:
        """Give the position of a picture of this RTP time that came at `position`."""
        if self._newest is None:
            self._newest = timestamp
        self._newest += signed(timestamp - self._newest, 32)
        guessed = self._least_delay.place(self._newest / VIDEO_RATE, position)
        at = self._told(timestamp)
        if at is None or abs(at - position) > _SLACK:
            at = guessed
        self._last = max(self._last, at)
        return self._last

    def _told(self, timestamp: int) -> int | None:
        """Give the position by the sender's reports."""
        audio, video = self._reports.get("audio"), self._reports.get("video")
        if audio is None or video is None:
            return None
        later_s = (video.ntp - audio.ntp) / 2**32 + signed(timestamp - video.rtp, 32) / VIDEO_RATE
        return self._position_of(audio.rtp, later_s)
