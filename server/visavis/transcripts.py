"""Which of the user's turns still await their transcript, and what is told once it comes. Sans-I/O."""

from collections.abc import Collection
from typing import TypeAlias

from . import events as ev
from .engine import TranscriptDelta
from .history import History
from .response import Response

TranscriptEvent: TypeAlias = ev.TranscriptPart | ev.TranscriptDone | ev.TranscriptFailed


class Transcripts:
    """Writes transcripts into the history. Each turn that is awaited ends in one `Done` or `Failed`."""

    def __init__(self, history: History, patience_s: float) -> None:
        self._history = history
        self._patience_s = patience_s
        self._awaited: dict[str, float] = {}
        "Items, and until when each is waited for."

    @property
    def deadlines(self) -> Collection[float]:
        """When patience with each ends, in monotonic seconds."""
        return self._awaited.values()

    def expect(self, item_id: str, now: float) -> None:
        """Wait for the transcript of a turn that has just been said."""
        self._awaited[item_id] = now + self._patience_s

    def receive(self, response: Response, delta: TranscriptDelta) -> list[TranscriptEvent]:
        """Take what the engine heard in the turn that it answers."""
        item_id = response.answers
        if item_id is None or item_id not in self._awaited:
            return []
        response.transcript += delta.text
        if not delta.final:
            return [ev.TranscriptPart(item_id, delta.text)]
        # A turn whose response was broken off went to the engine again with this one, as one message.
        joined = [earlier for earlier in self._history.joined_before(item_id) if earlier in self._awaited]
        return [self._finish(earlier, "") for earlier in joined] + [
            self._finish(item_id, response.transcript)
        ]

    def miss(self, item_id: str | None) -> list[TranscriptEvent]:
        """Note that an answer is over: what has no transcript by now gets none."""
        return [self._fail(item_id, "The engine gave no transcript.")] if item_id in self._awaited else []

    def forget(self, item_id: str) -> None:
        """The turn is part of another now."""
        self._awaited.pop(item_id, None)

    def handle_timeout(self, now: float) -> list[TranscriptEvent]:
        """Give up what is overdue."""
        overdue = [item_id for item_id, due in self._awaited.items() if now >= due]
        return [self._fail(item_id, "No transcript came in time.") for item_id in overdue]

    def _finish(self, item_id: str, text: str) -> TranscriptEvent:
        del self._awaited[item_id]
        self._history.set_transcript(item_id, text)
        return ev.TranscriptDone(item_id, text)

    def _fail(self, item_id: str, message: str) -> TranscriptEvent:
        del self._awaited[item_id]
        self._history.fail_transcript(item_id)
        return ev.TranscriptFailed(item_id, message)
