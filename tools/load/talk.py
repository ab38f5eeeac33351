"""What a caller does: asks, hears the answer out or interrupts it, thinks, asks again. Sans-I/O.

`Talk` is asked for a block every 20 ms and told of sound that comes; it knows nothing of the server but that.
"""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

from .clips import Clip

MISSED_S = 4.0
"An answer that is not heard so long after the question does not come."
QUIET_S = 0.2
"Silence of the assistant after which it has stopped."
SETTLE_S = 0.8
"Silence after which an answer is over; held ones go on sooner."
LONGEST_S = 20.0
"No answer is heard out any longer."
INTERRUPT_AFTER_S = 1.0
"Seconds of an answer, after which some are interrupted."
FIRST_S = 0.5
"Silence at the beginning of a call."


@dataclass(slots=True)
class Heard:
    """What came of the questions so far."""

    start_ms: list[float] = field(default_factory=list)
    "From the last word to the first sound of the answer."
    barge_in_ms: list[float] = field(default_factory=list)
    "From the first word of an interruption to the last sound of what was interrupted."
    missed: int = 0
    "Questions without an answer."
    cut_in: int = 0
    "Answers that began before the question was over."
    not_yielded: int = 0
    "Interruptions over which the assistant went on."


class Phase(Enum):
    THINKING = auto()
    ASKING = auto()
    WAITING = auto()
    HEARING = auto()
    INTERRUPTING = auto()


@dataclass(frozen=True, slots=True)
class Script:
    questions: Sequence[Clip]
    interruptions: Sequence[Clip] = ()
    think_s: tuple[float, float] = (2.0, 6.0)
    "Between an answer's end and the next question; each time another."
    interrupts: float = 0.3
    "The share of answers that are interrupted."
    waits: bool = True
    "False: nobody answers, the next question follows on the thinking."


class Talk:
    """One caller. `seed` makes callers differ; the same seed says the same."""

    def __init__(self, script: Script, seed: int, now: float) -> None:
        self.heard = Heard()
        self._script = script
        self._random = random.Random(seed)
        self._phase = Phase.THINKING
        self._since = now
        "Since when the phase lasts."
        # Not all at once: they are strangers to each other.
        self._until = now + FIRST_S + self._random.uniform(0, script.think_s[1])
        self._clip: Clip | None = None
        self._at = 0
        self._last_word = now
        self._first_word = now
        self._sounded = self._begun = -math.inf
        "When the last sound came, and when the first since the last silence of `QUIET_S`."
        self._stopped: float | None = None
        "When what is being interrupted fell silent."
        self._interrupts = False

    def hear(self, at: float) -> None:
        """Take note of a packet with sound."""
        if at - self._sounded > QUIET_S:
            if self._phase is Phase.INTERRUPTING and self._stopped is None:
                self._stopped = self._sounded
            self._begun = at
        self._sounded = at

    def next_block(self, now: float) -> bytes | None:
        """Give the next 20 ms to say; None is silence."""
        self._step(now)
        clip = self._clip
        if clip is None:
            return None
        block = clip.blocks[self._at]
        if self._at == clip.onset:
            self._first_word = now
        self._at += 1
        if self._at == clip.end:
            self._last_word = now
        if self._at == len(clip.blocks):
            self._clip = None
        return block

    def _step(self, now: float) -> None:
        spent, quiet = now - self._since, now - self._sounded
        match self._phase:
            case Phase.THINKING if now >= self._until:
                self._say(self._script.questions, Phase.ASKING, now)
            case Phase.ASKING if self._clip is None and not self._script.waits:
                self._think(now)
            case Phase.ASKING if self._clip is None:
                self._interrupts = (
                    bool(self._script.interruptions) and self._random.random() < self._script.interrupts
                )
                self._enter(Phase.WAITING, now)
            case Phase.WAITING if self._begun >= self._first_word:
                self._note_start()
                self._enter(Phase.HEARING, now)
            case Phase.WAITING if spent > MISSED_S:
                self.heard.missed += 1
                self._think(now)
            case Phase.HEARING if quiet >= SETTLE_S or spent > LONGEST_S:
                self._think(now)
            case Phase.HEARING if self._interrupts and spent > INTERRUPT_AFTER_S and quiet < QUIET_S:
                self._interrupts, self._stopped = False, None
                self._say(self._script.interruptions, Phase.INTERRUPTING, now)
            case Phase.INTERRUPTING if self._clip is None:
                self._end_interruption(now)
            case _:
                pass

    def _note_start(self) -> None:
        if self._begun < self._last_word:
            self.heard.cut_in += 1
        else:
            self.heard.start_ms.append(1000 * (self._begun - self._last_word))

    def _end_interruption(self, now: float) -> None:
        if self._stopped is None and now - self._sounded > QUIET_S:
            self._stopped = self._sounded
        if self._stopped is None:
            self.heard.not_yielded += 1
            self._enter(Phase.HEARING, now)
            return
        if self._stopped >= self._first_word:  # else it was over by itself
            self.heard.barge_in_ms.append(1000 * (self._stopped - self._first_word))
        self._enter(Phase.WAITING, now)

    def _say(self, clips: Sequence[Clip], phase: Phase, now: float) -> None:
        self._clip, self._at = self._random.choice(clips), 0
        self._first_word = self._last_word = now
        self._enter(phase, now)

    def _think(self, now: float) -> None:
        self._until = now + self._random.uniform(*self._script.think_s)
        self._enter(Phase.THINKING, now)

    def _enter(self, phase: Phase, now: float) -> None:
        self._phase, self._since = phase, now
