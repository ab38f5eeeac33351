"""Speech over the assistant's: an interruption, a word of assent, or nothing. Sans-I/O.

As the evidence grows the answer is heard softer, then waits, and then is cut. A cough or an "mm-hm" ends
before that, and the answer goes on where it was.
"""

import re
from enum import Enum, auto
from math import log10

from .audio import RATE
from .config import OverlapConfig
from .loudness import Loudness

_PER_MS = RATE // 1000

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

    def __init__(self, config: OverlapConfig, usual: Loudness) -> None:
        """`usual` is learned here, from what is said in turns."""
        self._duck = config.duck_ms * _PER_MS
        self._hold = config.hold_ms * _PER_MS
        self._aside = config.aside_ms * _PER_MS
        self._loud = config.loud_db
        self._least_loud = config.loud_ms * _PER_MS
        self._usual = usual
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
            self._usual.note(level)

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
        # Periodicity, pitch and spectrum do not tell it from a cough: a limit that stops the one cough in
        # sixty that lasts so long stops a third of people's words in a room.
        usual = self._usual.level
        if usual is None or not self._blocks:
            return False
        return 10 * log10(self._power / self._blocks) > usual + self._loud


def is_assent(text: str) -> bool:
    """Tell whether the words (some languages of Europe) say no more than that one listens."""
    words = re.sub(r"[-'’]", "", text.lower())
    said = re.findall(r"\w+", words)
    return 0 < len(said) <= _LONGEST_ASSENT and all(word in _ASSENT for word in said)
