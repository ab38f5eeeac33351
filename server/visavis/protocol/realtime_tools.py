"""Functions that the model calls, in OpenAI's Realtime words: tools, calls and results. Sans-I/O.

A call of the client's is an item `function_call`, as the client is to run it. One of the server's own is told
as OpenAI tells what it runs itself, as an item `mcp_call`: stock clients show it and leave it alone.
"""

import json
from collections.abc import Iterator
from typing import Any

from .. import events as ev
from ..config import AUTO, Tool, ToolChoice
from ..errors import ConfigError
from ..history import CallContent, Item, ResultContent
from .fields import Check, Fields, array, one_of, optional, refuse, refuse_type, shown, text

Body = dict[str, Any]

MAX_ID = 128
MAX_TEXT = 50_000
"Characters of arguments or of a result: what goes back to the client must fit in one message."

_MAX_TOOLS = 128
_MAX_SCHEMAS = 50_000
"Bytes of all tools of a session: they go back to the client with its instructions, in one message."
_MAX_DEPTH = 64
"Of a schema: far below what JSON's own reader and writer can do."

_SERVER = "visavis"
"What the server's own functions are labelled with."


def tool_objects(tools: tuple[Tool, ...]) -> list[Body]:
    """Return tools as stock clients expect them."""
    return [
        {
            "type": "function",
            "name": tool.name,
            "description": tool.description,
            "parameters": json.loads(tool.parameters),
        }
        for tool in tools
    ]


def tool_choice_object(choice: ToolChoice) -> str | Body:
    """Return a choice as stock clients expect it."""
    return {"type": "function", "name": choice.name} if choice.mode == "function" else choice.mode


def read_call(fields: Fields, item: Fields) -> ev.CreateCall:
    """Read `conversation.item.create` with a call that was made at another time."""
    return ev.CreateCall(
        name=item.require("name", text(64, 1)),
        arguments=item.require("arguments", text(MAX_TEXT)),
        call_id=item.read("call_id", optional(text(MAX_ID, 1)), None),
        item_id=item.read("id", optional(text(MAX_ID, 1)), None),
        previous_item_id=fields.read("previous_item_id", optional(text(MAX_ID, 1)), None),
    )


def read_result(fields: Fields, item: Fields) -> ev.CreateResult:
    """Read `conversation.item.create` with what a call gave."""
    return ev.CreateResult(
        call_id=item.require("call_id", text(MAX_ID, 1)),
        output=item.require("output", text(MAX_TEXT)),
        item_id=item.read("id", optional(text(MAX_ID, 1)), None),
        previous_item_id=fields.read("previous_item_id", optional(text(MAX_ID, 1)), None),
    )


def call_object(item: Item, call: CallContent) -> Body:
    """Return the item of a call, with its result if it is the server's own and has one."""
    if call.own:
        return {
            "id": item.id,
            "object": "realtime.item",
            "type": "mcp_call",
            "server_label": _SERVER,
            "name": call.name,
            "arguments": call.arguments,
            # The key must be there even when nothing is known yet: stock clients lose the item else.
            "output": None if item.result is None else item.result.output,
        }
    return {
        "id": item.id,
        "object": "realtime.item",
        "type": "function_call",
        "status": item.status,
        "call_id": call.call_id,
        "name": call.name,
        "arguments": call.arguments,
    }


def result_object(item: Item, result: ResultContent) -> Body:
    """Return the item of what a client's call gave."""
    return {
        "id": item.id,
        "object": "realtime.item",
        "type": "function_call_output",
        "status": item.status,
        "call_id": result.call_id,
        "output": result.output,
    }


def call_events(
    event: ev.CallBegan | ev.CallArguments | ev.CallEnded | ev.CallAnswered, response_id: str
) -> Iterator[Body]:
    """Tell of a call. `response_id` is the wire's."""
    place = {"response_id": response_id, "output_index": event.output_index}
    if isinstance(event, ev.CallArguments):
        of_call = {**place, "item_id": event.item_id, "call_id": event.call_id}
        yield {"type": "response.function_call_arguments.delta", **of_call, "delta": event.text}
        return
    item, previous = event.item, {"previous_item_id": event.previous_item_id}
    call = item.call
    assert call is not None
    whole = call_object(item, call)
    running = {"item_id": item.id, "output_index": event.output_index}
    match event:
        case ev.CallBegan():
            begun = whole | {"arguments": ""} | ({} if call.own else {"status": "in_progress"})
            yield {"type": "response.output_item.added", **place, "item": begun}
            yield {"type": "conversation.item.added", **previous, "item": begun}
        case ev.CallEnded() if call.own:
            yield {
                "type": "response.mcp_call_arguments.done",
                **place,
                "item_id": item.id,
                "arguments": call.arguments,
            }
            yield {"type": "response.mcp_call.in_progress", **running}
            yield {"type": "response.output_item.done", **place, "item": whole}
        case ev.CallEnded():
            yield {
                "type": "response.function_call_arguments.done",
                **place,
                "item_id": item.id,
                "call_id": call.call_id,
                "name": call.name,
                "arguments": call.arguments,
            }
            yield {"type": "conversation.item.done", **previous, "item": whole}
            yield {"type": "response.output_item.done", **place, "item": whole}
        case _:
            yield {"type": "response.mcp_call.completed", **running}
            yield {"type": "conversation.item.done", **previous, "item": whole}


# Any: values of a client's JSON.


def tools(value: Any, param: str) -> tuple[Tool, ...]:
    """Read the functions that may be called; null and an empty list are none."""
    each = array(_MAX_TOOLS)([] if value is None else value, param)
    found = tuple(_tool(Fields(tool, f"{param}[{index}]")) for index, tool in enumerate(each))
    size = sum(len(f"{tool.name}{tool.description}{tool.parameters}".encode()) for tool in found)
    if size > _MAX_SCHEMAS:
        refuse(f"{param} must have at most {_MAX_SCHEMAS} bytes in all, not {size}.", param)
    if len({tool.name for tool in found}) < len(found):
        refuse(f"{param} must not have the same name twice.", param)
    return found


def _tool(fields: Fields) -> Tool:
    _only_functions(fields)
    name = fields.require("name", text(64, 1))
    try:
        return Tool(
            name,
            fields.read("description", optional(text(MAX_TEXT)), None) or "",
            fields.read("parameters", optional(_schema), None) or "{}",
        )
    except ConfigError as error:
        return refuse(f"{fields.param('name')}: {error}", fields.param("name"))


def _only_functions(fields: Fields) -> None:
    kind = fields.read("type", text(MAX_ID), "function")
    param = fields.param("type")
    if kind == "mcp":
        refuse(
            f"{param}: this server calls no MCP server for a client; its operator may configure some.",
            param,
            "unsupported_tool",
        )
    if kind != "function":
        refuse(f"{param} must be 'function', not {shown(kind)}.", param, "unsupported_tool")


def _schema(value: Any, param: str) -> str:
    """Accept an object, and return it as the JSON that everybody writes."""
    if not isinstance(value, dict):
        refuse_type(value, param, "an object")
    if not _is_flatter(value, _MAX_DEPTH):
        refuse(f"{param} is nested more than {_MAX_DEPTH} deep.", param)
    try:
        written = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except ValueError:
        refuse(f"{param} has a number that is too large.", param)
    return text(MAX_TEXT)(written, param)


def _is_flatter(value: Any, depth: int) -> bool:
    if not isinstance(value, dict | list):
        return True
    inner = value.values() if isinstance(value, dict) else value
    return depth > 0 and all(_is_flatter(each, depth - 1) for each in inner)


def tool_choice(value: Any, param: str) -> ToolChoice:
    """Read whether functions are called; null is auto."""
    if value is None:
        return AUTO
    if isinstance(value, dict):
        fields = Fields(value, param)
        _only_functions(fields)
        return ToolChoice("function", fields.require("name", text(64, 1)))
    return ToolChoice(_mode(value, param))


_mode: Check[Any] = one_of("auto", "none", "required")
