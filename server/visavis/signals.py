"""What a process does when it is asked to stop."""

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_STOP = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def on_stop_signal(stop: Callable[[], None]) -> Iterator[None]:
    """Have each SIGINT and SIGTERM call `stop` on the running loop, instead of what they do otherwise."""
    loop = asyncio.get_running_loop()
    for number in _STOP:
        loop.add_signal_handler(number, stop)
    try:
        yield
    finally:
        for number in _STOP:
            loop.remove_signal_handler(number)
