"""The call page and its files, from the package or the checkout."""

import errno
from pathlib import Path

from aiohttp import hdrs, web

_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".ico": "image/x-icon",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".mjs": "text/javascript; charset=utf-8",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
    ".wav": "audio/wav",
    ".webmanifest": "application/manifest+json",
    ".woff2": "font/woff2",
}
"Named here because the system's own table differs between machines, and `nosniff` makes a wrong one fatal."

_NO_PAGES = r"v1/|api/|(?:healthz|readyz|metrics|openapi\.json)$"

_METHODS = (hdrs.METH_GET, hdrs.METH_HEAD)

_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data: blob:",
        "media-src 'self' blob: mediastream:",
        "font-src 'self'",
        "connect-src 'self'",
        "worker-src 'self'",
        "manifest-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)

_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(self), microphone=(self), display-capture=(self), screen-wake-lock=(self)",
}


def web_root() -> Path:
    """Return where the page's files are: beside this module in a wheel, else in the checkout."""
    here = Path(__file__).resolve()
    packed = here.parent / "web"
    return packed if packed.is_dir() else here.parents[2] / "web"


class Page:
    """Serves the files under `root`, and nothing outside it or hidden in it."""

    def __init__(self, root: Path) -> None:
        self._root = root.resolve()

    def routes(self) -> list[web.AbstractRouteDef]:
        # All methods, so that a wrong address is told from a wrong method; what is no page has its own.
        return [web.route("*", "/", self.serve), web.route("*", f"/{{path:(?!{_NO_PAGES}).+}}", self.serve)]

    async def serve(self, request: web.Request) -> web.StreamResponse:
        return self.answer(request, request.match_info.get("path", "index.html"))

    def answer(self, request: web.Request, name: str) -> web.StreamResponse:
        """Answer with a file, whatever the request's own path. Raises aiohttp's 404 and 405."""
        path = self._find(name)
        if path is None:
            raise web.HTTPNotFound
        if request.method not in _METHODS:
            raise web.HTTPMethodNotAllowed(request.method, _METHODS)
        headers = dict(_HEADERS)
        headers[hdrs.CONTENT_TYPE] = _TYPES.get(path.suffix.lower(), "application/octet-stream")
        # The page names its modules without versions, so each visit asks whether they are still the same.
        headers[hdrs.CACHE_CONTROL] = "no-store" if path.suffix == ".html" else "no-cache"
        return web.FileResponse(path, headers=headers)

    def _find(self, name: str) -> Path | None:
        try:
            path = (self._root / name).resolve()
            if not path.is_relative_to(self._root) or not path.is_file():
                return None
        except ValueError:
            # A NUL in the name.
            return None
        except OSError as error:
            if error.errno in (errno.ENAMETOOLONG, errno.ELOOP, errno.EACCES):
                return None
            raise
        hidden = any(part.startswith(".") for part in path.relative_to(self._root).parts)
        return None if hidden else path
