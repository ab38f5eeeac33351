"""The bounded run and the full one: lean and stock side by side, mode by mode, step by step."""

import asyncio
import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from .calls import Kinds
from .crowd import Address, Crowd, measure
from .delay import probe
from .figures import MODES, Bench, Climb, Window
from .film import film
from .line import Exchange
from .plan import BACKENDS, Plan
from .proc import Meter
from .servers import Cores, Served, Speech, media_server, whole_server
from .talk import Script

MEDIA = (*BACKENDS, "aiortc")
"Servers that do media alone."
WARM_S = 3.0
"After a call is set up, before anything is measured: encoders and jitter buffers settle."
NETWORKS = {"no_loss": None, "loss_3pct": 0.03}


Serve = Callable[[Path, str, Speech, Path, Cores], AbstractAsyncContextManager[Served]]
"Runs a server: the product's Python, the backend, what is said, a folder for its files, where it runs."


class Progress:
    """One line that is written over and over; on what is no terminal, a line each."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._same_line = sys.stderr.isatty()

    def __call__(self, text: str) -> None:
        spent = time.monotonic() - self._began
        line = f"{spent:4.0f} s  {text}"
        if self._same_line:
            print(f"\r\033[K{line[:100]}", end="", file=sys.stderr, flush=True)
        else:
            print(line, file=sys.stderr, flush=True)

    def end(self, text: str) -> None:
        """Leave the line and write on the next."""
        print(("\n" if self._same_line else "") + text, file=sys.stderr, flush=True)


@dataclass(frozen=True, slots=True)
class Runner:
    """Measures our servers as a plan says."""

    product: Path
    speech: Speech
    folder: Path
    cores: Cores
    plan: Plan
    tell: Callable[[str], None]
    exchange: Exchange
    kinds: Kinds

    async def run(self) -> Bench:
        bench = Bench()
        await self._delays(bench)
        scripts = self._scripts()
        rounds = self.plan.media_rounds, self.plan.whole_rounds
        await self._costs(bench.media, MEDIA, media_server, scripts["media"], rounds[0])
        await self._costs(bench.whole, BACKENDS, whole_server, scripts["whole"], rounds[1])
        await self._climb(bench, scripts["whole"])
        return bench

    def _scripts(self) -> dict[str, Script]:
        questions = self.speech.clips("question")
        pause = sum(len(clip.blocks) for clip in questions) / len(questions) * 0.02
        return {
            # Half speech and half silence, as the server does: nobody waits for the other.
            "media": Script(questions, think_s=(0.5 * pause, 1.5 * pause), waits=False),
            "whole": Script(questions, self.speech.clips("interruption")),
        }

    async def _delays(self, bench: Bench) -> None:
        for backend in BACKENDS:
            kinds = bench.delays_ms[backend] = {}
            async with media_server(self.product, backend, self.speech, self.folder, self.cores) as server:
                for kind, loss in NETWORKS.items():
                    self.tell(f"microphone to PCM, {backend}, {kind}")
                    onsets = self.folder / f"onsets-{backend}"
                    kinds[kind], _ = await probe(self.exchange, server.url, onsets, self.plan.tones_s, loss)

    async def _costs(
        self,
        found: dict[str, dict[str, list[Window]]],
        backends: Sequence[str],
        serve: Serve,
        script: Script,
        rounds: int,
    ) -> None:
        """Measure each mode with each backend, a few calls each, in one window of time."""
        async with AsyncExitStack() as stack:
            servers: dict[str, Served] = {}
            for backend in backends:
                found[backend] = {mode: [] for mode in MODES}
                servers[backend] = await stack.enter_async_context(
                    serve(self.product, backend, self.speech, self.folder, self.cores)
                )
            for turn in range(rounds):
                for mode in MODES:
                    for backend in backends if turn % 2 == 0 else backends[::-1]:
                        calls = self.plan.calls[mode]
                        self.tell(f"{serve.__name__}, {backend}, {mode}, {calls} calls")
                        async with self._crowd(servers[backend], script, mode) as crowd:
                            window = await self._step(crowd, calls, servers[backend], self.plan.window_s)
                        found[backend][mode].append(window)

    async def _climb(self, bench: Bench, script: Script) -> None:
        """Look for the breaking point of the whole server: speech and a camera that does as asked."""
        async with AsyncExitStack() as stack:
            climbing: dict[str, tuple[Served, Crowd]] = {}
            for backend in self.plan.climbs:
                bench.climbs[backend] = Climb()
                server = await stack.enter_async_context(
                    whole_server(self.product, backend, self.speech, self.folder, self.cores)
                )
                climbing[backend] = (
                    server,
                    await stack.enter_async_context(self._crowd(server, script, "camera")),
                )
            for calls in self.plan.steps:
                for backend, (server, crowd) in climbing.items():
                    climb = bench.climbs[backend]
                    if climb.end is not None:
                        continue
                    self.tell(f"whole server, {backend}, {calls} calls with a camera")
                    window = await self._step(crowd, calls, server, self.plan.step_s)
                    climb.add(window, *self._cores())
                    if climb.doubtful:
                        climb.add(await measure(crowd, self.plan.step_s, server.meter), *self._cores())
                    await crowd.shrink(0)  # the other one has the machine to itself

    def _cores(self) -> tuple[int, int]:
        return max(1, len(self.cores.server)), max(1, len(self.cores.callers))

    def _crowd(self, server: Served, script: Script, mode: str) -> Crowd:
        return Crowd(self.kinds, Address(server.url), script, None if mode == "audio" else film(mode))

    async def _step(self, crowd: Crowd, calls: int, server: Served, seconds: float) -> Window:
        await crowd.grow(calls)
        await asyncio.sleep(WARM_S)
        return await measure(crowd, seconds, server.meter)


async def climb_at(
    kinds: Kinds,
    url: str,
    key: str | None,
    speech: Speech,
    mode: str,
    steps: Sequence[int],
    seconds: float,
    meter: Meter,
    tell: Callable[[str], None],
) -> Climb:
    """Call a server that runs already, as `climb` does."""
    script = Script(speech.clips("question"), speech.clips("interruption"))
    cores = os.cpu_count() or 1
    async with Crowd(kinds, Address(url, key), script, None if mode == "audio" else film(mode)) as crowd:
        return await climb(crowd, steps, seconds, meter, (cores, cores), tell)


async def climb(
    crowd: Crowd,
    steps: Sequence[int],
    seconds: float,
    meter: Meter,
    cores: tuple[int, int],
    tell: Callable[[str], None],
) -> Climb:
    """Call a server, step by step, until it breaks; `cores` are its and the callers'."""
    found = Climb()
    for calls in steps:
        tell(f"{crowd.address.url}, {calls} calls")
        await crowd.grow(calls)
        await asyncio.sleep(WARM_S)
        found.add(await measure(crowd, seconds, meter), *cores)
        if found.doubtful:
            found.add(await measure(crowd, seconds, meter), *cores)
        if found.end is not None:
            break
    return found
