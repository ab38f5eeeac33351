"""All functions of a server: those that its settings allow, each run within limits of time and length."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from fnmatch import fnmatchcase

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, best_match
from referencing import Registry
from referencing.exceptions import Unresolvable

from ..config import Tool, ToolsConfig
from ..engine import ToolCall
from ..errors import ConfigError, ToolError
from . import Arguments, Context, Source
from .builtin import BuiltIn
from .python import PythonTools

logger = logging.getLogger(__name__)

_MAX_COMPLAINT = 500
"Characters of what is wrong with arguments."


class Toolbox:
    """Runs functions for all calls of a process; a fault of one is a result that says so."""

    def __init__(self, config: ToolsConfig, sources: Sequence[Source]) -> None:
        """Of two tools of one name the first source's is there."""
        self._config = config
        self._sources = tuple(sources)

    def tools(self) -> tuple[Tool, ...]:
        """Return what may be called now."""
        return tuple(tool for tool, _ in self._allowed().values())

    async def run(self, call: ToolCall, call_id: str, context: Context) -> str:
        """Return what a call gives, at most `max_output` characters; `call_id` is of the caller's call.

        Whatever goes wrong is said in words that the model can act on. Raises nothing but CancelledError.
        """
        loop = asyncio.get_running_loop()
        started = loop.time()
        outcome, output = await self._outcome(call, call_id, context)
        most = self._config.max_output
        if len(output) > most:
            output = f"{output[:most]}\n[The result is longer; this is its beginning.]"
        took = loop.time() - started
        logger.info("%s: %s %s, %.2f s, %d characters", call_id, call.name, outcome, took, len(output))
        return output

    async def _outcome(self, call: ToolCall, call_id: str, context: Context) -> tuple[str, str]:
        found = self._allowed().get(call.name)
        if found is None:
            return "unknown", f"There is no function {call.name!r} at present."
        tool, source = found
        own_s = source.timeout_s(call.name)
        limit_s = self._config.timeout_s if own_s is None else own_s
        try:
            arguments = fitting(tool, call.arguments)
            async with asyncio.timeout(limit_s):
                return "done", await source.run(call.name, arguments, context)
        except ToolError as error:
            return "refused", str(error)
        except TimeoutError:
            return "late", f"{call.name} gave nothing within {limit_s:g} s."
        except Exception as error:  # another's code; its words may be for nobody's ears
            logger.exception("%s: %s failed", call_id, call.name)
            return "failed", f"{call.name} failed ({type(error).__name__})."

    def _allowed(self) -> dict[str, tuple[Tool, Source]]:
        found: dict[str, tuple[Tool, Source]] = {}
        for source in self._sources:
            for tool in source.tools:
                if tool.name not in found and allows(self._config, tool.name):
                    found[tool.name] = tool, source
        return found


def allows(config: ToolsConfig, name: str) -> bool:
    """Tell whether a function of this name may be offered to the model."""
    return any(fnmatchcase(name, pattern) for pattern in config.allow)


def fitting(tool: Tool, written: str) -> Arguments:
    """Read arguments. Raises ToolError that says what is wrong with them."""
    try:
        arguments = json.loads(written or "{}")
    except (ValueError, RecursionError) as error:
        raise ToolError(f"The arguments of {tool.name} are no JSON ({error}). Call it again.") from error
    try:
        schema = {"type": "object", **json.loads(tool.parameters)}
        Draft202012Validator.check_schema(schema)
        # Without a registry what a schema refers to would be fetched from wherever it says.
        validator = Draft202012Validator(schema, registry=Registry())
        wrong = best_match(validator.iter_errors(arguments))
    except (SchemaError, Unresolvable, RecursionError) as error:
        raise ToolError(f"{tool.name} cannot be called: its schema is broken.") from error
    if wrong is not None:
        raise ToolError(
            f"The arguments of {tool.name} do not fit: {wrong.json_path}: {wrong.message[:_MAX_COMPLAINT]}. "
            "Call it again with arguments that do, or ask the user."
        )
    assert isinstance(arguments, dict)
    return arguments


@asynccontextmanager
async def opened_toolbox(config: ToolsConfig) -> AsyncIterator[Toolbox | None]:
    """Open what the settings allow, and keep the MCP servers running; None if they allow nothing.

    Raises ConfigError for an entry point that is no tool, and if a package is missing.
    """
    if not config.allow:
        yield None
        return
    sources: list[Source] = [BuiltIn(), PythonTools.installed(lambda name: allows(config, name))]
    async with AsyncExitStack() as stack:
        if config.mcp:
            try:
                from .mcp import running_servers  # slow to import, and its package is an extra
            except ImportError as error:
                raise ConfigError(
                    "[[tools.mcp]] needs the package mcp: pip install 'visavis[mcp]'."
                ) from error
            sources += await stack.enter_async_context(running_servers(config.mcp))
        toolbox = Toolbox(config, sources)
        names = {tool.name for tool in toolbox.tools()}
        for pattern in config.allow:
            if not config.mcp and not any(fnmatchcase(name, pattern) for name in names):
                raise ConfigError(f"tools.allow has {pattern!r}, and there is no such function.")
        logger.info("functions for the model: %s", ", ".join(sorted(names)) or "none yet")
        yield toolbox
