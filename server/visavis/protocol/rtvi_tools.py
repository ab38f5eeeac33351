"""Functions that the model calls, in RTVI's words: the client's to run, and the server's own. Sans-I/O.

RTVI has no word by which a client asks for the answer to its results: they are answered when all are there.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from .. import events as ev
from ..history import CallContent
from .fields import Fields, refuse, text
from .realtime_tools import MAX_ID, MAX_TEXT

Body = dict[str, Any]

_MAX_CALLS = 64
"Calls that are remembered; the oldest give way."

_ANSWER = ev.CreateResponse(patient=True)
"A function may take so long that the user says something else meanwhile."


@dataclass(slots=True)
class _Call:
    response_id: int
    name: str
    own: bool
    answered: bool = False


class ToolCalls:
    """The calls of functions in one call."""

    def __init__(self) -> None:
        self.legacy = False
        "The client speaks a version before 1.2, with one message for a call."
        self._calls: dict[str, _Call] = {}

    def tell(
        self, event: ev.CallBegan | ev.CallEnded | ev.CallAnswered | ev.ItemDone
    ) -> Iterator[tuple[str, Body]]:
        """Give type and data of the messages that tell an event."""
        call, result = event.item.call, event.item.result
        match event:
            case ev.CallBegan() if call is not None:
                self._remember(call, event.response_id)
                if not self.legacy:
                    yield "llm-function-call-started", {"function_name": call.name}
            case ev.CallEnded() if call is not None and self.legacy:
                yield (
                    "llm-function-call",
                    {"function_name": call.name, "tool_call_id": call.call_id, "args": _arguments(call)},
                )
            case ev.CallEnded() if call is not None:
                yield (
                    "llm-function-call-in-progress",
                    {"function_name": call.name, "tool_call_id": call.call_id, "arguments": _arguments(call)},
                )
            case ev.CallAnswered() | ev.ItemDone() if result is not None:
                told = {"tool_call_id": result.call_id, "cancelled": False, "result": result.output}
                if (known := self._calls.get(result.call_id)) is not None:
                    known.answered = True
                    told["function_name"] = known.name
                yield "llm-function-call-stopped", told
            case _:
                pass

    def read_result(self, data: Fields) -> tuple[ev.ClientEvent, ...]:
        """Read a result, and ask for the answer if it is the last. Raises ClientEventError."""
        call_id = data.require("tool_call_id", text(MAX_ID, 1))
        output = data.require("result", _output)
        call = self._calls.get(call_id)
        result = ev.CreateResult(call_id, output)
        if call is None:  # of a call that this one goes on from, or of none, which is refused
            return result, _ANSWER
        if call.own:
            refuse(f"{call.name} is run by the server.", data.param("tool_call_id"))
        call.answered = True
        others = [other for other in self._calls.values() if other.response_id == call.response_id]
        # Once the server's own are done, it asks by itself.
        return (result, _ANSWER) if all(other.answered for other in others) else (result,)

    def _remember(self, call: CallContent, response_id: int) -> None:
        self._calls[call.call_id] = _Call(response_id, call.name, call.own)
        if len(self._calls) > _MAX_CALLS:
            del self._calls[next(iter(self._calls))]


def _arguments(call: CallContent) -> Body:
    """Return what a model wrote as the object that clients expect."""
    try:
        arguments = json.loads(call.arguments)
    except (ValueError, RecursionError):
        return {}
    return arguments if isinstance(arguments, dict) else {}


def _output(value: Any, param: str) -> str:
    """Accept any JSON; what is no string is written as JSON for the model."""
    try:
        output = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    except RecursionError:  # pragma: no cover - only near the depth that JSON's reader refuses
        refuse(f"{param} is nested too deeply.", param)
    return text(MAX_TEXT)(output, param)
