"""The balancer as it is deployed, in front of servers that answer what the test says."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from balancer import Backend, balancing, free_port, node_lines
from switchboard import CALLS_URL, OFFER, SDP

pytestmark = [pytest.mark.slow, pytest.mark.haproxy]

RANDOM = "0123456789abcdef01234567"


class Node:
    """A server that notes what it is asked."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.ready = True
        self.room = 100
        self.refusal: tuple[int, dict[str, str]] | None = None
        "Status and headers, to all who would call."
        self.asked: list[web.Request] = []
        self.agent_asked = 0
        self.checked = 0
        self._runner: web.AppRunner | None = None
        self._agent: asyncio.Server | None = None

    async def start(self) -> Backend:
        app = web.Application()
        app.router.add_get("/readyz", self._readiness)
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = runner = web.AppRunner(app, shutdown_timeout=1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        agent_port = free_port()
        self._agent = await asyncio.start_server(self._tell_room, "127.0.0.1", agent_port)
        return Backend(self.name, runner.addresses[0][1], agent_port)

    async def stop(self) -> None:
        for part in (self._runner, self._agent):
            if isinstance(part, web.AppRunner):
                await part.cleanup()
            elif part is not None:
                part.close()
                await part.wait_closed()
        self._runner = self._agent = None

    async def settle(self) -> None:
        """Wait until the balancer has noticed what is said from now on."""
        checked, agent_asked = self.checked, self.agent_asked
        await until(lambda: self.checked > checked + 1 and self.agent_asked > agent_asked + 1)

    async def _readiness(self, request: web.Request) -> web.Response:
        self.checked += 1
        return web.Response(status=200 if self.ready else 503)

    async def _answer(self, request: web.Request) -> web.Response:
        self.asked.append(request)
        await request.read()
        if self.refusal is not None and request.method == "POST":
            status, headers = self.refusal
            return web.Response(status=status, headers=headers, text=f"{self.name} refuses")
        return web.Response(text=self.name)

    async def _tell_room(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.agent_asked += 1
        writer.write(b"%d%%\n" % self.room)
        writer.close()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 - the nodes' counts have no event
            await asyncio.sleep(0.02)


class Site:
    """Three servers and the balancer before them."""

    def __init__(self, nodes: dict[str, Node], url: str, http: aiohttp.ClientSession) -> None:
        self.nodes = nodes
        self._url = url
        self._http = http

    async def ask(self, method: str, path: str, **options: Any) -> tuple[int, str]:
        async with self._http.request(method, self._url + path, **options) as response:
            return response.status, await response.text()

    async def call(self, **headers: str) -> str:
        """Open a call; return who took it."""
        status, who = await self.ask("POST", CALLS_URL, data=OFFER, headers={**SDP, **headers})
        assert status == 200
        return who

    async def settle(self) -> None:
        await asyncio.gather(*(node.settle() for node in self.nodes.values() if node._runner))


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    nodes = {name: Node(name) for name in ("a", "b", "c-2")}
    async with AsyncExitStack() as stack:
        backends = []
        for node in nodes.values():
            backends.append(await node.start())
            stack.push_async_callback(node.stop)
        url = stack.enter_context(balancing(tmp_path, backends))
        http = await stack.enter_async_context(aiohttp.ClientSession())
        yield Site(nodes, url, http)


async def test_new_calls_take_turns_and_a_calls_requests_go_where_it_lives(site: Site) -> None:
    assert Counter([await site.call() for _ in range(12)]) == {"a": 4, "b": 4, "c-2": 4}
    for name in site.nodes:
        for method, end in (("GET", ""), ("DELETE", ""), ("POST", "/hangup")):
            path = f"{CALLS_URL}/rtc_{name}-0-{RANDOM}{end}"
            for _ in range(3):
                assert await site.ask(method, path) == (200, name)


@pytest.mark.parametrize(
    "name",
    [f"rtc_{RANDOM}", f"rtc_nobody-0-{RANDOM}", "rtc_", "rtc_a", "rtc_a-0-xyz", f"rtc_A-0-{RANDOM}", "x%20y"],
)
async def test_other_ids_are_anyones_to_refuse(site: Site, name: str) -> None:
    who = {(await site.ask("DELETE", f"{CALLS_URL}/{name}"))[1] for _ in range(6)}
    assert who == {*site.nodes}


async def test_pipecats_clients_find_the_server_that_they_name_in_the_body(site: Site) -> None:
    async def offer(method: str = "POST", **body: Any) -> str:
        status, who = await site.ask(method, "/api/offer", json={"sdp": OFFER * 100, **body})
        assert status == 200
        return who

    assert Counter([await offer(pc_id=None, restart_pc=False) for _ in range(6)]) == {
        "a": 2,
        "b": 2,
        "c-2": 2,
    }
    for name in site.nodes:
        pc_id = f"rtc_{name}-0-{RANDOM}.se-cret_{RANDOM}"
        for method in ("POST", "PATCH"):
            assert {await offer(method, pc_id=pc_id) for _ in range(4)} == {name}
    # Who has lost the connection may have lost it with the server.
    assert {await offer(pc_id=pc_id, restart_pc=True) for _ in range(6)} == {*site.nodes}
    assert {await offer(pc_id="rtc_x") for _ in range(6)} == {*site.nodes}


async def test_a_full_server_gets_fewer_calls(site: Site) -> None:
    site.nodes["a"].room = 1
    site.nodes["b"].room = 50
    await site.settle()
    spread = Counter([await site.call() for _ in range(60)])
    assert spread["a"] <= 2
    assert spread["b"] == pytest.approx(20, abs=3)
    assert spread["c-2"] == pytest.approx(40, abs=3)


async def test_who_comes_back_with_a_token_is_taken_by_any(site: Site) -> None:
    token = f"rtc_a-0-{RANDOM}.secret"
    assert {await site.call(**{"Visavis-Session-Token": token}) for _ in range(6)} == {*site.nodes}
    assert all(
        request.headers["Visavis-Session-Token"] == token
        for node in site.nodes.values()
        for request in node.asked
    )


async def test_a_server_that_drains_gets_no_new_calls_and_keeps_those_that_it_has(site: Site) -> None:
    site.nodes["a"].ready = False
    site.nodes["a"].refusal = (503, {"Retry-After": "10"})
    # From the first moment: what it refuses goes to another.
    assert "a" not in [await site.call() for _ in range(6)]
    await site.settle()
    refused = len(site.nodes["a"].asked)
    assert "a" not in [await site.call() for _ in range(6)]
    assert len(site.nodes["a"].asked) == refused
    assert await site.ask("DELETE", f"{CALLS_URL}/rtc_a-0-{RANDOM}") == (200, "a")


async def test_a_server_that_is_gone_is_passed_over(site: Site) -> None:
    await site.nodes["a"].stop()
    assert "a" not in [await site.call() for _ in range(6)]
    # Another one tells that there is no such call.
    status, who = await site.ask("GET", f"{CALLS_URL}/rtc_a-0-{RANDOM}")
    assert (status, who in ("b", "c-2")) == (200, True)


async def test_if_all_refuse_the_caller_is_told_what_the_last_one_says(site: Site) -> None:
    for node in site.nodes.values():
        node.refusal = (503, {"Retry-After": "5"})
    async with site._http.post(site._url + CALLS_URL, data=OFFER, headers=SDP) as response:
        assert (response.status, response.headers["Retry-After"]) == (503, "5")
        assert "refuses" in await response.text()
    assert sum(len(node.asked) for node in site.nodes.values()) == 3


async def test_without_a_server_the_balancer_says_so_as_the_servers_would(site: Site) -> None:
    for node in site.nodes.values():
        node.ready = False
    await site.settle()
    async with site._http.post(site._url + CALLS_URL, data=OFFER, headers=SDP) as response:
        assert (response.status, response.headers["Retry-After"]) == (503, "3")
        assert (await response.json())["error"]["code"] == "no_server"


async def test_other_refusals_are_not_repeated(site: Site) -> None:
    for node in site.nodes.values():
        node.refusal = (429, {"Retry-After": "1"})
    async with site._http.post(site._url + CALLS_URL, data=OFFER, headers=SDP) as response:
        assert (response.status, response.headers["Retry-After"]) == (429, "1")
    assert sum(len(node.asked) for node in site.nodes.values()) == 1


async def test_servers_learn_who_asks_and_nothing_that_callers_invent(site: Site) -> None:
    invented = {"X-Forwarded-For": "203.0.113.9", "X-Forwarded-Proto": "https"}
    who = await site.call(**invented)
    headers = site.nodes[who].asked[-1].headers
    assert headers.getall("X-Forwarded-For") == ["127.0.0.1"]
    assert headers.getall("X-Forwarded-Proto") == ["http"]


@pytest.mark.parametrize("path", ["/metrics", "/metrics/"])
async def test_counts_are_no_callers_business(site: Site, path: str) -> None:
    assert (await site.ask("GET", path))[0] == 404
    assert not any(node.asked for node in site.nodes.values())


def test_the_servers_of_the_test_stand_where_yours_do() -> None:
    assert node_lines([Backend("x", 1, 2)]).endswith("    server x 127.0.0.1:1 agent-port 2\n")
