"""Measure what it gains to send a long turn's clips ahead while the user still speaks.

    PYTHONPATH=tests python tools/bench/warm.py VLLM_ENVIRONMENT [--rounds N] [--seconds S] [--clip S]

VLLM_ENVIRONMENT is what `make test-vllm` made (.venv-vllm). In it mainline vLLM serves a tiny Qwen3-Omni,
first with and then without its prefix cache. A turn of moving pictures (640 by 480, two a second) and noise
is asked about in four ways, in changing order, all in each round so that a busy machine hits them alike:

- `whole`: one clip, nothing sent ahead;
- `clips`: clips of some seconds, nothing sent ahead;
- `each ahead`: the same, each clip but the last sent before by itself, for one token of answer;
- `all ahead`: the same, and with each clip all before it again, as far as the turn has come.

The time to the first token is the client's, from a `Request` to the first `TextDelta`. The server's own
figures say where it went: `prefill` counts the encoders too, `before` is reading and processing the media.
"""

import argparse
import asyncio
import random
import secrets
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, fields, replace
from pathlib import Path

import av
import numpy as np

from mainline.server import CONTEXT, MODEL, Vllm, build_checkpoint, metrics, serving
from visavis.audio import RATE
from visavis.clip import encode_jpeg
from visavis.config import EngineConfig
from visavis.engine import AudioPart, FramesPart, Message, Part, Request, TextDelta, TextPart
from visavis.engine.vllm import VllmEngine
from visavis.frames import Frame

WIDTH, HEIGHT, FPS = 640, 480, 2
SYSTEM = Message("system", (TextPart("You are a virtual friend on a video call."),))

Turn = tuple[FramesPart, AudioPart]


@dataclass(frozen=True, slots=True)
class Figures:
    """What one question took: seconds, and shares of the cache look-ups that hit."""

    first_token: float
    cpu: float
    "Of the server, for the whole answer of four tokens: what a busy machine changes least."
    before: float
    prefill: float
    media_hits: float
    prefix_hits: float
    ahead: float = 0.0
    "CPU of what was sent ahead."


def turn(name: str, start_s: float, seconds: float) -> Turn:
    frames = tuple(
        Frame(picture(start_s + k / FPS), WIDTH, HEIGHT, round((start_s + k / FPS) * RATE))
        for k in range(round(seconds * FPS))
    )
    noise = np.random.default_rng(round(start_s * 10)).normal(0, 3000, round(seconds * RATE))
    sound = AudioPart(noise.astype(np.int16), f"{name}-audio", round(start_s * RATE))
    return FramesPart(frames, f"{name}-frames"), sound


def picture(at_s: float) -> bytes:
    """Draw waves that move."""
    down, across = np.mgrid[0:HEIGHT, 0:WIDTH]
    light = 128 + 60 * np.sin(across / 17 + 3 * at_s) + 60 * np.sin(down / 23 - 2 * at_s)
    frame = av.VideoFrame.from_ndarray(light.astype(np.uint8), "gray")
    return encode_jpeg(frame.reformat(format="yuvj420p"))


async def ask(engine: VllmEngine, vllm: Vllm, parts: Sequence[Part], max_tokens: int) -> Figures:
    before = metrics(vllm.url)
    loop = asyncio.get_running_loop()
    started, cpu, first = loop.time(), vllm.cpu_s(), None
    request = Request("bench", (SYSTEM, Message("user", tuple(parts))), speak=False, max_tokens=max_tokens)
    async with aclosing(engine.respond(request)) as deltas:
        async for delta in deltas:
            if isinstance(delta, TextDelta) and first is None:
                first = loop.time() - started
    after = metrics(vllm.url)
    while after["e2e_request_latency_seconds_count"] == before["e2e_request_latency_seconds_count"]:
        await asyncio.sleep(0.02)
        after = metrics(vllm.url)

    def spent(name: str) -> float:
        return after[name] - before[name]

    prefill = spent("request_prefill_time_seconds_sum")
    return Figures(
        first_token=0.0 if first is None else first,
        cpu=vllm.cpu_s() - cpu,
        before=spent("time_to_first_token_seconds_sum") - spent("request_queue_time_seconds_sum") - prefill,
        prefill=prefill,
        media_hits=spent("mm_cache_hits_total") / spent("mm_cache_queries_total"),
        prefix_hits=spent("prefix_cache_hits_total") / max(1.0, spent("prefix_cache_queries_total")),
    )


async def one_way(way: str, engine: VllmEngine, vllm: Vllm, seconds: float, clip_s: float) -> Figures:
    name = secrets.token_hex(4)
    if way == "whole":
        return await ask(engine, vllm, turn(name, 0.0, seconds), 4)
    starts = np.arange(0.0, seconds, clip_s)
    clips = [turn(f"{name}-{k}", at, min(clip_s, seconds - at)) for k, at in enumerate(starts)]
    ahead = 0.0
    for k in range(1, len(clips) if way != "clips" else 1):
        sent = clips[:k] if way == "all ahead" else clips[k - 1 : k]
        figures = await ask(engine, vllm, [part for clip in sent for part in clip], 1)
        ahead += figures.cpu
    return replace(await ask(engine, vllm, [part for clip in clips for part in clip], 4), ahead=ahead)


async def measure(vllm: Vllm, rounds: int, seconds: float, clip_s: float) -> dict[str, list[Figures]]:
    config = EngineConfig(name="vllm", url=vllm.url, model=MODEL, context_tokens=CONTEXT, media="interleaved")
    engine = VllmEngine(config)
    ways = ["whole", "clips", "each ahead", "all ahead"]
    results: dict[str, list[Figures]] = defaultdict(list)
    try:
        for way in ways:
            await one_way(way, engine, vllm, seconds, clip_s)  # what is slow only once is not counted
        for _ in range(rounds):
            for way in random.sample(ways, len(ways)):
                results[way].append(await one_way(way, engine, vllm, seconds, clip_s))
    finally:
        await engine.aclose()
    return {way: results[way] for way in ways}


def report(title: str, results: dict[str, list[Figures]]) -> None:
    names = [field.name for field in fields(Figures)]
    print(f"\n{title}; medians of {len(results['whole'])} rounds")
    print(f"{'':12}{'of whole':>12}{'its cpu':>12}" + "".join(f"{name:>14}" for name in names))
    for way, figures in results.items():
        pairs = [*zip(figures, results["whole"], strict=True)]
        time = statistics.median(one.first_token / whole.first_token for one, whole in pairs)
        cpu = statistics.median(one.cpu / whole.cpu for one, whole in pairs)
        medians = [statistics.median(getattr(one, name) for one in figures) for name in names]
        print(
            f"{way:12}{time:12.2f}{cpu:12.2f}" + "".join(f"{median:14.3f}" for median in medians), flush=True
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("environment", type=Path)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=20.0, help="of the turn")
    parser.add_argument("--clip", type=float, default=2.0, help="seconds of one clip")
    options = parser.parse_args()
    environment = options.environment.absolute()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        checkpoint = build_checkpoint(environment, folder / "tiny", "--answers", "--endless")
        for title, argument in (
            ("with prefix cache", "--enable-prefix-caching"),
            ("without prefix cache", "--no-enable-prefix-caching"),
        ):
            with serving(environment, checkpoint, folder / "vllm.log", [argument]) as vllm:
                report(title, asyncio.run(measure(vllm, options.rounds, options.seconds, options.clip)))


if __name__ == "__main__":
    main()
