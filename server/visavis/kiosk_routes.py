"""Kiosks over HTTP: devices ask to be let in, are told their settings and get what they call with.

`/kiosk` is the page of a device, `/kiosk/approve` the operator's. A device's requests have its own token
(`middleware.KEYLESS`), an operator's a key of the server.
"""

import asyncio
import logging
import math
import os
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, TypeVar

import segno
from aiohttp import hdrs, web

from . import __version__
from .admission import RateLimit
from .auth import bearer_of, refuse_secret
from .client_secrets import Secrets
from .config import Config, KioskConfig, SessionConfig
from .errors import ClientEventError, ConfigError, SignallingError
from .kiosk import (
    MAX_NAME,
    Device,
    FullError,
    Kiosks,
    UnreadableKiosksError,
    Wanting,
    tag_of,
    told,
    unpack,
)
from .kiosk_store import KioskStore, open_kiosk_store
from .middleware import Door, read_body
from .page import Page
from .protocol.fields import Fields, parse, text
from .store import StoreError

logger = logging.getLogger(__name__)

T = TypeVar("T")

_API = "/v1/kiosk"
_APPROVE = "/kiosk/approve"

_ATTEMPTS = 8
"Others of several nodes may write at the same time; each makes one attempt of somebody fail."

_WANTING_POLL_S = 2.0
"How often a device that shows a code asks: who has approved it looks at it."

_DOINGS = ("", "starting", "attract", "call", "offline")
"What a device says that it is doing."

_MAX_CODE = 40
_MAX_HOST = 260
"Of a name and its port (RFC 1035, 2.3.4)."

_TRIES_PER_MIN = 10.0
"Codes that one address may type in; a person types two."


def add_kiosk(app: web.Application, settings: Callable[[], Config], door: Door, page: Page) -> None:
    """Add the kiosks' routes, if the settings have them; `settings` gives those of the moment.

    Raises ConfigError.
    """
    config = settings()
    if config.kiosk.enabled:
        api = KioskApi(settings, door, page, open_kiosk_store(config, os.environ))
        app.add_routes(api.routes())
        app.on_startup.append(api.check)
        app.on_cleanup.append(api.aclose)


class KioskApi:
    """The requests of devices and operators."""

    def __init__(
        self,
        settings: Callable[[], Config],
        door: Door,
        page: Page,
        store: KioskStore,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._settings = settings
        self._door = door
        self._page = page
        self._store = store
        self._clock = clock
        self._pairings = _per_min(self._config.max_pairings_per_min)
        self._tries = _per_min(_TRIES_PER_MIN)
        self._looked: tuple[bytes | None, Kiosks] | None = None
        "What was read last, for devices ask all the time."
        self._seen: dict[str, tuple[float, str]] = {}
        "When this process heard of a device last, and what it was doing."

    @property
    def _config(self) -> KioskConfig:
        return self._settings().kiosk

    @property
    def _session(self) -> SessionConfig:
        return self._settings().conversation.session

    def routes(self) -> list[web.AbstractRouteDef]:
        return [
            # All methods, as of other pages.
            web.route("*", "/kiosk", self._page_of("kiosk.html")),
            web.route("*", _APPROVE, self._page_of("kiosk-approve.html")),
            web.post(f"{_API}/pairing", self.begin),
            web.get(f"{_API}/device", self.tell, allow_head=False),
            web.post(f"{_API}/session", self.let_call),
            web.get(f"{_API}/devices", self.list, allow_head=False),
            web.post(f"{_API}/devices", self.approve),
            web.patch(f"{_API}/devices/{{id}}", self.change),
            web.delete(f"{_API}/devices/{{id}}", self.dismiss),
        ]

    async def check(self, _: web.Application) -> None:
        """Raise ConfigError if what was kept cannot be read."""
        try:
            await self._kiosks()
        except StoreError as error:
            logger.warning("kiosks cannot call yet: %s", error)

    async def aclose(self, _: web.Application) -> None:
        await self._store.aclose()

    # A device's requests.

    async def begin(self, request: web.Request) -> web.Response:
        """A device wants in: give it a token, and a code to show."""
        address = self._door.proxies.caller_address(request)
        _take(self._pairings, address, "Too many codes were asked for.")
        url = (self._config.url or _own_origin(request)).rstrip("/") + _APPROVE
        agent, now = request.headers.get(hdrs.USER_AGENT, ""), self._clock()
        offer = await self._changed(lambda kiosks: kiosks.begin(address, agent, now))
        picture = await asyncio.to_thread(_qr_code, f"{url}#{offer.code}")
        logger.info("kiosk %s at %s wants in", offer.id, address)
        return web.json_response(
            {
                "state": "wanting",
                "token": offer.token,
                "code": offer.code,
                "url": url,
                "qr": picture,
                "expires_in_s": offer.until - now,
                "poll_s": min(_WANTING_POLL_S, self._config.poll_s),
            },
            status=201,
        )

    async def tell(self, request: web.Request) -> web.Response:
        """Tell a device what it is to go by; 304 if that is what it knows, 202 if it still wants in."""
        found = await self._holder(request)
        if isinstance(found, Wanting):
            poll_s = min(_WANTING_POLL_S, self._config.poll_s)
            return web.json_response({"state": "wanting", "poll_s": poll_s}, status=202)
        doing = request.query.get("doing", "")
        self._seen[found.id] = (self._clock(), doing if doing in _DOINGS else "")
        answer = told(found, self._config, self._session, __version__)
        tag = tag_of(answer)
        if request.headers.get(hdrs.IF_NONE_MATCH) == tag:
            return web.Response(status=304, headers={hdrs.ETAG: tag})
        return web.json_response(answer, headers={hdrs.ETAG: tag})

    async def let_call(self, request: web.Request) -> web.Response:
        """Give a device what it calls with, for a short time."""
        found = await self._holder(request)
        if isinstance(found, Wanting):
            raise SignallingError(403, "The device was not approved yet.", code="device_not_approved")
        # Its settings are not in it, for long instructions do not fit: the device sends them with each call.
        seconds = self._config.secret_s
        value, expires_at = Secrets(self._settings().server.keys).issue(None, seconds, self._clock())
        return web.json_response({"value": value, "expires_at": expires_at, "expires_in_s": seconds})

    # An operator's.

    async def list(self, request: web.Request) -> web.Response:
        refuse_secret(request)
        kiosks, now = await self._kiosks(), self._clock()
        wanting = [
            {"id": each.id, "address": each.address, "agent": each.agent, "age_s": round(now - each.since)}
            for each in kiosks.wanting(now)
        ]
        devices = [self._shown(device, now) for device in kiosks.devices]
        defaults = asdict(self._config.device)
        defaults["instructions"] = self._config.device.instructions or self._session.instructions
        defaults["voice"] = self._config.device.voice or self._session.voice
        return web.json_response({"wanting": wanting, "devices": devices, "defaults": defaults})

    async def approve(self, request: web.Request) -> web.Response:
        """Let in the device that shows a code."""
        refuse_secret(request)
        address = self._door.proxies.caller_address(request)
        _take(self._tries, address, "Too many codes were tried.")
        fields = await _read(request)
        code, name = _checked(lambda: (fields.require("code", text(_MAX_CODE, 1)), _name(fields) or "Kiosk"))
        now = self._clock()
        device = await self._changed(lambda kiosks: kiosks.approve(code, name, now))
        if device is None:
            raise SignallingError(
                404,
                "No device shows this code now: look at its screen, it may have a new one.",
                code="code_not_found",
                param="code",
            )
        logger.info("kiosk %s was let in by %s", device.id, address)
        return web.json_response(self._shown(device, now), status=201)

    async def change(self, request: web.Request) -> web.Response:
        """Give a device another name or other settings; what is not named stays, null takes back."""
        refuse_secret(request)
        fields = await _read(request)
        name = _checked(lambda: _name(fields))
        changes: Any = _checked(lambda: fields.read("settings", _object, {}))
        ident = request.match_info["id"]
        device = await self._changed(lambda kiosks: _checked(lambda: kiosks.change(ident, name, changes)))
        if device is None:
            raise _no_such_device()
        return web.json_response(self._shown(device, self._clock()))

    async def dismiss(self, request: web.Request) -> web.Response:
        """Revoke a device, or refuse one that wants in."""
        refuse_secret(request)
        ident = request.match_info["id"]
        if not await self._changed(lambda kiosks: kiosks.dismiss(ident)):
            raise _no_such_device()
        self._seen.pop(ident, None)
        logger.info("kiosk %s was dismissed", ident)
        return web.Response(status=204)

    # What they need.

    def _page_of(self, name: str) -> Callable[[web.Request], Any]:
        async def serve(request: web.Request) -> web.StreamResponse:
            return self._page.answer(request, name)

        return serve

    def _shown(self, device: Device, now: float) -> dict[str, Any]:
        seen_at, doing = self._seen.get(device.id, (None, ""))
        return {
            "id": device.id,
            "name": device.name,
            "since": round(device.since),
            "seen_s": None if seen_at is None else round(now - seen_at, 1),
            "doing": doing,
            "settings": dict(device.settings),
        }

    async def _holder(self, request: web.Request) -> Wanting | Device:
        """Return whose token a request has. Raises SignallingError (401)."""
        found = (await self._kiosks()).find(bearer_of(request), self._clock())
        if found is None:
            raise SignallingError(
                401,
                "This device is not known here, or no longer: it has to be approved.",
                code="device_unknown",
            )
        return found

    async def _kiosks(self) -> Kiosks:
        """Return them to be looked at; `_changed` changes them."""
        try:
            data = await self._store.load()
        except StoreError as error:
            raise _unavailable(error) from error
        if self._looked is None or self._looked[0] != data:
            self._looked = data, self._read(data)
        return self._looked[1]

    async def _changed(self, step: Callable[[Kiosks], T]) -> T:
        """Take a step and keep what comes of it; again if others have taken one meanwhile."""
        try:
            for _ in range(_ATTEMPTS):
                before = await self._store.load()
                kiosks = self._read(before)
                result = step(kiosks)
                if await self._store.swap(before, kiosks.pack()):
                    return result
        except StoreError as error:
            raise _unavailable(error) from error
        except FullError as error:
            raise SignallingError(503, str(error), code="too_many_devices", retry_after_s=60) from error
        raise _unavailable(StoreError("Too many change the kiosks at once."))

    def _read(self, data: bytes | None) -> Kiosks:
        try:
            return unpack(self._config, data)
        except UnreadableKiosksError as error:
            raise ConfigError(
                f"The list of kiosks (kiosk.folder, or Redis) cannot be used. {error}"
            ) from error


def _per_min(most: float) -> RateLimit:
    return RateLimit(most / 60, burst=max(1.0, most))


def _take(limit: RateLimit, address: str, message: str) -> None:
    """Raise SignallingError (429) if an address has had its share."""
    if wait_s := limit.take(address, time.monotonic()):
        raise SignallingError(429, message, code="rate_limit_exceeded", retry_after_s=math.ceil(wait_s))


def _qr_code(text: str) -> str:
    """Draw a QR code; return the address of the picture, which holds the picture itself."""
    code = segno.make(text, error="m", micro=False)
    # Four cells of margin, as ISO/IEC 18004 asks.
    picture: str = code.svg_data_uri(border=4, dark="#000", light="#fff", omitsize=True)
    return picture


def _own_origin(request: web.Request) -> str:
    """Return the address of this server as a device has it, through whatever proxy.

    Raises SignallingError (400) for a name that is none.
    """
    if len(request.host) > _MAX_HOST:
        raise SignallingError(400, "The Host header is too long.", code="invalid_host")
    scheme = request.headers.get("X-Forwarded-Proto", request.scheme).split(",")[0].strip()
    return f"{'https' if scheme == 'https' else 'http'}://{request.host}"


async def _read(request: web.Request) -> Fields:
    body = await read_body(request)
    return _checked(lambda: Fields(parse(body)))


def _checked(read: Callable[[], T]) -> T:
    """Turn a refusal of what was sent into one over HTTP."""
    try:
        return read()
    except ClientEventError as error:
        raise SignallingError(400, str(error), code=error.code, param=error.param) from error


def _name(fields: Fields) -> str | None:
    name = fields.read("name", text(MAX_NAME), None)
    return None if name is None else name.strip() or None


def _object(value: Any, param: str) -> Any:
    Fields(value, param)
    return value


def _unavailable(error: StoreError) -> SignallingError:
    logger.warning("kiosks: %s", error)
    return SignallingError(503, "The list of kiosks cannot be used now.", code="unavailable", retry_after_s=5)


def _no_such_device() -> SignallingError:
    return SignallingError(404, "There is no such device.", code="device_not_found", param="id")
