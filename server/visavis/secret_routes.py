"""`POST /v1/realtime/client_secrets`, and the beta's `/sessions`: keys for a while, for browsers to hold."""

import secrets
import time
from collections.abc import Callable
from typing import Any

from aiohttp import web

from .auth import bearer_of, refuse_secret
from .client_secrets import DEFAULT_S, LEAST_S, MOST_S, Secrets
from .config import Config, SessionConfig
from .errors import ClientEventError, SignallingError
from .middleware import read_body
from .protocol.fields import Check, Fields, integer, one_of, optional, parse
from .protocol.realtime_beta import beta_session_object
from .protocol.realtime_session import merge_session, session_object

CLIENT_SECRETS = "/v1/realtime/client_secrets"
SESSIONS = "/v1/realtime/sessions"

_ID_BYTES = 12

_seconds: Check[int] = integer(LEAST_S, MOST_S)


class SecretApi:
    """Makes client secrets for holders of a key."""

    def __init__(self, settings: Callable[[], Config]) -> None:
        """`settings` gives those of the moment."""
        self._settings = settings

    def routes(self) -> list[web.AbstractRouteDef]:
        return [web.post(CLIENT_SECRETS, self.create), web.post(SESSIONS, self.create_session)]

    def issue(self, session: Any, seconds: float, key: str | None = None) -> tuple[str, int]:
        """Make a client secret; return it and its end in Unix seconds. See `Secrets.issue`."""
        return Secrets(self._settings().server.keys).issue(session, seconds, time.time(), key)

    async def create(self, request: web.Request) -> web.Response:
        refuse_secret(request)
        body = await _read(request)
        try:
            seconds = _lifetime(Fields(body))
            session = body.get("session")
            config = self._merged(session)
        except ClientEventError as error:
            raise _refused(error) from error
        value, expires_at = self.issue(session, seconds, bearer_of(request))
        told = session_object(config, session_id=_new_id(), model=self._settings().engine.model)
        return web.json_response({"value": value, "expires_at": expires_at, "session": told})

    async def create_session(self, request: web.Request) -> web.Response:
        """Take the settings as the beta had them: they are the body itself."""
        refuse_secret(request)
        body = await _read(request)
        try:
            seconds = _lifetime(Fields(body).within("client_secret"))
            session = {name: value for name, value in body.items() if name != "client_secret"}
            config = self._merged(session)
        except ClientEventError as error:
            raise _refused(error) from error
        value, expires_at = self.issue(session, seconds, bearer_of(request))
        told = beta_session_object(config, session_id=_new_id(), model=self._settings().engine.model)
        return web.json_response(told | {"client_secret": {"value": value, "expires_at": expires_at}})

    def _merged(self, session: Any) -> SessionConfig:
        base = self._settings().conversation.session
        return base if session is None else merge_session(base, session)


async def _read(request: web.Request) -> dict[str, Any]:
    """Return the body, an object; none at all is an empty one. Raises SignallingError (400)."""
    body = await read_body(request)
    try:
        parsed = parse(body) if body.strip() else {}
        Fields(parsed)
    except ClientEventError as error:
        raise _refused(error) from error
    assert isinstance(parsed, dict)
    return parsed


def _lifetime(fields: Fields) -> int:
    expiry = fields.within("expires_after")
    expiry.read("anchor", one_of("created_at"), "created_at")
    return expiry.read("seconds", optional(_seconds), None) or DEFAULT_S


def _refused(error: ClientEventError) -> SignallingError:
    return SignallingError(400, str(error), code=error.code, param=error.param)


def _new_id() -> str:
    return f"sess_{secrets.token_hex(_ID_BYTES)}"
