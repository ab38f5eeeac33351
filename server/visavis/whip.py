"""What makes a call, or a display of one, a resource as WHIP has it (RFC 9725): its headers and its PATCH.

An ICE session is one call here: it is not restarted. Who asks for that is told so (422), keeps what there is,
and makes a new call that goes on from the old one by its token.
"""

from collections.abc import Callable

from aiohttp import hdrs, web
from multidict import CIMultiDict

from .config import Config
from .errors import SignallingError
from .ice_routes import IceServers
from .ids import read_call_id
from .middleware import read_body
from .offers import FORM, SDP
from .sdpfrag import TYPE, Fragment, read_fragment

CALLS_PATH = "/v1/realtime/calls"
CALL = f"{CALLS_PATH}/{{call_id}}"
DISPLAYS = f"{CALL}/whep"
DISPLAY = f"{DISPLAYS}/{{display_id}}"
BETA = "/v1/realtime"
"Where the beta's clients post their offers, with a model's name in the query."

_ACCEPT_PATCH = "Accept-Patch"
_ACCEPT_POST = "Accept-Post"


def created(answer: str, location: str, links: list[str], more: dict[str, str] | None = None) -> web.Response:
    """Answer an offer: there is a resource at `location`; `links` are ICE servers, `more` further headers."""
    headers = CIMultiDict(more or {})
    headers[hdrs.LOCATION] = location
    headers[hdrs.ETAG] = f'"{_tag(location.rpartition("/")[2])}"'
    headers[_ACCEPT_PATCH] = TYPE
    for link in links:
        headers.add(hdrs.LINK, link)
    return web.Response(status=201, body=answer.encode(), content_type=SDP, headers=headers)


async def read_patch(request: web.Request, name: str) -> Fragment:
    """Return what a PATCH brings to the resource of that name. Refuses as the RFC says (4.3)."""
    if request.content_type != TYPE:
        raise SignallingError(
            415, f"Send candidates as {TYPE}.", code="unsupported_media_type", param="Content-Type"
        )
    tags = request.if_match
    if tags is None:
        raise SignallingError(
            428, "Say by If-Match which ICE session is meant.", code="precondition_required", param="If-Match"
        )
    if not any(tag.value == "*" or (not tag.is_weak and tag.value == _tag(name)) for tag in tags):
        raise SignallingError(
            412, "If-Match names another ICE session.", code="precondition_failed", param="If-Match"
        )
    return read_fragment(await read_body(request))


class Options:
    """Answers OPTIONS, by which a client learns what is taken, and of ICE servers before it calls (4.6)."""

    def __init__(self, settings: Callable[[], Config], ice: IceServers) -> None:
        """`settings` gives those of the moment."""
        self._settings = settings
        self._ice = ice

    def routes(self) -> list[web.AbstractRouteDef]:
        return [
            *(web.options(path, self._of_collection) for path in (BETA, CALLS_PATH, DISPLAYS)),
            *(web.options(path, self._of_resource) for path in (CALL, DISPLAY)),
        ]

    async def _of_collection(self, request: web.Request) -> web.Response:
        response = _allowing(request)
        whep = request.path.endswith("/whep")
        response.headers[_ACCEPT_POST] = SDP if whep else f"{SDP}, {FORM}"
        # The gate lets OPTIONS in without a key, for browsers send none with a preflight.
        if hdrs.AUTHORIZATION in request.headers or not self._settings().server.keys:
            for link in self._ice.links():
                response.headers.add(hdrs.LINK, link)
        return response

    async def _of_resource(self, request: web.Request) -> web.Response:
        response = _allowing(request)
        response.headers[_ACCEPT_PATCH] = TYPE
        return response


def _allowing(request: web.Request) -> web.Response:
    own = request.match_info.route.resource
    assert own is not None, "the route that runs has a resource"
    resources = (each for each in request.app.router.resources() if each.canonical == own.canonical)
    methods = {route.method for resource in resources for route in resource}
    return web.Response(headers={hdrs.ALLOW: ", ".join(sorted(methods))})


def _tag(name: str) -> str:
    """Return the entity tag of a resource's ICE session: there is but one, so its own chance part does."""
    call_id = read_call_id(name)
    return name if call_id is None else call_id.random
