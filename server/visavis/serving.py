"""The life of a server: listen, say where, and on a signal let the calls end before it does."""

import asyncio
import errno
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager
from typing import Any, Protocol

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from .agent import telling_room
from .auth import is_loopback_host
from .config import ServerConfig
from .errors import ConfigError
from .middleware import AccessLog, access_logger
from .signals import on_reload_signal, on_stop_signal

logger = logging.getLogger(__name__)

_IDLE_S = 30.0
"After which a connection without a whole request is closed; aiohttp's default is an hour."

_UNREACHED_S = 5.0
"After which it is said that no engine answers."

_SHUTDOWN_S = 2.0
"For requests that are being answered when the last call has ended."


class Drainable(Protocol):
    """The calls of a server, wherever they live (`calls.Calls`, `fleet.Fleet`)."""

    async def drain(self, seconds: float) -> None:
        """Admit no more, tell the callers, wait for them to finish, then end what is left."""
        ...

    def hang_up_all(self, reason: str) -> None: ...

    @property
    def room(self) -> float:
        """Which share of the calls could be added now, 0 to 1."""
        ...


async def run_server(
    app: web.Application,
    calls: Drainable,
    config: ServerConfig,
    announce: Callable[[str], None],
    reload: Callable[[], None] | None = None,
) -> None:
    """Serve until SIGINT or SIGTERM, then drain: no new calls, `drain_s` for those that are there.

    A second signal ends the calls at once. `announce` is told the address once it is listened on; `reload`
    is called at each SIGHUP. Raises ConfigError if the address cannot be listened on.
    """
    stopping = asyncio.Event()

    def stop() -> None:
        if stopping.is_set():
            calls.hang_up_all("the server was stopped")
        stopping.set()

    async with (
        listening(app, lambda runner: _listen(runner, config)) as runner,
        telling_room(config, lambda: calls.room),
    ):
        announce(_address(config, runner.addresses[0][1]))
        with on_stop_signal(stop), on_reload_signal(reload or _refuse_to_reload, hung_up=stop):
            await stopping.wait()
            logger.info("stopping")
            # Still listening, so that whoever asks learns that this server goes away.
            await calls.drain(config.drain_s)


@asynccontextmanager
async def listening(
    app: web.Application, start: Callable[[web.AppRunner], Awaitable[None]], *, logged: bool = True
) -> AsyncIterator[web.AppRunner]:
    """Serve an application at what `start` opens, its requests logged or not."""
    runner = web.AppRunner(
        app,
        access_log_class=AccessLog,
        access_log=access_logger if logged else None,
        logger=_Discreet(logger),
        keepalive_timeout=_IDLE_S,
        shutdown_timeout=_SHUTDOWN_S,
    )
    await runner.setup()
    try:
        await start(runner)
        yield runner
    finally:
        await runner.cleanup()


def _refuse_to_reload() -> None:
    logger.warning(
        "SIGHUP changes nothing: one process cannot take other settings without cutting its calls. "
        "Set server.workers to 2 or more for that, or start the server anew."
    )


async def say_when_ready(
    ready: Callable[[], Awaitable[bool]], listening: asyncio.Event, *, remote: bool
) -> None:
    """Tell whoever started the server when it can be talked to, or that no engine answers.

    `remote` engines are not started by this server; nobody else tells how they are.
    """
    loop = asyncio.get_running_loop()
    began = loop.time()
    await listening.wait()
    asked = loop.time()
    told = not remote
    while not await ready():
        if not told and loop.time() > asked + _UNREACHED_S:
            told = True
            logger.warning(
                "no engine answers yet, calls are refused: check engine.url (visavis doctor --engine URL)"
            )
        await asyncio.sleep(0.2)
    print(f"The engine is warm after {loop.time() - began:.1f} s: open the page and talk.", flush=True)


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
