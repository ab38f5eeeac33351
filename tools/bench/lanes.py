"""Real calls over loopback: the server in this process, the engine and each caller in processes of their own.

Some calls go on side by side, each in a lane with an engine of its own, whose answers its caller sets.
"""

import asyncio
import gc
import multiprocessing
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import aiohttp
import numpy as np
from aiohttp import web
from caller import Take, place_call
from corpus import Call, Corpus
from measure import Asked, Drafts, Speculation, Verdict, judge

from visavis.actions import Action
from visavis.app import build_app
from visavis.audio import RATE, Pcm, resample
from visavis.config import Config, EngineConfig, SessionConfig
from visavis.ear import caller_ear
from visavis.engine.vllm import VllmEngine
from visavis.heap import settle
from visavis.resume import Kept
from visavis.rtc import Media
from visavis.session import Session
from visavis.trace import CallTrace
from visavis.vad import SileroPool
from visavis.wire import MakeWire

LANES = 2
"Calls side by side: each takes a third of a core with its caller and its engine."


class Counting(CallTrace):
    """Counts drafts."""

    def __init__(self, config: Config, call_id: str, drafts: Drafts) -> None:
        super().__init__(config.trace, call_id)
        self._drafts = drafts

    def action(self, action: Action) -> None:
        super().action(action)
        self._drafts.receive(action)


async def play_over_loopback(material: Corpus, first_audio_s: float) -> tuple[list[Verdict], Speculation]:
    """Play all calls, the longest first, and judge them."""
    calls = sorted(material.calls, key=lambda call: len(call.scenes), reverse=True)
    drafts: list[Drafts] = []
    verdicts: list[Verdict] = []
    processes = ProcessPoolExecutor(LANES, multiprocessing.get_context("spawn"))
    pool = SileroPool()
    pool.warm()

    async def lane() -> None:
        async with open_lane(pool, drafts, first_audio_s) as (url, folder):
            while calls:
                call = calls.pop(0)
                play = partial(play_call, call, material.answer, url, folder)
                takes = await asyncio.get_running_loop().run_in_executor(processes, play)
                asked = given(folder)
                pairs = zip(call.scenes, takes, strict=True)
                verdicts.extend(judge(scene, call.voice, take, asked) for scene, take in pairs)

    with processes:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(min(LANES, len(calls))):
                tasks.create_task(lane())
    return verdicts, sum((one.speculation for one in drafts), Speculation())


@asynccontextmanager
async def open_lane(
    pool: SileroPool, drafts: list[Drafts], first_audio_s: float
) -> AsyncIterator[tuple[str, Path]]:
    """Serve calls that an engine of their own answers; give the server's URL and the engine's folder."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        config = await stack.enter_async_context(engine_process(folder, first_audio_s))
        engine = VllmEngine(config.engine)
        stack.push_async_callback(engine.aclose)
        media = await stack.enter_async_context(Media(config.rtc))

        def open_call(
            call_id: str, settings: SessionConfig, kept: Kept, wire: MakeWire | None = None
        ) -> Session:
            drafts.append(Drafts())
            ear = caller_ear(config.conversation, pool)
            counting = Counting(config, call_id, drafts[-1])
            parts = (call_id, config, settings, engine, ear, counting)
            return Session(*parts, media=media, kept=kept, wire=wire)

        runner = web.AppRunner(build_app(config, open_call, engine.ready))
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        settle()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}", folder


@asynccontextmanager
async def engine_process(folder: Path, first_audio_s: float) -> AsyncIterator[Config]:
    """Start an engine that answers with FOLDER/answer.pcm, and end it again."""
    socket, script = folder / "engine.sock", Path(__file__).with_name("instant_engine.py")
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(script),
        str(socket),
        f"--folder={folder}",
        f"--first-audio-ms={1000 * first_audio_s}",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        await process.stdout.readline()
        yield replace(Config(), engine=replace(EngineConfig(), name="vllm", url=f"unix://{socket}"))
    finally:
        process.stdin.close()
        await process.wait()


def play_call(call: Call, answer: Pcm, url: str, folder: Path) -> list[Take]:
    """Play one call, in a process of its own."""
    gc.freeze()
    return asyncio.run(_call(call, url, answers_in(folder, answer)))


async def _call(call: Call, url: str, set_answer: Callable[[float], None]) -> list[Take]:
    async with aiohttp.ClientSession(raise_for_status=True) as http:

        async def signal(offer: str) -> str:
            headers = {"Content-Type": "application/sdp"}
            async with http.post(f"{url}/v1/realtime/calls", data=offer, headers=headers) as response:
                return await response.text()

        return await place_call(call.scenes, signal, set_answer)


def answers_in(folder: Path, answer: Pcm) -> Callable[[float], None]:
    """Set how long an engine answers that plays FOLDER/answer.pcm."""

    def set_answer(seconds: float) -> None:
        new = folder / "answer.new"
        new.write_bytes(answer[: round(seconds * RATE)].astype("<i2").tobytes())
        new.rename(folder / "answer.pcm")

    return set_answer


def given(folder: Path) -> Sequence[Asked]:
    """Read what an engine was asked: FOLDER/given-TIME-RATE.pcm, TIME in monotonic nanoseconds."""
    asked = []
    for path in sorted(folder.glob("given-*.pcm")):
        _, time_ns, rate = path.stem.split("-")
        sound = np.frombuffer(path.read_bytes(), "<i2").astype(np.int16)
        asked.append(Asked(int(time_ns) / 1e9, resample(sound, int(rate), RATE)))
    return asked
