"""What is counted of a call: its turns, its media, its beginning and its end."""

import sys

import pytest
from prometheus_client import REGISTRY

from sim import Reply, Sim
from visavis.actions import Mark
from visavis.config import TelemetryConfig
from visavis.errors import ConfigError
from visavis.rtc.stats import PeerStats
from visavis.watch import CallWatch, watching


class Counts:
    """How much each counter has grown."""

    def __init__(self) -> None:
        self._before = self._read()

    def grown(self) -> dict[str, float]:
        now = self._read()
        return {
            name: n - self._before.get(name, 0) for name, n in now.items() if n != self._before.get(name, 0)
        }

    @staticmethod
    def _read() -> dict[str, float]:
        return {
            " ".join((sample.name.removeprefix("visavis_"), *sample.labels.values())): sample.value
            for metric in REGISTRY.collect()
            if metric.name.startswith("visavis_")
            for sample in metric.samples
            if not sample.name.endswith("_bucket")
        }


def test_a_turn_is_counted_with_its_stages_and_its_end():
    sim = Sim(speech=[(1.0, 2.5)], replies=[Reply(seconds=1.0, chunks=(1.0,))]).run(8)
    watch, counts = CallWatch(), Counts()
    for _, action in sim.log:
        watch.action(action)
    grown = counts.grown()
    assert grown["responses_total completed"] == 1
    for stage in ("decision", "first_audio", "first_sample", "first_packet", "answer"):
        assert grown.get(f"turn_stage_seconds_count {stage}") == 1, stage
    assert grown["turn_stage_seconds_sum answer"] == pytest.approx(sim.marks("first_sent")[0] - 2.5, abs=0.1)


def test_a_stage_that_was_over_early_counts_as_none_and_as_early():
    watch, counts = CallWatch(), Counts()
    sim = Sim(speech=[(1.0, 2.5)]).run(8)
    for _, action in sim.log:
        if isinstance(action, Mark) and action.name == "turn_end":
            watch.action(Mark("request_sent", action.response_id, action.at - 0.2))
        watch.action(action)
    grown = counts.grown()
    assert grown["turn_stage_seconds_count request"] == 1
    assert "turn_stage_seconds_sum request" not in grown
    assert grown["turn_stage_early_total request"] == 1


def test_interruptions_and_holes_are_counted():
    watch, counts = CallWatch(), Counts()
    for name in ("barge_in", "draft_used", "draft_wasted", "underrun", "underrun", "first_text"):
        watch.action(Mark(name, 1, 1.0))
    grown = counts.grown()
    assert grown["playout_underruns_total"] == 2
    assert {name for name in grown if name.startswith("turn_taking")} == {
        "turn_taking_total barge_in",
        "turn_taking_total draft_used",
        "turn_taking_total draft_wasted",
    }


def test_of_the_media_what_came_since_the_last_look_is_counted():
    watch, counts = CallWatch(), Counts()
    watch.begin()
    first = PeerStats(packets_received=240, packets_lost=10, concealed_ms=200, jitter_ms=4.0, rtt_ms=30.0)
    watch.sample(first)
    assert counts.grown()["rtp_loss_ratio_sum"] == pytest.approx(10 / 250)
    watch.sample(first)  # nothing came: there is no loss to be told, and no jitter
    grown = counts.grown()
    assert grown["rtp_loss_ratio_count"] == grown["rtp_jitter_seconds_count"] == 1
    assert grown["rtp_rtt_seconds_count"] == 2
    last = PeerStats(
        packets_received=340, packets_lost=10, concealed_ms=260, remote_lost=3, frames_wanted=4, bytes_in=1000
    )
    watch.end("dead", last)
    grown = counts.grown()
    assert grown["rtp_packets_total in received"] == 340
    assert grown["rtp_packets_total in lost"] == 10
    assert grown["rtp_packets_total out lost"] == 3
    assert grown["audio_concealed_seconds_total"] == pytest.approx(0.26)
    assert grown["frames_total wanted"] == 4
    assert grown["media_bytes_total in"] == 1000
    assert grown["calls_opened_total"] == 1
    assert grown["calls_ended_total no_packets"] == 1


def test_figures_that_fall_back_are_no_news():
    watch, counts = CallWatch(), Counts()
    watch.sample(PeerStats(packets_received=100, packets_lost=5, remote_lost=2))
    before = counts.grown()
    watch.sample(PeerStats(packets_received=100, packets_lost=3, remote_lost=None))
    assert counts.grown() == before


def test_a_reason_that_nobody_foresaw_is_other():
    counts = Counts()
    CallWatch().end("the moon is full", PeerStats())
    assert counts.grown()["calls_ended_total other"] == 1


async def test_without_opentelemetry_its_setting_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "visavis.spans", None)
    with pytest.raises(ConfigError, match=r"pip install 'visavis\[otel\]'"):
        async with watching(TelemetryConfig("http://127.0.0.1:4318/v1/traces")):
            pass
    async with watching(TelemetryConfig()) as watch:
        assert isinstance(watch("rtc_1"), CallWatch)


def test_a_collector_s_address_is_an_address():
    with pytest.raises(ConfigError, match="http://"):
        TelemetryConfig("127.0.0.1:4318")
