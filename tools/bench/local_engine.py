"""Measure the embedded engine: end of input → first sound, over fifteen spoken turns of one call.

    python tools/bench/local_engine.py [--model NAME_OR_GGUF] [--threads N] [--turns N] [--ahead S]
        [--socket PATH]

Starts an engine of its own unless `--socket` names one that runs. The questions are spoken by the packaged
English voice and sent 0.1 s after the last word; the history travels as text, as the server sends it. With
`--ahead` what was said up to so many seconds before the last word's end is sent ahead. Between two turns is
a second, for a caller listens to the answer before the next question. No endpointing, no network: what is
measured is recognition, language model and speech.

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

from visavis.audio import RATE, Pcm, encode_wav, from_float, resample
from visavis.config import LocalConfig, SessionConfig
from visavis.local.supervisor import Supervisor
from visavis.local.whisper import RATE as HEARING_RATE

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


URL = "http://engine/v1/chat/completions"
HEADERS = {"X-Visavis-Call": "bench"}
PAUSE_S = 1.0
AFTER_S = 0.1
"Silence by which it is known that a turn may be over."
LOG_S = 0.1
"In which the engine's log line comes."
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


async def send_ahead(session: aiohttp.ClientSession, messages: list[dict[str, Any]]) -> None:
    """Send the beginning of a turn, as the server does while its end is still being said."""
    body = {"stream": True, "modalities": ["text"], "max_tokens": 1, "messages": messages}
    async with session.post(URL, json=body, headers=HEADERS) as response:
        response.raise_for_status()
        await response.read()


def message(pcm: Pcm) -> dict[str, Any]:
    data = base64.b64encode(encode_wav(pcm, HEARING_RATE)).decode()
    return {
        "role": "user",
        "content": [{"type": "input_audio", "input_audio": {"data": data, "format": "wav"}}],
    }


def say(voice: Any, text: str) -> Pcm:
    """Speak at 16 kHz, `AFTER_S` of silence at the end."""
    pcm = resample(from_float(voice(text, seed=1)), RATE, HEARING_RATE)
    end = int(np.flatnonzero(np.abs(pcm) > SILENT)[-1]) + int(AFTER_S * HEARING_RATE)
    return np.concatenate([pcm, np.zeros(HEARING_RATE, np.int16)])[:end]


async def take_turn(session: aiohttp.ClientSession, messages: list[dict[str, Any]]) -> Turn:
    body = {"stream": True, "modalities": ["text", "audio"], "messages": messages}
    heard = said = ""
    at: dict[str, float] = {}
    sound = b""
    started = time.perf_counter()
    async with session.post(URL, json=body, headers=HEADERS) as response:
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


async def run_turns(
    socket: Path, questions: Sequence[str], *, ahead_s: float = 0.0, pid: int | None = None
) -> list[Turn]:
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
            pcm = say(voice, question)
            await asyncio.sleep(PAUSE_S)
            if ahead_s:
                begun = pcm[: -int((AFTER_S + ahead_s) * HEARING_RATE)]
                await send_ahead(session, [*messages, message(begun)])
            marks.token_s, before = None, cpu_s(pid) if pid else 0.0
            turn = await take_turn(session, [*messages, message(pcm)])
            if pid is not None:
                await asyncio.sleep(LOG_S)
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
    parser.add_argument("--ahead", type=float, default=0.0)
    parser.add_argument("--turns", type=int, default=len(QUESTIONS))
    parser.add_argument("--socket", type=Path)
    arguments = parser.parse_args()
    if arguments.socket is not None:
        turns = await run_turns(arguments.socket, QUESTIONS[: arguments.turns], ahead_s=arguments.ahead)
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
            turns = await run_turns(
                supervisor.socket, QUESTIONS[: arguments.turns], ahead_s=arguments.ahead, pid=supervisor.pid
            )
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
