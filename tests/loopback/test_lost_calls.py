"""A caller whose call was lost comes back with its token: real calls, the same conversation."""

import aiohttp
import pytest
from kit import Caller, Server, until

from visavis.engine import TextPart
from visavis.engine.scripted import Reply, ScriptedEngine

pytestmark = [pytest.mark.loopback, pytest.mark.usefixtures("nothing_left")]


def ask(caller: Caller, text: str) -> None:
    content = [{"type": "input_text", "text": text}]
    item = {"type": "message", "role": "user", "content": content}
    caller.send({"type": "conversation.item.create", "item": item})
    caller.send({"type": "response.create", "response": {"output_modalities": ["text"]}})


async def answered(caller: Caller, times: int = 1) -> None:
    await until(lambda: caller.ear.kinds()["response.done"] >= times, "the answer")


def said(engine: ScriptedEngine) -> list[str]:
    parts = (part for message in engine.requests[-1].messages[1:] for part in message.parts)
    return [part.text.strip() for part in parts if isinstance(part, TextPart)]


def resumed(caller: Caller) -> list[list[str]]:
    return [event["item_ids"] for event in caller.ear.events if event["type"] == "visavis.resumed"]


@pytest.fixture
async def http():
    async with aiohttp.ClientSession() as session:
        yield session


@pytest.mark.parametrize("noticed", [True, False])
async def test_the_conversation_goes_on_in_another_call(serve, http: aiohttp.ClientSession, *, noticed: bool):
    """Whether or not the server has noticed yet that the first call was lost."""
    engine = ScriptedEngine([Reply(text="Hello Ada.", pcm=None)])
    server: Server = await serve(engine)
    async with Caller(server.url, http) as first:
        ask(first, "My name is Ada.")
        await answered(first)
        if noticed:
            await first.peer.aclose()
            await until(lambda: not server.calls, "the server to notice")
        first_token = first.token
        async with Caller(server.url, http, token=first_token) as second:
            ask(second, "What is it?")
            await answered(second)
            assert said(engine) == ["My name is Ada.", "Hello Ada.", "What is it?"]
            assert [len(ids) for ids in resumed(second)] == [2]
            await until(lambda: len(server.calls) == 1, "the first call to end")
            async with Caller(server.url, http, token=first_token) as third:
                ask(third, "And mine?")
                await answered(third)
                assert said(engine) == ["And mine?"]
        assert resumed(first) == []


async def test_who_hung_up_begins_anew(serve, http: aiohttp.ClientSession):
    engine = ScriptedEngine([Reply(text="Hello Ada.", pcm=None)])
    server: Server = await serve(engine)
    async with Caller(server.url, http) as first:
        ask(first, "My name is Ada.")
        await answered(first)
        async with http.delete(f"{server.url}/v1/realtime/calls/{first.call_id}") as response:
            assert response.status == 200
    async with Caller(server.url, http, token=first.token) as second:
        ask(second, "What is it?")
        await answered(second)
        assert said(engine) == ["What is it?"]
        assert resumed(second) == []
