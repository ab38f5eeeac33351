"""What a client's Realtime events ask of the conversation. Sans-I/O."""

import re
from dataclasses import replace
from functools import partial
from typing import Any

from .. import events as ev
from ..config import SessionConfig
from .fields import Fields, integer, one_of, optional, refuse, shown, text
from .realtime_items import Later, read_create, read_input
from .realtime_session import (
    MAX_ID,
    instructions,
    merge_session,
    read_modalities,
    read_token_limit,
    refuse_prompt,
    temperature,
    voice,
)
from .realtime_tools import tool_choice, tools

_MAX_MS = 3_600_000
"Of a reply's sound: no call is so long."

_MAX_METADATA = 16


def read_event(fields: Fields, session: SessionConfig, key: str) -> ev.ClientEvent | Later[ev.ClientEvent]:
    """Return what a client's event asks for, or what makes it. Raises ClientEventError, naming what is wrong.

    `session` is what changes are laid over; `key` is the middle part of the response ids of the call.
    """
    kind = fields.require("type", text(MAX_ID))
    match kind:
        case "session.update":
            return ev.UpdateSession(merge_session(session, fields.require("session", _any)))
        case "conversation.item.create":
            return read_create(fields, session.input_format)
        case "conversation.item.retrieve":
            return ev.RetrieveItem(fields.require("item_id", text(MAX_ID, 1)))
        case "conversation.item.delete":
            return ev.DeleteItem(fields.require("item_id", text(MAX_ID, 1)))
        case "conversation.item.truncate":
            fields.require("content_index", one_of(0))
            item_id = fields.require("item_id", text(MAX_ID, 1))
            return ev.TruncateItem(item_id, fields.require("audio_end_ms", integer(0, _MAX_MS)))
        case "input_audio_buffer.commit":
            return ev.CommitAudio()
        case "input_audio_buffer.clear":
            return ev.ClearAudio()
        case "response.create":
            return _read_response(fields.within("response"), session)
        case "response.cancel":
            response_id = fields.read("response_id", optional(partial(_read_response_id, key)), None)
            return ev.CancelGeneration(response_id)
        case "output_audio_buffer.clear":
            return ev.ClearOutput()
    return refuse(f"There is no client event {shown(kind)}.", "type", "unknown_event")


def _read_response_id(key: str, value: Any, param: str) -> int:
    wire_id = text(MAX_ID)(value, param)
    found = re.fullmatch(rf"resp_{re.escape(key)}_([1-9][0-9]{{0,17}})", wire_id)
    if found is None:
        refuse(f"This call has no response {shown(wire_id)}.", param, "response_not_found")
    return int(found[1])


def _read_response(response: Fields, session: SessionConfig) -> ev.CreateResponse | Later[ev.ClientEvent]:
    modalities = read_modalities(response, ())
    refuse_prompt(response)
    given = response.read("input", optional(partial(read_input, sound=session.input_format)), None)
    create = ev.CreateResponse(
        instructions=response.read("instructions", optional(instructions), None),
        output_modalities=modalities or None,
        max_output_tokens=read_token_limit(response, None),
        temperature=response.read("temperature", temperature, None),
        tools=response.read("tools", tools, None),
        tool_choice=response.read("tool_choice", tool_choice, None),
        voice=response.within("audio")
        .within("output")
        .read("voice", voice, response.read("voice", voice, None)),
        outside=response.read("conversation", optional(text(MAX_ID)), None) == "none",
        metadata=response.read("metadata", _metadata, ()),
    )
    if given is None:
        return create

    def make() -> ev.CreateResponse:
        return replace(create, input=given.items())

    return make if given.has_pictures else make()


def _metadata(value: Any, param: str) -> tuple[tuple[str, str], ...]:
    if value is None:
        return ()
    Fields(value, param)
    if len(value) > _MAX_METADATA:
        refuse(f"{param} must have at most {_MAX_METADATA} members, not {len(value)}.", param)
    return tuple((text(64)(name, param), text(512)(each, f"{param}.{name}")) for name, each in value.items())


def _any(value: Any, param: str) -> Any:
    return value
