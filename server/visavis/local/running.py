"""The parts of the embedded engine that a server runs beside itself, for all of its processes."""

import asyncio
import os
from collections.abc import AsyncIterator, Coroutine
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from ..config import Config
from ..engine.helper import Helper
from ..errors import unwrapped
from ..repertoire import Repertoire
from . import models
from .helping import available, help_out, settled
from .parts import Parts, wanted
from .supervisor import Supervisor


@dataclass(frozen=True, slots=True)
class Embedded:
    """What of the embedded engine runs, and where."""

    socket: Path
    parts: Parts

    @property
    def url(self) -> str:
        """For `EngineConfig.url`."""
        return f"unix://{self.socket}"


class Running:
    """The parts, as the process sees them that started them."""

    def __init__(self, supervisor: Supervisor, helper: Helper, parts: Parts) -> None:
        self._supervisor = supervisor
        self._helper = helper
        self.embedded = Embedded(supervisor.socket, parts)

    async def rehearse(self, repertoire: Repertoire, language: str | None) -> None:
        """Have the voice, once it is there, say what has no sound yet."""
        if repertoire.unspoken:
            await self._supervisor.wait_ready()
            await repertoire.speak(self._helper, language)


@asynccontextmanager
async def running_parts(config: Config, *, wait: bool) -> AsyncIterator[Running | None]:
    """Run what the configuration needs of the embedded engine; None if that is nothing.

    With `wait` it is warm when the body begins. Raises VisavisError if the embedded engine is to answer and
    cannot be started, then or later. Its voice and ears alone are done without if they must be.
    """
    parts = wanted(config)
    answers = "mind" in parts
    if answers:
        for name in models.needed(config.local, parts):
            models.resolve(name, models.cache_dir(config.local.cache_dir, os.environ))
    else:
        parts = available(config.local, parts)
    if not parts:
        yield None
        return
    supervisor = Supervisor(config.local, parts=parts)
    async with aclosing(Helper(str(supervisor.socket))) as helper:
        with unwrapped():
            async with asyncio.TaskGroup() as tasks:
                living = tasks.create_task(supervisor.run() if answers else help_out(supervisor, parts))
                if wait:
                    await settled(supervisor, living)
                try:
                    yield Running(supervisor, helper, parts)
                finally:
                    await supervisor.aclose()


def rehearsal(
    running: Running | None, repertoire: Repertoire, language: str | None
) -> Coroutine[None, None, None] | None:
    """Return what has the lines without a sound spoken; None if there is no voice, and tell that."""
    if running is None or "voice" not in running.embedded.parts:
        repertoire.do_without()
        return None
    return running.rehearse(repertoire, language)
