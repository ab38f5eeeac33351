"""Client of the hosted Qwen-Omni, by DashScope's OpenAI-compatible mode.

Sources: https://help.aliyun.com/en/model-studio/qwen-omni and …/error-code, read in 2026. It differs from
vLLM-Omni's contract in that

- every request streams; the voice is `audio.voice`, and sound comes in `delta.audio.data` (base64 of bare
  16-bit PCM at 24 kHz, whatever `format` says), its words in `delta.content` or `delta.audio.transcript`;
- a user message has one medium beside text, and of sounds and videos one only, so that a turn's camera and
  speech travel as one muxed video and several of them as several messages. Data are `data:` URLs below 10 MB;
- a Thinking model answers in text alone, its thoughts in `delta.reasoning_content`.

Functions are offered, called and answered as in OpenAI's contract, by the models that
https://help.aliyun.com/en/model-studio/qwen-function-calling lists; others refuse in words.
"""

import asyncio
import json
import logging
import re
from collections.abc import AsyncGenerator, Iterable, Iterator
from contextlib import aclosing
from dataclasses import replace

from ..config import EngineConfig, FusionConfig
from ..errors import ConfigError, EngineError, EngineRefused
from ..fusion import Fuser, Media
from . import AudioDelta, Delta, Done, Message, Request, TextDelta, TextPart
from .calling import Json, Manner, describe, tool_fields
from .chat import ReplyDecoder, read_chunk, sampling, stream_error
from .content import described, written_bodies
from .http import EngineHttp
from .voices import Voices, is_about_voice

logger = logging.getLogger(__name__)

DEFAULT_URL = "https://dashscope-intl.aliyuncs.com/compatible-mode/v1"
"Singapore's, which serves all the world but mainland China; a key is of one region."

DEFAULT_MODEL = "qwen3-omni-flash"

KEY_VARIABLE = "DASHSCOPE_API_KEY"

_PATH = "/chat/completions"
_ATTEMPTS = 3
"Of one request: the voice asked for, the configured one, the service's own."
_ALONE = ("clip", "sequence", "sound")
"Media of which a message has but one."

_STATUS = re.compile(r"<(\d{3})>")
"At the start of messages that the model's own server wrote: `<400> InternalError.Algo.InvalidParameter: …`."
_KEY = re.compile(r"api[-_ ]?key", re.IGNORECASE)
_BUSY = re.compile(r"throttl|rate_?limit|limit_requests|quota", re.IGNORECASE)
_INVALID = re.compile(r"invalid|not_?found|access_?denied|arrearage|data_inspection", re.IGNORECASE)
_FILTERED = "data_inspection_failed"


class DashscopeEngine:
    """Streams responses of the hosted model. One instance serves all calls of an event loop.

    What is said of an answer's end holds for VllmEngine too; closing the generator of `respond` closes
    its connection, upon which the service stops.
    """

    def __init__(self, config: EngineConfig, fusion: FusionConfig) -> None:
        """Raises ConfigError without a key, or if `config.url` is no address."""
        if not config.api_key:
            raise ConfigError(
                f"An engine named dashscope needs a key: set {KEY_VARIABLE} in the environment, or api_key "
                "in its table. Keys are made at https://modelstudio.console.alibabacloud.com."
            )
        usual = EngineConfig()
        if config.model == usual.model:
            config = replace(config, model=DEFAULT_MODEL)
        url = DEFAULT_URL if config.url == usual.url else config.url.rstrip("/")
        if re.match(r"https?://[^/]", url) is None:
            raise ConfigError(f"engine.url is {config.url!r}; for dashscope it begins with https://")
        self._config = config
        self._http = EngineHttp(config, url)
        self._voices = Voices(config.voice or _house_voice(config.model))
        # What it can read of a file is not known but for the usual kinds of picture and sound.
        separate = config.media in ("separate", "frames")
        self._fuser = Fuser(fusion, "separate" if separate else "interleaved", "common")

    async def respond(self, request: Request) -> AsyncGenerator[Delta, None]:
        """Stream one response, `Done` last; it has no sound if nobody wants any or the model thinks.

        Raises EngineError (EngineRefused, EngineBusy, EngineLost) and nothing else.
        """
        deadline = asyncio.get_running_loop().time() + self._config.first_delta_s
        asked = self._fitting(request)
        messages = await asyncio.to_thread(self._messages, request)
        begun = False
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                body = request_body(asked, messages, self._config)
                answer = await self._http.post(request.call_id, _PATH, body, deadline)
                decoder = DashscopeDecoder(speak=asked.speak, tools=bool(asked.tools))
                async with aclosing(self._http.deltas(request.call_id, answer, decoder, deadline)) as deltas:
                    async for delta in deltas:
                        begun = True
                        yield delta
                return
            except EngineRefused as error:
                if _KEY.search(str(error)):
                    raise EngineRefused(
                        f"DashScope does not take the key: see {KEY_VARIABLE}; each key is of one region."
                    ) from error
                if begun or attempt == _ATTEMPTS or not self._learn(asked, error):
                    raise
                logger.debug("call %s: another voice than %s is asked for", request.call_id, asked.voice)
            asked = self._fitting(request)

    async def ready(self) -> bool:
        """Tell whether the service answers and takes the key; no request is made that costs anything."""
        return await self._http.status("/models") not in (None, 401, 403)

    async def aclose(self) -> None:
        """Close all connections; responses under way fail with EngineLost, as do later ones."""
        await self._http.aclose()

    def _fitting(self, request: Request) -> Request:
        """Return the request as the service, as far as it is known, can fulfil it."""
        return replace(
            request,
            speak=request.speak and self._config.speak and not self._config.thinking,
            voice=self._voices.choose(request.voice),
        )

    def _learn(self, asked: Request, error: EngineRefused) -> bool:
        """Tell whether asking again helps, now that it is known which voice there is not."""
        if not asked.speak or asked.voice is None or not is_about_voice(str(error)):
            return False
        self._voices.receive_refusal(asked.voice, str(error))
        return True

    def _messages(self, request: Request) -> list[Json]:
        """Encode the media and write all messages; works for milliseconds, on any thread."""
        manner = self._config.tools
        description = describe(request.tools, request.tool_choice) if manner == "text" else ""
        messages = described(request.messages, description)
        return [
            written
            for message, content in zip(messages, self._fuser.fuse(messages), strict=True)
            for written in message_bodies(message, content, manner)
        ]


def request_body(request: Request, messages: list[Json], config: EngineConfig) -> bytes:
    """Write the JSON of `POST /chat/completions`. `max_tokens` bounds the answer, not the thoughts."""
    body: Json = {
        "model": config.model,
        "stream": True,
        "stream_options": {"include_usage": True},
        "modalities": ["text", "audio"] if request.speak else ["text"],
        "max_tokens": min(request.max_tokens or config.max_tokens, config.max_tokens_cap),
        **sampling(request, config),
    }
    if request.speak:
        body["audio"] = {"format": "wav"} | ({} if request.voice is None else {"voice": request.voice})
    if config.thinking:
        body["enable_thinking"] = True
    if config.tools == "server":
        body |= tool_fields(request.tools, request.tool_choice)
    body["messages"] = messages
    return json.dumps(body, separators=(",", ":")).encode()


def message_bodies(
    message: Message, content: Iterable[TextPart | Media], manner: Manner = "server"
) -> Iterator[Json]:
    """Write one message, as several where it has media that must not share one."""
    role, parts = message.role, list(content)
    if all(isinstance(part, TextPart) for part in parts):
        yield from written_bodies(message, manner)
        return
    written: list[Json] = []
    kind: str | None = None
    for part in parts:
        if isinstance(part, TextPart):
            written.append({"type": "text", "text": part.text})
            continue
        if kind is not None and (kind != part.kind or kind in _ALONE):
            yield {"role": role, "content": written}
            written = []
        kind = part.kind
        written.append(_part(part))
    yield {"role": role, "content": written}


def _part(media: Media) -> Json:
    match media.kind:
        case "clip":
            return {"type": "video_url", "video_url": {"url": f"data:;base64,{media.data}"}}
        case "sequence":
            pictures = [f"data:image/jpeg;base64,{jpeg}" for jpeg in media.data.split(",")]
            return {"type": "video", "video": pictures}
        case "picture":
            return {"type": "image_url", "image_url": {"url": f"data:image/jpeg;base64,{media.data}"}}
        case "sound":
            sound = {"data": f"data:;base64,{media.data}", "format": "wav"}
            return {"type": "input_audio", "input_audio": sound}


class DashscopeDecoder:
    """Turn the events of one streamed answer into deltas, `Done` last; see ReplyDecoder for the arguments."""

    def __init__(self, *, speak: bool, tools: bool = False) -> None:
        self._reply = ReplyDecoder(speak=speak, tools=tools)
        self._filtered = False
        self._said = False
        self._written = False
        "Words come as the text's own content: the sound's transcript would repeat them."

    @property
    def finished(self) -> bool:
        """Done has been given; what comes later is ignored."""
        return self._filtered or self._reply.finished

    @property
    def complete(self) -> bool:
        """The service has said why it ended: nothing of the answer itself is missing."""
        return self._filtered or self._reply.complete

    def receive_event(self, data: str) -> list[Delta]:
        """Take the data of one event. Raises EngineError if it tells of one or cannot be read."""
        if self.finished:
            return []
        if data.strip() == "[DONE]":
            return self._reply.receive_event(data)
        chunk = read_chunk(data)
        if chunk.get("error"):
            return self._receive_error(chunk["error"])
        deltas = self._reply.receive_chunk(chunk)
        self._written = self._written or any(isinstance(delta, TextDelta) for delta in deltas)
        deltas += self._receive_audio(_audio_of(chunk))
        self._said = self._said or any(isinstance(delta, TextDelta | AudioDelta) for delta in deltas)
        return deltas

    def receive_eof(self) -> list[Delta]:
        """Take the end of the stream. Raises EngineLost if the answer was not complete."""
        return [] if self.finished else self._reply.receive_eof()

    def _receive_audio(self, audio: Json) -> list[Delta]:
        deltas: list[Delta] = []
        for modality, content in (("text", audio.get("transcript")), ("audio", audio.get("data"))):
            if isinstance(content, str) and content and not (modality == "text" and self._written):
                chunk = {"modality": modality, "choices": [{"delta": {"content": content}}]}
                deltas += self._reply.receive_chunk(chunk)
        return deltas

    def _receive_error(self, detail: object) -> list[Delta]:
        error = service_error(detail)
        if self._said and isinstance(detail, dict) and detail.get("code") == _FILTERED:
            logger.warning("an answer was cut off by the service's filter")
            self._filtered = True
            return [Done("content_filter")]
        raise error


def service_error(detail: object) -> EngineError:
    """Make the error that an event tells of, `{"message", "type", "code"}`, whose codes are words."""
    if not isinstance(detail, dict):
        return stream_error(detail)
    message, code = str(detail.get("message") or ""), str(detail.get("code") or detail.get("type") or "")
    status = 500
    if found := _STATUS.match(message):
        status = int(found[1])
    elif _BUSY.search(code):
        status = 429
    elif _INVALID.search(code):
        status = 400
    return stream_error({"message": message or code, "code": status})


def _audio_of(chunk: Json) -> Json:
    choices = chunk.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    delta = choice.get("delta") if isinstance(choice, dict) else None
    audio = delta.get("audio") if isinstance(delta, dict) else None
    return audio if isinstance(audio, dict) else {}


def _house_voice(model: str) -> str:
    """Name the voice that the documentation's examples have for a family of models: each has its own list."""
    return "Cherry" if model.startswith(("qwen-omni", "qwen2", "qwen3-")) else "Tina"
