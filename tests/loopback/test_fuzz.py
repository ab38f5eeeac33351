"""Ten thousand inputs that nobody meant, seeded: nothing fails, nothing is left, another's call goes on.

VISAVIS_FUZZ_SEED tries others.
"""

import asyncio
import json
import os
import random
import re
import socket
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from kit import Caller, Server, until

from visavis.config import Config, RtcConfig, ServerConfig
from visavis.engine.scripted import Reply, ScriptedEngine

pytestmark = [pytest.mark.loopback, pytest.mark.usefixtures("nothing_left")]

GOLDEN = Path(__file__).parents[1] / "golden"
OFFER = (GOLDEN / "offer_chromium.sdp").read_bytes()
FRAGMENT = (
    b"a=ice-ufrag:abcd\r\na=ice-pwd:0123456789012345678901\r\nm=audio 9 UDP/TLS/RTP/SAVPF 0\r\na=mid:0\r\n"
)
FRAGMENT += b"a=candidate:1 1 udp 2130706431 127.0.0.1 50000 typ host\r\na=end-of-candidates\r\n"
EVENTS: list[dict[str, Any]] = [
    {"type": "session.update", "session": {"type": "realtime", "instructions": "Hi", "tools": []}},
    {
        "type": "session.update",
        "session": {
            "audio": {
                "input": {"turn_detection": {"type": "server_vad", "silence_duration_ms": 300}},
                "output": {"voice": "x", "format": {"type": "audio/pcmu"}},
            },
            "tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}}],
        },
    },
    {
        "type": "conversation.item.create",
        "item": {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hello"}]},
    },
    {
        "type": "conversation.item.create",
        "item": {"type": "function_call_output", "call_id": "c", "output": "1"},
    },
    {"type": "conversation.item.delete", "item_id": "item_1"},
    {"type": "conversation.item.truncate", "item_id": "item_1", "content_index": 0, "audio_end_ms": 10},
    {"type": "conversation.item.retrieve", "item_id": "item_1"},
    {"type": "input_audio_buffer.append", "audio": "AAAA" * 240},
    {"type": "input_audio_buffer.commit"},
    {"type": "input_audio_buffer.clear"},
    {"type": "output_audio_buffer.clear"},
    {"type": "response.create", "response": {"output_modalities": ["text"], "metadata": {"a": "b"}}},
    {"type": "response.cancel", "event_id": "e"},
]
RTVI = {"sdp": OFFER.decode(), "type": "offer", "pc_id": None, "restart_pc": False}
ODD = [None, True, -1, 1 << 70, 1e308, "", "\ud83d", "x" * 5_000, [], {}, [[[[]]]], {"type": {}}, "item_1"]
WORDS = [
    b"",
    b"\0",
    b"\xff\xfe",
    b"\r\n",
    b"-1",
    b"9" * 40,
    b"%s%n",
    b"a=" + b"z" * 3_000,
    b"m=video 9 X 1\r\n",
]


def mutate_bytes(rng: random.Random, data: bytes) -> bytes:
    """Drop, double, swap and replace lines and bytes."""
    lines = data.split(b"\r\n") if b"\r\n" in data else [data[at : at + 16] for at in range(0, len(data), 16)]
    glue = b"\r\n" if b"\r\n" in data else b""
    for _ in range(rng.randint(1, 5)):
        at = rng.randrange(len(lines))
        match rng.randrange(6):
            case 0 if len(lines) > 1:
                del lines[at]
            case 1:
                lines.insert(at, lines[rng.randrange(len(lines))])
            case 2:
                lines[at] = rng.choice(WORDS)
            case 3 if lines[at]:
                cut = rng.randrange(len(lines[at]))
                lines[at] = lines[at][:cut] + bytes([rng.randrange(256)]) + lines[at][cut + 1 :]
            case 4:
                lines[at] = re.sub(
                    rb"\d+", lambda _: b"%d" % rng.randrange(1 << rng.randrange(1, 40)), lines[at]
                )
            case 5:
                rng.shuffle(lines)
    return glue.join(lines)[:60_000]


def mutate_json(rng: random.Random, value: Any, depth: int = 0) -> Any:
    """Replace, drop, double and rename members."""
    if rng.random() < 0.15 * depth:
        return rng.choice(ODD)
    if isinstance(value, dict):
        members = {k: mutate_json(rng, v, depth + 1) for k, v in value.items() if rng.random() > 0.06}
        if rng.random() < 0.1:
            members[rng.choice(["type", "item", "response", "input", "audio", "x"])] = rng.choice(ODD)
        return members
    if isinstance(value, list):
        return [mutate_json(rng, v, depth + 1) for v in value for _ in range(rng.choice([0, 1, 1, 1, 2]))]
    return value


def messages(rng: random.Random, count: int) -> Iterator[str]:
    for _ in range(count):
        text = json.dumps(mutate_json(rng, rng.choice(EVENTS)))
        if rng.random() < 0.1:
            text = mutate_bytes(rng, text.encode(errors="replace")).decode(errors="replace")
        yield text


@pytest.fixture
def udp_port() -> int:
    return free_port()


@pytest.fixture
async def server(serve: Callable[..., Any], udp_port: int) -> Server:
    generous = ServerConfig(max_requests_per_s=1e6, max_events_per_s=1e6, max_calls=50)
    rtc = replace(RtcConfig(), connect_s=5.0, udp_port=udp_port, udp_hosts=("127.0.0.1",))
    engine = ScriptedEngine([Reply(text="word " * 3, transcript="hello")])
    started: Server = await serve(engine, Config(server=generous, rtc=rtc))
    return started


def free_port() -> int:
    with socket.socket(type=socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


async def witness(caller: Caller) -> None:
    """Have a call answered: it knows nothing of the others."""
    before = caller.ear.kinds()["response.done"]
    caller.send({"type": "response.create"})
    await until(lambda: caller.ear.kinds()["response.done"] > before, "the witness is answered")
    await until(lambda: not caller.ear.hears(), "the answer ends")
    assert caller.ear.closed_with is None
    assert not caller.ear.kinds()["error"]


async def post(
    http: aiohttp.ClientSession,
    url: str,
    data: bytes,
    kind: str,
    statuses: Counter[int],
    method: str = "POST",
) -> None:
    async with http.request(method, url, data=data, headers={"Content-Type": kind}) as response:
        statuses[response.status] += 1
        body = await response.read()
        if response.status >= 400:
            assert "error" in json.loads(body)
        location = response.headers.get("Location")
    if location is not None:
        async with http.delete(f"{url[: url.index('/', 8)]}{location}"):
            pass


async def test_nothing_that_is_sent_breaks_the_server_or_another_call(
    server: Server, udp_port: int, http: aiohttp.ClientSession, caplog: pytest.LogCaptureFixture
) -> None:
    rng = random.Random(int(os.environ.get("VISAVIS_FUZZ_SEED", "6")))
    statuses: Counter[int] = Counter()
    calls = f"{server.url}/v1/realtime/calls"
    async with Caller(server.url, http) as other:
        await witness(other)
        for _ in range(600):
            await post(http, calls, mutate_bytes(rng, OFFER), "application/sdp", statuses)
        await witness(other)
        for _ in range(150):
            body = json.dumps(mutate_json(rng, RTVI | {"sdp": mutate_bytes(rng, OFFER).decode("latin-1")}))
            await post(http, f"{server.url}/api/offer", body.encode(), "application/json", statuses)
        kind = "application/trickle-ice-sdpfrag"
        for _ in range(1_000):
            await post(http, f"{calls}/{other.call_id}", mutate_bytes(rng, FRAGMENT), kind, statuses, "PATCH")
        await witness(other)
        told = await by_socket(server, http, messages(rng, 5_000))
        assert told["error"] > 1_000
        await by_channel(server, http, messages(rng, 1_000))
        await witness(other)
        await by_datagram(udp_port, rng, 3_000)
        await witness(other)
    await until(lambda: len(server.calls) == 0, "all calls are over", 60)
    assert not [status for status in statuses if status >= 500 and status != 503], statuses
    assert [r for r in caplog.records if r.levelname in ("ERROR", "CRITICAL")] == []


async def by_socket(server: Server, http: aiohttp.ClientSession, sent: Iterator[str]) -> Counter[str]:
    """Send all of it on one WebSocket, which lives on; count what is told."""
    told: Counter[str] = Counter()
    last = asyncio.Event()
    async with http.ws_connect(f"{server.url.replace('http', 'ws')}/v1/realtime") as line:

        async def listen() -> None:
            async for message in line:
                event = json.loads(message.data)
                told[event["type"]] += 1
                if event["type"] == "error" and event["error"]["event_id"] == "last":
                    last.set()

        listening = asyncio.create_task(listen())
        for text in sent:
            await line.send_str(text)
        await line.send_str('{"type": "conversation.item.retrieve", "item_id": "none", "event_id": "last"}')
        await until(last.is_set, "the socket's session lives on", 60)
        listening.cancel()
        await asyncio.wait({listening})
    return told


async def by_channel(server: Server, http: aiohttp.ClientSession, sent: Iterator[str]) -> None:
    """Send all of it on a data channel, as fast as it is taken."""
    async with Caller(server.url, http) as caller:
        for number, text in enumerate(sent):
            caller.peer.send_message(text)
            if number % 50 == 0:
                await asyncio.sleep(0.01)
        caller.send({"type": "conversation.item.retrieve", "item_id": "none", "event_id": "last"})
        await until(lambda: "last" in refused(caller), "the call lives on", 60)


def refused(caller: Caller) -> list[str | None]:
    return [event["error"]["event_id"] for event in caller.ear.events if event["type"] == "error"]


async def by_datagram(port: int, rng: random.Random, count: int) -> None:
    """Send what may look like STUN, DTLS, RTP and RTCP to the port of all calls."""
    with socket.socket(type=socket.SOCK_DGRAM) as sender:
        sender.connect(("127.0.0.1", port))
        for number in range(count):
            if number % 50 == 0:
                await asyncio.sleep(0)  # let it be read: the socket's buffer is small
            first = rng.choice([0, 1, 20, 22, 23, 64, 128, 144, 255])
            size = rng.choice([1, 12, 20, 100, 1_400])
            sender.send(bytes([first]) + rng.randbytes(size))
