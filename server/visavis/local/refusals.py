"""What the embedded engine's routes share: who calls, and how a request is refused."""

from aiohttp import web

from .contract import error_body

CALLER_HEADER = "X-Visavis-Call"
"Names the call a request belongs to, so that calls take fair turns."
MAX_CALLER = 128
"Characters of it."

RETRY_AFTER_S = 2
WRITE_S = 20.0
"A client that reads nothing for so long is gone."


def busy(why: str) -> web.Response:
    response = refusal(503, f"busy: {why}; try again", "overloaded_error")
    response.headers["Retry-After"] = str(RETRY_AFTER_S)
    return response


def refusal(status: int, message: str, kind: str) -> web.Response:
    return web.json_response(error_body(message, kind, status), status=status)
