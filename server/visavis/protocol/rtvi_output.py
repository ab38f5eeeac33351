"""What the bot says, in RTVI's words: sentence by sentence, and how much of each was heard. Sans-I/O."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from .. import events as ev

Body = dict[str, Any]

_SENTENCE = re.compile(r"[.!?…]+[\"'”’»)\]]*\s+|[。！？]+[」』”]*\s*|\n+")
"What ends one."


@dataclass(slots=True)
class _Segment:
    """A sentence, and its place in the text of the reply."""

    id: int
    text: str
    start: int
    end: int
    told: bool = False
    "It has been told that all of it was spoken."


@dataclass(slots=True)
class _Reply:
    response_id: int
    spoken: bool
    item_id: str = ""
    text: str = ""
    cut: int = 0
    "Up to where it has been told in sentences."
    segments: list[_Segment] = field(default_factory=list)
    interrupted: bool = False


class BotOutput:
    """Tells of one response after another."""

    def __init__(self) -> None:
        self.legacy = False
        "The client speaks version 1, which has each sentence once and no progress."
        self._reply: _Reply | None = None
        self._segments = 0

    def tell(self, event: ev.ServerEvent) -> Iterator[tuple[str, Body | None]]:
        """Give type and data of the messages that tell an event; none if it is not of what the bot says."""
        if isinstance(event, ev.ResponseCreated):
            self._reply = _Reply(event.response_id, spoken="audio" in event.output_modalities)
            yield "bot-llm-started", None
            return
        reply = self._reply
        if reply is None:
            return
        match event:
            case ev.ReplyBegan(reply.response_id, item):
                reply.item_id = item.id
                if reply.spoken:
                    yield "bot-tts-started", None
            case ev.ReplyText(reply.response_id, _, text):
                reply.text += text
                yield "bot-llm-text", {"text": text}
                for end in [found.end() for found in _SENTENCE.finditer(reply.text, reply.cut)]:
                    yield from self._tell_sentence(reply, end)
            case ev.ReplyEnded(reply.response_id):
                yield from self._tell_sentence(reply, len(reply.text))
                if reply.spoken:
                    yield "bot-tts-stopped", None
            case ev.ResponseDone(reply.response_id, status):
                yield "bot-llm-stopped", None
                if status == "cancelled":
                    yield from self._interrupt(reply)
            case ev.PlayoutStarted(reply.response_id):
                yield "bot-started-speaking", None
            case ev.PlayoutStopped(reply.response_id):
                yield from self._tell_progress(reply, len(reply.text))
                yield "bot-stopped-speaking", None
            case ev.PlayoutCleared(reply.response_id):
                yield from self._interrupt(reply)
                yield "bot-stopped-speaking", None
            case ev.ItemTruncated(reply.item_id, _, left):
                yield from self._tell_progress(reply, len(left))
            case _:
                pass

    def _tell_sentence(self, reply: _Reply, end: int) -> Iterator[tuple[str, Body | None]]:
        start, reply.cut = reply.cut, end
        text = reply.text[start:end].strip()
        if not text:
            return
        self._segments += 1
        segment = _Segment(self._segments, text, start, end)
        reply.segments.append(segment)
        if self.legacy:
            yield "bot-output", {"text": text, "aggregated_by": "sentence", "spoken": reply.spoken}
        else:
            told = {"will_be_spoken": reply.spoken, "spoken_status": "new"}
            if reply.spoken:
                told["spoken_progress"] = {"accumulated_text": "", "remaining_text": text}
            yield "bot-output", _output(segment) | told
        yield "bot-transcription", {"text": text}
        if reply.spoken:
            yield "bot-tts-text", {"text": text}

    def _tell_progress(self, reply: _Reply, heard: int) -> Iterator[tuple[str, Body | None]]:
        """Tell of the sentences which were spoken, up to `heard` characters of the reply."""
        for segment in reply.segments:
            if self.legacy or segment.told or not reply.spoken or heard <= segment.start:
                continue
            spoken = reply.text[segment.start : min(heard, segment.end)].strip()
            left = segment.text.removeprefix(spoken).strip()
            segment.told = not left
            yield (
                "bot-output",
                _output(segment)
                | {
                    "will_be_spoken": True,
                    "spoken_status": "in-progress" if left else "completed",
                    "spoken_progress": {"accumulated_text": spoken, "remaining_text": left},
                },
            )

    def _interrupt(self, reply: _Reply) -> Iterator[tuple[str, Body | None]]:
        if not reply.interrupted:
            reply.interrupted = True
            yield "bot-interrupted", None


def _output(segment: _Segment) -> Body:
    return {"text": segment.text, "aggregated_by": "sentence", "segment_id": segment.id}
