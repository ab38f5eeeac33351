"""How Pipecat's SmallWebRTC clients call: `/api/offer` opens a call, negotiates it anew, takes candidates.

What they name a connection by (`pc_id`) is the token of our call. So a client that lost its connection and
asks for a fresh one goes on from there, whichever worker answers.
"""

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from aiohttp import hdrs, web
from aiohttp.typedefs import Handler

from .auth import SECRET
from .calls import Calls, Opened
from .client_secrets import Secret
from .errors import ClientEventError, SignallingError
from .ids import CallId
from .middleware import read_body
from .protocol.fields import Check, Fields, array, boolean, integer, one_of, optional, parse, text
from .protocol.rtvi import RtviProtocol
from .resume import place_of
from .wire import MakeWire

PATH = "/api/offer"

_MAX_CANDIDATES = 256
_MAX_CANDIDATE = 1_024

OpenCall = Callable[[str, Any, str | None, MakeWire, Secret | None], Awaitable[Opened]]
"Opens a call by an offer, a client's settings, the token that it comes back with and its client secret."

_pc_id: Check[str | None] = optional(text(256))


@dataclass(frozen=True, slots=True)
class Offer:
    """The body of a POST."""

    sdp: str
    pc_id: str | None
    restarts: bool
    "The client has made a new connection in place of the one that it names."
    settings: Any
    "Of the session, as OpenAI's session object has them; not checked yet."

    @property
    def renegotiates(self) -> bool:
        """Whether it is for the connection that it names."""
        return self.pc_id is not None and not self.restarts


@dataclass(frozen=True, slots=True)
class Candidates:
    """The body of a PATCH."""

    pc_id: str
    found: tuple[tuple[str, str], ...]
    "The name (a=mid) of each one's section, and the candidate as in SDP."


def read_offer(body: bytes) -> Offer:
    """Read the body of a POST. Raises SignallingError (400)."""
    try:
        fields = Fields(parse(body))
        fields.read("type", one_of("offer"), "offer")
        # Browsers write it in one way, the mobile SDKs in the other.
        data = fields.read("requestData", _object, None) or fields.read("request_data", _object, None)
        return Offer(
            sdp=fields.require("sdp", text(len(body))),
            pc_id=fields.read("pc_id", _pc_id, None) or None,
            restarts=fields.read("restart_pc", optional(boolean), None) or False,
            settings=None if data is None else data.read("session", _any, None),
        )
    except ClientEventError as error:
        raise _refused(error) from error


def read_candidates(body: bytes) -> Candidates:
    """Read the body of a PATCH. Raises SignallingError (400)."""
    try:
        fields = Fields(parse(body))
        listed = fields.require("candidates", array(_MAX_CANDIDATES))
        found = tuple(_read_candidate(Fields(each, f"candidates[{i}]")) for i, each in enumerate(listed))
        return Candidates(fields.require("pc_id", text(256)), found)
    except ClientEventError as error:
        raise _refused(error) from error


def _read_candidate(fields: Fields) -> tuple[str, str]:
    line = fields.require("candidate", text(_MAX_CANDIDATE))
    # Sections are named by their place, by those who do not name them: all these clients do so anyway.
    place = fields.read("sdp_mline_index", optional(integer(0, 1_000)), None) or 0
    return fields.read("sdp_mid", optional(text(64)), None) or str(place), line


def call_of(pc_id: str | None) -> CallId:
    """Return the id of the call that a client means. Raises SignallingError (404)."""
    call_id = None if pc_id is None else place_of(pc_id)
    if call_id is None:
        raise SignallingError(404, "There is no such call.", code="call_not_found", param="pc_id")
    return call_id


def rtvi_routes(offer: Handler, candidates: Handler) -> list[web.AbstractRouteDef]:
    return [web.post(PATH, offer), web.patch(PATH, candidates)]


class RtviApi:
    """Serves the calls of this process."""

    def __init__(
        self, calls: Calls, check: Callable[[], Awaitable[None]], open_call: OpenCall, model: str
    ) -> None:
        """`check` raises SignallingError if no call can be opened; `model` is the name told to clients."""
        self._calls = calls
        self._check = check
        self._open_call = open_call
        self._model = model

    def routes(self) -> list[web.AbstractRouteDef]:
        return rtvi_routes(self.offer, self.candidates)

    async def offer(self, request: web.Request) -> web.Response:
        offer = read_offer(await read_body(request))
        if offer.pc_id is not None and offer.renegotiates:
            answer = await self._calls.renegotiate(str(call_of(offer.pc_id)), offer.sdp)
            return web.json_response({"sdp": answer, "type": "answer", "pc_id": offer.pc_id})
        await self._check()
        wire = partial(RtviProtocol, model=self._model, began_s=time.time(), resumed=offer.pc_id is not None)
        opened = await self._open_call(offer.sdp, offer.settings, offer.pc_id, wire, request.get(SECRET))
        # These clients read the body alone; who carries the request on reads where the call is.
        return web.json_response(
            {"sdp": opened.answer, "type": "answer", "pc_id": opened.token},
            headers={hdrs.LOCATION: opened.location},
        )

    async def candidates(self, request: web.Request) -> web.Response:
        told = read_candidates(await read_body(request))
        await self._calls.add_candidates(str(call_of(told.pc_id)), told.found)
        return web.json_response({"status": "success"})


def _refused(error: ClientEventError) -> SignallingError:
    return SignallingError(400, str(error), code=error.code, param=error.param)


def _object(value: Any, param: str) -> Fields | None:
    """Accept an object; what else an application may send of its own is let be."""
    return Fields(value, param) if isinstance(value, dict) else None


def _any(value: Any, param: str) -> Any:
    return value
