"""Which of the user's turns still await their transcript, and what is told once it comes. Sans-I/O."""

from collections.abc import Collection

from . import events as ev
from .engine import TranscriptDelta
from .history import History
from .outbox import Outbox
from .response import Response


class Transcripts:
    """Writes transcripts into the history. Each turn that is awaited ends in one `Done` or `Failed`."""

    def __init__(self, history: History, outbox: Outbox, patience_s: float) -> None:
        self._history = history
        self._outbox = outbox
        self._patience_s = patience_s
        self._awaited: dict[str, float] = {}
        "Items, and until when each is waited for."
        self.told = True
        "The client wants to know. They are kept all the same, since the history lives on them."

    @property
    def deadlines(self) -> Collection[float]:
        """When patience with each ends, in monotonic seconds."""
        return self._awaited.values()

    def expect(self, item_id: str, now: float) -> None:
        """Wait for the transcript of a turn that has just been said."""
        self._awaited[item_id] = now + self._patience_s

    def receive(self, response: Response, delta: TranscriptDelta) -> bool:
        """Take what the engine heard in the turn that it answers; tell whether that is whole now."""
        item_id = response.answers
        if item_id is None or item_id not in self._awaited:
            return False
        response.transcript += delta.text
        if not delta.final:
            self._tell(ev.TranscriptPart(item_id, delta.text))
            return False
        # A turn whose response was broken off went to the engine again with this one, as one message.
        for earlier in self._history.joined_before(item_id):
            if earlier in self._awaited:
                self._finish(earlier, "")
        self._finish(item_id, response.transcript)
        return True

    def miss(self, item_id: str | None) -> None:
        """Note that an answer is over: what has no transcript by now gets none."""
        if item_id is not None and item_id in self._awaited:
            self._fail(item_id, "The engine gave no transcript.")

    def forget(self, item_id: str) -> None:
        """The turn is part of another now."""
        self._awaited.pop(item_id, None)

    def handle_timeout(self, now: float) -> None:
        """Give up what is overdue."""
        for item_id in [item_id for item_id, due in self._awaited.items() if now >= due]:
            self._fail(item_id, "No transcript came in time.")

    def _finish(self, item_id: str, text: str) -> None:
        del self._awaited[item_id]
        self._history.set_transcript(item_id, text)
        self._tell(ev.TranscriptDone(item_id, text))

    def _fail(self, item_id: str, message: str) -> None:
        del self._awaited[item_id]
        self._history.fail_transcript(item_id)
        self._tell(ev.TranscriptFailed(item_id, message))

    def _tell(self, event: ev.TranscriptPart | ev.TranscriptDone | ev.TranscriptFailed) -> None:
        if self.told:
            self._outbox.notify(event)
