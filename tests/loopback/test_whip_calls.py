"""Calls as WHIP clients make them, and displays as WHEP has them, over real connections."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import pytest
from aiortc import (
    MediaStreamTrack,
    RTCConfiguration,
    RTCIceServer,
    RTCIceTransportPolicy,
    RTCPeerConnection,
    RTCSessionDescription,
)
from aiortc.mediastreams import AudioStreamTrack, MediaStreamError
from kit import Caller, Server, until
from relay import relaying
from test_lost_calls import answered, ask, resumed, said

from visavis.audio import RATE
from visavis.config import Config, RtcConfig, ServerConfig
from visavis.engine.scripted import Reply, ScriptedEngine

pytestmark = [pytest.mark.loopback, pytest.mark.usefixtures("nothing_left")]

SDP = {"Content-Type": "application/sdp"}
FRAGMENT = {"Content-Type": "application/trickle-ice-sdpfrag"}
HERE = RtcConfig(udp_hosts=("127.0.0.1",), connect_s=10.0)
NAMED = Reply(text="Hello Ada.", pcm=None)


class Whip:
    """A stock peer and the resource that it was given."""

    def __init__(self, http: aiohttp.ClientSession, url: str, peer: RTCPeerConnection) -> None:
        self.http = http
        self.url = url
        self.peer = peer
        self.headers: Any = {}
        self.offer = ""

    async def connect(self, *, trickles: bool = False) -> None:
        await self.peer.setLocalDescription(await self.peer.createOffer())
        self.offer = self.peer.localDescription.sdp
        sent = re.sub(r"a=(candidate:.*|end-of-candidates)\r\n", "", self.offer) if trickles else self.offer
        async with self.http.post(self.url, data=sent, headers=SDP) as response:
            assert response.status == 201, await response.text()
            self.headers = response.headers
            await self.peer.setRemoteDescription(RTCSessionDescription(await response.text(), "answer"))

    @property
    def location(self) -> str:
        return str(self.url).split("/v1/")[0] + self.headers["Location"]

    async def patch(self, body: str, tag: str) -> tuple[int, Any]:
        headers = {**FRAGMENT, "If-Match": tag}
        async with self.http.patch(self.location, data=body, headers=headers) as response:
            return response.status, await response.json() if response.status != 204 else None

    async def delete(self) -> int:
        async with self.http.delete(self.location) as response:
            return response.status


@asynccontextmanager
async def whip(http: aiohttp.ClientSession, url: str, direction: str, **options: Any) -> AsyncIterator[Whip]:
    peer = RTCPeerConnection(RTCConfiguration(**options) if options else None)
    peer.addTransceiver(AudioStreamTrack() if direction == "sendonly" else "audio", direction)
    try:
        yield Whip(http, url, peer)
    finally:
        await peer.close()


def calls_url(server: Server) -> str:
    return f"{server.url}/v1/realtime/calls"


async def test_a_caller_who_only_sends_is_heard_and_its_late_candidates_are_taken(serve, http) -> None:
    server = await serve(ScriptedEngine([NAMED]), Config(rtc=HERE))
    async with whip(http, calls_url(server), "sendonly") as caller:
        await caller.connect(trickles=True)
        (session,) = server.sessions
        ice = session._peer._link.connection.getTransceivers()[0].receiver.transport.transport._connection
        assert not ice.remote_candidates
        candidates = re.findall(r"a=candidate:.* typ host", caller.offer)
        ufrag = re.search(r"a=ice-ufrag:.*", caller.offer)[0].strip()
        fragment = [ufrag, "m=audio 9 RTP/AVP 0", "a=mid:0", "a=candidate:1 0 udp 1 [::1] 9 typ host"]
        status, _ = await caller.patch("\r\n".join([*fragment, *candidates, ""]), caller.headers["ETag"])
        assert status == 204
        # As hosts, as they were told: not as what a check from there reveals. Malformed ones are passed over.
        told = {("host", int(candidate.split()[5])) for candidate in candidates}
        assert {(candidate.type, candidate.port) for candidate in ice.remote_candidates} >= told
        await until(lambda: session._peer.stats().packets_received > 50, "a second of sound")
        await until(lambda: caller.peer.connectionState == "connected", "the connection")
        assert await caller.delete() == 200
        assert not server.calls


async def test_who_asks_for_an_ice_restart_makes_a_new_call_that_goes_on(serve, http) -> None:
    engine = ScriptedEngine([NAMED])
    server = await serve(engine)
    async with Caller(server.url, http) as first:
        ask(first, "My name is Ada.")
        await answered(first)
        url = f"{calls_url(server)}/{first.call_id}"
        restart = "a=ice-ufrag:fresh\r\na=ice-pwd:fresh-password-of-a-client\r\n"
        headers = {**FRAGMENT, "If-Match": "*"}
        async with http.patch(url, data=restart, headers=headers) as response:
            assert response.status == 422
            assert (await response.json())["error"]["code"] == "ice_restart"
        ask(first, "Still there?")
        await answered(first, 2)
        async with Caller(server.url, http, token=first.token) as second:
            ask(second, "What is it?")
            await answered(second)
            assert "My name is Ada." in said(engine)
            assert [len(ids) for ids in resumed(second)] == [4]
            await until(lambda: len(server.calls) == 1, "the first call to end")


class Listener:
    """Hears a remote track; decoded by aiortc."""

    def __init__(self, peer: RTCPeerConnection) -> None:
        self.loud = 0.0
        self._tasks: list[asyncio.Task[None]] = []
        peer.on("track", self._on_track)

    def _on_track(self, track: MediaStreamTrack) -> None:
        self._tasks.append(asyncio.create_task(self._hear(track)))

    async def _hear(self, track: MediaStreamTrack) -> None:
        while True:
            try:
                frame: Any = await track.recv()
            except MediaStreamError:
                return
            if np.abs(frame.to_ndarray()).max() > 1_000:
                self.loud += frame.samples / frame.sample_rate

    async def aclose(self) -> None:
        await asyncio.gather(*self._tasks)


def tone(seconds: float) -> Any:
    return (8000 * np.sin(np.arange(round(seconds * RATE)) * 2 * np.pi * 440 / RATE)).astype(np.int16)


async def test_displays_hear_the_answer_and_end_with_the_call(serve, http) -> None:
    engine = ScriptedEngine([Reply(text="It is Paris.", pcm=tone(1.0))])
    server = await serve(engine, Config(rtc=HERE, server=ServerConfig(max_displays=2)))
    async with Caller(server.url, http) as caller:
        url = f"{calls_url(server)}/{caller.call_id}/whep"
        async with whip(http, url, "recvonly") as one, whip(http, url, "recvonly") as two:
            ears = [Listener(display.peer) for display in (one, two)]
            for display in (one, two):
                await display.connect(trickles=display is two)
            for display in (one, two):
                await until(lambda d=display: d.peer.connectionState == "connected", "the connection")
            async with http.post(url, data=one.offer, headers=SDP) as response:
                assert (response.status, (await response.json())["error"]["code"]) == (
                    409,
                    "too_many_displays",
                )
            assert (await one.patch("a=ice-ufrag:other\r\na=ice-pwd:other\r\n", "*"))[0] == 422
            caller.send({"type": "response.create"})
            await until(lambda: min(ear.loud for ear in ears) > 0.8, "the answer at both displays")
            assert max(ear.loud for ear in ears) < 1.2
            assert await one.delete() == 200
            assert len(server.sessions[0]._audience._ears) == 1
            async with http.delete(url.removesuffix("/whep")) as response:
                assert response.status == 200
            await until(lambda: not server.sessions[0]._audience._ears, "the other display to end")
        for ear in ears:
            await ear.aclose()


@pytest.mark.coturn
async def test_a_caller_behind_a_relay_gets_it_from_the_server(serve, http, tmp_path: Path) -> None:
    async with relaying(tmp_path, "127.0.0.1") as relay:
        rtc = replace(HERE, caller_ice_servers=(relay.ice_server("udp"),), turn_s=60.0)
        server = await serve(ScriptedEngine([NAMED]), Config(rtc=rtc))
        async with http.get(f"{server.url}/v1/ice_servers") as response:
            told = (await response.json())["iceServers"]
        relays = {
            "iceServers": [RTCIceServer(**each) for each in told],
            "iceTransportPolicy": RTCIceTransportPolicy.RELAY,
        }
        async with whip(http, calls_url(server), "sendonly", **relays) as caller:
            await caller.connect()
            assert set(re.findall(r"typ (\w+)", caller.offer)) == {"relay"}
            (session,) = server.sessions
            await until(lambda: session._peer.stats().packets_received > 20, "sound")
            link = re.fullmatch(
                r'<(.*)>; rel="ice-server"; username="(.*)"; credential="(.*)"; credential-type="password"',
                caller.headers["Link"],
            )
        assert link is not None
        # The server links to the same relay, in credentials that it takes as well.
        linked = {"iceServers": [RTCIceServer([link[1]], link[2], link[3])]}
        linked["iceTransportPolicy"] = RTCIceTransportPolicy.RELAY
        async with whip(http, calls_url(server), "sendonly", **linked) as caller:
            await caller.connect()
            assert set(re.findall(r"typ (\w+)", caller.offer)) == {"relay"}
        assert relay.said("ALLOCATE processed, success")
