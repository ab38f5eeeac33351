"""How loud a caller usually is, and whether a voice is the caller's or comes from afar. Sans-I/O.

A television, or somebody at the other end of the room, is speech to any detector, yet no turn of this talk.
What tells it from the caller is how loud it is beside the caller's own voice.
"""

from collections import deque
from math import log10

from .audio import RATE
from .config import NearnessConfig

_PER_MS = RATE // 1000

_STEP_DB = 0.1
_FIRST_STEP_DB = 10.0
"The n-th step is the n-th part of it, but never less than a step."
_ENOUGH = 100
"Steps after which the loud part is known: two seconds of speech."
_LOUD_PART = 0.8
"Share of a caller's speech that is softer than its loud part, which is found in steps of 20 ms."
_WEAK_DB = 10.0
"So far below the loud part are weak syllables, and what others say meanwhile: they tell nothing of it."
_SILENT_DB = 10.0
"So far below a voice is silence: of a voice from afar a detector of speech hears but parts."


class Loudness:
    """The loud part of one caller's voice."""

    def __init__(self) -> None:
        self._level: float | None = None
        self._steps = 0
        "Blocks heard so far."

    @property
    def level(self) -> float | None:
        """DBFS; None until enough was heard."""
        return self._level if self._steps >= _ENOUGH else None

    def note(self, level: float) -> None:
        """Take the level (dBFS) of 20 ms that the caller surely says."""
        usual = level if self._level is None else self._level
        if level < usual - _WEAK_DB:
            return
        self._steps += 1
        step = max(_STEP_DB, _FIRST_STEP_DB / self._steps)
        self._level = usual + step * (_LOUD_PART if level > usual else _LOUD_PART - 1)

    def lower(self, level: float) -> None:
        """Know that the caller has become as soft as this, if the level (dBFS) is lower."""
        if self._level is not None:
            self._level = min(self._level, level)


class Nearness:
    """Judges a voice that has no turn yet: it is the caller's unless it is clearly softer than theirs is.

    A caller who speaks softer than before is believed after a second of it, and one who has moved far away on
    calling again; then `usual` falls so far that they are not doubted any more. Positions are samples at
    24 kHz.
    """

    def __init__(self, config: NearnessConfig, usual: Loudness) -> None:
        self._usual = usual
        self._far = config.far_db
        self._softest = config.far_db + config.soft_db
        self._believed_db = config.believed_db
        self._soft = config.soft_ms * _PER_MS
        self._window = config.window_ms * _PER_MS
        self._least_call = config.least_call_ms * _PER_MS
        self._longest_call = config.longest_call_ms * _PER_MS
        self._wait = config.wait_ms * _PER_MS
        self._patience = config.patience_ms * _PER_MS
        self.reset()

    def reset(self) -> None:
        """Forget what was heard, but not how loud the caller is."""
        self._called: int | None = None
        "Where a voice ended that was passed over, and may have been the caller's who waits now."
        self._forget()

    def _forget(self) -> None:
        self.doubtful = False
        "The voice heard now may be another's: no turn begins with it."
        self.voiced = 0
        "Voiced time of this voice."
        self._until = 0
        self._power = 0.0
        "Of its blocks, times their length."
        self._recent: deque[tuple[int, float]] = deque()
        "End and power of its blocks within the window."
        self._again = False
        "It comes as that of a caller does who had no answer."
        self._softer = False
        self.believed = False
        "It is as soft, and still the caller's: a turn begins with all of it."

    @property
    def whole(self) -> bool:
        """Whether what was doubted of it may be the caller's too: else another's went before."""
        return self._softer or self.believed or self.voiced <= self._longest_call

    def receive(self, since: int, until: int, level: float, *, voiced: bool) -> None:
        """Take the next block and its level, dBFS."""
        if not voiced:
            if self.voiced and level > self._mean - _SILENT_DB:
                self._until = until
            elif self.voiced and until - self._until >= self._wait:
                self._pass_over()
            return
        if not self.voiced and self._called is not None:
            self._again = since - self._called <= self._patience
        power = 10 ** (level / 10)
        self.voiced += until - since
        self._power += power * (until - since)
        self._until = until
        self._recent.append((until, power))
        while self._recent[0][0] <= until - self._window:
            self._recent.popleft()
        if self._usual.level is not None:
            self._weigh(self._usual.level)

    @property
    def _mean(self) -> float:
        """DBFS of its voiced blocks."""
        return 10 * log10(self._power / self.voiced)

    def begin_turn(self) -> None:
        """Know that the voice has a turn now."""
        if self.believed:
            self._usual.lower(self._mean + self._believed_db)
        self.reset()

    def _weigh(self, usual: float) -> None:
        newest = sum(power for _, power in self._recent) / len(self._recent)
        near = usual - 10 * log10(newest) < self._far
        if not near:  # else it is what was doubted before
            self._softer = usual - self._mean < self._softest
        long = self._softer and self.voiced >= self._soft
        again = self._again and self.voiced >= self._least_call
        self.believed = not near and (long or again)
        self.doubtful = not near and not self.believed

    def _pass_over(self) -> None:
        called = self.doubtful and self._least_call <= self.voiced <= self._longest_call
        until = self._until
        self._forget()
        self._called = until if called else None
