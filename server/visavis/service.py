"""`visavis serve --workers N`: the process in front, which takes the requests and has others carry the calls.

It alone is reached from outside: it checks who asks, counts the calls, serves the page and keeps the embedded
engine and the workers running. Sound and pictures pass it by. Without it the workers end.
"""

import asyncio
import logging
import os
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

from aiohttp import web

from .config import Config
from .description import add_description
from .engine import Engine
from .engine.open import opened_engine
from .errors import ConfigError, VisavisError, unwrapped
from .fleet import Fleet
from .front import Front
from .heap import settle
from .kiosk_routes import add_kiosk
from .local.parts import wanted
from .local.running import Running, rehearsal, running_parts
from .local.supervisor import place
from .metrics import DIRECTORY
from .middleware import Door, guard, refusals
from .page import Page, web_root
from .placement import Placement
from .pulse import watch_gpus
from .repertoire import Repertoire
from .serving import run_server, say_when_ready
from .status import Status

logger = logging.getLogger(__name__)

_LAST_PORT = 65_535


async def serve(config: Config, read_again: Callable[[], Config]) -> None:
    """Serve until a signal, with `config.server.workers` workers. SIGHUP has the settings read again.

    Raises VisavisError for whatever makes that impossible.
    """
    _check(config)
    with tempfile.TemporaryDirectory(prefix="visavis-", dir=place()) as folder, unwrapped():
        async with (
            running_parts(config, wait=False) as running,
            AsyncExitStack() as engines,
            asyncio.TaskGroup() as tasks,
        ):
            service = _Service(config, read_again, Path(folder), tasks, running, engines)
            await service.run()


class _Service:
    """The front's life. What it starts are tasks of `tasks`, what it opens is closed with `engines`."""

    def __init__(
        self,
        config: Config,
        read_again: Callable[[], Config],
        folder: Path,
        tasks: asyncio.TaskGroup,
        running: Running | None,
        engines: AsyncExitStack,
    ) -> None:
        self._config = config
        self._read_again = read_again
        self._tasks = tasks
        self._running = running
        self._engines = engines
        self._engine: Engine | None = None
        "Asked for its readiness alone."
        self._door = Door(config.server)
        self._placement = Placement()
        self._fleet = Fleet(tasks, self._placement, folder, None if running is None else running.embedded)
        self._status = Status(lambda: self._fleet.closing, self._ready)
        self._front = Front(config, self._fleet, self._placement, self._status)
        self._manning: asyncio.Task[None] | None = None
        "Workers are being started."
        self._speaking: asyncio.Task[None] | None = None
        "Lines are being spoken for the workers."

    async def run(self) -> None:
        config = self._config
        # For what this process reads; it itself counts in memory, for it began before there was a folder.
        os.environ[DIRECTORY] = str(self._fleet.metrics)
        app = web.Application(
            client_max_size=config.server.max_body, middlewares=[refusals(self._door), guard(self._door)]
        )
        page = Page(web_root())
        app.add_routes([*self._front.routes(), *self._status.routes()])
        add_kiosk(app, lambda: self._config, self._door, page)
        add_description(app)
        app.add_routes(page.routes())
        manned = asyncio.Event()

        def announce(address: str) -> None:
            settle()
            print(f"Visavis is at {address}", flush=True)

        async def start() -> None:
            await self._man(config)
            manned.set()

        remote = config.engine.name != "local"
        self._manning = self._tasks.create_task(start())
        others = [
            self._tasks.create_task(say_when_ready(self._ready, manned, remote=remote)),
            self._tasks.create_task(watch_gpus()),
        ]
        await run_server(app, self._fleet, config.server, announce, self._reload)
        others += [task for task in (self._manning, self._speaking) if task is not None]
        for task in others:
            task.cancel()

    async def _ready(self) -> bool:
        return self._placement.open and self._engine is not None and await self._engine.ready()

    def _reload(self) -> None:
        if self._manning is not None and not self._manning.done():
            logger.warning("SIGHUP changes nothing: workers are just being started")
            return
        self._manning = self._tasks.create_task(self._man_again())

    async def _man_again(self) -> None:
        """Go by the settings as they are now; if that is impossible, by those so far."""
        try:
            config = self._read_again()
            _check(config)
            self._check_changes(config)
            if self._fleet.leaving:
                raise ConfigError(
                    "calls still go on by the settings before those now; again when they are over."
                )
            await self._man(config)
        except VisavisError as error:
            logger.error("SIGHUP changes nothing: %s", error)
        else:
            logger.info("%d workers go by the settings as they are now", config.server.workers)

    async def _man(self, config: Config) -> None:
        """Have all processes go by these settings. Raises VisavisError, and then nothing has changed."""
        repertoire = Repertoire(config.conversation)
        Door(config.server)
        embedded = None if self._running is None else self._running.embedded
        # Of earlier settings it stays open, for who is just asking it; it has no connection otherwise.
        engine = await self._engines.enter_async_context(opened_engine(config, embedded))
        await self._fleet.man(config, repertoire.lines)
        self._door.change(config.server)
        self._front.config = self._config = config
        self._engine = engine
        if self._speaking is not None:
            self._speaking.cancel()
        speech = rehearsal(self._running, repertoire, config.local.language)
        self._speaking = self._tasks.create_task(self._speak(speech, repertoire)) if speech else None

    async def _speak(self, speech: Awaitable[None], repertoire: Repertoire) -> None:
        await speech
        self._fleet.say(repertoire.lines)

    def _check_changes(self, config: Config) -> None:
        """Raise ConfigError for what only a new start can change."""
        server, before = config.server, self._config.server
        fixed = {
            "server.host": (server.host, before.host),
            "server.port": (server.port, before.port),
            "server.node": (server.node, before.node),
            "server.max_body": (server.max_body, before.max_body),
            "kiosk.enabled": (config.kiosk.enabled, self._config.kiosk.enabled),
            "kiosk.folder": (config.kiosk.folder, self._config.kiosk.folder),
            "[local]": (config.local, self._config.local),
            "the need for the embedded engine": (wanted(config), wanted(self._config)),
        }
        changed = [name for name, (new, old) in fixed.items() if new != old]
        if changed:
            raise ConfigError(f"{', '.join(changed)} cannot change while the server runs: start it anew.")


def _check(config: Config) -> None:
    """Raise ConfigError for what no worker can judge."""
    ports = 2 * config.server.workers
    if config.rtc.udp_port and config.rtc.udp_port + ports - 1 > _LAST_PORT:
        raise ConfigError(f"rtc.udp_port must leave {ports} ports to the workers, two for each.")
