"""What a conversation wants done: its only output. Sans-I/O."""

from dataclasses import dataclass

from .audio import Pcm
from .engine import Request
from .events import ServerEvent


@dataclass(frozen=True, slots=True)
class StartResponse:
    """Ask the engine. A request that is `speculative` is asked before it is known to be wanted."""

    response_id: int
    request: Request


@dataclass(frozen=True, slots=True)
class CancelResponse:
    """The engine's work on this response is no longer wanted."""

    response_id: int


@dataclass(frozen=True, slots=True)
class SendAhead:
    """What there is of a long turn may go to the engine already."""

    request: Request
    replaces: bool = True
    "What is still being sent ahead is given up for it; if not, this is not sent then."


@dataclass(frozen=True, slots=True)
class StopAhead:
    """The turn is over: what is still being sent ahead of it is of no use any more."""


@dataclass(frozen=True, slots=True)
class HearAside:
    """Somebody said a word while the assistant spoke: what it was goes to `receive_text`."""

    end: int
    "Names it: the position of its last sample."
    pcm: Pcm
    "Mono, 24 kHz."


@dataclass(frozen=True, slots=True)
class JudgeTurn:
    """A model may say whether the turn is finished: what it says goes to `receive_verdict`."""

    end: int
    "Names it: the position of the last voiced sample."
    pcm: Pcm
    "Mono, 24 kHz: the turn and the silence after it."


@dataclass(frozen=True, slots=True)
class RunTool:
    """Run a function of the server's own: what it gives, or why not, comes back as `events.CreateResult`."""

    response_id: int
    call_id: str
    name: str
    arguments: str
    "JSON, as the model wrote it."


@dataclass(frozen=True, slots=True)
class WantVideo:
    """So many pictures a second are worth having from now on; 0: none."""

    fps: float


@dataclass(frozen=True, slots=True)
class HangUp:
    """The call is of no use to anybody any more."""

    reason: str


@dataclass(frozen=True, slots=True)
class Notify:
    event: ServerEvent


@dataclass(frozen=True, slots=True)
class Mark:
    """A stage of a turn was reached."""

    name: str
    response_id: int
    at: float


Action = (
    StartResponse
    | CancelResponse
    | SendAhead
    | StopAhead
    | HearAside
    | JudgeTurn
    | RunTool
    | WantVideo
    | HangUp
    | Notify
    | Mark
)
