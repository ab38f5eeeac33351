"""One engine's HTTP: pooled connections, a POST that streams events back, deadlines, errors as ours."""

import asyncio
import io
import logging
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Protocol
from urllib.parse import urlsplit

import aiohttp

from ..config import EngineConfig
from ..errors import ConfigError, EngineLost
from . import Delta, Done, Sent
from .chat import http_error
from .sse import SseParser

logger = logging.getLogger(__name__)

_RETRY_AFTER_S = 0.1
"Pause before a refused connection is tried once more: an engine that has just been restarted."
_DRAIN_S = 0.25
"How long the end of a complete answer is waited for; only then can the connection be used again."
_MAX_ERROR_BODY = 65_536


class Decoder(Protocol):
    """What turns the events of one answer into deltas."""

    @property
    def finished(self) -> bool:
        """Done has been given; what comes later is ignored."""
        ...

    @property
    def complete(self) -> bool:
        """Nothing of the answer itself is missing, however the stream ends."""
        ...

    def receive_event(self, data: str) -> list[Delta]:
        """Take the data of one event. Raises EngineError if it tells of one or cannot be read."""
        ...

    def receive_eof(self) -> list[Delta]:
        """Take the end of the stream. Raises EngineLost if the answer was not complete."""
        ...


@dataclass(slots=True)
class _Connection:
    """What aiohttp's tracing tells of the connection that one attempt got."""

    reused: bool = False
    sent_at: float = 0.0
    "When the last piece of the request was handed to the socket: seconds of the event loop's clock."


@dataclass(frozen=True, slots=True)
class Answer:
    """A stream that has begun."""

    response: aiohttp.ClientResponse
    sent_at: float
    "When the request had been written."


class EngineHttp:
    """The connections to one engine over TCP or a Unix socket.

    One instance serves all calls of an event loop; connections are pooled and not limited in number,
    since admission is the server's business.
    """

    def __init__(self, config: EngineConfig, base: str, *, socket: str | None = None) -> None:
        """`base` goes before every path. The timeouts and the key are the configuration's.

        Raises ConfigError if `base` names no server or the key cannot be sent.
        """
        _check(base, config.api_key)
        self._config = config
        self._base = base
        self._socket = socket
        self._session: aiohttp.ClientSession | None = None
        self._closed = False

    async def post(
        self, call_id: str, path: str, body: bytes, deadline: float, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """Post JSON and return the answer if it is a stream, which `deltas` reads and closes.

        `deadline` is a time of the event loop. Raises EngineError.
        """
        answer = await self._post(call_id, path, body, deadline, headers or {})
        response = answer.response
        if response.status == 200 and response.content_type == "text/event-stream":
            return answer
        try:
            if response.status == 200:
                raise EngineLost("What answers at engine.url is not an engine: it sends no stream.")
            raise http_error(response.status, await self._read_start(response, deadline))
        finally:
            response.close()

    async def deltas(
        self, call_id: str, answer: Answer, decoder: Decoder, deadline: float
    ) -> AsyncGenerator[Delta, None]:
        """Stream what the decoder makes of an answer, and close it in the end, however that comes.

        The first delta is due at `deadline`, each later one `idle_s` after the one before it. `Sent` comes
        with the first one, so that an engine that never says anything has given nothing.

        Raises EngineError.
        """
        loop = asyncio.get_running_loop()
        started = loop.time()
        response = answer.response
        first: float | None = None
        parser = SseParser()
        try:
            while not decoder.finished:
                data = await self._read(response, deadline, complete=decoder.complete)
                parser.receive_data(data)
                heard = False
                while (event := parser.next_event()) is not None:
                    heard = True
                    for delta in decoder.receive_event(event):
                        if first is None:
                            first = loop.time()
                            yield Sent(answer.sent_at)
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
                call_id,
                response.status,
                -1.0 if first is None else first - started,
                loop.time() - started,
            )

    async def status(self, path: str) -> int | None:
        """Return what a GET gives within `connect_s`; None if nothing."""
        try:
            async with (
                asyncio.timeout(self._config.connect_s),
                self._client().get(f"{self._base}{path}", allow_redirects=False) as response,
            ):
                return response.status
        except (EngineLost, aiohttp.ClientError, OSError):
            return None

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
            tracing.on_request_chunk_sent.append(_note_sent)
            self._session = aiohttp.ClientSession(
                connector=connector,
                headers=headers,
                cookie_jar=aiohttp.DummyCookieJar(),
                # The deadlines of a stream are ours: aiohttp's count bytes, not deltas.
                timeout=aiohttp.ClientTimeout(total=None, connect=self._config.connect_s),
                trace_configs=[tracing],
            )
        return self._session

    async def _post(
        self, call_id: str, path: str, body: bytes, deadline: float, headers: Mapping[str, str]
    ) -> Answer:
        """Post until the engine answers, at most twice.

        Twice only where the engine cannot have begun: no connection came about, or a pooled one had
        been dropped by the other side in the meantime.
        """
        retried = False
        while True:
            connection = _Connection()
            try:
                async with asyncio.timeout_at(deadline):
                    response = await self._client().post(
                        f"{self._base}{path}",
                        # Not bytes: aiohttp writes those in one go, however many.
                        data=io.BytesIO(body),
                        headers={"Content-Type": "application/json", **headers},
                        allow_redirects=False,
                        trace_request_ctx=connection,
                    )
                return Answer(response, connection.sent_at)
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


def _check(base: str, key: str | None) -> None:
    """Tell at the start what would make every request impossible. Raises ConfigError."""
    try:
        address = urlsplit(base)
        named = bool(address.hostname) and address.port != 0
    except ValueError:
        named = False
    if not named:
        raise ConfigError(f"engine.url is {base!r}, which names no server; write http://host:port")
    if key is not None and not key.isprintable():
        raise ConfigError("engine.api_key has a line end or another character that no key can have.")


async def _note_reuse(
    _session: aiohttp.ClientSession,
    context: SimpleNamespace,
    _params: aiohttp.TraceConnectionReuseconnParams,
) -> None:
    if isinstance(context.trace_request_ctx, _Connection):
        context.trace_request_ctx.reused = True


async def _note_sent(
    _session: aiohttp.ClientSession,
    context: SimpleNamespace,
    _params: aiohttp.TraceRequestChunkSentParams,
) -> None:
    if isinstance(context.trace_request_ctx, _Connection):
        context.trace_request_ctx.sent_at = asyncio.get_running_loop().time()
