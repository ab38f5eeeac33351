"""Calls and turns as OpenTelemetry spans, sent as OTLP over HTTP: times and numbers, nothing that was said.

The one module that imports OpenTelemetry, which is an extra (`otel`).
"""

import asyncio
import os
import threading
import time

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_INSTANCE_ID, SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from . import __version__
from .turn_times import Turn

_QUEUE = 2_048
"Spans kept for a collector that is slow: some 500 turns. The oldest give way."
_DELAY_MS = 2_000
_EXPORT_S = 4.0
"For one batch, tries included."
_FLUSH_S = 3.0
"The most that the end of the server waits for what is still to be sent."

_PARTS = {
    "decision": (("speech_end",), ("turn_end",)),
    "engine": (("draft_asked", "request_sent", "turn_end"), ("done",)),
    "speech": (("first_sent",), ()),
}
"Spans within a turn, by the first mark of each list that there is; none is the end of the turn."
_EVENTS = ("request_sent", "first_thought", "first_text", "first_audio", "barge_in", "reopened", "apology")


class Telemetry:
    """Sends spans from a thread of its own. `aclose` sends the rest."""

    def __init__(self, url: str) -> None:
        """`url` is that of the collector's traces, such as http://127.0.0.1:4318/v1/traces."""
        resource = Resource.create(
            {SERVICE_NAME: "visavis", SERVICE_VERSION: __version__, SERVICE_INSTANCE_ID: str(os.getpid())}
        )
        self._exporter = OTLPSpanExporter(endpoint=url, timeout=_EXPORT_S)
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(
            BatchSpanProcessor(self._exporter, max_queue_size=_QUEUE, schedule_delay_millis=_DELAY_MS)
        )
        self._tracer = self._provider.get_tracer("visavis", __version__)

    def call(self, call_id: str) -> "CallSpans":
        """Begin the trace of a call."""
        return CallSpans(self._tracer, call_id)

    async def aclose(self) -> None:
        """Send what is left, for a few seconds at most."""
        # Of a collector that does not answer the library would wait for much longer.
        flush = threading.Thread(target=self._provider.shutdown, name="visavis-spans", daemon=True)
        flush.start()
        await asyncio.to_thread(flush.join, _FLUSH_S)
        if flush.is_alive():
            self._exporter.shutdown()  # type: ignore[no-untyped-call]  # the library's own omission


class CallSpans:
    """The trace of one call: a span for the whole of it, one for each turn, and for the parts of that.

    The id of a call may end it, so it goes out with the call's own span, at the end.
    """

    def __init__(self, tracer: trace.Tracer, call_id: str) -> None:
        self._tracer = tracer
        self._epoch_ns = time.time_ns() - time.monotonic_ns()
        self._call = tracer.start_span("call", attributes={"visavis.call_id": call_id})
        self._context = trace.set_span_in_context(self._call)

    def turn(self, turn: Turn) -> None:
        """Tell of a turn that ends now."""
        marks = turn.marks
        ended = max(time.monotonic(), *marks.values())
        attributes: dict[str, str | int | float | bool] = {
            "visavis.response_id": turn.response_id,
            "visavis.in_advance": "draft_used" in marks,
            "visavis.interrupted": "barge_in" in marks,
        }
        optional: dict[str, str | int | None] = {
            "visavis.status": turn.status,
            "visavis.engine": turn.route.engine if turn.route else None,
            "visavis.route": turn.route.reason if turn.route else None,
            "gen_ai.usage.input_tokens": turn.input_tokens,
            "gen_ai.usage.output_tokens": turn.output_tokens,
        }
        attributes |= {name: value for name, value in optional.items() if value is not None}
        attributes |= {f"visavis.{stage}_s": round(s, 6) for stage, s in turn.stages().items()}
        span = self._start("turn", self._context, min(marks.values()), attributes)
        for name in _EVENTS:
            if name in marks:
                span.add_event(name, timestamp=self._ns(marks[name]))
        if turn.status == "failed":
            span.set_status(trace.StatusCode.ERROR)
        within = trace.set_span_in_context(span)
        for name, (since, until) in _PARTS.items():
            first = next((marks[mark] for mark in since if mark in marks), None)
            last = next((marks[mark] for mark in until if mark in marks), ended if not until else None)
            if first is not None and last is not None:
                self._start(name, within, first).end(self._ns(max(first, last)))
        span.end(self._ns(ended))

    def end(self, reason: str) -> None:
        """The call is over."""
        self._call.set_attribute("visavis.end", reason)
        self._call.end()

    def _start(
        self,
        name: str,
        context: Context,
        at: float,
        attributes: dict[str, str | int | float | bool] | None = None,
    ) -> trace.Span:
        return self._tracer.start_span(name, context, start_time=self._ns(at), attributes=attributes)

    def _ns(self, at: float) -> int:
        """Return wall-clock nanoseconds of monotonic seconds."""
        return self._epoch_ns + round(at * 1e9)
