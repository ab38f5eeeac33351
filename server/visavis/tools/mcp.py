"""Functions of MCP servers: each connected with the server's start, and again when it is gone.

Over standard input and output, as a child of this process, or over streamable HTTP. Its functions are named
`<server>_<function>`, and listed anew each minute, for they may change.
"""

import asyncio
import json
import logging
import re
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from types import TracebackType
from typing import Any, Self

import anyio
import httpx2
from mcp import Client, MCPError, StdioServerParameters, stdio_client
from mcp import Tool as Listed
from mcp.client.streamable_http import streamable_http_client
from mcp_types import (
    BlobResourceContents,
    CallToolResult,
    EmbeddedResource,
    Implementation,
    ResourceLink,
    TextContent,
    TextResourceContents,
)

from .. import __version__
from ..backoff import Backoff
from ..config import McpConfig, Tool
from ..errors import ToolError
from . import Arguments, Context, Source

logger = logging.getLogger(__name__)

START_S = 10.0
"How long calls wait for servers at the start; those that take longer are there when they are."

_CONNECT_S = 30.0
"A server that downloads itself first, as `npx` and `uvx` do, is one that has failed after so long."
_LIST_S = 10.0
_REFRESH_S = 60.0
_FIRST_S, _LONGEST_S, _STEADY_S = 0.5, 60.0, 60.0
"Pauses before a server is started again, and the life after which the first will do."
_PAGES = 100
"Of a list of functions; one without end is cut."

_STRANGE = re.compile(r"[^A-Za-z0-9_-]")


class McpServer:
    """One server, as long as `keep` runs."""

    def __init__(self, config: McpConfig) -> None:
        self.tried = asyncio.Event()
        "It is there, or the first attempt has failed."
        self._config = config
        self._client: Client | None = None
        self._tools: dict[str, tuple[Tool, str]] = {}
        "By our name, with its own."
        self._doubt = asyncio.Event()
        "It may be gone."

    @property
    def tools(self) -> Sequence[Tool]:
        return [tool for tool, _ in self._tools.values()]

    def timeout_s(self, name: str) -> float | None:
        return self._config.timeout_s

    async def run(self, name: str, arguments: Arguments, context: Context) -> str:
        """Raises ToolError, with the server's own words where it refuses."""
        client = self._client
        if client is None:
            raise ToolError(f"{name} is not there at present.")
        try:
            result = await client.call_tool(self._tools[name][1], arguments)
        except MCPError as error:
            self._doubt.set()
            raise ToolError(f"{name} failed: {error.message}") from error
        except Exception:
            self._doubt.set()
            raise
        text = in_words(result)
        if result.is_error:
            raise ToolError(text or f"{name} failed.")
        return text

    async def keep(self) -> None:
        """Stay connected until cancelled."""
        loop = asyncio.get_running_loop()
        backoff = Backoff(_FIRST_S, _LONGEST_S, _STEADY_S)
        while True:
            began = loop.time()
            reason = "it has ended"
            try:
                await self._live()
            except Exception as error:  # of a package, a program and a network, whatever they raise
                reason = _reason(error)
            finally:
                self._forget()
                self.tried.set()
            pause_s = backoff.pause(loop.time() - began)
            logger.warning(
                "MCP server %s is not there: %s; again in %.1f s", self._config.name, reason, pause_s
            )
            await asyncio.sleep(pause_s)

    def _forget(self) -> None:
        self._client, self._tools = None, {}

    async def _live(self) -> None:
        """Be connected until the server is gone. Raises anything."""
        ended = asyncio.Event()

        async with AsyncExitStack() as stack:
            client = Client(
                _watched(self._config, ended),
                client_info=Implementation(name="visavis", version=__version__),
                cache=None,
            )
            async with asyncio.timeout(_CONNECT_S):
                await stack.enter_async_context(client)
            waiting: set[asyncio.Task[bool]] = set()
            try:
                while True:
                    self._doubt.clear()
                    await self._list(client)
                    waiting = {asyncio.create_task(ended.wait()), asyncio.create_task(self._doubt.wait())}
                    await asyncio.wait(waiting, timeout=_REFRESH_S, return_when=asyncio.FIRST_COMPLETED)
                    if ended.is_set():
                        self._forget()  # before it is cleaned up after, which takes a while
                        return
                    await _end(waiting)
            finally:
                await _end(waiting)

    async def _list(self, client: Client) -> None:
        listed: list[Listed] = []
        async with asyncio.timeout(_LIST_S):
            cursor: str | None = None
            for _ in range(_PAGES):
                page = await client.list_tools(cursor=cursor)
                listed += page.tools
                cursor = page.next_cursor
                if not cursor:
                    break
        before = set(self._tools)
        self._tools = {}
        for one in listed:
            name = f"{self._config.name}_{_STRANGE.sub('_', one.name)}"[:64]
            self._tools[name] = Tool(name, one.description or "", json.dumps(one.input_schema)), one.name
        if self._client is None or before != set(self._tools):
            logger.info("MCP server %s has %s", self._config.name, ", ".join(self._tools) or "no functions")
        self._client = client
        self.tried.set()


@asynccontextmanager
async def running_servers(configs: Sequence[McpConfig]) -> AsyncIterator[list[Source]]:
    """Keep MCP servers running; the body begins when each is there, or after `START_S`."""
    servers = [McpServer(config) for config in configs]
    async with asyncio.TaskGroup() as tasks:
        keeping = [tasks.create_task(server.keep()) for server in servers]
        try:
            tried = [tasks.create_task(server.tried.wait()) for server in servers]
            await asyncio.wait(tried, timeout=START_S)
            for waiting in tried:
                waiting.cancel()
            yield [*servers]
        finally:
            for task in keeping:
                task.cancel()


def in_words(result: CallToolResult) -> str:
    """Write what a function gave as text: pictures and sounds are named, not shown."""
    parts = []
    for content in result.content:
        match content:
            case TextContent(text=text):
                parts.append(text)
            case EmbeddedResource(resource=TextResourceContents(text=text)):
                parts.append(text)
            case EmbeddedResource(resource=BlobResourceContents(uri=uri)) | ResourceLink(uri=uri):
                parts.append(f"[{uri}]")
            case other:
                parts.append(f"[{other.type}]")
    if not parts and result.structured_content is not None:
        return json.dumps(result.structured_content, ensure_ascii=False)
    return "\n".join(parts)


class _Watched:
    """A stream of the package's messages, passed on as they are, that tells of its end."""

    def __init__(self, stream: Any, ended: asyncio.Event) -> None:
        self._stream = stream
        self._ended = ended

    async def receive(self) -> Any:
        try:
            return await self._stream.receive()
        except (anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError):
            self._ended.set()
            raise

    async def aclose(self) -> None:
        await self._stream.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        ended: bool | None = await self._stream.__aexit__(kind, error, trace)
        return ended


@asynccontextmanager
async def _watched(config: McpConfig, ended: asyncio.Event) -> AsyncIterator[tuple[_Watched, Any]]:
    """Open a connection that tells when the other side has closed it, which the package does not."""
    async with AsyncExitStack() as stack:
        if config.url is not None:
            http = httpx2.AsyncClient(
                headers=_pairs(config.headers, ":"), timeout=httpx2.Timeout(_CONNECT_S, read=None)
            )
            await stack.enter_async_context(http)
            transport = streamable_http_client(config.url, http_client=http)
        else:
            program, *arguments = config.command
            server = StdioServerParameters(command=program, args=arguments, env=_pairs(config.env, "="))
            transport = stdio_client(server, errlog=sys.stderr)
        read, write = await stack.enter_async_context(transport)
        yield _Watched(read, ended), write


def _pairs(lines: Sequence[str], sign: str) -> dict[str, str]:
    pairs = (line.partition(sign) for line in lines)
    return {name: value.strip() if sign == ":" else value for name, _, value in pairs}


async def _end(tasks: set[asyncio.Task[bool]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _reason(error: BaseException) -> str:
    """Return the first error's words: groups have none of their own."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return str(error) or type(error).__name__
