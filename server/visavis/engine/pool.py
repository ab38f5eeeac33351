"""Places at an engine that several processes share: locks on the bytes of a file.

The kernel keeps the count, so it is never exceeded, costs microseconds and no message, and what a killed
process held is free at once. Whichever process asks gets a place while there is one: a busy worker among idle
ones has all of them, as fixed shares would not allow. Who has to wait asks again and again (`POLL_S`).
Source: fcntl(2), open file description locks; Linux has them.
"""

import fcntl
import os
import struct
from pathlib import Path

POLL_S = 0.01
"Between two tries of who waits: little beside an answer, and the same chance for every worker."

_FLOCK = struct.Struct("hhqqi")
"struct flock: type, whence, start, length, process."
_SEATS_AT = 1 << 30
"Of the queue's bytes in the file, behind those of all places."


class LockPool:
    """`limits.Pool` on a file that all processes name alike. `close` gives everything back."""

    def __init__(self, path: Path, places: int, seats: int) -> None:
        """Opens the file. Raises OSError if it cannot be made."""
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._places = _Bytes(self._file, 0, max(1, places))
        self._seats = _Bytes(self._file, _SEATS_AT, seats)

    def free(self) -> int:
        """Return how many places the next ones get at once: none while another process waits."""
        return 0 if self.others_wait() else self._places.free()

    def others_wait(self) -> bool:
        return self._seats.held_elsewhere()

    def take(self) -> bool:
        """Take a place if there is one."""
        return self._places.take()

    def give(self) -> None:
        """Give a place back."""
        self._places.give()

    def sit(self) -> bool:
        """Take a seat in the queue if there is one."""
        return self._seats.take()

    def stand(self) -> None:
        """Give a seat back."""
        self._seats.give()

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


class _Bytes:
    """A range of bytes, of which each is one process's or nobody's."""

    def __init__(self, file: int, start: int, length: int) -> None:
        self._file = file
        self._range = range(start, start + length)
        self._held: list[int] = []

    def take(self) -> bool:
        for at in self._range:
            if at not in self._held and self._lock(at):
                self._held.append(at)
                return True
        return False

    def give(self) -> None:
        at = self._held.pop()
        fcntl.fcntl(self._file, fcntl.F_OFD_SETLK, _FLOCK.pack(fcntl.F_UNLCK, os.SEEK_SET, at, 1, 0))

    def free(self) -> int:
        return sum(at not in self._held and not self._is_held(at, 1) for at in self._range)

    def held_elsewhere(self) -> bool:
        return bool(self._range) and self._is_held(self._range.start, len(self._range))

    def _lock(self, at: int) -> bool:
        try:
            fcntl.fcntl(self._file, fcntl.F_OFD_SETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, at, 1, 0))
        except BlockingIOError:
            return False
        return True

    def _is_held(self, at: int, length: int) -> bool:
        """Tell whether another process has any of the bytes."""
        asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, at, length, 0)
        answer: bytes = fcntl.fcntl(self._file, fcntl.F_OFD_GETLK, asked)
        kind: int = _FLOCK.unpack(answer)[0]
        return kind != fcntl.F_UNLCK
