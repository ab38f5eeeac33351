"""Callers who come back: a call's conversation is kept under a token, and the next call goes on from it.

The token is the caller's alone: the store knows a digest of it. Each call has another. One is used up when a
call goes on from it and is connected: until then the answer may be lost, and the caller tries again.
"""

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from hashlib import sha256
from weakref import WeakValueDictionary

from .config import ResumeConfig
from .history import Item
from .ids import CallId, read_call_id
from .snapshot import Snapshot, UnreadableSnapshotError, unpack
from .store import Store, StoreError
from .unsaid import Unsaid

logger = logging.getLogger(__name__)

TOKEN_HEADER = "Visavis-Session-Token"  # noqa: S105 - a header's name
_SECRET_BYTES = 24
_MAX_TOKEN = 200

_REFRESHES = 3
"So often within `keep_s` the store is told that a call lives: a machine that dies cannot tell its end."

_HEARD_S = 1.0
"So often what is kept of an answer follows what is heard: so much may be said twice after a crash."

_CLOSE_S = 2.0
"The most that a call's end waits for the store."


def new_token(call_id: CallId) -> str:
    """Make the token of a call. It begins with the call's id, so that a balancer can route by it."""
    return f"{call_id}.{secrets.token_urlsafe(_SECRET_BYTES)}"


def place_of(token: str) -> CallId | None:
    """Tell which call a token is of; None if it is no token."""
    return read_call_id(token.partition(".")[0])


@dataclass(frozen=True, slots=True)
class Kept:
    """What a call goes on from, and where what is said in it is kept."""

    past: tuple[Item, ...]
    "In order; none of a first call."
    keeping: "Keeping"
    unsaid: Unsaid | None = None
    "What the caller has not heard of an answer, if it is to be said."
    claim: Callable[[], Awaitable[bool]] | None = None
    "Uses up the token that the caller came with; False if another call has done so before."


class Resumption:
    """The conversations of all calls of a process."""

    def __init__(self, config: ResumeConfig, store: Store) -> None:
        self._keep_s = config.keep_s
        self._again = config.cut_short == "again"
        self._store = store
        self._live: WeakValueDictionary[str, Keeping] = WeakValueDictionary()
        "By the names of their tokens."

    async def look(self, token: str | None) -> Snapshot | None:
        """Return what a caller can go on from; None if there is nothing that can be read."""
        if not token or len(token) > _MAX_TOKEN or place_of(token) is None or not self._keep_s:
            return None
        try:
            data = await self._store.look(_name(token))
            found = None if data is None else unpack(data)
        except (StoreError, UnreadableSnapshotError) as error:
            logger.warning("a caller came back and cannot go on: %s", error)
            return None
        return found if found is None or self._again else replace(found, unsaid=None)

    def knows(self, token: str) -> bool:
        """Tell whether a token is that of a call of this process which may still live."""
        return _name(token) in self._live

    async def claim(self, token: str) -> bool:
        """Use a token up; tell whether nobody has before. A store that fails is given the benefit."""
        try:
            return await self._store.take(_name(token))
        except StoreError as error:
            logger.warning("a token may be used again: %s", error)
            return True

    def keep(self, token: str) -> "Keeping":
        """Begin to keep a call's conversation."""
        keeping = self._live[_name(token)] = Keeping(self._store, _name(token), self._keep_s)
        return keeping

    async def aclose(self) -> None:
        await self._store.aclose()


class Keeping:
    """Keeps one conversation as it grows. A store that fails is told of once; the call goes on."""

    def __init__(self, store: Store, name: str, keep_s: float) -> None:
        self._store = store
        self._name = name
        self._keep_s = keep_s
        self._snapshot: Callable[[], Snapshot] | None = None
        self._changed = asyncio.Event()
        self._failed = False
        self._stored = False
        self._answering = False
        "An answer was being heard when it was stored: more of it has been since."
        self._taken = False
        "The caller goes on elsewhere: what happens here from now on is nobody's."

    def follow(self, snapshot: Callable[[], Snapshot]) -> None:
        """Say whose conversation it is."""
        self._snapshot = snapshot

    def note_change(self) -> None:
        """Something was said, or set: it will be stored soon."""
        self._changed.set()

    async def run(self) -> None:
        """Store what changes and keep it from being forgotten, until another call has taken it."""
        if not self._keep_s:
            await asyncio.Event().wait()
        pause_s = self._keep_s / _REFRESHES
        while not self._taken:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(pause_s, _HEARD_S) if self._answering else pause_s):
                    await self._changed.wait()
            changed = self._changed.is_set() or self._answering
            self._changed.clear()
            try:
                await self._store_it(self._keep_s + pause_s, changed=changed)
            except StoreError as error:
                self._warn(error)

    async def aclose(self, *, forget: bool) -> None:
        """The call is over. Unless the caller said so, which `forget` tells, they may come back."""
        if not self._keep_s or self._taken:
            return
        try:
            async with asyncio.timeout(_CLOSE_S):
                if not forget:
                    await self._store_it(self._keep_s, changed=True)
                elif self._stored:
                    await self._store.drop(self._name)
        except (StoreError, TimeoutError) as error:
            self._warn(error)

    async def _store_it(self, ttl_s: float, *, changed: bool) -> None:
        data = await self._packed() if changed else None
        if self._stored and not await self._store.renew(self._name, data, ttl_s):
            self._taken = await self._store.taken(self._name)
            self._stored = False  # the store was emptied meanwhile
        if not self._stored and not self._taken:
            data = data or await self._packed()
            if data is not None:
                await self._store.put(self._name, data, ttl_s)
                self._stored = True
        self._failed = False

    async def _packed(self) -> bytes | None:
        """Write down what was said, if anything was."""
        snapshot = None if self._snapshot is None else self._snapshot()
        self._answering = snapshot is not None and snapshot.unsaid is not None and snapshot.unsaid.begun
        if snapshot is None or not snapshot.items:
            return None
        # Of a turn whose words are not known yet there is sound, which takes a while to pack.
        return await asyncio.to_thread(snapshot.pack)

    def _warn(self, error: BaseException) -> None:
        if not self._failed:
            self._failed = True
            logger.warning("a conversation is not kept for a caller who comes back: %s", error or "no answer")


def _name(token: str) -> str:
    return sha256(token.encode()).hexdigest()
