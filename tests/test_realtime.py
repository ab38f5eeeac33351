import json
import os
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.realtime import RealtimeServerEvent
from pydantic import TypeAdapter

from visavis import events as ev
from visavis.config import SessionConfig, Transcription, Truncation, TurnDetection
from visavis.engine import Usage
from visavis.errors import ClientEventError, EngineBusy, VisavisError
from visavis.frames import Frame
from visavis.history import AudioContent, FramesContent, Item, SpokenContent, TextContent
from visavis.protocol.realtime import RealtimeProtocol
from visavis.protocol.realtime_session import MAX_TEXT, merge_session

GOLDEN = Path(__file__).parent / "golden"
ORACLE: TypeAdapter[Any] = TypeAdapter(RealtimeServerEvent)
SESSION = SessionConfig(instructions="You are a friend on a video call.")
K = {"output_index": 0, "content_index": 0}

FRAME = Frame(b"jpeg", 640, 360, 0)
HEARD = Item("item_1", "user", (AudioContent(np.zeros(36_000, np.int16)), FramesContent((FRAME,))))
BEGUN = Item("item_2", "assistant", (SpokenContent(""),), "in_progress")
BROKEN_OFF = Item("item_2", "assistant", (SpokenContent("It is blue, I th"),), "incomplete")

BARGE_IN: list[ev.ServerEvent] = [
    ev.SessionCreated(SESSION),
    ev.SpeechBegan("item_1", 400),
    ev.SpeechEnded("item_1", 1_900),
    ev.TurnCommitted("item_1", None),
    ev.ItemAdded(HEARD, None),
    ev.ItemDone(HEARD, None),
    ev.ResponseCreated(1, ("audio",)),
    ev.TranscriptPart("item_1", "What colour "),
    ev.TranscriptDone("item_1", "What colour is it?"),
    ev.ReplyBegan(1, BEGUN, "item_1"),
    ev.ReplyText(1, "item_2", "It is blue, "),
    ev.PlayoutStarted(1),
    ev.TurnTimings(1, "item_1", {"speech_end": 0, "first_audio": 640}),
    ev.ReplyText(1, "item_2", "I th"),
    ev.StanceChanged(1, "ducked"),
    ev.CameraWanted(0.5),
    ev.Resumed(("item_1",)),
    ev.StanceChanged(1, "held"),
    ev.SpeechBegan("item_3", 4_000),
    ev.ReplyEnded(1, BROKEN_OFF, "item_1"),
    ev.ResponseDone(1, "cancelled", "turn_detected", item=BROKEN_OFF, usage=Usage(90, 7)),
    ev.PlayoutCleared(1),
    ev.ItemTruncated("item_2", 720, "It is"),
    ev.TurnTimings(1, "item_1", {"speech_end": 0, "first_audio": 640, "barge_in": 1_900}, final=True),
    ev.CallEnding("The server is shutting down.", 10, "shutting_down"),
]


def protocol(call_id: str = "rtc_abc") -> RealtimeProtocol:
    return RealtimeProtocol(call_id, "Qwen/Qwen3-Omni-30B-A3B-Instruct", expires_at=1_800_000_000)


def encode(*events: ev.ServerEvent) -> list[dict[str, Any]]:
    wire = protocol()
    return [json.loads(message) for event in events for message in wire.encode(event)]


def types(bodies: Iterable[dict[str, Any]]) -> list[str]:
    return [body["type"] for body in bodies]


def without_event_id(body: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in body.items() if name != "event_id"}


def decode(message: object, session: SessionConfig = SESSION) -> ev.ClientEvent:
    (event,) = protocol().decode(json.dumps(message), session).events
    return event


def refused(message: object) -> ClientEventError:
    with pytest.raises(ClientEventError) as caught:
        decode(message)
    return caught.value


def assert_valid(body: dict[str, Any]) -> None:
    if body["type"].startswith("visavis."):
        return
    assert ORACLE.validate_python(body).type == body["type"]


# To the client.


def test_a_turn_with_barge_in_is_told_as_the_golden_file_has_it() -> None:
    """After a wanted change: VISAVIS_GOLDEN=write, run, and read the difference."""
    path = GOLDEN / "realtime_barge_in.json"
    told = encode(*BARGE_IN)
    if os.environ.get("VISAVIS_GOLDEN") == "write":
        path.write_text(json.dumps(told, indent=1) + "\n")
    assert told == json.loads(path.read_text())


def test_every_event_of_a_turn_is_valid_to_the_stock_client() -> None:
    told = encode(*BARGE_IN)
    assert len(told) > len(BARGE_IN)
    for body in told:
        assert_valid(body)


def test_a_spoken_response_is_told_in_the_order_of_the_interface() -> None:
    spoken = Item("item_2", "assistant", (SpokenContent("Yes."),))
    told = encode(
        ev.ResponseCreated(1, ("audio",)),
        ev.ReplyBegan(1, BEGUN, None),
        ev.PlayoutStarted(1),
        ev.ReplyText(1, "item_2", "Yes."),
        ev.ReplyEnded(1, spoken, None),
        ev.ResponseDone(1, "completed", item=spoken),
        ev.PlayoutStopped(1),
    )
    assert types(told) == [
        "response.created",
        "response.output_item.added",
        "conversation.item.added",
        "response.content_part.added",
        "output_audio_buffer.started",
        "response.output_audio_transcript.delta",
        "response.output_audio.done",
        "response.output_audio_transcript.done",
        "response.content_part.done",
        "conversation.item.done",
        "response.output_item.done",
        "response.done",
        "output_audio_buffer.stopped",
    ]
    place = {"response_id": "resp_abc_1", "item_id": "item_2", **K}
    assert without_event_id(told[5]) == {
        "type": "response.output_audio_transcript.delta",
        "delta": "Yes.",
        **place,
    }
    assert without_event_id(told[8]) == {
        "type": "response.content_part.done",
        "part": {"type": "audio", "transcript": "Yes."},
        **place,
    }
    assert told[11]["response"]["output"][0]["content"] == [{"type": "output_audio", "transcript": "Yes."}]


def test_that_the_model_thinks_is_told_under_a_name_of_ours() -> None:
    begun, ended = encode(ev.ThinkingBegan(3), ev.ThinkingEnded(3))
    assert without_event_id(begun) == {"type": "visavis.thinking_started", "response_id": "resp_abc_3"}
    assert without_event_id(ended) == {"type": "visavis.thinking_stopped", "response_id": "resp_abc_3"}


@pytest.mark.parametrize("stance", ["open", "ducked", "held"])
def test_how_the_answer_makes_room_is_told_under_a_name_of_ours(stance: Any) -> None:
    (told,) = encode(ev.StanceChanged(3, stance))
    assert without_event_id(told) == {
        "type": "visavis.output_stance",
        "response_id": "resp_abc_3",
        "stance": stance,
    }


def test_how_much_of_the_camera_is_wanted_is_told_under_a_name_of_ours() -> None:
    (told,) = encode(ev.CameraWanted(0.5))
    assert without_event_id(told) == {"type": "visavis.camera.wanted", "fps": 0.5}


def test_what_a_call_goes_on_from_is_told_under_a_name_of_ours() -> None:
    (told,) = encode(ev.Resumed(("item_1", "item_2")))
    assert without_event_id(told) == {"type": "visavis.resumed", "item_ids": ["item_1", "item_2"]}


def test_an_item_that_left_the_conversation_is_told() -> None:
    (told,) = encode(ev.ItemDeleted("item_2"))
    assert without_event_id(told) == {"type": "conversation.item.deleted", "item_id": "item_2"}
    assert_valid(told)


def test_a_written_response_uses_the_events_of_text() -> None:
    begun = Item("item_2", "assistant", (TextContent(""),), "in_progress")
    written = Item("item_2", "assistant", (TextContent("Yes, so."),))
    told = encode(
        ev.ResponseCreated(1, ("text",)),
        ev.ReplyBegan(1, begun, None),
        ev.ReplyText(1, "item_2", "Yes, "),
        ev.ReplyText(1, "item_2", "so."),
        ev.ReplyEnded(1, written, None),
        ev.ResponseDone(1, "completed", item=written, output_modalities=("text",)),
    )
    assert types(told)[4:] == [
        "response.output_text.delta",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "conversation.item.done",
        "response.output_item.done",
        "response.done",
    ]
    assert told[3]["part"] == {"type": "text", "text": ""}
    assert told[6]["text"] == "Yes, so."
    assert told[9]["item"]["content"] == [{"type": "output_text", "text": "Yes, so."}]
    for body in told:
        assert_valid(body)


def test_an_item_begins_without_content_and_in_progress() -> None:
    added = encode(ev.ResponseCreated(1, ("audio",)), ev.ReplyBegan(1, BEGUN, "item_1"))
    for body in added[1:3]:
        assert (body["item"]["content"], body["item"]["status"]) == ([], "in_progress")
    assert added[2]["previous_item_id"] == "item_1"


def test_the_deltas_add_up_to_the_text_that_ends_them_though_the_item_was_cut() -> None:
    told = encode(*BARGE_IN)
    deltas = [body["delta"] for body in told if body["type"] == "response.output_audio_transcript.delta"]
    done = next(body for body in told if body["type"] == "response.output_audio_transcript.done")
    assert done["transcript"] == "".join(deltas) == "It is blue, I th"


def test_a_user_item_always_has_the_key_of_its_transcript_and_never_its_pictures() -> None:
    (added,) = encode(ev.ItemAdded(HEARD, None))
    assert added["item"]["content"] == [{"type": "input_audio", "transcript": None}]
    known = replace(HEARD, content=(AudioContent(None, "Hello."), FramesContent((FRAME,))))
    (retrieved,) = encode(ev.ItemRetrieved(known))
    assert retrieved["item"]["content"] == [{"type": "input_audio", "transcript": "Hello."}]


def test_how_much_the_client_may_send_is_told_as_openai_does() -> None:
    (told,) = encode(ev.RateLimits(50, 49, 0.0201))
    assert told["rate_limits"] == [{"name": "requests", "limit": 50, "remaining": 49, "reset_seconds": 0.02}]
    assert_valid(told)


def test_a_silence_that_was_too_long_is_told_as_openai_does() -> None:
    (told,) = encode(ev.TimeoutTriggered("item_7", 4_000, 9_020))
    assert told["type"] == "input_audio_buffer.timeout_triggered"
    assert (told["audio_start_ms"], told["audio_end_ms"], told["item_id"]) == (4_000, 9_020, "item_7")
    assert_valid(told)


def test_only_what_the_schema_lets_be_null_is_null() -> None:
    nullable = {
        "transcript", "previous_item_id", "tracing", "prompt", "include",
        "transcription", "noise_reduction", "turn_detection", "conversation_id",
    }  # fmt: skip

    def nulls(value: object, name: str = "") -> set[str]:
        if isinstance(value, dict):
            return set().union(*(nulls(member, key) for key, member in value.items()))
        if isinstance(value, list):
            return set().union(*(nulls(member) for member in value))
        return {name} if value is None else set()

    push_to_talk = replace(SESSION, turn_detection=None, transcribe=False)
    assert nulls(encode(*BARGE_IN, ev.SessionUpdated(push_to_talk))) <= nullable


@pytest.mark.parametrize(
    ("role", "kind"), [("user", "input_text"), ("system", "input_text"), ("assistant", "output_text")]
)
def test_written_items_have_the_content_type_of_their_role(role: Any, kind: str) -> None:
    (added,) = encode(ev.ItemAdded(Item("item_9", role, (TextContent("Hello."),)), None))
    assert added["item"]["content"] == [{"type": kind, "text": "Hello."}]
    assert_valid(added)


def test_a_completed_transcript_tells_how_long_the_speech_was() -> None:
    told = encode(ev.ItemAdded(HEARD, None), ev.TranscriptDone("item_1", "Hello."))
    assert told[1]["usage"] == {"type": "duration", "seconds": 1.5}
    assert told[1]["content_index"] == 0


def test_a_failed_transcript_says_why() -> None:
    (failed,) = encode(ev.TranscriptFailed("item_1", "No transcript came."))
    assert failed["type"] == "conversation.item.input_audio_transcription.failed"
    assert failed["error"]["message"] == "No transcript came."
    assert_valid(failed)


def test_lengths_of_turns_without_transcript_do_not_pile_up() -> None:
    wire = protocol()
    for number in range(200):
        wire.encode(ev.ItemAdded(replace(HEARD, id=f"item_{number}"), None))
    newest = json.loads(wire.encode(ev.TranscriptDone("item_199", ""))[0])
    oldest = json.loads(wire.encode(ev.TranscriptDone("item_0", ""))[0])
    assert (newest["usage"]["seconds"], oldest["usage"]["seconds"]) == (1.5, 0)


@pytest.mark.parametrize(
    ("done", "details"),
    [
        (ev.ResponseDone(1, "completed"), None),
        (
            ev.ResponseDone(1, "cancelled", "turn_detected"),
            {"type": "cancelled", "reason": "turn_detected"},
        ),
        (
            ev.ResponseDone(1, "incomplete", "max_output_tokens"),
            {"type": "incomplete", "reason": "max_output_tokens"},
        ),
        (
            ev.ResponseDone(1, "failed", error_code="engine_lost", error_message="It died."),
            {
                "type": "failed",
                "error": {"type": "server_error", "code": "engine_lost", "message": "It died."},
            },
        ),
    ],
)
def test_the_end_of_a_response_says_how_it_ended(done: ev.ResponseDone, details: object) -> None:
    told = encode(ev.ResponseCreated(1, ("audio",)), done)[1]
    assert told["response"]["status"] == done.status
    assert told["response"].get("status_details") == details
    assert told["response"]["output"] == []
    assert_valid(told)


def test_usage_is_told_if_it_is_known() -> None:
    usage = encode(ev.ResponseCreated(1, ("audio",)), ev.ResponseDone(1, "completed"))[1]["response"]
    assert "usage" not in usage
    counted = ev.ResponseDone(1, "completed", usage=Usage(90, 7))
    usage = encode(ev.ResponseCreated(1, ("audio",)), counted)[1]["response"]["usage"]
    assert usage == {"total_tokens": 97, "input_tokens": 90, "output_tokens": 7}


def test_event_ids_count_up_and_the_call_can_be_replayed_to_the_byte() -> None:
    ids = [body["event_id"] for body in encode(*BARGE_IN)]
    assert ids == [f"event_abc_{number}" for number in range(1, len(ids) + 1)]
    first, second = protocol(), protocol()
    assert [first.encode(event) for event in BARGE_IN] == [second.encode(event) for event in BARGE_IN]


def test_half_a_surrogate_pair_from_an_engine_does_not_break_the_channel() -> None:
    wire = protocol()
    wire.encode(ev.ResponseCreated(1, ("audio",)))
    wire.encode(ev.ReplyBegan(1, BEGUN, None))
    (message,) = wire.encode(ev.ReplyText(1, "item_2", "a\ud83d"))
    assert json.loads(message.encode())["delta"] == "a?"


def test_the_session_is_whole_and_round_trips_through_its_own_merge() -> None:
    told = encode(ev.SessionCreated(SESSION))
    assert types(told) == ["session.created", "conversation.created"]
    session = told[0]["session"]
    assert session["type"] == "realtime"
    assert session["expires_at"] == 1_800_000_000
    assert session["audio"]["input"]["turn_detection"] == {
        "type": "semantic_vad",
        "eagerness": "auto",
        "create_response": True,
        "interrupt_response": True,
    }
    assert session["max_output_tokens"] == "inf"


def test_a_detector_is_told_with_the_members_of_its_kind() -> None:
    by_silence = replace(SESSION, turn_detection=TurnDetection(type="server_vad", eagerness="low"))
    (told,) = encode(ev.SessionUpdated(by_silence))
    assert told["session"]["audio"]["input"]["turn_detection"] == {
        "type": "server_vad",
        "threshold": 0.5,
        "prefix_padding_ms": 300,
        "silence_duration_ms": 500,
        "create_response": True,
        "interrupt_response": True,
        "idle_timeout_ms": None,
    }
    assert_valid(told)


vads = st.builds(
    TurnDetection,
    type=st.sampled_from(["semantic_vad", "server_vad"]),
    eagerness=st.sampled_from(["low", "medium", "high", "auto"]),
    threshold=st.floats(0, 1),
    prefix_padding_ms=st.integers(0, 5_000),
    silence_duration_ms=st.integers(100, 10_000),
    create_response=st.booleans(),
    interrupt_response=st.booleans(),
    idle_timeout_ms=st.none() | st.integers(1_000, 600_000),
)
words = st.none() | st.text("abc", min_size=1, max_size=5)
sessions = st.builds(
    SessionConfig,
    instructions=st.text(max_size=50),
    output_modalities=st.sampled_from([("audio",), ("text",)]),
    voice=st.sampled_from([None, "marin", "Ethan"]),
    turn_detection=st.none() | vads,
    transcribe=st.booleans(),
    transcription=st.builds(Transcription, words, words, words),
    noise_reduction=st.sampled_from(["none", "near_field", "far_field"]),
    truncation=st.just(Truncation())
    | st.just(Truncation("disabled"))
    | st.builds(
        Truncation,
        st.just("retention_ratio"),
        st.floats(0, 1),
        st.none() | st.integers(1, 100_000),
    ),
    camera_fps=st.none() | st.floats(0, 30),
    temperature=st.none() | st.floats(0, 2),
    max_output_tokens=st.none() | st.integers(1, 4096),
)


@given(sessions, sessions)
def test_a_session_that_is_sent_back_restores_itself(base: SessionConfig, told: SessionConfig) -> None:
    body = json.loads(json.dumps(protocol().session_object(told)))
    changed = merge_session(base, body)
    # What is not told of it stays as it was.
    temperature = base.temperature if told.temperature is None else told.temperature
    camera_fps = base.camera_fps if told.camera_fps is None else told.camera_fps
    heard = _as_transcribed(told, base)
    detection = _as_told(told.turn_detection, base.turn_detection or TurnDetection())
    assert changed == replace(
        told,
        temperature=temperature,
        turn_detection=detection,
        camera_fps=camera_fps,
        transcription=heard,
    )


def _as_transcribed(told: SessionConfig, base: SessionConfig) -> Transcription:
    """What writes has a name always."""
    if not told.transcribe:
        return base.transcription
    mine, known = told.transcription, base.transcription
    return Transcription(
        mine.model or "Qwen/Qwen3-Omni-30B-A3B-Instruct",
        mine.language or known.language,
        mine.prompt or known.prompt,
    )


def _as_told(told: TurnDetection | None, base: TurnDetection) -> TurnDetection | None:
    if told is None:
        return None
    if told.type == "server_vad":
        return replace(told, eagerness=base.eagerness)
    return replace(
        told,
        threshold=base.threshold,
        prefix_padding_ms=base.prefix_padding_ms,
        silence_duration_ms=base.silence_duration_ms,
        idle_timeout_ms=told.idle_timeout_ms or base.idle_timeout_ms,
    )


# Errors to the client.


def test_an_error_names_the_field_and_echoes_the_clients_event() -> None:
    wire = protocol()
    with pytest.raises(ClientEventError) as caught:
        wire.decode('{"type": "conversation.item.retrieve", "item_id": 7, "event_id": "mine"}', SESSION)
    body = json.loads(wire.encode_error(caught.value))
    assert body == {
        "type": "error",
        "event_id": "event_abc_1",
        "error": {
            "type": "invalid_request_error",
            "code": "invalid_type",
            "message": "item_id must be a string, not 7.",
            "param": "item_id",
            "event_id": "mine",
        },
    }
    assert_valid(body)


def test_a_refusal_by_the_conversation_echoes_the_event_that_was_decoded_last() -> None:
    wire = protocol()
    wire.decode('{"type": "response.cancel", "event_id": "mine"}', SESSION)
    refusal = ClientEventError("No response is being generated.", code="response_cancel_not_active")
    assert json.loads(wire.encode_error(refusal))["error"]["event_id"] == "mine"
    assert json.loads(wire.encode_error(refusal))["error"]["event_id"] is None


def test_a_refusal_of_a_message_that_was_not_decoded_echoes_nothing() -> None:
    wire = protocol()
    wire.decode('{"type": "response.create", "event_id": "mine"}', SESSION)
    refusal = ClientEventError("Too many events.", code="rate_limit_exceeded")
    assert json.loads(wire.encode_error(refusal, echo=False))["error"]["event_id"] is None


@pytest.mark.parametrize(
    ("error", "code"),
    [(EngineBusy("No room now."), "engine_busy"), (VisavisError("It broke."), "internal_error")],
)
def test_errors_of_the_server_are_told_as_such(error: VisavisError, code: str) -> None:
    wire = protocol()
    wire.decode('{"type": "response.create", "event_id": "mine"}', SESSION)
    body = json.loads(wire.encode_error(error))
    assert (body["error"]["type"], body["error"]["code"]) == ("server_error", code)
    assert body["error"]["event_id"] is None
    assert_valid(body)


# From the client.


@pytest.mark.parametrize(
    ("message", "event"),
    [
        ({"type": "conversation.item.retrieve", "item_id": "item_1"}, ev.RetrieveItem("item_1")),
        ({"type": "input_audio_buffer.commit"}, ev.CommitAudio()),
        ({"type": "input_audio_buffer.clear", "event_id": None}, ev.ClearAudio()),
        ({"type": "output_audio_buffer.clear"}, ev.ClearOutput()),
        ({"type": "response.create"}, ev.CreateResponse()),
        ({"type": "response.create", "response": None}, ev.CreateResponse()),
        (
            {
                "type": "response.create",
                "response": {
                    "instructions": "Be brief.",
                    "output_modalities": ["text"],
                    "max_output_tokens": 50,
                    "temperature": 0.7,
                    "conversation": "auto",
                    "metadata": {"a": "b"},
                },
            },
            ev.CreateResponse("Be brief.", ("text",), 50, 0.7, metadata=(("a", "b"),)),
        ),
        (
            {
                "type": "response.create",
                "response": {"modalities": ["text", "audio"], "max_response_output_tokens": "inf"},
            },
            ev.CreateResponse(None, ("audio",)),
        ),
        ({"type": "response.cancel"}, ev.CancelGeneration()),
        ({"type": "response.cancel", "response_id": "resp_abc_12"}, ev.CancelGeneration(12)),
        (
            {
                "type": "conversation.item.create",
                "previous_item_id": "root",
                "item": {
                    "id": "mine",
                    "type": "message",
                    "role": "user",
                    "content": [
                        {"type": "input_text", "text": "One."},
                        {"type": "input_text", "text": "Two."},
                    ],
                },
            },
            ev.CreateItem("user", "One.\nTwo.", "mine", "root"),
        ),
        (
            {
                "type": "conversation.item.create",
                "item": {"role": "assistant", "content": [{"type": "text", "text": "Hello."}]},
            },
            ev.CreateItem("assistant", "Hello."),
        ),
    ],
)
def test_client_events_are_understood(message: object, event: ev.ClientEvent) -> None:
    assert decode(message) == event


def create_item(**changes: object) -> dict[str, Any]:
    item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hello."}]}
    return {"type": "conversation.item.create", "item": item | changes}


def create_response(**response: object) -> dict[str, Any]:
    return {"type": "response.create", "response": response}


@pytest.mark.parametrize(
    ("message", "code", "param"),
    [
        ([], "invalid_type", None),
        (None, "invalid_type", None),
        ("session.update", "invalid_type", None),
        ({}, "missing_required_parameter", "type"),
        ({"type": None}, "invalid_type", "type"),
        ({"type": "make.coffee"}, "unknown_event", "type"),
        ({"type": "x" * 5_000}, "invalid_value", "type"),
        ({"type": "response.create", "event_id": 7}, "invalid_type", "event_id"),
        ({"type": "response.create", "event_id": "x" * 513}, "invalid_value", "event_id"),
        ({"type": "conversation.item.retrieve"}, "missing_required_parameter", "item_id"),
        ({"type": "conversation.item.retrieve", "item_id": ""}, "invalid_value", "item_id"),
        ({"type": "conversation.item.retrieve", "item_id": "\ud800"}, "invalid_value", "item_id"),
        ({"type": "conversation.item.create"}, "missing_required_parameter", "item"),
        ({"type": "conversation.item.create", "item": []}, "invalid_type", "item"),
        (create_item(type="mcp_approval_response"), "unsupported_item", "item.type"),
        (create_item(role="tool"), "invalid_value", "item.role"),
        (create_item(content=[]), "invalid_value", "item.content"),
        (create_item(content=[{"type": "input_text"}]), "missing_required_parameter", "item.content[0].text"),
        (create_item(content=[{"type": "input_text", "text": " "}]), "invalid_value", "item.content"),
        (create_response(temperature=3), "invalid_value", "response.temperature"),
        (create_response(output_modalities=[]), "invalid_value", "response.output_modalities"),
        ({"type": "response.cancel", "response_id": "resp_other_1"}, "response_not_found", "response_id"),
        ({"type": "response.cancel", "response_id": "resp_abc_0"}, "response_not_found", "response_id"),
        ({"type": "session.update"}, "missing_required_parameter", "session"),
        ({"type": "session.update", "session": None}, "invalid_type", "session"),
    ],
)  # fmt: skip
def test_a_wrong_client_event_is_refused_by_name(message: object, code: str, param: str | None) -> None:
    error = refused(message)
    assert (error.code, error.param) == (code, param)
    assert str(error).isprintable()


@pytest.mark.parametrize(
    "text",
    ["", "{", "nonsense", '{"type": NaN}', "[" * 100_000, '{"a": ' + "1" * 10_000 + "}", b"\xff\xfe\xfd"],
    ids=["empty", "open", "word", "nan", "deep", "long integer", "no utf-8"],
)
def test_what_is_no_json_is_refused(text: str | bytes) -> None:
    with pytest.raises(ClientEventError) as caught:
        protocol().decode(text, SESSION)
    assert caught.value.code == "invalid_json"


def update(session: object, base: SessionConfig = SESSION) -> SessionConfig:
    event = decode({"type": "session.update", "session": session}, base)
    assert isinstance(event, ev.UpdateSession)
    return event.session


def detection(turn_detection: object) -> dict[str, Any]:
    return {"audio": {"input": {"turn_detection": turn_detection}}}


def test_a_session_update_changes_what_it_names_and_nothing_else() -> None:
    changed = update({"type": "realtime", "instructions": "Be brief."})
    assert changed == replace(SESSION, instructions="Be brief.")


@pytest.mark.parametrize(
    ("session", "expected"),
    [
        ({}, {}),
        ({"instructions": ""}, {"instructions": ""}),
        (detection(None), {"turn_detection": None}),
        ({"turn_detection": None}, {"turn_detection": None}),
        ({"audio": {"input": {"transcription": None}}}, {"transcribe": False}),
        (
            {"audio": {"input": {"transcription": {"model": "whisper-1", "language": "de"}}}},
            {"transcription": Transcription("whisper-1", "de")},
        ),
        (
            {"input_audio_transcription": {"prompt": "Names: Ann."}},
            {"transcription": Transcription(prompt="Names: Ann.")},
        ),
        (
            {"audio": {"input": {"noise_reduction": {"type": "far_field"}}}},
            {"noise_reduction": "far_field"},
        ),
        ({"input_audio_noise_reduction": {"type": "near_field"}}, {"noise_reduction": "near_field"}),
        ({"audio": {"input": {"noise_reduction": None}}}, {}),
        ({"truncation": "disabled"}, {"truncation": Truncation("disabled")}),
        ({"truncation": None}, {}),
        (
            {
                "truncation": {
                    "type": "retention_ratio",
                    "retention_ratio": 0.8,
                    "token_limits": {"post_instructions": 8_000},
                }
            },
            {"truncation": Truncation("retention_ratio", 0.8, 8_000)},
        ),
        ({"visavis": {"camera_fps": 0.5}}, {"camera_fps": 0.5}),
        ({"visavis": {"camera_fps": None}}, {}),
        (
            {
                "tracing": {"workflow_name": "shop", "metadata": {"a": 1}},
                "include": ["item.input_audio_transcription.logprobs"],
                "parallel_tool_calls": True,
                "reasoning": {"effort": "low"},
                "prompt": None,
            },
            {},
        ),
        ({"tracing": "auto", "speed": 1.2}, {}),
        ({"input_audio_transcription": None}, {"transcribe": False}),
        ({"audio": {"output": {"voice": "marin", "speed": 1.2}}}, {"voice": "marin"}),
        ({"audio": {"output": {"voice": {"id": "voice_1"}}}}, {"voice": "voice_1"}),
        ({"voice": "nobody-knows-it"}, {"voice": "nobody-knows-it"}),
        ({"audio": {"output": {"voice": "default"}}}, {"voice": None}),
        ({"output_modalities": ["text"]}, {"output_modalities": ("text",)}),
        ({"modalities": ["text", "audio"]}, {"output_modalities": ("audio",)}),
        ({"max_output_tokens": "inf"}, {"max_output_tokens": None}),
        ({"max_output_tokens": 300}, {"max_output_tokens": 300}),
        ({"max_response_output_tokens": 300}, {"max_output_tokens": 300}),
        ({"temperature": 0.8}, {"temperature": 0.8}),
        ({"model": "gpt-realtime-9", "tools": [], "tracing": None, "providerData": {"x": 1}}, {}),
        ({"audio": None}, {}),
        (
            {"voice": "beta", "audio": {"output": {"voice": "ga"}}},
            {"voice": "ga"},
        ),
    ],
)
def test_session_settings_are_merged(session: object, expected: dict[str, Any]) -> None:
    assert update(session) == replace(SESSION, **expected)


def test_a_model_that_is_not_here_is_aliased() -> None:
    changed = update({"model": "gpt-realtime"})
    (told,) = encode(ev.SessionUpdated(changed))
    assert told["session"]["model"] == "Qwen/Qwen3-Omni-30B-A3B-Instruct"


def test_turn_detection_is_merged_with_the_present_one() -> None:
    present = TurnDetection(type="server_vad", eagerness="low", threshold=0.7, create_response=False)
    changed = update(detection({"silence_duration_ms": 700}), replace(SESSION, turn_detection=present))
    assert changed.turn_detection == replace(present, silence_duration_ms=700)


@pytest.mark.parametrize("present", [TurnDetection(), TurnDetection(type="server_vad"), None])
@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ({"type": "server_vad"}, TurnDetection(type="server_vad")),
        ({"type": "semantic_vad"}, TurnDetection()),
        ({"type": "semantic_vad", "eagerness": "high"}, TurnDetection(eagerness="high")),
        (None, None),
    ],
)
def test_each_kind_of_turn_detection_can_follow_each(
    present: TurnDetection | None, told: object, expected: TurnDetection | None
) -> None:
    base = replace(SESSION, turn_detection=present)
    assert update(detection(told), base).turn_detection == expected
    assert update({"turn_detection": told}, base).turn_detection == expected


@pytest.mark.parametrize("eagerness", ["low", "medium", "high", "auto"])
def test_the_eagerness_of_semantic_detection_is_kept_and_told(eagerness: str) -> None:
    changed = update(detection({"type": "semantic_vad", "eagerness": eagerness}))
    (told,) = encode(ev.SessionUpdated(changed))
    assert told["session"]["audio"]["input"]["turn_detection"]["eagerness"] == eagerness
    assert_valid(told)


@pytest.mark.parametrize("kind", ["semantic_vad", "server_vad"])
def test_either_kind_of_turn_detection_may_ask_silent_callers_to_go_on(kind: Any) -> None:
    changed = update(detection({"type": kind, "idle_timeout_ms": 6_000}))
    (told,) = encode(ev.SessionUpdated(changed))
    assert told["session"]["audio"]["input"]["turn_detection"]["idle_timeout_ms"] == 6_000
    assert_valid(told)
    assert update(detection({"idle_timeout_ms": None}), changed).turn_detection == TurnDetection(type=kind)


@pytest.mark.parametrize("kind", ["semantic_vad", "server_vad"])
def test_either_kind_of_turn_detection_may_say_how_much_speech_interrupts(kind: Any) -> None:
    changed = update(detection({"type": kind, "min_interruption_ms": 600}))
    (told,) = encode(ev.SessionUpdated(changed))
    assert told["session"]["audio"]["input"]["turn_detection"]["min_interruption_ms"] == 600
    assert_valid(told)
    assert update(detection({"min_interruption_ms": None}), changed).turn_detection == TurnDetection(
        type=kind
    )


@pytest.mark.parametrize(
    ("present", "told", "kind"),
    [
        ("semantic_vad", {"interrupt_response": False}, "semantic_vad"),
        ("server_vad", {"interrupt_response": False}, "server_vad"),
        ("semantic_vad", {"silence_duration_ms": 700}, "server_vad"),
        ("server_vad", {"eagerness": "low"}, "semantic_vad"),
        ("server_vad", {"type": "server_vad", "eagerness": "low"}, "server_vad"),
    ],
)
def test_a_detector_without_type_is_of_the_present_kind_or_of_that_which_has_what_it_sets(
    present: Any, told: object, kind: str
) -> None:
    changed = update(detection(told), replace(SESSION, turn_detection=TurnDetection(type=present)))
    assert changed.turn_detection is not None
    assert changed.turn_detection.type == kind


@pytest.mark.parametrize(
    ("session", "param"),
    [
        ({"type": "transcription"}, "type"),
        ({"instructions": None}, "instructions"),
        ({"instructions": "x" * (MAX_TEXT + 1)}, "instructions"),
        ({"instructions": "\udc00"}, "instructions"),
        ({"audio": []}, "audio"),
        ({"audio": {"input": 7}}, "audio.input"),
        (detection("server_vad"), "audio.input.turn_detection"),
        (detection({"type": "magic"}), "audio.input.turn_detection.type"),
        (detection({"eagerness": "wild"}), "audio.input.turn_detection.eagerness"),
        (detection({"threshold": 1.1}), "audio.input.turn_detection.threshold"),
        (detection({"threshold": True}), "audio.input.turn_detection.threshold"),
        ({"turn_detection": {"silence_duration_ms": 0}}, "turn_detection.silence_duration_ms"),
        ({"turn_detection": {"silence_duration_ms": 500.5}}, "turn_detection.silence_duration_ms"),
        ({"turn_detection": {"create_response": "yes"}}, "turn_detection.create_response"),
        ({"turn_detection": {"idle_timeout_ms": 0}}, "turn_detection.idle_timeout_ms"),
        ({"turn_detection": {"type": "semantic_vad", "eagerness": "very"}}, "turn_detection.eagerness"),
        ({"audio": {"input": {"transcription": True}}}, "audio.input.transcription"),
        ({"prompt": {"id": "pmpt_1"}}, "prompt"),
        ({"tracing": "always"}, "tracing"),
        ({"tracing": {"group_id": 7}}, "tracing.group_id"),
        ({"include": [7]}, "include[0]"),
        ({"audio": {"output": {"speed": 2}}}, "audio.output.speed"),
        ({"truncation": "never"}, "truncation"),
        ({"truncation": {"type": "retention_ratio"}}, "truncation.retention_ratio"),
        ({"truncation": {"type": "auto", "retention_ratio": 0.5}}, "truncation.type"),
        ({"audio": {"input": {"noise_reduction": {"type": "loud"}}}}, "audio.input.noise_reduction.type"),
        ({"audio": {"input": {"transcription": {"model": 7}}}}, "audio.input.transcription.model"),
        ({"visavis": {"camera_fps": 60}}, "visavis.camera_fps"),
        ({"visavis": True}, "visavis"),
        ({"voice": 7}, "voice"),
        ({"voice": {}}, "voice.id"),
        ({"output_modalities": "audio"}, "output_modalities"),
        ({"output_modalities": ["smell"]}, "output_modalities[0]"),
        ({"max_output_tokens": "many"}, "max_output_tokens"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"temperature": -0.1}, "temperature"),
    ],
)  # fmt: skip
def test_a_wrong_setting_is_refused_by_name(session: object, param: str) -> None:
    error = refused({"type": "session.update", "session": session})
    assert error.param == f"session.{param}"
    assert str(error).startswith(f"session.{param}")


def test_the_message_of_a_refusal_shows_no_more_than_a_bit_of_a_long_value() -> None:
    error = refused({"type": "conversation.item.retrieve", "item_id": ["x" * 10_000] * 100})
    assert len(str(error)) < 300


# Whatever comes.

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=20), inner, max_size=4),
    max_leaves=12,
)
client_types = st.sampled_from(
    [
        "session.update",
        "input_audio_buffer.append",
        "input_audio_buffer.commit",
        "input_audio_buffer.clear",
        "output_audio_buffer.clear",
        "conversation.item.create",
        "conversation.item.retrieve",
        "conversation.item.delete",
        "conversation.item.truncate",
        "response.create",
        "response.cancel",
    ]
)
names = st.sampled_from(
    [
        "session", "item", "item_id", "event_id", "previous_item_id", "response", "response_id", "type",
        "role", "content", "text", "id", "audio", "input", "output", "voice", "turn_detection", "threshold",
        "eagerness", "transcription", "output_modalities", "modalities", "max_output_tokens", "temperature",
        "instructions", "conversation", "silence_duration_ms",
    ]
)  # fmt: skip
leaves = json_values | st.sampled_from(
    [
        "message",
        "user",
        "input_text",
        "server_vad",
        "semantic_vad",
        "auto",
        "audio",
        "inf",
        "resp_abc_1",
        0.5,
        500,
    ]
)
shaped = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=5),
    max_leaves=20,
)
messages = st.builds(
    lambda kind, members: {**members, "type": kind}, client_types, st.dictionaries(names, shaped, max_size=5)
)


def check_total(message: str | bytes) -> None:
    """Decode it; whatever it is, the call lives on and the answer can be sent."""
    wire = protocol()
    try:
        asked = wire.decode(message, SESSION)
        if asked.later is None and not asked.events:
            return  # sound
        (event,) = asked.events if asked.later is None else (asked.later(),)
    except ClientEventError as error:
        body = json.loads(wire.encode_error(error).encode())
        assert_valid(body)
        assert re.fullmatch(r"[a-z_]+", body["error"]["code"])
        return
    assert isinstance(event, get_args(ev.ClientEvent))
    if isinstance(event, ev.UpdateSession):
        for told in wire.encode(ev.SessionUpdated(event.session)):
            assert_valid(json.loads(told.encode()))


@given(messages)
def test_any_message_in_the_shape_of_an_event_is_obeyed_or_refused(message: object) -> None:
    check_total(json.dumps(message))


@given(json_values)
def test_any_json_is_obeyed_or_refused(message: object) -> None:
    check_total(json.dumps(message))


@given(st.text() | st.binary())
def test_any_text_is_obeyed_or_refused(message: str | bytes) -> None:
    check_total(message)


def test_a_ping_is_answered_and_asks_for_nothing() -> None:
    protocol = RealtimeProtocol("call", "model")
    asked = protocol.decode('{"type": "visavis.ping"}', SessionConfig())
    assert asked.events == ()
    (pong,) = map(json.loads, asked.replies)
    assert pong["type"] == "visavis.pong"
    assert pong["event_id"]
