"""One request: what was said → what is in view → what to answer → how it sounds, streamed by clause."""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Iterable, Iterator
from contextlib import aclosing
from dataclasses import dataclass
from threading import Event
from typing import Protocol

from ..audio import RATE, Pcm
from ..engine import ToolCall
from . import marks, tongues
from .candour import asks_for_things, honest_answer
from .clauses import ClauseSplitter
from .contract import Ask, Audio, End, Piece, Text, Transcript, Turn
from .hearing import Hearing
from .language import CONTEXT, Counts, LanguageModel
from .prompt import CallMemory, Messages, note, prefix
from .sight import About, View, asks_about_sight
from .speech import Voice
from .stage import Stage

logger = logging.getLogger(__name__)

AUDIO_CHUNK_S = 0.5
"Longest piece of sound sent at once: what a cancelled caller may still get."

_CALL_TOKENS = 200
"The most of a reply that may be a call: arguments are longer than what anybody wants read out."

_CHARACTERS_PER_TOKEN = 3
"A cautious estimate, for European languages."
_TOKENS_PER_MESSAGE = 5


_Replies = AsyncGenerator[str | ToolCall | Counts, None]
"What a model says and calls, `Counts` last."


class Eyes(Protocol):
    """`sight.Sight`, or a stand-in."""

    def look(self, jpegs: tuple[bytes, ...], stop: Event) -> View | None: ...


@dataclass(frozen=True, slots=True)
class _Said:
    """A user's message after listening."""

    words: str
    "In writing and in sound."
    heard: str
    "In sound alone."
    language: str


@dataclass(frozen=True, slots=True)
class _Seen:
    """The camera after a look that the words called for."""

    view: View | None
    "None: it sends nothing, or nothing that can be read."

    def describe(self) -> str:
        return "off" if self.view is None else self.view.describe()


class _Times:
    """When one response reached what, for its log line."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._at: dict[str, float] = {}

    def set(self, name: str) -> None:
        self._at.setdefault(name, time.monotonic() - self._started)

    def __str__(self) -> str:
        return ", ".join(f"{name} {at:.2f} s" for name, at in self._at.items())


class Pipeline:
    """Serves any number of requests at once; each model works for one at a time, callers in turn."""

    def __init__(
        self,
        hearing: Hearing,
        eyes: Eyes,
        model: LanguageModel,
        voice: Voice,
        *,
        max_tokens: int,
        seeing: Stage | None = None,
    ) -> None:
        """Owns its parts. `seeing` is where the camera is looked at, if not in a thread of its own."""
        self._hearing = hearing
        self._eyes = eyes
        self._model = model
        self._voice = voice
        self._max_tokens = max_tokens
        self._seeing = seeing or Stage("seeing")
        self._memory = CallMemory()
        self._reading: asyncio.Task[None] | None = None
        "Has the model read what nobody wants yet: an answer and the start of the next turn, or words ahead."

    async def respond(self, ask: Ask) -> AsyncGenerator[Piece, None]:
        """Yield the transcript if there was speech, texts each before its sound, and `End`.

        What is sent ahead gets its transcript alone; the words are read into the model's prefix cache. With
        functions there may be a call, before `End`.
        Closing it stops all work for it at once; a model's thread ends the step it is in. Raises
        EngineRefused, EngineBusy or EngineLost.
        """
        times = _Times()
        newest = ask.turns[-1]
        said = await self._listen(newest, ask.caller)
        times.set("heard")
        if newest.sounds:
            yield Transcript(said.heard)
        if not said.words and newest.role != "tool":  # a noise: nobody asked for an answer
            yield End()
            return
        if ask.ahead:
            await self._read_ahead(ask, said)
            yield End()
            return
        await self._end_reading()
        seen = await self._look(ask, said)
        times.set("seen")
        messages, language = await self._prompt(ask, said, seen)
        if newest.role == "user":
            self._memory.add(ask.caller, said.words, messages[-1]["content"], said.language)
        if seen is not None and asks_for_things(said.words, said.language):
            reply: _Replies = _recite(honest_answer(language, seen.view))
        else:
            reply = self._reply(ask, messages)
        counts = Counts()
        answer = ""
        call: ToolCall | None = None
        async with aclosing(_clauses(reply, times, whole=ask.speak)) as clauses:
            async for clause in clauses:
                match clause:
                    case Counts():
                        counts = clause
                        continue
                    case ToolCall():
                        call = clause
                        yield call
                        continue
                answer += clause
                times.set("text")
                yield Text(clause)
                if ask.speak:
                    pcm = await self._voice.say(clause, language, ask.caller)
                    times.set("audio")
                    for chunk in _chunks(pcm):
                        yield Audio(chunk)
        times.set("end")
        tokens = counts.input_tokens, counts.output_tokens
        logger.info("call %s: %s; %d tokens in, %d out", ask.caller or "-", times, *tokens)
        replied = _replied(ask, answer, (call,) if call else ())
        if replied and ask.caller:
            await self._read_on([*messages, *replied], ask.caller)
        yield End(counts.reason if call is None else "tool_calls", *tokens)

    async def warm(self, instructions: str) -> None:
        """Fill the prefix cache and touch every model once."""
        await self._model.warm(prefix([instructions]))
        turns = (Turn("system", instructions), Turn("user", "Hello!"))
        async with aclosing(self.respond(Ask(turns, max_tokens=2))) as pieces:
            async for _ in pieces:
                pass

    async def aclose(self) -> None:
        await self._end_reading()
        await asyncio.gather(
            self._hearing.aclose(), self._seeing.aclose(), self._model.aclose(), self._voice.aclose()
        )

    def _reply(self, ask: Ask, messages: Messages) -> _Replies:
        if not ask.tools:
            return self._model.reply(
                messages, caller=ask.caller, max_tokens=self._limit(ask), temperature=ask.temperature
            )
        after_result = ask.turns[-1].role == "tool"
        reply = self._model.reply(
            messages,
            caller=ask.caller,
            max_tokens=self._limit(ask),
            temperature=ask.temperature,
            grammar=marks.grammar(ask.tools, ask.tool_choice, after_result=after_result),
        )
        return _unmarked(reply, marks.MarkReader(ask.tools))

    async def _read_ahead(self, ask: Ask, said: _Said) -> None:
        """Have the model read what was said so far, until it is wanted for an answer.

        Not if it is reading already, nor what will stand behind a note on the camera.
        """
        if _is_about_sight(ask, said) or not (self._reading is None or self._reading.done()):
            return
        await self._end_reading()
        messages, _ = await self._prompt(ask, said, None)
        reading = self._reading = asyncio.create_task(self._model.read_ahead(messages, ask.caller))
        (result,) = await asyncio.gather(reading, return_exceptions=True)
        if isinstance(result, Exception):
            raise result

    async def _read_on(self, messages: Messages, caller: str) -> None:
        """Have the model read what the call's next prompt begins with, up to the words of the user."""
        while self._reading is not None:
            await self._end_reading()
        talk = [*messages, {"role": "user", "content": ""}]
        self._reading = asyncio.create_task(self._model.read_ahead(talk, caller))

    async def _end_reading(self) -> None:
        task, self._reading = self._reading, None
        if task is not None:
            task.cancel()
            (result,) = await asyncio.gather(task, return_exceptions=True)
            if isinstance(result, Exception):  # the next reply, if it meets the same, tells the caller
                logger.warning("reading ahead failed: %s", result)

    async def _listen(self, turn: Turn, caller: str) -> _Said:
        """Join what a message says in writing and in sound; a function says nothing."""
        hint = self._memory.language(caller)
        if turn.role == "tool":
            return _Said("", "", hint or tongues.ENGLISH)
        texts = []
        language = tongues.of_script(turn.text) or hint or tongues.ENGLISH
        for sound in turn.sounds:
            result = await self._hearing.hear(sound, caller, hint)
            if result.text:
                texts.append(result.text)
                language = result.language
        heard = " ".join(texts)
        return _Said(" ".join(text for text in (turn.text.strip(), heard) if text), heard, language)

    async def _look(self, ask: Ask, said: _Said) -> _Seen | None:
        """Look at the camera if the words can be about it."""
        if not _is_about_sight(ask, said):
            return None
        jpegs = ask.turns[-1].jpegs
        if not jpegs:
            return _Seen(None)
        return _Seen(await self._seeing.run(ask.caller, lambda stop: self._eyes.look(jpegs, stop)))

    async def _prompt(self, ask: Ask, said: _Said, seen: _Seen | None) -> tuple[Messages, str]:
        """Write the prompt, and tell the language of the reply."""
        before = self._memory.language(ask.caller) or tongues.ENGLISH
        can_speak = not ask.speak or said.language in self._voice.languages
        language = said.language if can_speak else tongues.ENGLISH
        plain = language == said.language == before == tongues.ENGLISH
        *earlier, newest = ask.turns
        words = marks.result_line(newest.text) if newest.role == "tool" else said.words
        line = note(None if seen is None else seen.describe(), None if plain else language) + words

        instructions = [turn.text for turn in earlier if turn.role == "system"]
        talk = [turn for turn in earlier if turn.role != "system"]
        spoken = [(await self._listen(turn, ask.caller)).words for turn in talk if turn.role == "user"]
        lines = iter(self._memory.restore(ask.caller, spoken))
        history: Messages = []
        for turn in talk:
            match turn.role:
                case "user":
                    history.append({"role": "user", "content": next(lines)})
                case "tool":
                    history.append({"role": "user", "content": marks.result_line(turn.text)})
                case _:
                    history += _replied(ask, turn.text, turn.calls)
        history = [message for message in history if message["content"].strip()]
        head = [*prefix(instructions), *marks.introduction(ask.tools)]
        return _fit(head, history, {"role": "user", "content": line}, CONTEXT - self._limit(ask)), language

    def _limit(self, ask: Ask) -> int:
        most = max(self._max_tokens, _CALL_TOKENS) if ask.tools else self._max_tokens
        return most if ask.max_tokens is None else min(most, ask.max_tokens)


def _is_about_sight(ask: Ask, said: _Said) -> bool:
    if asks_for_things(said.words, said.language):
        return True
    about = asks_about_sight(said.words, said.language)
    return about is About.YES or (about is About.MAYBE and bool(ask.turns[-1].jpegs))


def _replied(ask: Ask, text: str, calls: Iterable[ToolCall]) -> Messages:
    """Write an answer and calls as they are in the prompt of a request: with marks if it has functions."""
    lines = [marks.marked(text) if ask.tools else text] if text.strip() else []
    lines += [marks.call_line(call.name, call.arguments) for call in calls]
    return [{"role": "assistant", "content": line} for line in lines]


async def _unmarked(reply: AsyncGenerator[str | Counts, None], reader: marks.MarkReader) -> _Replies:
    """Stream a reply as it is meant; `Counts` last."""
    async with aclosing(reply) as pieces:
        async for piece in pieces:
            if isinstance(piece, Counts):
                if last := reader.finish():
                    yield last
                yield piece
            elif text := reader.receive(piece):
                yield text


async def _recite(text: str) -> AsyncGenerator[str | Counts, None]:
    yield text
    yield Counts()


async def _clauses(
    reply: _Replies,
    times: _Times,
    *,
    whole: bool,
) -> _Replies:
    """Stream a reply in clauses if `whole`, else as it comes; `Counts` last."""
    splitter = ClauseSplitter(phrases=True)
    async with aclosing(reply) as pieces:
        async for piece in pieces:
            times.set("token")
            if not isinstance(piece, str):
                if rest := splitter.flush():
                    yield rest
                yield piece
            elif whole:
                for clause in splitter.feed(piece):
                    yield clause
            else:
                yield piece


def _chunks(pcm: Pcm) -> Iterator[Pcm]:
    step = int(AUDIO_CHUNK_S * RATE)
    for at in range(0, len(pcm), step):
        yield pcm[at : at + step]


def _fit(head: Messages, history: Messages, newest: dict[str, str], tokens: int) -> Messages:
    """Leave out the oldest of the history until it probably fits the context.

    The caller keeps to a budget of its own; this guards against one that does not. Half of the room is
    freed at a time, since each cut costs the prefix cache.
    """

    def cost(messages: Messages) -> int:
        characters = sum(len(message["content"]) for message in messages)
        return characters // _CHARACTERS_PER_TOKEN + _TOKENS_PER_MESSAGE * len(messages)

    room = tokens - cost([*head, newest])
    if cost(history) > room:
        kept: Messages = []
        for message in reversed(history):
            if cost([message, *kept]) > room // 2:
                break
            kept.insert(0, message)
        history = kept
    return [*head, *history, newest]
