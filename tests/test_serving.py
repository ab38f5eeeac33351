import asyncio
import logging
import re
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from switchboard import CALLS_URL, KEY, OFFER, SDP, Switchboard, raw_request, until
from visavis.app import CALLS, build_app
from visavis.config import Config, ServerConfig
from visavis.errors import ConfigError
from visavis.serving import run_server


@asynccontextmanager
async def running(board: Switchboard, **server: Any) -> AsyncIterator[tuple[str, asyncio.Task[None]]]:
    config = Config(server=ServerConfig(port=0, **server))
    address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    app = build_app(config, board.open, board.ready)
    server_task = asyncio.create_task(run_server(app, app[CALLS], config.server, address.set_result))
    try:
        yield await address, server_task
    finally:
        server_task.cancel()
        await asyncio.gather(server_task, return_exceptions=True)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_signal_drains_the_calls_and_ends_the_server(number: signal.Signals) -> None:
    board = Switchboard()
    async with running(board, drain_s=60) as (address, server), aiohttp.ClientSession() as client:
        url, _, reach = address.partition(" ")
        assert "only this machine" in reach
        async with client.post(url + CALLS_URL, data=OFFER, headers=SDP) as response:
            assert response.status == 201
        signal.raise_signal(number)
        await until(lambda: "ends in 60 s" in board.calls[0].told)
        async with client.get(f"{url}/readyz") as response:
            assert response.status == 503
        board.calls[0].over.set()
        async with asyncio.timeout(5):
            await server


async def test_a_second_signal_ends_the_calls_at_once() -> None:
    board = Switchboard()
    async with running(board, drain_s=3_600) as (address, server), aiohttp.ClientSession() as client:
        async with client.post(address.split()[0] + CALLS_URL, data=OFFER, headers=SDP) as response:
            assert response.status == 201
        signal.raise_signal(signal.SIGINT)
        await until(lambda: "ends in 3600 s" in board.calls[0].told)
        signal.raise_signal(signal.SIGINT)
        async with asyncio.timeout(5):
            await server
        assert board.calls[0].told[-1] == "gone"


async def test_one_process_says_why_it_does_not_reload(caplog: pytest.LogCaptureFixture) -> None:
    async with running(Switchboard()) as (address, server), aiohttp.ClientSession() as client:
        signal.raise_signal(signal.SIGHUP)
        await until(lambda: "SIGHUP changes nothing" in caplog.text)
        assert "server.workers" in caplog.text
        async with client.get(f"{address.split()[0]}/readyz") as response:
            assert response.status == 200
        assert not server.done()


async def test_a_terminal_that_is_closed_stops_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    there = True
    monkeypatch.setattr("os.isatty", lambda _: there)
    async with running(Switchboard()) as (_, server):
        there = False
        signal.raise_signal(signal.SIGHUP)
        async with asyncio.timeout(5):
            await server


@pytest.mark.parametrize("beginning", ["", "GET /he", "GET /healthz HTTP/1.1\r\nHost: local"])
async def test_who_connects_and_does_not_ask_is_let_go(
    monkeypatch: pytest.MonkeyPatch, beginning: str
) -> None:
    monkeypatch.setattr("visavis.serving._IDLE_S", 0.05)
    async with running(Switchboard()) as (address, _):
        port = int(address.split()[0].rpartition(":")[2])
        async with asyncio.timeout(10):
            assert await raw_request(port, beginning) == b""


async def test_a_port_in_use_is_an_error_that_says_what_to_do() -> None:
    board = Switchboard()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        config = Config(server=ServerConfig(port=taken.getsockname()[1]))
        app = build_app(config, board.open, board.ready)
        with pytest.raises(ConfigError, match=r"in use.*another port"):
            await run_server(app, app[CALLS], config.server, print)


async def test_a_host_that_is_not_here_is_an_error_that_says_so() -> None:
    board = Switchboard()
    config = Config(server=ServerConfig(host="192.0.2.1", keys=(KEY,)))
    app = build_app(config, board.open, board.ready)
    with pytest.raises(ConfigError, match=r"server\.host"):
        await run_server(app, app[CALLS], config.server, print)


async def test_the_log_has_a_line_a_request_and_no_secret(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    board = Switchboard()
    async with running(board, keys=(KEY,)) as (address, _), aiohttp.ClientSession() as client:
        url = address.split()[0]
        headers = {**SDP, "Authorization": f"Bearer {KEY}"}
        data = OFFER + "a=ice-pwd:secret-of-ice\r\n"
        async with client.post(f"{url}{CALLS_URL}?token=ek_secret", data=data, headers=headers) as response:
            assert response.status == 201
        wrong = {**SDP, "Authorization": "Bearer a-wrong-key"}
        async with client.post(f"{url}{CALLS_URL}", data=data, headers=wrong) as response:
            assert response.status == 401
        async with client.get(f"{url}/v1/a%0d%0aforged", headers=headers) as response:
            assert response.status == 404
        head = f"GET / HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {KEY}\x01\r\n\r\n"
        assert b" 400 " in (await raw_request(int(url.rpartition(":")[2]), head)).split(b"\r\n")[0]
    lines = [record.getMessage() for record in caplog.records if record.name == "visavis.access"]
    assert len(lines) == 4
    assert re.fullmatch(r"127\.0\.0\.1 POST /v1/realtime/calls 201 \d+ ms", lines[0])
    assert all(line.isprintable() for line in lines)
    assert "it is no HTTP" in caplog.text
    for secret in (KEY, "a-wrong-key", "ek_secret", "secret-of-ice"):
        assert secret not in caplog.text
