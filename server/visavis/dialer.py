"""A caller's way to a server: one call after another, each going on from the one before if the server can."""

import asyncio
import json
import logging
import random
from collections.abc import Callable
from typing import Protocol

import aiohttp

from .errors import CallError
from .resume import TOKEN_HEADER
from .rtc import OutgoingPeer, PeerHandler

logger = logging.getLogger(__name__)

_CONNECT_S = 20.0
_BUSY_S = 120
"How long a server that is busy or warming up is asked again."
_WATCH_S = 0.25
_QUIET_MS = 1_300
"Without a packet, of which one comes each second in silence; then the server is asked if it has the call,"
_ASK_S = 2.0
"this long at most."
_ASTRAY_MS = 2_000
"Without a packet although the server has answered: they go where we are no longer."
_GONE = (404, 410, 502, 503, 504)
"What a server, or a balancer before it, says of a call that it has no more."
_BACKOFF_S = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0)
"Before each attempt to come back, give or take a half: a server that restarts takes some seconds."


class _Unreachable(CallError):
    """Nobody answers."""


class Party(PeerHandler, Protocol):
    """Who calls."""

    opened: asyncio.Event
    "The server has said that the call is there."
    over: asyncio.Event
    send: Callable[[str], None]
    "Sends a message in the present call."

    def begin_call(self) -> None:
        """There is another call from now on."""
        ...


class Dialer:
    """Makes the calls and watches over the present one."""

    def __init__(
        self,
        http: aiohttp.ClientSession,
        server: str,
        make_peer: Callable[[], OutgoingPeer],
        caller: Party,
    ) -> None:
        self.call_id = ""
        self._http = http
        self._calls = f"{server.rstrip('/')}/v1/realtime/calls"
        self._server = server
        self._make_peer = make_peer
        self._caller = caller
        self._peer: OutgoingPeer | None = None
        self._token: str | None = None
        self._watching: asyncio.Task[None] | None = None

    async def reconnect(self) -> None:
        """Call again, and again where nobody answers. Raises CallError."""
        for pause_s in _BACKOFF_S:
            await asyncio.sleep(pause_s * random.uniform(0.5, 1.5))  # noqa: S311 - others come back, too
            try:
                return await self.connect()
            except _Unreachable as error:
                failure = error
        raise failure

    async def connect(self) -> None:
        """Call, and wait until media and events flow. Raises CallError."""
        await self._close()
        self._caller.begin_call()
        self._peer = peer = self._make_peer()
        self._caller.send = peer.send_message
        await peer.accept(await self._post(await peer.offer()))
        try:
            async with asyncio.timeout(_CONNECT_S):
                await self._caller.opened.wait()
        except TimeoutError:
            raise CallError(
                f"no media within {_CONNECT_S:.0f} s: is UDP to {self._server} blocked?"
            ) from None
        self._watching = asyncio.create_task(self._watch(peer))

    async def aclose(self) -> None:
        """Hang up, here and at the server."""
        if self.call_id:
            try:
                async with self._http.delete(f"{self._calls}/{self.call_id}") as response:
                    await response.read()
            except (aiohttp.ClientError, TimeoutError) as error:
                logger.debug("hang-up did not reach the server: %s", error)
        await self._close()

    async def _close(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait({self._watching})
        if self._peer is not None:
            await self._peer.aclose()

    async def _watch(self, peer: OutgoingPeer) -> None:
        """Notice that the server has no call any more, or no way to us, sooner than the peer alone would."""
        while not self._caller.over.is_set():
            await asyncio.sleep(_WATCH_S)
            if peer.stats().silent_ms < _QUIET_MS:
                continue
            gone = await self._is_gone()
            while (silent_ms := peer.stats().silent_ms) >= _QUIET_MS:
                if gone or silent_ms >= _ASTRAY_MS:
                    self._caller.closed("dead")
                    return
                await asyncio.sleep(_WATCH_S)

    async def _is_gone(self) -> bool:
        try:
            async with asyncio.timeout(_ASK_S), self._http.get(f"{self._calls}/{self.call_id}") as response:
                return response.status in _GONE
        except (aiohttp.ClientError, TimeoutError):
            return True

    async def _post(self, offer: str) -> str:
        """Return the answer to an offer, asking again for a while where the server wants that."""
        headers = {"Content-Type": "application/sdp"}
        if self._token is not None:
            headers[TOKEN_HEADER] = self._token
        waited = 0
        told = ""
        while True:
            try:
                async with self._http.post(self._calls, data=offer, headers=headers) as response:
                    body = await response.text()
            except aiohttp.ClientError as error:
                raise _Unreachable(
                    f"cannot reach {self._server}: {error}. Is `make run` running there?"
                ) from error
            if response.status == 201:
                self.call_id = response.headers.get("Location", "").rsplit("/", 1)[-1]
                self._token = response.headers.get(TOKEN_HEADER)
                return body
            pause = int(response.headers.get("Retry-After", "0"))
            if response.status != 503 or not pause or waited + pause > _BUSY_S:
                raise CallError(f"{self._server} refused the call ({response.status}): {_refusal(body)}")
            if (refusal := _refusal(body)) != told:
                print(f"{refusal} Asking again every {pause} s, for {_BUSY_S} s at most.", flush=True)
                told = refusal
            waited += pause
            await asyncio.sleep(pause)


def _refusal(body: str) -> str:
    try:
        return str(json.loads(body)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return body[:200]
