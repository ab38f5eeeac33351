"""How a process is doing, felt four times a second: its event loop, its processor time, its calls."""

import asyncio
import os
import shutil
import time
from collections.abc import Sized
from pathlib import Path

from .engine.health import read_gpus
from .metrics import CALLS, CALLS_MAX, CPU, GPU_MEMORY, LOOP_LAG, WORKER_CPU, WORKER_MEMORY

BEAT_S = 0.25
"Often enough to find what stops the loop for as long as a caller would hear, at next to no cost."

_BEATS = 4
"After which the slower figures are taken."

_STATM = Path("/proc/self/statm")

GPU_S = 15.0
"Between two looks at the GPUs, each of which is a process: as often as Prometheus usually reads."


class Pulse:
    """Measures this process while `run` runs. Labels of a process of its own have `worker`."""

    def __init__(self, calls: Sized, max_calls: int, worker: str = "0") -> None:
        self._calls = calls
        self._max_calls = max_calls
        self._worker = worker

    async def run(self) -> None:
        """Measure until cancelled; from then on there are no calls here."""
        loop = asyncio.get_running_loop()
        CALLS_MAX.set(self._max_calls)
        since, cpu = loop.time(), time.process_time()
        beats = 0
        try:
            while True:
                CALLS.labels(self._worker).set(len(self._calls))
                due = loop.time() + BEAT_S
                await asyncio.sleep(BEAT_S)
                now = loop.time()
                LOOP_LAG.observe(max(0.0, now - due))
                beats += 1
                if beats % _BEATS == 0:
                    spent = time.process_time() - cpu
                    CPU.inc(spent)
                    WORKER_CPU.labels(self._worker).set(spent / (now - since))
                    WORKER_MEMORY.labels(self._worker).set(_resident_bytes())
                    since, cpu = now, cpu + spent
        finally:
            for gauge in (CALLS, WORKER_CPU, WORKER_MEMORY):
                gauge.labels(self._worker).set(0)


def _resident_bytes() -> int:
    """Return the memory that this process holds (proc(5), statm), 0 where there is no /proc."""
    try:
        return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


async def watch_gpus() -> None:
    """Measure this machine's GPUs until cancelled; return at once where none can be asked.

    One process of a server does, since they are everyone's.
    """
    while shutil.which("nvidia-smi") is not None:
        for gpu in await read_gpus():
            GPU_MEMORY.labels(str(gpu.index), "used").set(gpu.used_mib * 2**20)
            GPU_MEMORY.labels(str(gpu.index), "total").set(gpu.total_mib * 2**20)
        await asyncio.sleep(GPU_S)
