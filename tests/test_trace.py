"""What a call leaves behind."""

import json
import logging
from pathlib import Path

import pytest

from visavis import events as ev
from visavis.actions import Notify
from visavis.config import TraceConfig
from visavis.engine import Routed, TextDelta
from visavis.trace import CallTrace


def turns(caplog: pytest.LogCaptureFixture) -> list[dict[str, object]]:
    return [json.loads(line.removeprefix("turn ")) for line in caplog.messages if line.startswith("turn ")]


def test_the_line_of_a_turn_names_the_engine_that_answered_and_why(caplog: pytest.LogCaptureFixture) -> None:
    trace = CallTrace(TraceConfig(), "call")
    timings = ev.TurnTimings(1, "item", {"first_audio": 640}, True, Routed("hosted", "vllm: busy"))
    with caplog.at_level(logging.INFO, logger="visavis.trace"):
        trace.action(Notify(timings))
    (turn,) = turns(caplog)
    assert turn["engine"] == "hosted"
    assert turn["route"] == "vllm: busy"
    assert turn["first_audio_ms"] == 640


def test_the_line_of_a_turn_names_no_engine_without_a_choice(
    caplog: pytest.LogCaptureFixture,
) -> None:
    trace = CallTrace(TraceConfig(), "call")
    with caplog.at_level(logging.INFO, logger="visavis.trace"):
        trace.action(Notify(ev.TurnTimings(1, "item", {}, True)))
    assert not {"engine", "route"} & turns(caplog)[0].keys()


async def test_the_trace_has_the_route_before_the_answer(tmp_path: Path) -> None:
    trace = CallTrace(TraceConfig(dir=tmp_path), "call")
    trace.delta(1, Routed("hosted", "vllm: lost"), 2.0)
    trace.delta(1, TextDelta("Hi."), 2.1)
    await trace.aclose()
    lines = [json.loads(line) for line in (tmp_path / "call.jsonl").read_text().splitlines()]
    assert [line["delta"] for line in lines] == [
        {"is": "Routed", "engine": "hosted", "reason": "vllm: lost"},
        {"is": "TextDelta", "text": "Hi."},
    ]
