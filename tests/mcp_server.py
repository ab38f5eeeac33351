"""A real MCP server for the tests, over standard input and output or, given a port, over HTTP.

usage: mcp_server.py [PORT]
"""

import asyncio
import os
import sys

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

server = MCPServer("test")


@server.tool()
def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


@server.tool(name="what.is.secret")
def secret() -> str:
    """Tells what the environment hides."""
    return f"{os.environ.get('SECRET')}, {os.environ.get('PYTEST_CURRENT_TEST')}"


@server.tool()
def fail() -> str:
    """Fails."""
    raise ToolError("no such luck")


@server.tool()
async def hang() -> str:
    """Never comes back."""
    await asyncio.Event().wait()
    return ""


@server.tool()
def die() -> str:
    """Takes the server with it."""
    os._exit(1)


@server.tool()
def learn() -> str:
    """Has one function more from now on."""
    server.add_tool(lambda: "new", name="news", description="Tells what is new.")
    return "learnt"


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run("streamable-http", port=int(sys.argv[1]))
    else:
        server.run()
