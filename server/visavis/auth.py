"""Who may call: the holders of a key, or this machine alone while there is none; and from which pages."""

import hmac
import ipaddress
import re
import time
from collections.abc import Sequence
from hashlib import sha256
from urllib.parse import urlsplit

from aiohttp import hdrs, web

from .client_secrets import Secret, Secrets
from .config import ServerConfig
from .errors import ConfigError, SignallingError

SECRET = web.RequestKey("SECRET", Secret)
"The client secret that a request came with, if it did: its settings lie under the client's own."

_PORTS = {"http": 80, "https": 443}

_KEY_PROTOCOL = "openai-insecure-api-key."
"Begins the name of a WebSocket's subprotocol that is a key: browsers can send no other header."

_HOST = re.compile(r"[\w.:%\[\]-]+", re.ASCII)

_FORWARDING = ("Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-IP", "Via")
"What a proxy leaves in a request: the peer's address is then the proxy's, not the caller's."


class Gate:
    """The checks that a request passes before anything is done for it.

    Each raises SignallingError. Building one raises ConfigError for settings that would let strangers in.
    """

    def __init__(self, config: ServerConfig) -> None:
        for key in config.keys:
            if not key or not key.isascii() or not key.isprintable() or " " in key:
                raise ConfigError("server.keys: a key must be printable ASCII without spaces, and not empty.")
        if not config.keys and not is_loopback_host(config.host):
            raise ConfigError(
                f"Listening on {config.host!r} without a key would let anyone in the network call. "
                "Set server.keys, or listen on 127.0.0.1."
            )
        self._keys = [_digest(key) for key in config.keys]
        self._secrets = Secrets(config.keys)
        self._origins = frozenset(_configured_origin(origin) for origin in config.origins)

    @property
    def has_keys(self) -> bool:
        return bool(self._keys)

    def check_reach(self, request: web.Request) -> None:
        """Without keys, serve this machine only: not its network, not its proxies, not rebound names."""
        if self._keys:
            return
        if not is_loopback_address(peer_address(request)):
            raise _forbidden("This server has no key and serves its own machine only.", "loopback_only")
        for name in _FORWARDING:
            if name in request.headers:
                raise _forbidden(
                    "This server has no key and serves no proxy: set server.keys first.", "proxy_without_key"
                )
        if not is_loopback_host(_host_name(request.headers.get(hdrs.HOST, ""))):
            # A page of a hostile site whose name was made to point here has our address but its own name.
            raise _forbidden(
                "This server has no key: reach it as localhost or by a loopback address.", "loopback_only"
            )

    def check_origin(self, request: web.Request) -> None:
        """Refuse what a page of another site sends, unless that site is listed."""
        sent = request.headers.get(hdrs.ORIGIN)
        if sent is None or self.listed_origin(request) is not None:
            return
        if _origin(sent) is None or _origin(sent) != self._own_origin(request):
            raise _forbidden(
                "Pages of this origin may not call: list it in server.origins.", "origin_not_allowed"
            )

    def check_key(self, request: web.Request) -> None:
        """Ask for a bearer key if there are any, or for a client secret, which is kept as `request[SECRET]`.

        Every key is compared, in constant time. Without keys a secret counts if it is one, and anything goes.
        """
        key = bearer_of(request)
        if (secret := self._secrets.read(key)) is not None:
            if secret.expires_at <= time.time():
                raise SignallingError(401, "The client secret has expired.", code="client_secret_expired")
            request[SECRET] = secret
            return
        digest = _digest(key)
        matches = [hmac.compare_digest(digest, known) for known in self._keys]
        if self._keys and not any(matches):
            raise SignallingError(
                401, "A valid key is needed: Authorization: Bearer <key>.", code="invalid_api_key"
            )

    def listed_origin(self, request: web.Request) -> str | None:
        """Return the request's origin as it was sent if it is one of the configuration's."""
        sent = request.headers.get(hdrs.ORIGIN)
        return sent if sent is not None and _origin(sent) in self._origins else None

    def _own_origin(self, request: web.Request) -> str | None:
        scheme = request.scheme
        if self._keys:
            # No page can set this header without a preflight, which only listed origins pass.
            scheme = request.headers.get("X-Forwarded-Proto", scheme).split(",")[0].strip()
        return _origin(f"{scheme}://{request.headers.get(hdrs.HOST, '')}")


class Proxies:
    """The proxies whose word is believed on who asks. Raises ConfigError for what is no address."""

    def __init__(self, trusted: Sequence[str]) -> None:
        self._trusted = [_configured_network(text) for text in trusted]

    def caller_address(self, request: web.Request) -> str:
        """Return the address of who asks: the peer's, or what trusted proxies say of whom they pass on.

        Each proxy writes whom it heard at the end of X-Forwarded-For. So it is read from there, for as long
        as who wrote is trusted; what stands before may be the caller's own invention.
        """
        address = peer_address(request)
        lines = request.headers.getall("X-Forwarded-For", ())
        told = [name.strip() for line in lines for name in line.split(",")]
        while told and self._trusts(address):
            before = told.pop()
            if _parsed(before) is None:
                break
            address = before
        return address

    def _trusts(self, address: str) -> bool:
        parsed = _parsed(address)
        return parsed is not None and any(parsed in network for network in self._trusted)


def bearer_of(request: web.BaseRequest) -> str:
    """Return the key that a request came with; "" for none."""
    scheme, _, key = request.headers.get(hdrs.AUTHORIZATION, "").partition(" ")
    if not scheme:
        return _key_in_protocols(request) or ""
    return key.strip() if scheme.lower() == "bearer" else ""


def refuse_secret(request: web.Request) -> None:
    """Raise SignallingError (403) for who has but a client secret: what is asked is for holders of a key."""
    if SECRET in request:
        raise _forbidden("A client secret does not do for this: use a key.", "client_secret_not_allowed")


def peer_address(request: web.Request) -> str:
    """Return the address at the other end of the connection, whatever headers say; "" for none."""
    peer = request.transport.get_extra_info("peername") if request.transport is not None else None
    return str(peer[0]) if isinstance(peer, tuple) else ""


def is_loopback_address(address: str) -> bool:
    parsed = _parsed(address)
    return parsed is not None and parsed.is_loopback


def is_loopback_host(name: str) -> bool:
    """Tell whether a host's name or address can only mean this machine (RFC 6761 for the names)."""
    name = name.lower().strip("[]").removesuffix(".")
    return name == "localhost" or name.endswith(".localhost") or is_loopback_address(name)


def _parsed(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Read an address, one of IPv4 within IPv6 as the former; None if it is none."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return None
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return mapped or parsed


def _configured_network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    try:
        return ipaddress.ip_network(text.strip())
    except ValueError as error:
        raise ConfigError(
            f"server.trusted_proxies: {text!r} is no address or network; write 10.0.0.5 or 10.0.0.0/24."
        ) from error


def _host_name(host: str) -> str:
    """Return the name in a Host header, without the port; "" if it is no such header."""
    if not _HOST.fullmatch(host):
        return ""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _key_in_protocols(request: web.BaseRequest) -> str | None:
    """Return the key that a browser puts among its subprotocols, as OpenAI's clients do."""
    for line in request.headers.getall(hdrs.SEC_WEBSOCKET_PROTOCOL, ()):
        for name in line.split(","):
            if name.strip().startswith(_KEY_PROTOCOL):
                return name.strip().removeprefix(_KEY_PROTOCOL)
    return None


def _origin(text: str) -> str | None:
    """Return an origin in one spelling, its port always there; None for what is no origin, like "null"."""
    try:
        parts = urlsplit(text.strip())
        name, port = parts.hostname, parts.port
    except ValueError:
        return None
    if not parts.scheme or not name or "@" in parts.netloc:
        return None
    if parts.path or parts.query or parts.fragment:
        return None
    return f"{parts.scheme}://{name}:{_PORTS.get(parts.scheme, '') if port is None else port}"


def _configured_origin(text: str) -> str:
    origin = _origin(text.removesuffix("/"))
    if origin is None or "*" in origin:
        raise ConfigError(f"server.origins: {text!r} is no origin; write one like 'https://example.org'.")
    return origin


def _digest(key: str) -> bytes:
    return sha256(key.encode("utf-8", "replace")).digest()


def _forbidden(message: str, code: str) -> SignallingError:
    return SignallingError(403, message, code=code)
