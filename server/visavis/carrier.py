"""What carries a call: the seam between a session and a connection."""

from collections.abc import Callable, Iterable
from typing import Protocol

from .rtc import PeerHandler, PeerStats


class Handler(PeerHandler, Protocol):
    """The session at the end of a line."""

    async def caught_up(self) -> None:
        """Wait until all messages so far are dealt with: who can, sends no more before."""
        ...


class Line(Protocol):
    """What carries a call's messages, and its sound and pictures if it can: `rtc.Peer`, or a socket."""

    async def answer(self, offer_sdp: str) -> str:
        """Return the answer to an offer. Raises SignallingError."""
        ...

    async def add_candidates(self, candidates: Iterable[tuple[str, str]], ufrag: str | None = None) -> None:
        """Take ICE candidates, each with the name of its section; `ufrag` is theirs, if the caller says.

        Raises SignallingError.
        """
        ...

    def send_message(self, text: str) -> None:
        """Send soon, or drop and count what nobody takes."""
        ...

    def want_video(self, fps: float) -> None:
        """Say how many pictures a second are wanted from now on; 0 is none."""
        ...

    def stats(self) -> PeerStats:
        """Tell what became of the media so far."""
        ...

    async def aclose(self) -> None:
        """Leave nothing behind. May be called again."""
        ...


class Carrier(Protocol):
    """What makes the line of a call: `rtc.Media`, or a socket that was accepted."""

    def peer(self, handler: Handler, label: str) -> Line:
        """Make the line of the call that is its handler; its `aclose` is due in any case."""
        ...

    @property
    def listener(self) -> Callable[[PeerHandler], Line] | None:
        """What makes the line of a handler that listens in on the call; None where none can."""
        ...
