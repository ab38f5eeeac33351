"""Fixed replies with a given timing: the engine of tests and benchmarks."""

import asyncio
import itertools
import re
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto

import numpy as np

from ..audio import RATE, Pcm
from ..errors import EngineBusy, EngineLost, EngineRefused
from . import (
    AudioDelta,
    AudioPart,
    Delta,
    Done,
    FramesPart,
    Request,
    ResultPart,
    TextDelta,
    ToolCall,
    TranscriptDelta,
    Usage,
)

_WORD_S = 0.35
"Seconds of speech per word, about 170 words a minute."
_KEPT_REQUESTS = 16


class Fault(Enum):
    """What goes wrong in a reply."""

    REFUSED = auto()
    BUSY = auto()
    LOST = auto()
    HANG = auto()
    "No further delta, and no error either."


@dataclass(frozen=True, slots=True, eq=False)
class Reply:
    """One response and its timing.

    The text comes in step with the sound: each chunk's share of the words goes before it.
    """

    text: str = "This is a scripted reply."
    pcm: Pcm | None = None
    "Mono, 24 kHz; None is a tone as long as the text takes to say."
    transcript: str | None = None
    "What the user is said to have said; comes first."
    first_delay_s: float = 0.0
    "From the request to the first delta."
    first_chunk_s: float = 0.3
    chunk_s: float = 2.0
    "Seconds of sound per delta; the defaults are vLLM-Omni's."
    rtf: float = 0.0
    "Seconds of work per second of sound of all chunks but the first, whose work is `first_delay_s`."
    calls: tuple[ToolCall, ...] = ()
    "Functions that it calls after its words; with an empty text it says none."
    fault: Fault | None = None
    fault_after_s: float | None = None
    "Seconds of sound after which, at a chunk's end, the fault comes; None is before the first delta."

    def __post_init__(self) -> None:
        if min(self.first_chunk_s, self.chunk_s) * RATE < 1:
            raise ValueError("a chunk must hold at least one sample")

    def steps(self, *, speak: bool) -> Iterator[tuple[float, Delta | Fault]]:
        """Yield what comes and when, in seconds after the request."""
        at = self.first_delay_s
        if self.fault is not None and self.fault_after_s is None:
            yield at, self.fault
            return
        if self.transcript is not None:
            yield at, TranscriptDelta(self.transcript)
        words = re.findall(r"\S+\s*", self.text)
        sound = tone(_WORD_S * len(words)) if self.pcm is None else self.pcm
        said = start = 0
        for stop in self._chunk_ends(len(sound)):
            if start:
                at += (stop - start) / RATE * self.rtf
            upto = round(len(words) * stop / len(sound))
            if upto > said:
                yield at, TextDelta("".join(words[said:upto]))
            if speak:
                yield at, AudioDelta(sound[start:stop])
            said, start = upto, stop
            if self.fault is not None and stop >= (self.fault_after_s or 0.0) * RATE:
                break
        if self.fault is not None:
            yield at, self.fault
            return
        if said < len(words):
            yield at, TextDelta("".join(words[said:]))
        for call in self.calls:
            yield at, call
        yield at, Usage(0, len(words))
        yield at, Done("tool_calls" if self.calls else "stop")

    def _chunk_ends(self, length: int) -> Iterator[int]:
        ends = itertools.count(self.first_chunk_s, self.chunk_s)
        yield from itertools.takewhile(lambda end: end < length, (round(end * RATE) for end in ends))
        if length:
            yield length


def tone(seconds: float, hertz: float = 220.0) -> Pcm:
    """Make a tone that swells four times a second, as syllables do, from silence to silence. 24 kHz."""
    times = np.arange(round(seconds * RATE)) / RATE
    swell = 0.5 - 0.5 * np.cos(2 * np.pi * 4.0 * times)
    end = np.clip((seconds - times) / 0.02, 0.0, 1.0)
    samples: Pcm = np.rint(8_000 * swell * end * np.sin(2 * np.pi * hertz * times)).astype(np.int16)
    return samples


def echo(request: Request) -> Reply:
    """Tell what the last message brought: seconds of sound, pictures, text, results of functions.

    A text that is wanted is said as it is.

    Who writes `call NAME` or `call NAME {"its": "arguments"}` has that function called, if it is offered; so
    has who demands a call.
    """
    if request.recite:
        return Reply(text=request.recite)
    parts = request.messages[-1].parts if request.messages else ()
    words = request.messages[-1].text if request.messages else ""
    seconds = sum(len(part.pcm) for part in parts if isinstance(part, AudioPart)) / RATE
    transcript = f"({seconds:.1f} seconds of sound)" if seconds else None
    if (call := _wanted_call(request, words)) is not None:
        return Reply(text="", transcript=transcript, calls=(call,))
    if results := [part.output for part in parts if isinstance(part, ResultPart)]:
        return Reply(text=f"The function gave: {results[-1]}")
    pictures = sum(len(part.frames) for part in parts if isinstance(part, FramesPart))
    text = f"I heard {seconds:.1f} seconds of sound and saw {pictures} pictures."
    return Reply(text=f"{text} You wrote: {words}" if words else text, transcript=transcript)


def _wanted_call(request: Request, words: str) -> ToolCall | None:
    """Return what is to be called, by the words or by the request itself."""
    names = [tool.name for tool in request.tools]
    call_id = f"call_{len(request.messages)}"
    asked = re.fullmatch(r"call (\S+)(?: (\{.*\}))?", words.strip(), re.DOTALL)
    if not names or request.tool_choice.mode == "none":
        return None
    if asked is not None and asked[1] in names:
        return ToolCall(call_id, asked[1], asked[2] or "{}")
    if request.tool_choice.mode in ("required", "function"):
        return ToolCall(call_id, request.tool_choice.name or names[0], "{}")
    return None


class ScriptedEngine:
    """Gives its replies in turn, over and over, whoever asks; the default echoes what it is sent."""

    def __init__(self, script: Sequence[Reply | Callable[[Request], Reply]] = (echo,)) -> None:
        """Raises ValueError for an empty script."""
        if not script:
            raise ValueError("a script needs at least one reply")
        self._script = itertools.cycle(script)
        self._closed = False
        self.requests: deque[Request] = deque(maxlen=_KEPT_REQUESTS)
        "The newest requests, oldest first."
        self.live = 0
        "Responses that are being streamed."
        self.abandoned = 0
        "Responses that were closed by their consumer before the end."

    async def respond(self, request: Request) -> AsyncGenerator[Delta, None]:
        """Stream the next reply of the script. Raises the EngineError of its fault."""
        if self._closed:
            raise EngineLost("The scripted engine has been closed.")
        entry = next(self._script)
        reply = entry(request) if callable(entry) else entry
        self.requests.append(request)
        loop = asyncio.get_running_loop()
        started = loop.time()
        finished = False
        self.live += 1
        try:
            for at, step in reply.steps(speak=request.speak):
                if (wait_s := started + at - loop.time()) > 0:
                    await asyncio.sleep(wait_s)
                if isinstance(step, Fault):
                    await _fail(step)
                else:
                    finished = isinstance(step, Done)
                    yield step
        except (GeneratorExit, asyncio.CancelledError):
            self.abandoned += not finished
            raise
        finally:
            self.live -= 1

    async def ready(self) -> bool:
        return not self._closed

    async def aclose(self) -> None:
        self._closed = True


async def _fail(fault: Fault) -> None:
    match fault:
        case Fault.REFUSED:
            raise EngineRefused("The script refuses this request.")
        case Fault.BUSY:
            raise EngineBusy("The script has no room.")
        case Fault.LOST:
            raise EngineLost("The script broke off.")
        case Fault.HANG:
            await asyncio.Event().wait()
