"""Measure what the server adds to a turn: real WebRTC over loopback, an engine that answers at once.

    python tools/bench/turns.py [--calls N] [--camera]

Each call asks a question, interrupts the answer after a second and hangs up. The engine is a process of
its own (`instant_engine.py`) behind the product's client. Server and caller share this process and its loop,
so all figures include the caller's own work and buffering. Speech is made by the packaged English voice.
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
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import aiohttp
import av
import numpy as np
from aiohttp import ClientRequest, web

from visavis.actions import Action, Mark
from visavis.app import build_app
from visavis.audio import BLOCK, RATE, Pcm, from_float, level_dbfs
from visavis.config import Config, EngineConfig, RtcConfig, SessionConfig
from visavis.engine.vllm import VllmEngine
from visavis.frames import Frame
from visavis.heap import restart_on_huge_pages, settle
from visavis.rtc import OutgoingPeer
from visavis.session import Session
from visavis.trace import CallTrace
from visavis.vad import GatedVad, SileroPool

LOUD_DBFS, AUDIBLE_DBFS = -40.0, -50.0
PATIENCE_S = 30.0


@dataclass
class Caller:
    """Speaks what it is given and notes when it was loud and when something was heard."""

    to_say: list[Pcm] = field(default_factory=list)
    said_at: list[float] = field(default_factory=list)
    heard_at: list[float] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)

    def say(self, pcm: Pcm) -> None:
        self.to_say += [pcm[at : at + BLOCK] for at in range(0, len(pcm) - BLOCK + 1, BLOCK)]

    def pull_audio(self) -> Pcm:
        block = self.to_say.pop(0) if self.to_say else np.zeros(BLOCK, np.int16)
        if level_dbfs(block) > LOUD_DBFS:
            self.said_at.append(now())
        return block

    def receive_audio(self, pcm: Pcm) -> None:
        if level_dbfs(pcm) > AUDIBLE_DBFS:
            self.heard_at.append(now())

    def receive_message(self, text: str) -> None:
        self.events.append(json.loads(text))

    def got(self, kind: str) -> bool:
        return any(event["type"] == kind for event in self.events)

    def wants_frame(self, at: int) -> bool:
        return False

    def receive_frame(self, frame: Frame) -> None: ...

    def channel_opened(self) -> None: ...

    def connected(self) -> None: ...

    def closed(self, reason: str) -> None: ...


def now() -> float:
    return asyncio.get_running_loop().time()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 - conditions of all kinds
            await asyncio.sleep(0.002)


class Marks(CallTrace):
    """Keeps when each stage was first reached, in monotonic seconds."""

    def __init__(self, config: Config, call_id: str) -> None:
        super().__init__(config.trace, call_id)
        self.at: dict[str, float] = {}

    def action(self, action: Action) -> None:
        super().action(action)
        if isinstance(action, Mark):
            self.at.setdefault(action.name, action.at)


class Watched(Session):
    """Notes when it last handed out sound."""

    marks: Marks
    loud_at = 0.0
    frames = 0

    def receive_frame(self, frame: Frame) -> None:
        self.frames += 1
        super().receive_frame(frame)

    def pull_audio(self) -> Pcm:
        block = super().pull_audio()
        if block.any() and now() < self.marks.at.get("barge_in", math.inf) + 1.0:
            self.loud_at = now()
        return block


@contextmanager
def watch_requests() -> Iterator[list[float]]:
    """Note when each body of a request had been written to its socket."""
    written: list[float] = []
    write = ClientRequest.write_bytes

    async def noted(request: ClientRequest, *rest: Any) -> None:
        await write(request, *rest)
        written.append(now())

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


class Film:
    """A camera of 640x480 before which something moves."""

    def __init__(self) -> None:
        self._scene = np.random.default_rng(0).integers(0, 255, (480, 640, 3), np.uint8)

    async def next_picture(self) -> av.VideoFrame:
        self._scene = np.roll(self._scene, 8, axis=1)
        blurred = self._scene.reshape(60, 8, 80, 8, 3).mean((1, 3)).astype(np.uint8)
        return av.VideoFrame.from_ndarray(blurred.repeat(8, 0).repeat(8, 1), "rgb24").reformat(
            format="yuv420p"
        )


async def one_call(
    url: str,
    http: aiohttp.ClientSession,
    sessions: list[Watched],
    question: Pcm,
    objection: Pcm,
    *,
    camera: bool,
) -> dict[str, float]:
    """Return seconds by name, the engine's part still missing."""
    caller = Caller()
    peer = OutgoingPeer(RtcConfig(), caller, Film().next_picture if camera else None, fps=4)
    try:
        calls, headers = f"{url}/v1/realtime/calls", {"Content-Type": "application/sdp"}
        async with http.post(calls, data=await peer.offer(), headers=headers) as response:
            await peer.accept(await response.text())
        await until(lambda: caller.got("session.created"))
        if camera:  # it takes a moment until its first picture is there
            await until(lambda: sessions[-1].frames >= 2)
        caller.say(question)
        await until(lambda: caller.got("visavis.turn_timings") and bool(caller.heard_at))
        first = caller.heard_at[0] - caller.said_at[-1]
        spoken, started = len(caller.said_at), now()
        await until(lambda: now() - started > 1.0)
        caller.say(objection)
        await until(lambda: caller.got("output_audio_buffer.cleared"))
        onset, at = caller.said_at[spoken], sessions[-1].marks.at
        await until(lambda: now() > at["barge_in"] + 0.3)  # for all that was on its way
        return {
            **at,
            "last word → first sound heard": first,
            "interruption decided → last block with sound": sessions[-1].loud_at - at["barge_in"],
            "interruption begun → last sound heard": max(t for t in caller.heard_at if t < onset + 1.0)
            - onset,
        }
    finally:
        await peer.aclose()


async def main(calls: int, *, camera: bool) -> None:
    from hibari import Hibari

    voice = Hibari(threads=1)
    question, objection = (
        from_float(np.asarray(voice(text), np.float32))
        for text in ("What is the capital of France?", "Stop, please, I have another question.")
    )
    pool = SileroPool()
    pool.warm()
    sessions: list[Watched] = []
    async with instant_engine() as engine_config:
        config = replace(Config(), engine=engine_config)
        engine = VllmEngine(engine_config)

        def open_call(call_id: str, settings: SessionConfig) -> Session:
            vad, marks = GatedVad(config.conversation.vad, pool), Marks(config, call_id)
            session = Watched(call_id, config, settings, engine, vad, marks)
            session.marks = marks
            sessions.append(session)
            return session

        runner = web.AppRunner(build_app(config, open_call, engine.ready))
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            url = f"http://127.0.0.1:{runner.addresses[0][1]}"
            settle()
            async with aiohttp.ClientSession() as http:
                cpu_s = time.process_time()
                with watch_loop() as steps, watch_requests() as written:
                    rows = [
                        await one_call(url, http, sessions, question, objection, camera=camera)
                        for _ in range(calls)
                    ]
                cpu_s = time.process_time() - cpu_s
            times = await told_by(engine_config)
        finally:
            await runner.cleanup()
            await engine.aclose()
    report(rows, times, written)
    size = times[0]["bytes"] / 1000
    print(f"{calls} calls; question of {len(question) / RATE:.1f} s; requests of {size:.0f} kB")
    print(f"{cpu_s / calls:.2f} CPU-s a call, caller included; most memory {peak_mb():.0f} MB")
    print("steps of the loop over 10 ms, caller's included:")
    names: dict[str, list[Step]] = {}
    for step in steps:
        names.setdefault(step.what, []).append(step)
    for name, group in sorted(names.items(), key=lambda item: max(item[1]), reverse=True):
        longest = max(group)
        print(
            f"  {len(group)} of {name}, longest {longest.wall_ms:.0f} ms"
            f", of which {longest.cpu_ms:.0f} ms on the CPU"
        )


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
        engine = next(t for t in times if t["asked"] >= row["turn_end"])
        ended = row["turn_end"]
        spans.setdefault("turn ended → request written", []).append(
            min(t for t in written if t > ended) - ended
        )
        spans.setdefault("turn ended → request read by the engine", []).append(engine["asked"] - ended)
        sent = row["first_sent"] - engine["first_audio"]
        spans.setdefault("engine's first sound → first block sent", []).append(sent)
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
