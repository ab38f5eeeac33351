"""The microphone's last stretch of sound, addressed by sample position. Sans-I/O."""

from collections import deque

import numpy as np

from .audio import EMPTY, Pcm


class Tape:
    """Blocks of 24 kHz sound in order, the oldest forgotten first."""

    def __init__(self) -> None:
        self._blocks: deque[Pcm] = deque()
        self.start = 0
        "Position of the oldest sample still there."
        self.end = 0
        "Position after the newest sample: all that was ever recorded."

    def append(self, pcm: Pcm) -> None:
        self._blocks.append(pcm)
        self.end += len(pcm)

    def forget_before(self, position: int) -> None:
        """Let go of whole blocks that end at or before `position`."""
        while self._blocks and self.start + len(self._blocks[0]) <= position:
            self.start += len(self._blocks.popleft())

    def cut(self, start: int, end: int) -> Pcm:
        """Return a copy of what is still there between two positions; empty if nothing is."""
        pieces: list[Pcm] = []
        at = self.start
        for block in self._blocks:
            if at >= end:
                break
            if at + len(block) > start:
                pieces.append(block[max(0, start - at) : end - at])
            at += len(block)
        return np.concatenate(pieces) if pieces else EMPTY
