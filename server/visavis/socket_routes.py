"""`GET /v1/realtime`: a call over a WebSocket, in one process, or passed on to the one that carries it."""

import asyncio
import json
from typing import Protocol

import aiohttp
from aiohttp import WSMsgType, web
from aiohttp.typedefs import Handler

from .auth import SECRET
from .carrier import Carrier
from .client_secrets import Secret
from .dialect import wire_for
from .errors import SignallingError
from .resume import TOKEN_HEADER
from .socket_call import CLOSE_S, Socket, keep_alive, open_socket
from .wire import MakeWire

PATH = "/v1/realtime"

NAME_HEADER = "Visavis-Call-Name"
"By which a front tells a worker the random part of a call's id: it cannot read the answer to an upgrade."

_OTHER_SOCKETS = ("call_id", "intent")
"By which OpenAI's clients ask for a WebSocket beside another call, or for one that only transcribes."

_UNSENDABLE = (1005, 1006, 1015)
"Codes that only say that none came, as of a worker that died (RFC 6455, 7.4.1)."


class Opened(Protocol):
    """A call that was answered."""

    @property
    def token(self) -> str: ...


class Opener(Protocol):
    """What opens calls in this process: `app.CallApi`."""

    async def check(self) -> None: ...

    async def open_over(
        self,
        carrier: Carrier,
        wire: MakeWire,
        returning: str | None,
        secret: Secret | None,
        name: str | None,
    ) -> Opened: ...


class SocketApi:
    """Takes WebSockets for calls.

    `model` is the name that clients are told. A front is believed about the name of a call.
    """

    def __init__(self, opener: Opener, model: str, max_message: int, *, behind_front: bool) -> None:
        self._behind_front = behind_front
        self._opener = opener
        self._model = model
        self._max_message = max_message

    def routes(self) -> list[web.AbstractRouteDef]:
        return socket_routes(self.take)

    async def take(self, request: web.Request) -> web.StreamResponse:
        socket = Socket(self._max_message)
        check_upgrade(socket.response, request)
        await self._opener.check()
        name = request.headers.get(NAME_HEADER) if self._behind_front else None
        opened = await self._opener.open_over(
            socket,
            wire_for(request, self._model, tells_audio=True),
            returning_by(request),
            request.get(SECRET),
            name,
        )
        return await socket.run(request, token_message(opened.token))


def returning_by(request: web.Request) -> str | None:
    """Return the token of a call that was lost. Browsers can send no headers with a WebSocket."""
    return request.headers.get(TOKEN_HEADER) or request.query.get("session_token")


def token_message(token: str) -> str:
    """Write what tells a client by which token it can come back: no browser shows a WebSocket's headers."""
    return json.dumps({"type": "visavis.session_token", "event_id": "event_session_token", "token": token})


def socket_routes(take: Handler) -> list[web.AbstractRouteDef]:
    return [web.get(PATH, take, allow_head=False)]


def check_upgrade(response: web.WebSocketResponse, request: web.Request) -> None:
    """Raise SignallingError for who asks for no WebSocket (426), or for one that is not a call's (400)."""
    if not response.can_prepare(request):
        raise SignallingError(
            426,
            f"Open a WebSocket here, or POST an offer to {PATH}/calls.",
            code="upgrade_required",
        )
    for name in filter(request.query.__contains__, _OTHER_SOCKETS):
        message = f"A WebSocket here is a call of its own; {name} is not taken."
        raise SignallingError(400, message, code="unsupported_parameter", param=name)


async def relay(
    request: web.Request, worker: aiohttp.ClientWebSocketResponse, max_message: int
) -> web.WebSocketResponse:
    """Pass what comes on a WebSocket on to a worker's, and back, until either is closed."""
    client = open_socket(max_message)
    tasks: set[asyncio.Task[None]] = set()
    try:
        await client.prepare(request)
        ways = {asyncio.create_task(_pass(client, worker)), asyncio.create_task(_pass(worker, client))}
        tasks = ways | {asyncio.create_task(keep_alive(client))}
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
    finally:
        if request.transport is not None:
            # Who reads nothing would let this wait for ever.
            asyncio.get_running_loop().call_later(CLOSE_S, request.transport.abort)
        if client.prepared:
            await client.close(code=_told(worker.close_code))
        await worker.close()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
    return client


def _told(code: int | None) -> int:
    """Return the code by which a client is told how its worker closed."""
    if code in _UNSENDABLE:
        return aiohttp.WSCloseCode.INTERNAL_ERROR
    return code or aiohttp.WSCloseCode.OK


_Either = web.WebSocketResponse | aiohttp.ClientWebSocketResponse


async def _pass(source: _Either, target: _Either) -> None:
    try:
        async for message in source:
            match message.type:
                case WSMsgType.TEXT:
                    await target.send_str(message.data)
                case WSMsgType.BINARY:
                    await target.send_bytes(message.data)
    except (ConnectionError, TimeoutError):
        pass  # the other way ends too
