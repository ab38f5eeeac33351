"""Which camera frames a turn keeps: sampled by media time, deduplicated, bounded. Sans-I/O."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from .audio import RATE
from .config import CameraConfig

_STALE = 5 * RATE
"A picture further from the speech than this says nothing about it: the camera is off or frozen."

_KEPT = 120 * RATE
"Frames older than this are forgotten: twice the longest turn."

_STORED = 3
"Times `max_frames` held at most, so that turns of any length find frames spread over them."


Source = Literal["camera", "screen", "image"]
"What shows a picture: the caller's camera, the screen that the caller shares, or an image that was sent."


@dataclass(frozen=True, slots=True)
class Frame:
    """One kept picture of the camera or of a shared screen, or an image that was sent."""

    jpeg: bytes
    width: int
    height: int
    at: int
    "Position on the conversation's audio clock, in samples at 24 kHz."
    source: Source = "camera"


class FrameSampler:
    """Keeps `fps` frames a second of media time and finds those that belong to a stretch of speech.

    Ask `wants` for each frame before it is converted, and give those to `receive`.
    """

    def __init__(self, config: CameraConfig) -> None:
        self._config = config
        self._burst = config.burst_ms * RATE // 1000
        self._interval = self._slack = 0
        self._due: int | None = None
        self._newest: int | None = None
        "Position of the newest frame that was wanted."
        self._frames: list[Frame] = []
        self.set_rate(config.fps)

    def set_rate(self, fps: float) -> None:
        """Keep so many frames a second from now on; 0 keeps none."""
        self._interval = round(RATE / fps) if fps else 0
        self._slack = self._interval // 4
        "How early a frame may be: cameras that send at just our rate jitter by a frame of 30 a second."
        if self._due is not None and self._newest is not None:
            self._due = min(self._due, self._newest + self._interval)

    def hurry(self) -> None:
        """Have the next frame kept, unless one was a moment ago."""
        if self._due is not None and self._newest is not None:
            self._due = min(self._due, self._newest + self._burst)

    def wants(self, at: int) -> bool:
        """Tell whether the frame at this position (24 kHz samples) is to be kept; yes claims its place.

        Places lie on a grid, so that early and late frames average out, but never closer than half of its
        step. A gap, or a position before the last place (the sender restarted), begins a new grid.
        """
        interval, slack = self._interval, self._slack
        if not interval:
            return False
        late = at - self._due if self._due is not None else interval
        if -interval - slack <= late < -slack:
            return False
        on_grid = -slack <= late < interval
        self._due = at + interval - (min(late, slack) if on_grid else 0)
        self._newest = at
        return True

    def receive(self, frame: Frame) -> None:
        """Keep a frame. One that is not newer than the newest replaces what lies after it.

        When there is no room, the frame goes whose neighbours are closest together for their age.
        """
        frames = self._frames
        while frames and frames[-1].at >= frame.at:
            frames.pop()
        frames.append(frame)
        while frames[0].at < frame.at - _KEPT:
            del frames[0]
        if len(frames) > max(_STORED * self._config.max_frames, 2):
            del frames[
                min(
                    range(1, len(frames) - 1),
                    key=lambda i: (frames[i + 1].at - frames[i - 1].at) / (frame.at - frames[i].at),
                )
            ]

    def take(self, start: int, end: int) -> tuple[Frame, ...]:
        """Return the frames of the speech from `start` to `end` and of `before_ms` before it, in order.

        At most `max_frames`, spread evenly over the whole; a picture that did not change comes once. With
        none in that time, the newest frame, unless it is more than 5 s away. Frames stay for a later call.
        """
        since = start - self._config.before_ms * RATE // 1000
        seen = [frame for frame in self._frames if since <= frame.at <= end]
        if not seen:
            seen = [frame for frame in self._frames[-1:] if abs(frame.at - end) <= _STALE]
        return self._chosen(seen)

    def take_between(self, start: int, end: int) -> tuple[Frame, ...]:
        """Return the frames from `start` to before `end`, if there are any, otherwise as `take` does."""
        return self._chosen([frame for frame in self._frames if start <= frame.at < end])

    def clear(self) -> None:
        """Forget all frames, as when the camera is switched off."""
        self._frames.clear()
        self._due = self._newest = None

    def _chosen(self, seen: Sequence[Frame]) -> tuple[Frame, ...]:
        changed = [frame for i, frame in enumerate(seen) if i == 0 or frame.jpeg != seen[i - 1].jpeg]
        return spread(changed, self._config.max_frames)


def spread(frames: Sequence[Frame], most: int) -> tuple[Frame, ...]:
    """Return at most `most` (≥ 1) of the frames, evenly over their time, the newest always among them."""
    if len(frames) <= most:
        return tuple(frames)
    newest = frames[-1].at
    step = (newest - frames[0].at) / max(1, most - 1)
    nearest = {
        min(range(len(frames)), key=lambda i: abs(frames[i].at - (newest - k * step))) for k in range(most)
    }
    return tuple(frames[i] for i in sorted(nearest))


def fit(width: int, height: int, max_side: int) -> tuple[int, int]:
    """Return the size of a picture shrunk, never enlarged, to a longest side of `max_side` (≥ 2).

    Both sides are even, which chroma subsampling needs, and the aspect is kept to the nearest even pixel.
    """
    longest = max(width, height)
    side = min(longest, max_side)

    def even(length: int) -> int:
        return max(2, (length * side + longest - 1) // (2 * longest) * 2)

    return even(width), even(height)
