"""Which pictures of a turn are shown, at which times and in what size, within a number of tokens."""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import av
import numpy as np
from numpy.typing import NDArray

from .ahead import PLACE
from .clip import Size, thumbnail
from .config import FusionConfig
from .frames import Frame, fit, spread
from .tokens import FPS, video_tokens

_CHUNK = 2 * FPS
"Places of the model's own piece of sound and pictures, 2 s: clips are cut at its multiples."

_MAX_SIDE = 1_024

_FEWEST = 4
"Pictures below which, without a time line, size is given up before number."

_CHANGED = 8
"Levels of 255 by which some block of 8 by 8 pixels differs once a scene changed; noise makes 1 or 2."


@dataclass(frozen=True, slots=True)
class Look:
    """A turn's pictures on its time line."""

    places: tuple[int, ...]
    "For each half second the number of the frame that is seen then."
    size: Size
    segment: int
    "Places of one clip."
    most: int
    "Pictures of one clip."

    def clips(self) -> list[tuple[int, ...]]:
        """Give the frames of each clip: an even number, and none after the last that is new in it."""
        clips = []
        for start in range(0, len(self.places), self.segment):
            shown = self.places[start : start + self.segment]
            new = max(
                (place for place, (a, b) in enumerate(itertools.pairwise(shown), 2) if a != b), default=1
            )
            shown = shown[: min(new, self.most)]
            clips.append(shown + shown[-1:] * (len(shown) % 2))
        return clips

    def tokens(self) -> int:
        return sum(video_tokens(len(shown), *self.size) for shown in self.clips())


def on_time(frames: Sequence[Frame], origin: int, places: int, room: int, config: FusionConfig) -> Look:
    """Choose the pictures for so many half seconds from `origin` (24 kHz samples) that cost `room` at most.

    Frames are in order of time. Should it not suffice that pictures are small and few, it is exceeded
    by one pair of the smallest.
    """
    shown = _places(frames, origin, places)
    segment = max(_CHUNK, int(config.segment_s * FPS) // _CHUNK * _CHUNK)
    sizes = list(_sizes(size_of(frames[-1], config)))
    for size in sizes:
        look = Look(shown, size, segment, segment)
        if look.tokens() <= room:
            return look
    smallest = min(sizes, key=lambda size: video_tokens(1, *size))
    segment = _CHUNK
    while (look := Look(shown, smallest, segment, 2)).tokens() > room and segment < places:
        segment += _CHUNK
    return look


def at_any_time(
    frames: Sequence[Frame], room: int, config: FusionConfig, cost: Callable[[int, int, int], int]
) -> tuple[Sequence[Frame], Size]:
    """Choose fewer pictures, then smaller ones, then fewer still, until they cost `room` at most.

    `cost` tells what a number of pictures of some width and height costs. One is left at any price.
    """
    sizes = list(_sizes(size_of(frames[-1], config)))
    fewest = min(_FEWEST, len(frames))
    choices = itertools.chain(
        ((most, sizes[0]) for most in range(len(frames), fewest, -1)),
        ((fewest, size) for size in sizes),
        ((most, sizes[-1]) for most in range(fewest - 1, 0, -1)),
    )
    for most, size in choices:
        if cost(most, *size) <= room:
            return spread(frames, most), size
    return spread(frames, 1), sizes[-1]


def size_of(frame: Frame, config: FusionConfig) -> Size:
    """Give the size of pictures whose newest is this, within what is allowed."""
    longest = max(frame.width, frame.height)
    allowed = longest * math.sqrt(config.max_pixels / (frame.width * frame.height))
    return fit(frame.width, frame.height, max(2, min(_MAX_SIDE, int(allowed))))


def _sizes(size: Size) -> Iterator[Size]:
    """Give a size and ever smaller ones of the same shape."""
    yield size
    for side in range((max(size) - 1) // 16 * 16, 31, -16):
        yield fit(*size, side)


def _places(frames: Sequence[Frame], origin: int, count: int) -> tuple[int, ...]:
    """Find for each of `count` half seconds from `origin` the number of the frame it shows.

    Once the scene stands still, that is the newest: it may be sharper, and is what is asked about.
    """
    still = _still_from(frames)
    shown = [len(frames) - 1] * count
    for number, frame in enumerate(frames[: still + 1]):
        place = min(max(0, (frame.at - origin + PLACE // 2) // PLACE), count - 1) if number else 0
        shown[place:] = [number if number < still else len(frames) - 1] * (count - place)
    return tuple(shown)


def _still_from(frames: Sequence[Frame]) -> int:
    """Find the first frame from which on all look like the newest."""
    newest = _thumbnail(frames[-1])
    still = len(frames) - 1
    while still and not _differ(_thumbnail(frames[still - 1]), newest):
        still -= 1
    return still


class Seen:
    """What the last picture that was sent looked like."""

    def __init__(self) -> None:
        self._last: NDArray[np.int16] | None = None

    def is_new(self, frame: Frame) -> bool:
        """Tell whether a picture shows something else, and remember it then."""
        shown = _thumbnail(frame)
        if self._last is not None and not _differ(self._last, shown):
            return False
        self._last = shown
        return True


def _thumbnail(frame: Frame) -> NDArray[np.int16]:
    """Give a small picture, of no size if the frame is broken: that is like no other."""
    try:
        return thumbnail(frame.jpeg)
    except av.FFmpegError:
        return np.zeros((0, 0), np.int16)


def _differ(one: NDArray[np.int16], other: NDArray[np.int16]) -> bool:
    return one.shape != other.shape or not one.size or int(np.abs(one - other).max()) >= _CHANGED
