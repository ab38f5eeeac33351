"""What OpenAI's client for Python does beside its WebSocket: secrets, calls by SDP, hanging up."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import openai
import pytest
from aiortc import RTCPeerConnection, RTCSessionDescription
from kit import Server, until
from openai import AsyncOpenAI
from openai.types.realtime import RealtimeServerEvent
from pydantic import TypeAdapter

from visavis.config import Config, RtcConfig, ServerConfig
from visavis.engine import ToolCall
from visavis.engine.scripted import Reply, ScriptedEngine

pytestmark = [pytest.mark.loopback, pytest.mark.usefixtures("nothing_left")]

ORACLE: TypeAdapter[Any] = TypeAdapter(RealtimeServerEvent)
KEY = "sk-test"
CONFIG = Config(server=ServerConfig(keys=(KEY,)), rtc=replace(RtcConfig(), udp_hosts=("127.0.0.1",)))
WEATHER: Any = {"type": "function", "name": "weather", "description": "Tells it.", "parameters": {}}


@asynccontextmanager
async def client_of(server: Server, key: str) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(api_key=key, base_url=f"{server.url}/v1", max_retries=0) as client:
        yield client


class Talk:
    """A peer connection with the channel for events, as OpenAI's documentation has it."""

    def __init__(self) -> None:
        self.peer = RTCPeerConnection()
        self.peer.addTransceiver("audio", "recvonly")
        self.channel = self.peer.createDataChannel("oai-events")
        self.told: list[dict[str, Any]] = []
        self.channel.on("message", lambda text: self.told.append(json.loads(text)))

    async def call(self, client: AsyncOpenAI, session: Any) -> str:
        """Call; return the call's id."""
        await self.peer.setLocalDescription(await self.peer.createOffer())
        offer = self.peer.localDescription.sdp
        made = await client.realtime.calls.create(sdp=offer, session={"type": "realtime", **session})
        await self.peer.setRemoteDescription(RTCSessionDescription(made.text, "answer"))
        return str(made.response.headers["Location"]).rsplit("/", 1)[-1]

    def send(self, **event: Any) -> None:
        self.channel.send(json.dumps(event))

    def all(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.told if event["type"] == kind]

    async def until(self, kind: str, count: int = 1) -> dict[str, Any]:
        await until(lambda: len(self.all(kind)) == count, f"{count} of {kind}")
        return self.all(kind)[-1]


@asynccontextmanager
async def talk() -> AsyncIterator[Talk]:
    talk = Talk()
    try:
        yield talk
    finally:
        await talk.peer.close()


async def test_who_holds_a_secret_calls_with_its_settings_uses_a_function_and_hangs_up(serve) -> None:
    call = ToolCall("call_1", "weather", '{"place": "Rome"}')
    engine = ScriptedEngine([Reply(text="", calls=(call,)), Reply(text="It is warm.")])
    server = await serve(engine, CONFIG)
    async with client_of(server, KEY) as client:
        secret = await client.realtime.client_secrets.create(
            expires_after={"anchor": "created_at", "seconds": 60},
            session={"type": "realtime", "instructions": "Be brief."},
        )
    async with client_of(server, secret.value) as client, talk() as caller:
        call_id = await caller.call(client, {"tools": [WEATHER]})
        session = (await caller.until("session.created"))["session"]
        assert (session["instructions"], session["tools"][0]["name"]) == ("Be brief.", "weather")

        caller.send(type="response.create")
        asked = await caller.until("response.function_call_arguments.done")
        assert (asked["name"], asked["arguments"]) == ("weather", '{"place": "Rome"}')
        await caller.until("response.done")
        result = {"type": "function_call_output", "call_id": asked["call_id"], "output": "21 degrees"}
        caller.send(type="conversation.item.create", item=result)
        caller.send(type="response.create")
        done = await caller.until("response.done", 2)
        assert done["response"]["output"][0]["content"][0]["transcript"] == "It is warm."

        await client.realtime.calls.hangup(call_id)
        assert not server.calls
        with pytest.raises(openai.NotFoundError):
            await client.realtime.calls.hangup(call_id)
    for event in caller.told:
        if not event["type"].startswith("visavis."):
            ORACLE.validate_python(event)


async def test_a_secret_opens_a_socket_too_but_makes_no_secrets(serve) -> None:
    server = await serve(ScriptedEngine([Reply(text="Hello.")]), CONFIG)
    async with client_of(server, KEY) as client:
        secret = await client.realtime.client_secrets.create(
            session={"type": "realtime", "output_modalities": ["text"]}
        )
    async with client_of(server, secret.value) as client:
        with pytest.raises(openai.PermissionDeniedError):
            await client.realtime.client_secrets.create()
        async with client.realtime.connect(model="any") as connection:
            await connection.response.create()
            async with asyncio.timeout(10):
                async for event in connection:
                    if event.type == "response.output_text.done":
                        break
            assert event.text == "Hello."


async def test_refusals_are_the_clients_own_errors(serve) -> None:
    server = await serve(ScriptedEngine([Reply()]), CONFIG)
    async with client_of(server, "sk-other") as client:
        with pytest.raises(openai.AuthenticationError):
            await client.realtime.client_secrets.create()
    async with client_of(server, KEY) as client:
        with pytest.raises(openai.BadRequestError) as refused:
            await client.realtime.calls.create(sdp="no offer")
        assert refused.value.body["message"]
