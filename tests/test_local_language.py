"""A language model behind an OpenAI-compatible URL, in place of the embedded one."""

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing

import pytest
from aiohttp import web

from visavis.errors import EngineBusy, EngineError, EngineLost, EngineRefused
from visavis.local.language import Counts, RemoteModel

WAIT_S = 10.0
HELLO = [{"role": "user", "content": "Hi"}]
Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


def chunk(text: str | None = None, reason: str | None = None) -> bytes:
    choice = {"index": 0, "delta": {} if text is None else {"content": text}, "finish_reason": reason}
    return b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n"


USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":2}}\n\ndata: [DONE]\n\n'


@pytest.fixture
async def serve() -> AsyncGenerator[Callable[[Answer], Awaitable[RemoteModel]], None]:
    """Start a server with the given answer and make a model that asks it."""
    runners, models = [], []

    async def start(answer: Answer) -> RemoteModel:
        app = web.Application()
        app.router.add_post("/v1/chat/completions", answer)
        runner = web.AppRunner(app, handler_cancellation=True)
        runners.append(runner)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        model = RemoteModel(f"http://127.0.0.1:{runner.addresses[0][1]}", "big", "secret")
        models.append(model)
        return model

    yield start
    for model in models:
        await model.aclose()
    for runner in runners:
        await runner.cleanup()


def stream(*data: bytes) -> Answer:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for piece in data:
            await response.write(piece)
        return response

    return answer


async def reply(model: RemoteModel) -> list[str | Counts]:
    async with aclosing(model.reply(HELLO, caller="c", max_tokens=70, temperature=0.5)) as pieces:
        return [piece async for piece in pieces]


async def test_a_reply_is_streamed_with_its_counts(serve: Callable[[Answer], Awaitable[RemoteModel]]) -> None:
    model = await serve(stream(b": comment\n\n", chunk("Hel"), chunk("lo."), chunk(reason="length"), USAGE))
    assert await reply(model) == ["Hel", "lo.", Counts(5, 2, "length")]


async def test_the_request_names_model_key_and_limits(
    serve: Callable[[Answer], Awaitable[RemoteModel]],
) -> None:
    seen: list[tuple[str | None, dict[str, object]]] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        seen.append((request.headers.get("Authorization"), await request.json()))
        return await stream(USAGE)(request)

    await reply(await serve(answer))
    ((key, body),) = seen
    assert key == "Bearer secret"
    assert body["model"] == "big"
    assert body["messages"] == HELLO
    assert (body["max_tokens"], body["temperature"], body["stream"]) == (70, 0.5, True)


@pytest.mark.parametrize(
    ("status", "error"), [(400, EngineRefused), (429, EngineBusy), (503, EngineBusy), (500, EngineLost)]
)
async def test_a_refusal_is_an_error_of_its_kind(
    serve: Callable[[Answer], Awaitable[RemoteModel]], status: int, error: type[EngineError]
) -> None:
    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(status=status, text="no")

    with pytest.raises(error, match=str(status)):
        await reply(await serve(answer))


@pytest.mark.parametrize("data", [b"data: {\n\n", b'data: {"error":{"message":"x"}}\n\n'])
async def test_a_stream_that_breaks_is_an_error(
    serve: Callable[[Answer], Awaitable[RemoteModel]], data: bytes
) -> None:
    with pytest.raises(EngineLost):
        await reply(await serve(stream(chunk("Hel"), data)))


async def test_a_server_that_is_not_there_is_an_error() -> None:
    model = RemoteModel("http://127.0.0.1:9/v1/", None, None)
    with pytest.raises(EngineLost, match=r"127\.0\.0\.1:9/v1 "):
        await reply(model)
    await model.aclose()


async def test_closing_a_reply_closes_its_connection(
    serve: Callable[[Answer], Awaitable[RemoteModel]],
) -> None:
    gone = asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        try:
            await response.write(chunk("Hello"))
            await asyncio.Event().wait()
        finally:
            gone.set()
        return response

    model = await serve(answer)
    async with aclosing(model.reply(HELLO, caller="c", max_tokens=70, temperature=None)) as pieces:
        assert await anext(pieces) == "Hello"
    async with asyncio.timeout(WAIT_S):
        await gone.wait()
