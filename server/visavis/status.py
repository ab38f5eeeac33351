"""Is the server alive, ready for a call, and what has it counted: the answers over HTTP."""

import asyncio
from collections.abc import Awaitable, Callable

from aiohttp import hdrs, web

from .auth import refuse_secret
from .errors import SignallingError
from .metrics import exposition
from .middleware import METRICS

_READY_S = 2.0
"An engine that does not say in time whether it is ready is not."

_WARM_UP_S = 3
"When a caller who came while the engine is being loaded may try again."


class Status:
    """`/healthz`, `/readyz` and `/metrics`."""

    def __init__(self, closing: Callable[[], bool], ready: Callable[[], Awaitable[bool]]) -> None:
        """`closing` tells whether the server goes away, `ready` whether an engine would answer now."""
        self._closing = closing
        self._ready = ready

    def routes(self) -> list[web.AbstractRouteDef]:
        return [
            web.get("/healthz", self.health),
            web.get("/readyz", self.readiness),
            web.get(METRICS, self.metrics),
        ]

    async def health(self, request: web.Request) -> web.Response:
        return web.json_response({"status": "ok"})

    async def readiness(self, request: web.Request) -> web.Response:
        if self._closing():
            raise SignallingError(503, "The server is shutting down.", code="shutting_down")
        await self.check_ready()
        return web.json_response({"status": "ready"})

    async def metrics(self, request: web.Request) -> web.Response:
        refuse_secret(request)
        body, content_type = await asyncio.to_thread(exposition)  # the loop has sound to send meanwhile
        return web.Response(body=body, headers={hdrs.CONTENT_TYPE: content_type})

    async def check_ready(self) -> None:
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
