import asyncio
from contextlib import aclosing
from typing import Any

import numpy as np
import pytest

from visavis.audio import RATE, Pcm
from visavis.config import EngineConfig
from visavis.engine import (
    AudioDelta,
    AudioPart,
    Delta,
    Done,
    FramesPart,
    Message,
    Request,
    ResultPart,
    TextDelta,
    TextPart,
    Tool,
    ToolCall,
    ToolChoice,
    TranscriptDelta,
    Usage,
)
from visavis.engine.open import open_engine
from visavis.engine.scripted import Fault, Reply, ScriptedEngine, echo, tone
from visavis.engine.vllm import VllmEngine
from visavis.errors import ConfigError, EngineBusy, EngineError, EngineLost, EngineRefused
from visavis.frames import Frame

ASK = Request("call-1", (Message("user", (TextPart("Hi."),)),))
FIVE_SECONDS: Pcm = np.arange(5 * RATE).astype(np.int16)


async def take(
    engine: ScriptedEngine, request: Request = ASK, taken: list[Delta] | None = None
) -> list[Delta]:
    taken = [] if taken is None else taken
    async with asyncio.timeout(20), aclosing(engine.respond(request)) as deltas:
        async for delta in deltas:
            taken.append(delta)
    return taken


def text(deltas: list[Delta]) -> str:
    return "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))


def sizes(deltas: list[Delta]) -> list[float]:
    return [len(delta.pcm) / RATE for delta in deltas if isinstance(delta, AudioDelta)]


def timing(reply: Reply, **options: Any) -> list[tuple[float, str]]:
    return [
        (round(at, 3), step.name if isinstance(step, Fault) else type(step).__name__)
        for at, step in reply.steps(speak=options.get("speak", True))
    ]


async def test_a_reply_is_streamed_as_vllm_omni_would() -> None:
    reply = Reply(text="one two three four five", pcm=FIVE_SECONDS, transcript="hi")
    deltas = await take(ScriptedEngine([reply]))
    assert [type(delta) for delta in deltas] == [
        TranscriptDelta,
        *[AudioDelta],
        *[TextDelta, AudioDelta] * 3,
        Usage,
        Done,
    ]
    assert text(deltas) == reply.text
    assert sizes(deltas) == pytest.approx([0.3, 2.0, 2.0, 0.7])
    assert np.array_equal(
        np.concatenate([delta.pcm for delta in deltas if isinstance(delta, AudioDelta)]), FIVE_SECONDS
    )


def test_the_text_keeps_step_with_the_sound() -> None:
    reply = Reply(text="one two three four five", pcm=FIVE_SECONDS, first_chunk_s=1, chunk_s=1)
    words = [step.text for _, step in reply.steps(speak=True) if isinstance(step, TextDelta)]
    assert words == ["one ", "two ", "three ", "four ", "five"]


def test_chunks_come_at_the_pace_of_the_work() -> None:
    reply = Reply(text="word", pcm=FIVE_SECONDS, first_delay_s=0.5, rtf=0.2)
    assert timing(reply) == [
        (0.5, "AudioDelta"),
        (0.9, "AudioDelta"),
        (1.3, "TextDelta"),
        (1.3, "AudioDelta"),
        (1.44, "AudioDelta"),
        (1.44, "Usage"),
        (1.44, "Done"),
    ]


async def test_the_pace_is_kept_in_real_time() -> None:
    loop = asyncio.get_running_loop()
    started = loop.time()
    await take(ScriptedEngine([Reply(pcm=FIVE_SECONDS, first_delay_s=0.05, rtf=0.01)]))
    assert loop.time() - started >= 0.05 + 4.7 * 0.01 - 0.001


async def test_without_speech_the_text_comes_alone() -> None:
    deltas = await take(ScriptedEngine([Reply(text="one two")]), Request("c", ASK.messages, speak=False))
    assert sizes(deltas) == []
    assert text(deltas) == "one two"


async def test_a_reply_may_be_all_text_or_all_sound_or_nothing() -> None:
    silent = Reply(text="one two", pcm=np.zeros(0, np.int16))
    wordless = Reply(text="", pcm=FIVE_SECONDS)
    engine = ScriptedEngine([silent, wordless, Reply(text="")])
    assert await take(engine) == [TextDelta("one two"), Usage(0, 2), Done()]
    assert sum(sizes(await take(engine))) == 5.0
    assert await take(engine) == [Usage(0, 0), Done()]


async def test_replies_come_in_turn_over_and_over() -> None:
    engine = ScriptedEngine([Reply(text="a"), lambda request: Reply(text=request.call_id)])
    assert [text(await take(engine)) for _ in range(3)] == ["a", "call-1", "a"]
    assert list(engine.requests) == [ASK] * 3


@pytest.mark.parametrize(
    ("fault", "kind"),
    [(Fault.REFUSED, EngineRefused), (Fault.BUSY, EngineBusy), (Fault.LOST, EngineLost)],
)
@pytest.mark.parametrize(("after_s", "heard_s"), [(None, 0.0), (0.0, 0.3), (1.0, 2.3), (99.0, 5.0)])
async def test_a_fault_comes_where_the_script_says(
    fault: Fault, kind: type[EngineError], after_s: float | None, heard_s: float
) -> None:
    reply = Reply(text="", pcm=FIVE_SECONDS, transcript="hi", fault=fault, fault_after_s=after_s)
    taken: list[Delta] = []
    engine = ScriptedEngine([reply])
    with pytest.raises(kind):
        await take(engine, taken=taken)
    assert sum(sizes(taken)) == pytest.approx(heard_s)
    assert bool(taken) is (after_s is not None)
    assert not any(isinstance(delta, Done) for delta in taken)
    assert (engine.live, engine.abandoned) == (0, 0)


async def test_a_hanging_reply_can_be_cancelled() -> None:
    engine = ScriptedEngine([Reply(pcm=FIVE_SECONDS, fault=Fault.HANG, fault_after_s=0.0)])
    deltas = engine.respond(ASK)
    heard = asyncio.Event()

    async def consume() -> None:
        async with aclosing(deltas):
            async for delta in deltas:
                if isinstance(delta, AudioDelta):
                    heard.set()

    task = asyncio.create_task(consume())
    await asyncio.wait_for(heard.wait(), 20)
    assert engine.live == 1
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (engine.live, engine.abandoned) == (0, 1)


async def test_closing_early_counts_as_abandoned_and_closing_after_the_end_does_not() -> None:
    engine = ScriptedEngine()
    for early in (True, False):
        async with aclosing(engine.respond(ASK)) as deltas:
            async for delta in deltas:
                if early or isinstance(delta, Done):
                    break
        assert (engine.live, engine.abandoned) == (0, 1)


def test_the_default_tells_what_it_was_sent() -> None:
    frame = Frame(b"jpeg", 640, 480, 0)
    parts = (AudioPart(FIVE_SECONDS, "u"), FramesPart((frame, frame), "f"))
    reply = echo(Request("c", (ASK.messages[0], Message("user", parts))))
    assert reply.text == "I heard 5.0 seconds of sound and saw 2 pictures."
    assert reply.transcript == "(5.0 seconds of sound)"
    assert echo(ASK).text == "I heard 0.0 seconds of sound and saw 0 pictures. You wrote: Hi."
    assert echo(ASK).transcript is None
    assert echo(Request("c", ())).transcript is None


WEATHER = Tool("weather")


def test_the_default_calls_the_function_that_it_is_told_to() -> None:
    def asked(text: str, **changes: Any) -> Reply:
        message = Message("user", (TextPart(text),))
        return echo(Request("c", (message,), tools=(Tool("time"), WEATHER), **changes))

    assert asked('call weather {"city": "Rome"}').calls == (
        ToolCall("call_1", "weather", '{"city": "Rome"}'),
    )
    assert asked("call weather").calls == (ToolCall("call_1", "weather", "{}"),)
    assert asked("call fly").calls == asked("Do call weather.").calls == ()
    assert asked("call weather", tool_choice=ToolChoice("none")).calls == ()
    assert asked("Hi.", tool_choice=ToolChoice("required")).calls[0].name == "time"
    assert asked("Hi.", tool_choice=ToolChoice("function", "weather")).calls[0].name == "weather"
    assert echo(Request("c", (Message("user", (TextPart("call weather"),)),))).calls == ()


def test_the_default_tells_what_a_function_gave() -> None:
    given = Message("tool", (ResultPart("call_1", "rain"),))
    assert echo(Request("c", (given,), tools=(WEATHER,))).text == "The function gave: rain"


async def test_functions_are_called_after_what_is_said() -> None:
    call = ToolCall("call_1", "weather", "{}")
    deltas = await take(ScriptedEngine([Reply("One moment.", calls=(call,))]))
    assert [type(delta) for delta in deltas[-4:]] == [AudioDelta, ToolCall, Usage, Done]
    assert deltas[-1] == Done("tool_calls")
    assert await take(ScriptedEngine([Reply("", calls=(call,))])) == [call, Usage(0, 0), Done("tool_calls")]


async def test_the_default_speaks() -> None:
    deltas = await take(ScriptedEngine())
    assert sum(sizes(deltas)) == pytest.approx(0.35 * len(echo(ASK).text.split()))
    assert max(np.abs(delta.pcm).max() for delta in deltas if isinstance(delta, AudioDelta)) > 7_000


def test_the_tone_begins_and_ends_in_silence() -> None:
    pcm = tone(0.6)
    assert len(pcm) == 0.6 * RATE
    assert max(abs(pcm[0]), abs(pcm[-1])) < 100
    assert len(tone(0.0)) == 0


async def test_a_closed_engine_is_lost() -> None:
    engine = ScriptedEngine()
    assert await engine.ready()
    await engine.aclose()
    assert not await engine.ready()
    with pytest.raises(EngineLost):
        await take(engine)


def test_scripts_that_cannot_be_played_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one reply"):
        ScriptedEngine([])
    with pytest.raises(ValueError, match="at least one sample"):
        Reply(chunk_s=0.0)


# The choice by name.


def test_the_configuration_names_the_engine() -> None:
    assert isinstance(open_engine(EngineConfig(name="scripted")), ScriptedEngine)
    assert isinstance(open_engine(EngineConfig(name="vllm")), VllmEngine)
    assert isinstance(open_engine(EngineConfig(name="local", url="unix:///s")), VllmEngine)


def test_a_local_engine_that_nobody_started_is_a_mistake() -> None:
    with pytest.raises(ConfigError, match="has not been started"):
        open_engine(EngineConfig(name="local"))
