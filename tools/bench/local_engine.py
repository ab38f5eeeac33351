"""Measure the embedded engine: end of input → first sound, over fifteen spoken turns of one call.

    python tools/bench/local_engine.py [--model NAME_OR_GGUF] [--threads N] [--socket PATH]

Starts an engine of its own unless `--socket` names one that runs. The questions are spoken by the packaged
English voice; the history travels as text, as the server sends it. No endpointing, no network: what is
measured is recognition, language model and speech.
"""

import argparse
import asyncio
import base64
import json
import os
import statistics
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import aiohttp

from visavis.audio import RATE, encode_wav, from_float, resample
from visavis.config import LocalConfig, SessionConfig
from visavis.local.supervisor import Supervisor

QUESTIONS = (
    "Hello, how are you today?",
    "What is the capital of France?",
    "How many days are there in a week?",
    "Can you tell me a short joke?",
    "What is seven times eight?",
    "Why is the sky blue?",
    "My name is Alice and I live in Boston.",
    "What is my name?",
    "How do I make a cup of tea?",
    "What is the largest planet of our solar system?",
    "Who wrote Romeo and Juliet?",
    "What should I cook for dinner tonight?",
    "How do you say good morning in Spanish?",
    "What is the opposite of hot?",
    "Thank you very much, goodbye.",
)


@dataclass(frozen=True, slots=True)
class Turn:
    heard: str
    said: str
    heard_s: float
    "From sending the request to the transcript."
    text_s: float
    audio_s: float
    end_s: float
    sound_s: float
    "Length of the reply."


async def take_turn(session: aiohttp.ClientSession, messages: list[dict[str, Any]]) -> Turn:
    body = {"stream": True, "modalities": ["text", "audio"], "messages": messages}
    heard = said = ""
    at: dict[str, float] = {}
    frames = 0
    started = time.perf_counter()
    async with session.post(
        "http://engine/v1/chat/completions", json=body, headers={"X-Visavis-Call": "bench"}
    ) as response:
        response.raise_for_status()
        async for line in response.content:
            if not line.startswith(b"data: {"):
                continue
            chunk = json.loads(line[6:])
            if "error" in chunk:
                raise SystemExit(f"the engine failed: {chunk['error']}")
            choice = chunk["choices"][0]
            content = choice["delta"].get("content")
            if not content:
                continue
            at.setdefault(chunk["modality"], time.perf_counter() - started)
            match chunk["modality"]:
                case "transcript":
                    heard = content
                case "text":
                    said += content
                case "audio":
                    frames += choice["audio_metadata"]["frame_count"]
    end = time.perf_counter() - started
    return Turn(heard, said, at["transcript"], at["text"], at["audio"], end, frames / RATE)


async def run_turns(socket: Path) -> list[Turn]:
    from hibari import Hibari

    voice = Hibari()
    messages: list[dict[str, Any]] = [{"role": "system", "content": SessionConfig().instructions}]
    turns = []
    async with aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(socket))) as session:
        for question in QUESTIONS:
            wav = encode_wav(resample(from_float(voice(question, seed=1)), RATE, 16_000), 16_000)
            sound = {"data": base64.b64encode(wav).decode(), "format": "wav"}
            content = [{"type": "input_audio", "input_audio": sound}]
            turn = await take_turn(session, [*messages, {"role": "user", "content": content}])
            messages += [{"role": "user", "content": turn.heard}, {"role": "assistant", "content": turn.said}]
            turns.append(turn)
            print(
                f"{turn.audio_s:5.2f} s to the first sound (heard {turn.heard_s:.2f}, "
                f"text {turn.text_s:.2f}, end {turn.end_s:.2f}, {turn.sound_s:.1f} s of sound)  "
                f"{turn.heard} → {turn.said}",
                flush=True,
            )
    return turns


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--socket", type=Path)
    arguments = parser.parse_args()
    if arguments.socket is not None:
        turns = await run_turns(arguments.socket)
    else:
        config = replace(LocalConfig(), threads=arguments.threads)
        if arguments.model:
            config = replace(config, model=arguments.model)
        supervisor = Supervisor(config)
        started = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            group.create_task(supervisor.run())
            await supervisor.wait_ready()
            print(f"ready after {time.perf_counter() - started:.1f} s")
            turns = await run_turns(supervisor.socket)
            await supervisor.aclose()
    first = sorted(turn.audio_s for turn in turns)
    print(
        f"first sound over {len(first)} turns: median {statistics.median(first):.2f} s, "
        f"p90 {first[int(0.9 * len(first))]:.2f} s, {first[0]:.2f} … {first[-1]:.2f} s; "
        f"recognition median {statistics.median(turn.heard_s for turn in turns):.2f} s; "
        f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs"
    )


if __name__ == "__main__":
    asyncio.run(main())
