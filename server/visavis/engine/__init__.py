"""What an engine is: it takes a `Request` and streams `Delta`s until `Done`.

Types only, so that the sans-I/O core can share them with the engines.
"""

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Literal, Protocol

from ..audio import Pcm
from ..config import AUTO as AUTO
from ..config import Tool as Tool
from ..config import ToolChoice as ToolChoice
from ..frames import Frame


@dataclass(frozen=True, slots=True)
class TextPart:
    text: str


@dataclass(frozen=True, slots=True)
class AudioPart:
    pcm: Pcm
    "Mono, 24 kHz."
    uuid: str
    "Names this content in the engine's caches; unique per call."
    at: int = 0
    "Position of the first sample on the conversation's audio clock (24 kHz), on which frames lie too."
    cuts: tuple[int, ...] = ()
    "Positions where it is cut together with its pictures: what lies before was sent ahead in these pieces."


@dataclass(frozen=True, slots=True)
class FramesPart:
    frames: tuple[Frame, ...]
    "At least one, in order of time."
    uuid: str


@dataclass(frozen=True, slots=True)
class CallPart:
    """A function that the assistant called."""

    call_id: str
    name: str
    arguments: str
    "JSON, as the model wrote it."


@dataclass(frozen=True, slots=True)
class ResultPart:
    """What a call gave; the only part of a message of role `tool`."""

    call_id: str
    output: str


Part = TextPart | AudioPart | FramesPart | CallPart | ResultPart


@dataclass(frozen=True, slots=True)
class Message:
    role: Literal["system", "user", "assistant", "tool"]
    parts: tuple[Part, ...]

    @property
    def text(self) -> str:
        return " ".join(part.text for part in self.parts if isinstance(part, TextPart))


@dataclass(frozen=True, slots=True)
class Request:
    """One response to ask for. The last message is what is answered."""

    call_id: str
    messages: tuple[Message, ...]
    voice: str | None = None
    speak: bool = True
    "False asks for text alone."
    temperature: float | None = None
    max_tokens: int | None = None
    ahead: bool = False
    "The user still speaks: this fills the engine's caches, and what is answered is for nobody."
    speculative: bool = False
    "The user may go on, and then it is withdrawn: it takes no place that another may need."
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice = AUTO
    recite: str = ""
    "The words that are wanted, if they are known: who speaks with our voice says them and asks no model."


@dataclass(frozen=True, slots=True)
class TextDelta:
    text: str


@dataclass(frozen=True, slots=True)
class ThinkingDelta:
    """What a Thinking model thinks before it answers: neither spoken nor shown as its words."""

    text: str


@dataclass(frozen=True, slots=True)
class AudioDelta:
    pcm: Pcm
    "Mono, 24 kHz."


@dataclass(frozen=True, slots=True)
class TranscriptDelta:
    """What the engine heard the user say in the last message; `final` ends it."""

    text: str
    final: bool = True


@dataclass(frozen=True, slots=True)
class ToolCall:
    call_id: str
    name: str
    arguments: str
    "JSON, whole."


@dataclass(frozen=True, slots=True)
class Usage:
    """What a response cost. Of what it consists is None where the engine does not say."""

    input_tokens: int
    output_tokens: int
    cached_tokens: int | None = None
    "Of the input, what the engine still had in its cache."
    input_audio_tokens: int | None = None
    input_image_tokens: int | None = None
    "Pictures and clips."
    output_audio_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Routed:
    """Which engine answers, and why it is not another."""

    engine: str
    "Its label."
    reason: str = ""
    "Empty for the first choice; else such as `vllm: busy` or `candidate`."


@dataclass(frozen=True, slots=True)
class Sent:
    """When the request had been written to the engine; comes right before what the engine answered first."""

    at: float
    "Monotonic seconds, on the event loop's clock."


@dataclass(frozen=True, slots=True)
class Done:
    reason: Literal["stop", "length", "content_filter", "tool_calls"] = "stop"


Delta = TextDelta | ThinkingDelta | AudioDelta | TranscriptDelta | ToolCall | Usage | Routed | Sent | Done


class Engine(Protocol):
    def respond(self, request: Request) -> AsyncGenerator[Delta, None]:
        """Stream one response, `Done` last; `aclose()` of the generator stops the work on the engine.

        Raises EngineError (EngineRefused, EngineBusy, EngineLost) and nothing else.
        """
        ...

    async def ready(self) -> bool:
        """Tell whether a request would be served now."""
        ...

    async def aclose(self) -> None: ...
