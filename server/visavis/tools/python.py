"""Functions in Python that installed packages bring along, as entry points of the group `visavis.tools`.

A function's name is that of its entry point, its description its docstring, its schema what its parameters'
types say: str, int, float, bool, Literal, lists, dictionaries with text for keys, and None beside any of
them; `Annotated` adds a description. A parameter of type `visavis.tools.Context` is given the call.
"""

import asyncio
import inspect
import json
import threading
import types
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from ..config import Tool
from ..errors import ConfigError, ToolError
from . import Arguments, Context

GROUP = "visavis.tools"

MAX_THREADS = 16
"Functions that are not asynchronous and run at once; one that hangs keeps its place."

_SIMPLE = {str: "string", int: "integer", float: "number", bool: "boolean", types.NoneType: "null"}

Json = dict[str, Any]  # Any: JSON Schema

Run = Callable[[Arguments, Context], object]


class PythonTools:
    """The source of all that were found."""

    def __init__(self, found: Sequence[tuple[Tool, Run]]) -> None:
        self.tools: Sequence[Tool] = [tool for tool, _ in found]
        self._runs = {tool.name: run for tool, run in found}
        self._threads = _Threads()

    @classmethod
    def installed(cls, allowed: Callable[[str], bool]) -> "PythonTools":
        """Load the entry points whose names are allowed, and no others. Raises ConfigError."""
        return cls([read_entry_point(found) for found in entry_points(group=GROUP) if allowed(found.name)])

    def timeout_s(self, name: str) -> float | None:
        return None

    async def run(self, name: str, arguments: Arguments, context: Context) -> str:
        run = self._runs[name]
        if inspect.iscoroutinefunction(run):
            result = await run(arguments, context)
        else:
            result = await self._threads.run(lambda: run(arguments, context))
            if isinstance(result, Awaitable):
                result = await result
        return result if isinstance(result, str) else json.dumps(result, ensure_ascii=False, default=str)


def read_entry_point(found: EntryPoint) -> tuple[Tool, Run]:
    """Load one tool, and what runs it. Raises ConfigError that says what is wrong with it."""
    try:
        value = found.load()
    except Exception as error:
        raise ConfigError(f"The tool {found.name} ({found.value}) cannot be loaded: {error}.") from error
    tool, run = getattr(value, "tool", None), getattr(value, "run", None)
    if isinstance(tool, Tool) and callable(run):
        return Tool(found.name, tool.description, tool.parameters), run
    if not inspect.isfunction(value):
        raise ConfigError(
            f"The tool {found.name} ({found.value}) is neither a function nor has it `tool` and `run`."
        )
    return read_function(found.name, value)


def read_function(name: str, function: Callable[..., object]) -> tuple[Tool, Run]:
    """Describe a function, and return what runs it. Raises ConfigError for types that no schema can say."""
    try:
        hints = get_type_hints(function, include_extras=True)
    except Exception as error:
        raise ConfigError(f"The types of the tool {name} cannot be read: {error}.") from error
    given: list[str] = []
    properties: Json = {}
    required: list[str] = []
    for parameter in inspect.signature(function).parameters.values():
        hint = hints.get(parameter.name)
        if hint is Context:
            given.append(parameter.name)
            continue
        if hint is None or parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise ConfigError(f"The parameter {parameter.name} of the tool {name} needs a name and a type.")
        try:
            properties[parameter.name] = _schema(hint)
        except TypeError as error:
            raise ConfigError(f"The parameter {parameter.name} of the tool {name}: {error}.") from error
        if parameter.default is parameter.empty:
            required.append(parameter.name)
    schema = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    tool = Tool(name, inspect.getdoc(function) or "", json.dumps(schema))
    if inspect.iscoroutinefunction(function):

        async def run_async(arguments: Arguments, context: Context) -> object:
            return await function(**arguments, **dict.fromkeys(given, context))

        return tool, run_async
    return tool, lambda arguments, context: function(**arguments, **dict.fromkeys(given, context))


def _schema(hint: Any) -> Json:
    """Write a type as JSON Schema. Raises TypeError for one that JSON does not have."""
    origin, inner = get_origin(hint), get_args(hint)
    if hint in _SIMPLE:
        return {"type": _SIMPLE[hint]}
    if origin is Annotated:
        texts = [text for text in inner[1:] if isinstance(text, str)]
        return _schema(inner[0]) | ({"description": " ".join(texts)} if texts else {})
    if origin is Literal:
        return {"enum": list(inner)}
    if origin in (Union, types.UnionType):
        return {"anyOf": [_schema(choice) for choice in inner]}
    if hint is list or origin is list:
        return {"type": "array"} | ({"items": _schema(inner[0])} if inner else {})
    if hint is dict or (origin is dict and inner[0] is str):
        return {"type": "object"} | ({"additionalProperties": _schema(inner[1])} if inner else {})
    raise TypeError(f"{hint!r} cannot be written as JSON")


@dataclass(slots=True)
class _Threads:
    """Runs blocking functions, each in a thread that nothing waits for in the end: one may hang."""

    live: int = 0

    async def run(self, work: Callable[[], object]) -> object:
        """Raises what the work raises, and ToolError where too many hang already."""
        if self.live >= MAX_THREADS:
            raise ToolError("Too many functions are being run; try again in a moment.")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[object] = loop.create_future()

        def settle(result: object, error: BaseException | None) -> None:
            self.live -= 1
            if future.done():  # nobody waits any more
                return
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)

        def run() -> None:
            result: object = None
            failure: BaseException | None = None
            try:
                result = work()
            except BaseException as error:
                failure = RuntimeError("stopped") if isinstance(error, StopIteration) else error
            if not loop.is_closed():
                loop.call_soon_threadsafe(settle, result, failure)

        self.live += 1
        threading.Thread(target=run, name="tool", daemon=True).start()
        return await future
