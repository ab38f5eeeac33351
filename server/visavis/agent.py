"""Tells a balancer how much room there is, in the words of HAProxy's agent check (HAProxy 2.6, 5.2).

A call outlives the request that opened it, so a balancer that counts requests or connections knows nothing of
how full a server is.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from .config import ServerConfig
from .errors import ConfigError

logger = logging.getLogger(__name__)


def weight(room: float) -> bytes:
    """Say what share of the calls could still be added, 0 to 1.

    A full server says 1 %, for at 0 it would get no requests of other kinds either; it refuses by itself.
    """
    return b"%d%%\n" % max(1, round(100 * room))


@asynccontextmanager
async def telling_room(config: ServerConfig, room: Callable[[], float]) -> AsyncIterator[None]:
    """Tell whoever connects to `agent_port`. Raises ConfigError if it cannot be listened on."""
    if not config.agent_port:
        yield
        return

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(weight(room()))
        writer.close()

    try:
        server = await asyncio.start_server(answer, config.host, config.agent_port)
    except OSError as error:
        raise ConfigError(
            f"Port {config.agent_port} on {config.host} cannot be listened on ({error.strerror}): "
            "choose another server.agent_port."
        ) from error
    try:
        yield
    finally:
        server.close()
        await server.wait_closed()
