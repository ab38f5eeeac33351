"""What a call is to those who make many: a line that is opened, spoken into, looked at and let go."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from .arrivals import Arrivals
from .film import Film

CONNECT_S = 10.0
"A call that takes longer to connect has failed."

Signal = Callable[[str], Awaitable[str]]
"Takes an offer to a server and brings its answer, both SDP. Raises CallFailed."


class CallFailed(Exception):
    """A call did not come about; says why."""


@dataclass(slots=True)
class SetUp:
    """Monotonic seconds; None: it did not come so far."""

    posted: float
    answered: float | None = None
    connected: float | None = None


class Line(Protocol):
    """A call: `line.Line` and `light.LightLine`."""

    arrivals: Arrivals
    set_up: SetUp

    async def open(self, signal: Signal) -> None: ...

    def say(self, block: bytes | None) -> None: ...

    def show(self) -> None: ...

    def poll(self) -> list[float]: ...

    def close(self) -> None: ...


class Lines(Protocol):
    """Makes lines: `line.Exchange` and `light.Light`."""

    def line(self, film: Film | None = None) -> Line: ...


@dataclass(frozen=True, slots=True)
class Kinds:
    """The first callers are of libwebrtc, and from some number on light ones."""

    libwebrtc: Lines
    light: Lines | None = None
    most_libwebrtc: int = 0

    def line(self, place: int, film: Film | None) -> Line:
        """Make the line of the call at a place, counted from 0."""
        light = self.light is not None and place >= self.most_libwebrtc
        return (self.light if light and self.light else self.libwebrtc).line(film)
