"""One worker thread per model, taken in fair turns by the calls that share it."""

import asyncio
import threading
from collections import OrderedDict, deque
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

T = TypeVar("T")


class FairQueue(Generic[T]):
    """Hand items out one caller after the other, so that a busy caller delays only itself. Sans-I/O."""

    def __init__(self) -> None:
        self._lines: OrderedDict[str, deque[T]] = OrderedDict()

    def __len__(self) -> int:
        return sum(map(len, self._lines.values()))

    def push(self, caller: str, item: T) -> None:
        self._lines.setdefault(caller, deque()).append(item)

    def pop(self) -> T | None:
        """Take the oldest item of the caller whose turn it is; None when there is none."""
        if not self._lines:
            return None
        caller, line = self._lines.popitem(last=False)
        item = line.popleft()
        if line:
            self._lines[caller] = line
        return item

    def discard(self, caller: str, item: T) -> bool:
        """Take back what was pushed; False if it is no longer here."""
        line = self._lines.get(caller)
        if line is None or item not in line:
            return False
        line.remove(item)
        if not line:
            del self._lines[caller]
        return True


class Stage:
    """Runs work in its one thread. Cancelling a caller frees it at once; the next work begins when the
    thread has noticed, which the work sees by its `Event` or the answer of its `emit`.
    """

    def __init__(self, name: str) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._waiting: FairQueue[asyncio.Future[None]] = FairQueue()
        self._busy = False
        self._stop = threading.Event()
        "Of the work in the thread."

    async def run(self, caller: str, work: Callable[[threading.Event], T]) -> T:
        """Call `work(stop)` in the thread and return what it returns."""
        stop = await self._take(caller)
        try:
            return await asyncio.shield(self._start(lambda: work(stop)))
        finally:
            stop.set()

    async def stream(
        self, caller: str, work: Callable[[Callable[[T], bool]], None]
    ) -> AsyncGenerator[T, None]:
        """Yield what `work(emit)` emits; `emit` returns True once nobody listens.

        What is emitted is kept until it is read: the work itself bounds it.
        """
        stop = await self._take(caller)
        loop = asyncio.get_running_loop()
        items: asyncio.Queue[tuple[T] | None] = asyncio.Queue()

        def emit(item: T) -> bool:
            if not stop.is_set():
                loop.call_soon_threadsafe(items.put_nowait, (item,))
            return stop.is_set()

        try:
            done = self._start(lambda: work(emit))
            done.add_done_callback(lambda _: items.put_nowait(None))
            while (item := await items.get()) is not None:
                yield item[0]
            await done
        finally:
            stop.set()

    async def aclose(self) -> None:
        """Stop the work in the thread and wait until it has stopped."""
        self._stop.set()
        await asyncio.to_thread(self._pool.shutdown, wait=True, cancel_futures=True)

    async def _take(self, caller: str) -> threading.Event:
        if self._busy:
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.push(caller, turn)
            try:
                await turn
            except asyncio.CancelledError:
                if turn.cancelled():
                    self._waiting.discard(caller, turn)
                else:  # the turn had come: pass it on
                    self._release()
                raise
        self._busy = True
        self._stop = threading.Event()
        return self._stop

    def _start(self, work: Callable[[], T]) -> asyncio.Future[T]:
        done = asyncio.get_running_loop().run_in_executor(self._pool, work)
        done.add_done_callback(self._finished)
        return done

    def _finished(self, done: asyncio.Future[T]) -> None:
        if not done.cancelled():
            done.exception()  # seen here too, for the caller may be gone
        self._release()

    def _release(self) -> None:
        while (turn := self._waiting.pop()) is not None and turn.cancelled():
            pass
        self._busy = turn is not None
        if turn is not None:
            turn.set_result(None)
