"""What this process counts, in the form that Prometheus reads. Labels have few values: nothing of a call.

With `PROMETHEUS_MULTIPROC_DIR` in the environment when this is imported, a process counts in files of that
folder, so that the workers of one server are read as one. Every gauge says how those of several add up.
"""

import os
from collections.abc import Iterator
from typing import get_args

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    REGISTRY,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Metric,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
from prometheus_client.registry import Collector

from .events import ResponseStatus
from .turn_times import STAGES

DIRECTORY = "PROMETHEUS_MULTIPROC_DIR"
"Names the folder in which the workers of a server count."

_IN_FILES = DIRECTORY in os.environ

# When a series began would be half of all lines, and nobody asks for it.
disable_created_metrics()  # type: ignore[no-untyped-call]  # the library's own omission, as below

_TIMES = (0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 1.5, 2, 3, 5, 10)
"Of what a caller waits for, in seconds; 0.3 and 0.5 are the bounds of deploy/prometheus."

# Turns.

TURN_STAGE = Histogram(
    "visavis_turn_stage_seconds",
    "From stage to stage of an answer: last word, decision, request, first_delta, first_audio, first_sample; "
    "first_packet is from the decision, answer from the last word to the first sample out.",
    ("stage",),
    buckets=_TIMES,
)
TURN_STAGE_EARLY = Counter(
    "visavis_turn_stage_early",
    "Stages over before the one before them, since the engine was asked in advance; they count as 0 s.",
    ("stage",),
)
RESPONSES = Counter("visavis_responses", "Answers by how they ended.", ("status",))
TURN_TAKING = Counter(
    "visavis_turn_taking",
    "Answers in advance that were used and in vain, interruptions, words of assent, turns that went on after "
    "their end, and answers that failed and were apologised for.",
    ("what",),
)
COUNTED = frozenset({"draft_used", "draft_wasted", "barge_in", "aside", "reopened", "apology", "called"})
"Marks of a conversation that are counted there."
UNDERRUNS = Counter("visavis_playout_underruns", "Holes within answers, since sound came too late.")

# Calls.

CALLS = Gauge("visavis_calls", "Calls that are live.", ("worker",), multiprocess_mode="livesum")
CALLS_MAX = Gauge("visavis_calls_max", "Calls that are admitted at once.", multiprocess_mode="livemax")
CALLS_OPENED = Counter("visavis_calls_opened", "Calls that were answered.")
CALLS_ENDED = Counter("visavis_calls_ended", "Calls that are over, by the reason.", ("reason",))
REFUSALS = Counter("visavis_refusals", "Requests that were refused, by the code of the answer.", ("code",))

# Media.

RTP_PACKETS = Counter(
    "visavis_rtp_packets",
    "Packets of voice, in from callers and out to them, by what became of them.",
    ("direction", "fate"),
)
MEDIA_BYTES = Counter("visavis_media_bytes", "Bytes of calls' media, in and out.", ("direction",))
BLOCKS_SKIPPED = Counter(
    "visavis_blocks_skipped", "Blocks of 20 ms that were not sent to callers, since their time had passed."
)
RTP_LOSS = Histogram(
    "visavis_rtp_loss_ratio",
    "Share of a call's voice packets that was lost, each five seconds.",
    buckets=(0, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1),
)
RTP_JITTER = Histogram(
    "visavis_rtp_jitter_seconds",
    "Interarrival jitter of a call's voice (RFC 3550), each five seconds.",
    buckets=(0.001, 0.002, 0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32),
)
RTP_RTT = Histogram(
    "visavis_rtp_rtt_seconds",
    "Round trip to a caller, each five seconds.",
    buckets=(0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 1, 2),
)
CONCEALED = Counter("visavis_audio_concealed_seconds", "Sound of callers that was made up for lost packets.")
FRAMES = Counter("visavis_frames", "Pictures of callers' cameras by what became of them.", ("fate",))

# Engines.

ENGINE_REQUESTS = Counter(
    "visavis_engine_requests",
    "Requests by engine, what became of them there, and why.",
    ("engine", "outcome", "reason"),
)
ENGINE_SPEECH = Counter(
    "visavis_engine_speech",
    "Answers whose speech was at fault, by the fault; answers spoken for the engine; answers left unspoken.",
    ("what",),
)
ENGINE_FIRST_DELTA = Histogram(
    "visavis_engine_first_delta_seconds",
    "From a request's place at an engine to the first delta, answers in advance included.",
    ("engine",),
    buckets=_TIMES,
)
ENGINE_TOKENS = Counter(
    "visavis_engine_tokens", "Tokens that an engine says it read and wrote.", ("engine", "direction")
)
ENGINE_LEFT_ALONE = Gauge(
    "visavis_engine_left_alone",
    "Processes that leave an engine alone, since it failed too often.",
    ("engine",),
    multiprocess_mode="livesum",
)
GPU_MEMORY = Gauge(
    "visavis_gpu_memory_bytes",
    "Memory of this machine's GPUs.",
    ("gpu", "kind"),
    multiprocess_mode="livemostrecent",
)

# The processes.

LOOP_LAG = Histogram(
    "visavis_loop_lag_seconds",
    "How late the event loop runs what is due: sound goes out every 20 ms.",
    buckets=(0.001, 0.002, 0.005, 0.01, 0.02, 0.04, 0.06, 0.1, 0.2, 0.5, 1),
)
CPU = Counter("visavis_cpu_seconds", "Processor time of the server's processes, engines aside.")
WORKER_CPU = Gauge(
    "visavis_worker_cpu_ratio",
    "Share of a core that a worker computes, of the last second.",
    ("worker",),
    multiprocess_mode="livesum",
)
WORKER_MEMORY = Gauge(
    "visavis_worker_memory_bytes",
    "Resident memory of a worker, where /proc tells.",
    ("worker",),
    multiprocess_mode="livesum",
)

# What is known beforehand begins at 0: a first event is else no increase to Prometheus.
for _metric, _known in (
    (TURN_STAGE, STAGES),
    (TURN_STAGE_EARLY, STAGES),
    (RESPONSES, get_args(ResponseStatus)),
    (TURN_TAKING, COUNTED),
    (ENGINE_SPEECH, ("spoken", "unspoken")),
    (
        REFUSALS,
        ("server_busy", "engine_not_ready", "invalid_api_key", "rate_limit_exceeded", "internal_error"),
    ),
):
    for _value in sorted(_known):
        _metric.labels(_value)


def exposition() -> tuple[bytes, str]:
    """Return all metrics as text, those of the server's other processes included, and its content type.

    Blocks for some milliseconds.
    """
    directory = os.environ.get(DIRECTORY)
    if directory is None:
        return generate_latest(REGISTRY), CONTENT_TYPE_LATEST
    registry = CollectorRegistry()
    registry.register(_Merged(directory))
    return generate_latest(registry), CONTENT_TYPE_LATEST


def forget_process(pid: int) -> None:
    """Drop the gauges of a worker that has died; what it counted stays."""
    mark_process_dead(pid)  # type: ignore[no-untyped-call]


class _Merged(Collector):
    """What the workers left in files, and what this process has in its own memory if it is no worker."""

    def __init__(self, directory: str) -> None:
        self._directory = directory

    def collect(self) -> Iterator[Metric]:
        files = MultiProcessCollector(CollectorRegistry(), self._directory)  # type: ignore[no-untyped-call]
        shared = {metric.name: metric for metric in files.collect()}  # type: ignore[no-untyped-call]
        for own in () if _IN_FILES else REGISTRY.collect():
            theirs = shared.pop(own.name, None)
            yield own if theirs is None else _added(own, theirs)
        yield from shared.values()


def _added(own: Metric, theirs: Metric) -> Metric:
    """Add up the counts of two sources; of a gauge the larger counts, since one of the two never sets it."""
    values = {(sample.name, *sorted(sample.labels.items())): sample for sample in own.samples}
    for sample in theirs.samples:
        key = (sample.name, *sorted(sample.labels.items()))
        if key in values:
            both = (values[key].value, sample.value)
            sample = sample._replace(value=max(both) if own.type == "gauge" else sum(both))
        values[key] = sample
    merged = Metric(own.name, own.documentation, own.type)
    merged.samples = [*values.values()]
    return merged
