"""Sans-I/O. Names and passwords for a TURN server that shares a secret with us, each for one call."""

import base64
import hashlib
import hmac
import secrets
from dataclasses import replace

from .config import IceServer


def with_credentials(server: IceServer, now: float, valid_s: float) -> IceServer:
    """Give the server as a call uses it for so long; `now` is the wall clock's, in seconds since 1970.

    A secret becomes a name that says until when it is valid, and the name's HMAC as the password
    (draft-uberti-behave-turn-rest-00, coturn's `use-auth-secret`).
    """
    if server.secret is None:
        return server
    username = f"{int(now + valid_s)}:{secrets.token_hex(6)}"
    digest = hmac.digest(server.secret.encode(), username.encode(), hashlib.sha1)
    return replace(server, username=username, credential=base64.b64encode(digest).decode(), secret=None)
