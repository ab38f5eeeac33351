"""A server as a process of its own: started, waited for, its CPU time counted, and ended by its id."""

import asyncio
import os
import re
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

READY_S = 60.0
"FastRTC takes 20 s to load on two busy cores."
END_S = 8.0
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class StartError(Exception):
    """A server did not start; says why."""


@dataclass(frozen=True, slots=True)
class Server:
    url: str
    pid: int

    def cpu_s(self) -> float:
        """Tell the CPU time spent so far by the process and all it started."""
        return tree_cpu_s(self.pid)


def tree_cpu_s(pid: int, proc: Path = Path("/proc")) -> float:
    """Tell the CPU seconds of a process, of its living descendants, and of those that it waited for.

    A process that is gone counts nothing.
    """
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for path in proc.glob("[0-9]*/stat"):
        try:
            # The name, in brackets, may hold spaces and brackets itself.
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it ended just now
        number = int(path.parent.name)
        parents[number] = int(fields[1])
        ticks[number] = sum(map(int, fields[11:15]))  # utime, stime, cutime, cstime
    family = {pid}
    while more := {child for child, parent in parents.items() if parent in family} - family:
        family |= more
    return sum(ticks.get(member, 0) for member in family) / _TICKS_PER_S


@asynccontextmanager
async def running(command: Sequence[str], log: Path, env: dict[str, str]) -> AsyncIterator[Server]:
    """Start a server and wait until it prints its address; end it afterwards. Raises StartError."""
    with log.open("ab") as errors:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
            env=os.environ | env,
            start_new_session=True,
        )
    assert process.stdout is not None
    reading: asyncio.Task[None] | None = None
    try:
        url = await _address(process.stdout, log)
        reading = asyncio.create_task(_drain(process.stdout))
        yield Server(url, process.pid)
    finally:
        if reading is not None:
            reading.cancel()
        await _end(process)


async def _address(stdout: asyncio.StreamReader, log: Path) -> str:
    try:
        async with asyncio.timeout(READY_S):
            async for line in stdout:
                if found := re.search(rb"http://127\.0\.0\.1:\d+|ready", line):
                    return found[0].decode()
    except TimeoutError as error:
        raise StartError(f"it did not listen within {READY_S:.0f} s") from error
    raise StartError(f"it ended at once: {_last_line(log)}")


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    return lines[-1] if lines else "without a word"


async def _drain(stdout: asyncio.StreamReader) -> None:
    while await stdout.read(65_536):
        pass


async def _end(process: asyncio.subprocess.Process) -> None:
    """End the process and what it started: they are a session of their own."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(TimeoutError):
            async with asyncio.timeout(END_S):
                await process.wait()
