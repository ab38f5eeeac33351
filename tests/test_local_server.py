"""The embedded engine's HTTP face with a stand-in for the pipeline, over a real Unix socket."""

import asyncio
import json
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import pytest
from aiohttp import web

from visavis.errors import EngineBusy, EngineError, EngineLost, EngineRefused
from visavis.local.contract import Ask, Audio, End, Piece, Text, Transcript
from visavis.local.refusals import CALLER_HEADER
from visavis.local.server import LocalServer

pytestmark = pytest.mark.slow

WAIT_S = 10.0
HELLO = {"stream": True, "messages": [{"role": "user", "content": "Hi"}]}


@dataclass
class Responder:
    """Answers at once, or holds until it is let go."""

    failure: Exception | None = None
    go: asyncio.Event | None = None
    begun: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(0))
    closed: asyncio.Event = field(default_factory=asyncio.Event)
    asks: list[Ask] = field(default_factory=list)

    async def respond(self, ask: Ask) -> AsyncGenerator[Piece, None]:
        self.asks.append(ask)
        self.begun.release()
        try:
            yield Transcript("Hi")
            if self.go is not None:
                await self.go.wait()
            if self.failure is not None:
                raise self.failure
            yield Text("Hello.")
            yield Audio(np.zeros(240, np.int16))
            yield End("stop", 3, 2)
        finally:
            self.closed.set()


@dataclass
class Served:
    server: LocalServer
    responder: Responder
    session: aiohttp.ClientSession

    async def post(self, body: Any = HELLO, **headers: str) -> tuple[int, list[Any]]:
        """Status and events; for an error its body."""
        async with self.session.post("http://l/v1/chat/completions", json=body, headers=headers) as response:
            text = await response.text()
            if response.status != 200:
                return response.status, [json.loads(text)]
            lines = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
            return 200, [line if line == "[DONE]" else json.loads(line) for line in lines]


@pytest.fixture
async def served(tmp_path: Path) -> AsyncGenerator[Served, None]:
    server, responder = LocalServer("tiny", queue=1), Responder()
    runner = web.AppRunner(server.app(), handler_cancellation=True)
    await runner.setup()
    await web.UnixSite(runner, tmp_path / "s").start()
    server.open(responder)
    async with aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(tmp_path / "s"))) as session:
        yield Served(server, responder, session)
    await runner.cleanup()


async def test_a_response_is_streamed_as_the_contract_says(served: Served) -> None:
    status, events = await served.post(HELLO | {"stream_options": {"include_usage": True}})
    assert status == 200
    assert [event.get("modality") for event in events[:-1]] == [
        "text",
        "transcript",
        "text",
        "audio",
        None,
        None,
    ]
    assert events[0]["choices"][0]["delta"]["role"] == "assistant"
    assert events[-3]["choices"][0]["finish_reason"] == "stop"
    assert events[-2]["usage"]["total_tokens"] == 5
    assert events[-1] == "[DONE]"
    assert len({event["id"] for event in events[:-1]}) == 1


async def test_health_and_requests_wait_for_the_models(tmp_path: Path) -> None:
    server = LocalServer("tiny", queue=1)
    runner = web.AppRunner(server.app())
    await runner.setup()
    await web.UnixSite(runner, tmp_path / "s").start()
    async with aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(tmp_path / "s"))) as session:
        assert (await session.get("http://l/health")).status == 503
        refused = await session.post("http://l/v1/chat/completions", json=HELLO)
        assert refused.status == 503
        server.open(Responder())
        assert (await session.get("http://l/health")).status == 200
        models = await (await session.get("http://l/v1/models")).json()
        assert [model["id"] for model in models["data"]] == ["tiny"]
    await runner.cleanup()


async def test_the_call_is_named_by_its_header(served: Served) -> None:
    await served.post(**{CALLER_HEADER: "call-7"})
    await served.post()
    assert [ask.caller for ask in served.responder.asks] == ["call-7", ""]


async def test_what_cannot_be_read_is_a_400_that_says_why(served: Served) -> None:
    status, (error,) = await served.post({"stream": True, "messages": []})
    assert (status, error["error"]["type"]) == (400, "invalid_request_error")
    assert "messages" in error["error"]["message"]
    response = await served.session.post("http://l/v1/chat/completions", data=b"{")
    assert response.status == 400
    assert served.server.active == 0


async def test_beyond_the_bound_requests_are_refused_as_busy_until_there_is_room(served: Served) -> None:
    served.responder.go = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        first = group.create_task(served.post())
        second = group.create_task(served.post())
        async with asyncio.timeout(WAIT_S):
            await served.responder.begun.acquire()
            await served.responder.begun.acquire()
        response = await served.session.post("http://l/v1/chat/completions", json=HELLO)
        assert response.status == 503
        assert int(response.headers["Retry-After"]) > 0
        assert (await response.json())["error"]["code"] == 503
        served.responder.go.set()
    assert first.result()[1][-1] == second.result()[1][-1] == "[DONE]"
    assert (await served.post())[0] == 200


async def test_a_client_that_leaves_ends_the_work_and_frees_its_place(served: Served) -> None:
    served.responder.go = asyncio.Event()  # never set
    response = await served.session.post("http://l/v1/chat/completions", json=HELLO)
    await response.content.readline()
    assert served.server.active == 1
    response.close()
    async with asyncio.timeout(WAIT_S):
        await served.responder.closed.wait()
        while served.server.active:  # noqa: ASYNC110 - the connection has no event of its own
            await asyncio.sleep(0.001)


@pytest.mark.parametrize(
    ("failure", "code"),
    [(EngineLost("x"), 500), (EngineRefused("x"), 400), (EngineBusy("x"), 503), (KeyError("x"), 500)],
)
async def test_a_failure_in_the_stream_is_an_event_and_the_server_lives_on(
    served: Served, failure: Exception, code: int
) -> None:
    served.responder.failure = failure
    status, events = await served.post()
    assert status == 200
    assert events[-2]["error"]["code"] == code
    assert ("x" in events[-2]["error"]["message"]) is isinstance(failure, EngineError)
    assert events[-1] == "[DONE]"
    served.responder.failure = None
    assert (await served.post())[1][-3]["modality"] == "audio"
