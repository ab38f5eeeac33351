"""How full a server is, as a balancer asks: over real sockets."""

import asyncio
import signal
import socket

import aiohttp
import pytest

from switchboard import CALLS_URL, OFFER, SDP, Switchboard, until
from visavis.agent import telling_room, weight
from visavis.app import CALLS, build_app
from visavis.config import Config, ServerConfig
from visavis.errors import ConfigError
from visavis.serving import run_server


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


async def ask(port: int) -> bytes:
    """Ask as HAProxy does: connect, and read a line."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer


@pytest.mark.parametrize(
    ("room", "told"), [(1.0, b"100%\n"), (0.5, b"50%\n"), (0.001, b"1%\n"), (0.0, b"1%\n")]
)
def test_room_is_told_in_percent_and_never_none_at_all(room: float, told: bytes) -> None:
    assert weight(room) == told


async def test_every_call_takes_room_and_a_server_that_ends_has_none() -> None:
    board = Switchboard()
    port = free_port()
    config = Config(server=ServerConfig(port=0, max_calls=4, agent_port=port, drain_s=60))
    address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    app = build_app(config, board.open, board.ready)
    server = asyncio.create_task(run_server(app, app[CALLS], config.server, address.set_result))
    url = (await address).split()[0]
    assert await ask(port) == b"100%\n"
    async with (
        aiohttp.ClientSession() as client,
        client.post(url + CALLS_URL, data=OFFER, headers=SDP) as response,
    ):
        assert response.status == 201
    assert await ask(port) == b"75%\n"
    signal.raise_signal(signal.SIGTERM)
    await until(lambda: app[CALLS].closing)
    assert await ask(port) == b"1%\n"
    board.calls[0].over.set()
    async with asyncio.timeout(5):
        await server
    with pytest.raises(ConnectionError):
        await ask(port)


async def test_a_port_in_use_is_an_error_that_names_the_setting() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        config = ServerConfig(agent_port=taken.getsockname()[1])
        with pytest.raises(ConfigError, match=r"server\.agent_port"):
            async with telling_room(config, lambda: 1.0):
                pass
