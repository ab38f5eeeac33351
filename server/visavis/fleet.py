"""The workers of a server: N of them kept running, replaced when they die, exchanged for others on demand."""

import asyncio
import contextlib
import itertools
import logging
import os
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import aiohttp

from .backoff import Backoff
from .config import Config
from .errors import VisavisError
from .lines import NO_LINES, Lines
from .local.running import Embedded
from .metrics import CALLS_ENDED, DIRECTORY, forget_process
from .orders import Begin, Drain, HangUp, Say
from .placement import Placement
from .workers import Listener, Worker

logger = logging.getLogger(__name__)

_FIRST_PAUSE_S = 0.25
"Before a dead worker is replaced; each further time twice as long."
_LONGEST_PAUSE_S = 30.0
_STEADY_S = 60.0
"After a life this long the pauses begin anew."


@dataclass(eq=False, slots=True)
class _Crew:
    """Workers of the same settings."""

    config: Config
    ready: "asyncio.Future[None]"
    "All of them take calls; or the error of the one that did not come so far."
    dismissed: asyncio.Event = field(default_factory=asyncio.Event)
    "Whoever ends is not replaced."
    keepers: set["asyncio.Task[None]"] = field(default_factory=set)
    arrived: set[int] = field(default_factory=set)
    "Numbers of those that are there and take calls."


class Fleet:
    """Starts and keeps workers, in tasks of `tasks`. A `serving.Drainable`.

    `placement` is told of each that comes, reports or goes. Of the folder, which is private and has a short
    name, it makes their sockets, their counts (`metrics`) and their common places at engines.
    """

    def __init__(
        self, tasks: asyncio.TaskGroup, placement: Placement, folder: Path, embedded: Embedded | None
    ) -> None:
        self._tasks = tasks
        self._placement = placement
        self._folder = folder
        self._embedded = embedded
        self._crew: _Crew | None = None
        "The one that takes new calls."
        self._crews: dict[int, _Crew] = {}
        self._workers: dict[int, Worker] = {}
        self._slots: dict[int, int] = {}
        "What is added to the media port of each, by its number."
        self._leaving: dict[int, Drain] = {}
        "Orders for workers that are opening their last calls."
        self._next_number = 0
        self._lines = NO_LINES
        self.metrics = folder / "metrics"
        self.metrics.mkdir(mode=0o700)
        self.closing = False
        "No more calls are admitted."

    async def man(self, config: Config, lines: Lines) -> None:
        """Have workers of these settings; those there are finish their calls and end.

        Raises VisavisError if one of the new ones cannot be got to work; then all is as it was.
        """
        crew = _Crew(config, asyncio.get_running_loop().create_future())
        before, self._lines = self._lines, lines
        for _ in range(config.server.workers):
            keeper = self._tasks.create_task(self._keep(crew))
            crew.keepers.add(keeper)
            keeper.add_done_callback(crew.keepers.discard)
        try:
            await asyncio.shield(crew.ready)
        except VisavisError:
            self._lines = before
            crew.dismissed.set()
            keepers = [*crew.keepers]
            for keeper in keepers:
                keeper.cancel()
            await asyncio.gather(*keepers, return_exceptions=True)
            raise
        old, self._crew = self._crew, crew
        for number in crew.arrived:
            self._placement.add(number)
        if old is not None:
            self._dismiss(old, Drain(config.server.restart_s, config.server.drain_s))

    @property
    def room(self) -> float:
        """Which share of the calls could be added now, 0 to 1."""
        if self.closing or self._crew is None:
            return 0.0
        return max(0.0, 1 - len(self._placement) / self._crew.config.server.max_calls)

    @property
    def leaving(self) -> bool:
        """Whether workers of earlier settings are still there."""
        return any(crew is not self._crew for crew in self._crews.values())

    def http(self, number: int) -> aiohttp.ClientSession | None:
        """Return a client of a worker's server, None if there is no such worker."""
        worker = self._workers.get(number)
        return None if worker is None else worker.http

    def say(self, lines: Lines) -> None:
        """Calls from now on have these lines."""
        self._lines = lines
        for worker in self._workers.values():
            worker.order(Say(lines))

    def note_placed(self, number: int) -> None:
        """A worker has opened a call, or not: if it was the last that it was asked for, it may leave."""
        if number in self._leaving and not self._placement.is_placing(number):
            self._workers[number].order(self._leaving.pop(number))

    async def drain(self, seconds: float) -> None:
        """Admit no more, tell the callers, wait for them to finish, then end what is left."""
        self.closing = True
        if calls := len(self._placement):
            logger.info("%d calls are told of the end, %.0f s are left to them", calls, seconds)
        crews = {*self._crews.values(), *([self._crew] if self._crew else [])}
        for crew in crews:
            crew.dismissed.set()
        for worker in self._workers.values():
            worker.order(Drain(0.0, seconds))
        if keepers := {keeper for crew in crews for keeper in crew.keepers}:
            await asyncio.wait(keepers)

    def hang_up_all(self, reason: str) -> None:
        for worker in self._workers.values():
            worker.order(HangUp(reason))

    async def _keep(self, crew: _Crew) -> None:
        """Keep one worker of a crew running."""
        loop = asyncio.get_running_loop()
        backoff = Backoff(_FIRST_PAUSE_S, _LONGEST_PAUSE_S, _STEADY_S)
        while not crew.dismissed.is_set():
            number, self._next_number = self._next_number, self._next_number + 1
            started = loop.time()
            fault, calls = await self._live(crew, number)
            if not crew.ready.done():
                crew.ready.set_exception(fault or VisavisError("a worker ended before it had begun"))
                return
            if crew.dismissed.is_set():
                if fault is not None:
                    logger.error("%s; calls lost: %d", fault, calls)
                return
            pause_s = backoff.pause(loop.time() - started)
            ended = fault or f"worker {number} ended"
            logger.error("%s; calls lost: %d, another starts in %.2f s", ended, calls, pause_s)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await crew.dismissed.wait()

    async def _live(self, crew: _Crew, number: int) -> tuple[VisavisError | None, int]:
        """Run one worker; return what ended it if it was not to end, and how many calls went with it."""
        slot = next(slot for slot in itertools.count() if slot not in self._slots.values())
        worker = Worker(
            self._begin(crew.config, number, slot),
            {**os.environ, DIRECTORY: str(self.metrics)},
            Listener(
                partial(self._welcome, crew, number),
                partial(self._placement.ended, number),
                partial(self._placement.report, number),
            ),
        )
        self._workers[number], self._slots[number], self._crews[number] = worker, slot, crew
        fault: VisavisError | None = None
        try:
            fault = await worker.run()
        finally:
            del self._workers[number], self._slots[number], self._crews[number]
            crew.arrived.discard(number)
            self._leaving.pop(number, None)
            calls = self._placement.remove(number, lost=fault is not None)
            if fault is not None:
                CALLS_ENDED.labels("worker_lost").inc(calls)
            if worker.pid is not None:
                forget_process(worker.pid)
        return fault, calls

    def _begin(self, config: Config, number: int, slot: int) -> Begin:
        if config.rtc.udp_port:
            config = replace(config, rtc=replace(config.rtc, udp_port=config.rtc.udp_port + slot))
        level = logging.getLogger().getEffectiveLevel()
        socket = self._folder / f"{number}.sock"
        return Begin(number, config, socket, self._embedded, self._lines, self._folder, level)

    def _welcome(self, crew: _Crew, number: int) -> None:
        """A worker takes calls; it gets them when its whole crew does."""
        logger.info("worker %d takes calls", number)
        crew.arrived.add(number)
        if crew.ready.done():
            self._placement.add(number)
        elif len(crew.arrived) == crew.config.server.workers:
            crew.ready.set_result(None)

    def _dismiss(self, crew: _Crew, order: Drain) -> None:
        crew.dismissed.set()
        for number, its in self._crews.items():
            if its is not crew:
                continue
            self._placement.retire(number)
            if self._placement.is_placing(number):
                self._leaving[number] = order
            else:
                self._workers[number].order(order)
