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
from .audio_api import AudioApi
from .contract import DONE, Ask, Chunks, Piece, error_body, event, parse_request
from .hearing import Hearing
from .refusals import CALLER_HEADER, MAX_CALLER, WRITE_S, busy, refusal
from .speech import Voice

logger = logging.getLogger(__name__)

_MAX_BODY = 64 * 1024 * 1024
"A minute of WAV is 2.6 MB in base64; a turn's pictures may be more."


class Responder(Protocol):
    """`pipeline.Pipeline`, or a stand-in."""

    def respond(self, ask: Ask) -> AsyncGenerator[Piece, None]: ...


class LocalServer:
    """Serves what parts there are once they are there; `/health` says 503 until then."""

    def __init__(self, model: str, *, queue: int) -> None:
        """`queue` requests may wait beside the one that is served, of each kind."""
        self._model = model
        self._limit = queue + 1
        self._audio = AudioApi(queue=queue)
        self._responder: Responder | None = None
        self._opened = False
        self._active = 0

    @property
    def active(self) -> int:
        """Requests being served or waiting."""
        return self._active + self._audio.active

    def open(
        self, responder: Responder | None, hearing: Hearing | None = None, voice: Voice | None = None
    ) -> None:
        """Take requests from now on; None is a part that was not asked for."""
        self._responder = responder
        self._audio.open(hearing, voice)
        self._opened = True

    def app(self) -> web.Application:
        app = web.Application(client_max_size=_MAX_BODY)
        app.router.add_get("/health", self._health)
        app.router.add_get("/v1/models", self._models)
        app.router.add_post("/v1/chat/completions", self._completions)
        self._audio.add_routes(app.router)
        return app

    async def _health(self, _: web.Request) -> web.Response:
        return web.Response(status=200 if self._opened else 503)

    async def _models(self, _: web.Request) -> web.Response:
        card = {"id": self._model, "object": "model", "created": 0, "owned_by": "visavis"}
        return web.json_response({"object": "list", "data": [card]})

    async def _completions(self, request: web.Request) -> web.StreamResponse:
        if not self._opened:
            return busy("the models are still being loaded")
        if self._responder is None:
            return refusal(404, "this engine was started without a mind", "not_found_error")
        if self._active >= self._limit:
            return busy(f"{self._limit} requests are already being served or waiting")
        self._active += 1
        try:
            caller = request.headers.get(CALLER_HEADER, "")[:MAX_CALLER]
            try:
                body = await request.json()
                ask = await asyncio.to_thread(parse_request, body, caller)
            except EngineRefused as error:
                return refusal(400, str(error), "invalid_request_error")
            except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
                return refusal(400, f"the body is not JSON: {error}", "invalid_request_error")
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
    async with asyncio.timeout(WRITE_S):
        await response.write(data)


def _stream_error(error: EngineError) -> dict[str, Any]:
    if isinstance(error, EngineRefused):
        return error_body(str(error), "invalid_request_error", 400)
    if isinstance(error, EngineBusy):
        return error_body(str(error), "overloaded_error", 503)
    return error_body(str(error), "server_error", 500)
