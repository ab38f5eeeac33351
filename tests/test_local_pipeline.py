"""The pipeline with stand-ins for its models."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field

import numpy as np
import pytest

from visavis.audio import RATE, Pcm, encode_wav
from visavis.config import AUTO, Tool
from visavis.engine import ToolCall
from visavis.errors import EngineLost
from visavis.local.contract import Ask, Audio, End, Piece, Sound, Text, Transcript, Turn
from visavis.local.hearing import Hearing
from visavis.local.language import Counts
from visavis.local.marks import grammar
from visavis.local.pipeline import Pipeline
from visavis.local.prompt import EXAMPLES, Messages
from visavis.local.sight import View
from visavis.local.stage import Stage
from visavis.local.whisper import Heard

WAIT_S = 10.0


@dataclass
class Ears:
    """Hears what the first sample of the sound stands for."""

    says: dict[int, Heard] = field(default_factory=dict)
    heard: list[int] = field(default_factory=list)
    hold: threading.Event | None = None
    stopped: threading.Event = field(default_factory=threading.Event)

    def recognise(self, pcm: Pcm, *, hint: str | None = None, stop: threading.Event | None = None) -> Heard:
        assert stop is not None
        self.heard.append(int(pcm[0]))
        if self.hold is not None:
            self.hold.set()
            assert stop.wait(WAIT_S)
            self.stopped.set()
        return self.says[int(pcm[0])]


@dataclass
class Eyes:
    view: View | None = None
    looked: int = 0

    def look(self, jpegs: tuple[bytes, ...], stop: threading.Event) -> View | None:
        self.looked += 1
        return self.view


@dataclass
class Model:
    """Answers with fixed pieces; `endless` goes on until it is stopped."""

    pieces: tuple[str, ...] = ("Hello there my friend. ", "How are", " you today?")
    endless: bool = False
    prompts: list[Messages] = field(default_factory=list)
    limits: list[int] = field(default_factory=list)
    grammars: list[str] = field(default_factory=list)
    stopped: threading.Event = field(default_factory=threading.Event)
    warmed: Messages = field(default_factory=list)
    read: list[Messages] = field(default_factory=list)
    stage: Stage = field(default_factory=lambda: Stage("language"))
    failure: Exception | None = None

    async def reply(
        self,
        messages: Messages,
        *,
        caller: str,
        max_tokens: int,
        temperature: float | None,
        grammar: str = "",
    ) -> AsyncGenerator[str | Counts, None]:
        self.prompts.append(messages)
        self.grammars.append(grammar)
        self.limits.append(max_tokens)
        async with aclosing(self._write(caller)) as pieces:
            async for piece in pieces:
                yield piece

    async def _write(self, caller: str) -> AsyncGenerator[str | Counts, None]:
        endless = self.endless  # whatever is set for the next one

        def work(emit: Callable[[str | Counts], bool]) -> None:
            for piece in self.pieces:
                emit(piece)
            if self.failure is not None:
                raise self.failure
            while endless:
                if emit("and so on and on. "):
                    self.stopped.set()
                    return
                self.stopped.wait(0.001)
            emit(Counts(11, 7, "stop"))

        async with aclosing(self.stage.stream(caller, work)) as pieces:
            async for piece in pieces:
                yield piece

    async def warm(self, messages: Messages) -> None:
        self.warmed = messages

    async def read_ahead(self, messages: Messages, caller: str) -> None:
        self.read.append(messages)
        async with aclosing(self._write(caller)) as pieces:
            async for _ in pieces:
                pass

    async def until_reading(self, times: int = 1) -> None:
        async with asyncio.timeout(WAIT_S):
            while len(self.read) < times:  # noqa: ASYNC110 - a task of the pipeline's own
                await asyncio.sleep(0)

    async def aclose(self) -> None:
        await self.stage.aclose()


@dataclass
class Voice:
    """Speaks each letter for 50 ms."""

    languages: frozenset[str] = frozenset({"en", "de"})
    said: list[tuple[str, str]] = field(default_factory=list)
    together: asyncio.Barrier | None = None

    async def say(self, text: str, language: str, caller: str) -> Pcm:
        self.said.append((text, language))
        if self.together is not None:
            await self.together.wait()
        return np.ones(len(text) * RATE // 20, np.int16)

    async def aclose(self) -> None:
        pass


@dataclass
class Engine:
    ears: Ears = field(default_factory=Ears)
    eyes: Eyes = field(default_factory=Eyes)
    model: Model = field(default_factory=Model)
    voice: Voice = field(default_factory=Voice)

    def __post_init__(self) -> None:
        self.pipeline = Pipeline(Hearing(self.ears), self.eyes, self.model, self.voice, max_tokens=70)

    async def answer(self, *turns: Turn, caller: str = "call", **more: object) -> list[Piece]:
        ask = Ask(turns, caller=caller, **more)  # type: ignore[arg-type]  # of the tests' own making
        async with asyncio.timeout(WAIT_S), aclosing(self.pipeline.respond(ask)) as pieces:
            return [piece async for piece in pieces]

    def line(self, at: int = -1) -> str:
        """What the model was told last."""
        return self.model.prompts[at][-1]["content"]


@pytest.fixture
async def engine() -> AsyncGenerator[Engine, None]:
    engine = Engine()
    yield engine
    await engine.pipeline.aclose()


async def drain(pieces: AsyncGenerator[Piece, None]) -> None:
    async for _ in pieces:
        pass


def sound(number: int) -> Sound:
    return Sound(encode_wav(np.full(1600, number, np.int16), 16_000), f"key{number}")


def spoken(number: int, **more: object) -> Turn:
    return Turn("user", sounds=(sound(number),), **more)  # type: ignore[arg-type]  # of the tests' own making


async def test_a_reply_comes_as_transcript_then_texts_each_before_its_sound_then_the_end(
    engine: Engine,
) -> None:
    engine.ears.says[1] = Heard("Hi.", "en")
    pieces = await engine.answer(spoken(1))
    kinds = [type(piece).__name__ for piece in pieces]
    assert kinds == ["Transcript", "Text", "Audio", "Audio", "Audio", "Text", "Audio", "Audio", "End"]
    assert pieces[0] == Transcript("Hi.")
    assert [piece.text for piece in pieces if isinstance(piece, Text)] == [
        "Hello there my friend. ",
        "How are you today?",
    ]
    assert pieces[-1] == End("stop", 11, 7)


async def test_sound_comes_in_short_pieces_that_lose_nothing(engine: Engine) -> None:
    lengths = [len(p.pcm) for p in await engine.answer(Turn("user", "Hi.")) if isinstance(p, Audio)]
    assert max(lengths) <= RATE // 2
    assert sum(lengths) == (len("Hello there my friend. ") + len("How are you today?")) * RATE // 20


async def test_text_alone_comes_as_it_is_made_and_nothing_is_spoken(engine: Engine) -> None:
    pieces = await engine.answer(Turn("user", "Hi."), speak=False)
    assert [piece.text for piece in pieces if isinstance(piece, Text)] == list(engine.model.pieces)
    assert engine.voice.said == []


async def test_what_is_written_beside_the_sound_is_no_part_of_the_transcript(engine: Engine) -> None:
    engine.ears.says[1] = Heard("Translate this.", "en")
    pieces = await engine.answer(spoken(1, text="Bonjour"))
    assert pieces[0] == Transcript("Translate this.")
    assert engine.line() == "Bonjour Translate this."


async def test_a_noise_gets_an_empty_transcript_and_no_answer(engine: Engine) -> None:
    engine.ears.says[1] = Heard("", "en")
    assert await engine.answer(spoken(1)) == [Transcript(""), End()]
    assert engine.model.prompts == []


async def test_length_is_bounded_by_the_setting_and_the_request(engine: Engine) -> None:
    await engine.answer(Turn("user", "Hi."), max_tokens=512)
    await engine.answer(Turn("user", "Hi."), max_tokens=5)
    assert engine.model.limits == [70, 5]


async def test_a_sound_is_recognised_once_however_often_it_is_sent(engine: Engine) -> None:
    engine.ears.says |= {1: Heard("One.", "en"), 2: Heard("Two.", "en")}
    await engine.answer(spoken(1))
    await engine.answer(spoken(1), Turn("assistant", "Yes."), spoken(2))
    assert engine.ears.heard == [1, 2]
    assert [m["content"] for m in engine.model.prompts[1][-3:]] == ["One.", "Yes.", "Two."]


async def test_what_was_never_heard_of_the_history_is_recognised_then(engine: Engine) -> None:
    engine.ears.says |= {1: Heard("One.", "en"), 2: Heard("Two.", "en")}
    await engine.answer(spoken(1), Turn("assistant", "Yes."), spoken(2))
    assert sorted(engine.ears.heard) == [1, 2]
    assert engine.model.prompts[0][-3]["content"] == "One."


async def test_each_prompt_begins_with_the_one_before(engine: Engine) -> None:
    engine.eyes.view = View("bright", ("red",), ("EXIT",))
    engine.ears.says |= {1: Heard("What does the sign say?", "en"), 2: Heard("Danke!", "de")}
    talk: list[Turn] = [Turn("system", "Be kind."), spoken(1, jpegs=(b"jpeg",))]
    await engine.answer(*talk)
    said = "".join(engine.model.pieces)
    # The caller sends what it read and heard: no notes.
    talk = [talk[0], Turn("user", "What does the sign say?"), Turn("assistant", said), spoken(2)]
    await engine.answer(*talk)
    talk = [*talk[:3], Turn("user", "Danke!"), Turn("assistant", said), Turn("user", "Bye.")]
    await engine.answer(*talk)
    first, second, third = engine.model.prompts
    assert second[: len(first)] == first
    assert third[: len(second)] == second
    facts = 'on, only colours and words known: bright, mostly red, words: "EXIT"'
    assert first[-1]["content"] == f"[Camera {facts}]\nWhat does the sign say?"


async def test_two_calls_do_not_share_their_notes(engine: Engine) -> None:
    engine.eyes.view = View("bright", ("red",), ("SECRET",))
    await engine.answer(Turn("user", "What does it say?", jpegs=(b"jpeg",)), caller="one")
    history = (Turn("user", "What does it say?"), Turn("assistant", "A word."), Turn("user", "Which?"))
    await engine.answer(*history, caller="two")
    assert all("SECRET" not in message["content"] for message in engine.model.prompts[1])


async def test_the_camera_is_looked_at_only_when_the_words_can_be_about_it(engine: Engine) -> None:
    engine.eyes.view = View("dim", ("grey",), ())
    await engine.answer(Turn("user", "What is the capital of France?", jpegs=(b"jpeg",)))
    assert (engine.eyes.looked, engine.line()) == (0, "What is the capital of France?")
    await engine.answer(Turn("user", "Is this written well?", jpegs=(b"jpeg",)))
    line = "[Camera on, only colours and words known: dim, mostly grey, no words]\nIs this written well?"
    assert (engine.eyes.looked, engine.line()) == (1, line)


async def test_a_camera_that_sends_nothing_is_said_to_be_off(engine: Engine) -> None:
    await engine.answer(Turn("user", "Can you read my sign?"))
    assert engine.line() == "[Camera off]\nCan you read my sign?"
    await engine.answer(Turn("user", "What is this about?"))
    assert engine.line() == "What is this about?"
    await engine.answer(Turn("user", "Can you read it?", jpegs=(b"broken",)))
    assert engine.line() == "[Camera off]\nCan you read it?"


async def test_who_asks_for_people_or_things_in_view_gets_what_is_known_and_no_invention(
    engine: Engine,
) -> None:
    engine.eyes.view = View("bright", ("grey", "blue"), ("Room 204",))
    pieces = await engine.answer(Turn("user", "What am I holding?", jpegs=(b"jpeg",)))
    assert "".join(piece.text for piece in pieces if isinstance(piece, Text)) == (
        "I can't make out people or things, only colours and words. "
        "It is bright, mostly grey and blue, and it says: Room 204."
    )
    assert engine.model.prompts == []
    pieces = await engine.answer(Turn("user", "Can you see me?"), speak=False)
    assert pieces == [Text("I can't see anything, because your camera is off."), End()]


async def test_an_answer_by_rule_is_in_a_language_that_can_be_spoken(engine: Engine) -> None:
    engine.ears.says[1] = Heard("¿Qué ves?", "es")
    engine.eyes.view = View("bright", ("grey",), ())
    await engine.answer(spoken(1, jpegs=(b"jpeg",)))
    assert engine.voice.said[0] == ("I can't make out people or things, ", "en")


@pytest.mark.parametrize("question", ["How are you?", "Can you see me?"])
async def test_an_answer_is_read_into_the_cache_up_to_the_words_of_the_next_turn(
    engine: Engine, question: str
) -> None:
    pieces = await engine.answer(Turn("user", question))
    said = "".join(piece.text for piece in pieces if isinstance(piece, Text))
    await engine.model.until_reading()
    await engine.answer(Turn("user", question), Turn("assistant", said), Turn("user", "Why?"))
    read, next_prompt = engine.model.read[0], engine.model.prompts[-1]
    assert read[:-1] == next_prompt[:-1]
    assert (read[-1], next_prompt[-1]["content"]) == ({"role": "user", "content": ""}, "Why?")


async def test_nothing_is_read_for_a_call_without_a_name_or_an_answer_that_broke_off(engine: Engine) -> None:
    await engine.answer(Turn("user", "How are you?"), caller="")
    engine.model.endless = True
    async with aclosing(engine.pipeline.respond(Ask((Turn("user", "Hi."),), caller="call"))) as pieces:
        await anext(pieces)
    engine.model.endless = False
    await engine.answer(Turn("user", "And now?"))
    await engine.model.until_reading()
    assert [messages[-3]["content"] for messages in engine.model.read] == ["And now?"]


async def test_what_is_sent_ahead_of_a_turn_is_heard_and_read_and_not_answered(engine: Engine) -> None:
    engine.ears.says |= {1: Heard("My name is", "en"), 2: Heard("My name is Ann.", "en")}
    assert await engine.answer(spoken(1), max_tokens=1) == [Transcript("My name is"), End()]
    assert engine.model.prompts == engine.voice.said == []
    await engine.answer(spoken(2))
    read, prompt = engine.model.read[0], engine.model.prompts[0]
    assert read[:-1] == prompt[:-1]
    assert [messages[-1]["content"] for messages in (read, prompt)] == ["My name is", "My name is Ann."]


async def test_what_is_sent_ahead_is_not_remembered(engine: Engine) -> None:
    engine.ears.says |= {1: Heard("Ich", "de"), 2: Heard("It is me.", "en")}
    await engine.answer(spoken(1), max_tokens=1)
    await engine.answer(spoken(2))
    assert engine.line() == "It is me.", "nobody has spoken German yet"


async def test_what_may_stand_behind_a_note_on_the_camera_is_not_read_ahead(engine: Engine) -> None:
    engine.ears.says[1] = Heard("Can you see", "en")
    assert await engine.answer(spoken(1), max_tokens=1) == [Transcript("Can you see"), End()]
    assert engine.model.read == []
    assert engine.eyes.looked == 0


async def test_reading_ahead_stops_for_the_next_request(engine: Engine) -> None:
    engine.model.endless = True
    await engine.answer(Turn("user", "Can you see me?"))
    await engine.model.until_reading()
    engine.model.endless = False
    await engine.answer(Turn("user", "Hi."))


async def test_what_is_read_ahead_gives_way_to_an_answer(engine: Engine) -> None:
    engine.ears.says[1] = Heard("My name is", "en")
    engine.model.endless = True
    ahead = asyncio.create_task(engine.answer(spoken(1), caller="one", max_tokens=1))
    await engine.model.until_reading()
    engine.model.endless = False
    pieces = await engine.answer(Turn("user", "Hi."), caller="two")
    assert isinstance(pieces[0], Text)
    assert await ahead == [Transcript("My name is"), End()]


async def test_nothing_is_read_ahead_beside_what_is_read_already(engine: Engine) -> None:
    engine.ears.says[1] = Heard("My name is", "en")
    engine.model.endless = True
    await engine.answer(Turn("user", "Can you see me?"), caller="one")
    await engine.model.until_reading()
    assert await engine.answer(spoken(1), caller="two", max_tokens=1) == [Transcript("My name is"), End()]
    assert len(engine.model.read) == 1
    engine.model.endless = False


async def test_who_stops_sending_ahead_stops_the_model(engine: Engine) -> None:
    engine.ears.says[1] = Heard("My name is", "en")
    engine.model.endless = True
    ahead = asyncio.create_task(engine.answer(spoken(1), max_tokens=1))
    await engine.model.until_reading()
    ahead.cancel()
    await asyncio.gather(ahead, return_exceptions=True)
    async with asyncio.timeout(WAIT_S):
        assert await asyncio.to_thread(engine.model.stopped.wait, WAIT_S)


async def test_a_model_that_fails_at_what_is_sent_ahead_fails_that_request_alone(engine: Engine) -> None:
    engine.ears.says[1] = Heard("My name is", "en")
    engine.model.failure = EngineLost("gone")
    with pytest.raises(EngineLost):
        await engine.answer(spoken(1), max_tokens=1)
    engine.model.failure = None
    assert isinstance((await engine.answer(Turn("user", "Hi.")))[0], Text)


async def test_of_two_answers_at_once_none_is_left_reading_on_its_own(engine: Engine) -> None:
    engine.model.endless = True
    engine.voice.together = asyncio.Barrier(2)
    asked = (engine.answer(Turn("user", "Can you see me?"), caller=name) for name in ("one", "two"))
    await asyncio.gather(*asked)
    async with asyncio.timeout(WAIT_S):
        while sum("read_ahead" in repr(task) for task in asyncio.all_tasks()) != 1:  # noqa: ASYNC110
            await asyncio.sleep(0)


async def test_the_reply_is_in_the_language_that_was_heard(engine: Engine) -> None:
    engine.ears.says[1] = Heard("Wie geht es dir?", "de")
    await engine.answer(spoken(1))
    assert engine.line() == "[Answer in German]\nWie geht es dir?"
    assert {language for _, language in engine.voice.said} == {"de"}


async def test_going_back_to_english_is_said_once(engine: Engine) -> None:
    engine.ears.says |= {1: Heard("Wie geht es dir?", "de"), 2: Heard("Fine.", "en"), 3: Heard("Good.", "en")}
    for number in (1, 2, 3):
        await engine.answer(spoken(number))
    assert engine.line(1) == "[Answer in English]\nFine."
    assert engine.line(2) == "Good."


async def test_a_language_without_a_voice_is_answered_in_english_but_written_as_it_is(engine: Engine) -> None:
    engine.ears.says[1] = Heard("お元気ですか", "ja")
    await engine.answer(spoken(1))
    assert engine.line() == "[Answer in English]\nお元気ですか"
    assert {language for _, language in engine.voice.said} == {"en"}
    await engine.answer(spoken(1), speak=False)
    assert engine.line() == "[Answer in Japanese]\nお元気ですか"


async def test_a_history_beyond_the_context_loses_its_oldest(engine: Engine) -> None:
    talk = [Turn("user" if i % 2 == 0 else "assistant", f"{i} " + "word " * 40) for i in range(400)]
    await engine.answer(Turn("system", "Be kind."), *talk, Turn("user", "And now?"))
    prompt = engine.model.prompts[0]
    assert prompt[0]["role"] == "system"
    assert prompt[2 * len(EXAMPLES) + 1]["content"] == "Be kind."
    assert prompt[-1]["content"] == "And now?"
    assert prompt[-2]["content"].startswith("399 ")
    assert sum(len(message["content"]) for message in prompt) < 3 * 4096


async def test_a_failure_of_the_model_is_raised_after_what_was_said(engine: Engine) -> None:
    engine.model.failure = EngineLost("gone")
    pieces = engine.pipeline.respond(Ask((Turn("user", "Hi."),)))
    got = await anext(pieces)
    with pytest.raises(EngineLost):
        await drain(pieces)
    assert got == Text("Hello there my friend. ")


async def test_cancelling_while_it_listens_stops_the_listening(engine: Engine) -> None:
    engine.ears.hold = threading.Event()
    engine.ears.says[1] = Heard("Hi.", "en")
    task = asyncio.create_task(engine.answer(spoken(1)))
    assert await asyncio.to_thread(engine.ears.hold.wait, WAIT_S)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await asyncio.to_thread(engine.ears.stopped.wait, WAIT_S)
    assert engine.model.prompts == []
    engine.ears.hold = None
    assert (await engine.answer(spoken(1)))[0] == Transcript("Hi."), "what was cut short is not remembered"


async def test_closing_while_it_speaks_stops_the_model(engine: Engine) -> None:
    engine.model.endless = True
    async with aclosing(engine.pipeline.respond(Ask((Turn("user", "Hi."),)))) as pieces:
        async for piece in pieces:
            if isinstance(piece, Audio):
                break
    assert await asyncio.to_thread(engine.model.stopped.wait, WAIT_S)


async def test_two_callers_at_once_get_their_own_replies(engine: Engine) -> None:
    engine.ears.says |= {1: Heard("One.", "en"), 2: Heard("Two.", "en")}
    one, two = await asyncio.gather(
        engine.answer(spoken(1), caller="one"), engine.answer(spoken(2), caller="two")
    )
    assert (one[0], two[0]) == (Transcript("One."), Transcript("Two."))
    assert sorted(prompt[-1]["content"] for prompt in engine.model.prompts) == ["One.", "Two."]


async def test_warming_leaves_no_trace(engine: Engine) -> None:
    await engine.pipeline.warm("Be kind.")
    assert engine.model.limits == [2]
    assert engine.model.prompts[0][-2:] == [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "Hello!"},
    ]
    await engine.answer(Turn("system", "Be kind."), Turn("user", "Hi."))
    assert engine.model.prompts[1][:-1] == engine.model.prompts[0][:-1] == engine.model.warmed


# Functions.

CLOCK = Tool("clock", "Tells the time.", '{"type": "object", "properties": {"zone": {"type": "string"}}}')


async def test_without_functions_the_model_is_asked_as_ever(engine: Engine) -> None:
    await engine.answer(Turn("user", "What time is it?"))
    assert engine.model.grammars == [""]
    assert engine.model.limits == [70]
    assert not any("[none]" in message["content"] for message in engine.model.prompts[0])


async def test_an_answer_comes_without_its_mark_and_is_spoken(engine: Engine) -> None:
    engine.model.pieces = ("[no", "ne] It is", " noon, my friend. ")
    pieces = await engine.answer(Turn("user", "What time is it?"), tools=(CLOCK,))
    assert [piece.text for piece in pieces if isinstance(piece, Text)] == ["It is noon, my friend. "]
    assert [text for text, _ in engine.voice.said] == ["It is noon, my friend. "]
    assert pieces[-1] == End("stop", 11, 7)
    assert engine.model.grammars == [grammar((CLOCK,), AUTO, after_result=False)]


async def test_a_call_is_told_and_neither_spoken_nor_shown(engine: Engine) -> None:
    engine.model.pieces = ("[cl", "ock] {", '"zone": "CET"}')
    call, end = await engine.answer(Turn("user", "What time is it?"), tools=(CLOCK,))
    assert isinstance(call, ToolCall)
    assert (call.name, call.arguments) == ("clock", '{"zone": "CET"}')
    assert end == End("tool_calls", 11, 7)
    assert engine.voice.said == []


async def test_what_a_call_gave_is_answered_in_words_and_the_next_prompt_begins_as_this_one_went_on(
    engine: Engine,
) -> None:
    asked = Turn("user", "What time is it?")
    engine.model.pieces = ("[clock] {}",)
    await engine.answer(asked, tools=(CLOCK,))
    await engine.model.until_reading()
    called = Turn("assistant", calls=(ToolCall("c1", "clock", "{}"),))
    engine.model.pieces = ("[none] It is noon.",)
    given = Turn("tool", "12:00")
    pieces = await engine.answer(asked, called, given, tools=(CLOCK,))
    assert [piece.text for piece in pieces if isinstance(piece, Text)] == ["It is noon."]
    assert engine.model.prompts[1][-3:] == [
        {"role": "user", "content": "What time is it?"},
        {"role": "assistant", "content": "[clock] {}"},
        {"role": "user", "content": "[Result]\n12:00"},
    ]
    assert engine.model.prompts[1][:-1] == engine.model.read[0][:-1]
    assert '"[clock] "' not in engine.model.grammars[1]
    await engine.model.until_reading(2)
    answered = Turn("assistant", "It is noon.")
    await engine.answer(asked, called, given, answered, Turn("user", "Thanks!"), tools=(CLOCK,))
    assert engine.model.prompts[2][:-1] == engine.model.read[1][:-1]


async def test_what_is_sent_ahead_is_read_with_its_functions(engine: Engine) -> None:
    turn = Turn("user", "What time")
    await engine.answer(turn, tools=(CLOCK,), max_tokens=1)
    assert any("[clock] Tells the time." in message["content"] for message in engine.model.read[0])
