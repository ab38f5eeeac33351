"""Figures of an engine, read from what vLLM-Omni and nvidia-smi print."""

from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from visavis.engine.health import (
    Figures,
    Gpu,
    is_out_of_memory,
    parse_figures,
    parse_gpus,
    read_figures,
    read_gpus,
    read_json,
)
from visavis.errors import EngineLost

METRICS = """
# HELP vllm_omni:num_requests_running Requests under way.
# TYPE vllm_omni:num_requests_running gauge
vllm_omni:num_requests_running{model_name="m"} 3.0
vllm_omni:num_requests_waiting{model_name="m"} 2.0
vllm:num_requests_running{model_name="m",stage="0",replica="0"} 3.0
vllm:kv_cache_usage_perc{model_name="m",stage="0",replica="0"} 0.25
vllm:kv_cache_usage_perc{model_name="m",stage="1",replica="0"} 0.75
vllm:num_preemptions_total{model_name="m",stage="0",replica="0"} 4.0 1700000000000
vllm:num_preemptions_total{model_name="m",stage="1",replica="0"} 1.0
vllm_omni:requests_failed_total{model_name="m",reason="stage_error"} 1.0
vllm_omni:requests_failed_total{model_name="m",reason="unknown"} 2.0
vllm_omni:audio_ttfp_s_bucket{le="+Inf",model_name="m"} 4.0
vllm_omni:audio_ttfp_s_sum{model_name="m"} 2.0
vllm_omni:audio_ttfp_s_count{model_name="m"} 4.0
vllm_omni:audio_rtf_sum{model_name="m"} 0.0
vllm_omni:audio_rtf_count{model_name="m"} 0.0
"""


def test_figures_are_read_and_stages_with_the_least_room_count() -> None:
    assert parse_figures(METRICS) == Figures(
        running=3, waiting=2, memory=0.75, preemptions=5, failed=3, first_sound_s=0.5
    )


def test_of_plain_vllm_the_entry_stage_counts() -> None:
    text = (
        'vllm:num_requests_running{engine="0"} 1\nvllm:num_requests_running{engine="1"} 2\n'
        'vllm:num_requests_waiting{stage="0",replica="0"} 5\nvllm:num_requests_waiting{stage="1"} 7\n'
    )
    figures = parse_figures(text)
    assert (figures.running, figures.waiting) == (3, 5)


@pytest.mark.parametrize(
    "line", ["", "no metric", "vllm:kv_cache_usage_perc NaN", "vllm:kv_cache_usage_perc x", 'a{b="c"', "9 9"]
)
def test_what_is_no_figure_is_skipped(line: str) -> None:
    assert parse_figures(f"{line}\nvllm:num_requests_waiting 1\n") == Figures(waiting=1)


def test_labels_may_hold_anything() -> None:
    text = r'vllm:num_requests_waiting{model_name="a } \" b, stage=\"1\"",stage="0"} 2'
    assert parse_figures(text).waiting == 2


def test_figures_are_told_in_a_line() -> None:
    assert str(Figures(running=0, memory=0.5, pace=0.22)) == "answering 0, memory in use 50%, pace 0.22"
    assert str(Figures()) == "no figures"


def test_gpus_are_read_and_those_without_figures_left_out() -> None:
    text = "0, 76000, 81559, 43\n1, 10, 81559, [N/A]\n2, [N/A], [N/A], 0\nNVIDIA-SMI has failed\n"
    assert parse_gpus(text) == [Gpu(0, 76_000, 81_559, 0.43), Gpu(1, 10, 81_559, None)]
    assert str(parse_gpus(text)[0]) == "GPU 0: 74.2 of 79.6 GiB, 43% busy"


@pytest.mark.parametrize(
    ("message", "is_memory"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20 MiB", True),
        ("HIP out of memory", True),
        ("ValueError: No available memory for the cache blocks.", True),
        ("The request is too long", False),
        ("room temperature", False),
    ],
)
def test_memory_that_was_not_enough_is_recognised(message: str, is_memory: bool) -> None:
    assert is_out_of_memory(message) is is_memory


async def test_gpus_are_asked_for_where_nvidia_smi_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert await read_gpus() == []
    fake = tmp_path / "nvidia-smi"
    fake.write_text("#!/bin/sh\necho 0, 1, 2, 3\n")
    fake.chmod(0o755)
    assert await read_gpus() == [Gpu(0, 1, 2, 0.03)]
    fake.write_text("#!/bin/sh\necho 0, 1, 2, 3\nexit 9\n")
    assert await read_gpus() == []


async def test_metrics_come_over_http_or_their_lack_is_told() -> None:
    async def metrics(_: web.Request) -> web.Response:
        return web.Response(text=METRICS)

    async def models(_: web.Request) -> web.Response:
        return web.Response(text="no json")

    app = web.Application()
    app.add_routes([web.get("/metrics", metrics), web.get("/v1/models", models)])
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        base = f"http://127.0.0.1:{runner.addresses[0][1]}"
        async with aiohttp.ClientSession() as session:
            assert (await read_figures(session, base)).running == 3
            assert await read_json(session, f"{base}/v1/models") == (200, None)
            with pytest.raises(EngineLost, match="404"):
                await read_figures(session, f"{base}/nowhere")
    finally:
        await runner.cleanup()
    async with aiohttp.ClientSession() as session:
        with pytest.raises(EngineLost, match="cannot be read"):
            await read_figures(session, base)
