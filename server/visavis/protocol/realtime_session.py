"""OpenAI's session object to and from our session settings. Sans-I/O.

The nested names of the GA interface and the flat ones of the beta are both read; GA names are written.
"""

from dataclasses import replace
from functools import partial
from typing import Any, Literal

from ..audio import RATE
from ..config import SessionConfig, SoundFormat, Transcription, Truncation, TurnDetection
from .fields import (
    Check,
    Fields,
    array,
    boolean,
    integer,
    number,
    one_of,
    optional,
    refuse,
    refuse_type,
    text,
)
from .realtime_tools import tool_choice, tool_choice_object, tool_objects, tools

MAX_TEXT = 50_000
"Characters of instructions or of one text message: what goes back to the client must fit in one message."

MAX_ID = 128

Modalities = tuple[Literal["audio", "text"], ...]

_MAX_TOKENS = 10_000_000
"More than any model's context."
_MAX_INCLUDED = 16

_DEFAULT_VOICE = "default"
"What the engine's own choice is called on the wire, where a voice always has a name."

_BETA_FORMATS: dict[str, SoundFormat] = {
    "pcm16": "audio/pcm",
    "g711_ulaw": "audio/pcmu",
    "g711_alaw": "audio/pcma",
}

instructions = text(MAX_TEXT)
temperature = optional(number(0, 2))
_field: Check[Literal["near_field", "far_field"]] = one_of("near_field", "far_field")
_eagerness: Check[Literal["low", "medium", "high", "auto"]] = one_of("low", "medium", "high", "auto")


def merge_session(base: SessionConfig, changes: Any, param: str = "session") -> SessionConfig:
    """Return `base` with a client's partial session object laid over it.

    Names of models and voices are never refused: the model is the server's choice, and the engine speaks
    with its own voice where it does not know the name. Members without a counterpart here are ignored.
    Raises ClientEventError, naming the member.
    """
    top = Fields(changes, param)
    top.read("type", one_of("realtime"), "realtime")
    heard = top.within("audio").within("input")
    spoken = top.within("audio").within("output")
    turn_detection = partial(_turn_detection, base.turn_detection)
    transcription = heard.read(
        "transcription",
        partial(_transcription, base.transcription),
        top.read(
            "input_audio_transcription",
            partial(_transcription, base.transcription),
            base.transcription if base.transcribe else None,
        ),
    )
    refuse_prompt(top)
    _check_rest(top, spoken)
    return replace(
        base,
        instructions=top.read("instructions", instructions, base.instructions),
        output_modalities=read_modalities(top, base.output_modalities),
        voice=spoken.read("voice", voice, top.read("voice", voice, base.voice)),
        input_format=heard.read(
            "format", _format, top.read("input_audio_format", _beta_format, base.input_format)
        ),
        output_format=spoken.read(
            "format", _format, top.read("output_audio_format", _beta_format, base.output_format)
        ),
        turn_detection=heard.read(
            "turn_detection",
            turn_detection,
            top.read("turn_detection", turn_detection, base.turn_detection),
        ),
        transcribe=transcription is not None,
        transcription=transcription or base.transcription,
        noise_reduction=heard.read(
            "noise_reduction",
            _noise_reduction,
            top.read("input_audio_noise_reduction", _noise_reduction, base.noise_reduction),
        ),
        truncation=top.read("truncation", _truncation, base.truncation),
        camera_fps=top.within("visavis").read("camera_fps", optional(number(0, 30)), base.camera_fps),
        temperature=top.read("temperature", temperature, base.temperature),
        max_output_tokens=read_token_limit(top, base.max_output_tokens),
        tools=top.read("tools", tools, base.tools),
        tool_choice=top.read("tool_choice", tool_choice, base.tool_choice),
    )


def session_object(
    session: SessionConfig, *, session_id: str, model: str, expires_at: int | None = None
) -> dict[str, Any]:
    """Return the whole session as stock clients expect it. `expires_at` is Unix seconds."""
    body: dict[str, Any] = {
        "type": "realtime",
        "object": "realtime.session",
        "id": session_id,
        "model": model,
        "output_modalities": list(session.output_modalities),
        "instructions": session.instructions,
        "tools": tool_objects(session.tools),
        "tool_choice": tool_choice_object(session.tool_choice),
        "max_output_tokens": session.max_output_tokens or "inf",
        "tracing": None,
        "truncation": _truncation_object(session.truncation),
        "prompt": None,
        "include": None,
        "audio": {
            "input": {
                "format": _format_object(session.input_format),
                "transcription": _transcription_object(session.transcription, model)
                if session.transcribe
                else None,
                "noise_reduction": _noise_reduction_object(session),
                "turn_detection": _turn_detection_object(session.turn_detection),
            },
            "output": output_object(session.output_format, session.voice) | {"speed": 1.0},
        },
    }
    if session.camera_fps is not None:
        body["visavis"] = {"camera_fps": session.camera_fps}
    if session.temperature is not None:
        body["temperature"] = session.temperature
    if expires_at is not None:
        body["expires_at"] = expires_at
    return body


def output_object(sound: SoundFormat, voice: str | None) -> dict[str, Any]:
    """Return what is told of how something is spoken."""
    return {"format": _format_object(sound), "voice": voice or _DEFAULT_VOICE}


def read_modalities(fields: Fields, default: Modalities) -> Modalities:
    """Read the modalities by either name. Sound always comes with its text, so both together mean sound."""
    return fields.read("output_modalities", _modalities, fields.read("modalities", _modalities, default))


def read_token_limit(fields: Fields, default: int | None) -> int | None:
    """Read the greatest number of output tokens by either name; None is no limit."""
    beta = fields.read("max_response_output_tokens", _token_limit, default)
    return fields.read("max_output_tokens", _token_limit, beta)


def refuse_prompt(fields: Fields) -> None:
    """A prompt template is kept by OpenAI; null is none."""
    if fields.read("prompt", optional(Fields), None) is not None:
        param = fields.param("prompt")
        refuse(f"{param}: no templates are kept here; send instructions.", param, "unsupported_parameter")


def voice(value: Any, param: str) -> str | None:
    """Accept a name, an object with an `id` (a custom voice), or null."""
    if isinstance(value, dict):
        return Fields(value, param).require("id", text(MAX_ID, 1))
    name = optional(text(MAX_ID, 1))(value, param)
    return None if name == _DEFAULT_VOICE else name


def _format(value: Any, param: str) -> SoundFormat:
    fields = Fields(value, param)
    kinds: Check[SoundFormat] = one_of("audio/pcm", "audio/pcmu", "audio/pcma")
    kind = fields.require("type", kinds)
    if kind == "audio/pcm":
        fields.read("rate", one_of(RATE), RATE)
    return kind


def _beta_format(value: Any, param: str) -> SoundFormat:
    return _BETA_FORMATS[one_of(*_BETA_FORMATS)(value, param)]


def _format_object(kind: SoundFormat) -> dict[str, Any]:
    return {"type": kind, "rate": RATE} if kind == "audio/pcm" else {"type": kind}


def _modalities(value: Any, param: str) -> Modalities:
    word: Check[Literal["audio", "text"]] = one_of("audio", "text")
    words = [word(each, f"{param}[{index}]") for index, each in enumerate(array(2, 1)(value, param))]
    return ("audio",) if "audio" in words else ("text",)


def _token_limit(value: Any, param: str) -> int | None:
    if value is None or value == "inf":
        return None
    if isinstance(value, str):
        refuse_type(value, param, "an integer or 'inf'")
    return integer(1, 4096)(value, param)


def _check_rest(top: Fields, spoken: Fields) -> None:
    """Check what is accepted and has no effect: nothing is traced for the client, no probabilities are told,
    and all is spoken at the engine's own speed."""
    top.read("tracing", _tracing, None)
    top.read("include", optional(_include), None)
    spoken.read("speed", number(0.25, 1.5), top.read("speed", optional(number(0.25, 1.5)), None))
    top.read("parallel_tool_calls", optional(boolean), None)
    top.read("reasoning", optional(Fields), None)


def _tracing(value: Any, param: str) -> None:
    if isinstance(value, str):
        one_of("auto")(value, param)
    elif value is not None:
        fields = Fields(value, param)
        for name in ("workflow_name", "group_id"):
            fields.read(name, optional(text(MAX_ID)), None)
        fields.read("metadata", optional(Fields), None)


def _include(value: Any, param: str) -> None:
    for index, each in enumerate(array(_MAX_INCLUDED)(value, param)):
        text(MAX_ID)(each, f"{param}[{index}]")


def _transcription(base: Transcription, value: Any, param: str) -> Transcription | None:
    if value is None:
        return None
    fields = Fields(value, param)
    return Transcription(
        model=fields.read("model", optional(text(MAX_ID)), base.model),
        language=fields.read("language", optional(text(MAX_ID)), base.language),
        prompt=fields.read("prompt", optional(text(MAX_TEXT)), base.prompt),
    )


def _transcription_object(transcription: Transcription, model: str) -> dict[str, Any]:
    told = {
        "model": transcription.model or model,
        "language": transcription.language,
        "prompt": transcription.prompt,
    }
    return {name: value for name, value in told.items() if value is not None}


def _noise_reduction(value: Any, param: str) -> Literal["none", "near_field", "far_field"]:
    fields = optional(Fields)(value, param)
    return "none" if fields is None else fields.require("type", _field)


def _noise_reduction_object(session: SessionConfig) -> dict[str, Any] | None:
    return None if session.noise_reduction == "none" else {"type": session.noise_reduction}


def _truncation(value: Any, param: str) -> Truncation:
    if isinstance(value, dict):
        fields = Fields(value, param)
        limits = fields.within("token_limits")
        return Truncation(
            fields.require("type", one_of("retention_ratio")),
            fields.require("retention_ratio", number(0, 1)),
            limits.read("post_instructions", optional(integer(1, _MAX_TOKENS)), None),
        )
    kind: Check[Literal["auto", "disabled"]] = one_of("auto", "disabled")
    return Truncation(kind("auto" if value is None else value, param))


def _truncation_object(truncation: Truncation) -> str | dict[str, Any]:
    if truncation.type != "retention_ratio":
        return truncation.type
    told: dict[str, Any] = {"type": "retention_ratio", "retention_ratio": truncation.retention_ratio}
    if truncation.post_instructions is not None:
        told["token_limits"] = {"post_instructions": truncation.post_instructions}
    return told


def _turn_detection(base: TurnDetection | None, value: Any, param: str) -> TurnDetection | None:
    if value is None:
        return None
    fields = Fields(value, param)
    present = base or TurnDetection()
    eagerness = fields.read("eagerness", _eagerness, None)
    silence_ms = fields.read("silence_duration_ms", integer(100, 10_000), None)
    # Without a type it is of the present kind, unless it sets what only one kind has.
    implied = "server_vad" if silence_ms else "semantic_vad" if eagerness else present.type
    return TurnDetection(
        type=fields.read("type", one_of("server_vad", "semantic_vad"), implied),
        eagerness=eagerness or present.eagerness,
        threshold=fields.read("threshold", number(0, 1), present.threshold),
        prefix_padding_ms=fields.read("prefix_padding_ms", integer(0, 5_000), present.prefix_padding_ms),
        silence_duration_ms=silence_ms or present.silence_duration_ms,
        create_response=fields.read("create_response", boolean, present.create_response),
        interrupt_response=fields.read("interrupt_response", boolean, present.interrupt_response),
        min_interruption_ms=fields.read(
            "min_interruption_ms", optional(integer(20, 10_000)), present.min_interruption_ms
        ),
        idle_timeout_ms=fields.read(
            "idle_timeout_ms", optional(integer(1_000, 600_000)), present.idle_timeout_ms
        ),
    )


def _turn_detection_object(detection: TurnDetection | None) -> dict[str, Any] | None:
    if detection is None:
        return None
    rest: dict[str, Any] = {
        "create_response": detection.create_response,
        "interrupt_response": detection.interrupt_response,
    }
    # Ours: stock clients are told of it where it was asked for.
    if detection.min_interruption_ms is not None:
        rest["min_interruption_ms"] = detection.min_interruption_ms
    if detection.type == "semantic_vad":
        # OpenAI's has no idle timeout: stock clients are told of one where it was asked for.
        idle = {} if detection.idle_timeout_ms is None else {"idle_timeout_ms": detection.idle_timeout_ms}
        return {"type": "semantic_vad", "eagerness": detection.eagerness, **rest, **idle}
    return {
        "type": "server_vad",
        "threshold": detection.threshold,
        "prefix_padding_ms": detection.prefix_padding_ms,
        "silence_duration_ms": detection.silence_duration_ms,
        "idle_timeout_ms": detection.idle_timeout_ms,
        **rest,
    }
