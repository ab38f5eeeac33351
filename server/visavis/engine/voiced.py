"""An engine with a voice behind its own: what it only writes is spoken, what its Talker garbles is cut."""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from enum import Enum, auto
from typing import Protocol

from ..audio import RATE, Pcm
from ..config import EngineConfig
from ..errors import EngineError
from ..local.clauses import ClauseSplitter
from ..metrics import ENGINE_SPEECH
from . import AudioDelta, Delta, Done, Engine, Request, TextDelta, ToolCall
from .talker import TalkerGuard

logger = logging.getLogger(__name__)

MORE_TEXT_S = 1.5
"After a fault or a call, text that does not come for so long is complete: a model writes words faster."
_MUTE_AFTER = 3
"Silent answers in a row after which an engine that once spoke is taken for one that does not."


class Voice(Protocol):
    """`helper.Helper`, or a stand-in."""

    def say(self, call_id: str, text: str) -> AsyncGenerator[Pcm, None]:
        """Speak a text, sound (24 kHz) as it is made. Raises EngineError."""
        ...


class VoicedEngine:
    """Gives an engine's answers a sound whose text is right.

    An engine that is known to write only (a Thinker alone, a Thinking model, plain vLLM once it has
    answered without sound) is spoken for clause by clause: each text comes with its sound after it. Of
    any other the text is passed on at once; if it ends without sound, all of it is spoken then. Sound that
    cannot be the speech of its text is cut (`talker`), and the rest of the text is spoken by `voice`.
    What stands before a call of a function is spoken before the call is passed on: of its sound the decoder
    lets nothing through (`chat`). Where that fails the text goes on alone: no response fails for want of a
    voice.
    """

    def __init__(self, inner: Engine, config: EngineConfig, voice: Voice | None) -> None:
        """Owns `inner`. Without a `voice`, garbled sound is still cut."""
        self._inner = inner
        self._config = config
        self._voice = voice
        self._counts: Counter[str] = Counter()
        self._silent = 0
        "Answers in a row that should have had sound and had none."
        self._mute_after = 1
        "One is enough until the engine has spoken: plain vLLM never does."

    async def respond(self, request: Request) -> AsyncGenerator[Delta, None]:
        """Stream one response, as the engine does but for its sound. Raises EngineError of the engine."""
        turn = _Turn(request, TalkerGuard(self._config.talker), self._voice, self._count)
        if turn.wants_sound and self.spoken_for:
            turn.take_over()
        async with aclosing(self._inner.respond(request)) as deltas:
            while (delta := await turn.next_of(deltas)) is not None:
                if isinstance(delta, AudioDelta):
                    self._silent, self._mute_after = 0, _MUTE_AFTER
                elif isinstance(delta, Done) and turn.mute:
                    self._silent += 1
                async with aclosing(turn.receive(delta)) as out:
                    async for heard in out:
                        yield heard
                if isinstance(delta, Done):
                    return

    async def ready(self) -> bool:
        return await self._inner.ready()

    async def aclose(self) -> None:
        await self._inner.aclose()

    def counts(self) -> dict[str, int]:
        """How often since the start: each `Fault` by its value, answers `spoken` for the engine in whole or
        part, and answers left `unspoken` because that failed.
        """
        return dict(self._counts)

    def _count(self, what: str) -> None:
        self._counts[what] += 1
        ENGINE_SPEECH.labels(what).inc()

    @property
    def spoken_for(self) -> bool:
        """Whether our voice says what this engine answers, from the beginning."""
        return self._voice is not None and not self._expects_sound

    @property
    def _expects_sound(self) -> bool:
        return self._config.speak and not self._config.thinking and self._silent < self._mute_after


class _Speaker(Enum):
    """Who says the text that comes."""

    ENGINE = auto()
    OURS = auto()
    "Our voice, from the beginning: text is held until its clause is whole and comes right before its sound."
    INSTEAD = auto()
    "Our voice, in place of the engine's: text is passed on at once, as before."


class _Turn:
    """One answer on its way."""

    def __init__(
        self, request: Request, guard: TalkerGuard, voice: Voice | None, count: Callable[[str], None]
    ) -> None:
        self.wants_sound = request.speak and not request.ahead
        self._call_id = request.call_id
        self._guard = guard
        self._voice = voice
        self._count = count
        self._speaker = _Speaker.ENGINE
        self._splitter = ClauseSplitter()
        self._said = False
        "Our voice has said something."
        self._sounded = False
        "The engine sent sound, good or bad."
        self._text_at = _now()
        self._called = False
        "A function was called: what the Talker makes of that is not heard."

    async def next_of(self, deltas: AsyncGenerator[Delta, None]) -> Delta | None:
        """Return the next delta, None at the end, and Done when nothing of use can come any more."""
        try:
            async with asyncio.timeout_at(self._deadline):
                return await anext(deltas, None)
        except TimeoutError:
            return Done("tool_calls" if self._called else "stop")

    @property
    def mute(self) -> bool:
        """Whether the engine wrote and did not speak although it was asked to."""
        written = bool(self._guard.text.strip())
        return self.wants_sound and not (self._sounded or self._called) and written

    @property
    def _deadline(self) -> float | None:
        """When an answer whose sound is cut is taken to be over: a Talker can go on for minutes."""
        cut = self._guard.fault is not None or (self._called and self.wants_sound)
        return self._text_at + MORE_TEXT_S if cut else None

    def take_over(self) -> None:
        """Have our voice speak from the beginning."""
        self._speaker = _Speaker.OURS

    async def receive(self, delta: Delta) -> AsyncGenerator[Delta, None]:
        """Take what the engine sent and yield what the caller gets for it."""
        passed: list[Delta] = []
        clauses: list[str] = []
        match delta:
            case TextDelta(text):
                passed, clauses = self._receive_text(text)
            case AudioDelta(pcm):
                passed, clauses = self._receive_audio(pcm)
            case ToolCall():
                clauses = self._finish()
                self._called = True
                if self.wants_sound and self._speaker is _Speaker.ENGINE:
                    self._speaker = _Speaker.INSTEAD  # should any more be said
            case Done():
                clauses = self._finish()
            case _:
                passed = [delta]
        for one in passed:
            yield one
        for clause in clauses:
            if self._speaker is _Speaker.OURS:
                yield TextDelta(clause)
            async with aclosing(self._say(clause)) as sounds:
                async for sound in sounds:
                    yield sound
        if clauses or isinstance(delta, ToolCall):
            self._text_at = _now()  # while we spoke, nobody took what the engine sent
        if isinstance(delta, Done | ToolCall):
            yield delta

    def _receive_text(self, text: str) -> tuple[list[Delta], list[str]]:
        self._text_at = _now()
        self._guard.receive_text(text)
        passed: list[Delta] = [] if self._speaker is _Speaker.OURS else [TextDelta(text)]
        return passed, [] if self._speaker is _Speaker.ENGINE else self._splitter.feed(text)

    def _receive_audio(self, pcm: Pcm) -> tuple[list[Delta], list[str]]:
        self._sounded = True
        if self._said or self._speaker is _Speaker.INSTEAD:  # two voices at once help nobody
            return [], []
        passed: list[Delta] = []
        if self._speaker is _Speaker.OURS:  # it speaks after all
            self._speaker = _Speaker.ENGINE
            if held := self._splitter.flush():
                passed.append(TextDelta(held))
        if len(kept := self._guard.receive_audio(pcm)):
            passed.append(AudioDelta(kept))
        return passed, [] if self._guard.fault is None else self._replace()

    def _finish(self) -> list[str]:
        clauses: list[str] = []
        if self.wants_sound and self._speaker is _Speaker.ENGINE:
            fault = self._guard.finish()
            if fault is not None or self.mute:
                clauses = self._replace()
        rest = self._splitter.flush()
        return [*clauses, rest] if rest else clauses

    def _replace(self) -> list[str]:
        """Have our voice go on where the engine's went wrong, or begin if it never did."""
        self._speaker = _Speaker.INSTEAD
        guard = self._guard
        if guard.fault is not None:
            self._count(guard.fault.value)
            logger.warning(
                "call %s: the Talker's speech is %s after %.1f s, %d characters of text",
                self._call_id,
                guard.fault.value,
                guard.samples / RATE,
                len(guard.text),
            )
        return self._splitter.feed(guard.unspoken())

    async def _say(self, clause: str) -> AsyncGenerator[AudioDelta, None]:
        """Speak a clause; a failure is the end of speech but not of the answer."""
        if self._voice is None:
            return
        try:
            async with aclosing(self._voice.say(self._call_id, clause)) as sounds:
                async for pcm in sounds:
                    if not self._said:
                        self._said = True
                        self._count("spoken")
                    yield AudioDelta(pcm)
        except EngineError as error:
            self._voice = None
            self._count("unspoken")
            logger.warning("call %s: the answer goes on without sound: %s", self._call_id, error)


def _now() -> float:
    return asyncio.get_running_loop().time()
