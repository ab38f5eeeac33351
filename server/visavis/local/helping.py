"""Voice and ears beside an engine of another kind: which of them can be had here, and their life."""

import asyncio
import importlib.util
import logging
import os

from ..config import LocalConfig
from ..errors import ModelError, VisavisError
from . import models
from .parts import Part, Parts
from .supervisor import Supervisor

logger = logging.getLogger(__name__)

_PACKAGES: dict[Part, str] = {"ears": "ctranslate2", "voice": "hibari"}
_LACKING: dict[Part, str] = {
    "ears": "what the user says will not be written down",
    "voice": "answers that come without sound will not be spoken",
}


def missing(config: LocalConfig, part: Part) -> str | None:
    """Say what an installation lacks for the ears or the voice, and how to get it; None if nothing."""
    if importlib.util.find_spec(_PACKAGES[part]) is None:
        return f"{_PACKAGES[part]} is not installed (pip install 'visavis[local]')"
    try:
        for name in (config.whisper,) if part == "ears" else ():
            models.resolve(name, models.cache_dir(config.cache_dir, os.environ))
    except ModelError as error:
        return str(error)
    return None


def available(config: LocalConfig, parts: Parts) -> Parts:
    """Return those of the parts that can be had; of the others the log tells why not and what follows."""
    reasons = {part: missing(config, part) for part in sorted(parts)}
    for part, reason in reasons.items():
        if reason is not None:
            logger.warning("%s: %s", _LACKING[part], reason)
    return frozenset(part for part, reason in reasons.items() if reason is None)


async def help_out(supervisor: Supervisor, parts: Parts) -> None:
    """Keep the parts running, as `Supervisor.run` does; if they cannot be started, log it and return."""
    try:
        await supervisor.run()
    except VisavisError as error:
        for part in sorted(parts):
            logger.error("%s: %s", _LACKING[part], error)


async def settled(supervisor: Supervisor, helping: asyncio.Task[None]) -> None:
    """Wait until the parts are there or it is known that they will not be."""
    ready = asyncio.create_task(supervisor.wait_ready())
    try:
        await asyncio.wait((ready, helping), return_when=asyncio.FIRST_COMPLETED)
    finally:
        ready.cancel()
        await asyncio.gather(ready, return_exceptions=True)
