"""How a small model calls functions: each reply begins with a mark, and a grammar holds it to that. Sans-I/O.

A model of 1.5 billion parameters that may choose between an answer and a call in JSON mostly answers, and
invents what the function would have told. One that has to name a function first, or none, mostly names the
right one; its arguments can then be nothing but what the function's schema allows. The mark is read here and
is neither spoken nor shown. One call a reply; what it gave is answered in words.
"""

import json
import logging
from collections.abc import Sequence

from ..config import Tool, ToolChoice
from ..engine import ToolCall
from ..engine.calling import new_call_id
from .prompt import Messages

logger = logging.getLogger(__name__)

_NONE = "none"

_RULES = (
    "From now on each reply begins with a mark in brackets. It names the function to call, and the arguments "
    "follow:\n{}\nIf no function is needed it is [none], and the answer follows."
)

_EXAMPLES = (
    ("Hello!", "Hi! What can I do for you?"),
    ("What is the capital of Spain?", "It's Madrid."),
    ("I'm Tom and I live in Kent.", "Nice to meet you, Tom!"),
    ("What is two plus two?", "Two plus two is four."),
)
"Without them it calls something whatever is said."

_RESULT_CHARACTERS = 2_000
"Of a result, some 600 tokens: the window has 4096."

_GUIDANCE = {"whitespace_flexible": False, "lenient": True}
"A reply ends with its line."


def introduction(tools: Sequence[Tool]) -> Messages:
    """Tell of functions: what a prompt has behind its instructions. Nothing without any."""
    if not tools:
        return []
    lines = (f"[{tool.name}] {tool.description} Arguments: {tool.parameters}" for tool in _callable(tools))
    messages = [{"role": "system", "content": _RULES.format("\n".join(lines))}]
    for asked, answered in _EXAMPLES:
        messages += [{"role": "user", "content": asked}, {"role": "assistant", "content": marked(answered)}]
    return messages


def marked(answer: str) -> str:
    """Write an answer as it is in a prompt with functions."""
    return f"[{_NONE}] {answer}"


def call_line(name: str, arguments: str) -> str:
    """Write a call as it is in a prompt."""
    return f"[{name}] {arguments}"


def result_line(output: str) -> str:
    """Write what a call gave as it is in a prompt, its beginning if it is long."""
    more = " …" if len(output) > _RESULT_CHARACTERS else ""
    return f"[Result]\n{output[:_RESULT_CHARACTERS]}{more}"


def grammar(tools: Sequence[Tool], choice: ToolChoice, *, after_result: bool) -> str:
    """Write what a reply may be, in llguidance's dialect of Lark; empty without tools.

    After a result it is an answer: a small model would call the same function again.
    """
    if not tools:
        return ""
    may_call = choice.mode != "none" and not after_result
    must_call = may_call and choice.mode in ("required", "function")
    named = choice.name if choice.mode == "function" else None
    called = [tool for tool in _callable(tools) if may_call and named in (None, tool.name)]
    replies = {} if must_call and called else {"answer": rf'"[{_NONE}] " /[^\n]+/'}
    arguments = {}
    for number, tool in enumerate(called):
        # What llguidance does not know of a schema is left to whoever runs the function.
        schema = {"type": "object", **json.loads(tool.parameters), "x-guidance": _GUIDANCE}
        replies[f"call{number}"] = f'"[{tool.name}] " arguments{number}'
        arguments[f"arguments{number}"] = f"%json {json.dumps(schema)}"
    rules = {"start": " | ".join(replies)} | replies | arguments
    return "\n".join(["%llguidance {}", *(f"{name}: {rule}" for name, rule in rules.items())])


def _callable(tools: Sequence[Tool]) -> list[Tool]:
    """Leave out one whose name stands for none."""
    return [tool for tool in tools if tool.name != _NONE]


class MarkReader:
    """Takes the mark off one reply, however its stream is cut, and makes a call of what follows a name.

    A reply without a mark, of a server that knows no grammar, is an answer as it is.
    """

    def __init__(self, tools: Sequence[Tool]) -> None:
        self._names = {tool.name for tool in _callable(tools)}
        self._held: str | None = ""
        "The mark so far, then the arguments; None once it is an answer."
        self._name: str | None = None
        self._trimming = False
        "Blanks after the mark are no part of the answer."

    def receive(self, text: str) -> str:
        """Take more of the reply; return what of it is said."""
        if self._held is None:
            return self._answer(text)
        self._held += text
        if self._name is not None:
            return ""
        mark, closed, rest = self._held.lstrip().partition("]")
        if mark and not mark.startswith("["):
            return self._answer(self._held)
        if not closed:
            return ""
        name = mark.removeprefix("[")
        if name == _NONE:
            self._trimming = True
            return self._answer(rest)
        if name not in self._names:
            return self._answer(self._held)
        self._name, self._held = name, rest
        return ""

    def finish(self) -> str | ToolCall:
        """Take the end of the reply: a call, or what was held back of an answer."""
        held, self._held = self._held or "", None
        if self._name is None:
            return held
        try:
            arguments = json.loads(held)
        except (ValueError, RecursionError):
            arguments = None
        if not isinstance(arguments, dict):
            logger.warning("a call of %s is left out: its arguments are %.200r", self._name, held)
            return ""
        return ToolCall(new_call_id(), self._name, json.dumps(arguments, ensure_ascii=False))

    def _answer(self, text: str) -> str:
        self._held = None
        if self._trimming:
            text = text.lstrip()
            self._trimming = not text
        return text
