"""An answer that is asked for before the turn is known to be over, and held until it is. Sans-I/O.

The silence after the last word tells only in hindsight that it was the last. What the engine does meanwhile
is for nothing if the user goes on, so that there is a budget for it.
"""

from dataclasses import dataclass, field

from .config import SpeculationConfig
from .engine import Delta, TranscriptDelta
from .recorder import UserTurn


@dataclass(slots=True)
class Draft:
    """A response to a turn that may be over."""

    response_id: int
    turn: UserTurn
    held: list[tuple[float, Delta]] = field(default_factory=list)
    "What the engine streamed so far, and when it came (monotonic seconds)."
    transcript: str = ""
    failed: bool = False
    "The engine refused or broke off: what is said at the end of the turn is asked for again."

    def receive(self, delta: Delta, now: float) -> None:
        """Hold what the engine streamed."""
        self.held.append((now, delta))
        if isinstance(delta, TranscriptDelta):
            self.transcript += delta.text


class Budget:
    """How many drafts may be in vain: some at once, and so many more a minute."""

    def __init__(self, config: SpeculationConfig) -> None:
        self._most = float(config.burst)
        self._per_s = config.wasted_per_min / 60
        self._left = self._most
        self._at = 0.0

    def allows(self, now: float) -> bool:
        """Tell whether another draft may be in vain."""
        self._left = min(self._most, self._left + (now - self._at) * self._per_s)
        self._at = now
        return self._left >= 1

    def note_waste(self) -> None:
        """A draft was in vain."""
        self._left -= 1
