"""Whole calls by the ways that media takes: one port, IPv6, a relay."""

import asyncio
import re
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from aiortc import (
    RTCConfiguration,
    RTCIceServer,
    RTCIceTransportPolicy,
    RTCPeerConnection,
    RTCSessionDescription,
)
from aiortc.mediastreams import AudioStreamTrack
from relay import Relay, relaying
from wires import Handler, answered, call, negotiate, picture, until

from visavis.config import RtcConfig
from visavis.rtc import Media
from visavis.rtc.camera import PictureTrack
from visavis.turn import with_credentials

pytestmark = pytest.mark.loopback

HERE = RtcConfig(udp_hosts=("127.0.0.1",))


def candidates(sdp: str) -> list[tuple[str, str, str]]:
    """Give the address, port and type of each candidate of the first section, whose transport all use."""
    found = re.findall(
        r"^a=candidate:\S+ 1 udp \d+ (\S+) (\d+) typ (\S+)", sdp.split("\nm=")[1], re.MULTILINE
    )
    return [(host, port, kind) for host, port, kind in found]


@pytest.mark.ipv6
async def test_a_call_over_ipv6_is_heard_on_both_sides() -> None:
    caller, callee = Handler(hertz=700), Handler(hertz=400)
    async with call(caller, callee, RtcConfig(udp_hosts=("::1",))) as (out, into):
        out.send_message("hello")
        await until(
            lambda: len(caller.audio) >= 75 and len(callee.audio) >= 75, "a second and a half of audio"
        )
        await until(lambda: callee.messages, "a message")
        assert (caller.pitch, callee.pitch) == (400, 700)
        for peer in (out, into):
            (transceiver,) = peer._link.connection.getTransceivers()
            pair = transceiver.receiver.transport.transport._connection._nominated[1]
            assert (pair.local_addr[0], pair.remote_addr[0]) == ("::1", "::1")


async def test_calls_of_a_process_share_one_port_and_leave_nothing_on_it() -> None:
    async with Media(HERE) as media:
        handlers = [(Handler(hertz=300.0 + 20 * i), Handler(hertz=800.0 + 20 * i)) for i in range(6)]
        calls = [(media.caller(caller), media.peer(callee)) for caller, callee in handlers]
        answers = []
        for out, into in calls:
            answers.append(await into.answer(await out.offer()))
            await out.accept(answers[-1])
        ports = {port for answer in answers for _, port, _ in candidates(answer)}
        assert len(ports) == 1
        await until(
            lambda: all(len(ear.audio) >= 60 for both in handlers for ear in both), "audio everywhere"
        )
        for caller, callee in handlers:
            assert caller.pitch == pytest.approx(callee.hertz, abs=2)
            assert callee.pitch == pytest.approx(caller.hertz, abs=2)
        port = media._opened._port  # type: ignore[attr-defined]
        assert port.calls == len(calls)
        for out, into in calls[::2]:
            await out.aclose()
            await into.aclose()
        assert port.calls == len(calls) // 2
        await asyncio.gather(*(peer.aclose() for both in calls for peer in both))
        assert (port.calls, port.addresses) == (0, 0)


async def test_the_answer_has_the_advertised_addresses_and_no_others() -> None:
    config = replace(HERE, advertise=("203.0.113.5", "2001:db8::5"))
    async with Media(config) as media:
        out, into = media.caller(Handler()), media.peer(Handler())
        answer = await into.answer(await out.offer())
        await out.aclose()
        await into.aclose()
    assert [(host, kind) for host, _, kind in candidates(answer)] == [
        ("203.0.113.5", "host"),
        ("2001:db8::5", "host"),
    ]


async def test_the_answer_says_what_a_camera_is_told_and_turns_no_pictures() -> None:
    offer = (Path(__file__).parents[1] / "golden" / "offer_chromium.sdp").read_text()
    assert "urn:3gpp:video-orientation" in offer
    async with Media(HERE) as media:
        peer = media.peer(Handler())
        answer = await peer.answer(offer)
        await peer.aclose()
    assert "video-orientation" not in answer  # so the browser sends upright pictures
    assert "a=end-of-candidates" in answer
    assert re.search(r"m=video \d+ \S+ 96 ", answer)
    assert re.search("a=rtpmap:96 VP8/90000", answer)
    assert set(re.findall(r"a=rtcp-fb:96 (.*)\r", answer)) >= {"nack", "nack pli", "goog-remb"}


async def test_a_screen_is_shared_beside_the_camera_and_taken_away_again() -> None:
    client, callee = RTCPeerConnection(), Handler()
    client.addTrack(AudioStreamTrack())
    client.addTransceiver(PictureTrack(picture, 5), "sendonly")
    client.createDataChannel("oai-events")
    async with answered(client, callee, HERE) as peer:
        await until(lambda: callee.frames, "the camera")
        for _ in range(2):
            screen = client.addTransceiver(PictureTrack(picture, 5), "sendonly")
            await negotiate(client, peer)
            assert peer._offer is not None
            assert peer._offer.screen == screen.mid
            videos = [t for t in peer._link.connection.getTransceivers() if t.kind == "video"]
            await until(lambda: videos[-1].currentDirection == "recvonly", "the screen")  # noqa: B023
            screen.direction = "inactive"
            await negotiate(client, peer)
            assert videos[-1].currentDirection == "inactive"
        shown, heard = len(callee.frames), len(callee.audio)
        await until(
            lambda: len(callee.frames) > shown and len(callee.audio) > heard, "camera and voice as before"
        )
    assert callee.connections == 1


@pytest.fixture
async def relay(tmp_path: Path) -> AsyncIterator[Relay]:
    async with relaying(tmp_path, "127.0.0.1") as relay:
        yield relay


def relayed_client(relay: Relay, transport: str) -> RTCPeerConnection:
    """A caller whose network lets nothing through but the way to the relay."""
    server = with_credentials(relay.ice_server(transport), time.time(), 60.0)
    client = RTCPeerConnection(
        RTCConfiguration(
            iceServers=[RTCIceServer(list(server.urls), server.username, server.credential)],
            iceTransportPolicy=RTCIceTransportPolicy.RELAY,
        )
    )
    client.addTrack(AudioStreamTrack())
    return client


@pytest.mark.coturn
@pytest.mark.parametrize("transport", ["udp", "tcp"])
async def test_a_caller_behind_a_relay_reaches_the_one_port(relay: Relay, transport: str) -> None:
    client, callee = relayed_client(relay, transport), Handler(hertz=400)
    async with answered(client, callee, HERE):
        assert {kind for _, _, kind in candidates(client.localDescription.sdp)} == {"relay"}
        await until(lambda: len(callee.audio) >= 100, "two seconds of audio")
    assert relay.said("ALLOCATE processed, success")


@pytest.mark.coturn
@pytest.mark.parametrize("transport", ["udp", "tcp"])
async def test_a_server_behind_a_relay_is_reached_through_it(relay: Relay, transport: str) -> None:
    """The client's relay lets only the server's relay through, for the server's own address is another."""
    config = RtcConfig(udp_hosts=("127.0.0.2",), ice_servers=(relay.ice_server(transport),))
    client, callee = relayed_client(relay, transport), Handler(hertz=400)
    async with Media(config) as media:
        peer = media.peer(callee)
        await client.setLocalDescription(await client.createOffer())
        answer = await peer.answer(client.localDescription.sdp)
        assert [kind for _, _, kind in candidates(answer)] == ["host", "relay"]
        relayed = re.sub(r"a=candidate:.* typ host\r\n", "", answer)
        await client.setRemoteDescription(RTCSessionDescription(relayed, "answer"))
        await until(lambda: len(callee.audio) >= 100, "two seconds of audio")
        (transceiver,) = peer._link.connection.getTransceivers()
        pair = transceiver.receiver.transport.transport._connection._nominated[1]
        assert pair.local_candidate.type == "relay"
        await client.close()
        await peer.aclose()


@pytest.mark.coturn
async def test_the_relay_that_is_deployed_leads_to_no_private_address_but_those_allowed(
    tmp_path: Path,
) -> None:
    async with relaying(tmp_path, "127.0.0.1") as relay:
        client, callee = relayed_client(relay, "udp"), Handler()
        async with Media(replace(HERE, udp_hosts=("127.0.0.2",))) as media:
            peer = media.peer(callee)
            await negotiate(client, peer)
            await until(lambda: relay.said("CHANNEL_BIND processed, error 403"), "a refusal")
            assert callee.connections == 0
            await client.close()
            await peer.aclose()


@pytest.mark.coturn
async def test_who_does_not_have_the_secret_gets_nothing_relayed(relay: Relay) -> None:
    forged = replace(relay.ice_server("udp"), secret="guessed")
    async with Media(replace(HERE, ice_servers=(forged,))) as media:
        peer = media.peer(Handler())
        client = RTCPeerConnection()
        client.addTrack(AudioStreamTrack())
        await client.setLocalDescription(await client.createOffer())
        answer = await peer.answer(client.localDescription.sdp)
        await client.close()
        await peer.aclose()
    assert [kind for _, _, kind in candidates(answer)] == ["host"]
