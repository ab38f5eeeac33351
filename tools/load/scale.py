"""One process against several workers, side by side: what a call costs in each, and how many more they carry.

A machine with cores to spare for the callers shows it: each server is brought to its breaking point.

One with no more cores than there are workers cannot: the callers need time on them, too, and no core can be
filled. There, calls so few that they are carried easily tell what each takes of a core, the process in front
included, while all cores work at once; a core has 60 CPU seconds a minute to give. From that follows how many
more calls N cores carry than one. It tells what the split itself costs: the process in front, fewer calls to
share what a worker does anyway, caches and memory used by all. It does not tell what only full cores show:
gaps where a loop gets late, and whether calls are spread so evenly that the last of them finds room.
"""

import asyncio
import os
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from .bench import WARM_S, climb
from .calls import Kinds
from .crowd import Address, Crowd, measure
from .figures import Climb, Scale
from .film import film
from .proc import children
from .servers import Cores, Served, Speech, whole_server
from .talk import Script

CALLS = 10
"Few enough that one process on one core and its callers have time left."
ROUNDS = 3
WINDOW_S = 20.0
STEPS = tuple(range(10, 201, 10))
READY_S = 60.0


@dataclass(frozen=True, slots=True)
class Scaling:
    """Measures `serve --workers 1` against `--workers N`."""

    product: Path
    speech: Speech
    folder: Path
    kinds: Kinds
    mode: str
    workers: int
    window_s: float
    tell: Callable[[str], None]

    async def run(self) -> Scale:
        """Measure. Raises SystemExit on a machine with fewer cores than workers."""
        cores = sorted(os.sched_getaffinity(0))
        if len(cores) < self.workers:
            raise SystemExit(f"{self.workers} workers need as many cores, and there are {len(cores)}.")
        own, spare = cores[: self.workers], cores[self.workers :]
        Cores(callers=tuple(spare)).pin_callers()
        found = Scale(self.workers)
        async with AsyncExitStack() as stack:
            one = await self._serve(stack, 1, own[:1], spare)
            many = await self._serve(stack, self.workers, own, spare)
            for number in range(ROUNDS):
                parts = [(self._one, one), (self._many, many)]
                for part, server in parts if number % 2 == 0 else parts[::-1]:
                    await part(found, server)
            if spare:
                found.climbs["one"] = await self._climb(one, 1, len(spare))
                found.climbs["many"] = await self._climb(many, self.workers, len(spare))
        return found

    async def _serve(self, stack: AsyncExitStack, workers: int, own: list[int], spare: list[int]) -> Served:
        folder = self.folder / f"workers-{workers}"
        folder.mkdir()
        cores = Cores(tuple(own), tuple(spare))
        settings = {"VISAVIS_SERVER_WORKERS": str(workers)}
        server = await stack.enter_async_context(
            whole_server(self.product, "lean", self.speech, folder, cores, settings)
        )
        await _ready(server.url)
        if workers > 1:
            assert server.meter.server_pid is not None
            for core, worker in zip(own, children(server.meter.server_pid), strict=True):
                _pin(worker, core)
        return server

    async def _one(self, found: Scale, server: Served) -> None:
        self.tell(f"one process, {CALLS} calls")
        async with self._crowd(server) as crowd:
            await crowd.grow(CALLS)
            await asyncio.sleep(WARM_S)
            found.one.append(await measure(crowd, self.window_s, server.meter))

    async def _many(self, found: Scale, server: Served) -> None:
        async with self._crowd(server) as crowd:
            for calls, windows in ((CALLS, found.same), (CALLS * self.workers, found.same_each)):
                self.tell(f"{self.workers} workers, {calls} calls")
                before = server.meter.front().cpu_s
                begun = calls - len(crowd.callers)
                await crowd.grow(calls)
                found.begun += begun
                found.front_begun_cpu_s += server.meter.front().cpu_s - before
                await asyncio.sleep(WARM_S)
                windows.append(await measure(crowd, self.window_s, server.meter))

    async def _climb(self, server: Served, cores: int, callers_cores: int) -> Climb:
        async with self._crowd(server) as crowd:
            cores_of = (cores, callers_cores)
            return await climb(crowd, STEPS, self.window_s, server.meter, cores_of, self.tell)

    def _crowd(self, server: Served) -> Crowd:
        script = Script(self.speech.clips("question"), self.speech.clips("interruption"))
        return Crowd(
            self.kinds, Address(server.url), script, None if self.mode == "audio" else film(self.mode)
        )


async def _ready(url: str) -> None:
    """Wait until a call would be answered: the process in front is there before its workers."""
    async with asyncio.timeout(READY_S), aiohttp.ClientSession() as http:
        while True:
            async with http.get(f"{url}/readyz") as response:
                if response.status == 200:
                    return
            await asyncio.sleep(0.1)


def _pin(process: int, core: int) -> None:
    for thread in Path(f"/proc/{process}/task").iterdir():
        os.sched_setaffinity(int(thread.name), {core})
