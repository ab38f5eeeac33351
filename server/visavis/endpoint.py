"""Endpointing by evidence that grows: how long to wait in silence, by what was said and how. Sans-I/O.

Long pauses within a turn are rare, but not as rare as an exponential law has it: the odds that a turn is
finished grow as a power of the silence. So the wait is a root of what else is known, as odds.
"""

import math
from collections import deque

import numpy as np

from .audio import RATE
from .config import TurnConfig, TurnDetection
from .turns import Endpointer, Evidence, FixedSilence
from .wording import Ending, ending_of

_PER_MS = RATE // 1000


def endpointer_for(config: TurnConfig, detection: TurnDetection) -> Endpointer:
    """Return what decides on the end of a turn, by the type of detection."""
    return (GrowingEvidence if detection.type == "semantic_vad" else FixedSilence)(config, detection)


class GrowingEvidence:
    """The more what was said sounds finished, the sooner it is taken to be.

    Where nothing is known but silence, it is `silence_duration_ms` of it.
    """

    def __init__(self, config: TurnConfig, detection: TurnDetection) -> None:
        self._config = config.endpoint
        self._pause = config.pause_ms * _PER_MS
        self._unknown_ms = detection.silence_duration_ms
        paces = {"low": self._config.low_pace, "high": self._config.high_pace}
        self._eagerness = paces.get(detection.eagerness, 1.0)
        self._pauses: deque[float] = deque(maxlen=self._config.pauses)
        "Of this caller, in ms."
        self._pace = 1.0

    def finished(self, evidence: Evidence) -> bool:
        wait_ms = self.wait_ms(evidence)
        if evidence.probability >= self._config.resuming:
            wait_ms = max(wait_ms, self._config.longest_ms)
        return evidence.silence >= wait_ms * _PER_MS

    def may_be_finished(self, evidence: Evidence) -> bool:
        if evidence.silence < self._pause:
            return False
        left_ms = self.wait_ms(evidence) - evidence.silence / _PER_MS
        return (
            self.log_odds(evidence) or 0.0
        ) >= self._config.draft_units or left_ms <= self._config.draft_ms

    def note_pause(self, samples: int) -> None:
        pause_ms = samples / _PER_MS
        if pause_ms < self._config.pause_ms:
            return
        config = self._config
        self._pauses.append(pause_ms)
        usual = [float(config.usual_pause_ms)] * config.prior_pauses
        pace = float(np.quantile([*usual, *self._pauses], 0.8)) / config.usual_pause_ms
        self._pace = min(max(pace, config.least_pace), config.most_pace)

    def wait_ms(self, evidence: Evidence) -> float:
        """Tell the silence after which the turn is taken to be finished, if nothing else becomes known."""
        units = self.log_odds(evidence)
        if units is None:
            return self._unknown_ms * self._eagerness
        config = self._config
        wait = config.even_ms * math.exp(-config.steepness * units) * self._pace * self._eagerness
        return min(max(wait, config.shortest_ms), config.longest_ms)

    def log_odds(self, evidence: Evidence) -> float | None:
        """Sum up what is known, as natural log-odds that the turn is finished; None: nothing."""
        known = []
        if evidence.finality is not None:
            known.append(self._units(evidence.finality))
        if evidence.verdict is not None:
            known.append(self._config.verdict_weight * self._units(evidence.verdict))
        if evidence.text is not None and (ending := ending_of(evidence.text)) is not Ending.UNKNOWN:
            known.append(self._text_units(ending))
        return sum(known) if known else None

    def _units(self, probability: float) -> float:
        least = 1 / (1 + math.exp(self._config.most_units))
        bounded = min(max(probability, least), 1 - least)
        return math.log(bounded / (1 - bounded))

    def _text_units(self, ending: Ending) -> float:
        config = self._config
        return {
            Ending.DANGLING: config.unfinished_text,
            Ending.OPEN: config.open_text,
            Ending.CLOSED: config.closed_text,
            Ending.QUESTION: config.question_text,
        }[ending]
