"""The books of one response: what it answers, how far it is, when it reached what. Sans-I/O."""

from dataclasses import dataclass, field
from enum import Enum, auto

from .config import WatchdogConfig
from .engine import Routed, ToolCall, Usage
from .errors import EngineError
from .events import CreateResponse, Modalities, ResponseDone, ResponseReason, ResponseStatus, TurnTimings
from .history import History, Item


class Stage(Enum):
    GENERATING = auto()
    DRAINING = auto()
    "The engine is done, the caller still listens."


@dataclass(slots=True)
class Response:
    """A response from its request until the floor is free again. Times are monotonic seconds."""

    id: int
    answers: str | None
    "The user item it answers."
    modalities: Modalities
    started_at: float
    last_delta_at: float
    book: History
    "Where its items are written: the conversation, or for one outside of it a history of its own."
    create: CreateResponse = field(default_factory=CreateResponse)
    "As it was asked for."
    rounds: int = 0
    "How many there were before it without a word of the user, each of which called a function."
    client_tools: frozenset[str] = frozenset()
    "Names of the functions offered that are the client's."
    may_call: bool = False
    calls: list[ToolCall] = field(default_factory=list)
    "What it has called: made items of once all of it is there."
    own: bool = False
    "One of our own lines, said without an engine."
    interruptible: bool = True
    stage: Stage = Stage.GENERATING
    delta_seen: bool = False
    audio_seen: bool = False
    thinking: bool = False
    "The model thinks, and has said nothing since."
    thought_until: float = 0.0
    "When its last thought came."
    item_id: str | None = None
    usage: Usage | None = None
    route: Routed | None = None
    "Which engine answers, if there is a choice."
    transcript: str = ""
    marks: dict[str, float] = field(default_factory=dict)

    @property
    def outside(self) -> bool:
        """Whether it leaves nothing in the conversation."""
        return self.create.outside

    @property
    def generating(self) -> bool:
        return self.stage is Stage.GENERATING

    def mark(self, name: str, now: float) -> bool:
        """Note that a stage is reached; False if it was before."""
        if name in self.marks:
            return False
        self.marks[name] = now
        return True

    def deadline(self, watchdog: WatchdogConfig) -> float:
        """Return when patience with it ends."""
        whole = self.expires_at(watchdog)
        if self.stage is Stage.DRAINING:
            return whole
        patience = watchdog.idle_delta_s if self.delta_seen else watchdog.first_delta_s
        return min(whole, self.last_delta_at + patience)

    def expires_at(self, watchdog: WatchdogConfig) -> float:
        """Return when it must be over, playout included, whatever it is doing. Thinking takes its time."""
        return max(self.started_at, self.thought_until) + watchdog.response_s

    def timings(self, *, final: bool) -> TurnTimings:
        origin = self.marks.get("speech_end", self.started_at)
        marks = {name: round((at - origin) * 1000) for name, at in self.marks.items()}
        return TurnTimings(self.id, self.answers, marks, final, self.route)

    def done(
        self,
        status: ResponseStatus,
        reason: ResponseReason | None,
        error: EngineError | None,
        item: Item | None,
        calls: tuple[Item, ...] = (),
    ) -> ResponseDone:
        return ResponseDone(
            self.id,
            status,
            reason,
            error_code=error.code if error else None,
            error_message=str(error) if error else None,
            item=item,
            calls=calls,
            output_modalities=self.modalities,
            usage=self.usage,
        )
