"""What this process counts, in the form that Prometheus reads. Labels have few values: nothing of a call."""

from prometheus_client import CONTENT_TYPE_LATEST, Counter, generate_latest

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

TURN_TAKING = Counter(
    "visavis_turn_taking",
    "Answers in advance that were used and in vain, interruptions, words of assent, turns that went on after "
    "their end, and answers that failed and were apologised for.",
    ("what",),
)
COUNTED = frozenset({"draft_used", "draft_wasted", "barge_in", "aside", "reopened", "apology"})
"Marks of a conversation that are counted there."


def exposition() -> tuple[bytes, str]:
    """Return all metrics as text, and its content type."""
    return generate_latest(), CONTENT_TYPE_LATEST
