"""A process's pulse: a loop that stands still is noticed, calls and processor time are counted."""

import asyncio
import time
from pathlib import Path

import pytest
from prometheus_client import REGISTRY

from visavis import pulse
from visavis.pulse import Pulse, watch_gpus


def value(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(name, labels) or 0.0


async def until_beats(more: int) -> None:
    wanted = value("visavis_loop_lag_seconds_count") + more
    async with asyncio.timeout(20):
        while value("visavis_loop_lag_seconds_count") < wanted:  # noqa: ASYNC110
            await asyncio.sleep(0.001)


async def test_a_loop_that_stands_still_is_noticed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(pulse, "BEAT_S", 0.02)
    late = value("visavis_loop_lag_seconds_sum")
    cpu = value("visavis_cpu_seconds_total")
    calls = ["one", "two"]
    running = asyncio.create_task(Pulse(calls, 20, "test").run())
    await until_beats(1)
    time.sleep(0.3)  # noqa: ASYNC251 - the fault that is looked for
    await until_beats(2)
    assert value("visavis_loop_lag_seconds_sum") - late >= 0.25
    assert value("visavis_calls", worker="test") == 2
    assert value("visavis_calls_max") == 20
    calls.clear()
    await until_beats(8)
    assert value("visavis_calls", worker="test") == 0
    assert value("visavis_cpu_seconds_total") > cpu
    assert value("visavis_worker_cpu_ratio", worker="test") > 0
    assert value("visavis_worker_memory_bytes", worker="test") > 2**20
    running.cancel()
    await asyncio.wait({running})
    assert value("visavis_worker_cpu_ratio", worker="test") == 0


async def test_gpus_are_measured_where_they_can_be_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    await watch_gpus()  # returns: there is nobody to ask
    smi = tmp_path / "nvidia-smi"
    smi.write_text("#!/bin/sh\necho '3, 1024, 81920, 50'\n")
    smi.chmod(0o755)
    watching = asyncio.create_task(watch_gpus())
    async with asyncio.timeout(20):
        while not value("visavis_gpu_memory_bytes", gpu="3", kind="total"):  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    watching.cancel()
    assert value("visavis_gpu_memory_bytes", gpu="3", kind="used") == 2**30
    assert value("visavis_gpu_memory_bytes", gpu="3", kind="total") == 80 * 2**30
