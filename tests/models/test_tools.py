"""The embedded engine with its real model decides what to call, and says what came of it."""

import json
from collections.abc import Callable

import numpy as np
import pytest
from asking import Client

from visavis.audio import Pcm
from visavis.config import EngineConfig, Tool
from visavis.engine import (
    AudioDelta,
    CallPart,
    Delta,
    Done,
    Message,
    Request,
    ResultPart,
    TextDelta,
    TextPart,
    ToolCall,
)
from visavis.engine.vllm import VllmEngine

pytestmark = pytest.mark.models

WEATHER = Tool(
    "weather",
    "Tells the weather of a place now.",
    '{"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]}',
)
LIGHT = Tool(
    "set_light",
    "Switches the light of a room on or off.",
    '{"type": "object", "properties": {"room": {"enum": ["kitchen", "garage"]}, "on": {"type": "boolean"}},'
    ' "required": ["room", "on"], "additionalProperties": false}',
)


def user(text: str) -> Message:
    return Message("user", (TextPart(text),))


async def ask(client: Client, *messages: Message) -> list[Delta]:
    """Ask as the server does, by its own client."""
    engine = VllmEngine(EngineConfig(name="local", url=f"unix://{client.supervisor.socket}", temperature=0.0))
    try:
        request = Request("tools", messages, tools=(WEATHER, LIGHT))
        return [delta async for delta in engine.respond(request)]
    finally:
        await engine.aclose()


def text_of(deltas: list[Delta]) -> str:
    return "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))


async def test_what_a_function_does_is_called_answered_and_spoken_and_what_none_does_is_answered_at_once(
    client: Client, hear: Callable[[Pcm], str]
) -> None:
    asked = user("Switch on the light in the garage, please.")
    deltas = await ask(client, asked)
    (call,) = [delta for delta in deltas if isinstance(delta, ToolCall)]
    assert call.name == "set_light"
    assert json.loads(call.arguments) == {"room": "garage", "on": True}
    assert text_of(deltas) == ""
    assert not any(isinstance(delta, AudioDelta) for delta in deltas)
    assert deltas[-1] == Done("tool_calls")

    called = Message("assistant", (CallPart(call.call_id, call.name, call.arguments),))
    given = Message("tool", (ResultPart(call.call_id, "The light in the garage is on now."),))
    deltas = await ask(client, asked, called, given)
    assert "light" in text_of(deltas)
    assert "[" not in text_of(deltas)
    sound = np.concatenate([delta.pcm for delta in deltas if isinstance(delta, AudioDelta)])
    assert "light" in hear(sound).lower()

    deltas = await ask(client, user("What is seven times eight?"))
    assert "fifty-six" in text_of(deltas) or "56" in text_of(deltas)
    assert deltas[-1] == Done("stop")
