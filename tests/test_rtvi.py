import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim import Reply, Sim
from visavis import events as ev
from visavis.config import SessionConfig, Tool
from visavis.engine import ToolCall
from visavis.errors import ClientEventError, EngineBusy
from visavis.history import CallContent, Item, ResultContent, SpokenContent
from visavis.protocol.realtime_session import MAX_TEXT
from visavis.protocol.rtvi import VERSION, RtviProtocol
from visavis.wire import Asked

SESSION = SessionConfig(instructions="You are a friend on a video call.")
BEGAN_S = 1_800_000_000.0  # 2027-01-15T08:00:00Z
BEGUN = Item("item_2", "assistant", (SpokenContent(""),), "in_progress")
SAID = "It is blue. So is the sea."


def protocol(version: str | None = VERSION) -> RtviProtocol:
    """The wire of a client that is ready; with None that said so in another call."""
    wire = RtviProtocol("rtc_abc", "the model", BEGAN_S, resumed=version is None)
    if version is not None:
        say(wire, "client-ready", {"version": version, "about": {"library": "test"}})
    return wire


def say(wire: RtviProtocol, kind: str, data: Any = None, message_id: str = "m1") -> Asked:
    message = {"label": "rtvi-ai", "type": kind, "id": message_id, "data": data}
    return wire.decode(json.dumps(message), SESSION)


def told(wire: RtviProtocol, *events: ev.ServerEvent) -> list[tuple[str, Any]]:
    bodies = [json.loads(text) for event in events for text in wire.encode(event)]
    assert all(body["label"] == "rtvi-ai" and body["id"] for body in bodies)
    return [(body["type"], body.get("data")) for body in bodies]


def refused(wire: RtviProtocol, kind: str, data: Any = None) -> ClientEventError:
    with pytest.raises(ClientEventError) as caught:
        say(wire, kind, data)
    return caught.value


def reply(text: str = SAID, *, modalities: ev.Modalities = ("audio",)) -> list[ev.ServerEvent]:
    return [
        ev.ResponseCreated(1, modalities),
        ev.ReplyBegan(1, BEGUN, None),
        ev.ReplyText(1, "item_2", text),
    ]


def outputs(messages: list[tuple[str, Any]]) -> list[Any]:
    return [data for kind, data in messages if kind == "bot-output"]


# Getting ready.


def test_a_client_that_is_ready_is_told_so_and_what_it_missed() -> None:
    wire = RtviProtocol("rtc_abc", "the model", BEGAN_S)
    assert wire.encode(ev.SpeechBegan("item_1", 100)) == []
    asked = say(wire, "client-ready", {"version": "2.0.0"}, "r1")
    ready, missed = map(json.loads, asked.replies)
    assert (ready["type"], ready["id"], ready["data"]["version"]) == ("bot-ready", "r1", VERSION)
    assert ready["data"]["about"]["library"] == "visavis"
    assert missed["type"] == "user-started-speaking"
    assert told(wire, ev.SpeechEnded("item_1", 200)) == [("user-stopped-speaking", None)]


def test_of_a_client_that_is_never_ready_only_so_much_is_kept() -> None:
    wire = RtviProtocol("rtc_abc", "the model", BEGAN_S)
    for _ in range(1_000):
        wire.encode(ev.SpeechEnded("item_1", 100))
    assert len(say(wire, "client-ready").replies) == 257


def test_a_client_of_version_1_is_answered_in_its_version() -> None:
    wire = RtviProtocol("rtc_abc", "the model", BEGAN_S)
    (ready,) = map(json.loads, say(wire, "client-ready", {"version": "1.2.0"}).replies)
    assert ready["data"]["version"] == "1.2.0"
    assert outputs(told(wire, *reply())) == [
        {"text": "It is blue.", "aggregated_by": "sentence", "spoken": True}
    ]


def test_a_client_of_another_version_is_warned() -> None:
    wire = RtviProtocol("rtc_abc", "the model", BEGAN_S)
    ready, warning = map(json.loads, say(wire, "client-ready", {"version": "3.0.0"}).replies)
    assert ready["data"]["version"] == VERSION
    assert warning["type"] == "error"
    assert not warning["data"]["fatal"]


def test_a_client_that_comes_back_was_ready_before() -> None:
    wire = protocol(None)
    assert told(wire, ev.SpeechEnded("item_1", 200)) == [("user-stopped-speaking", None)]


# What the user says.


def test_a_transcript_grows_is_dated_and_becomes_final() -> None:
    messages = told(
        protocol(),
        ev.SpeechBegan("item_1", 1_500),
        ev.TranscriptPart("item_1", "What "),
        ev.TranscriptPart("item_1", "colour"),
        ev.TranscriptDone("item_1", "What colour?"),
    )
    of_user = {"user_id": "user", "timestamp": "2027-01-15T08:00:01.500+00:00"}
    assert messages[1:] == [
        ("user-transcription", {"text": "What ", **of_user, "final": False}),
        ("user-transcription", {"text": "What colour", **of_user, "final": False}),
        ("user-transcription", {"text": "What colour?", **of_user, "final": True}),
    ]


def test_turns_that_are_never_written_down_are_forgotten() -> None:
    wire = protocol()
    for number in range(100):
        told(wire, ev.SpeechBegan(f"item_{number}", 1_000))
    ((_, first),) = told(wire, ev.TranscriptDone("item_0", "Hello."))
    ((_, last),) = told(wire, ev.TranscriptDone("item_99", "Hello."))
    assert first["timestamp"] < last["timestamp"]


# What the bot says.


def test_a_spoken_reply_is_told_by_sentences_that_are_new_and_then_completed() -> None:
    wire = protocol()
    messages = told(
        wire,
        *reply(),
        ev.ReplyEnded(1, BEGUN, None),
        ev.PlayoutStarted(1),
        ev.ResponseDone(1, "completed"),
        ev.PlayoutStopped(1),
    )
    assert [kind for kind, _ in messages] == [
        "bot-llm-started",
        "bot-tts-started",
        "bot-llm-text",
        *("bot-output", "bot-transcription", "bot-tts-text"),
        *("bot-output", "bot-transcription", "bot-tts-text"),
        "bot-tts-stopped",
        "bot-started-speaking",
        "bot-llm-stopped",
        *("bot-output", "bot-output"),
        "bot-stopped-speaking",
    ]
    new, _, done, _ = outputs(messages)
    of_segment = {"text": "It is blue.", "aggregated_by": "sentence", "segment_id": 1, "will_be_spoken": True}
    assert new == {
        **of_segment,
        "spoken_status": "new",
        "spoken_progress": {"accumulated_text": "", "remaining_text": "It is blue."},
    }
    assert done == {
        **of_segment,
        "spoken_status": "completed",
        "spoken_progress": {"accumulated_text": "It is blue.", "remaining_text": ""},
    }


def test_sentences_are_put_together_from_pieces_and_segments_count_on() -> None:
    wire = protocol()
    pieces = ["Oh", "! It costs 3", ".5 pounds", ". 好。", "\n", "And ", "so on"]
    events = [ev.ReplyText(1, "item_2", piece) for piece in pieces]
    messages = told(wire, *reply("")[:2], *events, ev.ReplyEnded(1, BEGUN, None))
    assert [data["text"] for data in outputs(messages)] == [
        "Oh!",
        "It costs 3.5 pounds.",
        "好。",
        "And so on",
    ]
    again = told(wire, *reply("More. "))
    assert [data["segment_id"] for data in outputs(again)] == [5]


def test_an_interruption_tells_how_much_was_heard() -> None:
    messages = told(
        protocol(),
        *reply(),
        ev.PlayoutStarted(1),
        ev.ReplyEnded(1, BEGUN, None),
        ev.ResponseDone(1, "cancelled", "turn_detected"),
        ev.PlayoutCleared(1),
        ev.ItemTruncated("item_2", 900, "It is blue. So"),
    )
    kinds = [kind for kind, _ in messages]
    assert kinds.count("bot-interrupted") == 1
    assert kinds.index("bot-interrupted") < kinds.index("bot-stopped-speaking")
    whole, half = outputs(messages)[-2:]
    assert (whole["spoken_status"], whole["segment_id"]) == ("completed", 1)
    assert half["spoken_status"] == "in-progress"
    assert half["spoken_progress"] == {"accumulated_text": "So", "remaining_text": "is the sea."}


def test_of_a_reply_broken_off_before_a_sentence_that_one_is_not_told_again() -> None:
    messages = told(
        protocol(),
        *reply(),
        ev.ReplyEnded(1, BEGUN, None),
        ev.PlayoutCleared(1),
        ev.ItemTruncated("item_2", 300, "It"),
        ev.PlayoutStopped(1),
    )
    statuses = [(data["segment_id"], data["spoken_status"]) for data in outputs(messages)]
    assert statuses == [(1, "new"), (2, "new"), (1, "in-progress"), (1, "completed"), (2, "completed")]


def test_a_written_reply_is_neither_spoken_nor_completed() -> None:
    messages = told(
        protocol(),
        *reply(modalities=("text",)),
        ev.ReplyEnded(1, BEGUN, None),
        ev.ResponseDone(1, "completed"),
    )
    assert not any("tts" in kind for kind, _ in messages)
    assert outputs(messages)[0] == {
        "text": "It is blue.",
        "aggregated_by": "sentence",
        "segment_id": 1,
        "will_be_spoken": False,
        "spoken_status": "new",
    }


def test_what_is_of_no_response_that_is_known_is_not_told() -> None:
    wire = protocol()
    assert told(wire, ev.PlayoutStarted(7), ev.ItemTruncated("item_9", 1, "")) == []
    told(wire, *reply())
    assert told(wire, ev.PlayoutStarted(7), ev.ItemTruncated("item_9", 1, ""), ev.InputCleared()) == []


# The rest of what is told.


def test_the_stages_of_a_turn_are_metrics_when_it_is_over() -> None:
    wire = protocol()
    assert told(wire, ev.TurnTimings(1, "item_1", {"turn_end": 200})) == []
    ((kind, data),) = told(
        wire, ev.TurnTimings(1, "item_1", {"turn_end": 200, "first_sent": 640}, final=True)
    )
    assert kind == "metrics"
    assert data["ttfb"] == [{"processor": "visavis", "value": 0.64}]
    assert {"processor": "turn_end", "value": 0.2} in data["processing"]
    ((_, unheard),) = told(wire, ev.TurnTimings(1, "item_1", {"turn_end": 200}, final=True))
    assert unheard["ttfb"] == []


def test_what_rtvi_has_no_word_for_is_a_server_message() -> None:
    messages = told(
        protocol(),
        ev.ThinkingBegan(1),
        ev.ThinkingEnded(1),
        ev.CameraWanted(0.5),
        ev.Resumed(("item_1",)),
        ev.CallEnding("The server is shutting down.", 10, "shutting_down"),
    )
    assert messages == [
        ("server-message", {"type": "visavis.thinking_started"}),
        ("server-message", {"type": "visavis.thinking_stopped"}),
        ("server-message", {"type": "visavis.camera.wanted", "fps": 0.5}),
        ("server-message", {"type": "visavis.resumed", "item_ids": ["item_1"]}),
        (
            "server-message",
            {
                "type": "visavis.call_ending",
                "reason": "The server is shutting down.",
                "seconds": 10,
                "code": "shutting_down",
            },
        ),
    ]


def test_an_engine_that_fails_is_an_error_that_is_not_fatal() -> None:
    wire = protocol()
    body = json.loads(wire.encode_error(EngineBusy("There is no room.")))
    assert (body["type"], body["data"]) == ("error", {"error": "There is no room.", "fatal": False})


def test_the_farewell_keeps_the_client_from_calling_again() -> None:
    (text,) = protocol().farewell()
    assert json.loads(text) == {"type": "signalling", "message": {"type": "peerLeft"}}


def test_half_a_surrogate_pair_of_the_engine_can_be_sent() -> None:
    wire = protocol()
    told(wire, *reply("")[:2])
    (text,) = wire.encode(ev.ReplyText(1, "item_2", "\ud83d"))
    text.encode()


# What the client sends.


def test_signs_of_life_and_messages_of_others_ask_for_nothing() -> None:
    wire = protocol()
    assert wire.decode("ping: 1700000000000", SESSION) == Asked()
    assert wire.decode(b"ping: 1700000000000", SESSION) == Asked()
    assert wire.decode('{"label": "my-app", "type": "disconnect-bot"}', SESSION) == Asked()


@pytest.mark.parametrize(
    ("index", "enabled", "shown"),
    [
        (1, True, (("camera", True),)),
        (1, False, (("camera", False),)),
        (2, True, (("screen", True),)),
        (0, True, ()),
    ],
)
def test_a_track_that_is_switched_on_or_off(index: int, enabled: bool, shown: object) -> None:
    status = {"type": "trackStatus", "receiver_index": index, "enabled": enabled}
    message = json.dumps({"type": "signalling", "message": status})
    assert protocol().decode(message, SESSION) == Asked(shown=shown)


def test_other_messages_of_the_transport_ask_for_nothing() -> None:
    assert protocol().decode('{"type": "signalling", "message": {"type": "else"}}', SESSION) == Asked()


def test_a_text_interrupts_and_is_answered() -> None:
    text = ev.CreateItem("user", "Hello.")
    wire = protocol()
    assert say(wire, "send-text", {"content": "Hello."}).events == (
        ev.ClearOutput(),
        text,
        ev.CreateResponse(),
    )
    written = say(wire, "send-text", {"content": "Hello.", "options": {"audio_response": False}})
    assert written.events[-1] == ev.CreateResponse(output_modalities=("text",))
    for_later = say(wire, "send-text", {"content": "Hello.", "options": {"run_immediately": False}})
    assert for_later.events == (text,)


def test_the_old_way_to_send_a_text() -> None:
    wire = protocol()
    context = {"role": "assistant", "content": "Hello."}
    item = ev.CreateItem("assistant", "Hello.")
    assert say(wire, "append-to-context", context).events == (item,)
    at_once = say(wire, "append-to-context", {**context, "run_immediately": True})
    assert at_once.events == (ev.ClearOutput(), item, ev.CreateResponse())


def test_the_bot_is_sent_away() -> None:
    assert say(protocol(), "disconnect-bot", {}).hangs_up


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("dtmf", {"buttons": ["1"]}),
        ("send-text", {"content": ""}),
        ("send-text", {"content": "x" * (MAX_TEXT + 1)}),
        ("send-text", None),
        ("send-text", ["x"]),
        ("append-to-context", {"role": "tool", "content": "x"}),
        ("client-message", {"t": "conquer"}),
        ("client-message", {}),
        ("client-message", {"t": "say"}),
        ("client-message", {"t": "session.update", "d": {"instructions": 7}}),
        ("client-message", {"t": "session.update"}),
        ("llm-function-call-result", {"tool_call_id": "call_1"}),
        ("llm-function-call-result", {"tool_call_id": "call_1", "result": "x" * (MAX_TEXT + 1)}),
    ],
)
def test_a_message_that_cannot_be_obeyed_is_answered_with_an_error(kind: str, data: Any) -> None:
    wire = protocol()
    error = refused(wire, kind, data)
    body = json.loads(wire.encode_error(error))
    assert (body["type"], body["id"]) == ("error-response", "m1")
    assert body["data"]["error"]


def test_an_error_that_answers_no_message_is_told_by_itself() -> None:
    wire = protocol()
    error = refused(wire, "dtmf")
    assert json.loads(wire.encode_error(error, echo=False))["type"] == "error"
    assert json.loads(wire.encode_error(error))["type"] == "error"


# Client messages, which are answered.


def answer(asked: Asked) -> Any:
    (reply,) = map(json.loads, asked.replies)
    assert (reply["type"], reply["id"]) == ("server-response", "m1")
    return reply["data"]


def test_the_settings_are_read_and_changed() -> None:
    wire = protocol()
    asked = say(wire, "client-message", {"t": "session.get"})
    assert asked.events == ()
    assert answer(asked)["t"] == "session.get"
    assert answer(asked)["d"]["instructions"] == SESSION.instructions
    asked = say(wire, "client-message", {"t": "session.update", "d": {"instructions": "Be brief."}})
    assert asked.events == (ev.UpdateSession(SessionConfig(instructions="Be brief.")),)
    assert answer(asked)["d"]["instructions"] == "Be brief."
    assert told(wire, ev.SessionUpdated(SESSION)) == []


def test_an_answer_can_be_asked_for_said_and_stopped() -> None:
    wire = protocol()
    asked = say(wire, "client-message", {"t": "respond", "d": {"instructions": "Greet."}})
    assert asked.events == (ev.CreateResponse(instructions="Greet."),)
    assert answer(asked) == {"t": "respond", "d": None}
    assert say(wire, "client-message", {"t": "respond"}).events == (ev.CreateResponse(),)
    _, spoken = say(wire, "client-message", {"t": "say", "d": {"text": "Dinner is ready."}}).events
    assert "Dinner is ready." in spoken.instructions
    assert say(wire, "client-message", {"t": "interrupt"}).events == (ev.ClearOutput(),)


# Functions.


def call(call_id: str, *, own: bool = False, arguments: str = '{"place": "Rome"}', result: str = "") -> Item:
    made = CallContent(call_id, "weather", arguments, own)
    content = (made, ResultContent(call_id, result)) if result else (made,)
    return Item(f"item_{call_id}", "assistant", content)


def calls(*items: Item, response_id: int = 1) -> list[ev.ServerEvent]:
    made = [
        kind(response_id, item, None, index)
        for index, item in enumerate(items)
        for kind in (ev.CallBegan, ev.CallEnded)
    ]
    return [*made, ev.ResponseDone(response_id, "completed", calls=items)]


def result_of(call_id: str, result: Any = "21 degrees") -> dict[str, Any]:
    return {"function_name": "weather", "tool_call_id": call_id, "arguments": {}, "result": result}


def test_a_call_is_told_with_its_arguments_and_what_it_gave() -> None:
    wire = protocol()
    messages = told(wire, *calls(call("call_1")))
    assert messages == [
        ("llm-function-call-started", {"function_name": "weather"}),
        (
            "llm-function-call-in-progress",
            {"function_name": "weather", "tool_call_id": "call_1", "arguments": {"place": "Rome"}},
        ),
    ]
    asked = say(wire, "llm-function-call-result", result_of("call_1"))
    assert asked.events == (ev.CreateResult("call_1", "21 degrees"), ev.CreateResponse(patient=True))
    given = Item("item_9", "tool", (ResultContent("call_1", "21 degrees"),))
    assert told(wire, ev.ItemDone(given, None)) == [
        (
            "llm-function-call-stopped",
            {
                "function_name": "weather",
                "tool_call_id": "call_1",
                "cancelled": False,
                "result": "21 degrees",
            },
        )
    ]
    assert told(wire, ev.ItemDone(BEGUN, None)) == []


def test_results_are_answered_when_the_last_is_there() -> None:
    wire = protocol()
    told(wire, *calls(call("call_1"), call("call_2")))
    assert say(wire, "llm-function-call-result", result_of("call_2", {"degrees": 21})).events == (
        ev.CreateResult("call_2", '{"degrees": 21}'),
    )
    assert say(wire, "llm-function-call-result", result_of("call_1")).events[1:] == (
        ev.CreateResponse(patient=True),
    )


def test_where_the_server_runs_some_itself_it_asks_for_the_answer_if_it_is_last() -> None:
    wire = protocol()
    told(wire, *calls(call("call_1"), call("call_2", own=True)))
    assert say(wire, "llm-function-call-result", result_of("call_1")).events[1:] == ()
    told(wire, *calls(call("call_3"), call("call_4", own=True), response_id=2))
    ((kind, data),) = told(wire, ev.CallAnswered(2, call("call_4", own=True, result="so"), None, 1))
    assert (kind, data["tool_call_id"], data["result"]) == ("llm-function-call-stopped", "call_4", "so")
    assert say(wire, "llm-function-call-result", result_of("call_3")).events[1:] == (
        ev.CreateResponse(patient=True),
    )


def test_no_client_answers_for_the_server() -> None:
    wire = protocol()
    told(wire, *calls(call("call_1", own=True)))
    refused(wire, "llm-function-call-result", result_of("call_1"))


def test_a_result_of_a_call_made_before_the_client_came_back_is_answered() -> None:
    wire = protocol(None)
    asked = say(wire, "llm-function-call-result", result_of("call_1"))
    assert asked.events == (ev.CreateResult("call_1", "21 degrees"), ev.CreateResponse(patient=True))
    given = Item("item_9", "tool", (ResultContent("call_1", "21 degrees"),))
    ((_, data),) = told(wire, ev.ItemDone(given, None))
    assert data == {"tool_call_id": "call_1", "cancelled": False, "result": "21 degrees"}


@pytest.mark.parametrize("arguments", ["", "7", "{", "[" * 100_000])
def test_arguments_that_are_no_object_are_none(arguments: str) -> None:
    messages = told(protocol(), *calls(call("call_1", arguments=arguments)))
    assert messages[1][1]["arguments"] == {}


def test_a_client_of_an_early_version_has_one_message_for_a_call() -> None:
    wire = protocol("1.0.0")
    assert told(wire, *calls(call("call_1"))) == [
        (
            "llm-function-call",
            {"function_name": "weather", "tool_call_id": "call_1", "args": {"place": "Rome"}},
        )
    ]


def test_only_so_many_calls_are_remembered() -> None:
    wire = protocol()
    for number in range(100):
        told(wire, *calls(call(f"call_{number}", own=True), response_id=number))
    assert say(wire, "llm-function-call-result", result_of("call_0")).events
    refused(wire, "llm-function-call-result", result_of("call_99"))


# Whole talks, and anything at all.


def test_a_simulated_turn_is_told_in_rtvis_order() -> None:
    sim = Sim(speech=[(0.5, 1.5)], replies=[Reply(text="Yes, it is. And why?")]).run(9)
    kinds = [kind for kind, _ in told(protocol(), *sim.events())]
    order = [
        "user-started-speaking",
        "user-stopped-speaking",
        "bot-llm-started",
        "user-transcription",
        "bot-started-speaking",
        "bot-llm-stopped",
        "bot-stopped-speaking",
        "metrics",
    ]
    assert [kind for kind in kinds if kind in order] == order


def test_a_simulated_call_of_a_function_is_answered_after_the_clients_result() -> None:
    wire = protocol()
    tool = Tool("weather", "Tells the weather.")
    sim = Sim(replies=[Reply(text="It is fine.", seconds=1.0, transcript=None)])
    session = SessionConfig(tools=(tool,))
    for event in (ev.UpdateSession(session), ev.CreateItem("user", "How is it?"), ev.CreateResponse()):
        sim.conversation.receive_client(event, 0.0)
    sim.conversation.receive_delta(1, ToolCall("call_1", "weather", "{}"), 0.0)
    sim.run(3.0)
    messages = told(wire, *sim.events())
    ((_, progress),) = [each for each in messages if each[0] == "llm-function-call-in-progress"]
    for event in say(wire, "llm-function-call-result", result_of(progress["tool_call_id"])).events:
        sim.conversation.receive_client(event, sim.now)
    sim.run(4.0)
    later = told(wire, *sim.events()[len(messages) :])
    assert len(sim.requests()) == 2
    assert ("bot-stopped-speaking", None) in later


leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
json_values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
)
kinds = st.sampled_from(
    [
        *("client-ready", "client-message", "send-text", "append-to-context", "disconnect-bot"),
        *("llm-function-call-result", "signalling", "raw-audio"),
    ]
)
members = st.dictionaries(
    st.sampled_from(
        [
            "t",
            "d",
            "content",
            "options",
            "role",
            "tool_call_id",
            "result",
            "version",
            "type",
            "receiver_index",
        ]
    ),
    json_values,
    max_size=4,
)
shaped = st.fixed_dictionaries(
    {
        "label": st.just("rtvi-ai"),
        "type": kinds,
        "id": st.text(max_size=4),
        "data": members,
        "message": members,
    }
)


@given(shaped | json_values)
def test_any_message_is_obeyed_or_refused(message: object) -> None:
    wire = RtviProtocol("rtc_abc", "the model", BEGAN_S)
    try:
        asked = wire.decode(json.dumps(message), SESSION)
    except ClientEventError as error:
        json.loads(wire.encode_error(error).encode())
        return
    for reply in asked.replies:
        json.loads(reply.encode())


@given(st.text() | st.binary())
def test_any_text_is_obeyed_or_refused(message: str | bytes) -> None:
    wire = protocol()
    try:
        wire.decode(message, SESSION)
    except ClientEventError as error:
        json.loads(wire.encode_error(error).encode())
