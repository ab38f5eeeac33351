"""Server-sent events as they come off the wire, whatever way they are cut. Sans-I/O.

Source: WHATWG HTML, section 9.2.6 "Interpreting an event stream".
"""

from collections import deque

from ..errors import EngineLost

MAX_EVENT = 8 * 1024 * 1024
"Bytes of one event: a minute of sound in base64 is below 4 MB, so more is a server gone wrong."

_BOM = b"\xef\xbb\xbf"


class SseParser:
    """Turn the bytes of an event stream into the data of its events.

    After each `receive_data` drain `next_event` until it gives None. Only the field `data` is of use
    here: comments and other fields are skipped. An event that the end of the stream cuts off is not given.
    """

    def __init__(self, limit: int = MAX_EVENT) -> None:
        self._limit = limit
        self._line = bytearray()
        "The line that has not ended yet."
        self._after_cr = False
        "The last line ended with CR at the end of a chunk; an LF next belongs to it."
        self._at_start = True
        self._data: list[bytes] = []
        self._size = 0
        self._events: deque[str] = deque()

    def receive_data(self, data: bytes) -> None:
        """Take the next bytes. Raises EngineLost if an event outgrows the limit."""
        if not data:
            return
        if self._after_cr and data.startswith(b"\n"):
            data = data[1:]
        self._after_cr = data.endswith(b"\r")
        for piece in data.splitlines(keepends=True):
            self._line += piece
            if piece.endswith((b"\n", b"\r")):
                line, self._line = bytes(self._line.rstrip(b"\r\n")), bytearray()
                self._receive_line(line)
        self._check(len(self._line))

    def next_event(self) -> str | None:
        """Give the data of the next complete event, its lines joined by LF."""
        return self._events.popleft() if self._events else None

    def _receive_line(self, line: bytes) -> None:
        self._check(len(line))
        if self._at_start:
            self._at_start = False
            line = line.removeprefix(_BOM)
        if not line:
            if self._data:
                self._events.append(b"\n".join(self._data).decode("utf-8", "replace"))
                self._data.clear()
                self._size = 0
            return
        field, _, value = line.partition(b":")
        if field == b"data":
            value = value.removeprefix(b" ")
            self._data.append(value)
            self._size += len(value) + 1

    def _check(self, pending: int) -> None:
        if self._size + pending > self._limit:
            raise EngineLost(f"The engine sent an event of more than {self._limit} bytes.")
