"""The beat of 20 ms by which the voices of all calls are sent: one for a process."""

import asyncio
import logging
from collections.abc import Callable

from ..audio import BEAT_S, MAX_LATE_S

logger = logging.getLogger(__name__)

PHASES = 4
"Calls are dealt out over so many parts of a beat: a hundred at once would hold the event loop for 10 ms."


class Beat:
    """Calls its members every 20 ms, on deadlines that do not drift; runs only while it has any."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._phases = [_Phase(loop, number * BEAT_S / PHASES) for number in range(PHASES)]

    def join(self, tick: Callable[[int], None], failed: Callable[[], None]) -> Callable[[], None]:
        """Have `tick` called with the number of beats since the last time: 1, or more after a stall.

        A tick that raises is not called again, and `failed` is told. Returns what ends it.
        """
        return min(self._phases, key=len).join(tick, failed)

    def close(self) -> None:
        for phase in self._phases:
            phase.close()


class _Member:
    __slots__ = ("failed", "tick")

    def __init__(self, tick: Callable[[int], None], failed: Callable[[], None]) -> None:
        self.tick = tick
        self.failed = failed


class _Phase:
    def __init__(self, loop: asyncio.AbstractEventLoop, offset_s: float) -> None:
        self._loop = loop
        self._offset_s = offset_s
        self._members: dict[_Member, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0

    def __len__(self) -> int:
        return len(self._members)

    def join(self, tick: Callable[[int], None], failed: Callable[[], None]) -> Callable[[], None]:
        member = _Member(tick, failed)
        self._members[member] = None
        if self._timer is None:
            beats = (self._loop.time() - self._offset_s) // BEAT_S + 1
            self._due = beats * BEAT_S + self._offset_s
            self._timer = self._loop.call_at(self._due, self._run)

        def leave() -> None:
            self._members.pop(member, None)
            if not self._members:
                self.close()

        return leave

    def close(self) -> None:
        self._members.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _run(self) -> None:
        late = self._loop.time() - self._due
        beats = 1 + (int(late / BEAT_S) if late > MAX_LATE_S else 0)
        self._due += beats * BEAT_S
        self._timer = self._loop.call_at(self._due, self._run)  # before the members: the last may leave
        for member in tuple(self._members):
            if member not in self._members:
                continue  # another's tick has ended this call
            try:
                member.tick(beats)
            except Exception:
                logger.exception("a call ends: its voice could not be sent")
                self._members.pop(member, None)
                member.failed()
        if not self._members:
            self.close()
