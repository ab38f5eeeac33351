"""Displays of a call over HTTP: `POST /v1/realtime/calls/{id}/whep` lets one hear it, as WHEP has it."""

import secrets

from aiohttp import web
from aiohttp.typedefs import Handler

from .calls import Calls
from .config import Config
from .errors import SignallingError
from .ice_routes import IceServers
from .offers import read_offer
from .whip import CALLS_PATH, DISPLAY, DISPLAYS, created, read_patch

_NAME_BYTES = 12


class DisplayApi:
    """Opens and ends the displays of this process's calls."""

    def __init__(self, config: Config, calls: Calls, ice: IceServers) -> None:
        most = config.server.max_calls * config.server.max_displays
        self._calls = calls
        self._displays = Calls(most, answer_s=config.rtc.connect_s)
        self._ice = ice

    async def aclose(self) -> None:
        await self._displays.aclose()

    def routes(self) -> list[web.AbstractRouteDef]:
        return display_routes(self.create, self.trickle, self.end)

    async def create(self, request: web.Request) -> web.Response:
        call_id = request.match_info["call_id"]
        self._calls.check_live(call_id)
        offer, _ = await read_offer(request, form=False)
        name = secrets.token_hex(_NAME_BYTES)
        answer = await self._displays.open(_key(call_id, name), lambda: self._calls.display(call_id), offer)
        return created(answer, f"{CALLS_PATH}/{call_id}/whep/{name}", self._ice.links())

    async def trickle(self, request: web.Request) -> web.Response:
        key = self._find(request)
        fragment = await read_patch(request, request.match_info["display_id"])
        await self._displays.add_candidates(key, fragment.candidates, fragment.ufrag)
        return web.Response(status=204)

    async def end(self, request: web.Request) -> web.Response:
        await self._displays.close(self._find(request), "the display was taken away")
        return web.Response()

    def _find(self, request: web.Request) -> str:
        key = _key(request.match_info["call_id"], request.match_info["display_id"])
        if key not in self._displays:
            raise SignallingError(
                404, "There is no such display.", code="display_not_found", param="display_id"
            )
        return key


def display_routes(create: Handler, trickle: Handler, end: Handler) -> list[web.AbstractRouteDef]:
    """Return the routes of displays; the handlers find the ids as `call_id` and `display_id` in them."""
    return [web.post(DISPLAYS, create), web.patch(DISPLAY, trickle), web.delete(DISPLAY, end)]


def _key(call_id: str, name: str) -> str:
    return f"{call_id}/{name}"
