"""Functions that the assistant calls, by simulated calls."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim import UNHURRIED, Reply, Sim, calling
from visavis import events as ev
from visavis.actions import CancelResponse, RunTool, SendAhead
from visavis.audio import RATE
from visavis.config import (
    ConversationConfig,
    FunctionsConfig,
    SessionConfig,
    SpeculationConfig,
    TurnDetection,
)
from visavis.conversation import Floor
from visavis.engine import AUTO, CallPart, Message, ResultPart, Tool, ToolCall, ToolChoice
from visavis.errors import ClientEventError
from visavis.history import CallContent, FramesContent, Item, ResultContent, TextContent

WEATHER = Tool("weather", "What the weather is.", '{"type":"object"}')
CLIENT = replace(UNHURRIED, session=SessionConfig(tools=(WEATHER,)))
ASKED = [(1.0, 2.5)]
SAYS_AND_CALLS = Reply("Let me see.", seconds=1.0, calls=[ToolCall("call_look", "look", "{}")])


def with_session(config: ConversationConfig = CLIENT, **changes: object) -> ConversationConfig:
    return replace(config, session=replace(config.session, **changes))  # type: ignore[arg-type]


def names(sim: Sim, *kinds: type) -> list[str]:
    return [type(event).__name__ for event in sim.events(*kinds)]


def shape(messages: Sequence[Message]) -> list[tuple[str, ...]]:
    """Each message after the instructions, as its role and kinds of parts."""
    return [(m.role, *(type(part).__name__ for part in m.parts)) for m in messages if m.role != "system"]


def code_of(sim: Sim) -> list[str]:
    codes = []
    for _, error in sim.errors:
        assert isinstance(error, ClientEventError)
        codes.append(error.code)
    return codes


# What is offered.


def test_functions_of_the_session_are_offered_with_each_request():
    demand = ToolChoice("required")
    sim = Sim(speech=ASKED, config=with_session(tool_choice=demand)).run(8)
    (request,) = sim.requests()
    assert (request.tools, request.tool_choice) == ((WEATHER,), demand)


def test_functions_of_the_server_are_offered_besides_and_the_clients_own_hides_one_of_its_name():
    sim = Sim(speech=ASKED, config=CLIENT, gives={"look": (1, ""), "weather": (1, "")}).run(8)
    assert [tool.name for tool in sim.requests()[0].tools] == ["weather", "look"]
    assert sim.requests()[0].tools[0] is WEATHER


def test_a_response_may_be_asked_for_with_other_functions_than_the_sessions():
    other = Tool("other")
    create = ev.CreateResponse(tools=(other,), tool_choice=ToolChoice("function", "other"))
    sim = Sim(client=[(1.0, create)], config=CLIENT, replies=[calling("other")]).run(5)
    (request,) = sim.requests()
    assert (request.tools, request.tool_choice) == ((other,), ToolChoice("function", "other"))
    assert sim.events(ev.CallEnded)[0].item.call == CallContent("call_other", "other", "{}")


def test_a_demand_for_a_function_that_is_not_offered_is_none():
    for config in (with_session(tool_choice=ToolChoice("function", "nothing")), UNHURRIED):
        sim = Sim(speech=ASKED, config=config).run(8)
        assert sim.requests()[0].tool_choice == AUTO


def test_what_is_sent_ahead_of_a_long_turn_tells_of_the_same_functions():
    sim = Sim(speech=[(1.0, 8.0)], config=CLIENT).run(12)
    ahead = [action.request for _, action in sim.log if isinstance(action, SendAhead)]
    assert ahead
    assert {request.tools for request in ahead} == {(WEATHER,)}


# The client's.


def test_a_call_of_the_clients_is_told_and_its_result_is_answered_when_the_client_asks():
    client = [(5.0, ev.CreateResult("call_weather", "rain")), (6.0, ev.CreateResponse())]
    replies = [calling("weather"), Reply("It rains.")]
    sim = Sim(speech=ASKED, config=CLIENT, replies=replies, client=client).run(12)
    told = sim.events(ev.CallBegan, ev.CallArguments, ev.CallEnded, ev.ResponseDone)
    assert [type(event) for event in told[:4]] == [
        ev.CallBegan,
        ev.CallArguments,
        ev.CallEnded,
        ev.ResponseDone,
    ]
    item = told[0].item
    assert item == Item(item.id, "assistant", (CallContent("call_weather", "weather", "{}"),))
    assert told[1] == ev.CallArguments(1, item.id, 0, "call_weather", "{}")
    assert told[3].calls == (item,)
    assert [event.output_index for event in told[:3]] == [0, 0, 0]
    assert not sim.times(RunTool)
    assert sim.times(ev.ResponseCreated)[1] == pytest.approx(6.0, abs=0.03)
    assert shape(sim.requests()[1].messages) == [
        ("user", "AudioPart"),
        ("assistant", "CallPart"),
        ("tool", "ResultPart"),
    ]
    result = sim.conversation.history.items[2]
    assert (result.role, result.result) == ("tool", ResultContent("call_weather", "rain"))
    assert result in [event.item for event in sim.events(ev.ItemDone)]


def test_calls_come_after_what_was_said_and_are_told_once_all_is_there():
    says = Reply(
        "Let me see.", seconds=1.0, calls=[ToolCall("a", "weather", "1"), ToolCall("b", "weather", "2")]
    )
    sim = Sim(speech=ASKED, config=CLIENT, replies=[says]).run(8)
    assert names(sim, ev.ReplyEnded, ev.CallBegan, ev.CallEnded, ev.ResponseDone, ev.PlayoutStopped) == [
        "ReplyEnded",
        "CallBegan",
        "CallEnded",
        "CallBegan",
        "CallEnded",
        "ResponseDone",
        "PlayoutStopped",
    ]
    assert [event.output_index for event in sim.events(ev.CallEnded)] == [1, 2]
    _, reply, first, second = sim.conversation.history.items
    assert [event.previous_item_id for event in sim.events(ev.CallBegan)] == [reply.id, first.id]
    assert sim.events(ev.ResponseDone)[0].item == reply
    assert sim.events(ev.ResponseDone)[0].calls == (first, second)


def test_the_floor_is_free_while_a_function_is_run_and_the_user_may_speak():
    sim = Sim(speech=[(1.0, 2.5), (5.0, 6.0)], config=CLIENT, replies=[calling("weather"), Reply("Wait.")])
    sim.run(4.5)
    assert sim.conversation.floor is Floor.IDLE
    sim.run(6)
    assert [done.status for done in sim.events(ev.ResponseDone)] == ["completed", "completed"]
    assert shape(sim.requests()[1].messages) == [
        ("user", "AudioPart"),
        ("assistant", "CallPart"),
        ("tool", "ResultPart"),  # that there is none yet
        ("user", "AudioPart"),
    ]


def test_a_call_before_a_barge_in_is_never_told():
    slow = Reply(seconds=20.0, rtf=0.9, calls=[ToolCall("call_look", "look", "{}")])
    sim = Sim(speech=[(1.0, 2.5), (6.0, 7.5)], replies=[slow, Reply()], gives={"look": (1, "a cup")}).run(16)
    assert [done.status for done in sim.events(ev.ResponseDone)] == ["cancelled", "completed"]
    assert not sim.events(ev.CallBegan)
    assert not sim.times(RunTool)


def test_a_call_of_an_answer_that_broke_off_is_never_told():
    sim = Sim(speech=ASKED, config=CLIENT, replies=[Reply(hangs_after=0)])
    sim.at(4.0, lambda: sim.conversation.receive_delta(1, ToolCall("a", "weather", "{}"), 4.0))
    sim.run(40)
    assert [done.status for done in sim.events(ev.ResponseDone)] == ["failed"]
    assert not sim.events(ev.CallBegan)


@pytest.mark.parametrize("config", [UNHURRIED, with_session(tool_choice=ToolChoice("none"))])
def test_calls_that_nobody_asked_for_are_dropped(config: ConversationConfig):
    sim = Sim(speech=ASKED, config=config, replies=[calling("weather")]).run(8)
    assert [done.status for done in sim.events(ev.ResponseDone)] == ["completed"]
    assert not sim.events(ev.CallBegan)


def test_two_calls_of_one_id_are_told_apart():
    sim = Sim(speech=[(1.0, 2.5), (5.0, 6.5)], config=CLIENT, replies=[calling("weather", "weather")]).run(9)
    ids = [event.item.call.call_id for event in sim.events(ev.CallEnded)]
    assert ids[0] == "call_weather"
    assert len(set(ids)) == 4


def test_no_more_calls_are_taken_of_one_response_than_anybody_needs():
    sim = Sim(speech=ASKED, config=CLIENT, replies=[calling(*["weather"] * 100)]).run(8)
    assert len(sim.events(ev.CallEnded)) == 16


# What the client puts into the history.


def test_a_call_and_its_result_may_come_from_the_client():
    made = ev.CreateCall("weather", '{"city":"Rome"}', "old", "c", None)
    result = ev.CreateResult("old", "sun", "r", "c")
    sim = Sim(client=[(1.0, made), (1.1, result), (1.2, ev.CreateItem("user", "And?"))]).run(2)
    c, r, _ = sim.conversation.history.items
    assert c == Item("c", "assistant", (CallContent("old", "weather", '{"city":"Rome"}'),))
    assert r == Item("r", "tool", (ResultContent("old", "sun"),))
    assert shape(sim.conversation.history.messages("")) == [
        ("assistant", "CallPart"),
        ("tool", "ResultPart"),
        ("user", "TextPart"),
    ]
    assert names(sim)[:4] == ["ItemAdded", "ItemDone", "ItemAdded", "ItemDone"]


def test_a_call_from_the_client_gets_an_id_if_it_has_none():
    sim = Sim(client=[(1.0, ev.CreateCall("weather", "{}"))]).run(2)
    (item,) = sim.conversation.history.items
    assert item.call is not None
    assert item.call.call_id.startswith("call_")


@pytest.mark.parametrize(
    ("event", "code"),
    [
        (ev.CreateResult("nobody", "x"), "call_not_found"),
        (ev.CreateResult("done", "x"), "result_exists"),
        (ev.CreateResult("open", "x", "c1"), "item_exists"),
        (ev.CreateResult("open", "x", None, "nothing"), "item_not_found"),
        (ev.CreateCall("weather", "{}", "done"), "call_exists"),
        (ev.CreateCall("weather", "{}", "new", "c1"), "item_exists"),
    ],
)
def test_what_fits_to_nothing_is_refused_and_changes_nothing(event: ev.ClientEvent, code: str):
    past = [
        Item("c1", "assistant", (CallContent("done", "weather", "{}"),)),
        Item("r1", "tool", (ResultContent("done", "sun"),)),
        Item("c2", "assistant", (CallContent("open", "weather", "{}"),)),
    ]
    sim = Sim(past=past, client=[(1.0, event)]).run(2)
    assert code_of(sim) == [code]
    assert list(sim.conversation.history.items) == past
    assert not sim.events()


# The server's own.


def test_an_own_function_is_run_and_what_it_gives_is_answered_by_itself():
    sim = Sim(speech=ASKED, replies=[calling("look"), Reply("A cup.")], gives={"look": (0.7, "a cup")}).run(
        12
    )
    (run,) = [action for _, action in sim.log if isinstance(action, RunTool)]
    assert run == RunTool(1, "call_look", "look", "{}")
    (answered,) = sim.events(ev.CallAnswered)
    assert answered.item.content == (
        CallContent("call_look", "look", "{}", own=True),
        ResultContent("call_look", "a cup"),
    )
    assert (answered.response_id, answered.output_index) == (1, 0)
    assert sim.times(ev.ResponseCreated)[1] - sim.times(RunTool)[0] == pytest.approx(0.7, abs=0.03)
    assert shape(sim.requests()[1].messages) == [
        ("user", "AudioPart"),
        ("assistant", "CallPart"),
        ("tool", "ResultPart"),
    ]
    assert len(sim.conversation.history.items) == 3
    assert not sim.events(ev.CallArguments)  # nobody else is to run it


def test_what_is_seen_goes_with_a_result_as_the_last_message():
    result = ev.CreateResult("call_look", "The picture follows.", seen="(Now.)")
    sim = Sim(
        speech=ASKED,
        replies=[calling("look"), Reply("A cup.")],
        gives={"look": (60.0, "too late")},
        client=[(6.0, result)],
        camera_fps=2.0,
    ).run(12)
    *_, call, given, seen = shape(sim.requests()[1].messages)
    assert (call, given) == (("assistant", "CallPart"), ("tool", "ResultPart"))
    assert seen == ("user", "FramesPart", "TextPart")
    words, frames = sim.conversation.history.items[2].content
    assert words == TextContent("(Now.)")
    assert isinstance(frames, FramesContent)
    assert 4.9 * RATE < frames.frames[-1].at <= 6.0 * RATE


def test_what_is_being_said_is_said_to_its_end_before_the_result_is_answered():
    sim = Sim(speech=ASKED, replies=[SAYS_AND_CALLS, Reply("A cup.")], gives={"look": (0.1, "a cup")}).run(12)
    assert sim.times(ev.CallAnswered)[0] < sim.times(ev.PlayoutStopped)[0]
    assert sim.times(ev.ResponseCreated)[1] == sim.times(ev.PlayoutStopped)[0]
    assert shape(sim.requests()[1].messages)[1:] == [
        ("assistant", "TextPart", "CallPart"),
        ("tool", "ResultPart"),
    ]
    assert sim.events(ev.CallEnded)[0].output_index == sim.events(ev.CallAnswered)[0].output_index == 1


def test_parallel_calls_are_answered_once_the_last_has_its_result():
    sim = Sim(
        speech=ASKED,
        replies=[calling("look", "time"), Reply()],
        gives={"look": (1.5, "a cup"), "time": (0.5, "noon")},
    ).run(12)
    assert len(sim.requests()) == 2
    assert sim.times(ev.ResponseCreated)[1] == sim.times(ev.CallAnswered)[1]
    assert shape(sim.requests()[1].messages)[1:] == [
        ("assistant", "CallPart", "CallPart"),
        ("tool", "ResultPart"),
        ("tool", "ResultPart"),
    ]


def test_a_result_that_comes_while_the_user_speaks_is_in_the_answer_to_what_they_say():
    sim = Sim(
        speech=[(1.0, 2.5), (4.0, 6.0)], replies=[calling("look"), Reply()], gives={"look": (2.0, "a cup")}
    ).run(14)
    assert sim.times(ev.SpeechBegan)[1] < sim.times(ev.CallAnswered)[0] < sim.times(ev.SpeechEnded)[1]
    assert len(sim.requests()) == 2
    assert shape(sim.requests()[1].messages) == [
        ("user", "AudioPart"),
        ("assistant", "CallPart"),
        ("tool", "ResultPart"),
        ("user", "AudioPart"),
    ]


def test_a_result_that_comes_after_the_user_was_answered_is_told_still():
    sim = Sim(
        speech=[(1.0, 2.5), (4.0, 5.0)],
        replies=[calling("look"), Reply("One moment.", seconds=1.0), Reply("A cup.")],
        gives={"look": (6.0, "a cup")},
    ).run(16)
    assert [shape(request.messages)[-1][0] for request in sim.requests()] == ["user", "user", "tool"]
    assert shape(sim.requests()[2].messages) == [
        ("user", "AudioPart", "AudioPart"),
        ("assistant", "TextPart", "CallPart"),
        ("tool", "ResultPart"),
    ]


def test_a_cough_does_not_keep_a_result_from_being_answered():
    sim = Sim(
        speech=[(1.0, 2.5), (4.8, 4.96)], replies=[calling("look"), Reply()], gives={"look": (2.0, "a cup")}
    ).run(14)
    assert len(sim.events(ev.InputCleared)) == 1
    assert sim.times(ev.CallAnswered)[0] < sim.times(ev.InputCleared)[0]
    assert len(sim.requests()) == 2


def test_who_barges_in_upon_what_comes_before_a_result_gets_it_with_the_next_answer():
    says = Reply("Let me see what there is.", seconds=6.0, calls=[ToolCall("call_look", "look", "{}")])
    sim = Sim(speech=[(1.0, 2.5), (6.0, 8.0)], replies=[says, Reply()], gives={"look": (0.2, "a cup")}).run(
        16
    )
    assert len(sim.events(ev.PlayoutCleared)) == 1
    assert len(sim.requests()) == 2
    assert ("tool", "ResultPart") in shape(sim.requests()[1].messages)
    assert shape(sim.requests()[1].messages)[-1] == ("user", "AudioPart")


def test_rounds_without_a_word_of_the_user_have_a_limit():
    config = replace(UNHURRIED, functions=FunctionsConfig(max_rounds=3))
    sim = Sim(
        speech=[(1.0, 2.5), (20.0, 21.0)],
        config=config,
        replies=[calling("look")],
        gives={"look": (0.1, "x")},
    )
    sim.run(18)
    assert [request.tool_choice.mode for request in sim.requests()] == ["auto", "auto", "auto", "none"]
    assert len(sim.events(ev.CallAnswered)) == 3
    sim.run(10)
    assert len(sim.requests()) == 8  # the user's word begins anew


def test_rounds_are_not_merged_into_one():
    sim = Sim(
        speech=ASKED, replies=[calling("look"), calling("look"), Reply()], gives={"look": (0.1, "x")}
    ).run(14)
    assert shape(sim.requests()[2].messages)[1:] == [
        ("assistant", "CallPart"),
        ("tool", "ResultPart"),
        ("assistant", "CallPart"),
        ("tool", "ResultPart"),
    ]


@pytest.mark.parametrize("choice", [ToolChoice("required"), ToolChoice("function", "look")])
def test_a_demand_is_met_by_one_round(choice: ToolChoice):
    create = ev.CreateResponse("Look.", ("text",), tool_choice=choice)
    sim = Sim(client=[(1.0, create)], replies=[calling("look"), Reply()], gives={"look": (0.1, "x")}).run(8)
    first, second = sim.requests()
    assert (first.tool_choice, second.tool_choice) == (choice, AUTO)
    assert (first.speak, second.speak) == (False, False)  # as the first was asked for
    assert first.messages[0] == second.messages[0]


def test_a_function_that_nobody_has_is_said_to_be_none():
    sim = Sim(speech=ASKED, config=CLIENT, replies=[calling("fly"), Reply()]).run(12)
    assert not sim.times(RunTool)
    (answered,) = sim.events(ev.CallAnswered)
    assert answered.item.result == ResultContent("call_fly", "There is no function 'fly'.")
    assert len(sim.requests()) == 2


def test_beside_a_call_that_the_client_answers_it_is_the_client_who_asks():
    sim = Sim(
        speech=ASKED,
        config=CLIENT,
        replies=[calling("look", "weather"), Reply()],
        gives={"look": (0.5, "a cup")},
        client=[(6.0, ev.CreateResult("call_weather", "rain")), (8.5, ev.CreateResponse())],
    ).run(8)
    assert len(sim.requests()) == 1
    sim.run(6)
    assert shape(sim.requests()[1].messages)[1:] == [
        ("assistant", "CallPart", "CallPart"),
        ("tool", "ResultPart"),
        ("tool", "ResultPart"),
    ]


def test_an_own_result_after_the_clients_is_answered_by_itself():
    sim = Sim(
        speech=ASKED,
        config=CLIENT,
        replies=[calling("look", "weather"), Reply()],
        gives={"look": (4.0, "a cup")},
        client=[(5.0, ev.CreateResult("call_weather", "rain"))],
    ).run(14)
    assert len(sim.requests()) == 2
    assert sim.times(ev.ResponseCreated)[1] == sim.times(ev.CallAnswered)[0]


def test_a_result_of_a_call_that_was_deleted_is_dropped():
    sim = Sim(speech=ASKED, replies=[calling("look"), Reply()], gives={"look": (2.0, "a cup")}).run(4)
    history = sim.conversation.history
    history.delete(history.items[-1].id)
    sim.run(8)
    assert not sim.events(ev.CallAnswered)
    assert not sim.errors
    assert "tool" not in [message.role for message in sim.requests()[-1].messages]


def test_what_is_typed_while_a_function_runs_is_answered_with_its_result_if_that_came_first():
    client = [(4.0, ev.CreateItem("user", "Hurry.")), (12.5, ev.CreateResponse())]
    replies, gives = [SAYS_AND_CALLS, Reply()], {"look": (0.1, "a cup")}
    sim = Sim(speech=ASKED, replies=replies, gives=gives, client=client).run(12)
    assert sim.times(ev.CallAnswered)[0] < 4.0 < sim.times(ev.PlayoutStopped)[0]
    assert len(sim.requests()) == 1  # the client asks for the response to what is typed
    sim.run(5)
    assert shape(sim.requests()[1].messages)[-2:] == [("tool", "ResultPart"), ("user", "TextPart")]


def test_nobody_is_asked_to_go_on_while_a_function_runs():
    config = with_session(UNHURRIED, turn_detection=TurnDetection(idle_timeout_ms=2_000))
    sim = Sim(speech=ASKED, config=config, replies=[calling("look"), Reply()], gives={"look": (8.0, "a cup")})
    sim.run(11)
    assert not sim.events(ev.TimeoutTriggered)
    assert len(sim.requests()) == 1
    sim.run(12)
    assert sim.events(ev.TimeoutTriggered)


def test_a_draft_runs_nothing_until_it_is_wanted():
    eager = replace(UNHURRIED, speculation=SpeculationConfig())
    calls = replace(calling("look"), first_delay=0.02)
    sim = Sim(
        speech=[(1.0, 2.0), (2.3, 3.0)],
        config=eager,
        replies=[calls, Reply()],
        gives={"look": (0.3, "a cup")},
    ).run(10)
    assert len(sim.marks("draft_wasted")) == len(sim.marks("draft_used")) == 1
    assert len(sim.times(RunTool)) == 1
    assert sim.times(RunTool)[0] == sim.times(ev.TurnCommitted)[0]
    assert [done.status for done in sim.events(ev.ResponseDone)] == ["completed", "completed"]


def test_a_draft_that_does_not_know_a_result_is_asked_for_again():
    def sim(takes: float) -> Sim:
        eager, speech = replace(UNHURRIED, speculation=SpeculationConfig()), [(1.0, 2.5), (4.5, 6.0)]
        return Sim(speech, [calling("look"), Reply()], config=eager, gives={"look": (takes, "a cup")}).run(14)

    (called,) = sim(20.0).times(RunTool)
    asked = sim(20.0).marks("draft_asked")[1]
    late = sim(asked + 0.1 - called)
    draft, wanted = late.requests()[-2:]
    assert len(late.times(CancelResponse)) == len(late.marks("draft_wasted")) == 1
    assert [draft.messages[-1].role, wanted.messages[-1].role] == ["user", "user"]
    assert "a cup" not in str(draft.messages)
    assert "a cup" in str(wanted.messages)


def test_where_the_client_asks_for_responses_no_result_answers_what_the_user_has_said():
    config = with_session(UNHURRIED, turn_detection=TurnDetection(create_response=False))
    client = [(3.5, ev.CreateResponse()), (12.0, ev.CreateResponse())]
    replies, gives = [calling("look"), Reply()], {"look": (2.0, "a cup")}
    sim = Sim([(1.0, 2.5), (5.0, 7.0)], replies, config=config, client=client, gives=gives).run(11)
    assert sim.times(ev.SpeechBegan)[1] < sim.times(ev.CallAnswered)[0] < sim.times(ev.SpeechEnded)[1]
    assert len(sim.requests()) == 1
    sim.run(5)
    assert "a cup" in str(sim.requests()[1].messages)


def test_each_call_is_counted():
    sim = Sim(speech=ASKED, config=CLIENT, replies=[calling("weather", "weather")]).run(6)
    assert len(sim.marks("called")) == 2


# Whatever happens.


def assert_answered(messages: Sequence[Message]) -> None:
    """Each message with calls is followed by their results, one message each, and there are no others."""
    awaited: list[str] = []
    for message in messages:
        if message.role == "tool":
            (part,) = message.parts
            assert isinstance(part, ResultPart)
            assert part.call_id == awaited.pop(0)
            continue
        assert not awaited
        awaited = [part.call_id for part in message.parts if isinstance(part, CallPart)]
        assert not awaited or message.role == "assistant"
    assert not awaited


own_or_not = st.lists(st.sampled_from(["look", "time", "weather", "fly"]), max_size=3)
answers = st.builds(
    lambda called, says: Reply(
        "One moment." if says or not called else "",
        seconds=2.0 * (says or not called),
        calls=[ToolCall(f"call_{name}", name, "{}") for name in called],
    ),
    own_or_not,
    st.booleans(),
)
acts = st.one_of(
    st.just(ev.CreateResponse()),
    st.just(ev.CancelGeneration()),
    st.just(ev.ClearOutput()),
    st.just(ev.CreateItem("user", "Hurry.")),
    st.builds(
        ev.CreateResult, st.sampled_from(["call_weather", "call_look", "call_call_5"]), st.text(max_size=3)
    ),
    st.builds(ev.CreateCall, st.just("weather"), st.just("{}"), st.sampled_from([None, "call_weather"])),
)


@given(
    starts=st.lists(st.floats(1.0, 4.0), min_size=1, max_size=5),
    replies=st.lists(answers, min_size=1, max_size=5),
    client=st.lists(st.tuples(st.floats(1.0, 25.0), acts), max_size=6),
    takes=st.floats(0.0, 6.0),
    eager=st.booleans(),
)
def test_calls_and_results_keep_together_whatever_happens(
    starts: list[float],
    replies: list[Reply],
    client: list[tuple[float, ev.ClientEvent]],
    takes: float,
    eager: bool,
):
    at, speech = 0.0, []
    for pause in starts:
        speech.append((at + pause, at + pause + 1.0))
        at += pause + 1.0
    config = replace(CLIENT, speculation=SpeculationConfig(enabled=eager))
    gives = {"look": (takes, "a cup"), "time": (takes / 2, "noon")}
    sim = Sim(speech, [*replies, Reply()], config=config, client=client, gives=gives).run(60)
    assert all(isinstance(error, ClientEventError) for _, error in sim.errors)
    for request in sim.requests():
        assert_answered(request.messages)
    if not any(isinstance(act, ev.CreateResponse) for _, act in client):
        assert {request.messages[-1].role for request in sim.requests()} <= {"user", "tool"}
    begun = [event.item.id for event in sim.events(ev.CallBegan)]
    assert begun == [event.item.id for event in sim.events(ev.CallEnded)]
    assert begun == [item.id for done in sim.events(ev.ResponseDone) for item in done.calls]
    own = {event.item.id for event in sim.events(ev.CallEnded) if event.item.call.own}
    assert own == {event.item.id for event in sim.events(ev.CallAnswered)}
    assert len(sim.times(RunTool)) <= len(own)
    assert sim.conversation.floor is Floor.IDLE


# Results that a client leaves to us to answer.


def patient(at: float) -> list[tuple[float, ev.ClientEvent]]:
    return [(at, ev.CreateResult("call_weather", "sunny")), (at, ev.CreateResponse(patient=True))]


def test_results_that_come_while_something_else_is_answered_are_answered_after_it():
    replies = [calling("weather"), Reply("Something else.", seconds=4), Reply("It is sunny.")]
    sim = Sim(speech=[(1.0, 2.5), (4.5, 6.0)], config=CLIENT, replies=replies, client=patient(8)).run(20)
    assert sim.errors == []
    assert len(sim.requests()) == 3
    assert sim.requests()[2].messages[-1].parts == (ResultPart("call_weather", "sunny"),)
    played = names(sim, ev.PlayoutStarted, ev.PlayoutStopped)
    assert played == ["PlayoutStarted", "PlayoutStopped"] * 2


def test_results_that_come_while_the_user_speaks_are_in_the_answer_to_that():
    replies = [calling("weather"), Reply("It is sunny.")]
    sim = Sim(speech=[(1.0, 2.5), (4.5, 8.0)], config=CLIENT, replies=replies, client=patient(5.5)).run(20)
    assert sim.errors == []
    assert len(sim.requests()) == 2
    assert sim.requests()[1].messages[-1].role == "user"
