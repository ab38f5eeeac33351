"""Keep what llama.cpp has read of the fixed prompt on disk, so that the next start need not read it."""

import asyncio
import hashlib
import json
import logging
from pathlib import Path

import aiohttp

from .prompt import Messages

logger = logging.getLogger(__name__)

_KEPT = 4
"Files kept: a few models and instructions, 15 MB each for the 1.5B model."
_REQUEST_S = 30.0


class Snapshots:
    """Saves and restores the state of the one slot through llama.cpp's own server."""

    def __init__(self, folder: Path, socket: Path, key: str) -> None:
        """`folder` is the server's `slot_save_path`; `socket` and `key` are how to reach it."""
        self._folder = folder
        self._socket = socket
        self._headers = {"Authorization": f"Bearer {key}"}

    async def restore(self, name: str) -> bool:
        """Load a state; False if there is none that can be used."""
        if not await asyncio.to_thread((self._folder / name).is_file):
            return False
        return await self._ask("restore", name)

    async def save(self, name: str) -> None:
        """Save the state, and drop the files longest unused. A failure costs the next start some seconds."""
        unfinished = f"{name}.part"
        if await self._ask("save", unfinished):
            await asyncio.to_thread(self._keep, unfinished, name)

    def _keep(self, unfinished: str, name: str) -> None:
        try:
            (self._folder / unfinished).replace(self._folder / name)
            files = sorted(self._folder.glob("*.bin"), key=lambda file: file.stat().st_mtime, reverse=True)
            for file in files[_KEPT:]:
                file.unlink(missing_ok=True)
        except OSError as error:
            logger.warning("the prompt's state cannot be kept in %s: %s", self._folder, error)

    async def _ask(self, action: str, name: str) -> bool:
        try:
            async with (
                aiohttp.ClientSession(
                    connector=aiohttp.UnixConnector(str(self._socket)),
                    headers=self._headers,
                    timeout=aiohttp.ClientTimeout(total=_REQUEST_S),
                ) as session,
                session.post(
                    "http://localhost/slots/0", params={"action": action}, json={"filename": name}
                ) as response,
            ):
                if response.status == 200:
                    return True
                reason = (await response.text())[:200]
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            reason = str(error)
        logger.warning("cannot %s the prompt's state: %s", action, reason)
        return False


def name_of(model: Path, version: str, context: int, messages: Messages) -> str:
    """Name a state by all that it depends on. Raises OSError if the model's file is gone."""
    stat = model.stat()
    facts = [model.name, stat.st_size, stat.st_mtime_ns, version, context, messages]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:24] + ".bin"
