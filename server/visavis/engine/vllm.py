"""Client of vLLM-Omni, and of all that speaks its contract, the embedded engine first of all."""

import asyncio
import io
import logging
from collections.abc import AsyncGenerator
from dataclasses import dataclass, replace
from types import SimpleNamespace

import aiohttp

from ..config import EngineConfig
from ..errors import ConfigError, EngineLost, EngineRefused
from . import AudioPart, Delta, Done, FramesPart, Request
from .chat import ReplyDecoder, http_error, is_about_voice, request_body
from .sse import SseParser

logger = logging.getLogger(__name__)

_OFF_LOOP = 96_000
"Bytes of sound from which a body is written in a thread: 2 s, whose resampling takes 2 ms of CPU."
_JPEG_WEIGHT = 5
"How many bytes of pictures, which are only written as base64, cost as much as one of sound."
_RETRY_AFTER_S = 0.1
"Pause before a refused connection is tried once more: an engine that has just been restarted."
_DRAIN_S = 0.25
"How long the end of a complete answer is waited for; only then can the connection be used again."
_MAX_ERROR_BODY = 65_536
_MAX_UNKNOWN_VOICES = 100
"Names remembered as unknown to the engine; clients make them up."


@dataclass(slots=True)
class _Connection:
    """What aiohttp's tracing tells of the connection that one attempt got."""

    reused: bool = False


class VllmEngine:
    """Streams responses from `POST /v1/chat/completions` over TCP or, for `unix:///path`, a Unix socket.

    One instance serves all calls of an event loop; connections are pooled and not limited in number,
    since admission is the server's business. Closing the generator of `respond` closes its connection
    at once, upon which the engine aborts the request.
    """

    def __init__(self, config: EngineConfig) -> None:
        """Raises ConfigError if `config.url` is not one of http, https or unix."""
        self._config = config
        self._base, self._socket = _split_url(config.url)
        self._session: aiohttp.ClientSession | None = None
        self._closed = False
        self._unknown_voices: set[str] = set()

    async def respond(self, request: Request) -> AsyncGenerator[Delta, None]:
        """Stream one response, `Done` last; `aclose()` of the generator stops the work on the engine.

        Raises EngineError (EngineRefused, EngineBusy, EngineLost) and nothing else.
        """
        loop = asyncio.get_running_loop()
        started = loop.time()
        deadline = started + self._config.first_delta_s
        first: float | None = None
        response = await self._ask(request, deadline)
        try:
            parser, decoder = SseParser(), ReplyDecoder(speak=request.speak)
            while not decoder.finished:
                data = await self._read(response, deadline, complete=decoder.complete)
                parser.receive_data(data)
                heard = False
                while (event := parser.next_event()) is not None:
                    heard = True
                    for delta in decoder.receive_event(event):
                        if first is None:
                            first = loop.time()
                        if isinstance(delta, Done):
                            await self._drain(response)
                        yield delta
                if not data:
                    for delta in decoder.receive_eof():
                        yield delta
                elif heard and first is not None:
                    # Counted from here: the time that the consumer took is not the engine's silence.
                    deadline = loop.time() + self._config.idle_s
        finally:
            response.close()
            logger.debug(
                "call %s: engine answered %d, first delta after %.3f s, end after %.3f s",
                request.call_id,
                response.status,
                -1.0 if first is None else first - started,
                loop.time() - started,
            )

    async def ready(self) -> bool:
        """Tell whether `GET /health` says 200 within `connect_s`."""
        try:
            async with (
                asyncio.timeout(self._config.connect_s),
                self._client().get(f"{self._base}/health", allow_redirects=False) as response,
            ):
                return response.status == 200
        except (EngineLost, aiohttp.ClientError, OSError):
            return False

    async def aclose(self) -> None:
        """Close all connections; responses under way fail with EngineLost, as do later ones."""
        self._closed = True
        if self._session is not None:
            await self._session.close()

    def _client(self) -> aiohttp.ClientSession:
        if self._closed:
            raise EngineLost("The engine's client has been closed.")
        if self._session is None:
            connector = (
                aiohttp.TCPConnector(limit=0)
                if self._socket is None
                else aiohttp.UnixConnector(self._socket, limit=0)
            )
            headers = {"Accept-Encoding": "identity"}  # a proxy that compresses holds deltas back
            if self._config.api_key is not None:
                headers["Authorization"] = f"Bearer {self._config.api_key}"
            tracing = aiohttp.TraceConfig()
            tracing.on_connection_reuseconn.append(_note_reuse)
            self._session = aiohttp.ClientSession(
                connector=connector,
                headers=headers,
                cookie_jar=aiohttp.DummyCookieJar(),
                # The deadlines of a stream are ours: aiohttp's count bytes, not deltas.
                timeout=aiohttp.ClientTimeout(total=None, connect=self._config.connect_s),
                trace_configs=[tracing],
            )
        return self._session

    async def _write_body(self, request: Request) -> bytes:
        if _weight(request) > _OFF_LOOP:
            return await asyncio.to_thread(request_body, request, self._config)
        return request_body(request, self._config)

    async def _ask(self, request: Request, deadline: float) -> aiohttp.ClientResponse:
        """Open the stream; a voice that the engine does not know is replaced by the default.

        Clients of OpenAI name OpenAI's voices, and the engine tells its own only in the refusal.
        """
        if request.voice in self._unknown_voices:
            request = replace(request, voice=None)
        try:
            return await self._open(request.call_id, await self._write_body(request), deadline)
        except EngineRefused as error:
            if not request.speak or request.voice is None or not is_about_voice(error):
                raise
        logger.debug("call %s: unknown voice, the default speaks", request.call_id)
        if len(self._unknown_voices) < _MAX_UNKNOWN_VOICES:
            self._unknown_voices.add(request.voice)
        return await self._open(
            request.call_id, await self._write_body(replace(request, voice=None)), deadline
        )

    async def _open(self, call_id: str, body: bytes, deadline: float) -> aiohttp.ClientResponse:
        """Post the request and return the answer if it is a stream. Raises EngineError."""
        response = await self._post(call_id, body, deadline)
        if response.status == 200 and response.content_type == "text/event-stream":
            return response
        try:
            if response.status == 200:
                raise EngineLost("What answers at engine.url is not an engine: it sends no stream.")
            raise http_error(response.status, await self._read_start(response, deadline))
        finally:
            response.close()

    async def _post(self, call_id: str, body: bytes, deadline: float) -> aiohttp.ClientResponse:
        """Post until the engine answers, at most twice.

        Twice only where the engine cannot have begun: no connection came about, or a pooled one had
        been dropped by the other side in the meantime.
        """
        retried = False
        while True:
            connection = _Connection()
            try:
                async with asyncio.timeout_at(deadline):
                    return await self._client().post(
                        f"{self._base}/v1/chat/completions",
                        # Not bytes: aiohttp writes those in one go, however many.
                        data=io.BytesIO(body),
                        headers={"Content-Type": "application/json", "X-Visavis-Call": call_id},
                        allow_redirects=False,
                        trace_request_ctx=connection,
                    )
            except aiohttp.ClientConnectorError as error:
                if retried:
                    # The message may reach the caller, whom our network does not concern.
                    logger.warning("call %s: %s", call_id, error)
                    raise EngineLost("The engine cannot be reached.") from error
                await asyncio.sleep(_RETRY_AFTER_S)
            except TimeoutError as error:
                raise EngineLost("The engine did not answer in time.") from error
            except (aiohttp.ClientError, OSError) as error:
                if retried or not connection.reused:
                    raise EngineLost("The engine closed the connection before it answered.") from error
            retried = True
            logger.debug("call %s: no connection to the engine, trying once more", call_id)

    async def _read(self, response: aiohttp.ClientResponse, deadline: float, *, complete: bool) -> bytes:
        """Give the next bytes of a stream, none at its end. A complete answer may end in any way."""
        try:
            async with asyncio.timeout_at(deadline):
                return await self._next_bytes(response)
        except TimeoutError as error:
            if complete:
                return b""
            raise EngineLost("The engine fell silent.") from error
        except (aiohttp.ClientError, OSError) as error:
            if complete:
                return b""
            raise EngineLost("The engine broke off in the middle of an answer.") from error

    async def _read_start(self, response: aiohttp.ClientResponse, deadline: float) -> bytes:
        """Read a body as far as it comes and is of use."""
        body = b""
        try:
            async with asyncio.timeout_at(deadline):
                while len(body) < _MAX_ERROR_BODY and (data := await self._next_bytes(response)):
                    body += data
        except (aiohttp.ClientError, OSError):
            pass  # the status alone says enough
        return body

    async def _next_bytes(self, response: aiohttp.ClientResponse) -> bytes:
        # Reading on after our own close is a RuntimeError to aiohttp.
        if self._closed:
            raise EngineLost("The engine's client has been closed.")
        return await response.content.readany()

    async def _drain(self, response: aiohttp.ClientResponse) -> None:
        try:
            async with asyncio.timeout(_DRAIN_S):
                while await self._next_bytes(response):
                    pass
        except (EngineLost, aiohttp.ClientError, OSError):
            pass  # then this connection is not used again


async def _note_reuse(
    _session: aiohttp.ClientSession,
    context: SimpleNamespace,
    _params: aiohttp.TraceConnectionReuseconnParams,
) -> None:
    if isinstance(context.trace_request_ctx, _Connection):
        context.trace_request_ctx.reused = True


def _weight(request: Request) -> float:
    """Estimate what writing the request costs, in bytes of sound."""
    weight = 0.0
    for message in request.messages:
        for part in message.parts:
            match part:
                case AudioPart(pcm):
                    weight += pcm.nbytes
                case FramesPart(frames):
                    weight += sum(len(frame.jpeg) for frame in frames) / _JPEG_WEIGHT
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
