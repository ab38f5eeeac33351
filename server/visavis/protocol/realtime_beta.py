"""OpenAI's events and session object as its beta had them: GA bodies under the old names. Sans-I/O.

What clients of the beta send is understood as it is. What the beta did not have is not told.
"""

from collections.abc import Iterator
from typing import Any

from ..config import SessionConfig
from .realtime_session import session_object

Body = dict[str, Any]

_FORMATS = {"audio/pcm": "pcm16", "audio/pcmu": "g711_ulaw", "audio/pcma": "g711_alaw"}

_RENAMED = {
    "conversation.item.added": "conversation.item.created",
    "response.output_text.delta": "response.text.delta",
    "response.output_text.done": "response.text.done",
    "response.output_audio.delta": "response.audio.delta",
    "response.output_audio.done": "response.audio.done",
    "response.output_audio_transcript.delta": "response.audio_transcript.delta",
    "response.output_audio_transcript.done": "response.audio_transcript.done",
}

_UNKNOWN = ("conversation.item.done", "input_audio_buffer.timeout_triggered")
"Events that the beta did not have, as it did not have calls that the server runs itself."

_PARTS = {"output_text": "text", "output_audio": "audio"}


def beta_bodies(body: Body) -> Iterator[Body]:
    """Give an event as the beta told it, if it did."""
    kind = body["type"]
    if kind in _UNKNOWN or kind.startswith("response.mcp_") or _is_own_call(body.get("item")):
        return
    told = body | {"type": _RENAMED.get(kind, kind)}
    if "session" in told:
        told["session"] = _session(told["session"])
    if "response" in told:
        told["response"] = _response(told["response"])
    if "item" in told:
        told["item"] = _item(told["item"])
    yield told


def beta_session_object(session: SessionConfig, *, session_id: str, model: str) -> Body:
    """Return the whole session under the beta's names."""
    return _session(session_object(session, session_id=session_id, model=model))


def _session(told: Body) -> Body:
    heard, spoken = told["audio"]["input"], told["audio"]["output"]
    body = {
        "id": told["id"],
        "object": told["object"],
        "model": told["model"],
        "modalities": _modalities(told),
        "instructions": told["instructions"],
        "voice": spoken["voice"],
        "speed": spoken["speed"],
        "input_audio_format": _FORMATS[heard["format"]["type"]],
        "output_audio_format": _FORMATS[spoken["format"]["type"]],
        "input_audio_transcription": heard["transcription"],
        "input_audio_noise_reduction": heard["noise_reduction"],
        "turn_detection": heard["turn_detection"],
        "tools": told["tools"],
        "tool_choice": told["tool_choice"],
        "max_response_output_tokens": told["max_output_tokens"],
        "tracing": told["tracing"],
    }
    return body | {name: told[name] for name in ("temperature", "expires_at", "visavis") if name in told}


def _response(told: Body) -> Body:
    spoken = told["audio"]["output"]
    rest = {name: value for name, value in told.items() if name not in ("audio", "output_modalities")}
    return rest | {
        "modalities": _modalities(told),
        "voice": spoken["voice"],
        "output_audio_format": _FORMATS[spoken["format"]["type"]],
        "output": [_item(item) for item in told["output"] if not _is_own_call(item)],
    }


def _modalities(told: Body) -> list[str]:
    """In the beta sound came with its text by name."""
    return ["audio", "text"] if "audio" in told["output_modalities"] else ["text"]


def _item(told: Body) -> Body:
    if "content" not in told:
        return told
    return told | {
        "content": [part | {"type": _PARTS.get(part["type"], part["type"])} for part in told["content"]]
    }


def _is_own_call(item: Body | None) -> bool:
    return item is not None and item["type"] == "mcp_call"
