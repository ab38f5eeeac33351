"""Items and responses in OpenAI's words, as clients send them and are told of them."""

import base64
import json
from typing import Any, get_args

import numpy as np
import pytest
from openai.types.realtime import RealtimeClientEvent, RealtimeServerEvent
from pydantic import TypeAdapter

from visavis import events as ev
from visavis.audio import RATE
from visavis.config import SessionConfig
from visavis.engine import Tool, Usage
from visavis.errors import ClientEventError
from visavis.frames import Frame
from visavis.history import (
    AudioContent,
    CallContent,
    FramesContent,
    Item,
    ResultContent,
    SpokenContent,
    TextContent,
)
from visavis.protocol.realtime import RealtimeProtocol
from visavis.rtc.camera import encode_jpeg
from visavis.wire import Asked

ORACLE: TypeAdapter[Any] = TypeAdapter(RealtimeServerEvent)
SESSION = SessionConfig()
SOUND = base64.b64encode(np.full(2_400, 700, "<i2").tobytes()).decode()


def jpeg() -> bytes:
    import av

    return encode_jpeg(av.VideoFrame.from_ndarray(np.full((48, 64, 3), 90, np.uint8)), 0, 64, 90).jpeg


IMAGE = "data:image/jpeg;base64," + base64.b64encode(jpeg()).decode()


def wire() -> RealtimeProtocol:
    return RealtimeProtocol("rtc_abc", "model")


def asked(message: object, session: SessionConfig = SESSION) -> Asked:
    return wire().decode(json.dumps(message), session)


def decode(message: object, session: SessionConfig = SESSION) -> ev.ClientEvent:
    found = asked(message, session)
    if found.later is not None:
        assert not found.events
        return found.later()
    (event,) = found.events
    return event


def refused(message: object) -> tuple[str, str | None]:
    with pytest.raises(ClientEventError) as caught:
        decode(message)
    assert str(caught.value).isprintable()
    return caught.value.code, caught.value.param


def encode(*events: ev.ServerEvent) -> list[dict[str, Any]]:
    protocol = wire()
    bodies = [json.loads(message) for event in events for message in protocol.encode(event)]
    for body in bodies:
        if not body["type"].startswith("visavis."):
            assert ORACLE.validate_python(body).type == body["type"]
    return bodies


def create(*content: object, role: str = "user", **more: object) -> dict[str, Any]:
    return {"type": "conversation.item.create", "item": {"role": role, "content": content}, **more}


# Every event of the interface.

OBEYED: dict[str, dict[str, Any]] = {
    "conversation.item.create": create({"type": "input_text", "text": "Hello."}),
    "conversation.item.delete": {"item_id": "item_1"},
    "conversation.item.retrieve": {"item_id": "item_1"},
    "conversation.item.truncate": {"item_id": "item_1", "content_index": 0, "audio_end_ms": 700},
    "input_audio_buffer.append": {"audio": SOUND},
    "input_audio_buffer.clear": {},
    "input_audio_buffer.commit": {},
    "output_audio_buffer.clear": {},
    "response.cancel": {},
    "response.create": {},
    "session.update": {"session": {"type": "realtime"}},
}


@pytest.mark.parametrize(
    "kind",
    [
        get_args(each.model_fields["type"].annotation)[0]
        for each in get_args(get_args(RealtimeClientEvent)[0])
    ],
)
def test_every_client_event_of_the_stock_package_is_obeyed(kind: str) -> None:
    found = asked({**OBEYED[kind], "type": kind})
    assert found.events or len(found.sound)


# What is in a message.


@pytest.mark.parametrize(
    ("message", "event"),
    [
        ({"type": "conversation.item.delete", "item_id": "item_1"}, ev.DeleteItem("item_1")),
        (
            {"type": "conversation.item.truncate", "item_id": "i", "content_index": 0, "audio_end_ms": 20},
            ev.TruncateItem("i", 20),
        ),
        (
            create({"type": "output_audio", "transcript": "I am."}, role="assistant"),
            ev.CreateItem("assistant", "I am.", spoken=True),
        ),
        (
            create({"type": "audio", "transcript": None}, role="assistant"),
            ev.CreateItem("assistant", "", spoken=True),
        ),
        (
            create({"type": "output_text", "text": "So."}, role="assistant", previous_item_id="root"),
            ev.CreateItem("assistant", "So.", previous_item_id="root"),
        ),
        (
            create({"type": "input_text", "text": "Be kind."}, role="system"),
            ev.CreateItem("system", "Be kind."),
        ),
        (
            create({"type": "input_audio", "audio": None, "transcript": "Hello."}),
            ev.CreateItem("user", "", media=(AudioContent(None, "Hello."),)),
        ),
    ],
)
def test_items_are_understood(message: object, event: ev.ClientEvent) -> None:
    assert decode(message) == event


def test_several_parts_make_one_item() -> None:
    event = decode(
        create(
            {"type": "input_text", "text": "What is"},
            {"type": "input_image", "image_url": IMAGE, "detail": "high"},
            {"type": "input_audio", "audio": SOUND},
            {"type": "input_text", "text": "this?"},
            {"type": "input_image", "image_url": IMAGE},
        )
    )
    assert isinstance(event, ev.CreateItem)
    assert event.text == "What is\nthis?"
    sound, images = event.media
    assert isinstance(sound, AudioContent)
    assert isinstance(images, FramesContent)
    assert sound.pcm is not None
    assert len(sound.pcm) == 2_400
    assert sound.transcript is None
    assert [(frame.width, frame.height) for frame in images.frames] == [(64, 48)] * 2


def test_sound_may_be_so_long_and_no_longer() -> None:
    def said(seconds: int) -> dict[str, Any]:
        sound = base64.b64encode(bytes(2 * RATE * seconds)).decode()
        return create({"type": "input_audio", "audio": sound})

    assert isinstance(decode(said(120)), ev.CreateItem)
    assert refused(said(121)) == ("invalid_audio", f"{CONTENT}.audio")


def test_sound_has_the_format_of_the_session() -> None:
    part = {"type": "input_audio", "audio": base64.b64encode(bytes([0x80] * 800)).decode()}
    event = decode(create(part), SessionConfig(input_format="audio/pcmu"))
    assert isinstance(event, ev.CreateItem)
    (sound,) = event.media
    assert isinstance(sound, AudioContent)
    assert sound.pcm is not None
    assert len(sound.pcm) == pytest.approx(2_400, abs=200)


def test_an_image_is_decoded_away_from_the_loop_and_its_fault_echoes_the_event() -> None:
    broken = "data:image/png;base64," + base64.b64encode(b"no png").decode()
    found = asked(create({"type": "input_image", "image_url": broken}, event_id="mine"))
    assert found.later is not None
    with pytest.raises(ClientEventError) as caught:
        found.later()
    assert (caught.value.code, caught.value.event_id) == ("invalid_image", "mine")
    assert caught.value.param == "item.content[0].image_url"


CONTENT = "item.content[0]"


@pytest.mark.parametrize(
    ("part", "code", "param"),
    [
        ({"type": "input_image"}, "missing_required_parameter", f"{CONTENT}.image_url"),
        ({"type": "input_image", "image_url": 7}, "invalid_type", f"{CONTENT}.image_url"),
        (
            {"type": "input_image", "image_url": "https://x.org/a.png"},
            "unsupported_image_url",
            f"{CONTENT}.image_url",
        ),
        (
            {"type": "input_image", "image_url": "data:image/gif;base64,AA"},
            "unsupported_image_url",
            f"{CONTENT}.image_url",
        ),
        (
            {"type": "input_image", "image_url": "data:image/png;base64,A"},
            "invalid_image",
            f"{CONTENT}.image_url",
        ),
        (
            {"type": "input_image", "image_url": IMAGE + "A" * (15 << 20)},
            "invalid_image",
            f"{CONTENT}.image_url",
        ),
        ({"type": "input_audio"}, "missing_required_parameter", f"{CONTENT}.audio"),
        ({"type": "input_audio", "audio": ""}, "missing_required_parameter", f"{CONTENT}.audio"),
        ({"type": "input_audio", "audio": "?"}, "invalid_audio", f"{CONTENT}.audio"),
        ({"type": "output_audio", "transcript": "x"}, "unsupported_content", f"{CONTENT}.type"),
        ({"type": "input_video"}, "unsupported_content", f"{CONTENT}.type"),
    ],
)
def test_wrong_parts_are_refused_by_name(part: object, code: str, param: str) -> None:
    assert refused(create(part)) == (code, param)


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (create(*[{"type": "input_image", "image_url": IMAGE}] * 9), "too_many"),
        (create(*[{"type": "input_audio", "audio": SOUND}] * 2), "unsupported_content"),
        (create({"type": "input_image", "image_url": IMAGE}, role="assistant"), "unsupported_content"),
        (
            {"type": "conversation.item.truncate", "item_id": "i", "content_index": 1, "audio_end_ms": 0},
            "invalid_value",
        ),
        (
            {"type": "conversation.item.truncate", "item_id": "i", "content_index": 0, "audio_end_ms": -1},
            "invalid_value",
        ),
        ({"type": "conversation.item.delete"}, "missing_required_parameter"),
    ],
)
def test_wrong_items_are_refused(message: object, code: str) -> None:
    assert refused(message)[0] == code


# Responses outside of the conversation.


def respond(**response: object) -> dict[str, Any]:
    return {"type": "response.create", "response": response}


def test_a_response_outside_of_the_conversation_is_understood() -> None:
    event = decode(
        respond(
            conversation="none",
            metadata={"for": "topic"},
            output_modalities=["text"],
            audio={"output": {"voice": "marin"}},
            input=[
                {"type": "item_reference", "id": "item_1"},
                {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi."}]},
                {"type": "function_call", "name": "look", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "call_input_2", "output": "A cat."},
            ],
            tools=[{"type": "function", "name": "topic"}],
        )
    )
    assert event == ev.CreateResponse(
        output_modalities=("text",),
        tools=(Tool("topic"),),
        voice="marin",
        outside=True,
        input=(
            "item_1",
            Item("", "user", (TextContent("Hi."),)),
            Item("", "assistant", (CallContent("call_input_2", "look", "{}"),)),
            Item("", "tool", (ResultContent("call_input_2", "A cat."),)),
        ),
        metadata=(("for", "topic"),),
    )


def test_images_among_what_it_is_given_are_decoded_away_from_the_loop() -> None:
    part = {"type": "input_image", "image_url": IMAGE}
    message = respond(conversation="none", input=[{"role": "user", "content": [part]}])
    assert asked(message).later is not None
    event = decode(message)
    assert isinstance(event, ev.CreateResponse)
    assert event.input is not None
    (item,) = event.input
    assert isinstance(item, Item)
    assert isinstance(item.content[0], FramesContent)


def test_nothing_may_be_given_too() -> None:
    assert decode(respond(input=[])) == ev.CreateResponse(input=())


@pytest.mark.parametrize(
    ("response", "code", "param"),
    [
        ({"input": [7]}, "invalid_type", "response.input[0]"),
        ({"input": [{"type": "item_reference"}]}, "missing_required_parameter", "response.input[0].id"),
        ({"input": [{"type": "mcp_call"}]}, "unsupported_item", "response.input[0].type"),
        ({"input": [{"role": "user", "content": []}]}, "invalid_value", "response.input[0].content"),
        ({"metadata": []}, "invalid_type", "response.metadata"),
        ({"metadata": {"a": 7}}, "invalid_type", "response.metadata.a"),
        ({"metadata": {"a" * 65: ""}}, "invalid_value", "response.metadata"),
        ({"metadata": {str(k): "" for k in range(17)}}, "invalid_value", "response.metadata"),
        ({"conversation": 7}, "invalid_type", "response.conversation"),
        ({"prompt": {"id": "pmpt_1"}}, "unsupported_parameter", "response.prompt"),
    ],
)  # fmt: skip
def test_wrong_responses_are_refused_by_name(response: dict[str, Any], code: str, param: str) -> None:
    assert refused(respond(**response)) == (code, param)


def test_null_metadata_is_none() -> None:
    assert decode(respond(metadata=None, prompt=None)) == ev.CreateResponse()


def test_what_is_outside_is_told_without_events_of_the_conversation() -> None:
    begun = Item("item_2", "assistant", (TextContent(""),), "in_progress")
    topic = Item("item_2", "assistant", (TextContent("weather"),))
    call = Item("item_3", "assistant", (CallContent("call_1", "look", "{}"),))
    told = encode(
        ev.ResponseCreated(1, ("text",), True, (("for", "topic"),), 50, "marin"),
        ev.ReplyBegan(1, begun, None),
        ev.ReplyText(1, "item_2", "weather"),
        ev.ReplyEnded(1, topic, None),
        ev.CallBegan(1, call, None, 1),
        ev.CallArguments(1, "item_3", 1, "call_1", "{}"),
        ev.CallEnded(1, call, None, 1),
        ev.ResponseDone(1, "completed", item=topic, calls=(call,), output_modalities=("text",)),
    )
    assert [body["type"] for body in told] == [
        "response.created",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.output_item.added",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.output_item.done",
        "response.done",
    ]
    for response in (told[0]["response"], told[-1]["response"]):
        assert response["conversation_id"] is None
        assert response["metadata"] == {"for": "topic"}
        assert response["max_output_tokens"] == 50
        assert response["audio"]["output"]["voice"] == "marin"


# What it all cost.


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (Usage(90, 7), {}),
        (Usage(90, 7, cached_tokens=60), {"input_token_details": {"cached_tokens": 60}}),
        (Usage(90, 7, None, 30), {"input_token_details": {"audio_tokens": 30}}),
        (
            Usage(90, 7, 60, 30, 20, 5),
            {
                "input_token_details": {
                    "cached_tokens": 60,
                    "audio_tokens": 30,
                    "image_tokens": 20,
                    "text_tokens": 40,
                },
                "output_token_details": {"audio_tokens": 5, "text_tokens": 2},
            },
        ),
    ],
)
def test_usage_has_the_details_that_are_known(usage: Usage, expected: dict[str, Any]) -> None:
    done = encode(ev.ResponseCreated(1, ("audio",)), ev.ResponseDone(1, "completed", usage=usage))[1]
    told = done["response"]["usage"]
    assert told == {"total_tokens": 97, "input_tokens": 90, "output_tokens": 7} | expected


# What is told of items.


def test_an_item_is_told_with_its_parts_and_the_transcript_names_that_of_its_sound() -> None:
    pcm = np.zeros(RATE // 2, np.int16)
    images = FramesContent((Frame(b"", 4, 4, 0, "image"),))
    item = Item("item_1", "user", (TextContent("This?"), AudioContent(pcm), images))
    told = encode(
        ev.ItemAdded(item, None), ev.TranscriptPart("item_1", "He"), ev.TranscriptDone("item_1", "Hey")
    )
    assert told[0]["item"]["content"] == [
        {"type": "input_text", "text": "This?"},
        {"type": "input_audio", "transcript": None},
    ]
    assert [body["content_index"] for body in told[1:]] == [1, 1]
    assert told[2]["usage"] == {"type": "duration", "seconds": 0.5}


def test_what_the_assistant_said_before_is_told_as_spoken() -> None:
    (told,) = encode(ev.ItemAdded(Item("item_1", "assistant", (SpokenContent("So."),)), None))
    assert told["item"]["content"] == [{"type": "output_audio", "transcript": "So."}]
