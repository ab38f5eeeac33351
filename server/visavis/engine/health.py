"""How an engine is doing, read from its `/metrics` and from `nvidia-smi`.

Names are those of vLLM (`vllm:*`) and vLLM-Omni 0.30 (`vllm_omni:*`). Every figure may be missing: a server
may keep no statistics, and the GPUs may be another machine's.
"""

import asyncio
import contextlib
import json
import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import aiohttp

from ..errors import EngineLost

_READ_S = 5.0
_MAX_BODY = 8 * 1024 * 1024
_QUERY = "index,memory.used,memory.total,utilization.gpu"

_SAMPLE = re.compile(r"([a-zA-Z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)(?:\s+-?\d+)?\s*", re.ASCII)
_MEMORY_WORDS = re.compile(
    r"out of memory|outofmemory|no available memory for the cache blocks|cublas_status_alloc_failed",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Gpu:
    index: int
    used_mib: int
    total_mib: int
    busy: float | None
    "0 to 1."

    def __str__(self) -> str:
        busy = "" if self.busy is None else f", {self.busy:.0%} busy"
        return f"GPU {self.index}: {self.used_mib / 1024:.1f} of {self.total_mib / 1024:.1f} GiB{busy}"


@dataclass(frozen=True, slots=True)
class Figures:
    """What an engine says of itself; None where it says nothing."""

    running: int | None = None
    "Answers under way."
    waiting: int | None = None
    "Requests in its queue."
    memory: float | None = None
    "Share of the memory for conversations (KV cache) in use at the fullest stage, 0 to 1."
    preemptions: int | None = None
    "How often an answer had to give up its memory to another since the start: above 0 there is too little."
    failed: int | None = None
    "Answers that failed since the start."
    first_sound_s: float | None = None
    "Mean since the start."
    pace: float | None = None
    "Seconds that a second of sound takes (RTF), mean since the start."
    underrun_s: float | None = None
    "Silence within an answer for want of sound, mean since the start."

    def __str__(self) -> str:
        said = (
            ("answering", self.running, "{:d}"),
            ("waiting", self.waiting, "{:d}"),
            ("memory in use", self.memory, "{:.0%}"),
            ("preempted", self.preemptions, "{:d}"),
            ("failed", self.failed, "{:d}"),
            ("first sound", self.first_sound_s, "{:.2f} s"),
            ("pace", self.pace, "{:.2f}"),
            ("underrun", self.underrun_s, "{:.2f} s"),
        )
        told = [f"{name} {form.format(value)}" for name, value, form in said if value is not None]
        return ", ".join(told) or "no figures"


async def read_figures(session: aiohttp.ClientSession, base: str) -> Figures:
    """Ask the server at `base`, its root, for its metrics.

    Raises:
        EngineLost: it cannot be reached or answers something else.
    """
    status, body = await _get(session, f"{base}/metrics")
    if status != 200:
        raise EngineLost(f"The engine has no /metrics: HTTP {status}.")
    return parse_figures(body.decode(errors="replace"))


async def read_json(session: aiohttp.ClientSession, url: str) -> tuple[int, object]:
    """Get a small document: the HTTP status and what its JSON holds, None if it is none.

    Raises:
        EngineLost: nothing answers.
    """
    status, body = await _get(session, url)
    try:
        return status, json.loads(body)
    except (ValueError, RecursionError):
        return status, None


async def _get(session: aiohttp.ClientSession, url: str) -> tuple[int, bytes]:
    try:
        async with asyncio.timeout(_READ_S), session.get(url, allow_redirects=False) as response:
            body = bytearray()
            async for chunk in response.content.iter_any():
                body += chunk
                if len(body) > _MAX_BODY:
                    raise EngineLost(f"The engine's answer at {url} has no end.")
            return response.status, bytes(body)
    except (aiohttp.ClientError, OSError) as error:  # TimeoutError is one
        raise EngineLost(f"The engine's {url} cannot be read.") from error


def parse_figures(text: str) -> Figures:
    """Read the figures from a Prometheus exposition. Lines that are none are skipped."""
    totals: dict[str, float] = defaultdict(float)
    highest: dict[str, float] = {}
    for name, labels, value in _samples(text):
        # Each entry stage counts a request of its own, so stages are not added up.
        if name.startswith("vllm:num_requests_") and labels.get("stage", "0") != "0":
            continue
        totals[name] += value
        highest[name] = max(value, highest.get(name, value))

    def count(*names: str) -> int | None:
        return next((round(totals[name]) for name in names if name in totals), None)

    def mean(name: str) -> float | None:
        number = totals.get(f"{name}_count", 0)
        return totals[f"{name}_sum"] / number if number else None

    return Figures(
        running=count("vllm_omni:num_requests_running", "vllm:num_requests_running"),
        waiting=count("vllm_omni:num_requests_waiting", "vllm:num_requests_waiting"),
        memory=highest.get("vllm:kv_cache_usage_perc"),
        preemptions=count("vllm:num_preemptions_total"),
        failed=count("vllm_omni:requests_failed_total"),
        first_sound_s=mean("vllm_omni:audio_ttfp_s"),
        pace=mean("vllm_omni:audio_rtf"),
        underrun_s=mean("vllm_omni:audio_underrun_s"),
    )


async def read_gpus() -> list[Gpu]:
    """Ask `nvidia-smi` of this machine; empty where it is not or does not answer."""
    try:
        process = await asyncio.create_subprocess_exec(
            "nvidia-smi",
            f"--query-gpu={_QUERY}",
            "--format=csv,noheader,nounits",
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
    except OSError:
        return []
    try:
        async with asyncio.timeout(_READ_S):
            output, _ = await process.communicate()
    except TimeoutError:
        return []
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    return parse_gpus(output.decode(errors="replace")) if process.returncode == 0 else []


def parse_gpus(text: str) -> list[Gpu]:
    """Read the lines of `nvidia-smi --query-gpu`; a GPU without figures (`[N/A]`) is left out."""
    gpus = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) == 4 and all(cell.isdecimal() for cell in cells[:3]):
            busy = int(cells[3]) / 100 if cells[3].isdecimal() else None
            gpus.append(Gpu(int(cells[0]), int(cells[1]), int(cells[2]), busy))
    return gpus


def is_out_of_memory(message: str) -> bool:
    """Tell whether an error or a line of a server's log says that the GPU's memory was not enough."""
    return _MEMORY_WORDS.search(message) is not None


def _samples(text: str) -> Iterator[tuple[str, Mapping[str, str], float]]:
    for line in text.splitlines():
        match = _SAMPLE.fullmatch(line)
        if match is None:
            continue
        name, labels, number = match.groups()
        try:
            value = float(number)
        except ValueError:
            continue
        if math.isfinite(value):
            yield name, dict(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', labels or "")), value
