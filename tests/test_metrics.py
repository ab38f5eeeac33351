"""Tests of the metrics route: readable by Prometheus, with a key where there is one, and counting."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from prometheus_client import REGISTRY
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.parser import text_string_to_metric_families

from switchboard import serving
from visavis import metrics
from visavis.config import RouterConfig
from visavis.engine import Request
from visavis.engine.router import Entry, RouterEngine
from visavis.engine.scripted import Fault, Reply, ScriptedEngine
from visavis.metrics import DIRECTORY, REFUSALS, exposition, forget_process

KEY = "a-key-for-metrics"
FEW = {
    "code", "direction", "engine", "fate", "gpu", "kind", "outcome", "reason", "stage", "status", "what",
    "worker",
}  # fmt: skip
"Labels that have few values, none of them a caller's choice."


def value(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(name, labels) or 0.0


def requests(**labels: str) -> float:
    return value("visavis_engine_requests_total", **labels)


async def test_prometheus_can_read_them() -> None:
    async with serving() as client:
        response = await client.get("/metrics")
        assert response.status == 200
        assert response.content_type == "text/plain"
        names = {family.name for family in text_string_to_metric_families(await response.text())}
    assert {"visavis_engine_requests", "visavis_engine_speech", "process_cpu_seconds"} <= names


async def test_they_need_the_key_that_calls_need() -> None:
    async with serving(keys=(KEY,)) as client:
        assert (await client.get("/metrics")).status == 401
        assert (await client.get("/%6detrics")).status == 401
        allowed = await client.get("/metrics", headers={"Authorization": f"Bearer {KEY}"})
        assert allowed.status == 200


async def test_a_request_that_went_to_a_fallback_is_counted_at_both_engines_with_the_reason() -> None:
    first = Entry("counted-gpu", ScriptedEngine([Reply(fault=Fault.BUSY)]), 1, 1)
    second = Entry("counted-laptop", ScriptedEngine([Reply()]), 1, 1)
    router = RouterEngine([first, second], None, RouterConfig())
    async for _ in router.respond(Request("call", ())):
        pass
    assert requests(engine="counted-gpu", outcome="passed over", reason="busy") == 1
    assert requests(engine="counted-laptop", outcome="answered", reason="fallback") == 1


async def test_a_refusal_is_counted_by_its_code() -> None:
    before = value("visavis_refusals_total", code="not_found")
    async with serving() as client:
        assert (await client.get("/nowhere")).status == 404
    assert value("visavis_refusals_total", code="not_found") == before + 1


async def test_an_engine_s_first_delta_and_tokens_are_counted_and_that_it_is_left_alone() -> None:
    down = Entry("counted-down", ScriptedEngine([Reply(fault=Fault.LOST)]), 1, 1)
    told = Entry("told", ScriptedEngine([Reply("Five words are said here.")]), 1, 1)
    router = RouterEngine([down, told], None, RouterConfig(failures=1))
    async for _ in router.respond(Request("call", ())):
        pass
    assert value("visavis_engine_left_alone", engine="counted-down") == 1
    assert value("visavis_engine_left_alone", engine="told") == 0
    assert value("visavis_engine_first_delta_seconds_count", engine="told") == 1
    assert value("visavis_engine_tokens_total", engine="told", direction="out") == 5


# Several processes.

_WORKER = """
import os, sys
from visavis import metrics as m
m.REFUSALS.labels("busy").inc(int(sys.argv[1]))
m.TURN_STAGE.labels("answer").observe(0.3)
m.CALLS_MAX.set(7)
m.CALLS.labels(sys.argv[1]).set(3)
print(os.getpid())
"""


def work(directory: Path, number: int) -> int:
    """Count in another process, and return its id."""
    environ = {**os.environ, DIRECTORY: str(directory)}
    done = subprocess.run(
        [sys.executable, "-c", _WORKER, str(number)], env=environ, check=True, capture_output=True
    )
    return int(done.stdout)


def read() -> dict[tuple[str, ...], float]:
    body, _ = exposition()
    families = text_string_to_metric_families(body.decode())
    return {
        (sample.name, *(label for _, label in sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }


def test_what_workers_and_the_front_count_is_read_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    own = value("visavis_refusals_total", code="busy")
    REFUSALS.labels("busy").inc(5)
    stage = value("visavis_turn_stage_seconds_bucket", stage="answer", le="0.3")
    pids = [work(tmp_path, number) for number in (1, 2)]
    monkeypatch.setenv(DIRECTORY, str(tmp_path))
    counts = read()
    assert counts["visavis_refusals_total", "busy"] == own + 5 + 1 + 2
    assert counts["visavis_turn_stage_seconds_bucket", "0.3", "answer"] == stage + 2
    assert counts["visavis_calls_max",] == max(7, value("visavis_calls_max"))
    assert (counts["visavis_calls", "1"], counts["visavis_calls", "2"]) == (3, 3)
    assert counts["process_cpu_seconds_total",] > 0  # the front's
    forget_process(pids[0])
    counts = read()
    assert ("visavis_calls", "1") not in counts
    assert counts["visavis_calls", "2"] == 3
    assert counts["visavis_refusals_total", "busy"] == own + 5 + 1 + 2


def test_a_worker_reads_what_all_workers_count(tmp_path: Path):
    work(tmp_path, 2)
    done = subprocess.run(
        [sys.executable, "-c", f"{_WORKER}\nsys.stdout.buffer.write(m.exposition()[0])", "1"],
        env={**os.environ, DIRECTORY: str(tmp_path)},
        check=True,
        capture_output=True,
        text=True,
    )
    assert 'visavis_refusals_total{code="busy"} 3.0' in done.stdout.splitlines()


def test_no_label_is_of_a_call():
    for name in dir(metrics):
        metric = getattr(metrics, name)
        if isinstance(metric, MetricWrapperBase):
            assert set(metric._labelnames) <= FEW, name
