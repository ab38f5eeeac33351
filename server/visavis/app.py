"""The HTTP server of one process: the call resource, its status and the page."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from .auth import SECRET
from .calls import Call, Calls, Opened
from .carrier import Carrier
from .client_secrets import Secret, Secrets
from .config import Config, SessionConfig
from .description import add_description
from .dialect import wire_for
from .display_routes import DisplayApi
from .errors import ClientEventError, SignallingError
from .ice_routes import IceServers
from .ids import RANDOM_BYTES, CallId
from .kiosk_routes import add_kiosk
from .middleware import Door, guard, note_secret, refusals
from .offers import read_offer
from .page import Page, web_root
from .protocol.realtime_session import merge_session
from .pulse import Pulse
from .resume import TOKEN_HEADER, Kept, Resumption, new_token, place_of
from .rtvi_routes import RtviApi
from .secret_routes import SecretApi
from .socket_routes import SocketApi
from .status import Status
from .store import open_store
from .whip import BETA, CALL, CALLS_PATH, Options, created, read_patch
from .wire import MakeWire

CALLS = web.AppKey("CALLS", Calls)


class OpenCall(Protocol):
    """Makes the call of a new id with a client's settings, without doing any work; OpenAI's by default."""

    def __call__(
        self,
        call_id: str,
        settings: SessionConfig,
        kept: Kept,
        /,
        wire: MakeWire | None = None,
        carrier: Carrier | None = None,
    ) -> Call: ...


def build_app(
    config: Config,
    open_call: OpenCall,
    ready: Callable[[], Awaitable[bool]],
    page: Path | None = None,
) -> web.Application:
    """Build the application of a server of one process. Raises ConfigError if it would let strangers in.

    `ready` tells whether a request would be answered by the engine now; `page` is the folder of the call
    page, by default the package's own. The live calls are at `app[CALLS]`; they end with the application.
    """
    door = Door(config.server)
    calls = Calls(config.server.max_calls, answer_s=config.rtc.connect_s)
    status = Status(lambda: calls.closing, ready)
    worker = 0 if config.server.node else None
    app = _app(
        config, calls, CallApi(config, calls, open_call, worker, status), [refusals(door), guard(door)]
    )
    ice = IceServers(lambda: config.rtc)
    options = Options(lambda: config, ice)
    app.add_routes([*status.routes(), *SecretApi(lambda: config).routes(), *ice.routes(), *options.routes()])
    files = Page(page or web_root())
    add_kiosk(app, lambda: config, door, files)
    add_description(app)
    app.add_routes(files.routes())
    return app


def build_worker_app(config: Config, calls: Calls, open_call: OpenCall, number: int) -> web.Application:
    """Build the application of one worker of several: calls alone, for the front, which has let them in."""
    api = CallApi(config, calls, open_call, number)
    secrets_noted = note_secret(Secrets(config.server.keys))
    return _app(config, calls, api, [refusals(None), secrets_noted], number)


def _app(
    config: Config, calls: Calls, api: "CallApi", middlewares: list[Middleware], worker: int | None = None
) -> web.Application:
    """Build what both have in common; `worker` is the number of one behind a front."""
    app = web.Application(client_max_size=config.server.max_body, middlewares=middlewares)
    app[CALLS] = calls
    app.add_routes(api.routes())
    app.add_routes(RtviApi(calls, api.check, api.open, config.engine.model).routes())
    most = config.server.max_socket_message
    app.add_routes(SocketApi(api, config.engine.model, most, behind_front=worker is not None).routes())

    async def close_calls(_: web.Application) -> None:
        await calls.aclose()
        await api.aclose()

    async def feel_pulse(_: web.Application) -> AsyncIterator[None]:
        pulse = asyncio.create_task(Pulse(calls, config.server.max_calls, str(worker or 0)).run())
        yield
        pulse.cancel()
        await asyncio.wait({pulse})

    app.on_shutdown.append(close_calls)
    app.cleanup_ctx.append(feel_pulse)
    return app


class CallApi:
    """The call resource. A caller who has the token of a call that was lost goes on from it."""

    def __init__(
        self,
        config: Config,
        calls: Calls,
        open_call: OpenCall,
        worker: int | None,
        status: Status | None = None,
    ) -> None:
        """`worker` is the number in the ids of the calls. Without `status` readiness is not asked."""
        self._session = config.conversation.session
        self._model = config.engine.model
        self._node = config.server.node
        self._worker = worker
        self._calls = calls
        self._open_call = open_call
        self._status = status
        self._ice = IceServers(lambda: config.rtc)
        self._displays = DisplayApi(config, calls, self._ice)
        self._resumption = Resumption(config.resume, open_store(config.resume))

    async def aclose(self) -> None:
        """Let go of what was kept; the calls must be over."""
        await self._displays.aclose()
        await self._resumption.aclose()

    def routes(self) -> list[web.AbstractRouteDef]:
        return [
            *call_routes(self.create, self.look, self.trickle, self.end),
            *self._displays.routes(),
        ]

    async def create(self, request: web.Request) -> web.Response:
        await self.check()
        offer, changes = await read_offer(request)
        returning = request.headers.get(TOKEN_HEADER)
        wire = wire_for(request, self._model, beta=request.path == BETA)
        opened = await self.open(offer, changes, returning, wire, request.get(SECRET))
        return created(opened.answer, opened.location, self._ice.links(), {TOKEN_HEADER: opened.token})

    async def check(self) -> None:
        """Raise SignallingError if no call can be opened now."""
        self._calls.check_room()
        if self._status is not None:
            await self._status.check_ready()

    async def open_over(
        self,
        carrier: Carrier,
        wire: MakeWire,
        returning: str | None,
        secret: Secret | None,
        name: str | None,
    ) -> Opened:
        """Open a call that needs no offer; `name` is the random part of its id. Raises SignallingError."""
        return await self.open("", None, returning, wire, secret, carrier, name)

    async def open(
        self,
        offer: str,
        changes: Any,
        returning: str | None,
        wire: MakeWire | None = None,
        secret: Secret | None = None,
        carrier: Carrier | None = None,
        name: str | None = None,
    ) -> Opened:
        """Open a call; `changes` are a client's session settings, `returning` the token of one that was lost.

        The settings of a client secret lie under the client's; those of a lost call were laid over it before.
        Raises SignallingError.
        """
        await self._end_former(returning)
        past = await self._resumption.look(returning)
        if past is not None:
            session = _merged(past.session, changes)
        else:
            session = _merged(self._session, None if secret is None else secret.session)
            session = _merged(session, changes)
        call_id = CallId(name or secrets.token_hex(RANDOM_BYTES), self._worker, self._node)
        token, key = new_token(call_id), str(call_id)
        keeping = self._resumption.keep(token)
        if past is None or returning is None:
            kept = Kept((), keeping)
        else:
            kept = Kept(past.items, keeping, past.unsaid, partial(self._resumption.claim, returning))
        answer = await self._calls.open(
            key, lambda: self._open_call(key, session, kept, wire, carrier), offer
        )
        return Opened(answer, f"{CALLS_PATH}/{call_id}", token)

    async def _end_former(self, token: str | None) -> None:
        """End the call that a caller comes back from: it may not have been noticed yet that it was lost."""
        former = place_of(token) if token is not None and self._resumption.knows(token) else None
        if former is not None and str(former) in self._calls:
            await self._calls.close(str(former), "the caller comes back")

    async def look(self, request: web.Request) -> web.Response:
        call_id = request.match_info["call_id"]
        self._calls.check_live(call_id)
        return web.json_response({"id": call_id})

    async def trickle(self, request: web.Request) -> web.Response:
        call_id = request.match_info["call_id"]
        self._calls.check_live(call_id)
        fragment = await read_patch(request, call_id)
        await self._calls.add_candidates(call_id, fragment.candidates, fragment.ufrag)
        return web.Response(status=204)

    async def end(self, request: web.Request) -> web.Response:
        await self._calls.close(request.match_info["call_id"], "the client hung up")
        return web.Response()


def call_routes(create: Handler, look: Handler, trickle: Handler, end: Handler) -> list[web.AbstractRouteDef]:
    """Return the routes of the call resource; all but `create` find the call's id as `call_id` in them.

    To look whether a call lives is ours: a page learns so, through any balancer, that its server died.
    """
    return [
        web.post(BETA, create),
        web.post(CALLS_PATH, create),
        web.get(CALL, look, allow_head=False),
        web.patch(CALL, trickle),
        web.delete(CALL, end),
        web.post(f"{CALL}/hangup", end),
    ]


def _merged(base: SessionConfig, changes: Any) -> SessionConfig:
    """Lay a client's settings over what holds without. Raises SignallingError that names the member."""
    if changes is None:
        return base
    try:
        return merge_session(base, changes)
    except ClientEventError as error:
        param = error.param or "session"
        raise SignallingError(400, str(error), code=error.code, param=param) from error
