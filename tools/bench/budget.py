"""Measure what the server adds to a turn: real WebRTC over loopback, an engine that answers at once.

    python tools/bench/budget.py [--calls N] [--camera]

Each call asks a question, interrupts the answer after a second and hangs up. The engine is a process of
its own (`instant_engine.py`) behind the product's client, and so is the caller (`budget_caller.py`), whose
buffering is part of what is heard when. Speech is made by the packaged English voice.
"""

import argparse
import asyncio
import json
import math
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import ClientRequest, web

from visavis.actions import Action, Mark, Notify
from visavis.app import build_app
from visavis.audio import Pcm
from visavis.config import Config, EngineConfig, RtcConfig, SessionConfig
from visavis.ear import caller_ear
from visavis.engine.vllm import VllmEngine
from visavis.events import StanceChanged
from visavis.heap import restart_on_huge_pages, settle
from visavis.resume import Kept
from visavis.rtc import Media
from visavis.session import Session
from visavis.trace import CallTrace
from visavis.vad import SileroPool
from visavis.wire import MakeWire

LOUD_DBFS, AUDIBLE_DBFS = -40.0, -50.0
PATIENCE_S = 30.0


class Marks(CallTrace):
    """Keeps when each stage was first reached, in monotonic seconds."""

    def __init__(self, config: Config, call_id: str) -> None:
        super().__init__(config.trace, call_id)
        self.at: dict[str, float] = {}

    def action(self, action: Action) -> None:
        super().action(action)
        match action:
            case Mark(name, at=at):
                self.at.setdefault(name, at)
            case Notify(StanceChanged(stance="held")):
                self.at.setdefault("held", time.monotonic())
            case _:
                pass


class Watched(Session):
    """Notes when it last handed out sound."""

    marks: Marks
    loud_at = 0.0

    def pull_audio(self) -> Pcm:
        block = super().pull_audio()
        if block.any() and time.monotonic() < self.marks.at.get("held", math.inf) + 0.3:
            self.loud_at = time.monotonic()
        return block


@contextmanager
def watch_requests() -> Iterator[list[float]]:
    """Note when each body of a request had been written to its socket."""
    written: list[float] = []
    write = ClientRequest.write_bytes

    async def noted(request: ClientRequest, *rest: Any) -> None:
        await write(request, *rest)
        written.append(time.monotonic())

    ClientRequest.write_bytes = noted  # type: ignore[method-assign]
    try:
        yield written
    finally:
        ClientRequest.write_bytes = write  # type: ignore[method-assign]


@dataclass(order=True)
class Step:
    """One turn of the event loop's wheel: how long it took, and how much of that was spent computing."""

    wall_ms: float
    cpu_ms: float
    what: str


def name_of(handle: asyncio.Handle) -> str:
    """Tell what a step runs: the innermost coroutine of a task, or the callback."""
    callback: Any = handle._callback
    owner = getattr(callback, "__self__", None)
    if not isinstance(owner, asyncio.Task):
        return getattr(callback, "__qualname__", repr(callback))
    return f"{owner.get_coro().__qualname__}"


@contextmanager
def watch_loop(least_ms: float = 10.0) -> Iterator[list[Step]]:
    """Note the steps of the event loop of at least `least_ms`."""
    steps: list[Step] = []
    run = asyncio.Handle._run

    def timed(handle: asyncio.Handle) -> None:
        wall, cpu = time.perf_counter(), time.thread_time()
        run(handle)
        wall_ms = (time.perf_counter() - wall) * 1000
        if wall_ms >= least_ms:
            steps.append(Step(wall_ms, (time.thread_time() - cpu) * 1000, name_of(handle)))

    asyncio.Handle._run = timed  # type: ignore[method-assign]
    try:
        yield steps
    finally:
        asyncio.Handle._run = run  # type: ignore[method-assign]


@asynccontextmanager
async def instant_engine() -> AsyncIterator[EngineConfig]:
    """Start the engine's process and end it again."""
    with tempfile.TemporaryDirectory() as folder:
        socket = f"{folder}/engine.sock"
        script = Path(__file__).with_name("instant_engine.py")
        process = await asyncio.create_subprocess_exec(
            sys.executable, str(script), socket, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            await process.stdout.readline()
            yield replace(EngineConfig(), name="vllm", url=f"unix://{socket}")
        finally:
            process.stdin.close()
            await process.wait()


async def main(calls: int, *, camera: bool) -> None:
    pool = SileroPool()
    pool.warm()
    sessions: list[Watched] = []
    async with Media(RtcConfig()) as media, instant_engine() as engine_config:
        config = replace(Config(), engine=engine_config)
        engine = VllmEngine(engine_config)

        def open_call(
            call_id: str, settings: SessionConfig, kept: Kept, wire: MakeWire | None = None
        ) -> Session:
            ear, marks = caller_ear(config.conversation, pool), Marks(config, call_id)
            parts = (call_id, config, settings, engine, ear, marks)
            session = Watched(*parts, media=media, kept=kept, wire=wire)
            session.marks = marks
            sessions.append(session)
            return session

        runner = web.AppRunner(build_app(config, open_call, engine.ready))
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            url = f"http://127.0.0.1:{runner.addresses[0][1]}"
            settle()
            cpu_s = time.process_time()
            with watch_loop() as steps, watch_requests() as written:
                rows = await called(url, calls, camera=camera)
            cpu_s = time.process_time() - cpu_s
            times = await told_by(engine_config)
        finally:
            await runner.cleanup()
            await engine.aclose()
    for row, session in zip(rows, sessions, strict=True):
        at = session.marks.at
        row |= at | {
            "decided to wait for who interrupts → last block with sound": session.loud_at - at["held"]
        }
    report(rows, times, written)
    print(f"{calls} calls; requests of {times[0]['bytes'] / 1000:.0f} kB")
    print(f"{cpu_s / calls:.2f} CPU-s a call; most memory {peak_mb():.0f} MB")
    print("steps of the loop over 10 ms:")
    names: dict[str, list[Step]] = {}
    for step in steps:
        names.setdefault(step.what, []).append(step)
    for name, group in sorted(names.items(), key=lambda item: max(item[1]), reverse=True):
        longest = max(group)
        print(
            f"  {len(group)} of {name}, longest {longest.wall_ms:.0f} ms"
            f", of which {longest.cpu_ms:.0f} ms on the CPU"
        )


async def called(url: str, calls: int, *, camera: bool) -> list[dict[str, float]]:
    """Have calls made by a process of its own; what it noted of each, in seconds by name."""
    script = Path(__file__).with_name("budget_caller.py")
    arguments = [url, "--calls", str(calls), *(["--camera"] if camera else [])]
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(script), *arguments, stdout=asyncio.subprocess.PIPE
    )
    told, _ = await process.communicate()
    if process.returncode:
        raise SystemExit(f"the caller ended with {process.returncode}")
    return [json.loads(line) for line in told.splitlines()]


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


async def told_by(config: EngineConfig) -> list[dict[str, float]]:
    connector = aiohttp.UnixConnector(config.url.removeprefix("unix://"))
    async with (
        aiohttp.ClientSession(connector=connector) as http,
        http.get("http://engine/times") as response,
    ):
        times: list[dict[str, float]] = await response.json()
        return times


def report(rows: list[dict[str, float]], times: list[dict[str, float]], written: list[float]) -> None:
    """Print medians and ranges. The first request of a call is its question."""
    spans: dict[str, list[float]] = {}
    for row in rows:
        # The question is asked in advance, unless the budget for that is spent or there is none.
        asked, ended = row.get("draft_asked", row["turn_end"]), row["turn_end"]
        engine = next(t for t in times if t["asked"] >= asked)
        wrote = min(t for t in written if t > asked)
        spans.setdefault("request decided → request written", []).append(wrote - asked)
        spans.setdefault("turn ended → request written", []).append(wrote - ended)
        spans.setdefault("turn ended → request read by the engine", []).append(engine["asked"] - ended)
        sent = row["first_sent"] - max(engine["first_audio"], ended)
        name = "engine's first sound, or the turn's end if that is later → first block sent"
        spans.setdefault(name, []).append(sent)
        for name, value in row.items():
            if " " in name:
                spans.setdefault(name, []).append(value)
    for name, values in spans.items():
        low, *_, high = sorted(values)
        print(f"{name}: median {statistics.median(values) * 1000:.0f} ms, {low * 1000:.0f}–{high * 1000:.0f}")


if __name__ == "__main__":
    restart_on_huge_pages()  # as `visavis serve` does; PYTHONMALLOC=default shows what it is good for
    parser = argparse.ArgumentParser(description="Measure what the server adds to a turn.")
    parser.add_argument("--calls", type=int, default=10)
    parser.add_argument("--camera", action="store_true", help="show something that moves")
    arguments = parser.parse_args()
    asyncio.run(main(arguments.calls, camera=arguments.camera))
