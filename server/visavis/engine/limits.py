"""When an engine is left alone, and how many it serves at once. Sans-I/O.

`Breaker` and `Places` belong to one engine each; `now` is monotonic seconds.
"""

import logging
from collections import deque
from dataclasses import dataclass
from enum import Enum, auto

logger = logging.getLogger(__name__)

_GROW_AFTER = 16
"Whole answers after which an engine that ran out of memory is given one place more."


class BreakerState(Enum):
    CLOSED = auto()
    "Requests go through."
    OPEN = auto()
    "The engine failed too often in a row and is left alone."
    PROBING = auto()
    "One request is under way to try it; others are not let through."


class Breaker:
    """A circuit breaker. Each `enter` that gives True is answered by one of the four `note_*` endings."""

    def __init__(self, label: str, failures: int, open_s: float) -> None:
        self.state = BreakerState.CLOSED
        self._label = label
        self._most = max(1, failures)
        self._open_s = open_s
        self._failures = 0
        self._retry_at = 0.0

    def lets_through(self, now: float) -> bool:
        """Tell whether `enter` would give True."""
        if self.state is BreakerState.OPEN:
            return now >= self._retry_at
        return self.state is BreakerState.CLOSED

    def enter(self, now: float, *, early: bool = False) -> bool:
        """Let a request through, or not. `early` tries an engine before its time: there is no other."""
        if not self.lets_through(now) and not (early and self.state is BreakerState.OPEN):
            return False
        if self.state is BreakerState.OPEN:
            self._set_state(BreakerState.PROBING, "one request tries it")
        return True

    def note_answering(self) -> None:
        """The first delta came: a probe has succeeded, though one more failure will open it again."""
        if self.state is not BreakerState.CLOSED:
            self._failures = self._most - 1
            self._set_state(BreakerState.CLOSED, "it answers")

    def note_success(self) -> None:
        """A whole answer came, or as much of one as was wanted."""
        self.note_answering()
        self._failures = 0

    def note_failure(self, now: float) -> None:
        """The engine was lost, before its answer or within."""
        if self.state is BreakerState.OPEN:
            return  # of a request from before
        self._failures += 1
        if self.state is BreakerState.PROBING or self._failures >= self._most:
            self._retry_at = now + self._open_s
            why = f"{self._failures} failures in a row, left alone for {self._open_s:g} s"
            self._set_state(BreakerState.OPEN, why)

    def note_nothing(self, now: float) -> None:
        """The request ended without telling anything of the engine: it was withdrawn, refused or too many.

        The next one may be the probe.
        """
        if self.state is BreakerState.PROBING:
            self._retry_at = now
            self._set_state(BreakerState.OPEN, "the probe told nothing")

    def _set_state(self, state: BreakerState, why: str) -> None:
        level = logging.WARNING if state is BreakerState.OPEN else logging.INFO
        logger.log(level, "engine %s: %s -> %s: %s", self._label, self.state.name, state.name, why)
        self.state = state


@dataclass(slots=True, eq=False)
class Ticket:
    """One request's place, or its wait for one."""

    granted: bool
    era: int = 0
    "How often memory had run out when it was granted."


class Places:
    """Who is served at once, and the queue before them: first come, first served.

    Each ticket is given back once with `leave`, granted or not. Tickets that `leave` and `note_success`
    return have just been granted: their owners are to be told.
    """

    def __init__(self, label: str, places: int, queue: int) -> None:
        self._label = label
        self._most = max(1, places)
        self._queue_limit = queue
        self._era = 0
        self._successes = 0
        self._granted: set[Ticket] = set()
        self._waiting: deque[Ticket] = deque()
        self.places = self._most
        "Requests that may be under way at once now."

    @property
    def busy(self) -> int:
        return len(self._granted)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def free(self) -> int:
        """Places that the next ones get at once."""
        return max(0, self.places - self.busy - self.waiting)

    def enter(self) -> Ticket | None:
        """Give a ticket, or None if the queue is full."""
        ticket = Ticket(granted=False)
        if not self._waiting and self.busy < self.places:
            self._grant(ticket)
        elif len(self._waiting) >= self._queue_limit:
            return None
        else:
            self._waiting.append(ticket)
        return ticket

    def leave(self, ticket: Ticket) -> list[Ticket]:
        """Take a ticket back."""
        if ticket.granted:
            self._granted.discard(ticket)
        else:
            self._waiting.remove(ticket)
        return self._fill()

    def note_out_of_memory(self, ticket: Ticket) -> bool:
        """Halve the places. False if there was but one: then fewer requests at once are no remedy.

        Requests that were under way together tell of the same shortage and halve once.
        """
        if ticket.era != self._era:
            return True
        if self.places == 1:
            return False
        self._era += 1
        self._successes = 0
        self.places //= 2
        logger.warning("engine %s: out of memory, %d requests at once from now on", self._label, self.places)
        return True

    def note_success(self) -> list[Ticket]:
        """Count a whole answer; after many of them one place comes back."""
        if self.places == self._most:
            return []
        self._successes += 1
        if self._successes < _GROW_AFTER:
            return []
        self._successes = 0
        self.places += 1
        logger.info("engine %s: %d requests at once from now on", self._label, self.places)
        return self._fill()

    def _fill(self) -> list[Ticket]:
        granted = []
        while self._waiting and self.busy < self.places:
            granted.append(self._waiting.popleft())
            self._grant(granted[-1])
        return granted

    def _grant(self, ticket: Ticket) -> None:
        ticket.granted = True
        ticket.era = self._era
        self._granted.add(ticket)
