"""What a process does when it is asked to stop, or to read its settings again."""

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_STOP = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def on_stop_signal(stop: Callable[[], None]) -> Iterator[None]:
    """Have each SIGINT and SIGTERM call `stop` on the running loop, instead of what they do otherwise."""
    with _handling(_STOP, stop):
        yield


@contextmanager
def on_reload_signal(reload: Callable[[], None], hung_up: Callable[[], None]) -> Iterator[None]:
    """Have each SIGHUP call `reload` on the running loop.

    In a terminal it also means that the window was closed: then, and only then, `hung_up` is called.
    """
    in_terminal = os.isatty(0)

    def handle() -> None:
        # A terminal that is gone is none any more.
        (hung_up if in_terminal and not os.isatty(0) else reload)()

    with _handling((signal.SIGHUP,), handle):
        yield


@contextmanager
def _handling(numbers: tuple[signal.Signals, ...], handle: Callable[[], None]) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    for number in numbers:
        loop.add_signal_handler(number, handle)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
