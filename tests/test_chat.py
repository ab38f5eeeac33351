import base64
import json
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from visavis.audio import RATE, Pcm, decode_wav, encode_wav, resample
from visavis.config import Config, EngineConfig, FusionConfig, SessionConfig
from visavis.engine import (
    AudioDelta,
    AudioPart,
    Delta,
    Done,
    FramesPart,
    Message,
    Request,
    TextDelta,
    TextPart,
    ThinkingDelta,
    TranscriptDelta,
    Usage,
)
from visavis.engine.chat import ReplyDecoder, http_error, request_body
from visavis.errors import EngineBusy, EngineError, EngineLost, EngineRefused
from visavis.frames import Frame
from visavis.fusion import Fuser

CONFIG = EngineConfig(name="vllm", model="tiny", voice="ethan", max_tokens=99)
FUSER = Fuser(FusionConfig(), "separate")
RAMP: Pcm = np.arange(-600, 600, dtype=np.int16)


def body(*messages: Message, config: EngineConfig = CONFIG, **fields: Any) -> Any:
    return json.loads(request_body(Request("call-1", messages, **fields), config, FUSER))


def user(*parts: TextPart | AudioPart | FramesPart) -> Message:
    return Message("user", parts)


def frame(number: int, width: int = 640) -> Frame:
    return Frame(b"jpeg %d" % number, width, 480, number)


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


# The request.


def test_a_spoken_reply_is_asked_for_as_vllm_omni_wants_it() -> None:
    assert body(user(TextPart("Hi.")), voice="ethan") == {
        "model": "tiny",
        "stream": True,
        "stream_options": {"include_usage": True},
        "modalities": ["text", "audio"],
        "audio": {"format": "pcm16"},
        "voice": "ethan",
        "max_tokens": 99,
        "messages": [{"role": "user", "content": "Hi."}],
    }


def test_a_written_reply_names_no_sound_and_no_voice() -> None:
    sent = body(user(TextPart("Hi.")), speak=False, voice="chelsie")
    assert sent["modalities"] == ["text"]
    assert not {"audio", "voice"} & sent.keys()


def test_the_requests_own_settings_come_first() -> None:
    sent = body(user(TextPart("Hi.")), voice="aiden", temperature=0.0, max_tokens=7)
    assert (sent["voice"], sent["temperature"], sent["max_tokens"]) == ("aiden", 0.0, 7)


def test_without_any_voice_the_engine_chooses() -> None:
    assert "voice" not in body(user(TextPart("Hi.")))


def test_settings_of_the_thinker_go_as_they_are_configured() -> None:
    settings: dict[str, Any] = {
        "temperature": 0.7,
        "top_p": 0.9,
        "top_k": 40,
        "min_tokens": 2,
        "seed": 0,
        "presence_penalty": 0.5,
        "frequency_penalty": 0.25,
    }
    sent = body(user(TextPart("Hi.")), config=EngineConfig(stop=("\n\n",), **settings))
    assert {name: sent[name] for name in settings} == settings
    assert sent["stop"] == ["\n\n"]


def test_settings_that_are_not_configured_are_left_to_the_model() -> None:
    assert body(user(TextPart("Hi.")), config=EngineConfig(name="vllm")).keys() == {
        "model",
        "stream",
        "stream_options",
        "modalities",
        "audio",
        "max_tokens",
        "messages",
    }


def test_the_requests_temperature_comes_before_the_configurations() -> None:
    assert (
        body(user(TextPart("Hi.")), config=EngineConfig(temperature=0.7), temperature=0.0)["temperature"] == 0
    )


@pytest.mark.parametrize(
    ("asked", "settings", "sent"),
    [
        (None, {}, 512),
        (4_096, {}, 4_096),
        (100_000, {}, 8_192),
        (100_000, {"max_tokens_cap": 50}, 50),
        (None, {"max_tokens_cap": 50}, 50),
        (100_000, {"context_tokens": 8_192}, 2_048),
        (100_000, {"context_tokens": 65_536, "max_tokens_cap": 10_000}, 10_000),
        (7, {"thinking": True}, 16_384),
        (7, {"thinking": True, "context_tokens": 65_536}, 32_768),
        (7, {"thinking": True, "thinking_tokens": 9_000}, 9_000),
    ],
)
def test_an_answer_is_bounded_by_settings_and_window(
    asked: int | None, settings: dict[str, Any], sent: int
) -> None:
    config = EngineConfig(name="vllm", **settings)
    assert body(user(TextPart("Hi.")), config=config, max_tokens=asked)["max_tokens"] == sent


@pytest.mark.parametrize("settings", [{}, {"thinking": True}, {"context_tokens": 65_536}, {"name": "local"}])
def test_the_longest_request_and_the_longest_answer_fit_the_window(settings: dict[str, Any]) -> None:
    config = EngineConfig(**{"name": "vllm", **settings})
    assert 0 < config.history_tokens <= config.window - config.answer_tokens
    assert Config(engine=config).conversation_with(SessionConfig()).history.budget == config.history_tokens


def test_sound_goes_as_16_khz_wav_with_its_name() -> None:
    pcm = np.rint(9_000 * np.sin(np.arange(RATE) / 30)).astype(np.int16)
    message = body(user(TextPart("Listen."), AudioPart(pcm, "utt-1")))["messages"][0]
    text, sound = message["content"]
    assert text == {"type": "text", "text": "Listen."}
    assert (sound["type"], sound["uuid"], sound["input_audio"]["format"]) == ("input_audio", "utt-1", "wav")
    heard, rate = decode_wav(base64.b64decode(sound["input_audio"]["data"]))
    assert rate == 16_000
    assert np.array_equal(heard, resample(pcm, RATE, 16_000))


def test_frames_of_one_size_are_one_clip() -> None:
    sent = body(user(FramesPart((frame(1), frame(2)), "clip-1")))
    url = f"data:video/jpeg;base64,{b64(b'jpeg 1')},{b64(b'jpeg 2')}"
    assert sent["messages"][0]["content"] == [
        {"type": "video_url", "video_url": {"url": url}, "uuid": "clip-1"}
    ]
    assert sent["media_io_kwargs"] == {"video": {"fps": 2, "num_frames": -1}}


def test_one_frame_is_a_picture() -> None:
    sent = body(user(FramesPart((frame(1),), "clip-1")))
    assert sent["messages"][0]["content"] == [
        {
            "type": "image_url",
            "image_url": {"url": f"data:image/jpeg;base64,{b64(b'jpeg 1')}"},
            "uuid": "clip-1-0",
        }
    ]
    assert not {"media_io_kwargs", "mm_processor_kwargs"} & sent.keys()


def test_a_whole_conversation_keeps_its_order_and_equal_requests_equal_bytes() -> None:
    messages = (
        Message("system", (TextPart("Be kind."),)),
        user(AudioPart(RAMP, "u1"), FramesPart((frame(1), frame(2)), "c1")),
        Message("assistant", (TextPart("Hello."), TextPart("You."))),
        user(TextPart("And?")),
    )
    sent = body(*messages)["messages"]
    assert [message["role"] for message in sent] == ["system", "user", "assistant", "user"]
    assert [part["type"] for part in sent[1]["content"]] == ["input_audio", "video_url"]
    assert [sent[0]["content"], sent[2]["content"]] == ["Be kind.", "Hello. You."]
    one, other = (request_body(Request("call-1", messages), CONFIG, FUSER) for _ in range(2))
    assert one == other


# The stream.


def chunk(
    content: str | None = None, modality: str | None = None, finish: str | None = None, **choice: Any
) -> str:
    delta = {} if content is None else {"content": content}
    data: dict[str, Any] = {"choices": [{"index": 0, "delta": delta, "finish_reason": finish} | choice]}
    if modality is not None:
        data["modality"] = modality
    return json.dumps(data)


def sound(data: bytes, **metadata: Any) -> str:
    if not metadata:
        return chunk(b64(data), "audio")
    return chunk(b64(data), "audio", audio_metadata=metadata)


def decode(*events: str, speak: bool = True, thinking: bool = False) -> list[Delta]:
    decoder = ReplyDecoder(speak=speak, thinking=thinking)
    return [delta for event in events for delta in decoder.receive_event(event)]


def heard(deltas: list[Delta]) -> Pcm:
    return np.concatenate([delta.pcm for delta in deltas if isinstance(delta, AudioDelta)])


def test_text_and_sound_come_in_the_order_of_the_stream() -> None:
    deltas = decode(
        chunk("", "text", role="assistant"),
        chunk("Hel", "text"),
        sound(RAMP.tobytes()),
        chunk("lo.", "text"),
        sound(RAMP.tobytes()),
    )
    assert [type(delta) for delta in deltas] == [TextDelta, AudioDelta, TextDelta, AudioDelta]
    assert [delta.text for delta in deltas if isinstance(delta, TextDelta)] == ["Hel", "lo."]
    assert np.array_equal(heard(deltas), np.tile(RAMP, 2))


def test_content_without_modality_is_text() -> None:
    assert decode(chunk("Hi.")) == [TextDelta("Hi.")]


def test_that_there_were_no_words_is_told() -> None:
    assert decode(chunk("", "transcript")) == [TranscriptDelta("")]


def test_a_transcript_is_what_the_user_said() -> None:
    final, partial = chunk("hi", "transcript"), json.loads(chunk("h", "transcript")) | {"final": False}
    assert decode(json.dumps(partial), final) == [TranscriptDelta("h", final=False), TranscriptDelta("hi")]


@pytest.mark.parametrize(
    "event",
    [
        chunk("x", "image"),
        chunk("x", "hologram", finish=None),
        chunk(None, "text"),
        chunk("", "audio"),
        chunk("", "text"),
        '{"choices": [], "usage": null}',
        '{"choices": [null]}',
        '{"choices": [{"delta": null}]}',
        '{"choices": [{"delta": {"content": ["x"]}}]}',
        '{"choices": "x"}',
        "{}",
    ],
)
def test_what_says_nothing_to_us_is_passed_over(event: str) -> None:
    assert decode(event) == []


@given(st.lists(st.integers(0, 2 * len(RAMP)), max_size=12))
def test_sound_may_be_cut_within_a_sample(cuts: list[int]) -> None:
    data = RAMP.tobytes()
    edges = [0, *sorted(cuts), len(data)]
    deltas = decode(*(sound(data[start:end]) for start, end in pairwise(edges)))
    assert np.array_equal(heard(deltas), RAMP)


def test_half_a_sample_alone_is_no_delta() -> None:
    assert decode(sound(b"\x01")) == []


def test_a_wav_header_on_every_chunk_is_taken_off() -> None:
    wav = encode_wav(RAMP, RATE)
    assert np.array_equal(heard(decode(sound(wav), sound(wav))), np.tile(RAMP, 2))


def test_sound_at_another_rate_is_resampled_without_seams() -> None:
    wave = np.rint(9_000 * np.sin(np.arange(4_000) / 20)).astype(np.int16)
    pieces = [wave[:1_111], wave[1_111:1_500], wave[1_500:]]
    metadata = {"format": "pcm16", "sample_rate_hz": 16_000, "channels": 1}
    cut = heard(decode(*(sound(piece.tobytes(), **metadata) for piece in pieces)))
    assert len(cut) == 6_000
    assert np.array_equal(cut, heard(decode(sound(wave.tobytes(), **metadata))))
    in_wav = heard(decode(*(sound(encode_wav(piece, 16_000)) for piece in pieces)))
    assert np.array_equal(in_wav, cut)


@pytest.mark.parametrize(
    "event",
    [
        chunk("no base64!", "audio"),
        sound(RAMP.tobytes(), sample_rate_hz=-1),
        sound(RAMP.tobytes(), sample_rate_hz="fast"),
        sound(RAMP.tobytes(), sample_rate_hz=23_999),
        sound(RAMP.tobytes(), channels=2),
        sound(b"RIFF....WAVE"),
    ],
)
def test_sound_that_cannot_be_read_is_a_fault_of_the_engine(event: str) -> None:
    with pytest.raises(EngineLost, match="cannot be read"):
        decode(event)


@pytest.mark.parametrize("event", ["{", "[]", "3", "null", "[" * 100_000])
def test_chunks_that_are_no_json_objects_are_a_fault_of_the_engine(event: str) -> None:
    with pytest.raises(EngineLost, match=r"not (a )?JSON"):
        decode(event)


def test_only_the_closing_usage_counts() -> None:
    usage = {"prompt_tokens": 5, "completion_tokens": 3}
    early = json.dumps(json.loads(sound(RAMP.tobytes())) | {"usage": usage})
    closing = json.dumps({"choices": [], "usage": usage | {"completion_tokens": 9}})
    assert [delta for delta in decode(early, closing) if isinstance(delta, Usage)] == [Usage(5, 9)]


@pytest.mark.parametrize(
    ("details", "expected"),
    [
        ({"cached_tokens": 4}, Usage(5, 3, cached_tokens=4)),
        (
            {"cached_tokens": 4, "multimodal_tokens": {"image": 2, "video": 1}},
            Usage(5, 3, 4, input_audio_tokens=0, input_image_tokens=3),
        ),
        ({"audio_tokens": 1, "image_tokens": 2}, Usage(5, 3, None, 1, 2)),
        ({"audio_tokens": "many", "cached_tokens": -1, "video_tokens": True}, Usage(5, 3)),
        ("none", Usage(5, 3)),
    ],
)
def test_what_a_request_consisted_of_is_told_where_the_engine_tells(details: object, expected: Usage) -> None:
    usage = {"prompt_tokens": 5, "completion_tokens": 3, "prompt_tokens_details": details}
    closing = json.dumps({"choices": [], "usage": usage})
    assert [delta for delta in decode(closing) if isinstance(delta, Usage)] == [expected]


@pytest.mark.parametrize("reason", ["stop", "length", "content_filter", "tool_calls"])
def test_the_reason_is_told_at_the_end(reason: str) -> None:
    assert decode(chunk("x", finish=reason), "[DONE]", chunk("late")) == [TextDelta("x"), Done(reason)]  # type: ignore[arg-type]


def test_the_reason_of_the_last_modality_counts() -> None:
    assert decode(chunk(None, "text", "length"), chunk(None, "audio", "stop"), "[DONE]") == [Done("stop")]


def test_unknown_reasons_are_a_plain_stop() -> None:
    assert decode(chunk(finish="repetition"), "[DONE]") == [Done("stop")]


# Thoughts.


def test_what_a_thinking_model_thinks_is_no_text() -> None:
    events = [chunk("It is"), chunk(" noon.</th"), chunk("ink>\n\nNo"), chunk("on.", finish="stop"), "[DONE]"]
    assert decode(*events, speak=False, thinking=True) == [
        ThinkingDelta("It is"),
        ThinkingDelta(" noon."),
        TextDelta("No"),
        TextDelta("on."),
        Done("stop"),
    ]


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
@pytest.mark.parametrize("thinking", [False, True])
def test_thoughts_that_the_server_has_parsed_are_no_text(name: str, thinking: bool) -> None:
    thought, answer = chunk(delta={name: "It is noon."}), chunk("Noon.", finish="stop")
    assert decode(chunk(""), thought, answer, "[DONE]", speak=False, thinking=thinking) == [
        ThinkingDelta("It is noon."),
        TextDelta("Noon."),
        Done("stop"),
    ]


def test_thoughts_in_both_fields_are_told_once() -> None:
    both = chunk(delta={"reasoning": "Hm.", "reasoning_content": "Hm.", "content": None})
    assert decode(both) == [ThinkingDelta("Hm.")]


@pytest.mark.parametrize("thoughts", [None, "", 3, ["Hm."]])
def test_an_empty_field_of_thoughts_says_nothing(thoughts: object) -> None:
    assert decode(chunk(delta={"reasoning": thoughts, "content": "Hi."})) == [TextDelta("Hi.")]


def test_the_end_of_a_text_that_looked_like_a_tag_is_not_lost() -> None:
    assert decode(chunk("1 <", finish="stop"), "[DONE]") == [TextDelta("1 "), TextDelta("<"), Done("stop")]


@pytest.mark.parametrize("end", [["[DONE]"], []])
def test_an_answer_that_ends_by_itself_within_its_thoughts_is_lost(end: list[str]) -> None:
    decoder = ReplyDecoder(speak=False, thinking=True)
    decoder.receive_event(chunk("It is noon.", finish="stop"))
    with pytest.raises(EngineLost, match="in the middle of its thoughts"):
        decoder.receive_event("[DONE]") if end else decoder.receive_eof()


def test_thoughts_that_use_up_the_budget_are_told_by_the_reason() -> None:
    events = [chunk("It is", finish="length"), "[DONE]"]
    assert decode(*events, speak=False, thinking=True) == [ThinkingDelta("It is"), Done("length")]


def test_sound_is_not_searched_for_tags() -> None:
    event = sound(RAMP.tobytes())
    assert np.array_equal(heard(decode(chunk("<think>", "text"), event)), RAMP)


@pytest.mark.parametrize("reason", ["abort", "error"])
def test_an_answer_that_the_engine_gave_up_is_lost(reason: str) -> None:
    with pytest.raises(EngineLost, match="gave up"):
        decode(chunk(finish=reason))


@pytest.mark.parametrize(
    ("events", "speak", "complete"),
    [
        ([chunk("x", "text")], True, False),
        ([chunk("x", "text", "stop")], True, False),
        ([chunk("x", "text", "stop"), sound(b""), chunk(None, "audio", "stop")], True, True),
        ([chunk("x", "text", "stop")], False, True),
        ([chunk("x", finish="stop")], True, True),
    ],
)
def test_a_stream_may_end_without_done_once_its_last_modality_has_ended(
    events: list[str], speak: bool, complete: bool
) -> None:
    decoder = ReplyDecoder(speak=speak)
    for event in events:
        decoder.receive_event(event)
    assert decoder.complete is complete
    if complete:
        assert decoder.receive_eof() == [Done("stop")]
        assert decoder.receive_eof() == []
    else:
        with pytest.raises(EngineLost, match="broke off"):
            decoder.receive_eof()


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"message": "too long", "code": 400}, EngineRefused),
        ({"message": "too long", "code": "422"}, EngineRefused),
        ({"message": "too many", "code": 429}, EngineBusy),
        ({"message": "too many", "code": 503}, EngineBusy),
        ({"message": "too bad", "code": 500}, EngineLost),
        ({"message": "too bad", "code": None}, EngineLost),
        ({"message": "too bad", "code": "internal"}, EngineLost),
        ("too bad", EngineLost),
    ],
)
def test_an_error_in_the_stream_is_raised_by_its_code(error: object, kind: type[EngineError]) -> None:
    with pytest.raises(EngineError, match="too") as caught:
        decode(json.dumps({"error": error}))
    assert type(caught.value) is kind


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"error": {"message": "no such model", "type": "x", "code": 404}}', "no such model"),
        (b'{"error": "no such model"}', "no such model"),
        (b'{"detail": "Not Found"}', "Not Found"),
        (b'{"detail": [{"loc": []}]}', "HTTP 404"),
        (b"<html>", "HTTP 404"),
        (b'{"error": {"mess', "HTTP 404"),
        (b"[]", "HTTP 404"),
        (b"\xff", "HTTP 404"),
        (b"", "HTTP 404"),
    ],
)
def test_an_http_error_carries_the_servers_message(body: bytes, message: str) -> None:
    error = http_error(404, body)
    assert isinstance(error, EngineRefused)
    assert str(error) == f"The engine refused the request: {message}"


def test_a_long_message_is_cut() -> None:
    assert len(str(http_error(500, json.dumps({"error": {"message": "x" * 9_999}}).encode()))) < 600


def test_what_is_sent_ahead_asks_for_one_token_whatever_is_configured() -> None:
    config = EngineConfig(name="vllm", thinking=True, min_tokens=5, stop=("x",), temperature=0.5)
    sent = body(user(TextPart("Hi.")), config=config, speak=False, ahead=True, max_tokens=1)
    assert sent["max_tokens"] == 1
    assert not {"min_tokens", "stop", "temperature"} & sent.keys()
