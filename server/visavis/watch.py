"""What an operator learns of one call: counts for Prometheus, and spans where somebody takes them."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Protocol

from .actions import Action, Mark
from .config import TelemetryConfig
from .errors import ConfigError
from .metrics import (
    BLOCKS_SKIPPED,
    CALLS_ENDED,
    CALLS_OPENED,
    CONCEALED,
    COUNTED,
    FRAMES,
    MEDIA_BYTES,
    RESPONSES,
    RTP_JITTER,
    RTP_LOSS,
    RTP_PACKETS,
    RTP_RTT,
    TURN_STAGE,
    TURN_STAGE_EARLY,
    TURN_TAKING,
    UNDERRUNS,
)
from .rtc.stats import PeerStats
from .turn_times import Turn, TurnBook

SAMPLE_S = 5.0
"Of a call's media: some 250 packets, of which one lost is 0.4 %."

_REASONS = {
    "failed": "transport_failed",
    "dead": "no_packets",
    "remote": "remote_closed",
    "timeout": "never_connected",
    "flooded": "flooded",
    "error": "internal_error",
    "internal error": "internal_error",
    "": "cancelled",
    "the client hung up": "hung_up",
    "nobody spoke": "idle",
    "the caller comes back": "resumed",
    "the caller went on in another call": "resumed",
    "greatest length reached": "too_long",
    "the server was stopped": "shutdown",
    "the server is shutting down": "shutdown",
}
"Why calls end, as a label."
for _reason in {*_REASONS.values(), "worker_lost", "other"}:
    CALLS_ENDED.labels(_reason)  # begins at 0, as others do

_COUNTED = {
    "packets_received": RTP_PACKETS.labels("in", "received"),
    "packets_lost": RTP_PACKETS.labels("in", "lost"),
    "packets_late": RTP_PACKETS.labels("in", "late"),
    "packets_duplicate": RTP_PACKETS.labels("in", "duplicate"),
    "packets_malformed": RTP_PACKETS.labels("in", "malformed"),
    "packets_overlapping": RTP_PACKETS.labels("in", "overlapping"),
    "packets_excess": RTP_PACKETS.labels("in", "excess"),
    "packets_sent": RTP_PACKETS.labels("out", "sent"),
    "remote_lost": RTP_PACKETS.labels("out", "lost"),
    "blocks_skipped": BLOCKS_SKIPPED,
    "bytes_in": MEDIA_BYTES.labels("in"),
    "bytes_out": MEDIA_BYTES.labels("out"),
    "frames_wanted": FRAMES.labels("wanted"),
    "frames_decoded": FRAMES.labels("decoded"),
    "frames_dropped": FRAMES.labels("dropped"),
}
"Fields of PeerStats that only grow, and where they are counted."


class Spans(Protocol):
    """Takes a call's turns (`spans.CallSpans`, an extra)."""

    def turn(self, turn: Turn) -> None: ...

    def end(self, reason: str) -> None: ...


@asynccontextmanager
async def watching(config: TelemetryConfig) -> AsyncIterator[Callable[[str], "CallWatch"]]:
    """Give what makes the watch of a call by its id. Raises ConfigError if OpenTelemetry is missing."""
    if config.otlp_url is None:
        yield lambda _: CallWatch()
        return
    try:
        from .spans import Telemetry
    except ImportError as error:
        raise ConfigError(
            "telemetry.otlp_url is set, and OpenTelemetry is not installed: pip install 'visavis[otel]', "
            "or unset it."
        ) from error
    async with aclosing(Telemetry(config.otlp_url)) as telemetry:
        yield lambda call_id: CallWatch(telemetry.call(call_id))


class CallWatch:
    """Is told what happens in a call. Nothing in here raises or waits."""

    def __init__(self, spans: Spans | None = None) -> None:
        self._spans = spans
        self._turns = TurnBook()
        self._seen = PeerStats()

    def begin(self) -> None:
        """The call was answered."""
        CALLS_OPENED.inc()

    def end(self, reason: str, stats: PeerStats) -> None:
        """The call is over, for this reason of `Session.hang_up`; these are its last figures."""
        self.sample(stats)
        label = _REASONS.get(reason, "other")
        CALLS_ENDED.labels(label).inc()
        if self._spans is not None:
            self._spans.end(label)

    async def run(self, stats: Callable[[], PeerStats]) -> None:
        """Take the media's figures now and then, until cancelled."""
        while True:
            await asyncio.sleep(SAMPLE_S)
            self.sample(stats())

    def action(self, action: Action) -> None:
        """Take what the conversation wants done, on its way there."""
        match action:
            case Mark(name):
                if name in COUNTED:
                    TURN_TAKING.labels(name).inc()
                elif name == "underrun":
                    UNDERRUNS.inc()
        if (turn := self._turns.receive(action)) is not None:
            self._note_turn(turn)

    def sample(self, stats: PeerStats) -> None:
        """Count what has come since the last sample."""
        seen, self._seen = self._seen, stats
        for name, counter in _COUNTED.items():
            if (grown := (getattr(stats, name) or 0) - (getattr(seen, name) or 0)) > 0:
                counter.inc(grown)
        CONCEALED.inc(max(0, stats.concealed_ms - seen.concealed_ms) / 1000)
        lost = max(0, stats.packets_lost - seen.packets_lost)
        expected = max(0, stats.packets_received - seen.packets_received) + lost
        if expected:
            RTP_LOSS.observe(lost / expected)
            if stats.jitter_ms is not None:
                RTP_JITTER.observe(stats.jitter_ms / 1000)
        if stats.rtt_ms is not None:
            RTP_RTT.observe(stats.rtt_ms / 1000)

    def _note_turn(self, turn: Turn) -> None:
        if turn.status is not None:
            RESPONSES.labels(turn.status).inc()
        for stage, seconds in turn.stages().items():
            TURN_STAGE.labels(stage).observe(max(0.0, seconds))
            if seconds < 0:
                TURN_STAGE_EARLY.labels(stage).inc()
        if self._spans is not None:
            self._spans.turn(turn)
