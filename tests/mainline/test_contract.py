"""What `VllmEngine` sends is what mainline vLLM takes, and what it answers is what `VllmEngine` reads."""

import asyncio
import itertools
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass, replace

import av
import numpy as np
import pytest

from mainline.conftest import Connect
from mainline.server import metrics
from visavis.audio import RATE, Pcm
from visavis.clip import encode_jpeg
from visavis.engine import (
    AudioPart,
    CallPart,
    Delta,
    Done,
    FramesPart,
    Message,
    Part,
    Request,
    ResultPart,
    TextDelta,
    TextPart,
    Tool,
    Usage,
)
from visavis.engine.vllm import VllmEngine
from visavis.errors import EngineRefused
from visavis.frames import Frame
from visavis.tokens import sound_tokens, video_tokens

INSTRUCTIONS = Message("system", (TextPart("You are a virtual friend."),))
WIDTH, HEIGHT = 320, 256
BLOCK = 128
"Tokens that the prefix cache keeps or not as one."
_call = itertools.count()


def sound(seconds: float, pitch_hz: float = 330.0) -> Pcm:
    times = np.arange(round(seconds * RATE)) / RATE
    return (6000 * np.sin(2 * np.pi * pitch_hz * times)).astype(np.int16)


def frames(seconds: float, start: int = 0) -> tuple[Frame, ...]:
    """Two pictures a second, each darker than the last."""
    return tuple(
        Frame(picture(220 - 5 * number), WIDTH, HEIGHT, start + number * RATE // 2)
        for number in range(round(2 * seconds))
    )


def picture(brightness: int) -> bytes:
    frame = av.VideoFrame(WIDTH, HEIGHT, "yuvj420p")
    for plane in frame.planes:
        plane.update(bytes([brightness]) * plane.buffer_size)
    return encode_jpeg(frame)


def request(*parts: Part, before: tuple[Message, ...] = (), max_tokens: int = 8) -> Request:
    messages = (INSTRUCTIONS, *before, Message("user", parts))
    return Request(f"call{next(_call)}", messages, max_tokens=max_tokens)


@dataclass(frozen=True)
class Answer:
    deltas: tuple[Delta, ...]

    @property
    def text(self) -> str:
        return "".join(delta.text for delta in self.deltas if isinstance(delta, TextDelta))

    @property
    def usage(self) -> Usage:
        (usage,) = (delta for delta in self.deltas if isinstance(delta, Usage))
        return usage


async def ask(engine: VllmEngine, what: Request) -> Answer:
    async with aclosing(engine.respond(what)) as deltas:
        return Answer(tuple([delta async for delta in deltas]))


async def cost(engine: VllmEngine, *parts: Part) -> int:
    """Count the tokens of parts by the server's own count."""
    alone = await ask(engine, request(TextPart("Hello"), max_tokens=1))
    beside = await ask(engine, request(TextPart("Hello"), *parts, max_tokens=1))
    return beside.usage.input_tokens - alone.usage.input_tokens


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not await asyncio.to_thread(condition):  # noqa: ASYNC110 - told by another process
            await asyncio.sleep(0.02)


async def test_text_is_answered_in_pieces_and_counted(connect: Connect) -> None:
    answer = await ask(connect(), request(TextPart("Hello there"), max_tokens=12))
    assert answer.text.startswith("Hello there, I can see you")
    assert sum(isinstance(delta, TextDelta) for delta in answer.deltas) > 3
    assert answer.usage.output_tokens == 12
    assert answer.deltas[-1] == Done("length")


async def test_an_answer_ends_where_it_is_told_to_stop(connect: Connect) -> None:
    answer = await ask(connect(stop=("and hear",)), request(TextPart("Hello there"), max_tokens=40))
    assert answer.text == "Hello there, I can see you "
    assert answer.deltas[-1] == Done("stop")


async def test_the_first_words_come_while_the_rest_is_being_thought_of(server: str, connect: Connect) -> None:
    async with aclosing(connect().respond(request(TextPart("Hello"), max_tokens=1_000))) as deltas:
        while not isinstance(await anext(deltas), TextDelta):
            pass
        await until(lambda: metrics(server)["num_requests_running"] == 1)


async def test_closing_an_answer_stops_the_work_on_it(server: str, connect: Connect) -> None:
    done = metrics(server)["generation_tokens_total"]
    async with aclosing(connect().respond(request(TextPart("Hello"), max_tokens=2_000))) as deltas:
        while not isinstance(await anext(deltas), TextDelta):
            pass
    await until(lambda: metrics(server)["num_requests_running"] == 0)
    assert metrics(server)["generation_tokens_total"] - done < 1_500


async def test_sound_alone_costs_what_was_predicted(connect: Connect) -> None:
    heard = AudioPart(sound(2.0), "alone-audio")
    tokens = await cost(connect(media="separate"), heard)
    assert tokens == sound_tokens(2 * 16_000) + 2  # and its two marks


async def test_a_sequence_of_pictures_costs_what_was_predicted(connect: Connect) -> None:
    seen = FramesPart(frames(4.0), "sequence-frames")
    tokens = await cost(connect(media="separate"), seen)
    assert video_tokens(8, WIDTH, HEIGHT) <= tokens <= video_tokens(8, WIDTH, HEIGHT) + 4


async def test_more_pictures_than_32_are_all_seen(connect: Connect) -> None:
    seen = FramesPart(frames(20.0), "long-frames")
    assert await cost(connect(media="separate"), seen) >= video_tokens(40, WIDTH, HEIGHT)


async def test_a_clip_with_its_own_sound_costs_what_was_predicted(connect: Connect) -> None:
    turn = (FramesPart(frames(4.0), "fused-frames"), AudioPart(sound(4.0), "fused-audio"))
    tokens = await cost(connect(media="interleaved"), *turn)
    predicted = video_tokens(8, WIDTH, HEIGHT) + sound_tokens(4 * 16_000)
    assert predicted <= tokens <= predicted + 4


async def test_a_muted_microphone_is_no_error(connect: Connect) -> None:
    """Sound that is in the cache by its content, with pictures that are not, was answered 400."""
    engine = connect(media="interleaved")
    mute = np.zeros(2 * RATE, np.int16)
    for number in range(3):
        seen = tuple(replace(frame, jpeg=picture(40 * number + 20)) for frame in frames(2.0))
        turn = (FramesPart(seen, f"mute{number}-frames"), AudioPart(mute, f"mute{number}-audio"))
        assert (await ask(engine, request(*turn))).text


async def test_what_was_sent_before_is_not_looked_at_again(server: str, connect: Connect) -> None:
    engine = connect(media="interleaved")
    first = (FramesPart(frames(2.0), "past0-frames"), AudioPart(sound(2.0), "past0-audio"))
    second = (FramesPart(frames(2.0), "past1-frames"), AudioPart(sound(2.0, 440.0), "past1-audio"))
    before = metrics(server)
    answer = await ask(engine, request(*first))
    between = metrics(server)
    past = (Message("user", first), Message("assistant", (TextPart(answer.text),)))
    await ask(engine, request(*second, before=past))
    after = metrics(server)

    def counted(name: str) -> tuple[float, float]:
        return between[name] - before[name], after[name] - between[name]

    assert counted("mm_cache_queries_total") == (2, 4)  # pictures and sound of each clip
    assert counted("mm_cache_hits_total") == (0, 2)
    _, reused = counted("prefix_cache_hits_total")
    assert reused > answer.usage.input_tokens - BLOCK


async def test_a_turn_that_was_sent_ahead_is_looked_at_only_where_it_is_new(
    server: str, connect: Connect
) -> None:
    engine = connect(media="interleaved")
    speech, cuts = sound(5.0, 550.0), (2 * RATE, 4 * RATE)
    seen = frames(5.0)
    ahead = replace(
        request(FramesPart(seen[:8], "ahead-frames"), AudioPart(speech[: cuts[-1]], "ahead-audio", 0, cuts)),
        speak=False,
        ahead=True,
    )
    first = await ask(engine, ahead)
    before = metrics(server)
    turn = request(FramesPart(seen, "ahead-frames"), AudioPart(speech, "ahead-audio", 0, cuts))
    assert (await ask(engine, turn)).text
    after = metrics(server)
    assert after["mm_cache_queries_total"] - before["mm_cache_queries_total"] == 6
    assert after["mm_cache_hits_total"] - before["mm_cache_hits_total"] == 4
    reused = after["prefix_cache_hits_total"] - before["prefix_cache_hits_total"]
    assert reused > first.usage.input_tokens - 2 * BLOCK
    assert first.usage.output_tokens == 1


async def test_all_ways_of_media_can_follow_each_other_in_a_call(connect: Connect) -> None:
    heard = AudioPart(sound(1.0), "mixed1-audio")
    turn = (FramesPart(frames(2.0), "mixed0-frames"), AudioPart(sound(2.0), "mixed0-audio"))
    past = (Message("user", turn), Message("assistant", (TextPart("I see."),)))
    for media in ("interleaved", "separate", "frames"):
        assert (await ask(connect(media=media), request(heard, before=past))).text


NOTHING = Tool("ping", "Pings.", '{"type": "object", "properties": {}, "additionalProperties": false}')


async def test_a_server_that_reads_no_calls_says_so_and_is_asked_in_text(
    connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    engine = connect()
    asked = replace(request(TextPart("Hello there")), tools=(NOTHING,))
    assert (await ask(engine, asked)).text
    assert caplog.text.count("reads no calls") == 1
    assert (await ask(engine, asked)).text
    assert caplog.text.count("reads no calls") == 1


async def test_calls_and_results_of_the_past_are_taken(connect: Connect) -> None:
    past = (
        Message("user", (TextPart("Hello"),)),
        Message("assistant", (CallPart("c1", "ping", "{}"),)),
        Message("tool", (ResultPart("c1", "pong"),)),
    )
    for manner in ("server", "text"):
        assert (await ask(connect(tools=manner), request(TextPart("And?"), before=past))).text


async def test_a_voice_that_nobody_has_is_no_error(connect: Connect) -> None:
    asked = replace(request(TextPart("Hello")), voice="nobody")
    assert (await ask(connect(), asked)).text


async def test_a_prompt_beyond_the_window_is_refused_in_words(connect: Connect) -> None:
    with pytest.raises(EngineRefused, match=r"maximum context length"):
        await ask(connect(), request(TextPart("hello " * 20_000)))


async def test_the_server_is_ready(connect: Connect) -> None:
    assert await connect().ready()
