"""A real call is counted: what an operator sees is what was."""

from pathlib import Path

import pytest
from kit import until
from prometheus_client import REGISTRY

from speech import write_wav
from visavis import watch
from visavis.caller import call
from visavis.engine.scripted import Reply, ScriptedEngine

pytestmark = [pytest.mark.loopback, pytest.mark.usefixtures("nothing_left")]


def value(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(f"visavis_{name}", labels) or 0.0


async def test_a_call_is_counted_with_its_turn_and_its_media(
    serve, say, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(watch, "SAMPLE_S", 0.5)
    names = {
        "opened": ("calls_opened_total", {}),
        "hung up": ("calls_ended_total", {"reason": "hung_up"}),
        "completed": ("responses_total", {"status": "completed"}),
        "answers": ("turn_stage_seconds_count", {"stage": "answer"}),
        "decisions": ("turn_stage_seconds_count", {"stage": "decision"}),
        "packets in": ("rtp_packets_total", {"direction": "in", "fate": "received"}),
        "packets out": ("rtp_packets_total", {"direction": "out", "fate": "sent"}),
        "bytes in": ("media_bytes_total", {"direction": "in"}),
        "losses": ("rtp_loss_ratio_count", {}),
    }
    before = {what: value(name, **labels) for what, (name, labels) in names.items()}
    question = write_wav(tmp_path / "question.wav", say("What is the capital of France?"))
    server = await serve(ScriptedEngine([Reply("It is Paris.")]))
    assert await call(server=server.url, key=None, questions=[question], turns=1) == 0
    await until(lambda: len(server.calls) == 0, "the call is gone")
    grown = {what: value(name, **labels) - before[what] for what, (name, labels) in names.items()}
    assert {what: grown[what] for what in ("opened", "hung up", "completed", "answers", "decisions")} == {
        "opened": 1,
        "hung up": 1,
        "completed": 1,
        "answers": 1,
        "decisions": 1,
    }
    assert grown["packets in"] > 50
    assert grown["packets out"] > 50
    assert grown["bytes in"] > 1000
    assert grown["losses"] >= 2
