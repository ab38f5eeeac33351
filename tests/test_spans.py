"""Traces reach a real receiver of OTLP over HTTP: one a call, a span a turn, and not a word of it."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from sim import Reply, Sim
from visavis import spans
from visavis.actions import Action, Mark, Notify
from visavis.config import TelemetryConfig
from visavis.engine import Usage
from visavis.events import ResponseDone, TurnTimings
from visavis.rtc.stats import PeerStats
from visavis.spans import Telemetry
from visavis.turn_times import TurnBook
from visavis.watch import watching


@dataclass
class Collector:
    """What it was sent."""

    url: str = ""
    bodies: list[bytes] = field(default_factory=list)
    answers: asyncio.Event = field(default_factory=asyncio.Event)
    asked: asyncio.Event = field(default_factory=asyncio.Event)

    def spans(self) -> dict[str, list[Span]]:
        found: dict[str, list[Span]] = {}
        for body in self.bodies:
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                attributes = {item.key: item.value.string_value for item in resource.resource.attributes}
                assert attributes["service.name"] == "visavis"
                for scope in resource.scope_spans:
                    for span in scope.spans:
                        found.setdefault(span.name, []).append(span)
        return found


@asynccontextmanager
async def collecting(*, answers: bool = True) -> AsyncIterator[Collector]:
    collector = Collector()
    if answers:
        collector.answers.set()

    async def take(request: web.Request) -> web.Response:
        collector.asked.set()
        await collector.answers.wait()
        assert request.content_type == "application/x-protobuf"
        collector.bodies.append(await request.read())
        body = ExportTraceServiceResponse().SerializeToString()
        return web.Response(body=body, content_type="application/x-protobuf")

    app = web.Application()
    app.router.add_post("/v1/traces", take)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        collector.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1/traces"
        yield collector
    finally:
        collector.answers.set()
        await runner.cleanup()


def attributes(span: Span) -> dict[str, object]:
    return {item.key: getattr(item.value, item.value.WhichOneof("value")) for item in span.attributes}


def a_turn(since: float, response_id: int = 1, *, failed: bool = False) -> list[Action]:
    """The actions of a turn: asked in the pause, decided 0.2 s after the last word, heard 0.3 s later."""
    reached = {"draft_asked": 0.1, "turn_end": 0.2, "draft_used": 0.2, "request_sent": 0.11}
    reached |= {"first_text": 0.4, "first_audio": 0.45, "first_sent": 0.5, "done": 0.6}
    status = "failed" if failed else "completed"
    return [
        *(Mark(name, response_id, since + at) for name, at in reached.items()),
        Notify(ResponseDone(response_id, status, usage=Usage(300, 20))),
        Notify(TurnTimings(response_id, "item", {"speech_end": 0, "turn_end": 200}, final=True)),
    ]


async def test_a_call_is_one_trace_of_its_turns_and_their_parts():
    now = time.monotonic() - 10
    async with collecting() as collector:
        async with watching(TelemetryConfig(collector.url)) as watch:
            call = watch("rtc_secret")
            call.begin()
            for response_id in (1, 2):
                for action in a_turn(now + response_id, response_id, failed=response_id == 2):
                    call.action(action)
            call.end("the client hung up", PeerStats())
        found = collector.spans()
    (root,) = found["call"]
    assert attributes(root) == {"visavis.call_id": "rtc_secret", "visavis.end": "hung_up"}
    good, bad = found["turn"]
    everything = [span for kind in found.values() for span in kind]
    assert {span.trace_id for span in everything} == {root.trace_id}
    assert good.parent_span_id == bad.parent_span_id == root.span_id
    assert attributes(good) == {
        "visavis.response_id": 1,
        "visavis.status": "completed",
        "visavis.in_advance": True,
        "visavis.interrupted": False,
        "gen_ai.usage.input_tokens": 300,
        "gen_ai.usage.output_tokens": 20,
        "visavis.decision_s": pytest.approx(0.2),
        "visavis.request_s": pytest.approx(-0.09),
        "visavis.first_delta_s": pytest.approx(0.29),
        "visavis.first_audio_s": pytest.approx(0.05),
        "visavis.first_sample_s": pytest.approx(0.05),
        "visavis.first_packet_s": pytest.approx(0.3),
        "visavis.answer_s": pytest.approx(0.5),
    }
    assert [event.name for event in good.events] == ["request_sent", "first_text", "first_audio"]
    assert bad.status.code == Status.STATUS_CODE_ERROR

    def times(name: str) -> tuple[float, float]:
        (span,) = (span for span in found[name] if span.parent_span_id == good.span_id)
        word = good.start_time_unix_nano
        return (span.start_time_unix_nano - word) / 1e9, (span.end_time_unix_nano - word) / 1e9

    assert times("decision") == pytest.approx((0.0, 0.2))
    assert times("engine") == pytest.approx((0.1, 0.6))
    assert times("speech")[0] == pytest.approx(0.5)
    assert good.start_time_unix_nano / 1e9 == pytest.approx(time.time() - 9, abs=5)


async def test_nothing_that_was_said_leaves_and_the_id_of_a_live_call_does_not_either():
    said, heard = "The weather is fine", "zebras are striped"
    sim = Sim(speech=[(1.0, 2.5)], replies=[Reply(said, seconds=1.0, transcript=heard)]).run(8)
    async with collecting() as collector:
        telemetry = Telemetry(collector.url)
        book, call = TurnBook(), telemetry.call("rtc_secret")
        for _, action in sim.log:
            if (turn := book.receive(action)) is not None:
                call.turn(turn)
        await telemetry.aclose()
        bodies = b"".join(collector.bodies)
    assert b"turn" in bodies
    for word in ("weather", "fine", "zebras", "striped", "rtc_secret"):
        assert word.encode() not in bodies


async def test_a_collector_that_does_not_answer_holds_the_end_up_for_a_bounded_time(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(spans, "_FLUSH_S", 0.2)
    async with collecting(answers=False) as collector:
        telemetry = Telemetry(collector.url)
        telemetry.call("rtc_1").end("hung_up")
        closing = asyncio.create_task(telemetry.aclose())
        await collector.asked.wait()
        await closing  # though the collector has not answered
        assert not collector.bodies


async def test_a_collector_that_is_not_there_harms_nobody(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(spans, "_FLUSH_S", 0.2)
    async with collecting() as collector:
        url = collector.url
    async with watching(TelemetryConfig(url)) as watch:
        watch("rtc_1").end("the client hung up", PeerStats())
