"""Speech over the assistant's: an interruption, a word of assent, or nothing. Sans-I/O.

As the evidence grows the answer is heard softer, then waits, and then is cut. A cough or an "mm-hm" ends
before that, and the answer goes on where it was.
"""

import re
from enum import Enum, auto
from math import log10

from .audio import RATE
from .config import OverlapConfig

_PER_MS = RATE // 1000

_STEP_DB = 0.1
_FIRST_STEP_DB = 10.0
"The n-th step is the n-th part of it, but never less than a step."
_ENOUGH = 100
"Steps after which the loud part is known: two seconds of speech."
_LOUD_PART = 0.8
"Share of a caller's speech that is softer than its loud part, which is found in steps of 20 ms."

_WORDS = """
    mm mhm mmhm hm hmm hmmm uh huh uhhuh um aha ah oh yeah yes yep yup right ok okay sure well wow i see got
    it good great nice cool exactly true really no way ja genau stimmt klar gut ach so oui ouais
    daccord si claro vale bueno sim pois certo va bene
"""
_ASSENT = frozenset(_WORDS.split())
"Words of which nothing but assent is made."
_LONGEST_ASSENT = 3
"Words."


class Overlap(Enum):
    """What is made of the speech so far."""

    NONE = auto()
    LIKELY = auto()
    "The answer is heard softer."
    HELD = auto()
    "The answer waits."
    CONFIRMED = auto()
    "The user has the floor."


class OverlapJudge:
    """Judges the speech of one caller by how long and how loud it is. Times are samples at 24 kHz."""

    def __init__(self, config: OverlapConfig) -> None:
        self._duck = config.duck_ms * _PER_MS
        self._hold = config.hold_ms * _PER_MS
        self._aside = config.aside_ms * _PER_MS
        self._loud = config.loud_db
        self._least_loud = config.loud_ms * _PER_MS
        self._usual: float | None = None
        "dBFS of the loud part of this caller's voice in turns."
        self._steps = 0
        self._power = 0.0
        self._blocks = 0

    def begin(self) -> None:
        """Speech may have begun: forget the level of what was heard before."""
        self._power, self._blocks = 0.0, 0

    def note(self, level: float, *, turn: bool) -> None:
        """Take the level (dBFS) of a voiced block; `turn` is true of what is surely said to be answered."""
        self._power += 10 ** (level / 10)
        self._blocks += 1
        if turn:
            self._steps += 1
            usual = level if self._usual is None else self._usual
            step = max(_STEP_DB, _FIRST_STEP_DB / self._steps)
            self._usual = usual + step * (_LOUD_PART if level > usual else _LOUD_PART - 1)

    def judge(self, voiced: int, least: int | None = None) -> Overlap:
        """Judge speech of which `voiced` has been heard so far; where `least` is given it alone confirms."""
        if least is not None:
            if voiced >= least:
                return Overlap.CONFIRMED
        elif voiced >= self._aside or (voiced >= self._least_loud and self._is_loud):
            return Overlap.CONFIRMED
        if voiced >= self._hold:
            return Overlap.HELD
        return Overlap.LIKELY if voiced >= self._duck else Overlap.NONE

    @property
    def _is_loud(self) -> bool:
        """It is clearly louder than the caller usually is: said to be heard."""
        if self._usual is None or self._steps < _ENOUGH or not self._blocks:
            return False
        return 10 * log10(self._power / self._blocks) > self._usual + self._loud


def is_assent(text: str) -> bool:
    """Tell whether the words (some languages of Europe) say no more than that one listens."""
    words = re.sub(r"[-'’]", "", text.lower())
    said = re.findall(r"\w+", words)
    return 0 < len(said) <= _LONGEST_ASSENT and all(word in _ASSENT for word in said)
