"""What a client's Realtime events ask of the conversation. Sans-I/O."""

import re
from functools import partial
from typing import Any

from .. import events as ev
from ..config import SessionConfig
from .fields import Check, Fields, array, one_of, optional, refuse, shown, text
from .realtime_session import (
    MAX_ID,
    MAX_TEXT,
    instructions,
    merge_session,
    read_modalities,
    read_token_limit,
    temperature,
)
from .realtime_tools import read_call, read_result, tool_choice, tools

_MAX_PARTS = 64

_LATER = frozenset(
    {
        "conversation.item.delete",
        "conversation.item.truncate",
    }
)
"Events of the interface that this server does not obey yet."


def read_event(fields: Fields, session: SessionConfig, key: str) -> ev.ClientEvent:
    """Return what a client's event asks for. Raises ClientEventError, naming what is wrong.

    `session` is what changes are laid over; `key` is the middle part of the response ids of the call.
    """
    kind = fields.require("type", text(MAX_ID))
    match kind:
        case "session.update":
            return ev.UpdateSession(merge_session(session, fields.require("session", _any)))
        case "conversation.item.create":
            return _read_item(fields)
        case "conversation.item.retrieve":
            return ev.RetrieveItem(fields.require("item_id", text(MAX_ID, 1)))
        case "input_audio_buffer.commit":
            return ev.CommitAudio()
        case "input_audio_buffer.clear":
            return ev.ClearAudio()
        case "response.create":
            return _read_response(fields.within("response"))
        case "response.cancel":
            response_id = fields.read("response_id", optional(partial(_read_response_id, key)), None)
            return ev.CancelGeneration(response_id)
        case "output_audio_buffer.clear":
            return ev.ClearOutput()
    if kind in _LATER:
        refuse(f"{kind} is not supported by this server yet.", "type", "unsupported_event")
    return refuse(f"There is no client event {shown(kind)}.", "type", "unknown_event")


def _read_response_id(key: str, value: Any, param: str) -> int:
    wire_id = text(MAX_ID)(value, param)
    found = re.fullmatch(rf"resp_{re.escape(key)}_([1-9][0-9]{{0,17}})", wire_id)
    if found is None:
        refuse(f"This call has no response {shown(wire_id)}.", param, "response_not_found")
    return int(found[1])


def _read_item(fields: Fields) -> ev.CreateItem | ev.CreateCall | ev.CreateResult:
    item = fields.require("item", Fields)
    kind = item.read("type", text(MAX_ID), "message")
    if kind == "function_call":
        return read_call(fields, item)
    if kind == "function_call_output":
        return read_result(fields, item)
    if kind != "message":
        refuse(f"Items of type {shown(kind)} are not supported.", item.param("type"), "unsupported_item")
    role: Check[Any] = one_of("user", "assistant", "system")
    parts = item.require("content", array(_MAX_PARTS, 1))
    texts = [
        _read_text(Fields(part, f"{item.param('content')}[{index}]")) for index, part in enumerate(parts)
    ]
    whole = text(MAX_TEXT)("\n".join(texts), item.param("content"))
    if not whole.strip():
        refuse("The message has no text.", item.param("content"))
    return ev.CreateItem(
        role=item.require("role", role),
        text=whole,
        item_id=item.read("id", optional(text(MAX_ID, 1)), None),
        previous_item_id=fields.read("previous_item_id", optional(text(MAX_ID, 1)), None),
    )


def _read_text(part: Fields) -> str:
    kind = part.require("type", text(MAX_ID))
    if kind not in ("input_text", "output_text", "text"):
        refuse(f"Content of type {shown(kind)} is not supported.", part.param("type"), "unsupported_content")
    return part.require("text", text(MAX_TEXT))


def _read_response(response: Fields) -> ev.CreateResponse:
    if response.read("conversation", _any, None) == "none":
        param = response.param("conversation")
        refuse("Responses outside the conversation are not supported.", param, "unsupported_parameter")
    if response.read("input", _any, None) is not None:
        param = response.param("input")
        refuse("Responses to other input are not supported.", param, "unsupported_parameter")
    modalities = read_modalities(response, ())
    return ev.CreateResponse(
        instructions=response.read("instructions", optional(instructions), None),
        output_modalities=modalities or None,
        max_output_tokens=read_token_limit(response, None),
        temperature=response.read("temperature", temperature, None),
        tools=response.read("tools", tools, None),
        tool_choice=response.read("tool_choice", tool_choice, None),
    )


def _any(value: Any, param: str) -> Any:
    return value
