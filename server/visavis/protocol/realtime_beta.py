"""The session object as OpenAI's beta had it: flat, under other names. Sans-I/O."""

from typing import Any

from ..config import SessionConfig
from .realtime_session import session_object

_FORMAT = "pcm16"


def beta_session_object(session: SessionConfig, *, session_id: str, model: str) -> dict[str, Any]:
    """Return the whole session under the beta's names."""
    told = session_object(session, session_id=session_id, model=model)
    heard, spoken = told["audio"]["input"], told["audio"]["output"]
    body = {
        "id": told["id"],
        "object": told["object"],
        "model": told["model"],
        # In the beta sound came with its text by name.
        "modalities": ["audio", "text"] if "audio" in session.output_modalities else ["text"],
        "instructions": told["instructions"],
        "voice": spoken["voice"],
        "speed": spoken["speed"],
        "input_audio_format": _FORMAT,
        "output_audio_format": _FORMAT,
        "input_audio_transcription": heard["transcription"],
        "input_audio_noise_reduction": heard["noise_reduction"],
        "turn_detection": heard["turn_detection"],
        "tools": told["tools"],
        "tool_choice": told["tool_choice"],
        "max_response_output_tokens": told["max_output_tokens"],
        "tracing": told["tracing"],
    }
    if session.temperature is not None:
        body["temperature"] = session.temperature
    return body
