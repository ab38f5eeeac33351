"""The life of a server: listen, say where, and on a signal let the calls end before it does."""

import asyncio
import errno
import logging
from collections.abc import Callable, MutableMapping
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from .app import CALLS
from .middleware import AccessLog, access_logger
from .auth import is_loopback_host
from .config import ServerConfig
from .errors import ConfigError
from .signals import on_stop_signal

logger = logging.getLogger(__name__)

_IDLE_S = 30.0
"After which a connection without a whole request is closed; aiohttp's default is an hour."

_SHUTDOWN_S = 2.0
"For requests that are being answered when the last call has ended."


async def run_server(app: web.Application, config: ServerConfig, announce: Callable[[str], None]) -> None:
    """Serve until SIGINT or SIGTERM, then drain: no new calls, `drain_s` for those that are there.

    A second signal ends the calls at once. `announce` is told the address once it is listened on. Raises
    ConfigError if that is impossible.
    """
    calls = app[CALLS]
    stopping = asyncio.Event()

    def stop() -> None:
        if stopping.is_set():
            calls.hang_up_all("the server was stopped")
        stopping.set()

    runner = web.AppRunner(
        app,
        access_log_class=AccessLog,
        access_log=access_logger,
        logger=_Discreet(logger),
        keepalive_timeout=_IDLE_S,
        shutdown_timeout=_SHUTDOWN_S,
    )
    await runner.setup()
    try:
        await _listen(runner, config)
        announce(_address(config, runner.addresses[0][1]))
        with on_stop_signal(stop):
            await stopping.wait()
            logger.info("stopping")
            # Still listening, so that whoever asks learns that this server goes away.
            await calls.drain(config.drain_s)
    finally:
        await runner.cleanup()


class _Discreet(logging.LoggerAdapter[logging.Logger]):
    """Keeps malformed requests out of the log: aiohttp quotes the bad line, which may be the key's."""

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        if isinstance(kwargs.get("exc_info"), HttpProcessingError):
            kwargs["exc_info"] = None
            msg = f"{msg}: it is no HTTP"
        return msg, kwargs


async def _listen(runner: web.AppRunner, config: ServerConfig) -> None:
    try:
        await web.TCPSite(runner, config.host, config.port).start()
    except OSError as error:
        place = f"port {config.port} on {config.host}"
        match error.errno:
            case errno.EADDRINUSE:
                todo = f"{place} is in use: stop the other program, or choose another port (PORT, --port)."
            case errno.EACCES:
                todo = f"{place} is not allowed to this user: choose a port above 1023 (PORT, --port)."
            case _:
                todo = f"{place} cannot be listened on ({error.strerror}): check server.host."
        raise ConfigError(todo[0].upper() + todo[1:]) from error


def _address(config: ServerConfig, port: int) -> str:
    """Return the URL to open on this machine, and who else may use it."""
    host = config.host if is_loopback_host(config.host) else "localhost"
    host = f"[{host}]" if ":" in host else host
    reach = "a key is needed to call" if config.keys else "no key is set, so only this machine may call"
    return f"http://{host}:{port} ({reach})"
