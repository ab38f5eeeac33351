"""The ICE servers that callers are told of: `GET /v1/ice_servers`, and in the Link headers of WHIP."""

import time
from collections.abc import Callable
from typing import Any

from aiohttp import web

from .config import IceServer, RtcConfig
from .turn import with_credentials

ICE_SERVERS = "/v1/ice_servers"


class IceServers:
    """Tells callers of TURN and STUN servers, with credentials of their own."""

    def __init__(self, settings: Callable[[], RtcConfig]) -> None:
        """`settings` gives those of the moment."""
        self._settings = settings

    def routes(self) -> list[web.AbstractRouteDef]:
        return [web.get(ICE_SERVERS, self.tell, allow_head=False)]

    async def tell(self, request: web.Request) -> web.Response:
        """Answer with what a browser's RTCPeerConnection takes as its configuration."""
        return web.json_response(
            {"iceServers": [_described(each) for each in self._fresh()], "ttl": int(self._settings().turn_s)}
        )

    def links(self) -> list[str]:
        """Return the values of the Link headers (RFC 9725, 4.6), one for each address."""
        return [_link(server, url) for server in self._fresh() for url in server.urls]

    def _fresh(self) -> list[IceServer]:
        rtc = self._settings()
        return [with_credentials(server, time.time(), rtc.turn_s) for server in rtc.caller_ice_servers]


def _described(server: IceServer) -> dict[str, Any]:
    body: dict[str, Any] = {"urls": list(server.urls)}
    if server.username is not None:
        body |= {"username": server.username, "credential": server.credential or ""}
    return body


def _link(server: IceServer, url: str) -> str:
    link = f'<{url}>; rel="ice-server"'
    if server.username is None:
        return link
    quoted = (_quoted(text) for text in (server.username, server.credential or ""))
    return link + '; username={}; credential={}; credential-type="password"'.format(*quoted)


def _quoted(text: str) -> str:
    """Write a quoted string (RFC 9110, 5.6.4)."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
