"""A conversation as bytes: what a call leaves behind, and another goes on from. Sans-I/O.

Compressed JSON, and after it the sound as it is: it would cost a hundred times as much to make less of it.
"""

import json
import zlib
from dataclasses import asdict, dataclass, fields
from io import BytesIO
from typing import Any

import numpy as np

from .audio import Pcm
from .config import SessionConfig, Tool, ToolChoice, Transcription, Truncation, TurnDetection
from .errors import ConfigError, VisavisError
from .history import (
    AudioContent,
    CallContent,
    Content,
    Item,
    ResultContent,
    SpokenContent,
    TextContent,
)
from .unsaid import Unsaid

_FORMAT = 2
"Of the bytes; those of another are not read."

_MAX_BYTES = 64 << 20
"Of the JSON. The history's own bounds are below it; a store may hold what somebody else has put there."


_TABLES: dict[str, type[Any]] = {
    "turn_detection": TurnDetection,
    "transcription": Transcription,
    "truncation": Truncation,
}
"Settings of a session that have settings of their own."


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What was said, and what the client had set."""

    items: tuple[Item, ...]
    "As `History.remembered` gives them."
    session: SessionConfig
    unsaid: Unsaid | None = None
    "Of the answer that was given, or awaited, at the time."

    def pack(self) -> bytes:
        """Write it down; some hundred bytes a turn, and its sound while that has no transcript."""
        sounds: list[Pcm] = []
        body = {
            "format": _FORMAT,
            "session": asdict(self.session),
            "unsaid": None if self.unsaid is None else asdict(self.unsaid),
            "items": [
                {
                    "id": item.id,
                    "role": item.role,
                    "status": item.status,
                    "content": [_content_body(content, sounds) for content in item.content],
                }
                for item in self.items
            ],
        }
        text = json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
        return b"".join((zlib.compress(text), *(pcm.astype("<i2", copy=False).tobytes() for pcm in sounds)))


class UnreadableSnapshotError(VisavisError):
    """The bytes are no snapshot of this version."""


def unpack(data: bytes) -> Snapshot:
    """Read what `Snapshot.pack` wrote. Raises UnreadableSnapshotError."""
    try:
        inflater = zlib.decompressobj()
        text = inflater.decompress(data, _MAX_BYTES)
        if not inflater.eof:
            raise ValueError("it is cut off, or too long")
        body = json.loads(text)
        if body["format"] != _FORMAT:
            raise ValueError(f"it has format {body['format']!r}, this version reads {_FORMAT}")
        sounds = BytesIO(inflater.unused_data)
        items = tuple(
            Item(
                item["id"],
                item["role"],
                tuple(_content(each, sounds) for each in item["content"]),
                item["status"],
            )
            for item in body["items"]
        )
        if sounds.read(1):
            raise ValueError("there is more sound than it tells of")
        if len({item.id for item in items}) < len(items):
            raise ValueError("two items have the same id")
        return Snapshot(items, _session(body["session"]), _unsaid(body.get("unsaid")))
    except (zlib.error, ValueError, KeyError, TypeError, AttributeError, ConfigError) as error:
        raise UnreadableSnapshotError(f"a conversation that was kept cannot be read: {error}") from error


# Any: values of JSON; what has a wrong form raises, and is told as such.


def _content_body(content: Content, sounds: list[Pcm]) -> dict[str, Any]:
    """Write down a content; its sound is added to `sounds`."""
    match content:
        case TextContent(text):
            return {"kind": "text", "text": text}
        case SpokenContent(transcript):
            return {"kind": "spoken", "transcript": transcript}
        case AudioContent(pcm, transcript):
            samples = None
            if pcm is not None:
                sounds.append(pcm)
                samples = len(pcm)
            return {"kind": "audio", "transcript": transcript, "samples": samples}
        case CallContent(call_id, name, arguments, own):
            return {"kind": "call", "call_id": call_id, "name": name, "arguments": arguments, "own": own}
        case ResultContent(call_id, output):
            return {"kind": "result", "call_id": call_id, "output": output}
        case _:
            raise TypeError("pictures are not kept")


def _content(body: dict[str, Any], sounds: BytesIO) -> Content:
    """Read a content; its sound is the next of `sounds`."""
    match body:
        case {"kind": "text", "text": str(text)}:
            return TextContent(text)
        case {"kind": "spoken", "transcript": str(transcript)}:
            return SpokenContent(transcript)
        case {"kind": "audio", "transcript": None | str() as transcript, "samples": None | int() as samples}:
            return AudioContent(None if samples is None else _pcm(sounds, samples), transcript)
        case {
            "kind": "call",
            "call_id": str(call_id),
            "name": str(name),
            "arguments": str(arguments),
            "own": bool(own),
        }:
            return CallContent(call_id, name, arguments, own)
        case {"kind": "result", "call_id": str(call_id), "output": str(output)}:
            return ResultContent(call_id, output)
        case _:
            raise ValueError("an item has content of an unknown kind")


def _pcm(sounds: BytesIO, samples: int) -> Pcm:
    data = sounds.read(2 * samples)
    if len(data) != 2 * samples:
        raise ValueError("sound is missing")
    return np.frombuffer(data, "<i2").astype(np.int16)


def _unsaid(body: dict[str, Any] | None) -> Unsaid | None:
    match body:
        case None:
            return None
        case {"begun": bool(begun), "text": str(text), "whole": bool(whole), "spoken": bool(spoken)}:
            return Unsaid(begun, text, whole, spoken)
        case _:
            raise ValueError("what was not said has an unknown form")


def _session(body: dict[str, Any]) -> SessionConfig:
    """Take what this version knows of a session; what it does not is from a newer one."""
    known = {field.name: body[field.name] for field in fields(SessionConfig) if field.name in body}
    for name, kind in _TABLES.items():
        if known.get(name) is not None:
            names = {field.name for field in fields(kind)}
            known[name] = kind(**{k: v for k, v in known[name].items() if k in names})
    if "tools" in known:
        known["tools"] = tuple(Tool(**tool) for tool in known["tools"])
    if "tool_choice" in known:
        known["tool_choice"] = ToolChoice(**known["tool_choice"])
    if "output_modalities" in known:
        known["output_modalities"] = tuple(known["output_modalities"])
    return SessionConfig(**known)
