"""The embedded engine's HTTP face on a Unix socket: vLLM-Omni's contract, admission, cancellation."""

import asyncio
import json
import logging
import secrets
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, Protocol

from aiohttp import web

from ..errors import EngineBusy, EngineError, EngineRefused
from .contract import DONE, Ask, Chunks, Piece, error_body, event, parse_request

logger = logging.getLogger(__name__)

CALLER_HEADER = "X-Visavis-Call"
"Names the call a request belongs to, so that calls take fair turns."

RETRY_AFTER_S = 2
_MAX_BODY = 64 * 1024 * 1024
"A minute of WAV is 2.6 MB in base64; a turn's pictures may be more."
_MAX_CALLER = 128
_WRITE_S = 20.0
"A client that reads nothing for so long is gone."


class Responder(Protocol):
    """`pipeline.Pipeline`, or a stand-in."""

    def respond(self, ask: Ask) -> AsyncGenerator[Piece, None]: ...


class LocalServer:
    """Serves a responder once it is there; `/health` says 503 until then."""

    def __init__(self, model: str, *, queue: int) -> None:
        """`queue` requests may wait beside the one that is served."""
        self._model = model
        self._limit = queue + 1
        self._responder: Responder | None = None
        self._active = 0

    @property
    def active(self) -> int:
        """Requests being served or waiting."""
        return self._active

    def open(self, responder: Responder) -> None:
        """Take requests from now on."""
        self._responder = responder

    def app(self) -> web.Application:
        app = web.Application(client_max_size=_MAX_BODY)
        app.router.add_get("/health", self._health)
        app.router.add_get("/v1/models", self._models)
        app.router.add_post("/v1/chat/completions", self._completions)
        return app

    async def _health(self, _: web.Request) -> web.Response:
        return web.Response(status=503 if self._responder is None else 200)

    async def _models(self, _: web.Request) -> web.Response:
        card = {"id": self._model, "object": "model", "created": 0, "owned_by": "visavis"}
        return web.json_response({"object": "list", "data": [card]})

    async def _completions(self, request: web.Request) -> web.StreamResponse:
        if self._responder is None:
            return _busy("the models are still being loaded")
        if self._active >= self._limit:
            return _busy(f"{self._limit} requests are already being served or waiting")
        self._active += 1
        try:
            caller = request.headers.get(CALLER_HEADER, "")[:_MAX_CALLER]
            try:
                body = await request.json()
                ask = await asyncio.to_thread(parse_request, body, caller)
            except EngineRefused as error:
                return _error(400, str(error), "invalid_request_error")
            except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
                return _error(400, f"the body is not JSON: {error}", "invalid_request_error")
            return await self._stream(request, ask, self._responder)
        finally:
            self._active -= 1

    async def _stream(self, request: web.Request, ask: Ask, responder: Responder) -> web.StreamResponse:
        """Send the pieces as they come. A client that leaves cancels this task, which closes them."""
        response = web.StreamResponse(
            headers={"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache"}
        )
        await response.prepare(request)
        response_id = f"chatcmpl-{secrets.token_hex(12)}"
        chunks = Chunks(response_id, int(time.time()), self._model, usage=ask.usage)
        await _write(response, chunks.begin())
        try:
            async with aclosing(responder.respond(ask)) as pieces:
                async for piece in pieces:
                    await _write(response, chunks.piece(piece))
        except EngineError as error:
            logger.warning("call %s: %s", ask.caller or "-", error)
            await _write(response, event(_stream_error(error)) + DONE)
        except (ConnectionError, TimeoutError):
            logger.info("call %s: the client is gone", ask.caller or "-")
        except Exception:  # one response fails, the engine lives on
            logger.exception("call %s: response failed", ask.caller or "-")
            await _write(response, event(error_body("the engine failed", "server_error", 500)) + DONE)
        return response


async def _write(response: web.StreamResponse, data: bytes) -> None:
    async with asyncio.timeout(_WRITE_S):
        await response.write(data)


def _stream_error(error: EngineError) -> dict[str, Any]:
    if isinstance(error, EngineRefused):
        return error_body(str(error), "invalid_request_error", 400)
    if isinstance(error, EngineBusy):
        return error_body(str(error), "overloaded_error", 503)
    return error_body(str(error), "server_error", 500)


def _busy(why: str) -> web.Response:
    response = _error(503, f"busy: {why}; try again", "overloaded_error")
    response.headers["Retry-After"] = str(RETRY_AFTER_S)
    return response


def _error(status: int, message: str, kind: str) -> web.Response:
    return web.json_response(error_body(message, kind, status), status=status)
