"""An engine with a voice behind its own, and ears beside it: stand-ins for the engine and for both."""

import asyncio
import re
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest

from test_talker import TEXT, syllables
from visavis import doctor
from visavis.audio import RATE, Pcm
from visavis.config import Config, EngineConfig, LocalConfig, TalkerConfig
from visavis.engine import (
    AudioDelta,
    AudioPart,
    Delta,
    Done,
    Engine,
    Message,
    Request,
    Sent,
    TextDelta,
    TextPart,
    ToolCall,
    TranscriptDelta,
    Usage,
)
from visavis.engine.hearing import HearingEngine
from visavis.engine.open import open_engines
from visavis.engine.reciting import RecitingEngine
from visavis.engine.router import RouterEngine
from visavis.engine.voiced import VoicedEngine
from visavis.errors import EngineBusy, EngineLost
from visavis.local.helping import available, help_out, settled
from visavis.local.supervisor import Supervisor
from visavis.wiring import running_engine

WAIT_S = 10.0
OURS = 7
"What our voice's samples are."
VLLM = EngineConfig(name="vllm")
ASK = Request("call", (Message("user", (TextPart("Hi"),)),))
SPOKEN = "Well, hello there my friend. How are you today? "
WORDS = tuple(TextDelta(word) for word in re.findall(r"\S+ ", SPOKEN))

Step = Delta | Exception | asyncio.Event


@dataclass
class Inner:
    """Gives its steps: a delta is sent, an exception raised, an event waited for."""

    steps: list[Step]
    asked: int = 0
    closed: int = 0

    async def respond(self, request: Request) -> AsyncGenerator[Delta, None]:
        self.asked += 1
        try:
            for step in self.steps:
                match step:
                    case Exception():
                        raise step
                    case asyncio.Event():
                        await step.wait()
                    case _:
                        await asyncio.sleep(0)
                        yield step
        finally:
            self.closed += 1

    async def ready(self) -> bool:
        return True

    async def aclose(self) -> None:
        pass


@dataclass
class Voice:
    """Speaks each letter for 50 ms, in two pieces."""

    said: list[str] = field(default_factory=list)
    fails_at: int | None = None
    hold: asyncio.Event | None = None
    closed: int = 0

    async def say(self, call_id: str, text: str) -> AsyncGenerator[Pcm, None]:
        self.said.append(text)
        try:
            if self.fails_at == len(self.said):
                raise EngineBusy("hoarse")
            if self.hold is not None:
                await self.hold.wait()
            for _ in range(2):
                yield np.full(len(text) * RATE // 40, OURS, np.int16)
        finally:
            self.closed += 1


async def answer(engine: Engine, request: Request = ASK) -> list[Delta]:
    async with asyncio.timeout(WAIT_S), aclosing(engine.respond(request)) as deltas:
        return [delta async for delta in deltas]


def text_of(deltas: list[Delta]) -> str:
    return "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))


def sound_of(deltas: list[Delta]) -> Pcm:
    return np.concatenate(
        [np.zeros(0, np.int16)] + [delta.pcm for delta in deltas if isinstance(delta, AudioDelta)]
    )


def order_of(deltas: list[Delta]) -> str:
    """The kinds in order, each once: T for text, A for sound, D for the end, . for others."""
    letters: dict[type, str] = {TextDelta: "T", AudioDelta: "A", Done: "D"}
    kinds = [letters.get(type(delta), ".") for delta in deltas]
    return "".join(kind for i, kind in enumerate(kinds) if i == 0 or kinds[i - 1] != kind)


def speech(seconds: float, seed: int = 0) -> list[Delta]:
    pcm = syllables(seconds, seed)
    return [AudioDelta(pcm[at : at + RATE]) for at in range(0, len(pcm), RATE)]


@pytest.mark.parametrize(
    "config", [EngineConfig(name="vllm", speak=False), EngineConfig(name="vllm", thinking=True)]
)
async def test_an_engine_known_to_write_only_is_spoken_for_clause_by_clause(config: EngineConfig) -> None:
    voice = Voice()
    deltas = await answer(
        VoicedEngine(Inner([Sent(1.0), *WORDS, Usage(1, 2), Done("length")]), config, voice)
    )
    assert order_of(deltas) == ".TATA.D"
    assert text_of(deltas) == SPOKEN
    assert "".join(voice.said) == SPOKEN
    assert len(voice.said) > 1
    assert len(sound_of(deltas)) == pytest.approx(len(SPOKEN) * RATE / 20, abs=RATE / 10)
    assert deltas[-1] == Done("length")
    assert Usage(1, 2) in deltas


async def test_each_text_comes_right_before_its_sound_and_before_the_engine_is_done() -> None:
    gate = asyncio.Event()
    engine = VoicedEngine(Inner([*WORDS, gate, Done()]), EngineConfig(name="vllm", speak=False), Voice())
    async with asyncio.timeout(WAIT_S), aclosing(engine.respond(ASK)) as deltas:
        first = await anext(deltas)
        second = await anext(deltas)
        assert isinstance(first, TextDelta)
        assert SPOKEN.startswith(first.text)
        assert isinstance(second, AudioDelta)


async def test_the_text_of_an_engine_that_may_speak_is_not_held_and_all_of_it_spoken_in_the_end() -> None:
    gate = asyncio.Event()
    voice = Voice()
    engine = VoicedEngine(Inner([WORDS[0], gate, *WORDS[1:], Done()]), VLLM, voice)
    async with asyncio.timeout(WAIT_S), aclosing(engine.respond(ASK)) as deltas:
        assert await anext(deltas) == WORDS[0]
        gate.set()
        rest = [delta async for delta in deltas]
    assert order_of(rest) == "TAD"
    assert "".join(voice.said) == SPOKEN
    assert engine.counts() == {"spoken": 1}


async def test_one_silent_answer_teaches_that_the_engine_does_not_speak() -> None:
    engine = VoicedEngine(Inner([*WORDS, Done()]), VLLM, Voice())
    assert order_of(await answer(engine)) == "TAD"
    assert order_of(await answer(engine)) == "TATAD"


CALL = ToolCall("c1", "clock", "{}")


@pytest.mark.parametrize("speaks", [True, False])
async def test_what_stands_before_a_call_is_spoken_before_the_call_is_told(speaks: bool) -> None:
    voice = Voice()
    engine = VoicedEngine(
        Inner([*WORDS, CALL, TextDelta("So."), Done("tool_calls")]), replace(VLLM, speak=speaks), voice
    )
    deltas = await answer(engine)
    said = deltas[: deltas.index(CALL)]
    assert text_of(said) == SPOKEN
    assert len(sound_of(said)) == pytest.approx(len(SPOKEN) * RATE / 20, abs=RATE / 10)
    assert "".join(voice.said) == f"{SPOKEN}So."
    assert deltas[-1] == Done("tool_calls")


async def test_an_engine_that_only_calls_is_not_taken_for_one_that_does_not_speak() -> None:
    inner, voice = Inner([CALL, Done("tool_calls")]), Voice()
    engine = VoicedEngine(inner, VLLM, voice)
    for _ in range(4):
        assert order_of(await answer(engine)) == ".D"
    inner.steps = [*WORDS, CALL, Done("tool_calls")]
    await answer(engine)
    inner.steps = [WORDS[0], *speech(3.0), *WORDS[1:], Done()]
    voice.said.clear()
    await answer(engine)
    assert voice.said == []


async def test_calls_are_not_held_back_until_the_talker_has_read_them_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("visavis.engine.voiced.MORE_TEXT_S", 0.05)
    inner = Inner([CALL, asyncio.Event()])
    assert await answer(VoicedEngine(inner, VLLM, Voice())) == [CALL, Done("tool_calls")]
    assert inner.closed == 1


async def test_where_nobody_is_to_hear_anything_a_call_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("visavis.engine.voiced.MORE_TEXT_S", 0.0)
    gate = asyncio.Event()
    asyncio.get_running_loop().call_later(0.05, gate.set)
    engine = VoicedEngine(Inner([CALL, gate, TextDelta("So."), Done()]), VLLM, voice := Voice())
    deltas = await answer(engine, replace(ASK, speak=False))
    assert deltas == [CALL, TextDelta("So."), Done()]
    assert voice.said == []


async def test_an_engine_that_speaks_after_all_is_heard_itself() -> None:
    inner, voice = Inner([*WORDS, Done()]), Voice()
    engine = VoicedEngine(inner, VLLM, voice)
    await answer(engine)
    voice.said.clear()
    sound = speech(3.0)
    inner.steps = [WORDS[0], *sound, *WORDS[1:], Done()]
    deltas = await answer(engine)
    assert text_of(deltas) == SPOKEN
    assert voice.said == []
    assert len(sound_of(deltas)) == 3 * RATE
    inner.steps = [*WORDS, Done()]  # once silent is an accident now
    assert order_of(await answer(engine)) == "TAD"
    assert order_of(await answer(engine)) == "TAD"


async def test_two_voices_never_speak_at_once() -> None:
    inner, voice = Inner([*WORDS, Done()]), Voice()
    engine = VoicedEngine(inner, VLLM, voice)
    await answer(engine)
    inner.steps = [*WORDS[:6], *speech(2.0), *WORDS[6:], Done()]
    deltas = await answer(engine)
    assert set(np.unique(sound_of(deltas))) == {OURS}
    assert text_of(deltas) == SPOKEN


async def test_good_speech_passes_as_it_came() -> None:
    sound = speech(len(SPOKEN) / 15)
    steps = [
        Sent(0.5),
        TextDelta(SPOKEN[:20]),
        *sound[:1],
        TextDelta(SPOKEN[20:]),
        *sound[1:],
        Usage(1, 1),
        Done(),
    ]
    voice = Voice()
    engine = VoicedEngine(Inner(list(steps)), VLLM, voice)
    deltas = await answer(engine)
    assert [type(delta) for delta in deltas] == [type(step) for step in steps]
    assert np.array_equal(sound_of(deltas), sound_of(steps))
    assert (voice.said, engine.counts()) == ([], {})


async def test_text_alone_is_left_alone() -> None:
    voice = Voice()
    engine = VoicedEngine(Inner([*WORDS, Done()]), EngineConfig(name="vllm", speak=False), voice)
    request = Request("call", ASK.messages, speak=False)
    assert await answer(engine, request) == [*WORDS, Done()]
    assert voice.said == []
    assert order_of(await answer(engine)) == "TATAD"


async def test_what_is_sent_ahead_is_not_spoken_and_teaches_nothing() -> None:
    voice = Voice()
    engine = VoicedEngine(Inner([*WORDS, Done()]), VLLM, voice)
    assert await answer(engine, replace(ASK, ahead=True)) == [*WORDS, Done()]
    assert voice.said == []
    assert order_of(await answer(engine)) == "TAD"


async def test_derailed_speech_is_cut_and_a_talker_that_never_ends_is_closed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("visavis.engine.voiced.MORE_TEXT_S", 0.05)
    never = asyncio.Event()
    inner, voice = Inner([*WORDS, *speech(60), never]), Voice()
    engine = VoicedEngine(inner, VLLM, voice)
    deltas = await answer(engine)
    talker = TalkerConfig()
    longest = len(SPOKEN) / talker.slowest_chars_per_s + talker.grace_s
    assert len(sound_of(deltas)) / RATE == pytest.approx(longest, abs=0.01)
    assert deltas[-1] == Done()
    assert inner.closed == 1
    assert engine.counts() == {"derailed": 1}
    assert len([record for record in caplog.records if "derailed" in record.message]) == 1


async def test_text_that_comes_after_a_fault_is_spoken_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("visavis.engine.voiced.MORE_TEXT_S", 5.0)
    voice = Voice()
    late = TextDelta("And here is one more sentence that nobody has said. And another")
    inner = Inner([TextDelta("Hello there. "), *speech(30), late, *speech(5), Done()])
    deltas = await answer(VoicedEngine(inner, VLLM, voice))
    assert "".join(voice.said) == late.text
    assert text_of(deltas) == "Hello there. " + late.text
    assert sound_of(deltas)[-1] == OURS


async def test_time_that_our_voice_takes_is_not_the_engines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("visavis.engine.voiced.MORE_TEXT_S", 0.1)

    class Slow(Voice):
        async def say(self, call_id: str, text: str) -> AsyncGenerator[Pcm, None]:
            await asyncio.sleep(0.2)
            async with aclosing(super().say(call_id, text)) as sounds:
                async for pcm in sounds:
                    yield pcm

    silence, late = [AudioDelta(np.zeros(5 * RATE, np.int16))], TextDelta("And the end of it.")
    voice = Slow()
    deltas = await answer(VoicedEngine(Inner([*WORDS, *silence, late, Done()]), VLLM, voice))
    assert text_of(deltas) == SPOKEN + late.text
    assert "".join(voice.said) == SPOKEN + late.text


async def test_where_nothing_was_heard_yet_all_of_the_text_is_spoken() -> None:
    voice = Voice()
    silence = [AudioDelta(np.zeros(5 * RATE, np.int16))]
    engine = VoicedEngine(Inner([TextDelta(TEXT), *silence, *silence, Done()]), VLLM, voice)
    deltas = await answer(engine)
    assert "".join(voice.said) == TEXT
    assert set(np.unique(sound_of(deltas))) == {OURS}
    assert engine.counts() == {"silent": 1, "spoken": 1}


async def test_speech_that_breaks_off_is_finished_from_the_clause_in_which_it_did() -> None:
    voice = Voice()
    engine = VoicedEngine(Inner([TextDelta(TEXT), *speech(3.0), Done()]), VLLM, voice)
    deltas = await answer(engine)
    rest = "".join(voice.said)
    assert TEXT.endswith(rest)
    assert 0 < len(rest) <= len(TEXT)
    assert text_of(deltas) == TEXT
    assert engine.counts() == {"truncated": 1, "spoken": 1}


async def test_a_voice_that_fails_costs_the_sound_and_not_the_answer() -> None:
    voice = Voice(fails_at=2)
    engine = VoicedEngine(Inner([*WORDS, Done()]), EngineConfig(name="vllm", speak=False), voice)
    deltas = await answer(engine)
    assert text_of(deltas) == SPOKEN
    assert deltas[-1] == Done()
    assert len(voice.said) == 2
    assert engine.counts() == {"spoken": 1, "unspoken": 1}


async def test_without_a_voice_sound_is_cut_and_text_passes() -> None:
    config = EngineConfig(name="vllm", speak=False)
    assert await answer(VoicedEngine(Inner([*WORDS, Done()]), config, None)) == [*WORDS, Done()]
    engine = VoicedEngine(
        Inner([TextDelta(TEXT), AudioDelta(np.zeros(6 * RATE, np.int16)), Done()]), VLLM, None
    )
    assert order_of(await answer(engine)) == "TD"


@pytest.mark.parametrize("after", [0, 3])
async def test_the_engines_failure_is_the_engines(after: int) -> None:
    inner = Inner([*WORDS[:after], EngineLost("gone")])
    with pytest.raises(EngineLost, match="gone"):
        await answer(VoicedEngine(inner, EngineConfig(name="vllm", speak=False), Voice()))
    assert inner.closed == 1


async def test_an_engine_that_ends_without_a_word_of_it_is_not_ended_for_it() -> None:
    deltas = await answer(VoicedEngine(Inner(list(WORDS)), VLLM, Voice()))
    assert deltas == list(WORDS)


async def test_closing_while_it_speaks_ends_engine_and_voice() -> None:
    inner, voice = Inner([*WORDS, Done()]), Voice(hold=asyncio.Event())
    engine = VoicedEngine(inner, EngineConfig(name="vllm", speak=False), voice)
    deltas = engine.respond(ASK)
    assert isinstance(await anext(deltas), TextDelta)
    waiting = asyncio.create_task(anext(deltas))
    while not voice.said:  # noqa: ASYNC110 - until the task has got so far
        await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait((waiting,))
    await deltas.aclose()
    assert (inner.closed, voice.closed) == (1, 1)


# Ears.


@dataclass
class Ears:
    text: str | None = "hello"
    "None is a failure."
    go: asyncio.Event | None = None
    heard: list[int] = field(default_factory=list)
    closed: int = 0

    async def hear(self, call_id: str, pcm: Pcm) -> str:
        self.heard.append(len(pcm))
        try:
            if self.go is not None:
                await self.go.wait()
            if self.text is None:
                raise EngineBusy("deaf")
            return self.text
        finally:
            self.closed += 1


def asked(*lengths: int) -> Request:
    parts = tuple(AudioPart(np.ones(n, np.int16), f"u{n}") for n in lengths)
    earlier = Message("user", (AudioPart(np.ones(99, np.int16), "old"),))
    return Request("call", (earlier, Message("assistant", (TextPart("Yes?"),)), Message("user", parts)))


async def test_the_newest_message_is_written_down_while_the_engine_thinks() -> None:
    gate = asyncio.Event()
    ears = Ears()
    engine = HearingEngine(Inner([gate, *WORDS, Done()]), ears)
    async with asyncio.timeout(WAIT_S), aclosing(engine.respond(asked(5, 6))) as deltas:
        assert await anext(deltas) == TranscriptDelta("hello hello")
        gate.set()
        assert [delta async for delta in deltas] == [*WORDS, Done()]
    assert ears.heard == [5, 6]


async def test_no_delta_waits_for_the_ears_but_the_end_does() -> None:
    ears = Ears(go=asyncio.Event())
    engine = HearingEngine(Inner([*WORDS, Done()]), ears)
    async with asyncio.timeout(WAIT_S), aclosing(engine.respond(asked(5))) as deltas:
        assert [await anext(deltas) for _ in WORDS] == list(WORDS)
        ears.go.set()
        assert [delta async for delta in deltas] == [TranscriptDelta("hello"), Done()]


async def test_a_transcript_that_is_too_late_is_given_up() -> None:
    ears = Ears(go=asyncio.Event())
    deltas = await answer(HearingEngine(Inner([*WORDS, Done()]), ears, late_s=0.01), asked(5))
    assert deltas == [*WORDS, Done()]
    assert ears.closed == 1


async def test_silence_has_an_empty_transcript_and_deaf_ears_none() -> None:
    assert (await answer(HearingEngine(Inner([Done()]), Ears("")), asked(5)))[0] == TranscriptDelta("")
    assert await answer(HearingEngine(Inner([Done()]), Ears(None)), asked(5)) == [Done()]


async def test_an_engine_that_hears_is_believed() -> None:
    ears = Ears(go=asyncio.Event())
    steps = [TranscriptDelta("its own"), *WORDS, Done()]
    assert await answer(HearingEngine(Inner(list(steps)), ears), asked(5)) == steps
    assert ears.closed == 1


async def test_a_message_without_sound_is_not_listened_to() -> None:
    ears = Ears()
    engine = HearingEngine(Inner([*WORDS, Done()]), ears)
    assert await answer(engine) == [*WORDS, Done()]
    system = Request("call", (Message("system", (AudioPart(np.ones(9, np.int16), "u"),)),))
    assert await answer(engine, system) == [*WORDS, Done()]
    assert ears.heard == []


@pytest.mark.parametrize("after", [0, 2])
async def test_a_failure_ends_the_listening(after: int) -> None:
    inner, ears = Inner([*WORDS[:after], EngineLost("gone")]), Ears(go=asyncio.Event())
    with pytest.raises(EngineLost, match="gone"):
        await answer(HearingEngine(inner, ears), asked(5))
    assert (inner.closed, len(ears.heard) - ears.closed) == (1, 0)


async def test_closing_ends_the_engine_and_the_listening() -> None:
    inner, ears = Inner([WORDS[0], asyncio.Event()]), Ears(go=asyncio.Event())
    deltas = HearingEngine(inner, ears).respond(asked(5))
    assert await anext(deltas) == WORDS[0]
    await deltas.aclose()
    assert (inner.closed, ears.closed) == (1, 1)
    deltas = HearingEngine(inner, ears).respond(asked(5))
    await anext(deltas)
    waiting = asyncio.create_task(anext(deltas))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait((waiting,))
    assert waiting.cancelled()
    assert (inner.closed, ears.closed) == (2, 2)


# Put together.


async def test_engines_that_may_lack_a_voice_are_given_one_unless_it_is_not_wanted() -> None:
    gone = replace(VLLM, url="unix:///nowhere/at/all")
    for settings, spoken in ((gone, True), (replace(gone, embedded_voice=False), False)):
        config = Config(engine=settings, fallbacks=(EngineConfig(name="scripted"),))
        voice = Voice()
        engine = open_engines(config, voice=voice)
        vllm, scripted = (lane.engine for lane in engine._lanes)
        assert isinstance(vllm, RecitingEngine) is spoken
        voiced = vllm._inner if isinstance(vllm, RecitingEngine) else vllm
        assert isinstance(voiced, VoicedEngine)
        assert not isinstance(scripted, RecitingEngine | VoicedEngine)
        voiced._inner = Inner([*WORDS, Done()])
        assert ("A" in order_of(await answer(vllm))) is spoken
        await engine.aclose()


def test_parts_that_cannot_be_had_are_done_without_and_the_log_says_why(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "hibari" else object())
    config = LocalConfig(cache_dir=tmp_path)
    assert available(config, frozenset({"ears", "voice"})) == frozenset()
    ears, voice = (record.message for record in caplog.records)
    assert "will not be written down: " in ears
    assert "visavis models pull" in ears
    assert "will not be spoken: hibari is not installed (pip install" in voice
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    assert available(config, frozenset({"ears", "voice"})) == {"voice"}


async def test_the_engine_opens_without_its_helpers_when_they_are_not_there(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    vllm = replace(VLLM, url="unix:///nowhere/at/all", embedded_voice=False)
    config = Config(engine=vllm, local=LocalConfig(cache_dir=tmp_path))
    async with running_engine(config) as engine:
        assert isinstance(engine, RouterEngine)
    assert "will not be written down" in caplog.text


async def test_the_doctor_says_what_voice_and_ears_lack(tmp_path: Path) -> None:
    config = Config(engine=VLLM, local=LocalConfig(cache_dir=tmp_path))
    finding = await doctor._helpers(config)
    assert "visavis models pull" in finding.seen
    assert "embedded_ears = false" in (finding.fix or "")
    assert (await doctor._models(config)).fix is None
    for settings in (EngineConfig(), replace(VLLM, embedded_ears=False, embedded_voice=False)):
        assert (await doctor._helpers(replace(config, engine=settings))).fix is None


@pytest.mark.slow
async def test_helpers_that_do_not_start_end_nothing(caplog: pytest.LogCaptureFixture) -> None:
    code = 'import sys; print("ERROR root: no such model: x", file=sys.stderr); sys.exit(3)'
    parts = frozenset({"ears", "voice"})
    supervisor = Supervisor(LocalConfig(), parts=parts, command=[sys.executable, "-S", "-c", code])
    helping = asyncio.create_task(help_out(supervisor, parts))
    async with asyncio.timeout(WAIT_S):
        await settled(supervisor, helping)
        await helping
    assert "will not be spoken: no such model: x" in caplog.text
    assert "will not be written down: no such model: x" in caplog.text


async def test_what_is_sent_ahead_is_not_written_down() -> None:
    ears = Ears()
    engine = HearingEngine(Inner([*WORDS, Done()]), ears)
    async with asyncio.timeout(WAIT_S), aclosing(engine.respond(replace(asked(5), ahead=True))) as deltas:
        assert [delta async for delta in deltas] == [*WORDS, Done()]
    assert not ears.heard
