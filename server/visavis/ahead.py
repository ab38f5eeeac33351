"""A long turn while it goes on: clips that are fixed, or words so far, to be sent ahead of its end. Sans-I/O.

What was sent ahead lies in the engine's caches under its name, so it must never change: what is seen or heard
later, or comes late, belongs to a later clip.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from .audio import RATE, Pcm
from .config import AheadConfig
from .frames import Frame, FrameSampler
from .tokens import FPS

PLACE = RATE // FPS
"Samples at 24 kHz for which one picture is shown."


class OpenTurn:
    """A turn that goes on: where it has been cut, and what was seen up to there."""

    def __init__(self, config: AheadConfig, start: int) -> None:
        """`start` is the position of its first sample at 24 kHz, as are all positions in here."""
        self.start = start
        self.cuts: tuple[int, ...] = ()
        self.frames: tuple[Frame, ...] = ()
        "Of the clips that are fixed."
        self.serial: int | None = None
        "Its number in the history, once something of it was sent."
        self._clip = round(config.clip_s * RATE)
        self._most = config.max_clips if self._clip > 0 else 0
        self._words = round(config.words_s * RATE)
        self._words_until = start

    @property
    def sent(self) -> bool:
        """Whether something was fixed to be sent ahead."""
        return bool(self.cuts) or self._words_until > self.start

    def grow(self, end: int) -> bool:
        """Tell whether the words of the turn up to `end` are to be sent; then not until it is longer."""
        if self._words == 0 or end < self._words_until + self._words:
            return False
        self._words_until = end
        return True

    @property
    def fixed(self) -> int:
        """Where the last clip ends that is fixed."""
        return self.cuts[-1] if self.cuts else self.start

    @property
    def next_cut(self) -> int | None:
        """Where the next clip ends, None if there will be no more."""
        return self.fixed + self._clip if len(self.cuts) < self._most else None

    def advance(self, end: int, sampler: FrameSampler, fits: Callable[[Sequence[Frame]], bool]) -> bool:
        """Fix the next clip if the turn, heard up to `end`, is long enough; tell whether it was.

        Where nothing is seen, or not all that is seen `fits`, there will be no more clips.
        """
        cut = self.next_cut
        if cut is None or end < cut:
            return False
        seen = self._seen_until(cut - 1, sampler)
        if seen or self.frames:
            cut = self.cut_for(seen or self.frames)
            seen = tuple(frame for frame in seen if frame.at < cut)
        if not (self.frames or seen) or not fits(self.frames + seen):
            self._most = 0
            return False
        self.frames += seen
        self.cuts += (cut,)
        return True

    def frames_until(self, end: int, sampler: FrameSampler) -> tuple[Frame, ...]:
        """Return what was seen in the whole turn that ended at `end`."""
        return self.frames + self._seen_until(end, sampler)

    def cut_for(self, frames: Sequence[Frame]) -> int:
        """Return where to cut once `next_cut` has come, given what was seen in the clip (at least one).

        The first cut is moved back onto the half seconds of the pictures, where all further ones then lie, so
        that every picture keeps its time.
        """
        assert self.next_cut is not None
        return self.next_cut if self.cuts else self.next_cut - (self.next_cut - frames[0].at) % PLACE

    def _seen_until(self, end: int, sampler: FrameSampler) -> tuple[Frame, ...]:
        """Find what was seen since the last cut, or for the first clip a little before the turn too."""
        return sampler.take_between(self.fixed, end + 1) if self.cuts else sampler.take(self.start, end)


@dataclass(frozen=True, slots=True)
class Piece:
    """One clip of a turn."""

    pcm: Pcm
    at: int
    frames: tuple[Frame, ...]
    "At least one."


def pieces(pcm: Pcm, at: int, frames: Sequence[Frame], cuts: Sequence[int]) -> Iterator[Piece]:
    """Cut sound that begins at `at`, and the pictures of its time (at least one), at each of `cuts`.

    All are in order of time. Cuts lie within the sound or at its end, after which there is no rest. Pictures
    from before the sound are in the first piece; a piece without any of its own shows the last one before it.
    """
    end = at + len(pcm)
    start, first = at, 0
    for cut in (*cuts, end):
        if cut == start:
            continue
        after = len(frames) if cut == end else sum(frame.at < cut for frame in frames)
        own = tuple(frames[first:after]) or (replace(frames[max(0, first - 1)], at=start),)
        yield Piece(pcm[start - at : cut - at], start, own)
        start, first = cut, after
