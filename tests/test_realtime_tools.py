"""Functions on OpenAI's Realtime wire."""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from openai.types.realtime import RealtimeServerEvent
from pydantic import TypeAdapter

from sim import UNHURRIED, Reply, Sim
from visavis import events as ev
from visavis.config import SessionConfig, Tool, ToolChoice
from visavis.engine import ToolCall
from visavis.errors import ClientEventError
from visavis.history import CallContent, Item, ResultContent, SpokenContent
from visavis.protocol.realtime import RealtimeProtocol

GOLDEN = Path(__file__).parent / "golden"
ORACLE: TypeAdapter[Any] = TypeAdapter(RealtimeServerEvent)
WEATHER = Tool("weather", "What the weather is.", '{"type":"object","properties":{"city":{"type":"string"}}}')
SESSION = SessionConfig(instructions="Be brief.", tools=(WEATHER,))

SAID = Item("item_2", "assistant", (SpokenContent("Let me see."),))
CALL = Item("item_3", "assistant", (CallContent("call_1", "weather", '{"city":"Rome"}'),))
OWN = Item("item_4", "assistant", (CallContent("call_2", "look", "{}", own=True),))
SEEN = replace(OWN, content=(*OWN.content, ResultContent("call_2", "a cup")))
RAIN = Item("item_5", "tool", (ResultContent("call_1", "rain"),))

CALLS: list[ev.ServerEvent] = [
    ev.ResponseCreated(1, ("audio",)),
    ev.ReplyBegan(1, replace(SAID, content=(SpokenContent(""),), status="in_progress"), "item_1"),
    ev.ReplyText(1, "item_2", "Let me see."),
    ev.ReplyEnded(1, SAID, "item_1"),
    ev.CallBegan(1, CALL, "item_2", 1),
    ev.CallArguments(1, "item_3", 1, "call_1", '{"city":"Rome"}'),
    ev.CallEnded(1, CALL, "item_2", 1),
    ev.CallBegan(1, OWN, "item_3", 2),
    ev.CallEnded(1, OWN, "item_3", 2),
    ev.ResponseDone(1, "completed", item=SAID, calls=(CALL, OWN)),
    ev.ItemRetrieved(OWN),
    ev.CallAnswered(1, SEEN, "item_3", 2),
    ev.ItemAdded(RAIN, "item_4"),
    ev.ItemDone(RAIN, "item_4"),
]


def encode(*events: ev.ServerEvent) -> list[dict[str, Any]]:
    wire = RealtimeProtocol("rtc_abc", "qwen")
    return [json.loads(message) for event in events for message in wire.encode(event)]


def decode(message: object, session: SessionConfig = SESSION) -> ev.ClientEvent:
    (event,) = RealtimeProtocol("rtc_abc", "qwen").decode(json.dumps(message), session).events
    return event


def refused(message: object) -> ClientEventError:
    with pytest.raises(ClientEventError) as caught:
        decode(message)
    return caught.value


def update(**session: object) -> SessionConfig:
    event = decode({"type": "session.update", "session": session})
    assert isinstance(event, ev.UpdateSession)
    return event.session


def create(**item: object) -> dict[str, Any]:
    return {"type": "conversation.item.create", "item": item}


# To the client.


def test_calls_are_told_as_the_golden_file_has_it() -> None:
    """After a wanted change: VISAVIS_GOLDEN=write, run, and read the difference."""
    path = GOLDEN / "realtime_calls.json"
    told = encode(*CALLS)
    if os.environ.get("VISAVIS_GOLDEN") == "write":
        path.write_text(json.dumps(told, indent=1) + "\n")
    assert told == json.loads(path.read_text())


def test_every_event_of_a_call_is_valid_to_the_stock_client() -> None:
    for body in encode(*CALLS):
        assert ORACLE.validate_python(body).type == body["type"]


def test_a_call_is_told_in_the_order_of_the_interface() -> None:
    told = encode(ev.CallBegan(1, CALL, "item_2", 1), CALLS[5], ev.CallEnded(1, CALL, "item_2", 1))
    assert [body["type"] for body in told] == [
        "response.output_item.added",
        "conversation.item.added",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "conversation.item.done",
        "response.output_item.done",
    ]
    assert {body["output_index"] for body in told if "output_index" in body} == {1}
    begun, whole = told[0]["item"], told[-1]["item"]
    assert (begun["status"], begun["arguments"]) == ("in_progress", "")
    assert whole == {
        "id": "item_3",
        "object": "realtime.item",
        "type": "function_call",
        "status": "completed",
        "call_id": "call_1",
        "name": "weather",
        "arguments": '{"city":"Rome"}',
    }


def test_a_response_ends_with_all_its_items_the_message_first() -> None:
    done = next(body for body in encode(*CALLS) if body["type"] == "response.done")
    assert [item["type"] for item in done["response"]["output"]] == ["message", "function_call", "mcp_call"]
    alone = encode(ev.ResponseCreated(1, ("audio",)), ev.ResponseDone(1, "completed", calls=(CALL,)))[1]
    assert [item["id"] for item in alone["response"]["output"]] == ["item_3"]


def test_what_the_server_runs_itself_is_no_function_call_to_anybody() -> None:
    told = encode(*CALLS[7:9], *CALLS[10:12])
    assert [body["type"] for body in told] == [
        "response.output_item.added",
        "conversation.item.added",
        "response.mcp_call_arguments.done",
        "response.mcp_call.in_progress",
        "response.output_item.done",
        "conversation.item.retrieved",
        "response.mcp_call.completed",
        "conversation.item.done",
    ]
    items = [body["item"] for body in told if "item" in body]
    assert {item["type"] for item in items} == {"mcp_call"}
    assert [item["output"] for item in items] == [None, None, None, None, "a cup"]


def test_a_result_has_no_role() -> None:
    (told,) = encode(ev.ItemRetrieved(RAIN))
    assert told["item"] == {
        "id": "item_5",
        "object": "realtime.item",
        "type": "function_call_output",
        "status": "completed",
        "call_id": "call_1",
        "output": "rain",
    }


@pytest.mark.parametrize(
    ("choice", "told"),
    [
        (ToolChoice(), "auto"),
        (ToolChoice("required"), "required"),
        (ToolChoice("function", "weather"), {"type": "function", "name": "weather"}),
    ],
)
def test_the_session_tells_its_functions_and_takes_them_back(choice: ToolChoice, told: object) -> None:
    session = replace(SESSION, tool_choice=choice)
    (body,) = encode(ev.SessionUpdated(session))
    assert ORACLE.validate_python(body).type == "session.updated"
    assert body["session"]["tool_choice"] == told
    assert body["session"]["tools"] == [
        {
            "type": "function",
            "name": "weather",
            "description": "What the weather is.",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
        }
    ]
    event = decode({"type": "session.update", "session": body["session"]}, session)
    assert isinstance(event, ev.UpdateSession)
    assert (event.session.tools, event.session.tool_choice) == (session.tools, session.tool_choice)


# From the client.


def test_functions_are_set_replaced_and_cleared() -> None:
    assert update(instructions="Hi.").tools == (WEATHER,)
    plain = {"type": "function", "name": "time"}
    assert update(tools=[plain, plain | {"name": "day", "description": None, "parameters": None}]).tools == (
        Tool("time"),
        Tool("day"),
    )
    assert update(tools=[{"name": "f", "parameters": {"description": "wörds"}}]).tools == (
        Tool("f", "", '{"description":"wörds"}'),
    )
    assert update(tools=[]).tools == update(tools=None).tools == ()
    assert update(tool_choice="none").tool_choice == ToolChoice("none")
    assert update(tool_choice=None).tool_choice == ToolChoice()
    assert update(tool_choice={"type": "function", "name": "f"}).tool_choice == ToolChoice("function", "f")


def nested(depth: int) -> object:
    value: object = {}
    for _ in range(depth):
        value = [value]
    return {"x": value}


@pytest.mark.parametrize(
    ("session", "code", "param"),
    [
        ({"tools": {}}, "invalid_type", "tools"),
        ({"tools": ["weather"]}, "invalid_type", "tools[0]"),
        ({"tools": [{"type": "mcp", "server_label": "x"}]}, "unsupported_tool", "tools[0].type"),
        ({"tools": [{"type": "web_search"}]}, "unsupported_tool", "tools[0].type"),
        ({"tools": [{}]}, "missing_required_parameter", "tools[0].name"),
        ({"tools": [{"name": "no spaces"}]}, "invalid_value", "tools[0].name"),
        ({"tools": [{"name": "x" * 65}]}, "invalid_value", "tools[0].name"),
        ({"tools": [{"name": "f"}, {"name": "f"}]}, "invalid_value", "tools"),
        ({"tools": [{"name": f"f{k}"} for k in range(129)]}, "invalid_value", "tools"),
        ({"tools": [{"name": name, "description": "x" * 30_000} for name in "fg"]}, "invalid_value", "tools"),
        ({"tools": [{"name": "f", "description": 7}]}, "invalid_type", "tools[0].description"),
        ({"tools": [{"name": "f", "parameters": []}]}, "invalid_type", "tools[0].parameters"),
        ({"tools": [{"name": "f", "parameters": nested(100)}]}, "invalid_value", "tools[0].parameters"),
        ({"tools": [{"name": "f", "parameters": {"x": "\ud800"}}]}, "invalid_value", "tools[0].parameters"),
        ({"tool_choice": "sometimes"}, "invalid_value", "tool_choice"),
        ({"tool_choice": {"type": "function"}}, "missing_required_parameter", "tool_choice.name"),
        ({"tool_choice": {"type": "mcp", "server_label": "x"}}, "unsupported_tool", "tool_choice.type"),
    ],
)  # fmt: skip
def test_a_wrong_function_is_refused_by_name(session: object, code: str, param: str) -> None:
    error = refused({"type": "session.update", "session": session})
    assert (error.code, error.param) == (code, f"session.{param}")
    assert str(error).startswith(f"session.{param}")


def test_a_number_that_is_none_in_json_is_refused() -> None:
    text = '{"type":"session.update","session":{"tools":[{"name":"f","parameters":{"x":1e999}}]}}'
    with pytest.raises(ClientEventError) as caught:
        RealtimeProtocol("rtc_abc", "qwen").decode(text, SESSION)
    assert caught.value.param == "session.tools[0].parameters"


def test_a_response_may_have_functions_of_its_own() -> None:
    asked = {"tools": [{"type": "function", "name": "time"}], "tool_choice": "required"}
    event = decode({"type": "response.create", "response": asked})
    assert event == ev.CreateResponse(tools=(Tool("time"),), tool_choice=ToolChoice("required"))
    assert refused({"type": "response.create", "response": {"tools": 7}}).param == "response.tools"


def test_results_and_calls_of_another_time_are_understood() -> None:
    result = create(type="function_call_output", call_id="call_1", output="")
    assert decode(result | {"previous_item_id": "root"}) == ev.CreateResult("call_1", "", None, "root")
    made = {"type": "function_call", "id": "mine", "call_id": "call_1", "name": "f", "arguments": "{}"}
    assert decode(create(**made, status="completed")) == ev.CreateCall("f", "{}", "call_1", "mine", None)
    assert decode(create(type="function_call", name="f", arguments="{}")) == ev.CreateCall("f", "{}")


@pytest.mark.parametrize(
    ("item", "param"),
    [
        ({"type": "function_call_output", "output": "x"}, "item.call_id"),
        ({"type": "function_call_output", "call_id": "x"}, "item.output"),
        ({"type": "function_call_output", "call_id": "x", "output": {}}, "item.output"),
        ({"type": "function_call", "arguments": "{}"}, "item.name"),
        ({"type": "function_call", "name": "f"}, "item.arguments"),
    ],
)
def test_a_wrong_call_or_result_is_refused_by_name(item: dict[str, Any], param: str) -> None:
    assert refused(create(**item)).param == param


# As it comes.


def test_a_whole_call_with_functions_is_valid_to_the_stock_client() -> None:
    says = Reply(
        "Let me see.", seconds=1.0, calls=[ToolCall("a", "look", "{}"), ToolCall("b", "weather", "{}")]
    )
    sim = Sim(
        speech=[(1.0, 2.5)],
        replies=[says, Reply("It rains.")],
        config=replace(UNHURRIED, session=SESSION),
        gives={"look": (0.5, "a cup")},
        client=[(6.0, ev.CreateResult("b", "rain")), (6.1, ev.CreateResponse())],
    ).run(14)
    told = encode(*sim.events())
    for body in told:
        if not body["type"].startswith("visavis."):
            assert ORACLE.validate_python(body).type == body["type"]
    indexes = [body["output_index"] for body in told if body["type"] == "response.output_item.done"]
    assert indexes == [0, 1, 2, 0]
    known: set[str | None] = {None}
    for body in told:
        if body["type"] == "conversation.item.added":
            assert body["previous_item_id"] in known
            known.add(body["item"]["id"])
