"""Functions on the way to a model and back: offered, called, answered, in two manners of writing. Sans-I/O.

`server`: OpenAI's fields `tools` and `tool_calls`, for servers that write and read the model's own format
(vLLM with `--enable-auto-tool-choice --tool-call-parser hermes`, DashScope, the embedded engine). `text`:
that format itself, for servers that do not, in the words of Qwen's chat template, which its models were
trained with: functions are described at the end of the system message, a call stands between `<tool_call>`
and `</tool_call>` in the text, a result between `<tool_response>` and `</tool_response>` in a user's message.
"""

import json
import logging
import re
import secrets
from collections.abc import Sequence
from typing import Any, Literal

from ..errors import EngineRefused
from . import CallPart, ResultPart, TextDelta, Tool, ToolCall, ToolChoice

logger = logging.getLogger(__name__)

Manner = Literal["server", "text"]
Json = dict[str, Any]  # Any: values of foreign JSON, looked at before use

_OPENING = "<tool_call>"
_CLOSING = "</tool_call>"

_LONGEST = 100_000
"Characters of a call; a longer one has no end, or none that anybody waits for."

_UNREADY = re.compile(r"tool[-_ ]choice|tool[-_ ]call[-_ ]parser|tools? .*not support", re.IGNORECASE)
"In a server's refusal when it reads no calls: vLLM names the two flags that it lacks."


def is_about_tools(error: EngineRefused) -> bool:
    """Tell whether a request was refused because the server does not read calls itself."""
    return _UNREADY.search(str(error)) is not None


# Offering.


def tool_fields(tools: Sequence[Tool], choice: ToolChoice) -> Json:
    """Write the fields that offer functions; none without any."""
    if not tools:
        return {}
    chosen: str | Json = choice.mode
    if choice.mode == "function":
        chosen = {"type": "function", "function": {"name": choice.name}}
    return {"tools": [_tool(tool) for tool in tools], "tool_choice": chosen}


def describe(tools: Sequence[Tool], choice: ToolChoice) -> str:
    """Describe functions to the model itself; empty if there are none to call."""
    if not tools or choice.mode == "none":
        return ""
    listed = "\n".join(json.dumps(_tool(tool), ensure_ascii=False) for tool in tools)
    return (
        "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
        f"You are provided with function signatures within <tools></tools> XML tags:\n<tools>\n{listed}\n"
        "</tools>\n\nFor each function call, return a json object with function name and arguments within "
        f"{_OPENING}{_CLOSING} XML tags:\n{_OPENING}\n"
        f'{{"name": <function-name>, "arguments": <args-json-object>}}\n{_CLOSING}{_insist(choice)}'
    )


def _insist(choice: ToolChoice) -> str:
    match choice.mode:
        case "required":
            return "\n\nCall at least one function now."
        case "function":
            return f"\n\nCall the function {choice.name} now."
        case _:
            return ""


def _tool(tool: Tool) -> Json:
    function = {
        "name": tool.name,
        "description": tool.description,
        "parameters": json.loads(tool.parameters),
    }
    return {"type": "function", "function": function}


# What was called before.


def call_body(call: CallPart) -> Json:
    """Write a call of the history as a member of `tool_calls`."""
    function = {"name": call.name, "arguments": _sent(call.arguments)}
    return {"id": call.call_id, "type": "function", "function": function}


def call_text(call: CallPart) -> str:
    """Write a call of the history as the model wrote it."""
    name = json.dumps(call.name, ensure_ascii=False)
    return f'{_OPENING}\n{{"name": {name}, "arguments": {_sent(call.arguments)}}}\n{_CLOSING}'


def result_body(result: ResultPart) -> Json:
    """Write a result as a message."""
    return {"role": "tool", "tool_call_id": result.call_id, "content": result.output}


def result_text(result: ResultPart) -> str:
    """Write a result as the model is shown one."""
    return f"<tool_response>\n{result.output}\n</tool_response>"


def _sent(arguments: str) -> str:
    """Return the arguments, or none of them: servers refuse a whole history for some that cannot be read."""
    return arguments if _object(arguments) is not None else "{}"


def _object(text: str) -> Json | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


# What is called now.

Told = TextDelta | ToolCall


class CallSplitter:
    """Sorts calls out of the text of one answer, however its stream is cut.

    Text goes on at once but for what may be the beginning of a tag. A call that cannot be read is none: the
    log says so, and nobody sees or hears it. A last one whose closing tag is missing counts if it is whole.
    """

    def __init__(self) -> None:
        self.begun = False
        "A call has begun, now or before."
        self._calling = False
        self._held = ""
        "A call so far, or what may be the beginning of a tag."
        self._trimming = False
        "Blanks after a call are no text."

    def receive(self, text: str) -> list[Told]:
        """Take more of the text."""
        text = self._held + text
        told: list[Told] = []
        while True:
            tag = _CLOSING if self._calling else _OPENING
            before, found, after = text.partition(tag)
            if not found:
                break
            told += self._called(before) if self._calling else self._said(before)
            self._calling = not self._calling
            self.begun = True
            text = after
        if self._calling:
            # What is too long is not kept, so that it cannot be read; its end will still be seen.
            self._held = text if len(text) <= _LONGEST else f"…{text[-len(_CLOSING) :]}"
            return told
        free = len(text) - _begun(text)
        self._held = text[free:]
        return told + self._said(text[:free])

    def finish(self) -> list[Told]:
        """Take the end of the text."""
        held, self._held = self._held, ""
        if self._calling:
            self._calling = False
            return self._called(held)
        return self._said(held)

    def _said(self, text: str) -> list[Told]:
        if self._trimming:
            text = text.lstrip()
            self._trimming = not text
        return [TextDelta(text)] if text else []

    def _called(self, written: str) -> list[Told]:
        self._trimming = True
        call = _object(written)
        name = call.get("name") if call else None
        arguments = call.get("arguments", {}) if call else None
        if isinstance(arguments, str):
            arguments = _object(arguments)
        if not isinstance(name, str) or not isinstance(arguments, dict):
            logger.warning("a call of a function cannot be read and is left out: %.200s", written.strip())
            return []
        return [ToolCall(new_call_id(), name, json.dumps(arguments, ensure_ascii=False))]


def _begun(text: str) -> int:
    """Return how many characters at the end of a text may be the beginning of the opening tag."""
    lengths = range(min(len(text), len(_OPENING) - 1), 0, -1)
    return next((n for n in lengths if _OPENING.startswith(text[-n:])), 0)


class CallAssembler:
    """Puts the calls of one answer together from the pieces that a server streams in `tool_calls`.

    A call is told as soon as its arguments are whole, which sound may delay the end of the answer after;
    one whose arguments never are is none, and the log says so.
    """

    def __init__(self) -> None:
        self._call: _Call | None = None
        "The newest; the others are over."

    @property
    def begun(self) -> bool:
        """Whether a call has begun."""
        return self._call is not None

    def receive(self, pieces: object) -> list[ToolCall]:
        """Take the `tool_calls` of one delta, whatever they are."""
        told: list[ToolCall] = []
        for piece in pieces if isinstance(pieces, list) else []:
            if not isinstance(piece, dict):
                continue
            call_id, index = piece.get("id"), piece.get("index")
            if self._call is None or self._call.is_another(call_id, index):
                told += self.finish()
                self._call = _Call(call_id, index)
            told += self._call.receive(piece.get("function"))
        return told

    def finish(self) -> list[ToolCall]:
        """Take the end of the answer, or that another call follows: not all functions have arguments."""
        return [] if self._call is None else self._call.finish()


class _Call:
    def __init__(self, call_id: object, index: object) -> None:
        self._id = call_id
        self._index = index
        self._name = ""
        self._arguments = ""
        self._told = False

    def is_another(self, call_id: object, index: object) -> bool:
        """Tell whether a piece is none of this call's; later pieces of one have no id, or the same again."""
        return index != self._index or (bool(call_id) and call_id != self._id)

    def receive(self, function: object) -> list[ToolCall]:
        if self._told or not isinstance(function, dict):
            return []
        if isinstance(name := function.get("name"), str) and not self._name:
            self._name = name
        if isinstance(more := function.get("arguments"), str):
            self._arguments += more
        whole = self._name and self._arguments.endswith("}") and _object(self._arguments) is not None
        return self._tell() if whole else []

    def finish(self) -> list[ToolCall]:
        if self._told:
            return []
        self._arguments = self._arguments.strip() or "{}"
        if self._name and _object(self._arguments) is not None:
            return self._tell()
        self._told = True
        logger.warning("the call of %r is left out: its arguments are %.200r", self._name, self._arguments)
        return []

    def _tell(self) -> list[ToolCall]:
        self._told = True
        call_id = self._id if isinstance(self._id, str) and self._id else new_call_id()
        return [ToolCall(call_id, self._name, self._arguments)]


def new_call_id() -> str:
    """Name a call that its server has not named."""
    return f"call_{secrets.token_hex(8)}"
