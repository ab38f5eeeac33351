"""Requests on their way to workers: these are real applications on Unix sockets, their calls are fakes."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from switchboard import ANSWER, CALLS_URL, KEY, OFFER, SDP, Client, Switchboard, refusal, until
from visavis.app import build_worker_app
from visavis.calls import Calls
from visavis.config import Config, RtcConfig, ServerConfig
from visavis.description import add_description
from visavis.front import Front
from visavis.ids import read_call_id
from visavis.middleware import Door, guard, refusals
from visavis.placement import Placement
from visavis.status import Status

GONE = "rtc_0-0123456789abcdef01234567"


class Office:
    """Stands in for the fleet: workers in this process, with calls that are fakes."""

    def __init__(self, placement: Placement, config: Config, folder: Path) -> None:
        self.closing = False
        self.placed: list[int] = []
        self.boards: dict[int, Switchboard] = {}
        self._placement = placement
        self._config = config
        self._folder = folder
        self._clients: dict[int, aiohttp.ClientSession] = {}
        self._runners: dict[int, web.AppRunner] = {}

    async def hire(self, number: int, board: Switchboard | None = None) -> Switchboard:
        board = self.boards[number] = board or Switchboard()

        def ended(call_id: str) -> None:
            self._placement.ended(number, call_id)

        calls = Calls(self._config.server.max_calls, answer_s=20, ended=ended)
        await self.employ(number, build_worker_app(self._config, calls, board.open, number))
        return board

    async def employ(self, number: int, app: web.Application) -> None:
        """Have any application for a worker."""
        self._runners[number] = runner = web.AppRunner(app)
        await runner.setup()
        socket = str(self._folder / f"{number}.sock")
        await web.UnixSite(runner, socket).start()
        self._clients[number] = aiohttp.ClientSession(connector=aiohttp.UnixConnector(socket))
        self._placement.add(number)

    async def fire(self, number: int) -> None:
        """End a worker's server without a word to anyone."""
        await self._runners.pop(number).cleanup()

    def http(self, number: int) -> aiohttp.ClientSession | None:
        return self._clients.get(number)

    def note_placed(self, number: int) -> None:
        self.placed.append(number)

    async def aclose(self) -> None:
        for client in self._clients.values():
            await client.close()
        for runner in self._runners.values():
            await runner.cleanup()


class Desk:
    """A front, a client of it, and what is behind it."""

    def __init__(self, client: Client, office: Office, placement: Placement) -> None:
        self.client = client
        self.office = office
        self.placement = placement

    async def call(self) -> str:
        response = await self.client.post(CALLS_URL, data=OFFER, headers=SDP)
        assert response.status == 201, await response.text()
        return response.headers["Location"]


@asynccontextmanager
async def front(
    folder: Path, *, workers: int = 2, rtc: RtcConfig | None = None, **server: Any
) -> AsyncIterator[Desk]:
    config = Config(server=ServerConfig(workers=2, **server), rtc=rtc or RtcConfig())
    placement = Placement()
    office = Office(placement, config, folder)

    async def ready() -> bool:
        return placement.open

    status = Status(lambda: office.closing, ready)
    door = Door(config.server)
    app = web.Application(client_max_size=config.server.max_body, middlewares=[refusals(door), guard(door)])
    app.add_routes([*Front(config, office, placement, status).routes(), *status.routes()])  # type: ignore[arg-type]
    add_description(app)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(office.aclose)
        for number in range(workers):
            await office.hire(number)
        client = await stack.enter_async_context(TestClient(TestServer(app, host="127.0.0.1")))
        yield Desk(client, office, placement)


async def test_a_call_is_opened_by_a_worker_and_named_after_it(tmp_path: Path) -> None:
    async with front(tmp_path, node="here-1") as desk:
        response = await desk.client.post(CALLS_URL, data=OFFER, headers=SDP)
        assert response.status == 201
        assert response.headers["Content-Type"] == "application/sdp"
        assert await response.text() == ANSWER
        call_id = read_call_id(response.headers["Location"].removeprefix(f"{CALLS_URL}/"))
        assert call_id is not None
        assert (call_id.node, call_id.worker) == ("here-1", 0)
        (call,) = desk.office.boards[0].calls
        assert call.call_id == str(call_id)
        assert call.told == [OFFER]
        assert desk.office.placed == [0]


async def test_a_form_arrives_as_it_was_sent(tmp_path: Path) -> None:
    async with front(tmp_path, workers=1) as desk:
        form = aiohttp.FormData(default_to_multipart=True)
        form.add_field("sdp", OFFER, content_type="application/sdp")
        form.add_field("session", '{"instructions": "Be brief."}', content_type="application/json")
        assert (await desk.client.post(CALLS_URL, data=form)).status == 201
        (call,) = desk.office.boards[0].calls
        assert call.told == [OFFER]
        assert call.settings.instructions == "Be brief."


async def test_calls_are_spread_over_the_workers(tmp_path: Path) -> None:
    async with front(tmp_path, workers=3) as desk:
        await asyncio.gather(*(desk.call() for _ in range(9)))
        counts = Counter(number for number, board in desk.office.boards.items() for _ in board.calls)
        assert counts == {0: 3, 1: 3, 2: 3}


@pytest.mark.parametrize("ending", ["delete", "hangup"])
async def test_a_call_is_ended_where_it_lives(tmp_path: Path, ending: str) -> None:
    async with front(tmp_path) as desk:
        first, second = await desk.call(), await desk.call()
        if ending == "delete":
            response = await desk.client.delete(second)
        else:
            response = await desk.client.post(f"{second}/hangup")
        assert response.status == 200
        assert desk.office.boards[1].calls[0].told[1:] == ["the client hung up", "gone"]
        assert desk.office.boards[0].calls[0].told == [OFFER]
        assert len(desk.placement) == 1
        again = await desk.client.delete(second)
        assert (again.status, (await refusal(again))["code"]) == (404, "call_not_found")
        assert (await desk.client.delete(first)).status == 200


async def test_no_more_calls_than_allowed_over_all_workers(tmp_path: Path) -> None:
    async with front(tmp_path, max_calls=3) as desk:
        locations = [await desk.call() for _ in range(3)]
        refused = await desk.client.post(CALLS_URL, data=OFFER, headers=SDP)
        assert (refused.status, (await refusal(refused))["code"]) == (503, "server_busy")
        assert int(refused.headers["Retry-After"]) > 0
        assert (await desk.client.delete(locations[0])).status == 200
        await desk.call()


async def test_offers_that_are_still_being_answered_count(tmp_path: Path) -> None:
    async with front(tmp_path, workers=0, max_calls=1) as desk:
        gate = asyncio.Event()
        board = await desk.office.hire(0, Switchboard(stalled=gate))
        first = asyncio.create_task(desk.client.post(CALLS_URL, data=OFFER, headers=SDP))
        await until(lambda: bool(board.calls))
        assert (await desk.client.post(CALLS_URL, data=OFFER, headers=SDP)).status == 503
        gate.set()
        assert (await first).status == 201


async def test_a_call_that_ends_by_itself_makes_room(tmp_path: Path) -> None:
    async with front(tmp_path, workers=1, max_calls=1) as desk:
        await desk.call()
        desk.office.boards[0].calls[0].over.set()
        await until(lambda: len(desk.placement) == 0)
        await desk.call()


async def test_a_workers_refusal_reaches_the_client(tmp_path: Path) -> None:
    async with front(tmp_path) as desk:
        response = await desk.client.post(CALLS_URL, data=b"hello", headers=SDP)
        error = await refusal(response)
        assert (response.status, error["code"], error["param"]) == (400, "invalid_sdp", "sdp")
        assert len(desk.placement) == 0


async def test_a_worker_that_dies_is_passed_by_unnoticed(tmp_path: Path) -> None:
    async with front(tmp_path) as desk:
        await desk.office.fire(0)
        call_id = read_call_id((await desk.call()).rpartition("/")[2])
        assert call_id is not None
        assert call_id.worker == 1
        assert len(desk.placement) == 1


async def test_when_no_worker_is_left_the_caller_may_come_back(tmp_path: Path) -> None:
    async with front(tmp_path, workers=1) as desk:
        await desk.office.fire(0)
        response = await desk.client.post(CALLS_URL, data=OFFER, headers=SDP)
        assert (response.status, (await refusal(response))["code"]) == (503, "no_worker")
        assert response.headers["Retry-After"] == "1"
        assert len(desk.placement) == 0


async def test_a_call_that_was_lost_is_known_to_be(tmp_path: Path) -> None:
    async with front(tmp_path) as desk:
        location = await desk.call()
        await desk.office.fire(0)
        response = await desk.client.delete(location)
        assert (response.status, (await refusal(response))["code"]) == (410, "call_lost")
        desk.placement.remove(0, lost=True)
        assert (await desk.client.get(location)).status == 410
        response = await desk.client.delete(location)
        error = await refusal(response)
        assert (response.status, error["code"]) == (410, "call_lost")
        assert "call again" in error["message"]


@pytest.mark.parametrize(
    "call_id",
    ["rtc_1", "rtc_0123456789abcdef01234567", GONE.replace("_0", "_9"), GONE.replace("_", "_elsewhere-")],
)
async def test_a_call_that_is_not_here_is_not_found(tmp_path: Path, call_id: str) -> None:
    async with front(tmp_path) as desk:
        response = await desk.client.delete(f"{CALLS_URL}/{call_id}")
        assert (response.status, (await refusal(response))["code"]) == (404, "call_not_found")


async def test_nobody_comes_in_while_the_server_closes(tmp_path: Path) -> None:
    async with front(tmp_path) as desk:
        desk.office.closing = True
        response = await desk.client.post(CALLS_URL, data=OFFER, headers=SDP)
        assert (response.status, (await refusal(response))["code"]) == (503, "shutting_down")
        assert (await desk.client.get("/readyz")).status == 503


async def test_nobody_comes_in_before_a_worker_is_there(tmp_path: Path) -> None:
    async with front(tmp_path, workers=0) as desk:
        response = await desk.client.post(CALLS_URL, data=OFFER, headers=SDP)
        assert (response.status, (await refusal(response))["code"]) == (503, "engine_not_ready")


async def test_strangers_never_reach_a_worker(tmp_path: Path) -> None:
    async with front(tmp_path, keys=(KEY,), origins=("https://friend.example",)) as desk:
        assert (await desk.client.post(CALLS_URL, data=OFFER, headers=SDP)).status == 401
        headers = {**SDP, "Authorization": f"Bearer {KEY}", "Origin": "https://foe.example"}
        assert (await desk.client.post(CALLS_URL, data=OFFER, headers=headers)).status == 403
        headers["Origin"] = "https://friend.example"
        response = await desk.client.post(CALLS_URL, data=OFFER, headers=headers)
        assert response.status == 201
        assert response.headers["Access-Control-Allow-Origin"] == "https://friend.example"
        assert "Location" in response.headers["Access-Control-Expose-Headers"]
        assert sum(len(board.calls) for board in desk.office.boards.values()) == 1


async def test_a_body_that_is_too_large_stops_at_the_front(tmp_path: Path) -> None:
    async with front(tmp_path) as desk:
        response = await desk.client.post(CALLS_URL, data=b"v=0" + bytes(300_000), headers=SDP)
        assert (response.status, (await refusal(response))["code"]) == (413, "body_too_large")


async def test_headers_of_one_connection_are_not_passed_on(tmp_path: Path) -> None:
    seen: dict[str, str] = {}

    async def record(request: web.Request) -> web.Response:
        seen.update(request.headers)
        headers = {"Location": f"{CALLS_URL}/{GONE}", "Retry-After": "7", "X-Own": "1", "Connection": "x-own"}
        return web.Response(status=201, headers=headers)

    async with front(tmp_path, workers=0) as desk:
        app = web.Application()
        app.router.add_post(CALLS_URL, record)
        await desk.office.employ(0, app)
        sent = {**SDP, "X-Token": "t", "X-Hop": "h", "Connection": "keep-alive, x-hop", "TE": "trailers"}
        response = await desk.client.post(CALLS_URL, data=OFFER, headers=sent)
        assert seen["X-Token"] == "t"
        assert not {"X-Hop", "TE"} & set(seen)
        assert response.headers["Retry-After"] == "7"
        assert "X-Own" not in response.headers


async def echo(request: web.Request) -> web.WebSocketResponse:
    """Be a worker that carries calls over WebSockets, if only so far."""
    socket = web.WebSocketResponse()
    await socket.prepare(request)
    await socket.send_str("here")
    async for message in socket:
        await socket.send_str(message.data)
    return socket


async def test_who_talks_by_a_worker_that_dies_is_told_so(tmp_path: Path) -> None:
    """Not by 1006, which may not be sent: clients take it for a broken protocol."""
    requests: list[web.Request] = []

    async def take(request: web.Request) -> web.WebSocketResponse:
        requests.append(request)
        return await echo(request)

    async with front(tmp_path, workers=0) as desk:
        app = web.Application()
        app.router.add_get("/v1/realtime", take)
        await desk.office.employ(0, app)
        async with desk.client.ws_connect("/v1/realtime") as client:
            assert (await client.receive()).data == "here"
            transport = requests[0].transport
            assert transport is not None
            transport.abort()
            closed = await client.receive(timeout=10)
        assert (closed.type, closed.data) == (aiohttp.WSMsgType.CLOSE, 1011)


async def test_a_worker_keeps_no_socket_of_a_client_that_left_before_it_was_open(tmp_path: Path) -> None:
    asked, gone, closed = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def take(request: web.Request) -> web.WebSocketResponse:
        asked.set()
        await gone.wait()
        socket = await echo(request)
        closed.set()
        return socket

    async with front(tmp_path, workers=0) as desk, AsyncExitStack() as stack:
        app = web.Application()
        app.router.add_get("/v1/realtime", take)
        await desk.office.employ(0, app)
        # As `serving` has it: a handler goes on when its client is gone.
        runner = web.AppRunner(desk.client.app)
        stack.push_async_callback(runner.cleanup)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        http = await stack.enter_async_context(aiohttp.ClientSession())
        port = runner.addresses[0][1]
        connecting = asyncio.create_task(http.ws_connect(f"http://127.0.0.1:{port}/v1/realtime")._coro)
        await asyncio.wait_for(asked.wait(), 10)
        connecting.cancel()
        await asyncio.wait({connecting})
        await until(lambda: not runner.server.connections[0].transport if runner.server.connections else True)
        gone.set()
        await asyncio.wait_for(closed.wait(), 10)
