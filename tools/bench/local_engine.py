"""Measure the embedded engine: end of input → first sound, over fifteen spoken turns of one call.

    python tools/bench/local_engine.py [--model NAME_OR_GGUF] [--threads N] [--turns N] [--socket PATH]

Starts an engine of its own unless `--socket` names one that runs. The questions are spoken by the packaged
English voice; the history travels as text, as the server sends it. Between two turns is a second, for a
caller listens to the answer before the next question. No endpointing, no network: what is measured is
recognition, language model and speech.

The last line is one JSON object of medians in ms: how long it took to write down what was heard (`hear`), to
read the prompt and write the first token (`read`), to write what is spoken first (`write`), to speak it
(`speak`), and all of it (`first_audio`, with its `_p90`); then the silence that the sound begins with
(`lead`) and CPU time per turn (`cpu`). Times of an engine that other work shares the machine with are longer;
its CPU time hardly is.
"""

import argparse
import asyncio
import base64
import json
import logging
import os
import re
import statistics
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np

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
    lead_s: float
    "Silence that it begins with."
    token_s: float | None = None
    "To the first token of the reply, if the engine's log can be read."
    cpu_s: float | None = None


PAUSE_S = 1.0
SILENT = 100
"Of 32768: the packaged voice speaks at 10,000."


class Marks(logging.Handler):
    """Reads from the engine's log when the reply's first token was there."""

    def __init__(self) -> None:
        super().__init__()
        self.token_s: float | None = None

    def emit(self, record: logging.LogRecord) -> None:
        if "call bench:" in (text := record.getMessage()) and (found := re.search(r"token ([\d.]+) s", text)):
            self.token_s = float(found[1])


async def take_turn(session: aiohttp.ClientSession, messages: list[dict[str, Any]]) -> Turn:
    body = {"stream": True, "modalities": ["text", "audio"], "messages": messages}
    heard = said = ""
    at: dict[str, float] = {}
    sound = b""
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
                    sound += base64.b64decode(content)
    end = time.perf_counter() - started
    pcm = np.frombuffer(sound, "<i2")
    lead = int(np.argmax(np.abs(pcm) > SILENT)) / RATE
    return Turn(heard, said, at["transcript"], at["text"], at["audio"], end, len(pcm) / RATE, lead)


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def run_turns(socket: Path, questions: Sequence[str], pid: int | None = None) -> list[Turn]:
    """Hold the call; `pid` is the engine's, if it was started here."""
    from hibari import Hibari

    voice = Hibari()
    messages: list[dict[str, Any]] = [{"role": "system", "content": SessionConfig().instructions}]
    turns = []
    marks = Marks()
    logging.getLogger("visavis.local").addHandler(marks)
    logging.getLogger("visavis.local").setLevel(logging.INFO)
    async with aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(socket))) as session:
        for question in questions:
            wav = encode_wav(resample(from_float(voice(question, seed=1)), RATE, 16_000), 16_000)
            sound = {"data": base64.b64encode(wav).decode(), "format": "wav"}
            content = [{"type": "input_audio", "input_audio": sound}]
            await asyncio.sleep(PAUSE_S)
            marks.token_s, before = None, cpu_s(pid) if pid else 0.0
            turn = await take_turn(session, [*messages, {"role": "user", "content": content}])
            if pid is not None:
                turn = replace(turn, token_s=marks.token_s, cpu_s=cpu_s(pid) - before)
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
    parser.add_argument("--turns", type=int, default=len(QUESTIONS))
    parser.add_argument("--socket", type=Path)
    arguments = parser.parse_args()
    if arguments.socket is not None:
        turns = await run_turns(arguments.socket, QUESTIONS[: arguments.turns])
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
            turns = await run_turns(supervisor.socket, QUESTIONS[: arguments.turns], supervisor.pid)
            await supervisor.aclose()
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs")
    print(json.dumps(summary(turns)))


def summary(turns: Sequence[Turn]) -> dict[str, float | None]:
    def ms(values: Iterable[float | None]) -> float | None:
        known = [value for value in values if value is not None]
        return round(1000 * statistics.median(known)) if known else None

    first = sorted(turn.audio_s for turn in turns)
    return {
        "turns": len(turns),
        "first_audio_ms": ms(first),
        "first_audio_ms_p90": round(1000 * first[int(0.9 * len(first))]),
        "hear_ms": ms(turn.heard_s for turn in turns),
        "read_ms": ms(turn.token_s and turn.token_s - turn.heard_s for turn in turns),
        "write_ms": ms(turn.token_s and turn.text_s - turn.token_s for turn in turns),
        "speak_ms": ms(turn.audio_s - turn.text_s for turn in turns),
        "lead_ms": ms(turn.lead_s for turn in turns),
        "cpu_ms": ms(turn.cpu_s for turn in turns),
    }


if __name__ == "__main__":
    asyncio.run(main())
