"""How a process writes its log, and how a parent reads that of a child."""

import asyncio
import logging
from collections.abc import Callable

_CHATTY = ("aioice", "aiortc", "aiohttp.access")
"What they tell at level INFO is of use to their authors."

_LEVELS = logging.getLevelNamesMapping()


def set_up_logging(level: int) -> None:
    """Log to standard error, for people."""
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    _hush()


def set_up_child_logging(level: int) -> None:
    """Log to standard error, for a parent that adds the time."""
    logging.basicConfig(level=level, format="%(levelname)s %(name)s: %(message)s")
    _hush()


def _hush() -> None:
    for name in _CHATTY:
        logging.getLogger(name).setLevel(logging.WARNING)


class ChildLog:
    """Reads a child's log line by line. Sans-I/O."""

    def __init__(self) -> None:
        self._level = logging.INFO
        self.last_words = ""
        "The newest message, without level and logger."

    def read(self, line: str) -> tuple[int, str]:
        """Return a line's level and text. Without a level, as in a traceback, it has the last one's."""
        name, _, text = line.partition(" ")
        if name in _LEVELS:
            self._level = _LEVELS[name]
            self.last_words = text.partition(": ")[2] or text
            return self._level, text
        if line.startswith("Traceback "):
            self._level = logging.ERROR
        return self._level, line


async def pass_on(stream: asyncio.StreamReader, log: ChildLog, tell: Callable[[int, str], None]) -> None:
    """Read a child's log to its end and tell each line with its level."""
    while True:
        try:
            line = await stream.readline()
        except ValueError:  # a line beyond the limit, which has been dropped
            continue
        if not line:
            return
        if text := line.decode(errors="replace").rstrip():
            tell(*log.read(text))
