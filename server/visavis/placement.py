"""Which worker takes the next call, and which has which: the front's books. Sans-I/O.

A call is being placed, then it lives, then it is over. The front sees the first two itself, the worker tells
the third; so the count of calls is exact, whichever news comes first.
"""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Load:
    """How a worker is doing, by its own word."""

    cpu: float = 0.0
    "Of one core, since its last word."
    lag_ms: float = 0.0
    "The latest that its event loop was since then."


@dataclass(slots=True, eq=False)
class Desk:
    """One worker's page in the books."""

    number: int
    load: Load = field(default_factory=Load)
    placing: int = 0
    "Calls that it is being asked to open."
    live: set[str] = field(default_factory=set)
    over_early: set[str] = field(default_factory=set)
    "Calls of whose end it told before its answer to their opening was read."
    admits: bool = True
    "It takes new calls."

    @property
    def calls(self) -> int:
        return self.placing + len(self.live)


class Placement:
    """The workers and their calls. A worker's number is never used again."""

    def __init__(self) -> None:
        self._desks: dict[int, Desk] = {}
        self._lost: set[int] = set()

    def __len__(self) -> int:
        """How many calls there are on all workers, those that are being placed included."""
        return sum(desk.calls for desk in self._desks.values())

    def __contains__(self, number: int) -> bool:
        return number in self._desks

    @property
    def open(self) -> bool:
        """Whether any worker takes calls."""
        return any(desk.admits for desk in self._desks.values())

    def add(self, number: int) -> None:
        """A worker is there for calls."""
        self._desks[number] = Desk(number)

    def retire(self, number: int) -> None:
        """A worker keeps its calls and gets no more."""
        if (desk := self._desks.get(number)) is not None:
            desk.admits = False

    def remove(self, number: int, *, lost: bool) -> int:
        """A worker is gone; return how many calls went with it. `lost`: it was not to go."""
        if lost:
            self._lost.add(number)
        desk = self._desks.pop(number, None)
        return 0 if desk is None else desk.calls

    def is_lost(self, number: int) -> bool:
        """Tell whether a worker of this number died with its calls."""
        return number in self._lost

    def report(self, number: int, load: Load) -> None:
        if (desk := self._desks.get(number)) is not None:
            desk.load = load

    def is_placing(self, number: int) -> bool:
        """Tell whether a worker is being asked to open a call."""
        desk = self._desks.get(number)
        return desk is not None and desk.placing > 0

    def choose(self, besides: int | None = None, rather: int | None = None) -> int | None:
        """Return the worker that takes the next call, never `besides`; None if none does.

        `rather` takes it if it takes any.

        The one with the fewest calls: calls cost much the same, and load is old news when many come at once.
        Among equals, the one whose event loop is the most punctual, then the one that computes least.
        """
        admitting = [desk for desk in self._desks.values() if desk.admits and desk.number != besides]
        if not admitting:
            return None
        if rather in {desk.number for desk in admitting}:
            return rather
        return min(admitting, key=lambda d: (d.calls, d.load.lag_ms, d.load.cpu, d.number)).number

    def begin(self, number: int) -> None:
        """A worker is about to be asked to open a call."""
        self._desks[number].placing += 1

    def opened(self, number: int, call_id: str) -> None:
        """It has opened it."""
        if (desk := self._desks.get(number)) is None:
            return
        desk.placing -= 1
        if call_id in desk.over_early:
            desk.over_early.discard(call_id)
        else:
            desk.live.add(call_id)

    def refused(self, number: int) -> None:
        """It has not opened it."""
        if (desk := self._desks.get(number)) is not None:
            desk.placing -= 1

    def ended(self, number: int, call_id: str) -> None:
        """A worker tells of the end of a call that it had opened."""
        if (desk := self._desks.get(number)) is None:
            return
        if call_id in desk.live:
            desk.live.discard(call_id)
        else:
            desk.over_early.add(call_id)
