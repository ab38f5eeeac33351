"""Several engines as one: the first that answers, a share of calls for a candidate, limits for each."""

import asyncio
import hashlib
import logging
import re
from collections import Counter, deque
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass

from ..config import RouterConfig
from ..errors import EngineBusy, EngineError, EngineLost, EngineRefused
from ..metrics import ENGINE_FIRST_DELTA, ENGINE_LEFT_ALONE, ENGINE_REQUESTS, ENGINE_TOKENS
from . import Delta, Done, Engine, Request, Routed, Sent, TranscriptDelta, Usage
from .limits import Breaker, BreakerState, Places, Ticket
from .pool import POLL_S, LockPool

logger = logging.getLogger(__name__)

_OUT_OF_MEMORY = re.compile(r"out of memory|outofmemory|\boom\b", re.IGNORECASE)

Count = tuple[str, str, str]
"""An engine's label, its outcome, and why.

`answered` and `withdrawn` (by the caller) as the first choice, "", the `candidate` or a `fallback`; `broken`
and `passed over` for what was wrong with it.
"""


@dataclass(frozen=True, slots=True)
class Entry:
    """An engine in the router's list."""

    label: str
    "Unique among the router's engines."
    engine: Engine
    max_concurrent: int
    "Requests under way at once."
    max_queued: int
    "Requests waiting for a place; further ones go on to the next engine."
    looks_ahead: bool = False
    "It has caches that a turn's beginning can be sent ahead to."
    one_at_a_time: bool = False
    "Requests wait for each other in it: nothing is sent ahead beside another."
    pool: LockPool | None = None
    "The places and the queue are shared with other processes, by this; closed with the engine."


class RouterEngine:
    """Asks the engines in order until one gives a first delta, and closes them all in the end.

    An engine is passed over when it has no place, when it failed before its first delta or was too slow
    with it, and for a while when it failed often. With a candidate, a share of the calls asks that one
    first; which calls those are is decided by their ids, so that a call keeps its choice without any state.
    """

    def __init__(self, engines: Sequence[Entry], candidate: Entry | None, config: RouterConfig) -> None:
        """Raises ValueError without engines, or if two have the same label."""
        entries = [*engines, *([candidate] if candidate else [])]
        if not engines or len({entry.label for entry in entries}) < len(entries):
            raise ValueError("a router needs at least one engine, and a label of its own for each")
        self._config = config
        self._counts: Counter[Count] = Counter()
        self._lanes = [_Lane(entry, config) for entry in engines]
        self._candidate = _Lane(candidate, config) if candidate else None

    async def respond(self, request: Request) -> AsyncGenerator[Delta, None]:
        """Stream one response, `Done` last, with `Routed` before its first delta.

        A final transcript of the user is passed on once and commits to no engine. Raises EngineError: of the
        engine that broke off; if none answered, of one that refused or the last one's.
        """
        lanes = self._order(request.call_id)
        if request.ahead:
            async with aclosing(self._send_ahead(lanes[0], request)) as deltas:
                async for delta in deltas:
                    yield delta
            return
        if request.speculative and lanes[0].places.free < 2:
            raise EngineBusy("There is no place for what may not be wanted.")
        attempt = _Attempt(request)
        resting: deque[_Lane] = deque()
        while lanes or resting:
            # An engine left alone is asked before its time only when there is no other.
            early = not lanes
            lane = resting.popleft() if early else lanes.popleft()
            if not early and not lane.breaker.lets_through(_now()):
                self._count(lane, "passed over", "left alone")
                attempt.pass_over(lane.label, "left alone", None)
                resting.append(lane)
                continue
            patience_s = self._config.patience_s if lanes or resting else None
            try:
                async with aclosing(self._ask(lane, attempt, early=early, patience_s=patience_s)) as deltas:
                    async for delta in deltas:
                        yield delta
                return
            except _PassedOver as passed:
                self._count(lane, "passed over", passed.reason)
                attempt.pass_over(lane.label, passed.reason, passed.error)
        raise attempt.error()

    async def ready(self) -> bool:
        """Tell whether any of the engines is; the candidate alone is not enough."""
        asked = [asyncio.create_task(lane.engine.ready()) for lane in self._lanes]
        try:
            for answer in asyncio.as_completed(asked):
                if await answer:
                    return True
            return False
        finally:
            for task in asked:
                task.cancel()
            await asyncio.gather(*asked, return_exceptions=True)

    async def aclose(self) -> None:
        """Close all engines."""
        for lane in (*self._lanes, *([self._candidate] if self._candidate else [])):
            await lane.aclose()

    def counts(self) -> dict[Count, int]:
        """How often which engine had which outcome, and why, since the start."""
        return dict(self._counts)

    def _count(self, lane: "_Lane", outcome: str, why: str) -> None:
        self._counts[lane.label, outcome, why] += 1
        ENGINE_REQUESTS.labels(lane.label, outcome, why).inc()

    async def _send_ahead(self, lane: "_Lane", request: Request) -> AsyncGenerator[Delta, None]:
        """Pass on what may be of use later to the engine that will be asked, if it has leisure.

        Nobody else is asked, and what comes of it says nothing of the engine.
        """
        if not lane.looks_ahead or lane.breaker.state is not BreakerState.CLOSED or not lane.has_leisure:
            raise EngineBusy("There is no place for what is sent ahead.")
        async with lane.place(None), aclosing(lane.engine.respond(request)) as deltas:
            self._count(lane, "sent ahead", "")
            async for delta in deltas:
                yield delta

    def _order(self, call_id: str) -> "deque[_Lane]":
        lanes = deque(self._lanes)
        if self._candidate is not None and _share_of(call_id) < self._config.candidate_share:
            lanes.appendleft(self._candidate)
        return lanes

    async def _ask(
        self, lane: "_Lane", attempt: "_Attempt", *, early: bool, patience_s: float | None
    ) -> AsyncGenerator[Delta, None]:
        """Stream one engine's response; raises _PassedOver as long as another may still be asked."""
        deadline = None if patience_s is None else _now() + patience_s
        async with lane.place(deadline) as ticket:
            if not lane.breaker.enter(_now(), early=early):
                raise _PassedOver("left alone", EngineLost("The engine failed and is being tried again."))
            outcome, why = "withdrawn", ""
            answering = False
            asked = _now()
            try:
                async with (
                    aclosing(lane.engine.respond(attempt.request)) as untimed,
                    aclosing(_in_time(untimed, deadline)) as deltas,
                ):
                    async for delta in deltas:
                        if not attempt.wants(delta):
                            continue
                        if not answering and not _commits_to_nothing(delta):
                            answering = True
                            lane.breaker.note_answering()
                            ENGINE_FIRST_DELTA.labels(lane.label).observe(_now() - asked)
                            reason, why = attempt.reason(candidate=lane is self._candidate)
                            yield Routed(lane.label, reason)
                        if isinstance(delta, Done):
                            outcome = "answered"
                        elif isinstance(delta, Usage):
                            ENGINE_TOKENS.labels(lane.label, "in").inc(delta.input_tokens)
                            ENGINE_TOKENS.labels(lane.label, "out").inc(delta.output_tokens)
                        yield delta
                if outcome != "answered":
                    raise EngineLost("The engine stopped in the middle of an answer.")
            except EngineError as error:
                why = lane.note_error(error, ticket)
                if not answering:
                    outcome = ""
                    raise _PassedOver(why, error) from error
                outcome = "broken"
                raise
            finally:
                if outcome == "answered" or (outcome == "withdrawn" and answering):
                    lane.note_success(whole=outcome == "answered")
                elif outcome == "withdrawn":
                    lane.breaker.note_nothing(_now())
                ENGINE_LEFT_ALONE.labels(lane.label).set(lane.breaker.state is BreakerState.OPEN)
                if outcome:
                    self._count(lane, outcome, why)


class _Attempt:
    """One request's way past the engines."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self._passed: list[str] = []
        self._errors: list[EngineError] = []
        self._transcribed = False

    def pass_over(self, label: str, reason: str, error: EngineError | None) -> None:
        logger.info("call %s: engine %s is passed over: %s", self.request.call_id, label, reason)
        self._passed.append(f"{label}: {reason}")
        if error is not None:
            self._errors.append(error)

    def wants(self, delta: Delta) -> bool:
        """Tell whether a delta is to be passed on: a second engine's transcript is not."""
        if not isinstance(delta, TranscriptDelta):
            return True
        if self._transcribed:
            return False
        self._transcribed = delta.final
        return True

    def reason(self, *, candidate: bool) -> tuple[str, str]:
        """Say why the engine answers that does, at length and in a word."""
        if candidate:
            return "candidate", "candidate"
        return "; ".join(self._passed), "fallback" if self._passed else ""

    def error(self) -> EngineError:
        """Make the one error of several, with all of them as its cause: the last, or that of a refusal.

        Who is told of a refusal asks for something else the next time.
        """
        refusals = [error for error in self._errors if isinstance(error, EngineRefused)]
        last = (refusals or self._errors)[-1]
        if len(self._errors) == 1:
            return last
        whole = type(last)(str(last))
        whole.__cause__ = ExceptionGroup("no engine answered", self._errors)
        return whole


class _PassedOver(Exception):
    """An engine gave no answer and another may be asked."""

    def __init__(self, reason: str, error: EngineError) -> None:
        super().__init__(reason)
        self.reason = reason
        self.error = error


class _Lane:
    """One engine with its limits."""

    def __init__(self, entry: Entry, config: RouterConfig) -> None:
        self.label = entry.label
        self.engine = entry.engine
        self.looks_ahead = entry.looks_ahead
        self._one_at_a_time = entry.one_at_a_time
        self.breaker = Breaker(entry.label, config.failures, config.open_s)
        self.places = Places(entry.label, entry.max_concurrent, entry.max_queued, entry.pool)
        self._pool = entry.pool
        self._turns: dict[Ticket, asyncio.Future[None]] = {}

    @property
    def has_leisure(self) -> bool:
        """Whether nobody would have to wait for what may be in vain."""
        return self.places.free >= (self.places.places if self._one_at_a_time else 2)

    @asynccontextmanager
    async def place(self, deadline: float | None) -> "AsyncGenerator[Ticket, None]":
        """Wait for a place and keep it for the body. Raises _PassedOver if there is none in time."""
        ticket = self.places.enter()
        if ticket is None:
            raise _PassedOver("queue full", EngineBusy("Too many wait for the engine already."))
        try:
            if not ticket.granted:
                turn = asyncio.get_running_loop().create_future()
                self._turns[ticket] = turn
                try:
                    async with asyncio.timeout_at(deadline):
                        while self.places.shared and not turn.done():
                            await asyncio.wait((turn,), timeout=POLL_S)
                            self._wake(self.places.retry())
                        await turn
                except TimeoutError as error:
                    busy = EngineBusy("No place at the engine became free in time.")
                    raise _PassedOver("no place", busy) from error
            yield ticket
        finally:
            self._turns.pop(ticket, None)
            self._wake(self.places.leave(ticket))

    async def aclose(self) -> None:
        await self.engine.aclose()
        if self._pool is not None:
            self._pool.close()

    def note_success(self, *, whole: bool) -> None:
        self.breaker.note_success()
        if whole:
            self._wake(self.places.note_success())

    def note_error(self, error: EngineError, ticket: Ticket) -> str:
        """Draw the consequences of an error and name it in a word or two."""
        match error:
            case EngineBusy():
                # It lives, and may have room a moment later: nothing to leave it alone for.
                self.breaker.note_nothing(_now())
                return "busy"
            case EngineRefused():
                self.breaker.note_nothing(_now())
                return "refused"
            case _ if _OUT_OF_MEMORY.search(str(error)):
                if self.places.note_out_of_memory(ticket):
                    self.breaker.note_nothing(_now())
                else:
                    self.breaker.note_failure(_now())
                return "out of memory"
            case _:
                self.breaker.note_failure(_now())
                return "slow" if isinstance(error, _TooSlow) else "lost"

    def _wake(self, tickets: list[Ticket]) -> None:
        for ticket in tickets:
            if (turn := self._turns.get(ticket)) is not None and not turn.done():
                turn.set_result(None)


class _TooSlow(EngineLost):
    """Another engine may be faster."""


async def _in_time(
    deltas: AsyncGenerator[Delta, None], deadline: float | None
) -> AsyncGenerator[Delta, None]:
    """Pass on deltas, of which the first that commits to the engine is due at the deadline."""
    while True:
        try:
            async with asyncio.timeout_at(deadline):
                delta = await anext(deltas, None)
        except TimeoutError as error:
            raise _TooSlow("The engine was too slow with its answer.") from error
        if delta is None:
            return
        if not _commits_to_nothing(delta):
            deadline = None
        yield delta


def _commits_to_nothing(delta: Delta) -> bool:
    """Tell whether another engine may still be asked after this delta."""
    match delta:
        case Sent() | Routed():
            return True
        case TranscriptDelta(final=final):
            return final
        case _:
            return False


def _share_of(call_id: str) -> float:
    """Map a call to [0, 1), always the same and evenly."""
    return int.from_bytes(hashlib.sha256(call_id.encode()).digest()[:7]) / 2**56


def _now() -> float:
    return asyncio.get_running_loop().time()
