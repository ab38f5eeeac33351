"""From the marks of a call to the times of its turns. Sans-I/O."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from .actions import Action, Mark, Notify
from .engine import Routed
from .events import ResponseDone, ResponseStatus, TurnTimings

STAGES: Mapping[str, tuple[str, str]] = {
    "decision": ("speech_end", "turn_end"),
    "request": ("turn_end", "request_sent"),
    "first_delta": ("request_sent", "first_delta"),
    "first_audio": ("first_delta", "first_audio"),
    "first_sample": ("first_audio", "first_sent"),
    "first_packet": ("turn_end", "first_sent"),
    "answer": ("speech_end", "first_sent"),
}
"""The marks that each stage is between.

Last word → decision that the turn is over → request written → first delta of any kind → first sound of it →
first sample out; `first_packet` and `answer` are the way to there from the decision and from the last word.
"""

_FIRST_DELTAS = ("first_thought", "first_text", "first_audio")
_MOST_OPEN = 16
"Responses whose end has not been seen; the oldest gives way. A call has one, and drafts that failed."


@dataclass(slots=True)
class Turn:
    """One answer, from what it answers to its end. Times are monotonic seconds."""

    response_id: int
    marks: dict[str, float] = field(default_factory=dict)
    "When it reached what: the marks of a conversation, and `first_delta` for the first of any kind."
    status: ResponseStatus | None = None
    route: Routed | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None

    def stages(self) -> dict[str, float]:
        """Return the seconds of each stage it went through; below 0 where the engine was asked in advance.

        An apology is no answer: what is heard of one has no `first_audio` before it.
        """
        marks = self.marks
        if "first_audio" not in marks:
            marks = {name: at for name, at in marks.items() if name != "first_sent"}
        return {
            stage: marks[until] - marks[since]
            for stage, (since, until) in STAGES.items()
            if since in marks and until in marks
        }


class TurnBook:
    """Gathers one call's turns from the actions of its conversation."""

    def __init__(self) -> None:
        self._open: dict[int, Turn] = {}

    def receive(self, action: Action) -> Turn | None:
        """Take an action; return the turn that has ended with it."""
        match action:
            case Mark("draft_wasted", response_id):
                self._open.pop(response_id, None)
            case Mark(name, response_id, at):
                self._turn(response_id).marks.setdefault(name, at)
            case Notify(ResponseDone(response_id, status) as done):
                turn = self._turn(response_id)
                turn.status = status
                if done.usage is not None:
                    turn.input_tokens, turn.output_tokens = done.usage.input_tokens, done.usage.output_tokens
            case Notify(TurnTimings(response_id, final=True) as timings):
                return self._close(response_id, timings)
            case _:
                pass
        return None

    def _turn(self, response_id: int) -> Turn:
        turn = self._open.get(response_id)
        if turn is None:
            if len(self._open) == _MOST_OPEN:
                del self._open[next(iter(self._open))]
            turn = self._open[response_id] = Turn(response_id)
        return turn

    def _close(self, response_id: int, timings: TurnTimings) -> Turn | None:
        turn = self._open.pop(response_id, None)
        if turn is None or "turn_end" not in turn.marks:
            return None
        turn.route = timings.route
        if "speech_end" in timings.marks_ms:  # no action tells it: it lies before the decision
            since_ms = timings.marks_ms["turn_end"] - timings.marks_ms["speech_end"]
            turn.marks["speech_end"] = turn.marks["turn_end"] - since_ms / 1000
        deltas = [turn.marks[name] for name in _FIRST_DELTAS if name in turn.marks]
        if deltas:
            turn.marks["first_delta"] = min(deltas)
        return turn
