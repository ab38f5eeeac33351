"""`python -m visavis.worker`: one process of several that carry calls; `visavis serve --workers N` starts it.

It serves the call resource on a Unix socket in the front's private folder, to the front alone, which has
checked who asks. Orders come through standard input (`orders`). Reports go through a pipe of their own, lines
of JSON: `{"ready": true}`, `{"ended": id}` when a call is over, and once a second the load,
`{"cpu": …, "lag_ms": …}`, by which the front knows that the event loop lives.
"""

import asyncio
import contextlib
import faulthandler
import json
import logging
import os
import select
import signal
import sys
import threading
import time
from typing import Any

from aiohttp import web

from .app import build_worker_app
from .calls import Calls
from .engine.open import opened_engine
from .errors import VisavisError, unwrapped
from .heap import settle
from .logs import set_up_child_logging
from .orders import Begin, Drain, HangUp, Say, read_order
from .serving import listening
from .wiring import making_calls

logger = logging.getLogger(__name__)

EXIT_REFUSED = 78
"The settings or the machine make it impossible; the last line of the log says why (EX_CONFIG of sysexits.h)."

BEAT_S = 1.0
"Between two reports."
_TICKS = 4
"Looks at the event loop's lag between two reports."
_STUCK_S = 3.0
"Who does not get on for so long writes down where it is, before the front ends it."
_ORPHAN_S = 15.0
"A worker without a front that has not ended itself in so long is stuck in its goodbyes."


class Reports:
    """Writes reports to the front without ever waiting for it."""

    def __init__(self, pipe: int) -> None:
        os.set_blocking(pipe, False)
        self._pipe = pipe
        self._unsent = b""

    def ready(self) -> None:
        self._send({"ready": True})

    def ended(self, call_id: str) -> None:
        self._send({"ended": call_id})

    def beat(self, cpu: float, lag_ms: float) -> None:
        self._send({"cpu": round(cpu, 3), "lag_ms": round(lag_ms, 1)})

    def _send(self, report: dict[str, Any]) -> None:
        self._unsent += json.dumps(report).encode() + b"\n"
        # A front that is gone ends this process by another way.
        with contextlib.suppress(BlockingIOError, BrokenPipeError):
            self._unsent = self._unsent[os.write(self._pipe, self._unsent) :]


class Worker:
    """Carries calls until it is told to end them, or the front is gone."""

    def __init__(self, begin: Begin, orders: asyncio.StreamReader, reports: Reports) -> None:
        self._begin = begin
        self._orders = orders
        self._reports = reports
        self._lines = begin.lines

    async def run(self) -> None:
        """Raises VisavisError for whatever makes that impossible."""
        begin = self._begin
        config = begin.config
        calls = Calls(config.server.max_calls, config.rtc.connect_s, ended=self._reports.ended)
        async with (
            opened_engine(config, begin.embedded, begin.pools) as engine,
            making_calls(config, engine, lambda: self._lines) as open_call,
            listening(build_worker_app(config, calls, open_call, begin.number), self._listen, logged=False),
            asyncio.TaskGroup() as tasks,
        ):
            settle()
            self._reports.ready()
            beating = tasks.create_task(self._beat())
            await self._obey(calls)
            beating.cancel()

    async def _listen(self, runner: web.AppRunner) -> None:
        await web.UnixSite(runner, str(self._begin.socket)).start()

    async def _obey(self, calls: Calls) -> None:
        """Carry out orders until the calls are drained or the front is gone."""
        draining: asyncio.Task[None] | None = None
        reading = asyncio.create_task(read_order(self._orders))
        try:
            while True:
                await asyncio.wait(
                    (reading, draining) if draining else (reading,), return_when=asyncio.FIRST_COMPLETED
                )
                if draining is not None and draining.done():
                    return draining.result()
                if not reading.done():
                    continue
                order = reading.result()
                match order:
                    case None:
                        logger.warning("the front is gone, the calls end")
                        await calls.aclose()
                        return None
                    case Say(lines):
                        self._lines = lines
                    case Drain():
                        if draining is not None:
                            await _cancel(draining)
                        draining = asyncio.create_task(_drain(calls, order))
                    case HangUp(reason):
                        calls.hang_up_all(reason)
                reading = asyncio.create_task(read_order(self._orders))
        finally:
            await _cancel(reading)
            if draining is not None:
                await _cancel(draining)

    async def _beat(self) -> None:
        """Report, until cancelled, how this process is doing."""
        loop = asyncio.get_running_loop()
        try:
            while True:
                faulthandler.dump_traceback_later(_STUCK_S)
                began, cpu, lag_s = loop.time(), time.process_time(), 0.0
                for _ in range(_TICKS):
                    due = loop.time() + BEAT_S / _TICKS
                    await asyncio.sleep(BEAT_S / _TICKS)
                    lag_s = max(lag_s, loop.time() - due)
                self._reports.beat((time.process_time() - cpu) / (loop.time() - began), 1000 * lag_s)
        finally:
            faulthandler.cancel_dump_traceback_later()


async def _drain(calls: Calls, order: Drain) -> None:
    if order.quiet_s:
        await calls.retire(order.quiet_s)
    await calls.drain(order.seconds)


async def _cancel(task: asyncio.Task[Any]) -> None:
    task.cancel()
    await asyncio.wait((task,))


async def _work(reports: Reports) -> None:
    loop = asyncio.get_running_loop()
    orders = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    begin = await read_order(orders)
    if not isinstance(begin, Begin):
        return
    logging.getLogger().setLevel(begin.log_level)
    with unwrapped():
        await Worker(begin, orders, reports).run()


def _end_with_front() -> None:
    """End this process some time after the front's end of standard input is closed, come what may."""
    poll = select.poll()
    poll.register(0, 0)  # nothing but the end
    poll.poll()
    time.sleep(_ORPHAN_S)
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> int:
    """Work until the front says otherwise.

    The first argument is the descriptor of the pipe for reports, the second, for people, the worker's number.
    """
    # Whoever stops the whole service stops the front, which lets the calls end.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    faulthandler.enable()
    pipe = int(sys.argv[1])
    os.set_inheritable(pipe, False)
    set_up_child_logging(logging.INFO)
    threading.Thread(target=_end_with_front, name="front", daemon=True).start()
    try:
        asyncio.run(_work(Reports(pipe)))
    except VisavisError as error:
        logger.error("%s", error)
        return EXIT_REFUSED
    return 0


if __name__ == "__main__":
    sys.exit(main())
