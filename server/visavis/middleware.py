"""What every request passes and every answer gets: gate, rate limit, refusals in one shape, a log line."""

import asyncio
import logging
import math

from aiohttp import hdrs, web
from aiohttp.abc import AbstractAccessLogger
from aiohttp.typedefs import Handler, Middleware

from .admission import RateLimit
from .auth import SECRET, Gate, Proxies, bearer_of
from .client_secrets import Secrets
from .config import ServerConfig
from .errors import SignallingError
from .metrics import REFUSALS
from .resume import TOKEN_HEADER

logger = logging.getLogger(__name__)
access_logger = logging.getLogger("visavis.access")

APIS = ("/v1/", "/api/")
"What a key is needed for: OpenAI's interface, and Pipecat's."
METRICS = "/metrics"

KEYLESS = frozenset({"/v1/kiosk/pairing", "/v1/kiosk/device", "/v1/kiosk/session"})
"What a device asks before it has a key: the handlers look at the device's own token."

_OFTEN = "/v1/kiosk/device"
"What kiosks, and the page of who looks after them, ask every few seconds: no line for each."

_BODY_S = 10.0
"In which a request's body must have arrived: slow senders must not pile up."

_ALLOW_HEADERS = f"Authorization, Content-Type, OpenAI-Beta, X-OpenAI-Agents-SDK, If-Match, {TOKEN_HEADER}"
_ALLOW_METHODS = "GET, POST, PATCH, DELETE, OPTIONS"
_EXPOSE_HEADERS = f"Location, ETag, Link, Accept-Patch, Accept-Post, Retry-After, {TOKEN_HEADER}"
_PREFLIGHT_S = 600

_ERROR_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
_ERROR_CODES = {
    404: "not_found",
    405: "method_not_allowed",
    413: "body_too_large",
    415: "unsupported_media_type",
}


class Door:
    """The gate, the proxies before it and the rate limit as the settings of the moment have them."""

    def __init__(self, config: ServerConfig) -> None:
        """Raises ConfigError for settings that would let strangers in."""
        self.gate = Gate(config)
        self.proxies = Proxies(config.trusted_proxies)
        self.limit = _rate_limit(config)
        self._per_s = config.max_requests_per_s

    def change(self, config: ServerConfig) -> None:
        """Go by other settings from now on. Raises ConfigError as above, and nothing has changed then."""
        self.gate, self.proxies = Gate(config), Proxies(config.trusted_proxies)
        if config.max_requests_per_s != self._per_s:
            self.limit = _rate_limit(config)
            self._per_s = config.max_requests_per_s


def _rate_limit(config: ServerConfig) -> RateLimit:
    per_s = config.max_requests_per_s
    return RateLimit(per_s, burst=max(1.0, 3 * per_s))


async def read_body(request: web.Request) -> bytes:
    """Return a request's body. Raises SignallingError if it does not come in time, or not whole."""
    try:
        async with asyncio.timeout(_BODY_S):
            return await request.read()
    except TimeoutError as error:
        raise SignallingError(408, "The body took too long to arrive.", code="body_timeout") from error
    except (web.RequestPayloadError, ConnectionError) as error:
        raise SignallingError(400, "The body did not arrive whole.", code="invalid_body") from error


def note_secret(secrets: Secrets) -> Middleware:
    """Keep the client secret of a request as the gate does, where the front's has let it in."""

    @web.middleware
    async def note(request: web.Request, handler: Handler) -> web.StreamResponse:
        if (secret := secrets.read(bearer_of(request))) is not None:
            request[SECRET] = secret
        return await handler(request)

    return note


def guard(door: Door) -> Middleware:
    """Let through what the gate and the rate limit allow; answer preflights."""

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        gate = door.gate
        gate.check_reach(request)
        if not _is_api(request):
            return await handler(request)
        gate.check_origin(request)
        asks = request.method == hdrs.METH_OPTIONS
        if asks and "Access-Control-Request-Method" in request.headers:
            return _preflight(listed=gate.listed_origin(request) is not None)
        # Before the key is looked at, so that keys cannot be tried out quickly.
        caller = door.proxies.caller_address(request)
        wait_s = door.limit.take(caller, asyncio.get_running_loop().time())
        if wait_s:
            raise SignallingError(
                429, "Too many requests.", code="rate_limit_exceeded", retry_after_s=math.ceil(wait_s)
            )
        # What is taken here is told to anyone; ICE servers only to who has a key.
        asks_only = asks and hdrs.AUTHORIZATION not in request.headers
        if not asks_only and _resource(request) not in KEYLESS:
            gate.check_key(request)
        return await handler(request)

    return check


def _preflight(*, listed: bool) -> web.Response:
    headers = {hdrs.ALLOW: _ALLOW_METHODS}
    if listed:
        headers |= {
            hdrs.ACCESS_CONTROL_ALLOW_METHODS: _ALLOW_METHODS,
            hdrs.ACCESS_CONTROL_ALLOW_HEADERS: _ALLOW_HEADERS,
            hdrs.ACCESS_CONTROL_MAX_AGE: str(_PREFLIGHT_S),
        }
    return web.Response(status=204, headers=headers)


def refusals(door: Door | None) -> Middleware:
    """Give every refusal the same JSON shape and every response the headers that it needs.

    Without a door, where the front has one, only the former.
    """

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
        if door is None:
            return response
        response.headers["X-Content-Type-Options"] = "nosniff"
        response.headers["Referrer-Policy"] = "no-referrer"
        response.headers.setdefault(hdrs.CACHE_CONTROL, "no-store")
        if _is_api(request):
            response.headers[hdrs.VARY] = hdrs.ORIGIN
            if (origin := door.gate.listed_origin(request)) is not None:
                response.headers[hdrs.ACCESS_CONTROL_ALLOW_ORIGIN] = origin
                response.headers[hdrs.ACCESS_CONTROL_EXPOSE_HEADERS] = _EXPOSE_HEADERS
        return response

    return answer


def _is_api(request: web.Request) -> bool:
    """Tell by the route that will run, not only by the spelling of the path, whether a key is needed."""
    return any(path.startswith(APIS) or path == METRICS for path in (request.path, _resource(request)))


def _resource(request: web.Request) -> str:
    """Return the path of the route that will run, "" where there is none."""
    resource = request.match_info.route.resource
    return "" if resource is None else resource.canonical


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
        often = request.method == hdrs.METH_GET and path.startswith(_OFTEN)
        level = logging.INFO if path.startswith(APIS) and not often else logging.DEBUG
        access_logger.log(
            level, "%s %s %s %d %.0f ms", request.remote, request.method, path, response.status, time * 1000
        )
