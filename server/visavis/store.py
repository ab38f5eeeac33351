"""Where conversations are kept for callers who come back: in this process, or in Redis for many."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Protocol

from .config import ResumeConfig
from .errors import ConfigError, VisavisError

_PREFIX = "visavis:conversation:"
_TAKEN = "visavis:taken:"

_TAKEN_S = 3_600.0
"For so long it is remembered that something was taken: as long as calls last."

_MAX_TAKEN = 10_000
"Remembered in this process; a digest each."

_SWAP = """
if (redis.call('GET', KEYS[1]) or '') ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[2])
return 1
"""

_PATIENCE_S = 2.0
"A store that does not answer by then is none: the caller waits meanwhile."


class StoreError(VisavisError):
    """The store cannot be reached, or refuses."""


class Store(Protocol):
    """Bytes by name, forgotten after a time. Raises StoreError."""

    async def put(self, name: str, data: bytes, ttl_s: float) -> None: ...

    async def renew(self, name: str, data: bytes | None, ttl_s: float) -> bool:
        """Keep what there is for so long from now, or `data` in its place; False if it is there no more."""
        ...

    async def look(self, name: str) -> bytes | None:
        """Return what there is."""
        ...

    async def take(self, name: str) -> bool:
        """Forget what there is, for who goes on from it; False if it is there no more."""
        ...

    async def taken(self, name: str) -> bool:
        """Tell whether it is there no more because it was taken, within the last hour."""
        ...

    async def drop(self, name: str) -> None: ...

    async def aclose(self) -> None: ...


def open_store(config: ResumeConfig) -> Store:
    """Make the store that is configured. Raises ConfigError."""
    return MemoryStore(config.memory_mb << 20) if config.redis is None else RedisStore(config.redis)


class MemoryStore:
    """Keeps up to `max_bytes` for as long as this process lives; what has waited longest goes first."""

    def __init__(self, max_bytes: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._max_bytes = max_bytes
        self._clock = clock
        self._kept: OrderedDict[str, tuple[bytes, float]] = OrderedDict()
        "With the time until which."
        self._taken: OrderedDict[str, float] = OrderedDict()
        "When."
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._kept)

    async def put(self, name: str, data: bytes, ttl_s: float) -> None:
        self._forget(name)
        self._kept[name] = (data, self._clock() + ttl_s)
        self._bytes += len(data)
        for other in list(self._kept):
            if self._bytes <= self._max_bytes and self._kept[other][1] > self._clock():
                break
            self._forget(other)

    async def renew(self, name: str, data: bytes | None, ttl_s: float) -> bool:
        kept, until = self._kept.get(name, (b"", 0.0))
        if until <= self._clock():
            return False
        await self.put(name, kept if data is None else data, ttl_s)
        return True

    async def look(self, name: str) -> bytes | None:
        data, until = self._kept.get(name, (None, 0.0))
        return data if until > self._clock() else None

    async def take(self, name: str) -> bool:
        there = await self.look(name) is not None
        self._forget(name)
        if there:
            self._taken[name] = self._clock()
        if len(self._taken) > _MAX_TAKEN:
            self._taken.popitem(last=False)
        return there

    async def taken(self, name: str) -> bool:
        return name in self._taken and self._clock() - self._taken[name] < _TAKEN_S

    async def drop(self, name: str) -> None:
        self._forget(name)

    async def aclose(self) -> None:
        self._kept.clear()
        self._bytes = 0

    def _forget(self, name: str) -> None:
        data, _ = self._kept.pop(name, (b"", 0.0))
        self._bytes -= len(data)


class RedisStore:
    """Keeps them in Redis (6.2 or newer), where any node finds them."""

    def __init__(self, url: str) -> None:
        """`url` as redis-py takes it: redis://, rediss:// or unix://. Raises ConfigError."""
        try:
            import redis.asyncio as redis
        except ImportError as error:
            raise ConfigError(
                "resume.redis needs the redis package: pip install 'visavis[redis]'."
            ) from error
        self._failures = (redis.RedisError, OSError, TimeoutError)
        self._closed = redis.ConnectionError
        try:
            # No timeout of its own: it uses asyncio.wait_for, which before Python 3.12 may swallow the
            # cancellation of who asks (cpython #86296), and a call would not end.
            self._redis = redis.from_url(url, socket_timeout=None, socket_connect_timeout=None)
        except ValueError as error:
            raise ConfigError(f"resume.redis: {error}; write redis://host:6379/0.") from error

    async def put(self, name: str, data: bytes, ttl_s: float) -> None:
        await self._ask(lambda: self._redis.set(_PREFIX + name, data, px=_ms(ttl_s)))

    async def renew(self, name: str, data: bytes | None, ttl_s: float) -> bool:
        if data is None:
            return bool(await self._ask(lambda: self._redis.pexpire(_PREFIX + name, _ms(ttl_s))))
        return bool(await self._ask(lambda: self._redis.set(_PREFIX + name, data, px=_ms(ttl_s), xx=True)))

    async def look(self, name: str) -> bytes | None:
        data = await self._ask(lambda: self._redis.get(_PREFIX + name))
        assert data is None or isinstance(data, bytes)  # nothing is decoded
        return data

    async def take(self, name: str) -> bool:
        there = bool(await self._ask(lambda: self._redis.delete(_PREFIX + name)))
        if there:
            await self._ask(lambda: self._redis.set(_TAKEN + name, b"", px=_ms(_TAKEN_S)))
        return there

    async def taken(self, name: str) -> bool:
        return bool(await self._ask(lambda: self._redis.exists(_TAKEN + name)))

    async def drop(self, name: str) -> None:
        await self._ask(lambda: self._redis.delete(_PREFIX + name))

    async def read(self, key: str) -> bytes | None:
        """Return a value that is kept for good, by its whole key."""
        data = await self._ask(lambda: self._redis.get(key))
        assert data is None or isinstance(data, bytes)  # nothing is decoded
        return data

    async def swap(self, key: str, before: bytes | None, after: bytes) -> bool:
        """Keep `after` for good, unless the value is no longer the one before, None being none."""
        return bool(await self._ask(lambda: self._redis.eval(_SWAP, 1, key, before or b"", after)))

    async def aclose(self) -> None:
        await self._redis.aclose()

    async def _ask(self, command: Callable[[], Awaitable[object]]) -> object:
        """Run a command, again if the connection had been closed meanwhile. Raises StoreError."""
        for again in (True, False):
            try:
                async with asyncio.timeout(_PATIENCE_S):
                    return await command()
            except self._failures as error:
                if again and isinstance(error, self._closed):
                    continue
                # What the address holds of a password is in none of redis-py's messages.
                why = str(error) or type(error).__name__
                raise StoreError(f"Redis (resume.redis) cannot be used: {why}") from error
        raise AssertionError("unreachable")


def _ms(seconds: float) -> int:
    return max(1, round(seconds * 1000))
