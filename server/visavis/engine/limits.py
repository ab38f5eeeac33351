"""When an engine is left alone, and how many it serves at once. Sans-I/O.

`Breaker` and `Places` belong to one engine each; `now` is monotonic seconds.
"""

import logging
from collections import deque
from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol

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


class Pool(Protocol):
    """Places and seats in the queue that several processes share (`pool.LockPool`)."""

    def free(self) -> int: ...
    def others_wait(self) -> bool: ...
    def take(self) -> bool: ...
    def give(self) -> None: ...
    def sit(self) -> bool: ...
    def stand(self) -> None: ...


class Places:
    """Who is served at once, and the queue before them: first come, first served.

    Each ticket is given back once with `leave`, granted or not. Tickets that `leave` and `note_success`
    return have just been granted: their owners are to be told.

    With a `pool` the places are shared with other processes. A place that becomes free is then nobody's:
    `retry`, called now and then while anyone waits, tries for it, so that all of them have the same chance.
    """

    def __init__(self, label: str, places: int, queue: int, pool: Pool | None = None) -> None:
        self._label = label
        self._pool = pool
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
        free = max(0, self.places - self.busy - self.waiting)
        return free if self._pool is None else min(free, self._pool.free())

    @property
    def shared(self) -> bool:
        """Whether those who wait need `retry`."""
        return self._pool is not None

    def enter(self) -> Ticket | None:
        """Give a ticket, or None if the queue is full."""
        ticket = Ticket(granted=False)
        pool = self._pool
        if (
            not self._waiting
            and self.busy < self.places
            and (pool is None or (not pool.others_wait() and pool.take()))
        ):
            self._grant(ticket)
        elif len(self._waiting) >= self._queue_limit or (pool is not None and not pool.sit()):
            return None
        else:
            self._waiting.append(ticket)
        return ticket

    def leave(self, ticket: Ticket) -> list[Ticket]:
        """Take a ticket back."""
        if ticket.granted:
            self._granted.discard(ticket)
            if self._pool is not None:
                self._pool.give()
        else:
            self._waiting.remove(ticket)
            if self._pool is not None:
                self._pool.stand()
        return self._fill() if self._pool is None else []

    def retry(self) -> list[Ticket]:
        """Try again, of shared places, for those who wait."""
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
        return self._fill() if self._pool is None else []

    def _fill(self) -> list[Ticket]:
        granted = []
        while self._waiting and self.busy < self.places and (self._pool is None or self._pool.take()):
            granted.append(self._waiting.popleft())
            self._grant(granted[-1])
            if self._pool is not None:
                self._pool.stand()
        return granted

    def _grant(self, ticket: Ticket) -> None:
        ticket.granted = True
        ticket.era = self._era
        self._granted.add(ticket)
