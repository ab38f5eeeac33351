"""A client without a track is told what to play: all of it at once, while our own playout keeps the time."""

import base64
import json

import numpy as np
import pytest
from openai.types.realtime import RealtimeServerEvent
from pydantic import TypeAdapter

from sim import UNHURRIED, LevelEar
from visavis import events as ev
from visavis.actions import Notify, StartResponse
from visavis.audio import BLOCK, RATE, Pcm
from visavis.conversation import Conversation
from visavis.engine import AudioDelta, Done, TextDelta
from visavis.protocol.realtime import RealtimeProtocol

SOUND: Pcm = np.arange(2 * RATE, dtype=np.int32).astype(np.int16)


def drained(conversation: Conversation) -> list[object]:
    actions = []
    while (action := conversation.next_action()) is not None:
        actions.append(action.event if isinstance(action, Notify) else action)
    return actions


def answering(*, tells_audio: bool) -> tuple[Conversation, list[object]]:
    """Have two seconds of an answer come at once."""
    conversation = Conversation(UNHURRIED, LevelEar(), "call", tells_audio=tells_audio)
    conversation.receive_client(ev.CreateItem("user", "hello"), 0.0)
    conversation.receive_client(ev.CreateResponse(), 0.0)
    told = drained(conversation)
    assert any(isinstance(action, StartResponse) for action in told)
    for delta in (TextDelta("Good day."), AudioDelta(SOUND[:RATE]), AudioDelta(SOUND[RATE:]), Done()):
        conversation.receive_delta(1, delta, 0.1)
    return conversation, [*told, *drained(conversation)]


def test_all_of_an_answer_is_told_as_it_comes():
    _, told = answering(tells_audio=True)
    sound = [event.pcm for event in told if isinstance(event, ev.ReplyAudio)]
    assert np.array_equal(np.concatenate(sound), SOUND)
    assert told.index(next(e for e in told if isinstance(e, ev.ReplyEnded))) > 0
    kinds = [type(event) for event in told]
    assert kinds.index(ev.ReplyAudio) < kinds.index(ev.ReplyEnded) < kinds.index(ev.ResponseDone)


def test_who_has_a_track_is_told_no_sound():
    _, told = answering(tells_audio=False)
    assert not any(isinstance(event, ev.ReplyAudio) for event in told)


def test_an_interruption_cuts_what_was_not_played_yet_though_all_was_told():
    conversation, _ = answering(tells_audio=True)
    for block in range(50):
        conversation.pull_audio(BLOCK, 0.1 + 0.02 * block)
    conversation.receive_client(ev.ClearOutput(), 1.2)
    (cut,) = [event for event in drained(conversation) if isinstance(event, ev.ItemTruncated)]
    assert 900 <= cut.audio_end_ms <= 1_000


@pytest.mark.parametrize("kind", ["audio/pcm", "audio/pcmu"])
def test_the_wire_tells_it_as_stock_clients_expect(kind: str):
    _, told = answering(tells_audio=True)
    wire = RealtimeProtocol("rtc_call", "model", tells_audio=True)
    session = json.dumps(
        {"type": "session.update", "session": {"audio": {"output": {"format": {"type": kind}}}}}
    )
    (update,) = wire.decode(session, UNHURRIED.session).events
    assert isinstance(update, ev.UpdateSession)
    events = [ev.SessionUpdated(update.session), *(e for e in told if isinstance(e, ev.ServerEvent))]
    bodies = [json.loads(text) for event in events for text in wire.encode(event)]
    oracle: TypeAdapter[object] = TypeAdapter(RealtimeServerEvent)
    for body in bodies:
        if not body["type"].startswith("visavis."):
            oracle.validate_python(body)
    data = b"".join(
        base64.b64decode(b["delta"]) for b in bodies if b["type"] == "response.output_audio.delta"
    )
    assert len(data) == (2 * len(SOUND) if kind == "audio/pcm" else len(SOUND) // 3 + 24)
    assert "output_audio_buffer.started" not in {body["type"] for body in bodies}
