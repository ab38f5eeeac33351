"""vLLM-Omni's chat completions as this engine speaks them: request in, stream chunks out. Sans-I/O.

One chunk type is added to the contract: `"modality": "transcript"`, what was heard in the last message.
"""

import base64
import binascii
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ..audio import RATE, Pcm, decode_wav, resample
from ..config import AUTO, Tool, ToolChoice
from ..engine import ToolCall
from ..errors import ConfigError, EngineRefused
from .whisper import RATE as HEARING_RATE

Role = Literal["system", "user", "assistant", "tool"]

MAX_TURNS = 1_000
MAX_FRAMES = 64
"Pictures of one message."
MAX_TEXT = 100_000
"Characters of one part."
MAX_TOOLS = 64
"Functions of one request."


@dataclass(frozen=True, slots=True)
class Sound:
    wav: bytes
    key: str
    "Digest of the content: equal sounds have equal keys, whatever their uuid."

    def pcm(self) -> Pcm:
        """Decode to 16 kHz mono. Raises EngineRefused."""
        try:
            pcm, rate = decode_wav(self.wav)
            return resample(pcm, rate, HEARING_RATE)
        except ValueError as error:
            raise EngineRefused(f"input_audio: {error}") from error


@dataclass(frozen=True, slots=True)
class Turn:
    """One message."""

    role: Role
    text: str = ""
    sounds: tuple[Sound, ...] = ()
    jpegs: tuple[bytes, ...] = ()
    "Camera frames in order of time."
    calls: tuple[ToolCall, ...] = ()
    "Functions that the assistant called. What one gave is the text of a turn of role `tool`."


@dataclass(frozen=True, slots=True)
class Ask:
    """One request."""

    turns: tuple[Turn, ...]
    "The last one is answered."
    speak: bool = True
    temperature: float | None = None
    max_tokens: int | None = None
    usage: bool = False
    caller: str = ""
    "Names the call, for fair turns and for what is remembered of it; empty when unknown."
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice = AUTO

    @property
    def ahead(self) -> bool:
        """Tell whether the last turn still goes on: who asks for one token wants caches filled, no answer."""
        return self.max_tokens == 1


@dataclass(frozen=True, slots=True)
class Transcript:
    text: str


@dataclass(frozen=True, slots=True)
class Text:
    text: str


@dataclass(frozen=True, slots=True)
class Audio:
    pcm: Pcm
    "24 kHz."


@dataclass(frozen=True, slots=True)
class End:
    reason: Literal["stop", "length", "tool_calls"] = "stop"
    input_tokens: int = 0
    output_tokens: int = 0


Piece = Transcript | Text | Audio | ToolCall | End


def parse_request(body: object, caller: str = "") -> Ask:
    """Read a decoded JSON body. Raises EngineRefused that names the field."""
    if not isinstance(body, Mapping):
        raise EngineRefused("the body must be a JSON object")
    if body.get("stream") is not True:
        raise EngineRefused("stream: this engine only streams; send true")
    messages = body.get("messages")
    if not isinstance(messages, list) or not 0 < len(messages) <= MAX_TURNS:
        raise EngineRefused(f"messages: a list of 1 to {MAX_TURNS} messages is needed")
    turns = tuple(_parse_turn(message, f"messages[{i}]") for i, message in enumerate(messages))
    if turns[-1].role == "assistant":
        turns += (Turn("user", "Please go on."),)
    modalities = body.get("modalities", ["text", "audio"])
    if (
        not isinstance(modalities, list)
        or not set(map(str, modalities)) <= {"text", "audio"}
        or not modalities
    ):
        raise EngineRefused('modalities: a list out of "text" and "audio" is needed')
    options = body.get("stream_options") or {}
    return Ask(
        turns,
        speak="audio" in modalities,
        temperature=_number(body, "temperature", 0.0, 2.0),
        max_tokens=None if (limit := _number(body, "max_tokens", 1, 1_000_000)) is None else int(limit),
        usage=isinstance(options, Mapping) and options.get("include_usage") is True,
        caller=caller,
        tools=_parse_tools(body),
        tool_choice=_parse_choice(body),
    )


def _number(body: Mapping[str, Any], name: str, low: float, high: float) -> float | None:
    value = body.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise EngineRefused(f"{name}: a number from {low} to {high} is needed")
    return value


def _parse_turn(message: object, where: str) -> Turn:
    if not isinstance(message, Mapping):
        raise EngineRefused(f"{where}: an object is needed")
    role: Role
    match message.get("role"):
        case "system" | "user" | "assistant" | "tool" as role:
            pass
        case _:
            raise EngineRefused(f"{where}.role: system, user, assistant or tool is needed")
    content = message.get("content")
    if content is None:
        return Turn(role, calls=_parse_calls(message, where))
    if isinstance(content, str) and message.get("tool_calls"):
        return Turn(role, content[:MAX_TEXT], calls=_parse_calls(message, where))
    if isinstance(content, str):
        return Turn(role, content[:MAX_TEXT])
    if not isinstance(content, list):
        raise EngineRefused(f"{where}.content: a string or a list of parts is needed")
    texts: list[str] = []
    sounds: list[Sound] = []
    jpegs: list[bytes] = []
    for i, part in enumerate(content):
        at = f"{where}.content[{i}]"
        kind = part.get("type") if isinstance(part, Mapping) else None
        match kind:
            case "text":
                texts.append(_string(part, "text", at)[:MAX_TEXT])
            case "input_audio":
                wav = _decode(_string(_object(part, kind, at), "data", at), at)
                sounds.append(Sound(wav, hashlib.sha256(wav).hexdigest()))
            case "image_url" | "video_url":
                jpegs += _pictures(_string(_object(part, kind, at), "url", at), at)
            case _:
                raise EngineRefused(f"{at}.type: text, input_audio, video_url or image_url is needed")
    if len(jpegs) > MAX_FRAMES:
        raise EngineRefused(f"{where}: more than {MAX_FRAMES} pictures")
    return Turn(role, " ".join(texts), tuple(sounds), tuple(jpegs))


def _parse_calls(message: Mapping[str, Any], where: str) -> tuple[ToolCall, ...]:
    calls = message.get("tool_calls") or []
    if not isinstance(calls, list):
        raise EngineRefused(f"{where}.tool_calls: a list is needed")
    parsed = []
    for i, call in enumerate(calls):
        at = f"{where}.tool_calls[{i}]"
        if not isinstance(call, Mapping):
            raise EngineRefused(f"{at}: an object is needed")
        function = _object(call, "function", at)
        name, arguments = (_string(function, part, f"{at}.function") for part in ("name", "arguments"))
        parsed.append(ToolCall(str(call.get("id", "")), name, arguments))
    return tuple(parsed)


def _parse_tools(body: Mapping[str, Any]) -> tuple[Tool, ...]:
    tools = body.get("tools") or []
    if not isinstance(tools, list) or len(tools) > MAX_TOOLS:
        raise EngineRefused(f"tools: a list of {MAX_TOOLS} at most is needed")
    parsed = []
    for i, tool in enumerate(tools):
        at = f"tools[{i}]"
        if not isinstance(tool, Mapping):
            raise EngineRefused(f"{at}: an object is needed")
        function = _object(tool, "function", at)
        description = str(function.get("description") or "")
        parameters = json.dumps(function.get("parameters") or {})
        try:
            parsed.append(Tool(_string(function, "name", f"{at}.function"), description, parameters))
        except ConfigError as error:
            raise EngineRefused(f"{at}.function: {error}") from error
    return tuple(parsed)


def _parse_choice(body: Mapping[str, Any]) -> ToolChoice:
    choice = body.get("tool_choice")
    match choice:
        case None:
            return AUTO
        case "auto" | "none" | "required":
            return ToolChoice(choice)
        case {"type": "function", "function": {"name": str(name)}}:
            return ToolChoice("function", name)
        case _:
            raise EngineRefused("tool_choice: auto, none, required or a function is needed")


def _object(part: Mapping[str, Any], name: str, at: str) -> Mapping[str, Any]:
    value = part.get(name)
    if not isinstance(value, Mapping):
        raise EngineRefused(f"{at}.{name}: an object is needed")
    return value


def _string(part: Mapping[str, Any], name: str, at: str) -> str:
    value = part.get(name)
    if not isinstance(value, str):
        raise EngineRefused(f"{at}.{name}: a string is needed")
    return value


def _pictures(url: str, at: str) -> list[bytes]:
    """Read a data URL of one picture or of JPEGs with commas between; nothing is fetched."""
    head, comma, data = url.partition(",")
    if not comma or not head.startswith(("data:image/", "data:video/jpeg")) or not head.endswith(";base64"):
        raise EngineRefused(f"{at}: only base64 data URLs of pictures (data:video/jpeg;base64,…) are read")
    return [_decode(one, at) for one in data.split(",") if one]


def _decode(data: str, at: str) -> bytes:
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError) as error:
        raise EngineRefused(f"{at}: not base64: {error}") from error


@dataclass(frozen=True, slots=True)
class Chunks:
    """Turns the pieces of one response into the events of its stream."""

    response_id: str
    created: int
    "Seconds since 1970."
    model: str
    usage: bool = False
    _common: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        common = {"id": self.response_id, "object": "chat.completion.chunk", "created": self.created}
        object.__setattr__(self, "_common", common | {"model": self.model})

    def begin(self) -> bytes:
        return self._chunk("text", {"role": "assistant", "content": ""})

    def piece(self, piece: Piece) -> bytes:
        match piece:
            case Transcript(text):
                return self._chunk("transcript", {"content": text})
            case Text(text):
                return self._chunk("text", {"content": text})
            case Audio(pcm):
                content = base64.b64encode(pcm.astype("<i2", copy=False).tobytes()).decode("ascii")
                metadata = {"format": "pcm16", "sample_rate_hz": RATE, "frame_count": len(pcm), "channels": 1}
                return self._chunk("audio", {"content": content}, audio_metadata=metadata)
            case ToolCall(call_id, name, arguments):
                # One a reply, so that it is always the first.
                function = {"name": name, "arguments": arguments}
                call = {"index": 0, "id": call_id, "type": "function", "function": function}
                return self._chunk("text", {"tool_calls": [call]})
            case End(reason, input_tokens, output_tokens):
                end = event(self._common | {"choices": [_choice({}, finish_reason=reason)]})
                if self.usage:
                    total = input_tokens + output_tokens
                    counts = {"prompt_tokens": input_tokens, "completion_tokens": output_tokens}
                    end += event(self._common | {"choices": [], "usage": counts | {"total_tokens": total}})
                return end + DONE

    def _chunk(self, modality: str, delta: dict[str, Any], **extra: Any) -> bytes:
        return event(self._common | {"modality": modality, "choices": [_choice(delta, **extra)]})


def _choice(delta: dict[str, Any], finish_reason: str | None = None, **extra: Any) -> dict[str, Any]:
    return {"index": 0, "delta": delta, "finish_reason": finish_reason} | extra


def error_body(message: str, kind: str, code: int) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def event(data: dict[str, Any]) -> bytes:
    """Write one server-sent event."""
    return b"data: " + json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"
