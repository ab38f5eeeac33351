"""What a client does to the items of a conversation. Sans-I/O."""

from typing import assert_never

from . import events as ev
from .audio import RATE
from .errors import ClientEventError
from .frames import Frame
from .history import (
    AudioContent,
    CallContent,
    Content,
    History,
    Item,
    SpokenContent,
    TextContent,
)
from .listener import Listener
from .outbox import Outbox
from .speaker import Speaker
from .transcripts import Transcripts

ItemEvent = (
    ev.CreateItem | ev.CreateCall | ev.CreateResult | ev.RetrieveItem | ev.DeleteItem | ev.TruncateItem
)


class Items:
    """Obeys what a client wants with items, or raises ClientEventError and changes nothing."""

    def __init__(
        self,
        history: History,
        listener: Listener,
        speaker: Speaker,
        transcripts: Transcripts,
        outbox: Outbox,
    ) -> None:
        self._history = history
        self._listener = listener
        self._speaker = speaker
        self._transcripts = transcripts
        self._outbox = outbox

    def receive(self, event: ItemEvent, now: float) -> None:
        """Do what is asked; `now` is monotonic seconds."""
        match event:
            case ev.CreateItem():
                self._create(event, now)
            case ev.CreateCall():
                self._create_call(event, now)
            case ev.CreateResult():
                self._create_result(event, now)
            case ev.RetrieveItem(item_id):
                self._outbox.notify(ev.ItemRetrieved(self.known(item_id)))
            case ev.DeleteItem(item_id):
                self._delete(item_id, now)
            case ev.TruncateItem():
                self._truncate(event, now)
            case _:  # pragma: no cover
                assert_never(event)

    def known(self, item_id: str, param: str = "item_id") -> Item:
        """Return an item, or raise ClientEventError, naming `param`."""
        item = self._history.get(item_id)
        if item is None:
            raise ClientEventError(f"There is no item {item_id!r}.", code="item_not_found", param=param)
        return item

    def _create(self, event: ev.CreateItem, now: float) -> None:
        item_id = self._place(event)
        self._speaker.drop_draft(now)
        position = self._listener.position
        media = tuple(content.moved(position) for content in event.media)
        frames: tuple[Frame, ...] = ()
        if event.role == "user":
            if not media:
                frames = self._listener.look()
            self._speaker.newest_item = item_id
            self._speaker.heed_user()
        written: tuple[Content, ...] = ()
        if event.text or not media:
            written = (SpokenContent(event.text) if event.spoken else TextContent(event.text),)
        unheard = any(isinstance(content, AudioContent) and content.transcript is None for content in media)
        previous = self._history.append_message(
            Item(item_id, event.role, (*written, *media)),
            frames,
            event.previous_item_id,
            awaits_transcript=unheard,
        )
        if unheard:
            self._transcripts.expect(item_id, now)
        self._outbox.notify_item(self._history.item(item_id), previous)

    def _create_call(self, event: ev.CreateCall, now: float) -> None:
        if event.call_id is not None and self._history.find_call(event.call_id) is not None:
            raise ClientEventError(
                f"There is a call {event.call_id!r} already.", code="call_exists", param="item.call_id"
            )
        item_id = self._place(event)
        self._speaker.drop_draft(now)
        call_id = self._history.new_call_id(event.call_id or "")
        call = CallContent(call_id, event.name, event.arguments)
        previous = self._history.append_call(item_id, call, event.previous_item_id)
        self._outbox.notify_item(self._history.item(item_id), previous)

    def _create_result(self, event: ev.CreateResult, now: float) -> None:
        if self._speaker.receive_result(event.call_id, event.output, now):
            if event.seen:
                self._show(event.seen)
            return
        if self._history.find_call(event.call_id) is None:
            raise ClientEventError(
                f"There is no call {event.call_id!r}.", code="call_not_found", param="item.call_id"
            )
        if self._history.has_result(event.call_id):
            raise ClientEventError(
                f"The call {event.call_id!r} has a result already.",
                code="result_exists",
                param="item.call_id",
            )
        item_id = self._place(event)
        self._speaker.drop_draft(now)
        previous = self._history.append_result(item_id, event.call_id, event.output, event.previous_item_id)
        self._outbox.notify_item(self._history.item(item_id), previous)

    def _show(self, words: str) -> None:
        """Put what is seen now into the history: engines take pictures from nobody but the user."""
        item_id = self._history.new_item_id()
        item = Item(item_id, "user", (TextContent(words),))
        previous = self._history.append_message(item, self._listener.look())
        self._outbox.notify_item(self._history.item(item_id), previous)

    def _place(self, event: ev.CreateItem | ev.CreateCall | ev.CreateResult) -> str:
        """Return the id of an item to be; its place is known, too."""
        item_id = event.item_id or self._history.new_item_id()
        if item_id == self._listener.speech_item or self._history.get(item_id) is not None:
            raise ClientEventError(
                f"There is an item {item_id!r} already.", code="item_exists", param="item.id"
            )
        if event.previous_item_id is not None and event.previous_item_id != "root":
            self.known(event.previous_item_id, "previous_item_id")
        return item_id

    def _delete(self, item_id: str, now: float) -> None:
        self.known(item_id)
        self._speaker.drop_draft(now)
        if self._speaker.says(item_id):
            self._speaker.interrupt(now, "client_cancelled")
        self._transcripts.forget(item_id)
        self._history.delete(item_id)
        self._outbox.notify(ev.ItemDeleted(item_id))

    def _truncate(self, event: ev.TruncateItem, now: float) -> None:
        """Cut a reply to what the client says was heard. What was cut already does not come back."""
        self.known(event.item_id)
        length = self._history.spoken_length(event.item_id)
        if length is None:
            raise ClientEventError(
                f"{event.item_id!r} is no item that was spoken in this call.",
                code="item_not_spoken",
                param="item_id",
            )
        heard = event.audio_end_ms * RATE // 1000
        if heard > length:
            raise ClientEventError(
                f"{event.item_id!r} has {length * 1000 // RATE} ms of sound, not {event.audio_end_ms}.",
                code="invalid_value",
                param="audio_end_ms",
            )
        self._speaker.drop_draft(now)
        if self._speaker.says(event.item_id):
            self._speaker.interrupt(now, "client_cancelled", heard=heard)
        else:
            self._speaker.truncate(event.item_id, heard)
