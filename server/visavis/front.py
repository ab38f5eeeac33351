"""The call resource where others carry the calls: requests are passed on to them, answers back.

What opens a call goes to the worker with the fewest, what is for a call to the worker that its id names.
"""

import logging
import secrets

import aiohttp
from aiohttp import hdrs, web
from multidict import CIMultiDict, CIMultiDictProxy

from .app import call_routes
from .auth import bearer_of
from .config import Config
from .dialect import subprotocols
from .display_routes import display_routes
from .errors import SignallingError
from .fleet import Fleet
from .ice_routes import IceServers
from .ids import RANDOM_BYTES, CallId, read_call_id
from .middleware import read_body
from .placement import Placement
from .resume import TOKEN_HEADER, place_of
from .rtvi_routes import call_of, read_candidates, read_offer, rtvi_routes
from .secret_routes import SecretApi
from .socket_call import PROTOCOLS
from .socket_routes import NAME_HEADER, check_upgrade, relay, returning_by, socket_routes
from .status import Status
from .whip import Options

logger = logging.getLogger(__name__)

_KEPT_BACK = frozenset(
    {
        # Of one connection alone (RFC 9110, 7.6.1).
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        # Written anew for a body that was read whole.
        "content-length",
        "content-encoding",
        "accept-encoding",
        "host",
        NAME_HEADER.lower(),
        "date",
        "server",
    }
)
"Headers that are not passed on, in either direction."

_ANSWER_S = 10.0
"What a worker may need for a request beside the opening of a call."


class Front:
    """Passes requests on to workers."""

    def __init__(self, config: Config, fleet: Fleet, placement: Placement, status: Status) -> None:
        self.config = config
        "The settings of the moment."
        self._fleet = fleet
        self._placement = placement
        self._status = status
        self.secrets = SecretApi(lambda: self.config)
        self._ice = IceServers(lambda: self.config.rtc)

    def routes(self) -> list[web.AbstractRouteDef]:
        return [
            *call_routes(self.create, *[self.pass_to_its_worker] * 3),
            *display_routes(*[self.pass_to_its_worker] * 3),
            *self.secrets.routes(),
            *self._ice.routes(),
            *Options(lambda: self.config, self._ice).routes(),
            *rtvi_routes(self.take_offer, self.take_candidates),
            *socket_routes(self.take_socket),
        ]

    async def create(self, request: web.Request) -> web.StreamResponse:
        await self._check()
        return await self._open(request, await read_body(request), request.headers.get(TOKEN_HEADER, ""))

    async def take_offer(self, request: web.Request) -> web.StreamResponse:
        """Pass on an offer of one of Pipecat's clients, which names its call in the body."""
        body = await read_body(request)
        offer = read_offer(body)
        if offer.renegotiates:
            return await self._pass_to(call_of(offer.pc_id), request, body)
        await self._check()
        return await self._open(request, body, offer.pc_id or "")

    async def take_candidates(self, request: web.Request) -> web.StreamResponse:
        body = await read_body(request)
        return await self._pass_to(call_of(read_candidates(body).pc_id), request, body)

    async def take_socket(self, request: web.Request) -> web.StreamResponse:
        """Have a worker carry a call over a WebSocket, and pass on what is said on it."""
        check_upgrade(web.WebSocketResponse(protocols=PROTOCOLS), request)
        await self._check()
        rather = self._former_worker(returning_by(request) or "")
        number: int | None = None
        while True:
            number = self._choose(number, rather)
            try:
                worker = await self._connect(number, request)
            except aiohttp.WSServerHandshakeError as error:
                told = "" if error.headers is None else error.headers.get(hdrs.RETRY_AFTER, "")
                raise SignallingError(
                    error.status,
                    "The call was refused; see the server's log.",
                    code="refused",
                    retry_after_s=int(told) if told.isdecimal() else None,
                ) from error
            except aiohttp.ClientError as error:
                logger.warning("worker %d opens no call: %s", number, error or type(error).__name__)
                continue
            return await relay(request, worker, self.config.server.max_socket_message)

    async def _connect(self, number: int, request: web.Request) -> aiohttp.ClientWebSocketResponse:
        """Open a WebSocket to a worker, and keep the books about its call."""
        http = self._fleet.http(number)
        if http is None:
            raise _no_such_call()
        name = secrets.token_hex(RANDOM_BYTES)
        passed = _passed(request.headers).items()
        headers = {n: value for n, value in passed if not n.lower().startswith("sec-websocket-")}
        headers |= {NAME_HEADER: name, hdrs.AUTHORIZATION: f"Bearer {bearer_of(request)}"}
        opened: str | None = None
        self._placement.begin(number)
        try:
            worker = await http.ws_connect(
                f"http://worker{request.rel_url.raw_path_qs}",
                headers=headers,
                max_msg_size=self.config.server.max_socket_message,
                protocols=[name for name in subprotocols(request) if name in PROTOCOLS],
            )
            opened = str(CallId(name, number, self.config.server.node))
        finally:
            self._note(number, opened)
        return worker

    def _choose(self, besides: int | None, rather: int | None) -> int:
        """Choose the worker of a call. Raises SignallingError."""
        self._check_room()
        number = self._placement.choose(besides=besides, rather=rather)
        if number is None:
            raise SignallingError(
                503, "The server cannot take the call now.", code="no_worker", retry_after_s=1
            )
        return number

    def _note(self, number: int, opened: str | None) -> None:
        """Keep the books about a call that a worker has opened, or not."""
        if opened is None:
            self._placement.refused(number)
        else:
            self._placement.opened(number, opened)
        self._fleet.note_placed(number)

    async def _open(self, request: web.Request, body: bytes, returning: str) -> web.StreamResponse:
        """Have a call opened; `returning` is the token of one that was lost, if it is one."""
        number: int | None = None
        # Who comes back finds the conversation where it was, if each worker keeps its own.
        rather = self._former_worker(returning)
        while True:
            number = self._choose(number, rather)
            try:
                response = await self._place(number, request, body)
            except aiohttp.ClientError as error:
                # It died meanwhile. The caller knows nothing of it yet: another one takes the call.
                logger.warning("worker %d opens no call: %s", number, error or type(error).__name__)
                continue
            return response

    async def pass_to_its_worker(self, request: web.Request) -> web.StreamResponse:
        call_id = read_call_id(request.match_info["call_id"])
        return await self._pass_to(call_id, request, await read_body(request))

    async def _pass_to(self, call_id: CallId | None, request: web.Request, body: bytes) -> web.StreamResponse:
        if call_id is None or call_id.worker is None or call_id.node != self.config.server.node:
            raise _no_such_call()
        if self._placement.is_lost(call_id.worker):
            raise _call_lost()
        try:
            return await self._pass_on(call_id.worker, request, body)
        except aiohttp.ClientError as error:
            raise _call_lost() from error

    def _former_worker(self, token: str) -> int | None:
        """Tell which worker carried the call that a caller comes back from, if it was one of these."""
        former = place_of(token)
        return former.worker if former is not None and former.node == self.config.server.node else None

    async def _check(self) -> None:
        """Raise SignallingError if no call can be opened now."""
        self._check_room()
        await self._status.check_ready()

    def _check_room(self) -> None:
        """Raise SignallingError (503) if no call can be added now."""
        if self._fleet.closing:
            raise SignallingError(503, "The server is shutting down.", code="shutting_down", retry_after_s=10)
        if len(self._placement) >= self.config.server.max_calls:
            raise SignallingError(
                503, "All lines are busy; try again in a moment.", code="server_busy", retry_after_s=5
            )

    async def _place(self, number: int, request: web.Request, body: bytes) -> web.StreamResponse:
        """Have a worker open a call, and keep the books about it."""
        opened: str | None = None
        self._placement.begin(number)
        try:
            response = await self._pass_on(number, request, body)
            if response.status < 300 and hdrs.LOCATION in response.headers:
                opened = response.headers[hdrs.LOCATION].rpartition("/")[2]
        finally:
            self._note(number, opened)
        return response

    async def _pass_on(self, number: int, request: web.Request, body: bytes) -> web.StreamResponse:
        """Pass a request on and its answer back. Raises SignallingError, and aiohttp's if the worker dies."""
        http = self._fleet.http(number)
        if http is None:
            raise _no_such_call()
        timeout = aiohttp.ClientTimeout(total=self.config.rtc.connect_s + _ANSWER_S)
        url = f"http://worker{request.rel_url.raw_path_qs}"
        async with http.request(
            request.method, url, data=body, headers=_passed(request.headers), timeout=timeout
        ) as answer:
            return web.Response(
                status=answer.status, body=await answer.read(), headers=_passed(answer.headers)
            )


def _passed(headers: CIMultiDictProxy[str]) -> CIMultiDict[str]:
    named = {name.strip().lower() for name in headers.get(hdrs.CONNECTION, "").split(",")}
    return CIMultiDict(
        (name, value)
        for name, value in headers.items()
        if name.lower() not in _KEPT_BACK and name.lower() not in named
    )


def _no_such_call() -> SignallingError:
    return SignallingError(404, "There is no such call.", code="call_not_found", param="call_id")


def _call_lost() -> SignallingError:
    return SignallingError(
        410, "The call was lost with the process that carried it: call again.", code="call_lost"
    )
