"""The HTTP server: routes of the call resource, health and page, and the refusals that all of them share."""

import asyncio
import logging
import math
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

from aiohttp import hdrs, web
from aiohttp.abc import AbstractAccessLogger
from aiohttp.typedefs import Handler, Middleware

from .admission import RateLimit
from .auth import Gate, peer_address
from .calls import Call, Calls
from .config import Config, SessionConfig
from .errors import ClientEventError, SignallingError
from .forms import parse_form
from .metrics import REFUSALS, exposition
from .page import Page, web_root
from .protocol.fields import parse
from .protocol.realtime_session import merge_session
from .pulse import Pulse

logger = logging.getLogger(__name__)
access_logger = logging.getLogger("visavis.access")

CALLS = web.AppKey("CALLS", Calls)

OpenCall = Callable[[str, SessionConfig], Call]
"Makes the call of a new id with a client's settings, without doing any work."

_API = "/v1/"
_METRICS = "/metrics"
_BODY_S = 10.0
"In which a request's body must have arrived: slow senders must not pile up."
_READY_S = 2.0
"An engine that does not say in time whether it is ready is not."

_WARM_UP_S = 3
"When a caller who came while the engine is being loaded may try again."

_ALLOW_HEADERS = "Authorization, Content-Type, X-OpenAI-Agents-SDK, If-Match"
_ALLOW_METHODS = "POST, DELETE"
_EXPOSE_HEADERS = "Location, ETag, Link, Accept-Patch, Retry-After"
_PREFLIGHT_S = 600

_ERROR_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
_ERROR_CODES = {
    404: "not_found",
    405: "method_not_allowed",
    413: "body_too_large",
    415: "unsupported_media_type",
}


def build_app(
    config: Config,
    open_call: OpenCall,
    ready: Callable[[], Awaitable[bool]],
    page: Path | None = None,
    worker: str = "0",
) -> web.Application:
    """Build the application. Raises ConfigError for settings that would let strangers in.

    `ready` tells whether a request would be answered by the engine now; `page` is the folder of the call
    page, by default the package's own; `worker` names this process in metrics. The live calls are at
    `app[CALLS]`; they end with the application.
    """
    server = config.server
    gate = Gate(server)
    calls = Calls(server.max_calls, answer_s=config.rtc.connect_s)
    api = _Api(config.conversation.session, calls, open_call, ready)
    app = web.Application(
        client_max_size=server.max_body,
        middlewares=[_refusals(gate), _guard(gate, server.max_requests_per_s)],
    )
    app[CALLS] = calls
    app.add_routes(api.routes())
    app.add_routes(Page(page or web_root()).routes())

    async def close_calls(_: web.Application) -> None:
        await calls.aclose()

    async def feel_pulse(_: web.Application) -> AsyncIterator[None]:
        pulse = asyncio.create_task(Pulse(calls, server.max_calls, worker).run())
        yield
        pulse.cancel()
        await asyncio.wait({pulse})

    app.on_shutdown.append(close_calls)
    app.cleanup_ctx.append(feel_pulse)
    return app


class _Api:
    """The call resource and the health of the server."""

    def __init__(
        self,
        session: SessionConfig,
        calls: Calls,
        open_call: OpenCall,
        ready: Callable[[], Awaitable[bool]],
    ) -> None:
        self._session = session
        self._calls = calls
        self._open_call = open_call
        self._ready = ready

    def routes(self) -> list[web.AbstractRouteDef]:
        calls = "/v1/realtime/calls"
        return [
            web.post(calls, self.create),
            web.delete(f"{calls}/{{call_id}}", self.end),
            web.post(f"{calls}/{{call_id}}/hangup", self.end),
            web.get("/healthz", self.health),
            web.get("/readyz", self.readiness),
            web.get(_METRICS, self.metrics),
        ]

    async def create(self, request: web.Request) -> web.Response:
        self._calls.check_room()
        await self._check_ready()
        offer, changes = await _read_offer(request)
        session = self._session
        if changes is not None:
            try:
                session = merge_session(session, parse(changes))
            except ClientEventError as error:
                param = error.param or "session"
                raise SignallingError(400, str(error), code=error.code, param=param) from error
        # The id alone gives the right to end the call where there is no key, so it must not be guessed.
        call_id = f"rtc_{secrets.token_hex(12)}"
        answer = await self._calls.open(call_id, lambda: self._open_call(call_id, session), offer)
        return web.Response(
            status=201,
            body=answer.encode(),
            content_type="application/sdp",
            headers={hdrs.LOCATION: f"/v1/realtime/calls/{call_id}"},
        )

    async def end(self, request: web.Request) -> web.Response:
        await self._calls.close(request.match_info["call_id"], "the client hung up")
        return web.Response()

    async def health(self, request: web.Request) -> web.Response:
        return web.json_response({"status": "ok"})

    async def metrics(self, request: web.Request) -> web.Response:
        body, content_type = await asyncio.to_thread(exposition)  # the loop has sound to send meanwhile
        return web.Response(body=body, headers={hdrs.CONTENT_TYPE: content_type})

    async def readiness(self, request: web.Request) -> web.Response:
        if self._calls.closing:
            raise SignallingError(503, "The server is shutting down.", code="shutting_down")
        await self._check_ready()
        return web.json_response({"status": "ready"})

    async def _check_ready(self) -> None:
        """Raise SignallingError (503) while a call would find nobody to talk to."""
        try:
            async with asyncio.timeout(_READY_S):
                ready = await self._ready()
        except TimeoutError:
            ready = False
        if not ready:
            raise SignallingError(
                503,
                "The engine is not ready yet; try again in a moment.",
                code="engine_not_ready",
                retry_after_s=_WARM_UP_S,
            )


async def _read_offer(request: web.Request) -> tuple[str, bytes | None]:
    """Return the offer and the client's session settings in JSON, if it sent any."""
    kind = request.content_type
    if kind not in ("application/sdp", "multipart/form-data"):
        raise SignallingError(
            415, "Send an offer as application/sdp or multipart/form-data.", code="unsupported_media_type"
        )
    try:
        async with asyncio.timeout(_BODY_S):
            body = await request.read()
    except TimeoutError as error:
        raise SignallingError(408, "The body took too long to arrive.", code="body_timeout") from error
    except (web.RequestPayloadError, ConnectionError) as error:
        raise SignallingError(400, "The body did not arrive whole.", code="invalid_body") from error
    changes: bytes | None = None
    if kind == "multipart/form-data":
        form = parse_form(request.headers[hdrs.CONTENT_TYPE], body)
        if "sdp" not in form:
            raise SignallingError(
                400, "The form has no part named sdp.", code="missing_required_parameter", param="sdp"
            )
        body, changes = form["sdp"], form.get("session")
    try:
        offer = body.decode()
    except UnicodeDecodeError as error:
        raise SignallingError(400, "The offer is not UTF-8.", code="invalid_sdp", param="sdp") from error
    if not offer.startswith("v=0"):
        raise SignallingError(400, "The offer does not begin with v=0.", code="invalid_sdp", param="sdp")
    return offer, changes


def _guard(gate: Gate, requests_per_s: float) -> Middleware:
    """Let through what the gate and the rate limit allow; answer preflights."""
    limit = RateLimit(requests_per_s, burst=max(1.0, 3 * requests_per_s))

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        gate.check_reach(request)
        if not _is_api(request):
            return await handler(request)
        gate.check_origin(request)
        if request.method == hdrs.METH_OPTIONS:
            return _preflight(listed=gate.listed_origin(request) is not None)
        # Before the key is looked at, so that keys cannot be tried out quickly.
        wait_s = limit.take(peer_address(request), asyncio.get_running_loop().time())
        if wait_s:
            raise SignallingError(
                429, "Too many requests.", code="rate_limit_exceeded", retry_after_s=math.ceil(wait_s)
            )
        gate.check_key(request)
        return await handler(request)

    return check


def _preflight(*, listed: bool) -> web.Response:
    headers = {hdrs.ALLOW: f"{_ALLOW_METHODS}, OPTIONS"}
    if listed:
        headers |= {
            hdrs.ACCESS_CONTROL_ALLOW_METHODS: _ALLOW_METHODS,
            hdrs.ACCESS_CONTROL_ALLOW_HEADERS: _ALLOW_HEADERS,
            hdrs.ACCESS_CONTROL_MAX_AGE: str(_PREFLIGHT_S),
        }
    return web.Response(status=204, headers=headers)


def _refusals(gate: Gate) -> Middleware:
    """Give every refusal the same JSON shape and every response the headers that it needs."""

    @web.middleware
    async def answer(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            response = await handler(request)
        except SignallingError as error:
            response = _refusal(error)
        except web.HTTPException as error:
            response = _refusal(_as_signalling_error(error))
            if hdrs.ALLOW in error.headers:
                response.headers[hdrs.ALLOW] = error.headers[hdrs.ALLOW]
        except Exception:
            logger.exception("%s %s failed", request.method, request.rel_url.raw_path)
            response = _refusal(SignallingError(500, "The server failed.", code="internal_error"))
        response.headers["X-Content-Type-Options"] = "nosniff"
        response.headers["Referrer-Policy"] = "no-referrer"
        response.headers.setdefault(hdrs.CACHE_CONTROL, "no-store")
        if _is_api(request):
            response.headers[hdrs.VARY] = hdrs.ORIGIN
            if (origin := gate.listed_origin(request)) is not None:
                response.headers[hdrs.ACCESS_CONTROL_ALLOW_ORIGIN] = origin
                response.headers[hdrs.ACCESS_CONTROL_EXPOSE_HEADERS] = _EXPOSE_HEADERS
        return response

    return answer


def _is_api(request: web.Request) -> bool:
    """Tell by the route that will run, not only by the spelling of the path, whether a key is needed."""
    resource = request.match_info.route.resource
    paths = (request.path, "" if resource is None else resource.canonical)
    return any(path.startswith(_API) or path == _METRICS for path in paths)


def _as_signalling_error(error: web.HTTPException) -> SignallingError:
    messages = {
        404: "There is nothing at this address.",
        405: "This method is not allowed here.",
        413: "The body is too large.",
    }
    message = messages.get(error.status, error.reason or "Refused.")
    return SignallingError(error.status, message, code=_ERROR_CODES.get(error.status, "invalid_request"))


def _refusal(error: SignallingError) -> web.Response:
    REFUSALS.labels(error.code).inc()
    kind = _ERROR_TYPES.get(error.status, "invalid_request_error" if error.status < 500 else "server_error")
    headers: dict[str, str] = {}
    if error.status == 401:
        headers[hdrs.WWW_AUTHENTICATE] = "Bearer"
    if error.retry_after_s is not None:
        headers[hdrs.RETRY_AFTER] = str(error.retry_after_s)
    body = {"message": str(error), "type": kind, "code": error.code, "param": error.param}
    return web.json_response({"error": body}, status=error.status, headers=headers)


class AccessLog(AbstractAccessLogger):
    """One line for each request of the interface, none of what it carried."""

    def log(self, request: web.BaseRequest, response: web.StreamResponse, time: float) -> None:
        # The path as it was sent, still escaped: it cannot break the line. The query may hold secrets.
        path = request.rel_url.raw_path
        level = logging.INFO if path.startswith(_API) else logging.DEBUG
        access_logger.log(
            level, "%s %s %s %d %.0f ms", request.remote, request.method, path, response.status, time * 1000
        )
