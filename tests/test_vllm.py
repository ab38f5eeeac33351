"""The client against a server of the test's own that writes what ENGINE.md documents."""

import asyncio
import base64
import contextlib
import json
import logging
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from aiohttp import web

from engine_wire import (
    ANSWER,
    DONE,
    RAMP,
    ROLE,
    USAGE,
    Clock,
    Play,
    Refuse,
    Server,
    Wire,
    chunk,
    event,
    hang,
    playing,
    say_hello,
    serving,
    settle,
    sound,
    until,
)
from visavis.audio import RATE
from visavis.config import EngineConfig
from visavis.engine import (
    AudioDelta,
    AudioPart,
    Delta,
    Done,
    FramesPart,
    Message,
    Request,
    Sent,
    TextDelta,
    TextPart,
    ThinkingDelta,
    Tool,
    ToolCall,
    TranscriptDelta,
    Usage,
)
from visavis.engine.vllm import VllmEngine
from visavis.errors import ConfigError, EngineBusy, EngineError, EngineLost, EngineRefused
from visavis.frames import Frame

pytestmark = pytest.mark.slow

CONFIG = EngineConfig(name="vllm", model="tiny", voice="ethan")
ASK = Request("call-1", (Message("user", (TextPart("Hi."),)),))


@asynccontextmanager
async def talking(play: Play, **settings: Any) -> AsyncIterator[tuple[VllmEngine, Server]]:
    async with serving(play) as server, client(server.url, **settings) as engine:
        yield engine, server


@asynccontextmanager
async def client(url: str, **settings: Any) -> AsyncIterator[VllmEngine]:
    engine = VllmEngine(replace(CONFIG, url=url, **settings))
    try:
        yield engine
    finally:
        await engine.aclose()


async def collect(
    engine: VllmEngine,
    request: Request = ASK,
    taken: list[Delta] | None = None,
    patience_s: float | None = 20,
) -> list[Delta]:
    """Take a whole response, into `taken` if given; a client that hangs fails the test."""
    taken = [] if taken is None else taken
    async with asyncio.timeout(patience_s), aclosing(engine.respond(request)) as deltas:
        async for delta in deltas:
            if not isinstance(delta, Sent):
                taken.append(delta)
    return taken


async def said(deltas: AsyncGenerator[Delta]) -> Delta:
    """Give the next thing that the engine itself says."""
    while isinstance(delta := await anext(deltas), Sent):
        pass
    return delta


def plain(deltas: list[Delta]) -> list[object]:
    """Make sound comparable."""
    return [delta.pcm.tolist() if isinstance(delta, AudioDelta) else delta for delta in deltas]


HELLO = [TextDelta("Hel"), RAMP.tolist(), TextDelta("lo."), RAMP.tolist(), Usage(7, 3), Done("stop")]


# What is said.


@pytest.mark.parametrize("unix", [False, True])
async def test_an_answer_comes_whole_and_in_order(unix: bool, tmp_path: Path) -> None:
    async with (
        serving(say_hello, tmp_path / "s" if unix else None) as server,
        client(server.url) as engine,
    ):
        assert plain(await collect(engine)) == HELLO


async def test_an_answer_may_come_in_pieces_of_any_size() -> None:
    stream = b"".join(ANSWER)
    async with talking(playing(*(stream[at : at + 61] for at in range(0, len(stream), 61)))) as (engine, _):
        assert plain(await collect(engine)) == HELLO


async def test_deltas_come_as_soon_as_they_are_sent() -> None:
    go_on = asyncio.Event()

    async def play(wire: Wire) -> None:
        await wire.write(chunk("one", "text"))
        await go_on.wait()
        await wire.write(chunk("two", "text", "stop"), DONE)

    async with talking(play) as (engine, _), aclosing(engine.respond(ASK)) as deltas:
        assert await said(deltas) == TextDelta("one")
        go_on.set()
        assert [delta async for delta in deltas] == [TextDelta("two"), Done("stop")]


async def test_when_the_request_was_written_is_told_with_the_first_delta() -> None:
    go_on = asyncio.Event()
    read_at = 0.0

    async def play(wire: Wire) -> None:
        nonlocal read_at
        read_at = asyncio.get_running_loop().time()
        await wire.write(ROLE)
        await go_on.wait()
        await wire.write(chunk("Hi.", finish="stop"), DONE)

    asked_at = asyncio.get_running_loop().time()
    pictures = tuple(Frame(bytes(300_000), 640, 360, number) for number in range(4))
    request = Request("call-1", (Message("user", (FramesPart(pictures, "c1"),)),))
    async with talking(play) as (engine, _), aclosing(engine.respond(request)) as deltas:
        first = asyncio.create_task(anext(deltas))
        await until(lambda: read_at > 0)
        await settle()
        assert not first.done()
        go_on.set()
        sent = await first
        assert isinstance(sent, Sent)
        assert asked_at < sent.at <= read_at
        assert [delta async for delta in deltas] == [TextDelta("Hi."), Done("stop")]


async def test_an_engine_that_fails_before_its_first_delta_gives_nothing_at_all() -> None:
    async with talking(playing(ROLE)) as (engine, _), aclosing(engine.respond(ASK)) as deltas:
        with pytest.raises(EngineLost):
            await anext(deltas)


async def test_the_request_names_its_call_and_carries_the_key() -> None:
    async with talking(say_hello, api_key="secret") as (engine, server):
        await collect(engine)
        headers = server.wires[0].request.headers
        assert headers["X-Visavis-Call"] == "call-1"
        assert headers["Authorization"] == "Bearer secret"
        assert headers["Content-Type"] == "application/json"
        assert headers["Accept-Encoding"] == "identity"
        assert server.wires[0].body["messages"] == [{"role": "user", "content": "Hi."}]


async def test_without_a_key_there_is_no_authorization() -> None:
    async with talking(say_hello) as (engine, server):
        await collect(engine)
        assert "Authorization" not in server.wires[0].request.headers


@pytest.mark.parametrize("suffix", ["", "/", "/v1", "/v1/"])
async def test_the_base_url_may_end_as_people_write_it(suffix: str) -> None:
    async with serving(say_hello) as server, client(server.url + suffix) as engine:
        assert plain(await collect(engine)) == HELLO
        assert await engine.ready()


async def test_a_minute_of_sound_arrives_whole() -> None:
    pcm = np.arange(60 * RATE).astype(np.int16)
    request = Request("call-1", (Message("user", (AudioPart(pcm, "u1"),)),))
    async with talking(say_hello) as (engine, server):
        assert plain(await collect(engine, request)) == HELLO
        part = server.wires[0].body["messages"][0]["content"][0]
        assert len(base64.b64decode(part["input_audio"]["data"])) == 44 + 2 * 60 * 16_000


async def test_many_pictures_arrive_whole() -> None:
    frames = tuple(Frame(bytes([number]) * 100_000, 640, 360, number) for number in range(12))
    request = Request("call-1", (Message("user", (FramesPart(frames, "c1"),)),))
    async with talking(say_hello, media="separate") as (engine, server):
        assert plain(await collect(engine, request)) == HELLO
        part = server.wires[0].body["messages"][0]["content"][0]
        pictures = part["video_url"]["url"].removeprefix("data:video/jpeg;base64,").split(",")
        assert [base64.b64decode(picture) for picture in pictures] == [frame.jpeg for frame in frames]


async def test_mainline_vllm_and_the_embedded_engine_are_understood() -> None:
    play = playing(chunk("hi there", "transcript"), chunk("Hello."), chunk("", finish="length"), DONE)
    async with talking(play) as (engine, _):
        assert await collect(engine) == [TranscriptDelta("hi there"), TextDelta("Hello."), Done("length")]


async def test_unknown_kinds_of_chunks_and_comments_are_passed_over() -> None:
    extra = (b": ping\n\n", chunk("?", "smell"), b"event: x\r\n\r\n", b"\n\n")
    async with talking(playing(*(piece for one in ANSWER for piece in (*extra, one)))) as (engine, _):
        assert plain(await collect(engine)) == HELLO


async def test_a_hundred_answers_at_once_are_not_mixed_up() -> None:
    async def play(wire: Wire) -> None:
        name = wire.request.headers["X-Visavis-Call"]
        number = int(name)
        for turn in range(5):
            await wire.write(chunk(f"{name}.{turn} ", "text"), sound(np.full(300, number, np.int16)))
            await asyncio.sleep(0)
        await wire.write(sound(np.full(1, number, np.int16), "stop"), DONE)

    async with talking(play) as (engine, server):
        async with asyncio.TaskGroup() as tasks:
            answers = [
                tasks.create_task(collect(engine, replace(ASK, call_id=str(number)))) for number in range(100)
            ]
        for number, answer in enumerate(answers):
            deltas = answer.result()
            text = "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))
            pcm = np.concatenate([delta.pcm for delta in deltas if isinstance(delta, AudioDelta)])
            assert text == "".join(f"{number}.{turn} " for turn in range(5))
            assert pcm.tolist() == [number] * 1501
        assert len(server.wires) == 100


# Voices.


def fussy(*known: str | None) -> Play:
    async def play(wire: Wire) -> None:
        if (voice := wire.body.get("voice")) not in known:
            message = f"Invalid speaker '{voice}'. Supported: {', '.join(map(str, known))}"
            raise Refuse(400, json.dumps({"error": {"message": message, "code": 400}}))
        await wire.write(*ANSWER)

    return play


def voices(server: Server) -> list[str | None]:
    return [wire.body.get("voice") for wire in server.wires]


async def test_a_voice_that_the_engine_does_not_know_stands_for_one_that_it_has(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    async with talking(fussy("aiden", "chelsie", "ethan")) as (engine, server):
        assert engine.voices == ()
        for name in ("marin", "marin", "Chelsie"):
            assert plain(await collect(engine, replace(ASK, voice=name))) == HELLO
        # From the second time on the engine's own names are known.
        assert voices(server) == ["marin", "chelsie", "chelsie", "chelsie"]
        assert engine.voices == ("aiden", "chelsie", "ethan")
    assert caplog.text.count("the engine's voices are aiden, chelsie, ethan") == 1


async def test_a_default_voice_that_the_engine_does_not_know_is_replaced_too() -> None:
    async with talking(fussy("aiden")) as (engine, server):
        assert plain(await collect(engine)) == HELLO
        assert voices(server) == ["ethan", "aiden"]


async def test_an_engine_that_refuses_a_voice_without_a_list_is_asked_with_others_and_then_with_none() -> (
    None
):
    async def play(wire: Wire) -> None:
        if "voice" in wire.body:
            raise Refuse(400, '{"error": {"message": "There is no such voice."}}')
        await wire.write(*ANSWER)

    async with talking(play) as (engine, server):
        for _ in range(2):
            assert plain(await collect(engine, replace(ASK, voice="marin"))) == HELLO
        assert voices(server) == ["marin", "ethan", None, None]
        assert engine.voices == ()


async def test_an_engine_that_reads_no_calls_is_asked_in_text_from_then_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def play(wire: Wire) -> None:
        if "tools" in wire.body:
            refusal = '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'
            raise Refuse(400, json.dumps({"error": {"message": refusal}}))
        text = '<tool_call>\n{"name": "clock", "arguments": {}}\n</tool_call>'
        await wire.write(chunk(text, "text"), sound(RAMP, "stop"), USAGE, DONE)

    asked = replace(ASK, tools=(Tool("clock"),))
    async with talking(play) as (engine, server):
        for _ in range(2):
            call, *rest = await collect(engine, asked)
            assert isinstance(call, ToolCall)
            assert (call.name, call.arguments) == ("clock", "{}")
            assert rest == [Usage(7, 3), Done("tool_calls")]
        assert [("tools" in wire.body, wire.body["messages"][0]["role"]) for wire in server.wires] == [
            (True, "user"),
            (False, "system"),
            (False, "system"),
        ]
    assert caplog.text.count("reads no calls") == 1


async def test_an_engine_that_refuses_its_own_voices_is_not_asked_for_ever() -> None:
    async def play(wire: Wire) -> None:
        raise Refuse(400, json.dumps({"error": {"message": f"Invalid speaker. Supported: v{wire.number}"}}))

    async with talking(play) as (engine, server):
        with pytest.raises(EngineRefused, match="Invalid speaker"):
            await collect(engine, replace(ASK, voice="marin"))
        assert len(server.wires) == 4


async def test_another_refusal_does_not_change_the_voice() -> None:
    async def play(wire: Wire) -> None:
        raise Refuse(400, '{"error": {"message": "too long"}}')

    async with talking(play) as (engine, server):
        with pytest.raises(EngineRefused, match="too long"):
            await collect(engine, replace(ASK, voice="marin"))
        assert len(server.wires) == 1


# Text alone.

TALKERLESS = "Unsupported output modalities audio for this model. Supported modalities: text"
WRITTEN = (chunk("", "text"), chunk("Hello.", "text", "stop"), USAGE, DONE)


@pytest.mark.parametrize("settings", [{"speak": False}, {"thinking": True}])
async def test_where_the_talker_is_off_text_alone_is_asked_for(settings: dict[str, bool]) -> None:
    async with talking(playing(chunk("Hm.</think>Hello.", "text", "stop"), DONE), **settings) as (
        engine,
        server,
    ):
        await collect(engine)
        assert server.wires[0].body["modalities"] == ["text"]
        assert not {"audio", "voice"} & server.wires[0].body.keys()


async def test_a_written_reply_is_asked_for_without_the_talker() -> None:
    async with talking(playing(*WRITTEN)) as (engine, server):
        answer = await collect(engine, replace(ASK, speak=False))
        assert answer == [TextDelta("Hello."), Usage(7, 3), Done("stop")]
        assert server.wires[0].body["modalities"] == ["text"]


async def test_a_server_without_a_talker_is_asked_for_text_from_then_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def play(wire: Wire) -> None:
        if "audio" in wire.body["modalities"]:
            raise Refuse(400, json.dumps({"error": {"message": TALKERLESS, "code": 400}}))
        await wire.write(*WRITTEN)

    async with talking(play) as (engine, server):
        for _ in range(2):
            assert await collect(engine) == [TextDelta("Hello."), Usage(7, 3), Done("stop")]
        asked = [wire.body["modalities"] for wire in server.wires]
        assert asked == [["text", "audio"], ["text"], ["text"]]
    assert caplog.text.count("does not speak") == 1


async def test_plain_vllm_ignores_the_voice_and_answers_in_text() -> None:
    plain_chunk = event({"choices": [{"index": 0, "delta": {"content": "Hello.", "audio": None}}]})
    stop = event(
        {"choices": [{"index": 0, "delta": {"content": ""}, "finish_reason": "stop"}], "audio": None}
    )
    async with talking(playing(plain_chunk, stop, USAGE, DONE)) as (engine, _):
        assert await collect(engine) == [TextDelta("Hello."), Usage(7, 3), Done("stop")]


async def test_a_thinking_model_thinks_before_it_speaks() -> None:
    stream = (chunk("It is"), chunk(" noon.</thi"), chunk("nk>\n\nNoon.", finish="stop"), USAGE, DONE)
    async with talking(playing(*stream), thinking=True) as (engine, server):
        assert await collect(engine, replace(ASK, max_tokens=9)) == [
            ThinkingDelta("It is"),
            ThinkingDelta(" noon."),
            TextDelta("Noon."),
            Usage(7, 3),
            Done("stop"),
        ]
        assert server.wires[0].body["max_tokens"] == 16_384


# Errors.


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, EngineRefused),
        (401, EngineRefused),
        (404, EngineRefused),
        (429, EngineBusy),
        (500, EngineLost),
        (502, EngineLost),
        (503, EngineBusy),
    ],
)
async def test_an_error_status_is_raised_with_the_servers_message(
    status: int, kind: type[EngineError]
) -> None:
    async def play(wire: Wire) -> None:
        raise Refuse(status, '{"error": {"message": "because", "type": "x", "code": 1}}')

    async with talking(play) as (engine, server):
        with pytest.raises(EngineError, match="because") as caught:
            await collect(engine)
        assert type(caught.value) is kind
        assert len(server.wires) == 1


async def test_a_refusal_that_breaks_off_is_told_by_its_status() -> None:
    async def play(wire: Wire) -> None:
        assert wire.request.transport is not None
        wire.request.transport.write(b"HTTP/1.1 503 Busy\r\nContent-Length: 999\r\n\r\n{")
        wire.request.transport.close()
        await hang(wire)

    async with talking(play) as (engine, _):
        with pytest.raises(EngineBusy, match="HTTP 503"):
            await collect(engine)


async def test_a_redirection_is_not_followed() -> None:
    async def play(wire: Wire) -> None:
        raise Refuse(307, Location="/elsewhere")

    async with talking(play, api_key="secret") as (engine, _):
        with pytest.raises(EngineRefused, match="HTTP 307"):
            await collect(engine)


async def test_a_page_in_place_of_a_stream_is_no_engine() -> None:
    async def play(wire: Wire) -> None:
        raise Refuse(200, "<html>Welcome!</html>")

    async with talking(play) as (engine, _):
        with pytest.raises(EngineLost, match="is not an engine"):
            await collect(engine)


@pytest.mark.parametrize(("code", "kind"), [(400, EngineRefused), (503, EngineBusy), (500, EngineLost)])
async def test_an_error_in_the_stream_comes_after_what_was_said(code: int, kind: type[EngineError]) -> None:
    error = event({"error": {"message": "because", "type": "x", "code": code}})
    taken: list[Delta] = []
    async with talking(playing(chunk("Hel", "text"), error, DONE)) as (engine, _):
        with pytest.raises(EngineError, match="because") as caught:
            await collect(engine, taken=taken)
    assert type(caught.value) is kind
    assert taken == [TextDelta("Hel")]


@pytest.mark.parametrize("stream", [(), (ROLE,), (chunk("Hel", "text"),), (chunk("Hello.", "text", "stop"),)])
@pytest.mark.parametrize("abrupt", [False, True])
async def test_a_stream_that_breaks_off_is_lost_and_not_asked_again(
    stream: tuple[bytes, ...], abrupt: bool
) -> None:
    async def play(wire: Wire) -> None:
        await wire.write(b": hello\n\n", *stream)
        if abrupt:
            wire.drop()

    async with talking(play) as (engine, server):
        with pytest.raises(EngineLost, match="broke off"):
            await collect(engine)
        assert len(server.wires) == 1


async def test_half_an_event_is_not_taken_for_a_whole_one() -> None:
    half = chunk("lo.", "text", "stop").removesuffix(b"\n\n")
    taken: list[Delta] = []
    async with talking(playing(chunk("Hel", "text"), half)) as (engine, server):
        with pytest.raises(EngineLost, match="broke off"):
            await collect(engine, replace(ASK, speak=False), taken=taken)
        assert len(server.wires) == 1
    assert taken == [TextDelta("Hel")]


async def test_a_stream_may_break_off_once_its_answer_is_complete() -> None:
    taken = asyncio.Event()

    async def play(wire: Wire) -> None:
        await wire.write(*ANSWER[:5])
        await taken.wait()
        wire.drop()

    deltas: list[Delta] = []
    async with talking(play) as (engine, _):
        async for delta in engine.respond(ASK):
            if isinstance(delta, Sent):
                continue
            deltas.append(delta)
            if len(deltas) == 4:
                taken.set()
    assert plain(deltas) == [*HELLO[:4], Done("stop")]


async def test_an_endless_event_is_lost() -> None:
    async def play(wire: Wire) -> None:
        while True:
            await wire.write(b"x" * 1_000_000)

    async with talking(play) as (engine, server):
        with pytest.raises(EngineLost, match="more than 8388608 bytes"):
            await collect(engine)
        await asyncio.wait_for(server.aborted.wait(), 20)


# Silence. The defaults: 30 s to the first delta, 20 s between chunks.


@asynccontextmanager
async def asking(play: Play, path: Path) -> AsyncIterator[tuple["asyncio.Task[list[Delta]]", Clock, Server]]:
    """Run one request whose server is at work, with a clock to advance."""
    clock = Clock()
    async with serving(play, path) as server, client(server.url) as engine:
        task = asyncio.create_task(collect(engine, patience_s=None))
        await until(lambda: len(server.wires) == 1)
        await settle()
        yield task, clock, server
        if not task.done():
            task.cancel()
            await asyncio.wait([task])


@pytest.mark.parametrize("stream", [None, (), (ROLE,)])
async def test_a_server_that_says_nothing_is_given_up_and_told_so(
    stream: tuple[bytes, ...] | None, tmp_path: Path
) -> None:
    async def play(wire: Wire) -> None:
        if stream is not None:
            await wire.write(b": hello\n\n", *stream)
        await hang(wire)

    async with asking(play, tmp_path / "s") as (task, clock, server):
        clock.advance(25)
        await settle()
        assert not task.done()
        clock.advance(6)
        with pytest.raises(EngineLost, match=r"in time|silent"):
            await asyncio.wait_for(task, 20)
        await asyncio.wait_for(server.aborted.wait(), 20)
        assert len(server.wires) == 1


async def speak_when_told(wire: Wire, ticks: "asyncio.Queue[bytes]", *, first: bytes) -> None:
    await wire.write(first)
    while True:
        await wire.write(await ticks.get())


async def test_comments_are_no_sign_of_life(tmp_path: Path) -> None:
    ticks: asyncio.Queue[bytes] = asyncio.Queue()

    async def play(wire: Wire) -> None:
        await speak_when_told(wire, ticks, first=chunk("Hel", "text"))

    async with asking(play, tmp_path / "s") as (task, clock, server):
        clock.advance(15)
        ticks.put_nowait(b": ping\n\n")
        await settle()
        assert not task.done()
        clock.advance(15)
        await settle()
        assert task.done()
        with pytest.raises(EngineLost, match="silent"):
            await task
        await asyncio.wait_for(server.aborted.wait(), 20)


async def test_thinking_is_a_sign_of_life(tmp_path: Path) -> None:
    ticks: asyncio.Queue[bytes] = asyncio.Queue()

    async def play(wire: Wire) -> None:
        await speak_when_told(wire, ticks, first=chunk("<think>Hm", "text"))

    async with asking(play, tmp_path / "s") as (task, clock, _):
        for _ in range(9):
            clock.advance(15)
            ticks.put_nowait(chunk(" hm", "text"))
            await settle()
        ticks.put_nowait(chunk("</think>Yes.", "text") + sound(RAMP, "stop") + DONE)
        deltas = await asyncio.wait_for(task, 20)
        assert plain([delta for delta in deltas if not isinstance(delta, ThinkingDelta)]) == [
            TextDelta("Yes."),
            RAMP.tolist(),
            Done("stop"),
        ]


async def test_empty_sound_is_a_sign_of_life(tmp_path: Path) -> None:
    ticks: asyncio.Queue[bytes] = asyncio.Queue()

    async def play(wire: Wire) -> None:
        await speak_when_told(wire, ticks, first=chunk("Hel", "text"))

    async with asking(play, tmp_path / "s") as (task, clock, _):
        for _ in range(3):
            clock.advance(15)
            ticks.put_nowait(chunk("", "audio"))
            await settle()
        ticks.put_nowait(sound(RAMP, "stop") + DONE)
        await settle()
        clock.advance(1)  # the end of the stream, which does not come, is not waited for
        assert plain(await asyncio.wait_for(task, 20)) == [TextDelta("Hel"), RAMP.tolist(), Done("stop")]


async def test_silence_after_a_complete_answer_is_its_end(tmp_path: Path) -> None:
    async def play(wire: Wire) -> None:
        await wire.write(chunk("Hello.", "text"), sound(RAMP, "stop"))
        await hang(wire)

    async with asking(play, tmp_path / "s") as (task, clock, _):
        clock.advance(21)
        assert plain(await asyncio.wait_for(task, 20)) == [TextDelta("Hello."), RAMP.tolist(), Done("stop")]


async def test_a_slow_consumer_is_not_a_silent_engine() -> None:
    go_on = asyncio.Event()

    async def play(wire: Wire) -> None:
        await wire.write(chunk("Hel", "text"))
        await go_on.wait()
        await wire.write(chunk("lo.", "text", "stop"), DONE)

    clock = Clock()
    async with talking(play) as (engine, _), aclosing(engine.respond(ASK)) as deltas:
        assert await said(deltas) == TextDelta("Hel")
        clock.advance(60)
        go_on.set()
        assert await said(deltas) == TextDelta("lo.")


async def test_a_connection_that_does_not_come_about_is_given_up() -> None:
    with socket.socket() as listener, contextlib.ExitStack() as stack:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):  # fill the backlog, so that the next one hangs
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        async with client(f"http://127.0.0.1:{listener.getsockname()[1]}", connect_s=0.1) as engine:
            with pytest.raises(EngineLost, match="in time"):
                await collect(engine)
            assert not await engine.ready()


# Cancelling.


async def test_closing_the_generator_closes_the_connection() -> None:
    async def play(wire: Wire) -> None:
        await wire.write(chunk("Hel", "text"))
        await hang(wire)

    async with talking(play) as (engine, server):
        deltas = engine.respond(ASK)
        assert await said(deltas) == TextDelta("Hel")
        assert not server.aborted.is_set()
        await deltas.aclose()
        await asyncio.wait_for(server.aborted.wait(), 20)
        await until(lambda: server.open_connections == 0)


@pytest.mark.parametrize("stream", [None, (ROLE,), (chunk("Hel", "text"),)])
async def test_cancelling_the_task_closes_the_connection_at_any_point(
    stream: tuple[bytes, ...] | None,
) -> None:
    async def play(wire: Wire) -> None:
        if stream is not None:
            await wire.write(*stream)
        await hang(wire)

    async with talking(play) as (engine, server):
        task = asyncio.create_task(collect(engine))
        await until(lambda: len(server.wires) == 1)
        await settle()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(server.aborted.wait(), 20)


async def test_a_server_that_does_not_end_its_stream_does_not_hold_the_end_back() -> None:
    async def play(wire: Wire) -> None:
        await wire.write(*ANSWER)
        await hang(wire)

    async with talking(play) as (engine, server):
        assert plain(await collect(engine)) == HELLO
        await asyncio.wait_for(server.aborted.wait(), 20)


async def test_closing_the_engine_ends_what_is_live_and_refuses_the_rest() -> None:
    async def play(wire: Wire) -> None:
        await wire.write(chunk("Hel", "text"))
        await hang(wire)

    async with talking(play) as (engine, server), aclosing(engine.respond(ASK)) as deltas:
        assert await said(deltas) == TextDelta("Hel")
        await engine.aclose()
        with pytest.raises(EngineLost):
            await anext(deltas)
        await asyncio.wait_for(server.aborted.wait(), 20)
        with pytest.raises(EngineLost, match="closed"):
            await collect(engine)
        assert not await engine.ready()
        await engine.aclose()


# Connections.


async def test_connections_are_used_again_after_whole_answers_and_refusals() -> None:
    async def play(wire: Wire) -> None:
        if wire.number == 2:
            raise Refuse(400, "no")
        await wire.write(*ANSWER)
        await settle()  # the end of the body comes by itself

    async with talking(play) as (engine, server):
        await collect(engine)
        with pytest.raises(EngineRefused):
            await collect(engine)
        await collect(engine)
        assert len(server.wires) == 3
        assert len(server.connections) == 1


async def test_nothing_is_left_behind() -> None:
    async def play(wire: Wire) -> None:
        match wire.number % 4:
            case 0:
                await wire.write(*ANSWER)
            case 1:
                raise Refuse(500)
            case 2:
                await wire.write(ROLE)
                wire.drop()
            case 3:
                await wire.write(chunk("Hel", "text"))
                await hang(wire)

    async def take_one(engine: VllmEngine) -> None:
        with contextlib.suppress(EngineError):
            async with aclosing(engine.respond(ASK)) as deltas:
                await anext(deltas)

    async with serving(play) as server:
        tasks = asyncio.all_tasks()
        async with client(server.url) as engine:
            await asyncio.gather(*(take_one(engine) for _ in range(40)))
        await until(lambda: server.open_connections == 0)
        await until(lambda: asyncio.all_tasks() == tasks)


class Raw:
    """A server below HTTP: each connection is played by the next of its scripts."""

    REPLY = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: %d\r\n\r\n%s"
    TEXT = b"".join((chunk("Hello.", finish="stop"), DONE))

    def __init__(self, *answers: int) -> None:
        self._answers = list(answers)
        "How many requests each connection answers; the next one it drops."
        self.requests = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers = self._answers.pop(0)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = next(line for line in head.lower().split(b"\r\n") if b"content-length" in line)
                await reader.readexactly(int(length.split(b":")[1]))
                self.requests += 1
                if not answers:
                    break
                answers -= 1
                writer.write(self.REPLY % (len(self.TEXT), self.TEXT))
        writer.close()


@asynccontextmanager
async def raw(*answers: int) -> AsyncGenerator[tuple[VllmEngine, Raw]]:
    server = Raw(*answers)
    async with await asyncio.start_server(server.serve, "127.0.0.1", 0) as listener:
        host, port = listener.sockets[0].getsockname()
        async with client(f"http://{host}:{port}") as engine:
            yield engine, server


async def test_a_pooled_connection_that_was_dropped_is_replaced_once() -> None:
    async with raw(1, 1) as (engine, server):
        for _ in range(2):
            assert await collect(engine) == [TextDelta("Hello."), Done("stop")]
        assert server.requests == 3


async def test_a_dropped_connection_is_not_replaced_twice() -> None:
    async with raw(1, 0, 1) as (engine, server):
        await collect(engine)
        with pytest.raises(EngineLost, match="closed the connection"):
            await collect(engine)
        assert server.requests == 3


async def test_two_dropped_connections_in_a_row_are_not_passed_over() -> None:
    async with raw(1, 1, 1) as (engine, server):
        await asyncio.gather(collect(engine), collect(engine))
        with pytest.raises(EngineLost, match="closed the connection"):
            await collect(engine)
        assert server.requests == 4


async def test_a_fresh_connection_that_is_dropped_is_not_replaced() -> None:
    """The engine may have begun, or the request itself may be what kills it."""
    async with raw(0, 1) as (engine, server):
        with pytest.raises(EngineLost, match="closed the connection"):
            await collect(engine)
        assert server.requests == 1


class Watch(logging.Handler):
    """Does something at the moment the client says that it tries again."""

    def __init__(self, act: Callable[[], None]) -> None:
        super().__init__()
        self.times = 0
        self._act = act

    def emit(self, record: logging.LogRecord) -> None:
        if "once more" in record.getMessage():
            self.times += 1
            self._act()


@contextlib.contextmanager
def watching(act: Callable[[], None]) -> Any:
    logger = logging.getLogger("visavis.engine.http")
    watch, level = Watch(act), logger.level
    logger.addHandler(watch)
    logger.setLevel(logging.DEBUG)
    try:
        yield watch
    finally:
        logger.removeHandler(watch)
        logger.setLevel(level)


async def test_an_engine_that_comes_up_at_the_second_try_serves_the_call(tmp_path: Path) -> None:
    server = Server(say_hello)
    await server.runner.setup()
    with socket.socket(socket.AF_UNIX) as listener:

        def start() -> None:
            listener.bind(str(tmp_path / "s"))
            listener.listen()

        with watching(start) as watch:
            async with client(f"unix://{tmp_path / 's'}") as engine, asyncio.TaskGroup() as tasks:
                answer = tasks.create_task(collect(engine))
                await until(lambda: watch.times == 1)
                await web.SockSite(server.runner, listener).start()
            assert plain(answer.result()) == HELLO
        await server.runner.cleanup()


async def test_an_engine_that_is_not_there_is_tried_twice_and_its_address_is_for_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with watching(lambda: None) as watch:
        async with client(f"unix://{tmp_path / 'nothing'}") as engine:
            with pytest.raises(EngineLost, match="cannot be reached") as caught:
                await collect(engine)
            assert "nothing" not in str(caught.value)
            assert "nothing" in caplog.text
            assert watch.times == 1
            assert not await engine.ready()


# The rest.


async def test_ready_is_what_the_health_says() -> None:
    async with talking(say_hello) as (engine, server):
        assert await engine.ready()
        server.health = 503
        assert not await engine.ready()


async def test_the_log_holds_neither_secrets_nor_what_is_said(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with talking(say_hello, api_key="secret") as (engine, _):
        await collect(engine, Request("call-1", (Message("user", (TextPart("private"),)),)))
    assert "call-1" in caplog.text
    assert not any(word in caplog.text for word in ("secret", "private", "Hel"))


@pytest.mark.parametrize("key", ["secret\n", "sec\rret", "secret\x00"])
def test_a_key_with_what_no_header_may_hold_is_a_mistake_that_is_not_shown(key: str) -> None:
    with pytest.raises(ConfigError, match=r"engine\.api_key") as caught:
        VllmEngine(replace(CONFIG, api_key=key))
    assert "ret" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "localhost:8000",
        "ftp://host",
        "unix://relative",
        "http://",
        "unix://",
        "http://:80",
        "http://[::1",
        "http://host:99999",
    ],
)
def test_an_address_that_is_no_use_is_named(url: str) -> None:
    with pytest.raises(ConfigError, match=r"engine\.url"):
        VllmEngine(replace(CONFIG, url=url))
