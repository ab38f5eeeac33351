"""Client of vLLM-Omni, and of all that speaks its contract, the embedded engine first of all."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace

from ..config import EngineConfig, FusionConfig
from ..errors import ConfigError, EngineRefused
from ..fusion import fuser_for
from . import AudioPart, Delta, FramesPart, Request
from .calling import is_about_tools
from .chat import ReplyDecoder, is_about_speech, request_body
from .http import Answer, EngineHttp
from .voices import Voices, is_about_voice

logger = logging.getLogger(__name__)

_OFF_LOOP = 96_000
"Bytes of sound from which a body is written in a thread: 2 s, whose resampling takes 2 ms of CPU."
_ATTEMPTS = 4
"Of one request. One voice, the one in its place, the engine's own, text alone: no engine needs more."


class VllmEngine:
    """Streams responses from `POST /v1/chat/completions` over TCP or, for `unix:///path`, a Unix socket.

    One instance serves all calls of an event loop. Closing the generator of `respond` closes its
    connection at once, upon which the engine aborts the request.
    """

    def __init__(self, config: EngineConfig, fusion: FusionConfig | None = None) -> None:
        """Raises ConfigError if `config.url` is not one of http, https or unix."""
        self._config = config
        self._fuser = fuser_for(config, fusion or FusionConfig())
        base, socket = _split_url(config.url)
        self._http = EngineHttp(config, base, socket=socket)
        self._voices = Voices(config.voice)
        self._speaks = config.speak and not config.thinking
        self._tools = config.tools

    @property
    def voices(self) -> tuple[str, ...]:
        """The engine's voices as it spells them; none until it has told them, by refusing one."""
        return self._voices.known

    async def respond(self, request: Request) -> AsyncGenerator[Delta, None]:
        """Stream one response, `Done` last; `aclose()` of the generator stops the work on the engine.

        It has no sound if the request, the configuration or the server says so, or the model thinks.
        Raises EngineError (EngineRefused, EngineBusy, EngineLost) and nothing else.
        """
        deadline = asyncio.get_running_loop().time() + self._config.first_delta_s
        asked, answer = await self._ask(request, deadline)
        decoder = ReplyDecoder(speak=asked.speak, thinking=self._config.thinking, tools=bool(request.tools))
        async with aclosing(self._http.deltas(request.call_id, answer, decoder, deadline)) as deltas:
            async for delta in deltas:
                yield delta

    async def ready(self) -> bool:
        """Tell whether `GET /health` says 200 within `connect_s`."""
        return await self._http.status("/health") == 200

    async def aclose(self) -> None:
        """Close all connections; responses under way fail with EngineLost, as do later ones."""
        await self._http.aclose()

    async def _write_body(self, request: Request) -> bytes:
        if _weight(request) > _OFF_LOOP:
            return await asyncio.to_thread(request_body, request, self._config, self._fuser, self._tools)
        return request_body(request, self._config, self._fuser, self._tools)

    async def _ask(self, request: Request, deadline: float) -> tuple[Request, Answer]:
        """Open the stream, and tell what was asked for in the end.

        What an engine can say, in which voices, and whether it reads calls, it tells only when it refuses
        something else.
        """
        asked, manner = self._fitting(request), self._tools
        attempts = 1
        while True:
            try:
                return asked, await self._post(asked, deadline)
            except EngineRefused as error:
                self._learn(asked, error)
                fitting = self._fitting(request)
                known = (asked.speak, asked.voice, manner)
                if attempts == _ATTEMPTS or (fitting.speak, fitting.voice, self._tools) == known:
                    raise
                logger.debug("call %s: asked again: %s", request.call_id, error)
            asked, manner = fitting, self._tools
            attempts += 1

    def _fitting(self, request: Request) -> Request:
        """Return the request as this engine, as far as it is known, can fulfil it."""
        return replace(
            request,
            speak=request.speak and self._speaks,
            voice=self._voices.choose(request.voice),
        )

    def _learn(self, asked: Request, error: EngineRefused) -> None:
        if asked.tools and is_about_tools(error):
            if self._tools == "server":
                logger.warning(
                    "the engine reads no calls of functions: from now on they are read here (%s)", error
                )
            self._tools = "text"
            return
        if not asked.speak:
            return
        if is_about_speech(error):
            if self._speaks:
                logger.warning("the engine does not speak: from now on it is asked for text")
            self._speaks = False
        elif asked.voice is not None and is_about_voice(str(error)):
            self._voices.receive_refusal(asked.voice, str(error))

    async def _post(self, request: Request, deadline: float) -> Answer:
        body = await self._write_body(request)
        headers = {"X-Visavis-Call": request.call_id}
        return await self._http.post(request.call_id, "/v1/chat/completions", body, deadline, headers)


def _weight(request: Request) -> float:
    """Estimate what writing the request costs, in bytes of sound."""
    weight = 0.0
    for message in request.messages:
        for part in message.parts:
            match part:
                case AudioPart(pcm):
                    weight += pcm.nbytes
                case FramesPart(frames):
                    weight += sum(len(frame.jpeg) for frame in frames)
    return weight


def _split_url(url: str) -> tuple[str, str | None]:
    """Give the base URL for HTTP and the path of the socket, if it is one."""
    scheme, found, rest = url.partition("://")
    match scheme:
        case "unix" if found and rest.startswith("/"):
            return "http://localhost", rest
        case "http" | "https" if found and rest:
            return url.rstrip("/").removesuffix("/v1"), None
        case _:
            raise ConfigError(
                f"engine.url is {url!r}; write http://host:port, https://host or unix:///path/of/the/socket"
            )
