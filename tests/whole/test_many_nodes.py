"""Three servers behind HAProxy with one Redis, thirty callers: one server is killed, another drained."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import pytest

from balancer import Backend, balancing, free_port
from loopback.kit import Ear, until
from test_store import redis_server
from visavis.audio import BLOCK, RATE, Pcm, level_dbfs
from visavis.config import RtcConfig
from visavis.ids import read_call_id
from visavis.resume import TOKEN_HEADER
from visavis.rtc import Media

pytestmark = [
    pytest.mark.slow,
    pytest.mark.loopback,
    pytest.mark.haproxy,
    pytest.mark.redis,
    pytest.mark.skipif(sys.platform != "linux", reason="several processes are for Linux"),
]

KEY = "key-of-the-callers"
CALLS = 30
PATIENCE_S = 60.0
"Bounds a test that has failed."
BACK_WITHIN_S = 3.0
"What a caller waits at most, from calling again to the conversation; on a busy machine, twice a first call."
LONGEST_SILENCE_MS = 60.0
"Within the story, whose tone swells from silence and back: 20 to 40 ms each time."
STORY = "I will now tell a long story " * 6
"Said back by the scripted engine, 0.35 s a word."


class Node:
    """A server of its own name, in processes of its own."""

    def __init__(self, name: str, workers: int, redis_port: int, folder: Path) -> None:
        self.backend = Backend(name, free_port(), free_port())
        self._log = folder / f"{name}.log"
        settings = {
            "HOST": "127.0.0.1",
            "PORT": str(self.backend.port),
            "VISAVIS_SERVER_KEYS": KEY,
            "VISAVIS_SERVER_NODE": name,
            "VISAVIS_SERVER_WORKERS": str(workers),
            "VISAVIS_SERVER_MAX_CALLS": str(CALLS),
            "VISAVIS_SERVER_AGENT_PORT": str(self.backend.agent_port),
            "VISAVIS_SERVER_TRUSTED_PROXIES": "127.0.0.1",
            "VISAVIS_SERVER_DRAIN_S": "60",
            "VISAVIS_ENGINE_NAME": "scripted",
            "VISAVIS_ENGINE_MAX_CONCURRENT": str(CALLS),
            "VISAVIS_RTC_UDP_HOSTS": "127.0.0.1",
            "VISAVIS_RESUME_REDIS": f"redis://127.0.0.1:{redis_port}/0",
        }
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "visavis", "serve"],
                env={**os.environ, **settings},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    @property
    def name(self) -> str:
        return self.backend.name

    def wait_ready(self) -> None:
        give_up = time.monotonic() + PATIENCE_S
        while time.monotonic() < give_up:
            with suppress(urllib.error.URLError, ConnectionError):
                urllib.request.urlopen(f"http://127.0.0.1:{self.backend.port}/readyz").close()
                return
            assert self.process.poll() is None, self.log()
            time.sleep(0.05)
        pytest.fail(f"{self.name} is never ready:\n{self.log()}")

    def log(self) -> str:
        return self._log.read_text()

    def stop(self) -> None:
        for _ in range(2):
            if self.process.poll() is None:
                self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@dataclass(eq=False)
class Guest:
    """A caller who writes; what is heard is noted."""

    number: int
    site: "Site"
    ear: Ear = field(default_factory=Ear)
    call_id: str = ""
    token: str = ""
    stack: AsyncExitStack = field(default_factory=AsyncExitStack)

    @property
    def node(self) -> str:
        call_id = read_call_id(self.call_id)
        assert call_id is not None
        return call_id.node

    async def call(self, *, again: bool = False) -> float:
        """Call, after a call was lost with its token; return how many seconds it took."""
        await self.stack.aclose()
        began = time.monotonic()
        self.ear = Ear()
        self.peer = self.site.media.caller(self.ear)
        self.stack.push_async_callback(self.peer.aclose)
        headers = {"Content-Type": "application/sdp"} | ({TOKEN_HEADER: self.token} if again else {})
        offer = await self.peer.offer()
        async with self.site.http.post("/v1/realtime/calls", data=offer, headers=headers) as response:
            assert response.status == 201, await response.text()
            self.call_id = response.headers["Location"].rpartition("/")[2]
            self.token = response.headers[TOKEN_HEADER]
            await self.peer.accept(await response.text())
        await until(lambda: self.ear.open, f"the call of guest {self.number}", PATIENCE_S)
        return time.monotonic() - began

    def send(self, event: dict[str, Any]) -> None:
        self.peer.send_message(json.dumps(event))

    def write(self, text: str, *modalities: str) -> None:
        content = [{"type": "input_text", "text": text}]
        self.send(
            {
                "type": "conversation.item.create",
                "item": {"type": "message", "role": "user", "content": content},
            }
        )
        self.send({"type": "response.create", "response": {"output_modalities": modalities}})

    async def converse(self, text: str) -> None:
        """Write something and wait for the written answer."""
        done = self.ear.kinds()["response.done"]
        self.write(text, "text")
        await until(
            lambda: self.ear.kinds()["response.done"] > done, f"an answer to {self.number}", PATIENCE_S
        )
        assert self.ear.events[-1]["type"] in ("response.done", "visavis.turn_timings")

    async def remembered(self, item_ids: list[str]) -> list[str]:
        """Ask the server what the items say."""
        for item_id in item_ids:
            self.send({"type": "conversation.item.retrieve", "item_id": item_id})
        await until(
            lambda: self.ear.kinds()["conversation.item.retrieved"] == len(item_ids),
            f"the items of guest {self.number}",
            PATIENCE_S,
        )
        return [
            event["item"]["content"][0]["text"]
            for event in self.ear.events
            if event["type"] == "conversation.item.retrieved"
        ]

    def told(self, kind: str) -> dict[str, Any]:
        """Return the event of this type, of which there is one."""
        (event,) = (event for event in self.ear.events if event["type"] == kind)
        return event

    async def status(self) -> int:
        """Ask, through the balancer, whether the call lives."""
        async with self.site.http.get(f"/v1/realtime/calls/{self.call_id}") as response:
            return response.status


@dataclass
class Site:
    nodes: dict[str, Node]
    http: aiohttp.ClientSession
    "A client of the balancer."
    media: Media


@asynccontextmanager
async def running_site(folder: Path) -> AsyncIterator[Site]:
    async with AsyncExitStack() as stack:
        redis_port = free_port()
        await stack.enter_async_context(redis_server(folder, redis_port))
        # One of them has several processes itself.
        nodes = [Node(name, workers, redis_port, folder) for name, workers in (("a", 1), ("b", 1), ("c", 2))]
        for node in nodes:
            stack.callback(node.stop)
        await asyncio.gather(*(asyncio.to_thread(node.wait_ready) for node in nodes))
        url = stack.enter_context(balancing(folder, [node.backend for node in nodes]))
        headers = {"Authorization": f"Bearer {KEY}"}
        http = await stack.enter_async_context(aiohttp.ClientSession(url, headers=headers))
        media = await stack.enter_async_context(Media(RtcConfig(udp_hosts=("127.0.0.1",))))
        yield Site({node.name: node for node in nodes}, http, media)


async def skipped_blocks(node: Node) -> float:
    """Return how many blocks of sound a server could not send in time, since the machine had other work."""
    headers = {"Authorization": f"Bearer {KEY}"}
    url = f"http://127.0.0.1:{node.backend.port}/metrics"
    async with aiohttp.ClientSession(headers=headers) as http, http.get(url) as response:
        lines = (await response.text()).splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith("visavis_blocks_skipped_total"))


def longest_silence_ms(heard: list[Pcm]) -> float:
    """Return the longest silence within what was heard, in time of the sound."""
    loud = [at for at, block in enumerate(heard) if level_dbfs(block) > -50]
    return float(np.diff(loud).max() - 1) * BLOCK / RATE * 1000


async def test_a_killed_server_costs_its_callers_seconds_and_the_others_nothing(
    tmp_path: Path,
) -> None:
    async with running_site(tmp_path) as site, AsyncExitStack() as stack:
        guests = [Guest(number, site) for number in range(CALLS)]
        for guest in guests:
            stack.push_async_callback(guest.stack.aclose)
        first: list[float] = []
        for some in range(0, CALLS, 10):
            first += await asyncio.gather(*(guest.call() for guest in guests[some : some + 10]))
            await asyncio.gather(
                *(guest.converse(f"I am guest {guest.number}.") for guest in guests[some : some + 10])
            )
        print(f"called → connected {min(first):.2f}–{max(first):.2f} s")
        spread = Counter(guest.node for guest in guests)
        print("spread:", dict(spread))
        assert max(spread.values()) - min(spread.values()) <= 2
        assert len(spread) == 3

        victims = [guest for guest in guests if guest.node == "a"]
        others = [guest for guest in guests if guest.node != "a"]
        listeners = [next(guest for guest in others if guest.node == node) for node in ("b", "c")]
        for guest in listeners:
            guest.write(STORY, "audio")
        await asyncio.gather(*(until(guest.ear.hears, "a story", PATIENCE_S) for guest in listeners))

        site.nodes["a"].process.kill()
        killed = time.monotonic()
        noticed: list[float] = []
        back: list[float] = []

        async def come_back(guest: Guest) -> None:
            await until(lambda: guest.ear.closed_with is not None, "the loss", PATIENCE_S)
            noticed.append(time.monotonic() - killed)
            assert await guest.status() == 404
            back.append(await guest.call(again=True))
            # It comes with session.created, in one go.
            await until(lambda: guest.ear.kinds()["visavis.resumed"] == 1, "what was kept", PATIENCE_S)

        await asyncio.gather(*map(come_back, victims))
        print(f"killed → noticed {min(noticed):.1f}–{max(noticed):.1f} s")
        print(f"called again → resumed {min(back):.2f}–{max(back):.2f} s, median {np.median(back):.2f}")
        assert max(back) < max(BACK_WITHIN_S, 2 * max(first))
        assert {guest.node for guest in victims} == {"b", "c"}
        for guest in victims:
            items = guest.told("visavis.resumed")["item_ids"]
            said, answered = await guest.remembered(items)
            assert said == f"I am guest {guest.number}."
            assert answered.endswith(f"You wrote: I am guest {guest.number}.")

        for guest in others:
            assert guest.ear.closed_with is None
            assert guest.ear.kinds()["session.created"] == 1
        assert set(await asyncio.gather(*(guest.status() for guest in others))) == {200}
        for guest in listeners:
            await until(lambda g=guest: g.ear.kinds()["output_audio_buffer.stopped"] == 1, "its end")
            silence_ms = longest_silence_ms(guest.ear.heard)
            skipped = await skipped_blocks(site.nodes[guest.node])
            print(f"longest silence on {guest.node}: {silence_ms:.0f} ms, {skipped:.0f} blocks skipped there")
            assert silence_ms <= LONGEST_SILENCE_MS + skipped * BLOCK / RATE * 1000
            assert guest.peer.stats().packets_lost == 0
        await asyncio.gather(*(guest.converse("And now?") for guest in guests))

        # A server that is told to end keeps its calls, and their requests find it.
        site.nodes["b"].process.send_signal(signal.SIGTERM)
        stays = [guest for guest in guests if guest.node == "b"]
        for guest in stays:
            await until(lambda g=guest: g.ear.kinds()["visavis.call_ending"] == 1, "a warning", PATIENCE_S)
        late = [Guest(CALLS + number, site) for number in range(4)]
        for guest in late:
            stack.push_async_callback(guest.stack.aclose)
            await guest.call()
        assert {guest.node for guest in late} == {"c"}
        assert set(await asyncio.gather(*(guest.status() for guest in stays))) == {200}
        await asyncio.gather(*(guest.converse("And now?") for guest in stays))
        for guest in stays:
            async with site.http.delete(f"/v1/realtime/calls/{guest.call_id}") as response:
                assert response.status == 200
        assert await asyncio.to_thread(site.nodes["b"].process.wait, PATIENCE_S) == 0
