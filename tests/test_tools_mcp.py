"""MCP servers, real ones, as sources of functions: over standard input and output, and over HTTP."""

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from mcp_types import (
    BlobResourceContents,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
)

from test_toolbox import Call
from visavis.config import McpConfig, ToolsConfig
from visavis.engine import ToolCall
from visavis.tools import mcp
from visavis.tools.mcp import in_words
from visavis.tools.toolbox import Toolbox, opened_toolbox

pytestmark = pytest.mark.slow

PROGRAM = Path(__file__).with_name("mcp_server.py")
STDIO = McpConfig("calc", (sys.executable, str(PROGRAM)), env=("SECRET=xyzzy",))
WAIT_S = 30.0


@asynccontextmanager
async def opened(*servers: McpConfig, timeout_s: float = WAIT_S) -> AsyncIterator[Toolbox]:
    async with opened_toolbox(ToolsConfig(allow=("*",), timeout_s=timeout_s, mcp=servers)) as box:
        assert box is not None
        yield box


async def run(box: Toolbox, name: str, arguments: str = "{}") -> str:
    return await box.run(ToolCall("c", f"calc_{name}", arguments), "call", Call())


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not condition():  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.02)


def has(box: Toolbox, name: str) -> bool:
    return f"calc_{name}" in {tool.name for tool in box.tools()}


@asynccontextmanager
async def serving_http(port: int = 0) -> AsyncIterator[McpConfig]:
    """Run the server on a free port, or on one that it had before."""
    if not port:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(PROGRAM), str(port), stderr=asyncio.subprocess.DEVNULL
    )
    try:
        async with asyncio.timeout(WAIT_S):
            while True:
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                    break
                except OSError:
                    await asyncio.sleep(0.02)
            writer.close()
            await writer.wait_closed()
        yield McpConfig("calc", url=f"http://127.0.0.1:{port}/mcp", headers=("X-Token: xyzzy",))
    finally:
        process.send_signal(signal.SIGKILL)
        await process.wait()


async def test_functions_of_a_program_are_offered_checked_and_run() -> None:
    async with opened(STDIO) as box:
        tools = {tool.name: tool for tool in box.tools()}
        assert tools["calc_add"].description == "Adds two numbers."
        assert {"look", "calc_what_is_secret"} <= tools.keys()
        assert await run(box, "add", '{"a": 19, "b": 23}') == "42"
        assert "is not of type 'integer'" in await run(box, "add", '{"a": "x", "b": 1}')
        assert await run(box, "what_is_secret") == "xyzzy, None"
        assert "no such luck" in await run(box, "fail")


async def test_functions_of_a_web_server_are_run_too_and_found_again_after_it_was_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(mcp, "_FIRST_S", 0.05)
    async with serving_http() as config:
        box_context = opened(config)
        box = await box_context.__aenter__()
        try:
            assert await run(box, "add", '{"a": 1, "b": 2}') == "3"
        except BaseException:
            await box_context.__aexit__(None, None, None)
            raise
    try:
        assert "failed" in await run(box, "add", '{"a": 1, "b": 2}')
        await until(lambda: not has(box, "add"))
        assert config.url is not None
        async with serving_http(int(config.url.split(":")[2].split("/")[0])):
            await until(lambda: has(box, "add"))
            assert await run(box, "add", '{"a": 3, "b": 4}') == "7"
    finally:
        await box_context.__aexit__(None, None, None)


async def test_a_program_that_dies_fails_who_asked_it_and_is_started_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(mcp, "_FIRST_S", 0.05)
    async with opened(STDIO) as box:
        hanging = asyncio.create_task(run(box, "hang"))
        assert "failed" in await run(box, "die")
        assert "failed" in await hanging
        await until(lambda: not has(box, "add"))
        await until(lambda: has(box, "add"))
        assert await run(box, "add", '{"a": 1, "b": 2}') == "3"
    assert "MCP server calc is not there: it has ended" in caplog.text


async def test_one_that_hangs_is_given_up_and_does_not_hold_up_others() -> None:
    async with opened(STDIO) as box:
        assert await run(box, "add", '{"a": 0, "b": 0}') == "0"
        impatient = Toolbox(ToolsConfig(allow=("*",), timeout_s=0.05), box._sources)
        assert await run(impatient, "hang") == "calc_hang gave nothing within 0.05 s."
        assert await run(box, "add", '{"a": 1, "b": 2}') == "3"


async def test_a_function_that_is_new_is_found_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp, "_REFRESH_S", 0.1)
    async with opened(STDIO) as box:
        assert not has(box, "news")
        assert await run(box, "learn") == "learnt"
        await until(lambda: has(box, "news"))
        assert await run(box, "news") == "new"


async def test_a_server_that_cannot_be_started_keeps_nobody_from_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        async with opened(McpConfig("gone", ("/nowhere/at/all",)), STDIO) as box:
            assert await run(box, "add", '{"a": 1, "b": 2}') == "3"
    assert "MCP server gone is not there" in caplog.text


async def test_programs_end_with_the_toolbox() -> None:
    async with opened(STDIO):
        children = _children()
        assert children
    assert not children & _children()


def _children() -> set[str]:
    """The processes of the test's server."""
    name = os.fsencode(str(PROGRAM))
    found = set()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if name in path.read_bytes().split(b"\0"):
                found.add(path.parent.name)
    return found


def test_what_is_no_text_is_named_in_words() -> None:
    page, blob = (
        TextResourceContents(uri="file:///a", text="A page."),
        BlobResourceContents(uri="file:///b", blob="AA=="),
    )
    contents = [
        TextContent(type="text", text="Hi."),
        EmbeddedResource(type="resource", resource=page),
        EmbeddedResource(type="resource", resource=blob),
        ResourceLink(type="resource_link", uri="file:///c", name="c"),
        ImageContent(type="image", data="AA==", mime_type="image/png"),
    ]
    assert in_words(CallToolResult(content=contents)).splitlines() == [
        "Hi.",
        "A page.",
        "[file:///b]",
        "[file:///c]",
        "[image]",
    ]
    assert in_words(CallToolResult(content=[], structured_content={"a": 1})) == '{"a": 1}'
