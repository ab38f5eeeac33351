"""vLLM-Omni's chat completions as data: a `Request` to its JSON, its stream to `Delta`s. Sans-I/O.

Read from vllm-omni 0.30.0. Mainline vLLM takes the same request and answers with text alone; the
embedded engine adds one kind of chunk, `"modality": "transcript"`.
"""

import base64
import binascii
import json
import logging
from typing import Literal

import numpy as np

from ..audio import EMPTY, RATE, Pcm, Resampler, decode_wav
from ..config import EngineConfig
from ..errors import EngineBusy, EngineError, EngineLost, EngineRefused
from ..fusion import Fuser
from . import AudioDelta, Delta, Done, Request, TextDelta, ToolCall, TranscriptDelta, Usage
from .calling import CallAssembler, CallSplitter, Json, Manner, describe, tool_fields
from .content import message_bodies
from .thoughts import ThoughtSplitter, Told

logger = logging.getLogger(__name__)

_MAX_MESSAGE = 500
"Characters kept of an error message of the engine."

_SAMPLING = (
    "top_p",
    "top_k",
    "min_tokens",
    "seed",
    "presence_penalty",
    "frequency_penalty",
)
"Settings that go as they are; like temperature, max_tokens and stop they reach the Thinker alone."

_SEEN = ("image", "video")
"Kinds of input that are pictures, as usage is told of."

_UNSPOKEN = "output modalities"
'In vLLM-Omni\'s refusal when the Talker is not deployed: "Unsupported output modalities audio …".'

Reason = Literal["stop", "length", "content_filter", "tool_calls"]


def request_body(request: Request, config: EngineConfig, fuser: Fuser, manner: Manner | None = None) -> bytes:
    """Write the JSON of `POST /v1/chat/completions`. Raises EngineRefused if media cannot be encoded.

    Equal messages give equal bytes, so that the engine's caches hit. The request's temperature comes before
    the configuration's; its `max_tokens` is bounded by it, and a Thinking model, whose thoughts count too,
    has all that there is. `manner`, of functions, is the configuration's by default.
    """
    manner = manner or config.tools
    body: Json = {
        "model": config.model,
        "stream": True,
        "stream_options": {"include_usage": True},
        "modalities": ["text", "audio"] if request.speak else ["text"],
        "max_tokens": _max_tokens(request, config),
    }
    if request.speak:
        body["audio"] = {"format": "pcm16"}
        if request.voice is not None:
            body["voice"] = request.voice
    if not request.ahead:
        body |= sampling(request, config)
    description = ""
    if manner == "server":
        body |= tool_fields(request.tools, request.tool_choice)
    else:
        description = describe(request.tools, request.tool_choice)
    messages, fields = message_bodies(request.messages, fuser, manner, description)
    body |= fields | {"messages": messages}
    return json.dumps(body, separators=(",", ":")).encode()


def sampling(request: Request, config: EngineConfig) -> Json:
    """Write how the Thinker chooses its words, as far as anybody said."""
    temperature = config.temperature if request.temperature is None else request.temperature
    settings: Json = {"temperature": temperature} | {name: getattr(config, name) for name in _SAMPLING}
    if config.stop:
        settings["stop"] = list(config.stop)
    return {name: value for name, value in settings.items() if value is not None}


def _max_tokens(request: Request, config: EngineConfig) -> int:
    if request.ahead:
        return 1
    if config.thinking:
        return config.answer_tokens
    return min(request.max_tokens or config.max_tokens, config.answer_tokens)


class ReplyDecoder:
    """Turn the events of one streamed answer into deltas, `Done` last.

    `speak` is the request's; `thinking` says that the text begins with a thought, even without a tag; with
    `tools` calls of functions are looked for in the text too, whoever was to read them.

    vLLM-Omni's Talker speaks what the Thinker writes, a call as well, and does so after the words that stand
    before it. So all sound is dropped from the beginning of a call on; those words have none then, and
    `voiced` has them spoken, and does not wait until the Talker has read the call out.
    """

    def __init__(self, *, speak: bool, thinking: bool = False, tools: bool = False) -> None:
        self.finished = False
        "Done has been given; what comes later is ignored."
        self.complete = False
        "The engine has said why it ended: nothing of the answer itself is missing."
        self._speak = speak
        self._reason: Reason = "stop"
        self._audio = _AudioDecoder()
        self._thoughts = ThoughtSplitter(thinking=thinking)
        self._written = CallSplitter() if tools else None
        "Calls in the text."
        self._parsed = CallAssembler()
        "Calls that the server has read."
        self._called = False

    def receive_event(self, data: str) -> list[Delta]:
        """Take the data of one event. Raises EngineError if it tells of one or cannot be read."""
        if self.finished:
            return []
        if data.strip() == "[DONE]":
            return self._finish()
        chunk = read_chunk(data)
        if chunk.get("error"):
            raise stream_error(chunk["error"])
        return self.receive_chunk(chunk)

    def receive_eof(self) -> list[Delta]:
        """Take the end of the stream. Raises EngineLost if the answer was not complete."""
        if self.finished:
            return []
        if not self.complete:
            raise EngineLost("The engine broke off in the middle of an answer.")
        return self._finish()

    def _finish(self) -> list[Delta]:
        self.finished = True
        rest = self._receive_told(self._thoughts.finish())
        if self._written is not None:
            rest += self._written.finish()
        rest += self._parsed.finish()
        if self._thoughts.thinking and self._reason == "stop":
            logger.warning("an answer ended within its thoughts: does engine.thinking suit the model?")
            raise EngineLost("The engine ended an answer in the middle of its thoughts.")
        self._note_calls(rest)
        # Some servers say "stop" where they have read calls, and all where the calls are in the text.
        reason = "tool_calls" if self._called and self._reason == "stop" else self._reason
        return [*rest, Done(reason)]

    def receive_chunk(self, chunk: Json) -> list[Delta]:
        """Take one event that has been read and tells of no error."""
        choices = chunk.get("choices")
        if not isinstance(choices, list) or not choices:
            # Chunks with sound repeat the usage so far: only the closing one counts.
            return _usage(chunk.get("usage"))
        choice = choices[0] if isinstance(choices[0], dict) else {}
        modality = chunk.get("modality")
        self._receive_reason(choice.get("finish_reason"), modality)
        delta = choice["delta"] if isinstance(choice.get("delta"), dict) else {}
        thoughts = self._receive_thoughts(delta)
        calls = self._parsed.receive(delta.get("tool_calls"))
        content = delta.get("content")
        deltas = thoughts
        if isinstance(content, str) and (content or modality == "transcript"):
            # An empty transcript is news: there were no words in what was heard.
            deltas = [*thoughts, *self._receive_content(content, modality, choice, chunk)]
        deltas = [*deltas, *calls]
        self._note_calls(deltas)
        return deltas

    def _note_calls(self, deltas: list[Delta]) -> None:
        self._called = self._called or any(isinstance(delta, ToolCall) for delta in deltas)

    def _receive_thoughts(self, delta: Json) -> list[Delta]:
        """Take what a server with a reasoning parser sends beside the text, under its old or its new name."""
        thoughts = delta.get("reasoning") or delta.get("reasoning_content")
        if not isinstance(thoughts, str) or not thoughts:
            return []
        return self._receive_told(self._thoughts.receive_thought(thoughts))

    def _receive_told(self, told: list[Told]) -> list[Delta]:
        """Sort calls out of what is said, not out of what is thought."""
        if self._written is None:
            return [*told]
        deltas: list[Delta] = []
        for one in told:
            deltas += self._written.receive(one.text) if isinstance(one, TextDelta) else [one]
        return deltas

    @property
    def _calling(self) -> bool:
        return self._parsed.begun or (self._written is not None and self._written.begun)

    def _receive_content(self, content: str, modality: object, choice: Json, chunk: Json) -> list[Delta]:
        match modality:
            case None | "text":
                return self._receive_told(self._thoughts.receive(content))
            case "audio" if self._calling:
                return []
            case "audio":
                pcm = self._audio.receive(content, choice.get("audio_metadata"))
                return [AudioDelta(pcm)] if len(pcm) else []
            case "transcript":
                return [TranscriptDelta(content, final=chunk.get("final") is not False)]
            case _:
                return []

    def _receive_reason(self, reason: object, modality: object) -> None:
        match reason:
            case None:
                return
            case "abort" | "error":
                raise EngineLost("The engine gave up in the middle of an answer.")
            case "length" | "content_filter" | "tool_calls":
                self._reason = reason
            case _:
                self._reason = "stop"
        # Releases before 0.30 end the text and go on speaking.
        self.complete = self.complete or not (self._speak and modality == "text")


def read_chunk(data: str) -> Json:
    """Read the data of one event. Raises EngineLost if it is no JSON object."""
    try:
        chunk = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise EngineLost("The engine sent a chunk that is not JSON.") from error
    if not isinstance(chunk, dict):
        raise EngineLost("The engine sent a chunk that is not a JSON object.")
    return chunk


class _AudioDecoder:
    """Turn base64 chunks of one stream of sound into 24 kHz."""

    def __init__(self) -> None:
        self._half_sample = b""
        self._rate = RATE
        self._resampler = Resampler(RATE, RATE)

    def receive(self, content: str, metadata: object) -> Pcm:
        """Decode the next chunk: bare 16-bit PCM, or WAV whole in itself.

        Raises EngineLost if it is neither or has a rate that cannot be had.
        """
        try:
            data = base64.b64decode(content, validate=True)
            if data[:4] == b"RIFF" and data[8:12] == b"WAVE":
                self._half_sample = b""
                pcm, rate = decode_wav(data)
            else:
                rate = _rate(metadata)
                pcm = self._samples(data)
            if rate != self._rate:
                self._resampler = Resampler(rate, RATE)
                self._rate = rate
        except (binascii.Error, ValueError) as error:
            raise EngineLost(f"The engine sent sound that cannot be read: {error}.") from error
        return self._resampler.process(pcm)

    def _samples(self, data: bytes) -> Pcm:
        data = self._half_sample + data
        whole = len(data) & ~1
        self._half_sample = data[whole:]
        return np.frombuffer(data, "<i2", whole // 2).astype(np.int16, copy=False) if whole else EMPTY


def _rate(metadata: object) -> int:
    """Give the rate that the metadata of a chunk names. Raises ValueError unless the sound is mono."""
    if not isinstance(metadata, dict):
        return RATE
    channels = metadata.get("channels") or 1
    if channels != 1:
        raise ValueError(f"{channels} channels where mono was asked for")
    rate = metadata.get("sample_rate_hz") or RATE
    if not isinstance(rate, int | float):
        raise ValueError(f"a rate of {rate!r}")
    return int(rate)


def _usage(usage: object) -> list[Delta]:
    """Read what an answer cost; vLLM tells details if started with --enable-prompt-tokens-details."""
    if not isinstance(usage, dict):
        return []
    details = _object(usage.get("prompt_tokens_details"))
    kinds = _object(details.get("multimodal_tokens"))  # vLLM's; of a kind that was not there it says nothing
    if kinds:
        audio, images = _count(kinds.get("audio", 0)), [_count(kinds.get(kind, 0)) for kind in _SEEN]
    else:
        audio, images = (
            _count(details.get("audio_tokens")),
            [_count(details.get(f"{k}_tokens")) for k in _SEEN],
        )
    known = [count for count in images if count is not None]
    return [
        Usage(
            _count(usage.get("prompt_tokens")) or 0,
            _count(usage.get("completion_tokens")) or 0,
            cached_tokens=_count(details.get("cached_tokens")),
            input_audio_tokens=audio,
            input_image_tokens=sum(known) if known else None,
            output_audio_tokens=_count(_object(usage.get("completion_tokens_details")).get("audio_tokens")),
        )
    ]


def _object(value: object) -> Json:
    return value if isinstance(value, dict) else {}


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def http_error(status: int, body: bytes) -> EngineError:
    """Make the error of an HTTP answer other than 200 from its status and (the start of) its body."""
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        content = None
    detail = content.get("error", content) if isinstance(content, dict) else None
    return _error(status, _text(detail) or f"HTTP {status}")


def is_about_speech(error: EngineRefused) -> bool:
    """Tell whether a request was refused because the server cannot speak at all."""
    return _UNSPOKEN in str(error).lower()


def stream_error(error: object) -> EngineError:
    """Make the error that an event of a stream tells of, `{"message", "type", "code"}`."""
    code = error.get("code") if isinstance(error, dict) else None
    status = int(code) if isinstance(code, int) or (isinstance(code, str) and code.isdecimal()) else 500
    return _error(status, _text(error) or "an error without a message")


def _text(detail: object) -> str:
    if isinstance(detail, dict):
        detail = detail.get("message") or detail.get("detail")
    return detail[:_MAX_MESSAGE] if isinstance(detail, str) else ""


def _error(status: int, message: str) -> EngineError:
    if status in (429, 503):
        return EngineBusy(f"The engine is busy: {message}")
    if 300 <= status < 500:
        return EngineRefused(f"The engine refused the request: {message}")
    return EngineLost(f"The engine failed: {message}")
