"""Functions that the server runs itself for the model: what one is, and what it may do with its call.

Types only. Of a package's entry point in the group `visavis.tools`, a function or a `Runnable` is a tool;
`mcp` has those of MCP servers, `builtin` our own; `toolbox` runs them.
"""

from collections.abc import Awaitable, Sequence
from typing import Any, Protocol

from ..config import Tool

Arguments = dict[str, Any]  # Any: JSON that the schema of the tool allows


class Context(Protocol):
    """The call in which a function is run."""

    @property
    def call_id(self) -> str: ...

    async def look(self) -> bool:
        """Have the model see a fresh picture with the result; False if the caller shows none."""
        ...

    def end_when_heard(self) -> None:
        """Hang up when the answer to the result has been heard, unless the caller goes on talking."""
        ...


class Runnable(Protocol):
    """A tool with a description of its own, as an entry point may be."""

    @property
    def tool(self) -> Tool: ...

    def run(self, arguments: Arguments, context: Context) -> object | Awaitable[object]:
        """Return a text, or what can be written as JSON. Raises ToolError with words for the model.

        What is not asynchronous is run in a thread.
        """
        ...


class Source(Protocol):
    """Where tools come from."""

    @property
    def tools(self) -> Sequence[Tool]:
        """What there is now: servers come and go."""
        ...

    def timeout_s(self, name: str) -> float | None:
        """Return its own limit for one of its tools, if it has one."""
        ...

    async def run(self, name: str, arguments: Arguments, context: Context) -> str:
        """Run one of `tools`; the arguments fit its schema. Raises ToolError, or anything."""
        ...
