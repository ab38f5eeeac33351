"""What an operator is shown exists: each query of the rules and the dashboard finds series in `/metrics`."""

import asyncio
import json
import os
import re
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from promql import Selector, groupings, selectors
from sim import Sim
from switchboard import CALLS_URL, OFFER, SDP, serving
from visavis import pulse
from visavis.config import ConversationConfig, RouterConfig
from visavis.engine import Request
from visavis.engine.router import Entry, RouterEngine
from visavis.engine.scripted import Fault, Reply, ScriptedEngine
from visavis.errors import EngineLost
from visavis.pulse import watch_gpus
from visavis.rtc.stats import PeerStats
from visavis.watch import CallWatch

DEPLOY = Path(__file__).parents[1] / "deploy"
RULES = DEPLOY / "prometheus" / "rules.yml"
DASHBOARD = DEPLOY / "grafana" / "visavis.json"
OF_THE_SCRAPE = {"job", "instance"}
"Labels that Prometheus adds to what it reads."
Series = dict[str, list[dict[str, str]]]


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:
    return [panel for panel in json.loads(DASHBOARD.read_text())["panels"] if panel["type"] != "row"]


def dashboard_queries() -> list[str]:
    queries = [target["expr"] for panel in panels() for target in panel["targets"]]
    return [query.replace("$__rate_interval", "5m").replace("$instance", ".*") for query in queries]


def queries() -> list[str]:
    return [*(rule["expr"] for rule in rules()), *dashboard_queries()]


async def have_a_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Let everything be that an operator may hear of, and return what `/metrics` says of it."""
    smi = tmp_path / "nvidia-smi"
    smi.write_text("#!/bin/sh\necho '0, 1024, 81920, 50'\n")
    smi.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(pulse, "GPU_S", 0.0)
    lost, half = Reply(fault=Fault.LOST), Reply(fault=Fault.LOST, fault_after_s=0.3)
    laptop = ScriptedEngine([Reply(), half])
    engines = [Entry("gpu", ScriptedEngine([lost]), 1, 1), Entry("laptop", laptop, 1, 1)]
    router = RouterEngine(engines, None, RouterConfig())
    for _ in range(2):
        with suppress(EngineLost):
            async for _ in router.respond(Request("call", ())):
                pass
    watch = CallWatch()
    watch.begin()
    for _, action in Sim(speech=[(1.0, 2.5)], config=ConversationConfig()).run(8).log:
        watch.action(action)
    stats = PeerStats(packets_received=250, packets_lost=1, packets_sent=250, jitter_ms=3.0, rtt_ms=20.0)
    watch.end("the client hung up", stats)
    async with serving() as client, asyncio.timeout(10):
        assert (await client.post(CALLS_URL, data=OFFER, headers=SDP)).status == 201
        gpus = asyncio.create_task(watch_gpus())
        text = ""
        while "visavis_worker_cpu_ratio{" not in text or "visavis_gpu_memory_bytes{" not in text:
            text = await (await client.get("/metrics")).text()
            await asyncio.sleep(0.01)
        gpus.cancel()
        return text


@pytest.fixture
async def exposition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    return await have_a_call(tmp_path, monkeypatch)


def series_of(exposition: str) -> Series:
    """Labels of each series by name, those that the rules record included."""
    found: Series = defaultdict(list)
    for family in text_string_to_metric_families(exposition):
        for sample in family.samples:
            found[sample.name].append(dict(sample.labels))
    for rule in rules():
        if "record" in rule:
            found[rule["record"]].append({})
    found["up"].append({"job": "visavis"})
    return found


def missing(query: str, series: Series) -> Iterator[str]:
    """Say what a query asks for and does not get."""
    known = set(OF_THE_SCRAPE)
    for selector in selectors(query):
        matchers = tuple(m for m in selector.matchers if m[0] not in OF_THE_SCRAPE)
        there = series.get(selector.name, [])
        known.update(label for labels in there for label in labels)
        for label, op, value in matchers:
            choices = value.split("|") if op == "=~" else [value]
            for choice in choices:
                if not any(Selector("", ((label, "=", choice),)).accepts(labels) for labels in there):
                    yield f"{selector.name} has no {label}={choice}"
        if not any(Selector("", matchers).accepts(labels) for labels in there):
            yield f"nothing is {selector}"
    yield from (f"nothing has the label {label}" for label in groupings(query) - known)


async def test_every_query_of_the_rules_and_the_dashboard_finds_what_it_asks_for(exposition: str):
    series = series_of(exposition)
    assert len(queries()) > 60
    assert [fault for query in queries() for fault in missing(query, series)] == []


async def test_a_query_that_asks_for_what_is_not_there_is_found_out(exposition: str):
    series = series_of(exposition)
    for query in (
        "sum(rate(visavis_nothing_total[5m]))",
        'visavis_calls{workers="0"}',
        'visavis_responses_total{status="fail"}',
        'rate(visavis_turn_stage_seconds_bucket{stage=~"answer|first_sound"}[5m])',
        "sum by (call) (visavis_calls) / 2",
        "visavis_calls / on (pid) visavis_calls_max",
    ):
        assert list(missing(query, series)), query


async def test_every_metric_of_ours_is_shown_or_watched(exposition: str):
    asked = {selector.name for query in queries() for selector in selectors(query)}
    families = text_string_to_metric_families(exposition)
    ours = {family.name: family for family in families if family.name.startswith("visavis_")}
    unseen = [
        name
        for name, family in ours.items()
        if not asked & {name, *(sample.name for sample in family.samples)}
    ]
    assert unseen == []


def test_every_panel_of_the_dashboard_has_its_place():
    taken: set[tuple[int, int]] = set()
    everything = json.loads(DASHBOARD.read_text())["panels"]
    for panel in everything:
        at = panel["gridPos"]
        cells = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert not taken & cells, panel["title"]
        assert at["x"] + at["w"] <= 24
        taken |= cells
    assert len({panel["id"] for panel in everything}) == len(everything)


def test_legends_name_labels_that_their_query_keeps():
    for panel in panels():
        for target in panel["targets"]:
            named = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
            kept = groupings(target["expr"])
            if kept:
                assert named <= kept, (panel["title"], target)


# With Prometheus's own tool.


def promtool(*arguments: str | Path, cwd: Path = RULES.parent, text: str | None = None) -> str:
    tool = shutil.which("promtool")
    if tool is None:
        pytest.fail("promtool is missing: `make test` fetches it (Debian: the package prometheus)")
    done = subprocess.run([tool, *map(str, arguments)], cwd=cwd, input=text, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.slow
def test_the_rules_and_the_settings_are_valid():
    assert "18 rules found" in promtool("check", "rules", RULES)
    promtool("check", "config", "--syntax-only", RULES.parent / "prometheus.yml")


@pytest.mark.slow
def test_the_rules_tell_when_they_should_and_only_then():
    promtool("test", "rules", "rules_test.yml")


@pytest.mark.slow
def test_each_alert_is_tested_to_fire():
    tests = yaml.safe_load((RULES.parent / "rules_test.yml").read_text())["tests"]
    fired = {
        case["alertname"] for test in tests for case in test.get("alert_rule_test", []) if case["exp_alerts"]
    }
    assert fired == {rule["alert"] for rule in rules() if "alert" in rule}


@pytest.mark.slow
def test_the_queries_of_the_dashboard_are_promql(tmp_path: Path):
    recorded = [
        {"record": f"query:{number}:query", "expr": query} for number, query in enumerate(dashboard_queries())
    ]
    file = tmp_path / "dashboard.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": recorded}]}))
    promtool("check", "rules", file)


@pytest.mark.slow
async def test_prometheus_finds_no_fault_with_the_metrics(exposition: str):
    promtool("check", "metrics", text=exposition)
