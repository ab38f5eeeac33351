"""How many pictures a second are worth having: all of them around speech, few of an idle room. Sans-I/O."""

import math

from .audio import RATE
from .config import CameraConfig


class Attention:
    """Looks closely at first, around speech, and for a while after. Positions are samples at 24 kHz."""

    def __init__(self, config: CameraConfig) -> None:
        self.fps = config.fps
        "Pictures a second that are wanted now; 0: none."
        self._close, self._idle = config.fps, config.idle_fps
        self._most = math.inf
        self._linger = round(config.linger_s * RATE)
        self._until = self._linger

    def limit(self, fps: float | None) -> None:
        """Look at no more than so many pictures a second from the next block on; None is no limit."""
        self._most = math.inf if fps is None else fps

    def receive(self, position: int, *, speaking: bool) -> bool:
        """Take whether somebody speaks, as far as is known by `position`; tell whether `fps` has changed."""
        if speaking:
            self._until = position + self._linger
        wanted = self._close if position < self._until else self._idle
        before, self.fps = self.fps, min(wanted, self._most)
        return self.fps != before
