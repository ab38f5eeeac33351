"""The HTTP interface, described: OpenAPI 3.1 at `/openapi.json`, of the routes that this server has.

A module that adds routes adds a `Part` to `PARTS`; a test compares the two.
"""

from typing import Any

from aiohttp import web

from .. import __version__
from .calls import CALLS, SECRETS
from .kiosk import KIOSK
from .parts import JSON_TYPE, Json, Part, nullable, record, ref
from .rtvi import RTVI
from .status import STATUS

PARTS: tuple[Part, ...] = (CALLS, SECRETS, RTVI, KIOSK, STATUS)

PATH = "/openapi.json"

_TEXT = {"type": "string"}

_ERROR = record(
    ("error",),
    error=record(
        ("message", "type", "code", "param"),
        message=_TEXT,
        type=_TEXT,
        code=_TEXT,
        param=nullable(_TEXT),
    )
    | {"additionalProperties": False},
) | {"additionalProperties": False}


def document(parts: tuple[Part, ...] = PARTS) -> Json:
    """Return the whole description."""
    schemas: Json = {"Error": _ERROR}
    paths: Json = {}
    for part in parts:
        schemas |= part.schemas
        paths |= part.paths
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Visavis",
            "version": __version__,
            "description": "A voice and video assistant. Calls are OpenAI's Realtime API over WebRTC and "
            "WebSockets; their resource has the shape of WHIP.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "security": [{"key": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {
                "key": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "One of server.keys, or a client secret; a server of this machine alone "
                    "may have none.",
                }
            },
            "responses": {
                "Refusal": {
                    "description": "Why not.",
                    "content": {JSON_TYPE: {"schema": ref("Error")}},
                }
            },
            "schemas": schemas,
        },
    }


def add_description(app: web.Application) -> None:
    """Serve the description of the routes that the application has; to be called when it has all."""

    async def tell(request: web.Request) -> web.Response:
        return web.json_response(told)

    app.router.add_get(PATH, tell)
    told = _limited(document(), operations_of(app))


def operations_of(app: web.Application) -> set[tuple[str, str]]:
    """Return method, in lower case, and path of each route that is not a page's."""
    return {
        (route.method.lower(), route.resource.canonical)
        for route in app.router.routes()
        if route.resource is not None and route.method not in ("*", "HEAD")
    }


def _limited(whole: Json, operations: set[tuple[str, str]]) -> Json:
    """Leave out what this server does not have."""
    paths: dict[str, Any] = {}
    for path, described in whole["paths"].items():
        if left := {method: each for method, each in described.items() if (method, path) in operations}:
            paths[path] = left
    return whole | {"paths": paths}
