"""Calls over a WebSocket, with OpenAI's own client: nobody here wrote it."""

import asyncio
import base64
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from typing import Any

import aiohttp
import av
import numpy as np
import pytest
from kit import until
from openai import AsyncOpenAI
from openai.resources.realtime.realtime import AsyncRealtimeConnection
from openai.types.realtime import RealtimeServerEvent
from pydantic import TypeAdapter

from speech import silence
from visavis import socket_call
from visavis.audio import RATE, Pcm
from visavis.config import Config, ServerConfig
from visavis.engine import FramesPart, TextPart
from visavis.engine.scripted import Reply, ScriptedEngine
from visavis.rtc.camera import encode_jpeg

pytestmark = [pytest.mark.loopback, pytest.mark.usefixtures("nothing_left")]

QUESTION = "What is the capital of France?"
ORACLE: TypeAdapter[Any] = TypeAdapter(RealtimeServerEvent)


def tone(seconds: float) -> Pcm:
    return (8000 * np.sin(np.arange(round(seconds * RATE)) * 2 * np.pi * 440 / RATE)).astype(np.int16)


ANSWER = Reply(text="It is Paris.", pcm=tone(1.0), transcript=QUESTION)


class Talk:
    """A stock client, and what it was told."""

    def __init__(self, connection: AsyncRealtimeConnection) -> None:
        self.connection = connection
        self.told: list[Any] = []

    async def listen(self) -> None:
        async for event in self.connection:
            self.told.append(event)

    def kinds(self) -> list[str]:
        return [event.type for event in self.told]

    def count(self, kind: str) -> int:
        return self.kinds().count(kind)

    async def say(self, pcm: Pcm, size: int = 4_800) -> None:
        for at in range(0, len(pcm), size):
            sound = base64.b64encode(pcm[at : at + size].astype("<i2").tobytes()).decode()
            await self.connection.input_audio_buffer.append(audio=sound)

    def sound(self) -> Pcm:
        parts = [base64.b64decode(e.delta) for e in self.told if e.type == "response.output_audio.delta"]
        return np.frombuffer(b"".join(parts), "<i2")


@asynccontextmanager
async def talking(url: str, key: str = "none") -> AsyncIterator[Talk]:
    async with (
        AsyncOpenAI(api_key=key, websocket_base_url=f"{url.replace('http', 'ws')}/v1") as client,
        client.realtime.connect(model="any") as connection,
    ):
        talk = Talk(connection)
        listening = asyncio.create_task(talk.listen())
        try:
            yield talk
        finally:
            listening.cancel()
            await asyncio.wait({listening})


async def test_a_spoken_question_is_answered_with_sound_in_events(serve, say):
    server = await serve(ScriptedEngine([ANSWER]))
    async with talking(server.url) as talk:
        await talk.say(np.concatenate((say(QUESTION), silence(1.5))))
        await until(lambda: talk.count("response.done") == 1, "the answer")
        assert len(talk.sound()) == pytest.approx(RATE, abs=RATE // 10)
        assert talk.kinds()[:2] == ["session.created", "conversation.created"]
        assert not {"output_audio_buffer.started", "error"} & set(talk.kinds())
        for event in talk.told:
            if not event.type.startswith("visavis."):
                ORACLE.validate_python(event.model_dump(exclude_unset=True))
    await until(lambda: len(server.calls) == 0, "the call is gone")


async def test_what_is_sent_at_once_is_heard_in_order(serve, say):
    """A file in one message and a commit right behind it: push-to-talk."""
    engine = ScriptedEngine([ANSWER])
    server = await serve(engine)
    async with talking(server.url) as talk:
        await talk.connection.session.update(
            session={"type": "realtime", "audio": {"input": {"turn_detection": None}}}
        )
        question = np.concatenate((silence(8), say(QUESTION)))
        await talk.say(question, size=len(question))
        await talk.connection.input_audio_buffer.commit()
        await talk.connection.response.create()
        await until(lambda: talk.count("response.done") == 1, "the answer")
        (part,) = [p for p in engine.requests[-1].messages[-1].parts if hasattr(p, "pcm")]
        assert len(part.pcm) == pytest.approx(len(question), abs=480)


async def test_a_telephone_talks_in_g711(serve, say):
    server = await serve(ScriptedEngine([ANSWER]))
    async with talking(server.url) as talk:
        kind: Any = {"type": "audio/pcmu"}
        await talk.connection.session.update(
            session={
                "type": "realtime",
                "audio": {"input": {"format": kind, "turn_detection": None}, "output": {"format": kind}},
            }
        )
        for _ in range(10):
            await talk.connection.input_audio_buffer.append(
                audio=base64.b64encode(b"\x80\x00" * 400).decode()
            )
        await talk.connection.input_audio_buffer.commit()
        await talk.connection.response.create()
        await until(lambda: talk.count("response.done") == 1, "the answer")
        told = [base64.b64decode(e.delta) for e in talk.told if e.type == "response.output_audio.delta"]
        assert sum(map(len, told)) == pytest.approx(8_000, abs=400)


async def test_speaking_up_cuts_an_answer_that_is_being_played(serve, say):
    """The sound was sent long ago, but it takes the client its time to play it."""
    server = await serve(ScriptedEngine([Reply(text="word " * 60, pcm=tone(20), transcript="go on")]))
    async with talking(server.url) as talk:
        await talk.say(np.concatenate((say(QUESTION), silence(1.5))))
        await until(lambda: talk.count("response.done") == 1, "the answer was generated")
        await until(lambda: talk.count("visavis.turn_timings") == 1, "it is being played")
        await talk.say(np.concatenate((say("Stop it, please, I have another question."), silence(1.5))))
        await until(lambda: talk.count("conversation.item.truncated") == 1, "it was cut")
        (cut,) = [e for e in talk.told if e.type == "conversation.item.truncated"]
        assert 0 < cut.audio_end_ms < 20_000


async def test_a_key_may_come_as_a_browser_sends_it(serve):
    server = await serve(ScriptedEngine([ANSWER]), Config(server=ServerConfig(keys=("secret",))))
    url = f"{server.url}/v1/realtime"
    async with aiohttp.ClientSession() as http:
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await http.ws_connect(url)
        assert refused.value.status == 401
        names = ["realtime", "openai-insecure-api-key.secret"]
        async with http.ws_connect(url, protocols=names) as socket:
            assert socket.protocol == "realtime"
            assert json.loads((await socket.receive()).data)["type"] == "session.created"


async def test_who_asks_for_no_socket_is_told_what_to_do(serve):
    server = await serve(ScriptedEngine([ANSWER]))
    async with aiohttp.ClientSession() as http, http.get(f"{server.url}/v1/realtime") as response:
        assert response.status == 426
        assert "WebSocket" in (await response.json())["error"]["message"]


@pytest.mark.parametrize("query", ["call_id=rtc_1", "intent=transcription"])
async def test_who_asks_for_another_kind_of_socket_gets_no_call(serve, query):
    server = await serve(ScriptedEngine([ANSWER]))
    async with aiohttp.ClientSession() as http:
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await http.ws_connect(f"{server.url}/v1/realtime?{query}")
    assert refused.value.status == 400
    assert not server.sessions


async def test_a_binary_message_ends_the_call_with_a_reason(serve):
    server = await serve(ScriptedEngine([ANSWER]))
    async with aiohttp.ClientSession() as http, http.ws_connect(f"{server.url}/v1/realtime") as socket:
        await socket.send_bytes(b"\0")
        async for _ in socket:
            pass
        assert socket.close_code == 1003
    await until(lambda: len(server.calls) == 0, "the call is gone")


async def test_a_call_that_is_hung_up_closes_the_socket(serve):
    server = await serve(ScriptedEngine([ANSWER]))
    async with aiohttp.ClientSession() as http, http.ws_connect(f"{server.url}/v1/realtime") as socket:
        await socket.receive()
        server.sessions[0].hang_up("the test is over")
        async for _ in socket:
            pass
        assert socket.closed
    await until(lambda: len(server.calls) == 0, "the call is gone")


def text_item(words: str) -> Any:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": words}]}


async def test_an_image_a_response_outside_and_a_cut_reply_in_one_call(serve):
    """What is sent after an image waits for it; the topic is found while the answer is being spoken."""
    topic = Reply(text="cities", transcript=None)
    engine = ScriptedEngine([Reply(text="It is Paris, I think.", pcm=tone(20)), topic])
    server = await serve(engine)
    pixels = np.full((600, 800, 3), 200, np.uint8)
    jpeg = encode_jpeg(av.VideoFrame.from_ndarray(pixels), 0, 800, 80).jpeg
    image = "data:image/jpeg;base64," + base64.b64encode(jpeg).decode()
    async with talking(server.url) as talk:
        shown: Any = text_item("Which city is this?")
        shown["content"].append({"type": "input_image", "image_url": image})
        await talk.connection.conversation.item.create(item=shown)
        broken: Any = {"type": "input_image", "image_url": "data:image/png;base64,AAAA"}
        await talk.connection.conversation.item.create(item=shown | {"content": [broken]}, event_id="mine")
        await talk.connection.response.create()
        await until(lambda: talk.count("response.output_audio.delta") > 0, "the answer")
        given: Any = [text_item("Name the topic.")]
        outside: Any = {"conversation": "none", "input": given, "output_modalities": ["text"]}
        await talk.connection.response.create(response=outside | {"metadata": {"for": "topic"}})
        await until(lambda: talk.count("response.done") == 2, "the topic, and the answer's generation")
        (reply,) = {e.item_id for e in talk.told if e.type == "response.output_audio.delta"}
        await talk.connection.conversation.item.truncate(item_id=reply, content_index=0, audio_end_ms=10)
        await talk.connection.conversation.item.delete(item_id=reply)
        await until(lambda: talk.count("conversation.item.deleted") == 1, "the reply is gone")
    (error,) = [e.error for e in talk.told if e.type == "error"]
    assert (error.code, error.event_id) == ("invalid_image", "mine")
    assert [type(part) for part in engine.requests[0].messages[-1].parts] == [FramesPart, TextPart]
    assert talk.count("conversation.item.added") == 2
    found = [e.response for e in talk.told if e.type == "response.done" and e.response.metadata]
    assert [(each.conversation_id, each.metadata) for each in found] == [(None, {"for": "topic"})]
    (cut,) = [e for e in talk.told if e.type == "conversation.item.truncated"]
    assert cut.audio_end_ms == 10
    assert talk.count("rate_limits.updated") == talk.count("response.created") == 2
    for event in talk.told:
        if not event.type.startswith("visavis."):
            ORACLE.validate_python(event.model_dump(exclude_unset=True))


async def test_the_betas_client_has_the_betas_words(serve):
    server = await serve(ScriptedEngine([ANSWER]))
    url = f"{server.url.replace('http', 'ws')}/v1"
    async with (
        AsyncOpenAI(api_key="none", websocket_base_url=url) as client,
        client.beta.realtime.connect(model="gpt-4o-realtime-preview") as connection,
    ):
        kinds = []
        await connection.conversation.item.create(item=text_item("Hello."))
        await connection.response.create(response={"modalities": ["text"]})
        async for event in connection:
            kinds.append(event.type)
            if event.type == "response.done":
                break
    assert {"conversation.item.created", "response.text.delta", "response.text.done"} <= set(kinds)
    assert "conversation.item.added" not in kinds


class Deaf:
    """A client that opens a call and reads nothing of it."""

    def __init__(self, url: str) -> None:
        self._host, _, port = url.removeprefix("http://").partition(":")
        self._port = int(port)
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        self._socket.setblocking(False)

    async def call(self) -> None:
        loop = asyncio.get_running_loop()
        await loop.sock_connect(self._socket, (self._host, self._port))
        lines = (
            "GET /v1/realtime HTTP/1.1",
            f"Host: {self._host}:{self._port}",
            "Upgrade: websocket",
            "Connection: Upgrade",
            "Sec-WebSocket-Version: 13",
            f"Sec-WebSocket-Key: {base64.b64encode(bytes(16)).decode()}",
        )
        await loop.sock_sendall(self._socket, "\r\n".join((*lines, "", "")).encode())
        await loop.sock_recv(self._socket, 12)

    def close(self) -> None:
        self._socket.close()


@pytest.mark.parametrize("hung_up", [True, False])
async def test_who_reads_nothing_is_let_go_with_all_that_was_written_for_them(serve, monkeypatch, hung_up):
    monkeypatch.setattr(socket_call, "HEARTBEAT_S", 0.2)
    monkeypatch.setattr(socket_call, "SILENT_S", 30.0 if hung_up else 0.5)
    server = await serve(ScriptedEngine([ANSWER]))
    with closing(Deaf(server.url)) as client:
        await client.call()
        await until(lambda: len(server.sessions) == 1, "the call")
        line = server.sessions[0]._peer
        await until(lambda: line._transport is not None, "the socket is open")
        for _ in range(200):
            line.send_message("x" * 100_000)
        if hung_up:
            server.sessions[0].hang_up("the test is over")
        await until(lambda: len(server.calls) == 0, "the call is gone")
        await until(lambda: line._transport.get_write_buffer_size() == 0, "what was written is gone")


async def test_who_sent_much_at_once_is_not_taken_for_gone_while_it_is_heard(serve, monkeypatch):
    """Their answers to pings wait behind what they sent meanwhile."""
    monkeypatch.setattr(socket_call, "HEARTBEAT_S", 0.1)
    monkeypatch.setattr(socket_call, "SILENT_S", 0.3)
    server = await serve(ScriptedEngine([ANSWER]))
    async with talking(server.url) as talk:
        await talk.connection.session.update(
            session={"type": "realtime", "audio": {"input": {"turn_detection": None}}}
        )
        await talk.say(silence(60), size=60 * RATE)
        await talk.say(silence(15))
        await talk.connection.input_audio_buffer.clear()
        await until(lambda: talk.count("input_audio_buffer.cleared") == 1, "all is heard", 30)
