import base64
import json
from typing import Any

import numpy as np
import pytest

from visavis.audio import encode_wav
from visavis.config import Tool, ToolChoice
from visavis.engine import Done, ToolCall
from visavis.engine.chat import ReplyDecoder
from visavis.errors import EngineRefused
from visavis.local.contract import (
    Audio,
    Chunks,
    End,
    Piece,
    Sound,
    Text,
    Transcript,
    Turn,
    parse_request,
)


def body(content: Any, **more: Any) -> dict[str, Any]:
    return {"stream": True, "messages": [{"role": "user", "content": content}]} | more


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


WAV = encode_wav(np.arange(1600, dtype=np.int16), 16_000)


def test_a_request_with_sound_and_a_clip_is_read() -> None:
    ask = parse_request(
        {
            "stream": True,
            "stream_options": {"include_usage": True},
            "modalities": ["text", "audio"],
            "temperature": 0.5,
            "max_tokens": 512,
            "messages": [
                {"role": "system", "content": "Be kind."},
                {
                    "role": "user",
                    "content": [
                        {
                            "type": "video_url",
                            "video_url": {"url": f"data:video/jpeg;base64,{b64(b'1')},{b64(b'2')}"},
                        },
                        {"type": "image_url", "image_url": {"url": f"data:image/jpeg;base64,{b64(b'3')}"}},
                        {
                            "type": "input_audio",
                            "input_audio": {"data": b64(WAV), "format": "wav"},
                            "uuid": "u",
                        },
                        {"type": "text", "text": "And this?"},
                    ],
                },
            ],
        },
        caller="call-1",
    )
    system, user = ask.turns
    assert (system.role, system.text) == ("system", "Be kind.")
    assert user.jpegs == (b"1", b"2", b"3")
    assert user.text == "And this?"
    assert len(user.sounds[0].pcm()) == 1600
    assert (ask.speak, ask.usage, ask.temperature, ask.max_tokens) == (True, True, 0.5, 512)
    assert ask.caller == "call-1"


def test_equal_sounds_have_equal_keys_whatever_their_uuid() -> None:
    def key(uuid: str, data: bytes) -> str:
        part = {"type": "input_audio", "input_audio": {"data": b64(data)}, "uuid": uuid}
        return parse_request(body([part])).turns[0].sounds[0].key

    assert key("u1", WAV) == key("u2", WAV) != key("u1", WAV + b"\0")


def test_text_alone_is_not_spoken() -> None:
    assert not parse_request(body("Hi", modalities=["text"])).speak
    assert parse_request(body("Hi")).speak


def test_sound_is_resampled_to_what_the_recogniser_hears() -> None:
    wav = encode_wav(np.zeros(4800, np.int16), 48_000)
    assert len(Sound(wav, "k").pcm()) == 1600


def test_sound_that_is_no_wav_is_refused() -> None:
    with pytest.raises(EngineRefused, match="input_audio"):
        Sound(b"nonsense", "k").pcm()


def test_a_history_that_ends_with_the_assistant_is_gone_on_with() -> None:
    request = body("Hi")
    request["messages"].append({"role": "assistant", "content": "Hello"})
    assert parse_request(request).turns[-1].role == "user"


@pytest.mark.parametrize(
    ("request_body", "named"),
    [
        ([], "body"),
        ({"messages": [{"role": "user", "content": "Hi"}]}, "stream"),
        ({"stream": True}, "messages"),
        ({"stream": True, "messages": []}, "messages"),
        ({"stream": True, "messages": ["Hi"]}, r"messages\[0\]"),
        ({"stream": True, "messages": [{"role": "clown", "content": "Hi"}]}, r"messages\[0\]\.role"),
        (body(5), r"messages\[0\]\.content"),
        (body([{"type": "smell"}]), r"messages\[0\]\.content\[0\]\.type"),
        (body(["Hi"]), r"messages\[0\]\.content\[0\]\.type"),
        (body([{"type": "text", "text": 1}]), "text"),
        (body([{"type": "input_audio"}]), "input_audio"),
        (body([{"type": "input_audio", "input_audio": {"data": "%"}}]), "base64"),
        (body([{"type": "image_url", "image_url": {"url": "http://example.com/x.jpg"}}]), "data URLs"),
        (body([{"type": "image_url", "image_url": {"url": "data:text/html;base64,AA=="}}]), "data URLs"),
        (
            body([{"type": "video_url", "video_url": {"url": "data:video/jpeg;base64," + "AA==," * 65}}]),
            "64 pictures",
        ),
        (body("Hi", modalities=["smell"]), "modalities"),
        (body("Hi", modalities=[]), "modalities"),
        (body("Hi", temperature=3), "temperature"),
        (body("Hi", max_tokens=0), "max_tokens"),
        (body("Hi", max_tokens=True), "max_tokens"),
    ],
)
def test_what_cannot_be_read_is_refused_by_name(request_body: Any, named: str) -> None:
    with pytest.raises(EngineRefused, match=named):
        parse_request(request_body)


def events(data: bytes) -> list[Any]:
    lines = data.decode().removesuffix("\n\n").split("\n\n")
    assert all(line.startswith("data: ") for line in lines)
    return [line[6:] if line == "data: [DONE]" else json.loads(line[6:]) for line in lines]


def chunk(piece: Piece, *, usage: bool = False) -> list[Any]:
    return events(Chunks("id-1", 7, "local", usage=usage).piece(piece))


def test_the_first_chunk_names_the_role() -> None:
    (first,) = events(Chunks("id-1", 7, "local").begin())
    assert first == {
        "id": "id-1",
        "object": "chat.completion.chunk",
        "created": 7,
        "model": "local",
        "modality": "text",
        "choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}],
    }


@pytest.mark.parametrize(("piece", "modality"), [(Text("Grüß"), "text"), (Transcript("Grüß"), "transcript")])
def test_text_and_transcript_differ_in_their_modality(piece: Piece, modality: str) -> None:
    (got,) = chunk(piece)
    assert got["modality"] == modality
    assert got["choices"] == [{"index": 0, "delta": {"content": "Grüß"}, "finish_reason": None}]


def test_sound_is_bare_little_endian_pcm_with_its_metadata() -> None:
    (got,) = chunk(Audio(np.array([1, -2], np.int16)))
    (choice,) = got["choices"]
    assert got["modality"] == "audio"
    assert base64.b64decode(choice["delta"]["content"]) == b"\x01\x00\xfe\xff"
    assert choice["audio_metadata"] == {
        "format": "pcm16",
        "sample_rate_hz": 24_000,
        "frame_count": 2,
        "channels": 1,
    }


def test_the_end_gives_the_reason_the_usage_if_asked_for_and_done() -> None:
    reason, done = chunk(End("length", 5, 6))
    assert reason["choices"] == [{"index": 0, "delta": {}, "finish_reason": "length"}]
    assert "modality" not in reason
    assert done == "[DONE]"
    _, usage, done = chunk(End("stop", 5, 6), usage=True)
    assert usage["choices"] == []
    assert usage["usage"] == {"prompt_tokens": 5, "completion_tokens": 6, "total_tokens": 11}
    assert done == "[DONE]"


# Functions.

WEATHER = {
    "type": "function",
    "function": {"name": "weather", "description": "Tells.", "parameters": {"type": "object"}},
}


def test_functions_calls_and_results_are_read_as_vllm_reads_them() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": "Rain?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "assistant", "content": "See.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "Yes."},
    ]
    choice = {"type": "function", "function": {"name": "weather"}}
    ask = parse_request({"stream": True, "messages": messages, "tools": [WEATHER], "tool_choice": choice})
    assert ask.tools == (Tool("weather", "Tells.", '{"type": "object"}'),)
    assert ask.tool_choice == ToolChoice("function", "weather")
    made = ToolCall("c1", "weather", "{}")
    assert ask.turns[1:] == (
        Turn("assistant", calls=(made,)),
        Turn("assistant", "See.", calls=(made,)),
        Turn("tool", "Yes."),
    )


@pytest.mark.parametrize("choice", ["auto", "none", "required"])
def test_choices_in_a_word_are_read(choice: str) -> None:
    assert parse_request(body("Hi.", tool_choice=choice)).tool_choice.mode == choice


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"tools": 3}, "tools"),
        ({"tools": [3]}, r"tools\[0\]"),
        ({"tools": [{}]}, r"tools\[0\].function"),
        ({"tools": [{"function": {}}]}, r"tools\[0\].function.name"),
        ({"tools": [{"function": {"name": "a b"}}]}, r"tools\[0\].function"),
        ({"tools": [{"function": {"name": "a", "parameters": [1]}}]}, r"tools\[0\].function"),
        ({"tools": [WEATHER] * 65}, "tools"),
        ({"tool_choice": "perhaps"}, "tool_choice"),
    ],
)
def test_functions_that_cannot_be_read_are_refused_by_name(more: dict[str, Any], field: str) -> None:
    with pytest.raises(EngineRefused, match=field):
        parse_request(body("Hi.", **more))


@pytest.mark.parametrize("calls", [3, [3], [{}], [{"function": {"name": "a"}}]])
def test_calls_that_cannot_be_read_are_refused(calls: object) -> None:
    messages = [{"role": "assistant", "tool_calls": calls}, {"role": "user", "content": "Hi."}]
    with pytest.raises(EngineRefused, match=r"messages\[0\].tool_calls"):
        parse_request({"stream": True, "messages": messages})


def test_a_call_is_written_so_that_the_servers_own_client_reads_it() -> None:
    call = ToolCall("c1", "weather", '{"place": "Rome"}')
    chunks = Chunks("id", 0, "model")
    stream = chunks.begin() + chunks.piece(call) + chunks.piece(End("tool_calls"))
    decoder = ReplyDecoder(speak=True, tools=True)
    events = [line.removeprefix("data: ") for line in stream.decode().split("\n\n") if line]
    assert [delta for event in events for delta in decoder.receive_event(event)] == [call, Done("tool_calls")]
