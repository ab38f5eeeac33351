"""One worker as the front sees it: started, told what to do, heard, and ended when it falls silent."""

import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import aiohttp

from .errors import ConfigError, VisavisError
from .logs import ChildLog, pass_on
from .orders import Begin, Drain, Order, encode
from .placement import Load
from .worker import BEAT_S, EXIT_REFUSED

logger = logging.getLogger(__name__)

_START_S = 60.0
"From the start to the first report: a cold disk and a busy machine take ten."
SILENCE_S = 5 * BEAT_S
"A worker that reports nothing for so long hangs: its callers have heard nothing for as long."
_LATE_S = 1.0
"What is left to a report that came while this process itself did not get on."
_GOODBYE_S = 10.0
"From the end of its orders to that of a worker that ends its calls, one after the other if need be."
_OVERTIME_S = 10.0
"What a worker may need beyond the time that it was given to drain."
_MAX_LINE = 65_536
_IDLE_S = 10.0
"After which an unused connection to a worker is closed: before the worker does, which would race a request."


@dataclass(frozen=True, slots=True)
class Listener:
    """Who is told what a worker reports."""

    ready: Callable[[], None]
    ended: Callable[[str], None]
    "A call is over, by its id."
    load: Callable[[Load], None]


class Worker:
    """A child process. `run` is its whole life, a task of the front's."""

    def __init__(self, begin: Begin, environment: Mapping[str, str], listener: Listener) -> None:
        self.number = begin.number
        self.pid: int | None = None
        "None while there is no process."
        self._begin = begin
        self._environment = environment
        self._listener = listener
        self._is_ready = False
        self._process: asyncio.subprocess.Process | None = None
        self._log = ChildLog()
        self._overtime: asyncio.TimerHandle | None = None
        self.http: aiohttp.ClientSession | None = None
        "Its HTTP server, while it runs. Any host name will do."

    def order(self, order: Order) -> None:
        """Tell it something, soon; one that has ended is told nothing."""
        process = self._process
        if process is None or process.stdin is None or process.stdin.is_closing():
            return
        process.stdin.write(encode(order))
        if isinstance(order, Drain):
            if self._overtime is not None:
                self._overtime.cancel()
            given_s = order.quiet_s + order.seconds + _OVERTIME_S
            self._overtime = asyncio.get_running_loop().call_later(given_s, self._kill, "does not end")

    async def run(self) -> VisavisError | None:
        """Run the process to its end, and tell why it ended, None if it did so on its own account.

        Cancelled, it ends the process.
        """
        reading, writing = os.pipe()
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "visavis.worker",
                str(writing),
                str(self.number),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                env=self._environment,
                pass_fds=(writing,),
                # Interrupts typed at the terminal are for the front alone. Of the same session still, so that
                # the kernel hangs up a stopped worker when the front dies (setpgid(2), orphaned groups).
                process_group=0,
                limit=_MAX_LINE,
            )
        except OSError as error:
            os.close(reading)
            return VisavisError(f"worker {self.number} cannot be started: {error.strerror}")
        finally:
            os.close(writing)
        self._process, self.pid = process, process.pid
        connector = aiohttp.UnixConnector(str(self._begin.socket), limit=0, keepalive_timeout=_IDLE_S)
        self.http = aiohttp.ClientSession(connector=connector, auto_decompress=False)
        logging_ = asyncio.create_task(self._pass_on_log(process))
        try:
            self.order(self._begin)
            fault = await self._hear(reading)
            if fault is not None:
                self._kill(fault)
            status = await process.wait()
            await asyncio.wait((logging_,), timeout=1)  # its last words
            return self._reason(status, fault)
        finally:
            await self._end(process)
            logging_.cancel()
            await asyncio.wait((logging_,))
            self._process = None
            if self._overtime is not None:
                self._overtime.cancel()
            await self.http.close()
            self._begin.socket.unlink(missing_ok=True)

    async def _hear(self, pipe: int) -> str | None:
        """Take reports until their pipe is closed; return what is wrong with a worker that falls silent."""
        reports = asyncio.StreamReader(limit=_MAX_LINE)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reports), os.fdopen(pipe, "rb")
        )
        try:
            while line := await self._next(reports):
                self._receive(json.loads(line))
        except TimeoutError:
            return "does not answer" if self._is_ready else "does not get ready"
        finally:
            transport.close()
        return None

    async def _next(self, reports: asyncio.StreamReader) -> bytes:
        try:
            async with asyncio.timeout(SILENCE_S if self._is_ready else _START_S):
                return await reports.readline()
        except TimeoutError:
            # It may have been this process that stood still, and the report has been there all the time.
            async with asyncio.timeout(_LATE_S):
                return await reports.readline()

    def _receive(self, report: Mapping[str, object]) -> None:
        match report:
            case {"ready": True}:
                self._is_ready = True
                self._listener.ready()
            case {"ended": str(call_id)}:
                self._listener.ended(call_id)
            case {"cpu": int() | float() as cpu, "lag_ms": int() | float() as lag_ms}:
                self._listener.load(Load(cpu, lag_ms))

    async def _pass_on_log(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None, "asked for when starting it"
        await pass_on(
            process.stdout,
            self._log,
            lambda level, text: logger.log(level, "worker %d: %s", self.number, text),
        )

    def _reason(self, status: int, fault: str | None) -> VisavisError | None:
        if status == EXIT_REFUSED:
            return ConfigError(self._log.last_words)
        if fault is not None:
            return VisavisError(f"worker {self.number} {fault}")
        if status == 0:
            return None
        how = signal.Signals(-status).name if status < 0 else f"status {status}"
        return VisavisError(f"worker {self.number} ended with {how}")

    def _kill(self, why: str) -> None:
        """End it at once."""
        if self._process is not None and self._process.returncode is None:
            logger.error("worker %d %s and is killed", self.number, why)
            _kill_group(self._process)

    async def _end(self, process: asyncio.subprocess.Process) -> None:
        """Let it say goodbye to its callers, and see it end."""
        if process.returncode is None and not self._is_ready:
            _kill_group(process)
        if process.returncode is None:
            assert process.stdin is not None, "asked for when starting it"
            process.stdin.close()
            try:
                async with asyncio.timeout(_GOODBYE_S):
                    await process.wait()
            except TimeoutError:
                self._kill("does not end")
            finally:
                _kill_group(process)
        await process.wait()


def _kill_group(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
