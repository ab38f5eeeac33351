"""The calls that are live: each in one owned task, so that a fault in one ends that one alone."""

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from .errors import SignallingError

logger = logging.getLogger(__name__)


class Call(Protocol):
    """One call, made without doing any work. `answer` comes first and once, then `run`."""

    async def answer(self, offer_sdp: str) -> str:
        """Return the answer to an offer. Raises SignallingError; once it has raised, nothing is left."""
        ...

    async def run(self) -> None:
        """Live until the call is over; nothing of it is left then."""
        ...

    async def renegotiate(self, offer_sdp: str) -> str:
        """Return the answer to a further offer. Raises SignallingError, and goes on as it was."""
        ...

    async def add_candidates(self, candidates: Iterable[tuple[str, str]], ufrag: str | None = None) -> None:
        """Take ICE candidates that came after the offer: each with the name (a=mid) of its section.

        `ufrag` is the user name fragment that they belong to, if the client says. Raises SignallingError.
        """
        ...

    def display(self) -> "Call | None":
        """Make a call that hears what is said in this one; None where nobody can listen in."""
        ...

    def announce_end(self, seconds: float) -> None:
        """Tell the caller that the server goes away in so many seconds."""
        ...

    def hang_up(self, reason: str) -> None:
        """Let `run` return soon."""
        ...


@dataclass(frozen=True, slots=True)
class _Live:
    call: Call
    task: asyncio.Task[None]


@dataclass(frozen=True, slots=True)
class Opened:
    """A call that was answered."""

    answer: str
    location: str
    "Path of its resource."
    token: str
    "By which another call goes on from it. It begins with the call's id."


class Calls:
    """Registry and supervisor.

    `answer_s` bounds how long an offer may take to be answered, `close_s` how long a call may take to close
    its connection once it was told to. `ended` is told the id of each call that was answered and is over.
    """

    def __init__(
        self,
        max_calls: int,
        answer_s: float,
        close_s: float = 3.0,
        ended: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._max_calls = max_calls
        self._answer_s = answer_s
        self._close_s = close_s
        self._ended = ended
        self._live: dict[str, _Live] = {}
        self._closing = False

    def __len__(self) -> int:
        return len(self._live)

    def __contains__(self, call_id: str) -> bool:
        return call_id in self._live

    @property
    def closing(self) -> bool:
        """Whether no more calls are admitted."""
        return self._closing

    @property
    def room(self) -> float:
        """Which share of `max_calls` could be added now, 0 to 1."""
        return 0.0 if self._closing else max(0.0, 1 - len(self._live) / self._max_calls)

    def check_room(self) -> None:
        """Raise SignallingError (503) if no call can be added now."""
        if self._closing:
            raise SignallingError(503, "The server is shutting down.", code="shutting_down", retry_after_s=10)
        if len(self._live) >= self._max_calls:
            raise SignallingError(
                503, "All lines are busy; try again in a moment.", code="server_busy", retry_after_s=5
            )

    def check_live(self, call_id: str) -> None:
        """Raise SignallingError (404) if there is no call of that id."""
        if call_id not in self._live:
            raise SignallingError(404, "There is no such call.", code="call_not_found", param="call_id")

    async def open(self, call_id: str, make: Callable[[], Call], offer_sdp: str) -> str:
        """Make a call, return its answer to the offer and let it live in its own task.

        Raises SignallingError: no room, or the call's own refusal.
        """
        self.check_room()
        call = make()
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(self._supervise(call_id, call, offer_sdp, answer), name=call_id)
        self._live[call_id] = _Live(call, task)
        task.add_done_callback(partial(self._forget, call_id, answer))
        try:
            return await asyncio.shield(answer)
        except asyncio.CancelledError:
            # Nobody waits for the answer any more, so nobody will come.
            answer.cancel()
            task.cancel()
            raise

    async def renegotiate(self, call_id: str, offer_sdp: str) -> str:
        """Return a call's answer to a further offer. Raises SignallingError; the call goes on."""
        self.check_live(call_id)
        try:
            async with asyncio.timeout(self._answer_s):
                return await self._live[call_id].call.renegotiate(offer_sdp)
        except TimeoutError as error:
            raise _answer_timeout() from error

    async def add_candidates(
        self, call_id: str, candidates: Iterable[tuple[str, str]], ufrag: str | None = None
    ) -> None:
        """Give a call ICE candidates that came after its offer. Raises SignallingError."""
        self.check_live(call_id)
        await self._live[call_id].call.add_candidates(candidates, ufrag)

    def display(self, call_id: str) -> Call:
        """Make a call that hears what is said in one of these. Raises SignallingError."""
        self.check_live(call_id)
        display = self._live[call_id].call.display()
        if display is None:
            raise SignallingError(409, "Nobody can listen in on this call.", code="no_displays")
        return display

    async def close(self, call_id: str, reason: str) -> None:
        """Hang up one call and wait a moment for its end. Raises SignallingError (404)."""
        self.check_live(call_id)
        live = self._live[call_id]
        self._hang_up(call_id, live.call, reason)
        await asyncio.wait({live.task}, timeout=self._close_s)

    def hang_up_all(self, reason: str) -> None:
        for call_id, live in list(self._live.items()):
            self._hang_up(call_id, live.call, reason)

    async def retire(self, seconds: float) -> None:
        """Admit no more and wait for the calls to finish, without telling them."""
        self._closing = True
        await self._wait(seconds)

    async def drain(self, seconds: float) -> None:
        """Admit no more, tell the callers, wait for them to finish, then end what is left."""
        self._closing = True
        if self._live:
            logger.info("%d calls are told of the end, %.0f s are left to them", len(self._live), seconds)
        for call_id, live in list(self._live.items()):
            try:
                live.call.announce_end(seconds)
            except Exception:
                logger.exception("%s: cannot be told of the end", call_id)
        await self._wait(seconds)
        await self.aclose()

    async def aclose(self) -> None:
        """End all calls: by hanging up, and those that do not heed it by cancellation."""
        self._closing = True
        self.hang_up_all("the server is shutting down")
        await self._wait(self._close_s)
        for call_id, live in self._live.items():
            logger.warning("%s: does not hang up, cancelled", call_id)
            live.task.cancel()
        await self._wait(self._close_s)

    async def _supervise(self, call_id: str, call: Call, offer_sdp: str, answer: asyncio.Future[str]) -> None:
        try:
            async with asyncio.timeout(self._answer_s):
                answer_sdp = await call.answer(offer_sdp)
        except SignallingError as error:
            answer.set_exception(error)
            return
        except TimeoutError:
            answer.set_exception(_answer_timeout())
            return
        except Exception:
            logger.exception("%s: could not be answered", call_id)
            answer.set_exception(
                SignallingError(500, "The offer could not be answered.", code="internal_error")
            )
            return
        answer.set_result(answer_sdp)
        try:
            await call.run()
        except Exception:
            logger.exception("%s: failed", call_id)

    def _forget(self, call_id: str, answer: asyncio.Future[str], task: asyncio.Task[None]) -> None:
        del self._live[call_id]
        if answer.done() and not answer.cancelled() and answer.exception() is None:
            self._ended(call_id)
        if not answer.done():
            # Cancelled while it was answered: the waiting request must not wait for ever.
            answer.set_exception(
                SignallingError(503, "The server is shutting down.", code="shutting_down", retry_after_s=10)
            )

    def _hang_up(self, call_id: str, call: Call, reason: str) -> None:
        try:
            call.hang_up(reason)
        except Exception:
            logger.exception("%s: cannot be hung up, cancelled", call_id)
            self._live[call_id].task.cancel()

    async def _wait(self, seconds: float) -> None:
        if tasks := {live.task for live in self._live.values()}:
            await asyncio.wait(tasks, timeout=seconds)


def _answer_timeout() -> SignallingError:
    return SignallingError(
        503, "The offer could not be answered in time.", code="answer_timeout", retry_after_s=5
    )
