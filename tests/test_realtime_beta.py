"""The beta's words, held to the types of the stock package's beta client."""

import json
from typing import Any

import numpy as np
import pytest
from openai.types.beta.realtime import RealtimeServerEvent
from pydantic import TypeAdapter

from visavis import events as ev
from visavis.config import SessionConfig
from visavis.engine import Usage
from visavis.history import AudioContent, CallContent, Item, ResultContent, SpokenContent, TextContent
from visavis.protocol.realtime import RealtimeProtocol
from visavis.protocol.realtime_beta import beta_bodies, beta_session_object

ORACLE: TypeAdapter[Any] = TypeAdapter(RealtimeServerEvent)
MODEL = "gpt-4o-realtime-preview"
HEARD = Item("item_1", "user", (AudioContent(np.zeros(24_000, np.int16)),))
BEGUN = Item("item_2", "assistant", (SpokenContent(""),), "in_progress")
SPOKEN = Item("item_2", "assistant", (SpokenContent("Yes."),))
CALL = Item("item_3", "assistant", (CallContent("call_1", "look", "{}"),))
OWN = Item("item_4", "assistant", (CallContent("call_2", "look", "{}", own=True),))
SESSION = SessionConfig(temperature=0.8)


def encode(*events: ev.ServerEvent, tells_audio: bool = False) -> list[dict[str, Any]]:
    wire = RealtimeProtocol("rtc_abc", MODEL, expires_at=1, tells_audio=tells_audio, dialect=beta_bodies)
    bodies = [json.loads(message) for event in events for message in wire.encode(event)]
    for body in bodies:
        if not body["type"].startswith(("visavis.", "output_audio_buffer.")):
            assert ORACLE.validate_python(body).type == body["type"]
    return bodies


def test_a_spoken_turn_has_the_names_of_the_beta() -> None:
    told = encode(
        ev.SessionCreated(SESSION),
        ev.SpeechBegan("item_1", 0),
        ev.SpeechEnded("item_1", 900),
        ev.TurnCommitted("item_1", None),
        ev.ItemAdded(HEARD, None),
        ev.ItemDone(HEARD, None),
        ev.ResponseCreated(1, ("audio",)),
        ev.RateLimits(50, 49, 0.02),
        ev.TranscriptDone("item_1", "Is it?"),
        ev.ReplyBegan(1, BEGUN, "item_1"),
        ev.ReplyText(1, "item_2", "Yes."),
        ev.ReplyAudio(1, "item_2", np.ones(480, np.int16)),
        ev.ReplyEnded(1, SPOKEN, "item_1"),
        ev.ResponseDone(1, "completed", item=SPOKEN, usage=Usage(9, 5, 4)),
        ev.TimeoutTriggered("item_9", 0, 1),
        tells_audio=True,
    )
    assert [body["type"] for body in told] == [
        "session.created",
        "conversation.created",
        "input_audio_buffer.speech_started",
        "input_audio_buffer.speech_stopped",
        "input_audio_buffer.committed",
        "conversation.item.created",
        "response.created",
        "rate_limits.updated",
        "conversation.item.input_audio_transcription.completed",
        "response.output_item.added",
        "conversation.item.created",
        "response.content_part.added",
        "response.audio_transcript.delta",
        "response.audio.delta",
        "response.audio.done",
        "response.audio_transcript.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.done",
    ]
    response = told[-1]["response"]
    assert response["modalities"] == ["audio", "text"]
    assert response["output"][0]["content"] == [{"type": "audio", "transcript": "Yes."}]
    assert (response["voice"], response["output_audio_format"]) == ("default", "pcm16")
    assert not {"audio", "output_modalities"} & response.keys()


def test_a_written_response_has_the_names_of_the_beta() -> None:
    written = Item("item_2", "assistant", (TextContent("Yes."),))
    told = encode(
        ev.ResponseCreated(1, ("text",)),
        ev.ReplyBegan(1, Item("item_2", "assistant", (TextContent(""),), "in_progress"), None),
        ev.ReplyText(1, "item_2", "Yes."),
        ev.ReplyEnded(1, written, None),
        ev.ResponseDone(1, "completed", item=written, output_modalities=("text",)),
    )
    assert [body["type"] for body in told[4:6]] == ["response.text.delta", "response.text.done"]
    assert told[-1]["response"]["modalities"] == ["text"]
    assert told[-1]["response"]["output"][0]["content"] == [{"type": "text", "text": "Yes."}]


def test_functions_of_the_client_are_told_and_those_of_the_server_are_not() -> None:
    answered = Item("item_4", "assistant", (*OWN.content, ResultContent("call_2", "A cat.")))
    told = encode(
        ev.ResponseCreated(1, ("audio",)),
        ev.CallBegan(1, CALL, None, 0),
        ev.CallArguments(1, "item_3", 0, "call_1", "{}"),
        ev.CallEnded(1, CALL, None, 0),
        ev.CallBegan(1, OWN, None, 1),
        ev.CallEnded(1, OWN, None, 1),
        ev.ResponseDone(1, "completed", calls=(CALL, OWN)),
        ev.CallAnswered(1, answered, None, 1),
    )
    assert [body["type"] for body in told] == [
        "response.created",
        "response.output_item.added",
        "conversation.item.created",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.output_item.done",
        "response.done",
    ]
    assert [item["id"] for item in told[-1]["response"]["output"]] == ["item_3"]


def test_the_session_is_flat() -> None:
    (told,) = encode(ev.SessionUpdated(SessionConfig(output_format="audio/pcmu", camera_fps=1.0)))
    session = told["session"]
    assert session["input_audio_format"] == "pcm16"
    assert session["output_audio_format"] == "g711_ulaw"
    assert session["modalities"] == ["audio", "text"]
    assert session["max_response_output_tokens"] == "inf"
    assert session["visavis"] == {"camera_fps": 1.0}
    assert not {"audio", "type", "output_modalities", "temperature"} & session.keys()
    assert beta_session_object(SESSION, session_id="sess_1", model=MODEL)["temperature"] == 0.8


@pytest.mark.parametrize("event", [ev.PlayoutStarted(1), ev.ItemDeleted("item_1"), ev.CameraWanted(1.0)])
def test_all_else_is_told_as_it_is(event: ev.ServerEvent) -> None:
    assert len(encode(event)) == 1
