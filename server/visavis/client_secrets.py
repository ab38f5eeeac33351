"""Client secrets: keys for a while that a browser may hold, with the settings of their sessions. Sans-I/O.

    ek_<expiry and settings>.<signature>, each in base64url

Nothing is stored: a secret is signed with what is derived from one of the server's keys, so any node that
has that key knows it, and it ends with that key. It holds the settings themselves, compressed. That bounds
them to what fits in a request's header, some 15 KB of text, and spares the nodes a store that all of them
must reach.
"""

import base64
import binascii
import hmac
import json
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from .errors import SignallingError

PREFIX = "ek_"

DEFAULT_S = 600
LEAST_S, MOST_S = 10, 7_200

MAX_LENGTH = 6_000
"Of a secret, in characters: servers and proxies take header lines of 8 KB."

_MAX_SETTINGS = 524_288
"Bytes of settings unpacked: twice the body that they came in, for JSON may spell a character in six."

_PURPOSE = b"visavis client secret 1"
_HEAD = struct.Struct("!I")
_SIGNATURE_BYTES = sha256().digest_size


@dataclass(frozen=True, slots=True)
class Secret:
    """What a client secret says."""

    session: Any
    "Settings as on the wire, checked when they were sent; None for none."
    expires_at: int
    "Unix seconds."


class Secrets:
    """Makes and reads the client secrets of a server with these keys.

    Without keys the server serves its own machine alone, and whoever is there may do everything: secrets are
    signed all the same, so that clients can be tried out.
    """

    def __init__(self, keys: Sequence[str]) -> None:
        self._signing = {key: _derived(key) for key in keys or ("",)}

    def issue(self, session: Any, seconds: float, now: float, key: str | None = None) -> tuple[str, int]:
        """Make a secret; return it and its end in Unix seconds, as `now` is.

        It ends with `key`, one of the server's; None is the first. `session` are settings as on the wire, or
        None. Raises SignallingError (400) if they are too long.
        """
        expires_at = int(now + seconds)
        settings = b"" if session is None else json.dumps(session, separators=(",", ":")).encode()
        body = _HEAD.pack(expires_at) + (zlib.compress(settings, 9) if settings else b"")
        signing = self._signing.get(key or "") or next(iter(self._signing.values()))
        secret = f"{PREFIX}{_encoded(body)}.{_encoded(hmac.digest(signing, body, sha256))}"
        if len(secret) > MAX_LENGTH or len(settings) > _MAX_SETTINGS:
            raise SignallingError(
                400,
                f"The session settings are too long for a client secret: packed they make {len(secret)} "
                f"characters of it, and it may have {MAX_LENGTH}. Send them in session.update.",
                code="session_too_large",
                param="session",
            )
        return secret, expires_at

    def read(self, secret: str) -> Secret | None:
        """Read a secret of one of these keys, whether or not its time is over; None for anything else."""
        if not secret.startswith(PREFIX) or len(secret) > MAX_LENGTH:
            return None
        body_text, _, signature_text = secret.removeprefix(PREFIX).partition(".")
        body, signature = _decoded(body_text), _decoded(signature_text)
        if len(body) < _HEAD.size or len(signature) != _SIGNATURE_BYTES:
            return None
        expected = [hmac.digest(signing, body, sha256) for signing in self._signing.values()]
        matches = [hmac.compare_digest(signature, each) for each in expected]
        if not any(matches):
            return None
        (expires_at,) = _HEAD.unpack_from(body)
        packed = body[_HEAD.size :]
        session = json.loads(zlib.decompressobj().decompress(packed, _MAX_SETTINGS)) if packed else None
        return Secret(session, expires_at)


def _derived(key: str) -> bytes:
    return hmac.digest(key.encode(), _PURPOSE, sha256)


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _decoded(text: str) -> bytes:
    """Return what a text in base64url stands for; nothing if it is no such text."""
    try:
        return base64.b64decode(text.encode("ascii") + b"=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (UnicodeEncodeError, binascii.Error):
        return b""
