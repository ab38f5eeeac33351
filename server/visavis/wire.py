"""What a call and its client speak: the seam between a session and a protocol. Sans-I/O."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from . import events as ev
from .audio import EMPTY, Pcm
from .config import SessionConfig
from .errors import VisavisError
from .frames import Source


@dataclass(frozen=True, slots=True)
class Asked:
    """What one message of a client's comes to; nothing at all, for a sign of life."""

    events: tuple[ev.ClientEvent, ...] = ()
    "For the conversation, in this order; one that it refuses ends them, and there is no reply then."
    replies: tuple[str, ...] = ()
    "Messages of the wire's own, sent before anything that comes of the events."
    shown: tuple[tuple[Source, bool], ...] = ()
    "What the client says that it shows from now on, or does not: pictures of that are not looked at."
    hangs_up: bool = False
    sound: Pcm = field(default_factory=lambda: EMPTY, compare=False)
    "Mono, 24 kHz: from the client's own buffer, heard as if the microphone had heard it, and without events."
    later: Callable[[], ev.ClientEvent] | None = None
    """Makes its event, in milliseconds that the event loop must not wait for; what was sent after it waits.
    Raises ClientEventError."""


class Wire(Protocol):
    """The protocol of one call, whatever carries its messages."""

    @property
    def label(self) -> str:
        """Name of the data channel that clients of this protocol open."""
        ...

    @property
    def tells_audio(self) -> bool:
        """Whether the client is told what it is to play (`ReplyAudio`), for want of a track."""
        ...

    def encode(self, event: ev.ServerEvent) -> list[str]:
        """Return the messages that tell one event, in the order to send them."""
        ...

    def encode_error(self, error: VisavisError, *, echo: bool = True) -> str:
        """Return the message that tells an error.

        `echo` is False for one that has nothing to do with the message decoded last.
        """
        ...

    def farewell(self) -> list[str]:
        """Return what tells the client that the server hangs up, right before it does."""
        ...

    def decode(self, message: str, session: SessionConfig) -> Asked:
        """Return what a client's message asks for; `session` is what its changes are laid over.

        Raises ClientEventError for whatever is wrong with it, and nothing else.
        """
        ...


MakeWire = Callable[[str], Wire]
"Makes the wire of a call, given its id."
