"""Reading an offer from a request: SDP alone, or a form with the session's settings beside it."""

from typing import Any

from aiohttp import hdrs, web

from .errors import ClientEventError, SignallingError
from .forms import parse_form
from .middleware import read_body
from .protocol.fields import parse

SDP = "application/sdp"
FORM = "multipart/form-data"


async def read_offer(request: web.Request, *, form: bool = True) -> tuple[str, Any]:
    """Return the offer and the client's session settings, None if it sent none. Raises SignallingError.

    `form` tells whether a form is taken, too.
    """
    kind = request.content_type
    if kind != SDP and not (form and kind == FORM):
        taken = f"{SDP} or {FORM}" if form else SDP
        raise SignallingError(415, f"Send an offer as {taken}.", code="unsupported_media_type")
    body = await read_body(request)
    changes: bytes | None = None
    if kind == FORM:
        parts = parse_form(request.headers[hdrs.CONTENT_TYPE], body)
        if "sdp" not in parts:
            raise SignallingError(
                400, "The form has no part named sdp.", code="missing_required_parameter", param="sdp"
            )
        body, changes = parts["sdp"], parts.get("session")
    try:
        offer = body.decode()
    except UnicodeDecodeError as error:
        raise SignallingError(400, "The offer is not UTF-8.", code="invalid_sdp", param="sdp") from error
    if not offer.startswith("v=0"):
        raise SignallingError(400, "The offer does not begin with v=0.", code="invalid_sdp", param="sdp")
    return offer, None if changes is None else _parsed(changes)


def _parsed(changes: bytes) -> Any:
    try:
        return parse(changes)
    except ClientEventError as error:
        raise SignallingError(400, str(error), code=error.code, param="session") from error
