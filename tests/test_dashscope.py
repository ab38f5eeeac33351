"""The hosted model's client against a server of the test's own that answers as DashScope documents."""

import asyncio
import base64
import io
import json
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from typing import Any

import av
import numpy as np
import pytest
from aiohttp import web

from visavis.audio import RATE, Pcm, decode_wav
from visavis.clip import blank_jpeg
from visavis.config import EngineConfig, FusionConfig, RouterConfig
from visavis.engine import (
    AudioDelta,
    AudioPart,
    CallPart,
    Delta,
    Done,
    FramesPart,
    Message,
    Part,
    Request,
    ResultPart,
    Sent,
    TextDelta,
    TextPart,
    ThinkingDelta,
    Tool,
    ToolCall,
    Usage,
)
from visavis.engine.dashscope import DashscopeDecoder, DashscopeEngine
from visavis.engine.router import Entry, RouterEngine
from visavis.engine.scripted import ScriptedEngine
from visavis.errors import ConfigError, EngineBusy, EngineLost, EngineRefused
from visavis.frames import Frame

KEY = "sk-0123456789"
CONFIG = EngineConfig(name="dashscope", api_key=KEY, model="qwen3-omni-flash", voice="Cherry", connect_s=5)
RAMP: Pcm = np.arange(-600, 600, dtype=np.int16)
ASK = Request("call-1", (Message("user", (TextPart("Hi."),)),))

Body = dict[str, Any]
Play = Callable[[Body, int], web.Response | list[bytes]]
"From a request's JSON and its number, counted from 1, to the answer: whole, or the pieces of a stream."


def event(data: object) -> bytes:
    return b"data: " + json.dumps(data).encode() + b"\n\n"


def chunk(delta: Body, finish: str | None = None) -> bytes:
    choice = {"delta": delta, "finish_reason": finish, "index": 0, "logprobs": None}
    return event({"choices": [choice], "object": "chat.completion.chunk", "usage": None, "id": "chatcmpl-1"})


def sound(pcm: Pcm) -> bytes:
    data = base64.b64encode(pcm.tobytes()).decode()
    return chunk({"audio": {"data": data, "expires_at": 1_757_647_879, "id": "audio_1"}})


def error(message: str, code: str) -> Body:
    return {"error": {"message": message, "type": code, "param": None, "code": code}, "request_id": "r-1"}


def refusal(status: int, message: str, code: str) -> web.Response:
    return web.json_response(error(message, code), status=status)


STOP = chunk({"content": ""}, "stop")
USAGE = event(
    {
        "choices": [],
        "usage": {
            "prompt_tokens": 207,
            "completion_tokens": 103,
            "total_tokens": 310,
            "completion_tokens_details": {"audio_tokens": 83, "text_tokens": 20},
        },
    }
)
DONE = b"data: [DONE]\n\n"
ANSWER = [
    chunk({"content": "Hel", "role": "assistant"}),
    chunk({"content": "lo."}),
    sound(RAMP),
    STOP,
    USAGE,
    DONE,
]


class Server:
    def __init__(self, play: Play) -> None:
        self.url = ""
        self.bodies: list[Body] = []
        self.headers: list[Any] = []
        self.models = 200
        self.aborted = asyncio.Event()
        self._play = play
        app = web.Application(client_max_size=2**26)
        app.router.add_post("/compatible-mode/v1/chat/completions", self._chat)
        app.router.add_get("/compatible-mode/v1/models", self._models)
        self.runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)

    async def _models(self, request: web.Request) -> web.Response:
        return web.Response(status=self.models)

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        self.bodies.append(await request.json())
        self.headers.append(request.headers)
        answer = self._play(self.bodies[-1], len(self.bodies))
        if isinstance(answer, web.Response):
            return answer
        stream = web.StreamResponse(headers={"Content-Type": "text/event-stream;charset=UTF-8"})
        await stream.prepare(request)
        try:
            for piece in answer:
                if piece == CUT:
                    assert request.transport is not None
                    request.transport.abort()
                if piece == HANG:
                    await asyncio.Event().wait()
                await stream.write(piece)
        except (asyncio.CancelledError, ConnectionError):
            self.aborted.set()
            raise
        return stream


CUT, HANG = b"cut", b"hang"


@asynccontextmanager
async def talking(play: Play, **settings: Any) -> AsyncIterator[tuple[DashscopeEngine, Server]]:
    server = Server(play)
    await server.runner.setup()
    await web.TCPSite(server.runner, "127.0.0.1", 0).start()
    host, port = server.runner.addresses[0][:2]
    server.url = f"http://{host}:{port}/compatible-mode/v1"
    engine = DashscopeEngine(replace(CONFIG, **({"url": server.url} | settings)), FusionConfig())
    try:
        yield engine, server
    finally:
        await engine.aclose()
        await server.runner.cleanup()


def playing(*pieces: bytes) -> Play:
    return lambda body, number: list(pieces)


async def collect(
    engine: DashscopeEngine, request: Request = ASK, taken: list[Delta] | None = None
) -> list[Delta]:
    """Take a whole response without `Sent`, into `taken` if given."""
    taken = [] if taken is None else taken
    async with asyncio.timeout(20), aclosing(engine.respond(request)) as deltas:
        async for delta in deltas:
            if not isinstance(delta, Sent):
                taken.append(delta)
    return taken


async def sent(*parts: Part, **settings: Any) -> list[Body]:
    """Return the messages that a user's message with these parts becomes."""
    async with talking(playing(*ANSWER), **settings) as (engine, server):
        await collect(engine, Request("call-1", (Message("user", parts),)))
        messages = server.bodies[0]["messages"]
    assert isinstance(messages, list)
    return messages


def text(deltas: list[Delta]) -> str:
    return "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))


def heard(deltas: list[Delta]) -> Pcm:
    return np.concatenate([delta.pcm for delta in deltas if isinstance(delta, AudioDelta)])


def frame(at: int) -> Frame:
    return Frame(blank_jpeg((64, 48)), 64, 48, at)


SPEECH = AudioPart(np.full(2 * RATE, 900, np.int16), "call-1-audio", at=RATE)
CAMERA = FramesPart((frame(RATE), frame(2 * RATE)), "call-1-frames")


# What is asked.


async def test_the_request_is_the_documented_one() -> None:
    async with talking(playing(*ANSWER), temperature=0.6, top_p=0.8, max_tokens=300) as (engine, server):
        rules = Message("system", (TextPart("Be brief."),))
        await collect(engine, Request("call-1", (rules, *ASK.messages)))
    assert server.bodies == [
        {
            "model": "qwen3-omni-flash",
            "stream": True,
            "stream_options": {"include_usage": True},
            "modalities": ["text", "audio"],
            "audio": {"voice": "Cherry", "format": "wav"},
            "max_tokens": 300,
            "temperature": 0.6,
            "top_p": 0.8,
            "messages": [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": "Hi."},
            ],
        }
    ]
    assert server.headers[0]["Authorization"] == f"Bearer {KEY}"


async def test_who_wants_no_sound_is_asked_for_none() -> None:
    async with talking(playing(*ANSWER)) as (engine, server):
        await collect(engine, replace(ASK, speak=False))
    assert server.bodies[0]["modalities"] == ["text"]
    assert "audio" not in server.bodies[0]


async def test_camera_and_speech_of_a_turn_travel_as_one_video_with_sound() -> None:
    (message,) = await sent(CAMERA, SPEECH)
    (part,) = message["content"]
    assert part["type"] == "video_url"
    prefix, data = part["video_url"]["url"].split(",")
    assert prefix == "data:;base64"
    with av.open(io.BytesIO(base64.b64decode(data))) as clip:
        assert [stream.type for stream in clip.streams] == ["video", "audio"]
        assert {stream.codec_context.name for stream in clip.streams} == {"h264", "aac"}


async def test_speech_without_a_camera_travels_as_sound() -> None:
    (message,) = await sent(SPEECH)
    (part,) = message["content"]
    assert part["type"] == "input_audio"
    assert part["input_audio"]["format"] == "wav"
    prefix, data = part["input_audio"]["data"].split(",")
    assert prefix == "data:;base64"
    pcm, rate = decode_wav(base64.b64decode(data))
    assert (len(pcm), rate) == (2 * 16_000, 16_000)


async def test_what_was_written_goes_with_the_picture_seen_meanwhile() -> None:
    one = FramesPart((frame(0),), "call-1-frames")
    (message,) = await sent(TextPart("What is this?"), one)
    assert [part["type"] for part in message["content"]] == ["text", "image_url"]
    assert message["content"][1]["image_url"]["url"].startswith("data:image/jpeg;base64,/9j")


async def test_sent_apart_pictures_and_speech_are_two_messages() -> None:
    pictures, speech = await sent(CAMERA, SPEECH, TextPart("Well?"), media="separate")
    (video,) = pictures["content"]
    assert video["type"] == "video"
    assert [url.split(",")[0] for url in video["video"]] == ["data:image/jpeg;base64"] * 2
    assert [part["type"] for part in speech["content"]] == ["input_audio", "text"]


async def test_two_turns_in_one_message_become_messages_of_one_medium_each() -> None:
    again = AudioPart(SPEECH.pcm, "call-2-audio")
    messages = await sent(SPEECH, again)
    assert [[part["type"] for part in message["content"]] for message in messages] == [["input_audio"]] * 2
    assert {message["role"] for message in messages} == {"user"}


async def test_history_keeps_its_order_and_roles() -> None:
    history = (
        Message("user", (replace(SPEECH, uuid="call-0-audio"),)),
        Message("assistant", (TextPart("Yes."),)),
        Message("user", (CAMERA, SPEECH)),
    )
    async with talking(playing(*ANSWER)) as (engine, server):
        await collect(engine, Request("call-1", history))
    assert [message["role"] for message in server.bodies[0]["messages"]] == ["user", "assistant", "user"]


# What is answered.


async def test_text_sound_and_usage_come_as_deltas_and_done_last() -> None:
    async with talking(playing(*ANSWER)) as (engine, _):
        deltas = await collect(engine)
    assert text(deltas) == "Hello."
    assert np.array_equal(heard(deltas), RAMP)
    assert deltas[-2:] == [Usage(207, 103, output_audio_tokens=83), Done("stop")]


async def test_words_that_come_as_the_sounds_transcript_are_the_text() -> None:
    spoken = [chunk({"audio": {"transcript": word}}) for word in ("Hel", "lo.")]
    async with talking(playing(*spoken, sound(RAMP), STOP, DONE)) as (engine, _):
        deltas = await collect(engine)
    assert text(deltas) == "Hello."
    assert len(heard(deltas)) == len(RAMP)


async def test_a_transcript_beside_the_text_is_not_said_twice() -> None:
    both = chunk({"content": "Hello."}), chunk({"audio": {"transcript": "Hello."}})
    async with talking(playing(*both, STOP, DONE)) as (engine, _):
        assert text(await collect(engine)) == "Hello."


async def test_sound_cut_within_a_sample_is_put_together() -> None:
    data = RAMP.tobytes()
    pieces = [
        chunk({"audio": {"data": base64.b64encode(part).decode()}}) for part in (data[:333], data[333:])
    ]
    async with talking(playing(*pieces, STOP, DONE)) as (engine, _):
        assert np.array_equal(heard(await collect(engine)), RAMP)


async def test_an_answer_cut_at_its_length_says_so() -> None:
    async with talking(playing(chunk({"content": "Hel"}), chunk({"content": ""}, "length"), DONE)) as (
        engine,
        _,
    ):
        assert (await collect(engine))[-1] == Done("length")


CLOCK = Tool("clock", "Tells the time.", '{"type": "object", "properties": {}}')


async def test_functions_are_offered_and_calls_read_and_what_would_be_heard_of_them_is_not() -> None:
    first = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "clock", "arguments": ""}}
    rest = {"index": 0, "id": "", "function": {"arguments": "{}"}}
    stream = playing(
        chunk({"content": None, "tool_calls": [first]}),
        chunk({"content": None, "tool_calls": [rest]}),
        sound(RAMP),
        chunk({}, "tool_calls"),
        b"data: [DONE]\n\n",
    )
    async with talking(stream) as (engine, server):
        deltas = await collect(engine, replace(ASK, tools=(CLOCK,)))
    assert deltas == [ToolCall("call_1", "clock", "{}"), Done("tool_calls")]
    (body,) = server.bodies
    assert body["tools"][0]["function"]["name"] == "clock"
    assert body["tool_choice"] == "auto"


async def test_calls_and_results_of_the_past_keep_their_roles() -> None:
    messages = (
        *ASK.messages,
        Message("assistant", (CallPart("c1", "clock", "{}"),)),
        Message("tool", (ResultPart("c1", "noon"),)),
    )
    for manner, roles in (
        ("server", ["user", "assistant", "tool"]),
        ("text", ["system", "user", "assistant", "user"]),
    ):
        async with talking(playing(chunk({"content": "Noon."}, "stop")), tools=manner) as (engine, server):
            assert text(await collect(engine, replace(ASK, messages=messages, tools=(CLOCK,)))) == "Noon."
        (body,) = server.bodies
        assert [message["role"] for message in body["messages"]] == roles
        assert ("tools" in body) == (manner == "server")


async def test_a_thinking_model_thinks_and_answers_in_text() -> None:
    pieces = chunk({"content": None, "reasoning_content": "Hm, "}), chunk({"reasoning_content": "hello."})
    async with talking(playing(*pieces, *ANSWER[:2], STOP, DONE), thinking=True) as (engine, server):
        deltas = await collect(engine)
    assert deltas == [
        ThinkingDelta("Hm, "),
        ThinkingDelta("hello."),
        TextDelta("Hel"),
        TextDelta("lo."),
        Done(),
    ]
    assert server.bodies[0]["enable_thinking"] is True
    assert server.bodies[0]["modalities"] == ["text"]
    assert "audio" not in server.bodies[0]


async def test_an_answer_that_the_filter_cuts_off_ends_as_filtered() -> None:
    cut = event(error("Output data may contain inappropriate content.", "data_inspection_failed"))
    async with talking(playing(chunk({"content": "Hel"}), cut)) as (engine, _):
        assert await collect(engine) == [TextDelta("Hel"), Done("content_filter")]


# Voices.


def singer(known: str, *, streamed: bool = False) -> Play:
    """Make a server that has one voice."""

    def play(body: Body, number: int) -> web.Response | list[bytes]:
        voice = body["audio"].get("voice", known)
        if voice == known:
            return ANSWER
        message = f"<400> InternalError.Algo.InvalidParameter: Voice '{voice}' is not supported."
        if streamed:
            return [event(error(message, "invalid_parameter_error")), DONE]
        return refusal(400, message, "invalid_parameter_error")

    return play


@pytest.mark.parametrize("streamed", [False, True], ids=["HTTP 400", "HTTP 200"])
async def test_a_voice_that_is_unknown_is_replaced_by_the_configured_one_and_remembered(
    streamed: bool,
) -> None:
    async with talking(singer("Cherry", streamed=streamed)) as (engine, server):
        for _ in range(2):
            assert text(await collect(engine, replace(ASK, voice="alloy"))) == "Hello."
    assert [body["audio"]["voice"] for body in server.bodies] == ["alloy", "Cherry", "Cherry"]


async def test_a_configured_voice_that_is_unknown_leaves_the_choice_to_the_service() -> None:
    async with talking(singer("Tina"), voice="Ethan") as (engine, server):
        assert text(await collect(engine, replace(ASK, voice="alloy"))) == "Hello."
    assert [body["audio"].get("voice") for body in server.bodies] == ["alloy", "Ethan", None]


async def test_each_family_of_models_has_a_voice_that_it_knows() -> None:
    voices = []
    for model in ("qwen3-omni-flash", "qwen3.5-omni-plus"):
        async with talking(playing(*ANSWER), voice=None, model=model) as (engine, server):
            await collect(engine)
        voices.append(server.bodies[0]["audio"]["voice"])
    assert voices == ["Cherry", "Tina"]


# Errors.


async def test_a_wrong_key_is_told_as_such_and_never_shown(caplog: pytest.LogCaptureFixture) -> None:
    wrong = refusal(401, f"Incorrect API key provided: {KEY}.", "invalid_api_key")
    with caplog.at_level(logging.DEBUG):
        async with talking(lambda body, number: wrong) as (engine, server):
            with pytest.raises(EngineRefused, match="DASHSCOPE_API_KEY") as caught:
                await collect(engine)
    assert KEY not in str(caught.value)
    assert KEY not in caplog.text
    assert KEY not in repr(CONFIG)
    assert len(server.bodies) == 1


@pytest.mark.parametrize(
    ("status", "message", "code", "kind"),
    [
        (400, "Input data may contain inappropriate content.", "data_inspection_failed", EngineRefused),
        (400, "Access denied, your account is not in good standing.", "Arrearage", EngineRefused),
        (404, "The model `x` does not exist.", "model_not_found", EngineRefused),
        (429, "You exceeded your current requests list.", "limit_requests", EngineBusy),
        (429, "Requests rate limit exceeded.", "Throttling.RateQuota", EngineBusy),
        (503, "Too many requests.", "ServiceUnavailable", EngineBusy),
        (500, "An internal error has occurred.", "InternalError", EngineLost),
    ],
    ids=lambda value: value if isinstance(value, str) and " " not in value else "",
)
async def test_errors_are_of_the_kind_that_they_are_wherever_they_come(
    status: int, message: str, code: str, kind: type[Exception]
) -> None:
    plays: list[Play] = [lambda body, number: refusal(status, message, code)]
    if status != 503:
        plays.append(playing(event(error(message, code)), DONE))
    for play in plays:
        async with talking(play) as (engine, _):
            with pytest.raises(kind, match=message.split(".")[0]):
                await collect(engine)


async def test_the_status_in_a_message_counts_more_than_its_code() -> None:
    told = event(error("<429> InternalError.Algo: too many", "internal_error"))
    async with talking(playing(told)) as (engine, _):
        with pytest.raises(EngineBusy):
            await collect(engine)


async def test_an_error_that_is_no_object_is_one_all_the_same() -> None:
    async with talking(playing(event({"error": "broken"}))) as (engine, _):
        with pytest.raises(EngineLost, match="broken"):
            await collect(engine)


async def test_a_stream_that_is_cut_is_lost_after_what_came() -> None:
    taken: list[Delta] = []
    async with talking(playing(chunk({"content": "Hel"}), CUT)) as (engine, _):
        with pytest.raises(EngineLost, match="broke off"):
            await collect(engine, taken=taken)
    assert taken == [TextDelta("Hel")]


async def test_a_stream_that_ends_too_early_is_lost() -> None:
    async with talking(playing(chunk({"content": "Hel"}))) as (engine, _):
        with pytest.raises(EngineLost, match="broke off"):
            await collect(engine)


async def test_a_service_that_falls_silent_is_lost() -> None:
    async with talking(playing(chunk({"content": "Hel"}), HANG), idle_s=0.05) as (engine, _):
        with pytest.raises(EngineLost, match="silent"):
            await collect(engine)


async def test_closing_the_answer_closes_its_connection() -> None:
    async with talking(playing(chunk({"content": "Hel"}), HANG)) as (engine, server):
        async with aclosing(engine.respond(ASK)) as deltas:
            async for delta in deltas:
                if isinstance(delta, TextDelta):
                    break
        async with asyncio.timeout(20):
            await server.aborted.wait()


async def test_a_broken_chunk_is_an_error_and_later_ones_are_ignored() -> None:
    decoder = DashscopeDecoder(speak=True)
    for broken in ("{", "[]"):
        with pytest.raises(EngineLost, match="JSON"):
            decoder.receive_event(broken)
    assert decoder.receive_event('{"choices": [{"delta": {"audio": "none"}}]}') == []
    assert decoder.receive_event('{"choices": [{"delta": null, "finish_reason": "stop"}]}') == []
    assert decoder.receive_event("[DONE]") == [Done()]
    assert decoder.receive_event("{") == decoder.receive_eof() == []


# As an engine.


async def test_it_is_ready_if_the_service_takes_the_key() -> None:
    async with talking(playing(*ANSWER)) as (engine, server):
        assert await engine.ready()
        for status, ready in ((401, False), (403, False), (404, True)):
            server.models = status
            assert await engine.ready() is ready
    assert not await engine.ready()


def test_without_a_key_there_is_no_engine() -> None:
    with pytest.raises(ConfigError, match="set DASHSCOPE_API_KEY"):
        DashscopeEngine(replace(CONFIG, api_key=None), FusionConfig())


def test_an_address_that_is_none_is_a_mistake() -> None:
    with pytest.raises(ConfigError, match="https://"):
        DashscopeEngine(replace(CONFIG, url="unix:///socket"), FusionConfig())


async def test_behind_a_router_a_refused_answer_is_the_next_engines() -> None:
    async with talking(lambda body, number: refusal(400, "No.", "data_inspection_failed")) as (engine, _):
        entries = [Entry("hosted", engine, 8, 8), Entry("laptop", ScriptedEngine(), 8, 8)]
        router = RouterEngine(entries, None, RouterConfig())
        async with aclosing(router.respond(ASK)) as deltas:
            assert "You wrote: Hi." in text([delta async for delta in deltas])
    assert router.counts()["hosted", "passed over", "refused"] == 1
