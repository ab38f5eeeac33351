"""Where the list of kiosks is kept: in a file of this machine, or in Redis for many."""

import asyncio
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from .config import Config
from .errors import ConfigError
from .store import RedisStore, StoreError

FILE = "kiosks.json"
_KEY = "visavis:kiosks"


class KioskStore(Protocol):
    """One document. Raises StoreError."""

    async def load(self) -> bytes | None: ...

    async def swap(self, before: bytes | None, after: bytes) -> bool:
        """Keep `after` in place of what was loaded; False if it is no longer that."""
        ...

    async def aclose(self) -> None: ...


def open_kiosk_store(config: Config, environ: Mapping[str, str]) -> KioskStore:
    """Make the store that is configured. Raises ConfigError."""
    if config.resume.redis is not None:
        return RedisKiosks(RedisStore(config.resume.redis))
    return FileKiosks(state_dir(config.kiosk.folder, environ) / FILE)


def state_dir(configured: Path | None, environ: Mapping[str, str]) -> Path:
    """Say where state is kept: the setting, else `$XDG_STATE_HOME/visavis`, else `~/.local/state/visavis`.

    Source: XDG Base Directory Specification (a relative `XDG_STATE_HOME` is ignored).
    """
    if configured is not None:
        return configured.expanduser()
    base = Path(environ.get("XDG_STATE_HOME", ""))
    return (base if base.is_absolute() else Path.home() / ".local" / "state") / "visavis"


class FileKiosks:
    """Keeps it in a file, which is read once: no other server may write it."""

    def __init__(self, path: Path) -> None:
        """Raises ConfigError if there is a file that cannot be read."""
        self._path = path
        self._writing = asyncio.Lock()
        try:
            self._data = path.read_bytes() if path.exists() else None
        except OSError as error:
            raise ConfigError(f"kiosk.folder: {path} cannot be read ({error.strerror}).") from error

    async def load(self) -> bytes | None:
        return self._data

    async def swap(self, before: bytes | None, after: bytes) -> bool:
        async with self._writing:
            if before != self._data:
                return False
            if after != before:
                try:
                    await asyncio.to_thread(self._write, after)
                except OSError as error:
                    raise StoreError(
                        f"{self._path} cannot be written ({error.strerror}): check kiosk.folder."
                    ) from error
                self._data = after
            return True

    async def aclose(self) -> None:
        pass

    def _write(self, data: bytes) -> None:
        """Write a new file and give it the name, so that a power cut leaves the old one or the new one."""
        folder = self._path.parent
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{FILE}-", dir=folder)  # readable to its owner alone
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            Path(name).replace(self._path)
        except OSError:
            Path(name).unlink(missing_ok=True)
            raise


class RedisKiosks:
    """Keeps it in Redis, where every node finds it."""

    def __init__(self, store: RedisStore) -> None:
        self._store = store

    async def load(self) -> bytes | None:
        return await self._store.read(_KEY)

    async def swap(self, before: bytes | None, after: bytes) -> bool:
        return await self._store.swap(_KEY, before, after)

    async def aclose(self) -> None:
        await self._store.aclose()
