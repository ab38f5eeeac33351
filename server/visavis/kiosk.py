"""Kiosks: how a device is let in by an operator, and what it goes by from then on. Sans-I/O.

A device that wants in is given a token of its own and a short code to show. The token is worth nothing until
an operator, who has a key of the server, names the code; from then on it stands for the device until it is
revoked. Of both only digests are kept.

    wanting ──code named──▶ let in ──revoked──▶ gone
       └──────expired, or refused─────────────────┘
"""

import hmac
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha256
from random import Random, SystemRandom
from typing import Any

from .config import KioskConfig, KioskDeviceConfig, SessionConfig
from .errors import ClientEventError, VisavisError
from .protocol.fields import Check, Fields, number, one_of, refuse, text
from .protocol.realtime_session import MAX_ID, MAX_TEXT

ALPHABET = "34679ACDEFGHJKMNPQRTUVWXY"
"Of codes: without the signs that are read as one another, 0 O, 1 I L, 2 Z, 5 S, 8 B."

CODE_SIGNS = 6
"25 to the sixth are 244 million: of twenty codes at once nobody hits one by chance."

TOKEN_PREFIX = "kd_"  # noqa: S105 - how tokens begin
_ID_BYTES = 8
_SECRET_BYTES = 32
_MAX_TOKEN = 200

MAX_DEVICES = 1_000
"All are read and written together."

MAX_NAME = 80
MAX_AGENT = 200
"Characters of what a browser calls itself that an operator is shown."
_MAX_TITLE = 120
_MAX_WORDS = 400
_SHORTEST_IDLE_S, _LONGEST_IDLE_S = 5, 3_600
"Below five seconds whoever thinks is taken for gone."

_LANGUAGE = re.compile(r"[A-Za-z]{2,3}(-[A-Za-z0-9]{2,8}){0,3}")


class FullError(VisavisError):
    """As many as there may be want in, or are in."""


class UnreadableKiosksError(VisavisError):
    """What was kept is no list of kiosks."""


@dataclass(frozen=True, slots=True)
class Wanting:
    """A device that wants in."""

    id: str
    token: str
    "The digest."
    code: str
    "The digest."
    address: str
    agent: str
    "What its browser calls itself."
    since: float
    "Unix seconds, as all times here."
    until: float


@dataclass(frozen=True, slots=True)
class Device:
    """A device that was let in."""

    id: str
    token: str
    "The digest."
    name: str
    since: float
    settings: Mapping[str, Any] = field(default_factory=dict)
    "What its operator has set, by the names of KioskDeviceConfig."

    def goes_by(self, defaults: KioskDeviceConfig) -> KioskDeviceConfig:
        return replace(defaults, **self.settings)


@dataclass(frozen=True, slots=True)
class Offer:
    """What a device that wants in is told: all that there ever is of the code and the token."""

    id: str
    token: str
    code: str
    until: float


class Kiosks:
    """All devices of a server. `now` is Unix seconds: what is kept outlives the process."""

    def __init__(
        self,
        config: KioskConfig,
        wanting: Iterable[Wanting] = (),
        devices: Iterable[Device] = (),
        random: Random | None = None,
    ) -> None:
        self._config = config
        self._wanting = {each.id: each for each in wanting}
        self._devices = {each.id: each for each in devices}
        self._random = random or SystemRandom()

    def wanting(self, now: float) -> list[Wanting]:
        """Return those that want in still, the first ones first."""
        return [each for each in self._wanting.values() if now < each.until]

    @property
    def devices(self) -> list[Device]:
        """Those that were let in, the first ones first."""
        return list(self._devices.values())

    def begin(self, address: str, agent: str, now: float) -> Offer:
        """Take in a device that wants in. Raises FullError: nobody else is pushed out for it.

        One address has half of the places at most; then its oldest goes.
        """
        self._wanting = {each.id: each for each in self.wanting(now)}
        own = [each.id for each in self._wanting.values() if each.address == address]
        if len(own) >= max(1, self._config.max_wanting // 2):
            del self._wanting[own[0]]
        if len(self._wanting) >= self._config.max_wanting:
            raise FullError("Too many devices wait to be approved.")
        ident = self._random.randbytes(_ID_BYTES).hex()
        token = f"{TOKEN_PREFIX}{ident}.{self._random.randbytes(_SECRET_BYTES).hex()}"
        code = self._new_code(now)
        until = now + self._config.code_s
        self._wanting[ident] = Wanting(
            ident, _digest(token), _digest(code), address, agent[:MAX_AGENT], now, until
        )
        return Offer(ident, token, code, until)

    def find(self, token: str, now: float) -> Wanting | Device | None:
        """Tell whose token it is; None if it was never given, has expired or was revoked."""
        if len(token) > _MAX_TOKEN or not token.startswith(TOKEN_PREFIX):
            return None
        ident = token.removeprefix(TOKEN_PREFIX).partition(".")[0]
        found = self._devices.get(ident) or self._wanting.get(ident)
        if found is None or not hmac.compare_digest(found.token, _digest(token)):
            return None
        return found if isinstance(found, Device) or now < found.until else None

    def approve(self, code: str, name: str, now: float) -> Device | None:
        """Let in the device that shows a code, which is used up; None if none shows it. Raises FullError."""
        found = self._showing(code, now)
        if found is None:
            return None
        if len(self._devices) >= MAX_DEVICES:
            raise FullError(f"There are {MAX_DEVICES} devices: revoke one first.")
        del self._wanting[found.id]
        device = self._devices[found.id] = Device(found.id, found.token, name, now)
        return device

    def change(self, ident: str, name: str | None, changes: Any) -> Device | None:
        """Give a device another name, or other settings (`merge_settings`); None if there is no such."""
        device = self._devices.get(ident)
        if device is None:
            return None
        settings = merge_settings(device.settings, changes)
        device = replace(device, name=device.name if name is None else name, settings=settings)
        self._devices[ident] = device
        return device

    def dismiss(self, ident: str) -> bool:
        """Revoke a device, or refuse one that wants in; False if there is no such."""
        dismissed = self._devices.pop(ident, None) or self._wanting.pop(ident, None)
        return dismissed is not None

    def pack(self) -> bytes:
        """Write all down, as JSON."""
        written = {
            "wanting": [asdict(each) for each in self._wanting.values()],
            "devices": [asdict(each) for each in self._devices.values()],
        }
        return json.dumps(written, ensure_ascii=False, indent=1).encode()

    def _new_code(self, now: float) -> str:
        while True:
            code = "".join(self._random.choices(ALPHABET, k=CODE_SIGNS))
            if self._showing(code, now) is None:
                return code

    def _showing(self, code: str, now: float) -> Wanting | None:
        """Find who shows a code. Every one is compared, in constant time."""
        digest = _digest(normal_code(code))
        matches = [each for each in self.wanting(now) if hmac.compare_digest(each.code, digest)]
        return matches[0] if matches else None


def unpack(config: KioskConfig, data: bytes | None, random: Random | None = None) -> Kiosks:
    """Read what `pack` wrote, None being nothing yet. Raises UnreadableKiosksError."""
    try:
        kept = {} if data is None else json.loads(data)
        wanting = [Wanting(**each) for each in kept.get("wanting", ())]
        devices = [Device(**each) for each in kept.get("devices", ())]
        settings = [merge_settings({}, device.settings) for device in devices]
    except (ValueError, TypeError, AttributeError, ClientEventError) as error:
        raise UnreadableKiosksError(f"It is no list of kiosks: {error}.") from error
    devices = [replace(device, settings=own) for device, own in zip(devices, settings, strict=True)]
    return Kiosks(config, wanting, devices, random)


def normal_code(code: str) -> str:
    """Return a code as it was made, however a person has typed it."""
    return "".join(sign for sign in code.upper() if sign.isalnum())


def merge_settings(base: Mapping[str, Any], changes: Any, param: str = "settings") -> dict[str, Any]:
    """Lay an operator's settings over those so far; null takes one back. Raises ClientEventError."""
    fields = Fields(changes, param)
    merged = dict(base)
    for name in changes:
        if name not in _CHECKS:
            refuse(f"There is no setting {fields.param(name)}.", fields.param(name), "unknown_parameter")
        if changes[name] is None:
            merged.pop(name, None)
        else:
            merged[name] = fields.require(name, _CHECKS[name])
    return merged


def session_of(settings: KioskDeviceConfig, base: SessionConfig) -> dict[str, Any]:
    """Return the session of a device's calls as on the wire: whole, so that what was taken back is gone."""
    instructions = base.instructions if settings.instructions is None else settings.instructions
    heard: dict[str, Any] = {}
    if settings.language is not None:
        instructions += (
            f'\nUnless you are asked otherwise, speak the language of the tag "{settings.language}".'
        )
        if base.transcribe:
            heard["transcription"] = {"language": settings.language.partition("-")[0].lower()}
    voice = base.voice if settings.voice is None else settings.voice
    return {
        "type": "realtime",
        "instructions": instructions.strip(),
        "audio": {"input": heard, "output": {"voice": voice}},
    }


def told(device: Device, config: KioskConfig, base: SessionConfig, version: str) -> dict[str, Any]:
    """Return what a device is told of itself. `version` is the server's: pages of another load anew."""
    settings = device.goes_by(config.device)
    shown = asdict(settings)
    del shown["instructions"], shown["voice"]
    return {
        "state": "approved",
        "device": {"id": device.id, "name": device.name},
        "settings": shown,
        "session": session_of(settings, base),
        "poll_s": config.poll_s,
        "version": version,
    }


def tag_of(answer: Mapping[str, Any]) -> str:
    """Return an entity tag by which the same answer is known (RFC 9110, 8.8.3)."""
    return f'"{_digest(json.dumps(answer, sort_keys=True))[:20]}"'


def _language(value: Any, param: str) -> str:
    language = text(MAX_ID)(value, param)
    if _LANGUAGE.fullmatch(language) is None:
        refuse(f"{param} must be a language tag such as de or pt-BR.", param)
    return language


_CHECKS: dict[str, Check[Any]] = {
    "instructions": text(MAX_TEXT),
    "voice": text(MAX_ID, 1),
    "language": _language,
    "idle_s": number(_SHORTEST_IDLE_S, _LONGEST_IDLE_S),
    "volume": number(0, 1),
    "title": text(_MAX_TITLE),
    "text": text(_MAX_WORDS),
    "wake": one_of("motion", "touch"),
}
"The settings that an operator may change for a device, by name."


def _digest(secret: str) -> str:
    return sha256(secret.encode("utf-8", "replace")).hexdigest()
