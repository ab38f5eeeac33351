"""The caller's voice from datagrams to the receiver, with encryption left out."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiortc import RTCRtpReceiver
from aiortc.rtp import HeaderExtensionsMap, RtpPacket

from visavis.rtc.lean.inbound import AudioStream
from visavis.rtc.lean.transport import Transport

OPUS, CLOCK = 111, 48_000
Received = tuple[int, int, int, bytes]


class Bench:
    def __init__(self) -> None:
        self.receiver: Any = SimpleNamespace(
            _enabled=True,
            _RTCRtpReceiver__codecs={OPUS: SimpleNamespace(clockRate=CLOCK)},
            _RTCRtpReceiver__remote_streams={},
        )
        self.received: list[Received] = []
        audio: Any = SimpleNamespace(receive=lambda *packet: self.received.append(packet))
        self.stream = AudioStream(cast("RTCRtpReceiver", self.receiver), audio)
        self.transport = cast("Transport", SimpleNamespace(decrypt=self._decrypt))
        self.authentic = True

    def _decrypt(self, datagram: bytes) -> bytes | None:
        return datagram if self.authentic else None

    def take(self, packet: RtpPacket) -> None:
        self.stream.receive_srtp(packet.serialize(HeaderExtensionsMap()), self.transport)


def packet(sequence: int = 1, payload: bytes = b"voice", kind: int = OPUS, ssrc: int = 7) -> RtpPacket:
    made = RtpPacket(payload_type=kind, sequence_number=sequence, timestamp=960 * sequence, payload=payload)
    made.ssrc = ssrc
    return made


def test_packets_go_on_whichever_way_they_came() -> None:
    bench = Bench()
    bench.stream.receive_packet(packet(1))
    bench.take(packet(2, b"more"))
    assert bench.received == [(7, 1, 960, b"voice"), (7, 2, 1_920, b"more")]


@pytest.mark.parametrize("jump", [0, 600 * CLOCK, -600 * CLOCK, 2**31])
def test_a_time_that_wraps_or_begins_anew_is_no_jitter(jump: int) -> None:
    bench = Bench()
    for sequence in range(200):
        each = packet(sequence)
        each.timestamp = (-100 * 960 + sequence * 960 + (jump if sequence >= 50 else 0)) & 0xFFFF_FFFF
        bench.take(each)
        assert (bench.stream.jitter_ms or 0) < 1_000  # the packets come at once: 20 ms too early, each


def test_receiver_reports_know_what_came_and_what_did_not() -> None:
    bench = Bench()
    assert bench.stream.jitter_ms is None
    for sequence in (65_534, 65_535, 0, 1, 4):
        bench.take(packet(sequence))
    stream = bench.receiver._RTCRtpReceiver__remote_streams[7]
    assert (stream.packets_received, stream.packets_lost, stream.max_seq) == (5, 2, 4)
    assert stream.cycles == 1 << 16
    assert bench.stream.jitter_ms is not None


def test_each_sender_has_its_own_statistics() -> None:
    bench = Bench()
    bench.take(packet(1, ssrc=7))
    bench.take(packet(9, ssrc=8))
    assert set(bench.receiver._RTCRtpReceiver__remote_streams) == {7, 8}


@pytest.mark.parametrize("kind", [0, 96])
def test_another_payload_type_is_no_voice(kind: int) -> None:
    bench = Bench()
    bench.take(packet(kind=kind))
    assert bench.received == []
    assert not bench.receiver._RTCRtpReceiver__remote_streams


def test_a_muted_receiver_takes_nothing() -> None:
    bench = Bench()
    bench.receiver._enabled = False
    bench.take(packet())
    assert bench.received == []


def test_what_is_not_authentic_or_malformed_is_dropped() -> None:
    bench = Bench()
    bench.stream.receive_srtp(bytes([0x8F, OPUS]) + bytes(10), bench.transport)
    assert (bench.received, bench.stream.malformed) == ([], 1)
    bench.authentic = False
    bench.take(packet())
    assert (bench.received, bench.stream.malformed) == ([], 1)
