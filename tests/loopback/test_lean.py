"""The lean backend's short ways: that they are taken, that nobody breaks in by them, what they tell."""

import asyncio
import random
import socket
from collections.abc import AsyncIterator, Iterator
from typing import Any

import numpy as np
import pytest
from aiortc import RTCPeerConnection
from aiortc.rtp import HeaderExtensionsMap, RtpPacket
from wires import Handler, Metronome, StockListener, answered, call, is_rtp, lose, until

from visavis.audio import BLOCK, Pcm
from visavis.config import RtcConfig
from visavis.rtc import Media, OutgoingPeer, Peer
from visavis.rtc.lean.leg import LeanLeg
from visavis.rtc.lean.outbound import SPOKEN_SILENCE
from visavis.rtc.lean.transport import MAX_DATAGRAM, MAX_STREAMS, MAX_WAITING, Transport

pytestmark = pytest.mark.loopback


@pytest.fixture(autouse=True)
async def no_callback_fails() -> AsyncIterator[None]:
    """Nothing that arrives raises out of a callback of the loop."""
    failures: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: failures.append(context))
    yield
    assert failures == []


def leg_of(peer: Peer | OutgoingPeer) -> LeanLeg:
    leg = peer._link.leg
    assert isinstance(leg, LeanLeg)
    return leg


def transport_of(peer: Peer | OutgoingPeer) -> Transport:
    return next(transport for transport in leg_of(peer)._transports.values() if transport.is_connected)


def address_of(peer: Peer | OutgoingPeer) -> tuple[str, int]:
    pair = transport_of(peer).ice._nominated[1]
    host, port = pair.protocol.transport.get_extra_info("sockname")[:2]
    return str(host), int(port)


def wiretap(sender: OutgoingPeer) -> list[bytes]:
    """Give what a connected peer sends from now on."""
    sent: list[bytes] = []

    def listen(datagram: bytes) -> bool:
        sent.append(datagram)
        return False

    lose(sender, listen)
    return sent


def inject(peer: Peer, datagram: bytes) -> None:
    """Have a datagram arrive as if it came from the caller."""
    pair = transport_of(peer).ice._nominated[1]
    pair.protocol.datagram_received(datagram, pair.remote_addr)


def hostile(genuine: bytes) -> Iterator[bytes]:
    """Make datagrams that look like something, by a genuine media packet."""
    chance = random.Random(1)
    yield from (b"", b"\x80", b"\x16", b"\0", b"\xff")
    for first in range(256):
        yield bytes([first])
        yield bytes([first]) + chance.randbytes(30)
        yield bytes([first, 200]) + genuine[2:]
    for length in range(len(genuine)):
        yield genuine[:length]
    for position in range(len(genuine)):
        yield genuine[:position] + bytes([genuine[position] ^ 0x55]) + genuine[position + 1 :]
    yield genuine[:2] + bytes(MAX_DATAGRAM)
    yield bytes([128, 200]) + bytes(MAX_DATAGRAM)
    yield bytes([128]) + bytes(60_000)


async def test_hostile_datagrams_and_repeated_ones_change_nothing() -> None:
    caller, callee = Handler(hertz=700), Handler()
    async with call(caller, callee) as (out, into):
        sent = wiretap(out)
        await until(lambda: any(is_rtp(datagram) for datagram in sent), "a packet")
        genuine = next(datagram for datagram in sent if is_rtp(datagram))
        before = into.stats().packets_received
        for datagram in hostile(genuine):
            inject(into, datagram)
            inject(into, datagram)
        taken = into.stats().packets_received
        assert taken - before <= 1  # the genuine one, if it had not come yet
        assert into.stats().undecryptable > 100
        heard = len(callee.audio)
        await until(lambda: len(callee.audio) >= heard + 75, "audio as before")
        assert callee.pitch == 700
        assert into.stats().packets_lost == 0
    assert (caller.reasons, callee.reasons) == ([], [])


async def test_a_stranger_fills_no_memory() -> None:
    callee = Handler()
    async with call(Handler(hertz=400), callee) as (_, into):
        ice = transport_of(into).ice
        for number in range(3 * MAX_WAITING):
            inject(into, bytes([128, 111]) + bytes(6) + number.to_bytes(4, "big") + bytes(40))
        assert ice._queue.qsize() <= MAX_WAITING
        heard = len(callee.audio)
        await until(lambda: len(callee.audio) >= heard + 50, "audio as before")
        host, port = address_of(into)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM) as stranger:
            for number in range(100):
                stranger.sendto(bytes([128 + number % 60]) * (1 + number), (host, port))
        heard = len(callee.audio)
        await until(lambda: len(callee.audio) >= heard + 50, "audio as before")
    assert callee.reasons == []


async def test_a_stream_that_is_known_takes_the_short_way() -> None:
    async with call(Handler(hertz=400), Handler()) as (_, into):
        await until(lambda: into.stats().packets_received > 10, "packets")
        ice = transport_of(into).ice
        queued: list[bytes] = []
        take = ice.data_received
        vars(ice)["data_received"] = lambda data, component: (queued.append(data), take(data, component))
        count = into.stats().packets_received
        await until(lambda: into.stats().packets_received > count + 50, "a second of packets")
        assert not [datagram for datagram in queued if is_rtp(datagram)]


async def test_a_caller_of_ever_new_streams_is_forgotten_but_for_the_last() -> None:
    callee = Handler()
    async with call(Handler(hertz=400), callee) as (out, into):
        await until(lambda: into.stats().packets_received > 10, "packets")
        sent = 0
        while sent < 10 * MAX_STREAMS:
            before = into.stats().packets_received
            for _ in range(MAX_STREAMS):
                sent += 1
                packet = RtpPacket(payload_type=96, sequence_number=1, timestamp=sent, payload=b"\x78")
                packet.ssrc = sent
                transport_of(out).send_rtp(packet.serialize(HeaderExtensionsMap()))
            await until(lambda: into.stats().packets_received > before, "them")  # noqa: B023
        transport = transport_of(into)
        receiver = into._link.connection.getTransceivers()[0].receiver
        assert len(transport._handlers) <= MAX_STREAMS
        assert len(transport._dtls._rtp_router.ssrc_table) <= MAX_STREAMS + 1
        assert len(vars(receiver)["_RTCRtpReceiver__remote_streams"]) <= MAX_STREAMS
        heard = len(callee.audio)
        await until(lambda: len(callee.audio) >= heard + 75, "audio as before")
        assert callee.pitch == 400
    assert callee.reasons == []


async def test_a_voice_that_goes_on_is_not_forgotten_for_newer_streams() -> None:
    """Its sequence number has wrapped: who forgets the stream forgets that, and can decrypt no more of it."""
    callee = Handler()
    async with call(Handler(hertz=400), callee) as (out, into):
        voice = leg_of(out)._voice
        assert voice is not None
        await until(lambda: into.stats().packets_received > 10, "packets")
        voice._sequence = 0x7FFF
        await until(lambda: into.stats().packets_received > 20, "packets half a round later")
        voice._sequence = 0xFFFE
        await until(lambda: into.stats().packets_received > 30, "packets of the next round")
        stale = set(transport_of(into)._handlers)
        for number in range(2 * MAX_STREAMS):
            before = into.stats().packets_received
            packet = RtpPacket(payload_type=96, sequence_number=1, timestamp=number, payload=b"\x78")
            packet.ssrc = 1_000 + number
            transport_of(out).send_rtp(packet.serialize(HeaderExtensionsMap()))
            await until(lambda: into.stats().packets_received > before + 1, "it, and the voice")  # noqa: B023
        assert out._link.connection.getSenders()[0]._ssrc in stale & set(transport_of(into)._handlers)
        heard = len(callee.audio)
        await until(lambda: len(callee.audio) >= heard + 75, "audio as before")
        assert callee.pitch == 400
        assert into.stats().undecryptable == 0
    assert callee.reasons == []


async def test_a_fault_in_a_packets_handling_ends_its_own_call() -> None:
    class Faulty:
        def receive_srtp(self, datagram: bytes, transport: Transport) -> None:
            raise ZeroDivisionError

    callee = Handler()
    async with call(Handler(), callee) as (_, into):
        transport_of(into).learn(77, Faulty())  # type: ignore[arg-type]
        inject(into, bytes([128, 111]) + bytes(6) + (77).to_bytes(4, "big") + bytes(40))
        assert callee.reasons == ["error"]


async def test_silence_is_sent_for_a_fifth_of_a_second_and_then_nothing() -> None:
    class Speaker(Handler):
        speaks = True

        def pull_audio(self) -> Pcm:
            return super().pull_audio() if self.speaks else np.zeros(BLOCK, np.int16)

    speaker, listener = Speaker(hertz=400), Handler()
    async with call(speaker, listener) as (out, _):
        sent = wiretap(out)
        await until(lambda: sum(map(is_rtp, sent)) > 50, "a second of speech")
        speaker.speaks = False
        sent.clear()
        heard = len(listener.audio)
        await until(lambda: len(listener.audio) >= heard + 100, "two seconds of silence")
        assert sum(map(is_rtp, sent)) <= SPOKEN_SILENCE + 3  # and what was on its way
        assert not any(pcm.any() for pcm in listener.audio[-25:])
        speaker.speaks = True
        await until(lambda: listener.audio[-1].any(), "speech again")
        resumed = len(listener.audio)
        await until(lambda: len(listener.audio) >= resumed + 55, "a second of it")
        assert listener.pitch == 400


async def test_stats_tell_of_loss_jitter_and_the_way_there_and_back() -> None:
    caller, callee = Handler(hertz=700), Handler(hertz=400)
    async with call(caller, callee) as (out, into):
        packets: list[bytes] = []

        def drops(datagram: bytes) -> bool:
            if is_rtp(datagram):
                packets.append(datagram)
            return is_rtp(datagram) and len(packets) % 10 == 5

        lose(out, drops)
        await until(lambda: into.stats().packets_lost >= 5, "losses")
        await until(lambda: out.stats().remote_lost, "a report of them")
        await until(lambda: out.stats().rtt_ms is not None, "the way there and back")
        there, here = into.stats(), out.stats()
    assert there.concealed_ms >= 5 * 20
    assert there.jitter_ms is not None
    assert here.rtt_ms is not None
    assert here.rtt_ms < 1_000
    assert here.packets_sent >= there.packets_received
    assert there.bytes_in > 50 * there.packets_received
    assert there.bytes_out > 50 * there.packets_sent > 0


async def test_both_backends_talk_to_each_other_in_one_process() -> None:
    caller, callee = Metronome(), Metronome()
    async with Media(RtcConfig(backend="stock")) as stock, Media(RtcConfig()) as lean:
        assert (stock.backend, lean.backend) == ("stock", "lean")
        out, into = lean.caller(caller), stock.peer(callee)
        await out.accept(await into.answer(await out.offer()))
        await until(lambda: len(caller.heard) >= 6 and len(callee.heard) >= 6, "each other's strikes")
        assert caller.delay_s(callee) < 0.5
        await out.aclose()
        await into.aclose()


async def test_a_caller_of_aiortc_hears_speech_after_a_silence() -> None:
    """Its decoder is told of the silence by a packet without content, which it must not stumble over."""

    class Speaker(Handler):
        def pull_audio(self) -> Pcm:
            block = super().pull_audio()
            return block if self.pulled // 50 % 2 else np.zeros(BLOCK, np.int16)

    client, ear = RTCPeerConnection(), StockListener()
    client.addTransceiver("audio", "recvonly")
    client.on("track", ear.listen)
    async with answered(client, Speaker(hertz=400)):
        await until(lambda: len(ear.ear.heard) >= 3, "speech, three times")
    await ear.aclose()
