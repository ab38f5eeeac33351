"""Silence: when the caller is asked to go on, and when a call that nobody uses ends. Sans-I/O.

Two clocks. A caller is asked after silence that was heard, in samples of the microphone: where nothing is
heard at all, there is nobody to ask. A call ends after time without anything, in seconds.
"""

from enum import Enum, auto

from .audio import RATE
from .config import IdleConfig

_MOST = 10 * RATE
"Of a silence that is sent: ten seconds let the model hear what was no speech to us."


class Lull:
    """The silence after an answer. Tell it of every block of the microphone."""

    def __init__(self, config: IdleConfig) -> None:
        self._most = config.max_nudges
        self._nudges = 0
        self._end = 0
        self._start: int | None = None
        "Since when the floor has been free."

    @property
    def start(self) -> int | None:
        """From where on the present silence must be kept; None if nobody would be asked."""
        return None if self._start is None else self.kept(self._start)

    def kept(self, start: int) -> int:
        """Return from where on a silence that began at `start` is sent."""
        return max(start, self._end - _MOST)

    def answer(self) -> None:
        """Note that the user said or asked for something: patience begins anew."""
        self._nudges = 0

    def receive(self, start: int, end: int, *, free: bool, timeout_ms: int | None) -> int | None:
        """Take the positions (24 kHz) of a block; return where the silence began once it is too long.

        `free` is that nobody speaks and an answer was heard to its end, `timeout_ms` the client's setting.
        Whoever is told of the silence breaks it.
        """
        self._end = end
        if not free or timeout_ms is None or self._nudges >= self._most:
            self._start = None
            return None
        if self._start is None:
            self._start = start
        if end - self._start < timeout_ms * RATE // 1000:
            return None
        since, self._start = self._start, None
        self._nudges += 1
        return since


class Verdict(Enum):
    """What is to be done about an idle call."""

    WARN = auto()
    END = auto()


class Idleness:
    """How long nothing has happened in a call: counts from `begin`, and anew from each `act`."""

    def __init__(self, config: IdleConfig) -> None:
        self._end_s = config.end_s
        self._warn_s = config.warn_s
        self._since: float | None = None
        "Monotonic seconds."
        self._warned = False

    def begin(self, now: float) -> None:
        """The caller is there."""
        self._since = now

    def act(self, now: float) -> None:
        """Note that the user does something, or was being answered until now."""
        if self._since is not None:
            self._since = now
            self._warned = False

    def handle_timeout(self, now: float, *, busy: bool) -> Verdict | None:
        """Return what is due; each verdict comes once per silence.

        `busy` is that somebody speaks or is answered just now, which counts as an act.
        """
        due = self.next_timeout()
        if due is None or now < due:
            return None
        if busy:
            self.act(now)
            return None
        if not self._warned:
            self._warned = True
            return Verdict.WARN
        self._since = None
        return Verdict.END

    def next_timeout(self) -> float | None:
        """Return when `handle_timeout` is next due, None if never."""
        if self._since is None or self._end_s is None:
            return None
        return self._since + self._end_s - (0.0 if self._warned else self._warn_s)
