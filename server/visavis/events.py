"""The conversation's own events, free of any wire's names. Sans-I/O.

A client event goes into `Conversation.receive_client`; a server event comes out inside `Notify`.
`protocol/` maps both to a wire. Response ids are integers that count up from 1 within a call.
"""

from dataclasses import dataclass, field
from typing import Literal

from .audio import Pcm
from .config import SessionConfig
from .engine import Routed, Tool, ToolChoice, Usage
from .history import AudioContent, FramesContent, Item

Modalities = tuple[Literal["audio", "text"], ...]

# From the client.


@dataclass(frozen=True, slots=True)
class UpdateSession:
    session: SessionConfig
    "The whole new settings: the wire module has merged the change into the present ones."


@dataclass(frozen=True, slots=True)
class CreateItem:
    """Put a message into the history. Raises ClientEventError for a known id or unknown predecessor."""

    role: Literal["system", "user", "assistant"]
    text: str
    "What is written in it, or was said by the assistant; empty if it has media alone."
    item_id: str | None = None
    previous_item_id: str | None = None
    media: tuple[AudioContent | FramesContent, ...] = ()
    "What the user shows and says: one of each kind at most."
    spoken: bool = False
    "The assistant said it, in a call before."


@dataclass(frozen=True, slots=True)
class CreateCall:
    """Put a call of a function, made at another time, into the history. Raises ClientEventError, as above,
    and for a known call."""

    name: str
    arguments: str
    "JSON."
    call_id: str | None = None
    item_id: str | None = None
    previous_item_id: str | None = None


@dataclass(frozen=True, slots=True)
class CreateResult:
    """What a call of a function gave. Raises ClientEventError for an unknown call and one that has a result.

    So come the results of the server's own functions, too.
    """

    call_id: str
    output: str
    item_id: str | None = None
    previous_item_id: str | None = None
    seen: str = ""
    "Of the server's own: words beside what is seen now, which follows as a message of the user's."


@dataclass(frozen=True, slots=True)
class RetrieveItem:
    item_id: str


@dataclass(frozen=True, slots=True)
class DeleteItem:
    """Take an item out of the history; one that is being spoken is silenced first."""

    item_id: str


@dataclass(frozen=True, slots=True)
class TruncateItem:
    """The client says how much of a reply was heard; one that is being spoken is silenced.

    Raises ClientEventError for what is no spoken reply, and for more than there is of it.
    """

    item_id: str
    audio_end_ms: int


@dataclass(frozen=True, slots=True)
class CommitAudio:
    """Push-to-talk: what was said since the last commit is a user turn (no response by itself)."""


@dataclass(frozen=True, slots=True)
class ClearAudio:
    """Push-to-talk: forget what was said since the last commit."""


@dataclass(frozen=True, slots=True)
class CreateResponse:
    instructions: str | None = None
    "In place of the session's, for this response only."
    output_modalities: Modalities | None = None
    max_output_tokens: int | None = None
    temperature: float | None = None
    tools: tuple[Tool, ...] | None = None
    "In place of the session's; those of the server are offered besides."
    tool_choice: ToolChoice | None = None
    voice: str | None = None
    "In place of the session's."
    outside: bool = False
    "It leaves nothing in the conversation; a written one is made beside whatever else is going on."
    input: tuple[Item | str, ...] | None = None
    "What it answers in place of the conversation: items, and ids of those in it."
    metadata: tuple[tuple[str, str], ...] = ()
    "The client's own, told with the response."
    patient: bool = False
    "It answers results, once nobody speaks; any other that comes first answers them, too."


@dataclass(frozen=True, slots=True)
class CancelGeneration:
    """Stop generating; what is buffered still plays. Raises ClientEventError when nothing is generated."""

    response_id: int | None = None
    "None is that of the conversation."


@dataclass(frozen=True, slots=True)
class ClearOutput:
    """Stop playing (and generating) at once and cut the history to what was heard."""


ClientEvent = (
    UpdateSession
    | CreateItem
    | CreateCall
    | CreateResult
    | RetrieveItem
    | DeleteItem
    | TruncateItem
    | CommitAudio
    | ClearAudio
    | CreateResponse
    | CancelGeneration
    | ClearOutput
)

# From the conversation.


@dataclass(frozen=True, slots=True)
class SessionCreated:
    session: SessionConfig


@dataclass(frozen=True, slots=True)
class SessionUpdated:
    session: SessionConfig


@dataclass(frozen=True, slots=True)
class SpeechBegan:
    item_id: str
    "The user item that this speech will become."
    at_ms: int
    "On the input audio's clock, as are all `at_ms` of speech."


@dataclass(frozen=True, slots=True)
class SpeechEnded:
    item_id: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class TurnCommitted:
    item_id: str
    previous_item_id: str | None


@dataclass(frozen=True, slots=True)
class TimeoutTriggered:
    """Nobody has spoken for long since the last answer: the silence becomes an item, and is answered."""

    item_id: str
    start_ms: int
    end_ms: int


@dataclass(frozen=True, slots=True)
class InputCleared:
    """Buffered speech was dropped: the client asked, or it was a cough."""


@dataclass(frozen=True, slots=True)
class ItemAdded:
    item: Item
    previous_item_id: str | None


@dataclass(frozen=True, slots=True)
class ItemDone:
    item: Item
    previous_item_id: str | None


@dataclass(frozen=True, slots=True)
class ItemRetrieved:
    item: Item


@dataclass(frozen=True, slots=True)
class ItemTruncated:
    item_id: str
    audio_end_ms: int
    "Milliseconds of the reply that were heard."
    text: str
    "What is left of it."


@dataclass(frozen=True, slots=True)
class ItemDeleted:
    """The item is gone: the client asked, or the user went on and it is part of another now."""

    item_id: str


@dataclass(frozen=True, slots=True)
class TranscriptPart:
    """More of what the user said."""

    item_id: str
    text: str


@dataclass(frozen=True, slots=True)
class TranscriptDone:
    item_id: str
    text: str
    "The whole transcript."


@dataclass(frozen=True, slots=True)
class TranscriptFailed:
    item_id: str
    message: str


@dataclass(frozen=True, slots=True)
class ResponseCreated:
    response_id: int
    output_modalities: Modalities
    outside: bool = False
    "Its items are not in the conversation."
    metadata: tuple[tuple[str, str], ...] = ()
    max_output_tokens: int | None = None
    voice: str | None = None


@dataclass(frozen=True, slots=True)
class ThinkingBegan:
    """The model thinks before it answers. What it thinks is not told."""

    response_id: int


@dataclass(frozen=True, slots=True)
class ThinkingEnded:
    """Now it answers, or the response is over. Once per `ThinkingBegan`."""

    response_id: int


@dataclass(frozen=True, slots=True)
class ReplyBegan:
    """The response has its (assistant) item; text and audio follow. Once per response at most."""

    response_id: int
    item: Item
    previous_item_id: str | None


@dataclass(frozen=True, slots=True)
class ReplyText:
    response_id: int
    item_id: str
    text: str


@dataclass(frozen=True, slots=True)
class ReplyEnded:
    """The reply's item is whole or was broken off; its `status` tells. Once per `ReplyBegan`."""

    response_id: int
    item: Item
    previous_item_id: str | None


@dataclass(frozen=True, slots=True)
class CallBegan:
    """The model has called a function; the call is an item of its own. `CallEnded` follows, once.

    Calls are told once all of the response is there: of one that was broken off there are none.
    """

    response_id: int
    item: Item
    previous_item_id: str | None
    output_index: int
    "Of the item among those of the response."


@dataclass(frozen=True, slots=True)
class CallArguments:
    """More of the arguments' JSON."""

    response_id: int
    item_id: str
    output_index: int
    call_id: str
    text: str


@dataclass(frozen=True, slots=True)
class CallEnded:
    """The arguments are whole."""

    response_id: int
    item: Item
    previous_item_id: str | None
    output_index: int


@dataclass(frozen=True, slots=True)
class CallAnswered:
    """A function of the server's own has given its result, which is in the item of its call."""

    response_id: int
    item: Item
    previous_item_id: str | None
    output_index: int


@dataclass(frozen=True, slots=True)
class ReplyAudio:
    """Sound of the reply, for clients that play it themselves (WebSocket): nothing paces it."""

    response_id: int
    item_id: str
    pcm: Pcm
    "Mono, 24 kHz."


ResponseStatus = Literal["completed", "cancelled", "failed", "incomplete"]
ResponseReason = Literal["turn_detected", "client_cancelled", "max_output_tokens", "content_filter"]


@dataclass(frozen=True, slots=True)
class ResponseDone:
    """Generation is over. Exactly once per `ResponseCreated`."""

    response_id: int
    status: ResponseStatus
    reason: ResponseReason | None = None
    "Of `cancelled` and `incomplete`."
    error_code: str | None = None
    error_message: str | None = None
    "Of `failed`."
    item: Item | None = None
    "The reply, if there was one."
    calls: tuple[Item, ...] = ()
    "Functions that it called, in order."
    output_modalities: Modalities = ("audio",)
    usage: Usage | None = None


@dataclass(frozen=True, slots=True)
class PlayoutStarted:
    response_id: int


@dataclass(frozen=True, slots=True)
class PlayoutStopped:
    """Everything was played."""

    response_id: int


@dataclass(frozen=True, slots=True)
class PlayoutCleared:
    """Playing was cut short."""

    response_id: int


Stance = Literal["open", "ducked", "held"]


@dataclass(frozen=True, slots=True)
class StanceChanged:
    """Somebody may be interrupting: the answer goes on softly or waits, until that is known."""

    response_id: int
    stance: Stance


@dataclass(frozen=True, slots=True)
class CameraWanted:
    """So many pictures a second are looked at from now on: a sender need not send more."""

    fps: float


@dataclass(frozen=True, slots=True)
class Resumed:
    """This call goes on from another, whose items these are."""

    item_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TurnTimings:
    """Stages of one turn, known so far. Sent when the reply is first heard and when it ends."""

    response_id: int
    item_id: str | None
    "The user item that is answered."
    marks_ms: dict[str, int] = field(default_factory=dict)
    "Milliseconds after the end of speech (or after the request, if nobody spoke)."
    final: bool = False
    "The turn is over."
    route: Routed | None = None
    "Which engine answers and why, once it does, where there are several. For the log and the trace."


@dataclass(frozen=True, slots=True)
class RateLimits:
    """How many messages the client may still send at once."""

    limit: int
    remaining: int
    reset_s: float
    "Until all of them may be sent again."


@dataclass(frozen=True, slots=True)
class CallEnding:
    """The server will hang up."""

    reason: str
    "For people."
    seconds: int
    code: Literal["shutting_down", "too_long", "idle"]
    "For programs: who meets `shutting_down` may call again at once, at another server."


ServerEvent = (
    SessionCreated
    | SessionUpdated
    | SpeechBegan
    | SpeechEnded
    | TurnCommitted
    | TimeoutTriggered
    | InputCleared
    | ItemAdded
    | ItemDone
    | ItemRetrieved
    | ItemTruncated
    | ItemDeleted
    | TranscriptPart
    | TranscriptDone
    | TranscriptFailed
    | ResponseCreated
    | ThinkingBegan
    | ThinkingEnded
    | ReplyBegan
    | ReplyText
    | ReplyAudio
    | ReplyEnded
    | CallBegan
    | CallArguments
    | CallEnded
    | CallAnswered
    | ResponseDone
    | PlayoutStarted
    | PlayoutStopped
    | PlayoutCleared
    | StanceChanged
    | CameraWanted
    | Resumed
    | TurnTimings
    | RateLimits
    | CallEnding
)
