"""OpenAI's Realtime events, on a data channel or a WebSocket, to and from the conversation's own. Sans-I/O.

Ids on the wire are made of the call's id and a number that counts up, so that a call replayed gives the
same bytes. Events of ours that the interface does not have begin with `visavis.`; stock clients skip them.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, assert_never

from .. import events as ev
from ..audio import RATE
from ..config import SessionConfig, SoundFormat
from ..engine import Usage
from ..errors import ClientEventError, EngineError, VisavisError
from ..history import (
    AudioContent,
    CallContent,
    FramesContent,
    Item,
    ResultContent,
    SpokenContent,
    TextContent,
)
from ..wire import Asked
from .fields import Fields, optional, parse, text
from .realtime_client import read_event
from .realtime_items import Later
from .realtime_session import MAX_ID, output_object, session_object
from .realtime_sound import APPEND, SoundReader, SoundWriter
from .realtime_tools import call_events, call_object, result_object

Body = dict[str, Any]

_MAX_UNTRANSCRIBED = 64
"Turns whose length is remembered for the transcript that they may still get."


Dialect = Callable[[Body], Iterable[Body]]
"Gives the body of an event as a client knows it, or nothing."


def _as_is(body: Body) -> tuple[Body]:
    return (body,)


@dataclass(slots=True)
class _Reply:
    """What of a response must be remembered between its events."""

    asked: ev.ResponseCreated
    sound: SoundWriter
    item_id: str = ""
    texts: list[str] = field(default_factory=list)

    @property
    def spoken(self) -> bool:
        return "audio" in self.asked.output_modalities


_PING = "visavis.ping"
"Ours: in a call in which nobody speaks, whoever gets an answer knows that there is a way to the server."


class RealtimeProtocol:
    """The wire of one call: `encode` what the conversation tells, `decode` what the client sends.

    `model` is the name that the client is told, whatever name it asked for; `expires_at` is Unix seconds.
    `dialect` gives events as another version of the interface has them. With `tells_audio` the client has
    no track: it is told what to play, and not how far that is.
    """

    label = "oai-events"

    def __init__(
        self,
        call_id: str,
        model: str,
        *,
        expires_at: int | None = None,
        tells_audio: bool = False,
        dialect: Dialect = _as_is,
    ) -> None:
        self._dialect = dialect
        self.tells_audio = tells_audio
        self._heard = SoundReader()
        self._output_format: SoundFormat = "audio/pcm"
        self._model = model
        self._expires_at = expires_at
        self._key = call_id.removeprefix("rtc_")
        self._events = 0
        self._replies: dict[int, _Reply] = {}
        self._spoken: dict[str, tuple[float, int]] = {}
        "Seconds of sound in an item, and the index of that part of it."
        self._answering: str | None = None
        "`event_id` of the client's message at hand."

    # To the client.

    def encode(self, event: ev.ServerEvent) -> list[str]:
        """Return the messages that tell one event, in the order to send them."""
        outside = self._is_outside(event)
        bodies = (body for body in self._expand(event) if not (outside and _is_of_conversation(body)))
        return [self._message(told) for body in bodies for told in self._dialect(body)]

    def _is_outside(self, event: ev.ServerEvent) -> bool:
        """Tell whether it is of a response whose items are not in the conversation."""
        reply = self._replies.get(getattr(event, "response_id", 0))
        return reply is not None and reply.asked.outside

    def encode_error(self, error: VisavisError, *, echo: bool = True) -> str:
        """Return the message that tells an error.

        A ClientEventError without `event_id` carries that of the message decoded last, whose handling it
        ended; `echo` is False for one that has nothing to do with it.
        """
        body: Body = {"type": "server_error", "code": "internal_error", "message": str(error)}
        body |= {"param": None, "event_id": None}
        match error:
            case ClientEventError():
                body |= {"type": "invalid_request_error", "code": error.code, "param": error.param}
                body["event_id"] = error.event_id or (self._answering if echo else None)
                self._answering = None
            case EngineError():
                body["code"] = error.code
        return self._message({"type": "error", "error": body})

    def farewell(self) -> list[str]:
        """Return what tells the client that the server hangs up: there is no such event."""
        return []

    def session_object(self, session: SessionConfig) -> Body:
        """Return the whole session as the client is told it."""
        return session_object(
            session, session_id=f"sess_{self._key}", model=self._model, expires_at=self._expires_at
        )

    def _message(self, body: Body) -> str:
        self._events += 1
        identified = {"type": body["type"], "event_id": f"event_{self._key}_{self._events}"} | body
        message = json.dumps(identified, ensure_ascii=False, separators=(",", ":"))
        # An engine may cut its text inside a surrogate pair; half a pair cannot be sent as UTF-8.
        return message.encode("utf-8", "replace").decode("utf-8")

    def _expand(self, event: ev.ServerEvent) -> Iterator[Body]:
        match event:
            case ev.SessionCreated(session):
                self._output_format = session.output_format
                yield {"type": "session.created", "session": self.session_object(session)}
                conversation = {"id": f"conv_{self._key}", "object": "realtime.conversation"}
                yield {"type": "conversation.created", "conversation": conversation}
            case ev.SessionUpdated(session):
                self._output_format = session.output_format
                yield {"type": "session.updated", "session": self.session_object(session)}
            case ev.SpeechBegan(item_id, at_ms):
                yield {
                    "type": "input_audio_buffer.speech_started",
                    "audio_start_ms": at_ms,
                    "item_id": item_id,
                }
            case ev.SpeechEnded(item_id, at_ms):
                yield {
                    "type": "input_audio_buffer.speech_stopped",
                    "audio_end_ms": at_ms,
                    "item_id": item_id,
                }
            case ev.TurnCommitted(item_id, previous):
                yield {
                    "type": "input_audio_buffer.committed",
                    "item_id": item_id,
                    "previous_item_id": previous,
                }
            case ev.TimeoutTriggered(item_id, start_ms, end_ms):
                yield {
                    "type": "input_audio_buffer.timeout_triggered",
                    "audio_start_ms": start_ms,
                    "audio_end_ms": end_ms,
                    "item_id": item_id,
                }
            case ev.InputCleared():
                yield {"type": "input_audio_buffer.cleared"}
            case ev.ItemAdded(item, previous):
                self._remember_length(item)
                yield _item_event("conversation.item.added", item, previous)
            case ev.ItemDone(item, previous):
                yield _item_event("conversation.item.done", item, previous)
            case ev.ItemRetrieved(item):
                yield {"type": "conversation.item.retrieved", "item": _item_object(item)}
            case ev.ItemTruncated():
                # `transcript` is ours: what is left of the text, so that captions can be cut with it.
                yield {
                    "type": "conversation.item.truncated",
                    "item_id": event.item_id,
                    "content_index": 0,
                    "audio_end_ms": event.audio_end_ms,
                    "transcript": event.text,
                }
            case ev.TranscriptPart() | ev.TranscriptDone() | ev.TranscriptFailed():
                yield self._transcription(event)
            case (
                ev.ResponseCreated()
                | ev.ReplyBegan()
                | ev.ReplyText()
                | ev.ReplyAudio()
                | ev.ReplyEnded()
                | ev.ResponseDone()
            ):
                yield from self._expand_response(event)
            case ev.CallBegan() | ev.CallArguments() | ev.CallEnded() | ev.CallAnswered():
                yield from call_events(event, self._response_id(event.response_id))
            case ev.ThinkingBegan(response_id):
                yield {"type": "visavis.thinking_started", "response_id": self._response_id(response_id)}
            case ev.ThinkingEnded(response_id):
                yield {"type": "visavis.thinking_stopped", "response_id": self._response_id(response_id)}
            case ev.PlayoutStarted() | ev.PlayoutStopped() | ev.PlayoutCleared() if self.tells_audio:
                pass  # how far it has played is the client's to know
            case ev.PlayoutStarted(response_id):
                yield {"type": "output_audio_buffer.started", "response_id": self._response_id(response_id)}
            case ev.PlayoutStopped(response_id):
                yield {"type": "output_audio_buffer.stopped", "response_id": self._response_id(response_id)}
            case ev.PlayoutCleared(response_id):
                yield {"type": "output_audio_buffer.cleared", "response_id": self._response_id(response_id)}
            case ev.ItemDeleted(item_id):
                yield {"type": "conversation.item.deleted", "item_id": item_id}
            case ev.StanceChanged(response_id, stance):
                yield {
                    "type": "visavis.output_stance",
                    "response_id": self._response_id(response_id),
                    "stance": stance,
                }
            case ev.CameraWanted(fps):
                yield {"type": "visavis.camera.wanted", "fps": fps}
            case ev.Resumed(item_ids):
                yield {"type": "visavis.resumed", "item_ids": list(item_ids)}
            case ev.TurnTimings():
                yield {
                    "type": "visavis.turn_timings",
                    "response_id": self._response_id(event.response_id),
                    "item_id": event.item_id,
                    "marks": dict(event.marks_ms),
                    "final": event.final,
                }
            case ev.RateLimits(limit, remaining, reset_s):
                # Of tokens there is none: only what is bounded is told.
                requests = {"name": "requests", "limit": limit, "remaining": remaining}
                limits = [requests | {"reset_seconds": round(reset_s, 3)}]
                yield {"type": "rate_limits.updated", "rate_limits": limits}
            case ev.CallEnding(reason, seconds, code):
                yield {"type": "visavis.call_ending", "reason": reason, "seconds": seconds, "code": code}
            case _:
                assert_never(event)

    def _transcription(self, event: ev.TranscriptPart | ev.TranscriptDone | ev.TranscriptFailed) -> Body:
        kind = "conversation.item.input_audio_transcription"
        seconds, index = self._spoken.get(event.item_id, (0.0, 0))
        of_item = {"item_id": event.item_id, "content_index": index}
        if isinstance(event, ev.TranscriptPart):
            return {"type": f"{kind}.delta", **of_item, "delta": event.text}
        self._spoken.pop(event.item_id, None)
        if isinstance(event, ev.TranscriptDone):
            usage = {"type": "duration", "seconds": seconds}
            return {"type": f"{kind}.completed", **of_item, "transcript": event.text, "usage": usage}
        error = {"type": "server_error", "code": "transcription_failed", "message": event.message}
        return {"type": f"{kind}.failed", **of_item, "error": error}

    def _remember_length(self, item: Item) -> None:
        for index, content in enumerate(item.content):
            if isinstance(content, AudioContent) and content.pcm is not None:
                self._spoken[item.id] = (round(len(content.pcm) / RATE, 2), index)
        while len(self._spoken) > _MAX_UNTRANSCRIBED:
            del self._spoken[next(iter(self._spoken))]

    # Responses to the client.

    def _expand_response(
        self,
        event: ev.ResponseCreated
        | ev.ReplyBegan
        | ev.ReplyText
        | ev.ReplyAudio
        | ev.ReplyEnded
        | ev.ResponseDone,
    ) -> Iterator[Body]:
        of_response = {"response_id": self._response_id(event.response_id)}
        match event:
            case ev.ResponseCreated():
                sound = SoundWriter(self._output_format)
                self._replies[event.response_id] = _Reply(event, sound)
                yield {"type": "response.created", "response": self._response_object(event)}
            case ev.ReplyBegan(response_id, item, previous):
                reply = self._replies[response_id]
                reply.item_id = item.id
                begun = _item_object(item) | {"status": "in_progress", "content": []}
                yield {"type": "response.output_item.added", **of_response, "output_index": 0, "item": begun}
                yield {"type": "conversation.item.added", "previous_item_id": previous, "item": begun}
                yield {
                    "type": "response.content_part.added",
                    **self._of_part(response_id),
                    "part": _part_object(reply),
                }
            case ev.ReplyText(response_id):
                reply = self._replies[response_id]
                reply.texts.append(event.text)
                kind = "output_audio_transcript" if reply.spoken else "output_text"
                yield {"type": f"response.{kind}.delta", **self._of_part(response_id), "delta": event.text}
            case ev.ReplyAudio(response_id, _, pcm):
                yield from self._sound(response_id, self._replies[response_id].sound.write(pcm))
            case ev.ReplyEnded(response_id, item, previous):
                yield from self._end_part(response_id)
                yield _item_event("conversation.item.done", item, previous)
                yield {
                    "type": "response.output_item.done",
                    **of_response,
                    "output_index": 0,
                    "item": _item_object(item),
                }
            case ev.ResponseDone():
                yield {"type": "response.done", "response": self._response_object(event)}
                del self._replies[event.response_id]
            case _:
                assert_never(event)

    def _end_part(self, response_id: int) -> Iterator[Body]:
        """Tell that the reply's only part is whole. Its text is the sum of the deltas told."""
        reply = self._replies[response_id]
        place = self._of_part(response_id)
        whole = "".join(reply.texts)
        if reply.spoken:
            if self.tells_audio:
                yield from self._sound(response_id, reply.sound.finish())
            yield {"type": "response.output_audio.done", **place}
            yield {"type": "response.output_audio_transcript.done", **place, "transcript": whole}
        else:
            yield {"type": "response.output_text.done", **place, "text": whole}
        yield {"type": "response.content_part.done", **place, "part": _part_object(reply)}

    def _sound(self, response_id: int, sound: str) -> Iterator[Body]:
        if sound:
            place = self._of_part(response_id)
            yield {"type": "response.output_audio.delta", **place, "delta": sound}

    def _of_part(self, response_id: int) -> Body:
        return {
            "response_id": self._response_id(response_id),
            "item_id": self._replies[response_id].item_id,
            "output_index": 0,
            "content_index": 0,
        }

    def _response_object(self, event: ev.ResponseCreated | ev.ResponseDone) -> Body:
        asked = self._replies[event.response_id].asked
        body: Body = {
            "object": "realtime.response",
            "id": self._response_id(event.response_id),
            "conversation_id": None if asked.outside else f"conv_{self._key}",
            "output_modalities": list(asked.output_modalities),
            "max_output_tokens": asked.max_output_tokens or "inf",
            "audio": {"output": output_object(self._output_format, asked.voice)},
            "status": "in_progress",
            "output": [],
        }
        if asked.metadata:
            body["metadata"] = dict(asked.metadata)
        if isinstance(event, ev.ResponseCreated):
            return body
        body["status"] = event.status
        reply = () if event.item is None else (event.item,)
        body["output"] = [_item_object(item) for item in (*reply, *event.calls)]
        if event.status == "failed":
            error = {"type": "server_error", "code": event.error_code, "message": event.error_message}
            body["status_details"] = {"type": "failed", "error": error}
        elif event.reason is not None:
            body["status_details"] = {"type": event.status, "reason": event.reason}
        if event.usage is not None:
            body["usage"] = _usage_object(event.usage)
        return body

    def _response_id(self, response_id: int) -> str:
        return f"resp_{self._key}_{response_id}"

    # From the client.

    def decode(self, message: str | bytes, session: SessionConfig) -> Asked:
        """Return what a client's message asks for; `session` is what its changes are laid over.

        Raises ClientEventError for whatever is wrong with it, and nothing else.
        """
        self._answering = None
        fields = Fields(parse(message))
        self._answering = fields.read("event_id", optional(text(512)), None)
        try:
            kind = fields.read("type", optional(text(MAX_ID)), None)
            if kind == _PING:
                return Asked(replies=(self._message({"type": "visavis.pong"}),))
            if kind == APPEND:
                sound = fields.require("audio", partial(self._heard.read, kind=session.input_format))
                return Asked(sound=sound)
            event = read_event(fields, session, self._key)
            if callable(event):
                return Asked(later=partial(_made, event, self._answering))
            if isinstance(event, ev.ClearAudio):
                self._heard.clear()
            return Asked((event,))
        except ClientEventError as error:
            error.event_id = self._answering
            raise


def _made(make: Later[ev.ClientEvent], answering: str | None) -> ev.ClientEvent:
    try:
        return make()
    except ClientEventError as error:
        error.event_id = answering
        raise


def _is_of_conversation(body: Body) -> bool:
    return bool(body["type"].startswith("conversation."))


def _usage_object(usage: Usage) -> Body:
    """Return what a response cost. Details that the engine does not tell are left out: none is made up."""
    body: Body = {
        "total_tokens": usage.input_tokens + usage.output_tokens,
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
    }
    read = _details(usage.input_tokens, audio=usage.input_audio_tokens, image=usage.input_image_tokens)
    if usage.cached_tokens is not None:
        read["cached_tokens"] = usage.cached_tokens
    if read:
        body["input_token_details"] = read
    if written := _details(usage.output_tokens, audio=usage.output_audio_tokens):
        body["output_token_details"] = written
    return body


def _details(whole: int, **kinds: int | None) -> Body:
    """Return how many tokens are of what kind; text is the rest, if all else is known."""
    known = {f"{kind}_tokens": count for kind, count in kinds.items() if count is not None}
    if len(known) == len(kinds):
        known["text_tokens"] = max(0, whole - sum(known.values()))
    return known


def _item_event(kind: str, item: Item, previous: str | None) -> Body:
    return {"type": kind, "previous_item_id": previous, "item": _item_object(item)}


def _item_object(item: Item) -> Body:
    if item.call is not None:
        return call_object(item, item.call)
    if item.result is not None:
        return result_object(item, item.result)
    content: list[Body] = []
    for part in item.content:
        match part:
            case TextContent():
                kind = "output_text" if item.role == "assistant" else "input_text"
                content.append({"type": kind, "text": part.text})
            case AudioContent():
                # The key must be there even when nothing is known yet: stock clients lose the item else.
                content.append({"type": "input_audio", "transcript": part.transcript})
            case SpokenContent():
                content.append({"type": "output_audio", "transcript": part.transcript})
            case FramesContent() | CallContent() | ResultContent():
                # Pictures are not told: an `input_image` without its data is invalid to stock clients.
                pass
            case _:
                assert_never(part)
    return {
        "id": item.id,
        "object": "realtime.item",
        "type": "message",
        "status": item.status,
        "role": item.role,
        "content": content,
    }


def _part_object(reply: _Reply) -> Body:
    whole = "".join(reply.texts)
    return {"type": "audio", "transcript": whole} if reply.spoken else {"type": "text", "text": whole}
