"""The camera's way from SRTP packets to frames: the ciphers and decoders are real, the network is not."""

import asyncio
import struct
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import pylibsrtp
import pytest
from aiortc.rtcrtpparameters import RTCRtpCodecParameters
from aiortc.rtp import RtcpPacket, RtcpPsfbPacket, RtcpRtpfbPacket, RtpPacket, unpack_remb_fci

from films import Codec, Packet, film, layered
from visavis.config import CameraConfig
from visavis.frames import Frame, Source
from visavis.rtc.clock import MediaClock
from visavis.rtc.lean.camera import VideoStream
from visavis.rtc.lean.decode import DecodeThread
from visavis.rtc.lean.gate import AUTHENTIC_EVERY, KEY_FRAME_S

SSRC, RTX_SSRC, OWN_SSRC = 1234, 4321, 99
TYPES: dict[str, int] = {"VP8": 97, "H264": 98, "rtx": 99, "VP9": 100}
KEY = bytes(range(30))


def session(direction: int) -> pylibsrtp.Session:
    policy = pylibsrtp.Policy(key=KEY, ssrc_type=direction)
    policy.allow_repeat_tx = True
    return pylibsrtp.Session(policy)


class Receiver:
    """As much of aiortc's receiver as is looked at."""

    def __init__(self) -> None:
        parameters = {"rtx": {"apt": TYPES["VP8"]}}
        codecs = {
            kind: RTCRtpCodecParameters(
                mimeType=f"video/{name}",
                clockRate=90_000,
                payloadType=kind,
                parameters=parameters.get(name, {}),
            )
            for name, kind in TYPES.items()
        }
        vars(self)["_RTCRtpReceiver__codecs"] = codecs
        vars(self)["_RTCRtpReceiver__remote_streams"] = {}
        vars(self)["_RTCRtpReceiver__rtx_ssrc"] = {RTX_SSRC: SSRC}
        vars(self)["_RTCRtpReceiver__rtcp_ssrc"] = OWN_SSRC
        self._enabled = True
        self.transport = None


@dataclass
class Network:
    """Encrypts what the sender sends, and keeps what the receiver answers."""

    sent: list[Any] = field(default_factory=list)
    decrypted: int = 0

    def __post_init__(self) -> None:
        self._out, self._in = (
            session(pylibsrtp.Policy.SSRC_ANY_OUTBOUND),
            session(pylibsrtp.Policy.SSRC_ANY_INBOUND),
        )

    def protect(self, packet: Packet, kind: int, ssrc: int = SSRC) -> bytes:
        head = struct.pack("!BBHII", 0x80, packet.marker << 7 | kind, packet.sequence, packet.timestamp, ssrc)
        return bytes(self._out.protect(head + packet.payload))

    def decrypt(self, datagram: bytes) -> bytes | None:
        self.decrypted += 1
        return bytes(self._in.unprotect(datagram))

    def send_rtcp(self, packet: bytes) -> None:
        self.sent += RtcpPacket.parse(packet)

    @property
    def plis(self) -> int:
        return sum(isinstance(each, RtcpPsfbPacket) and each.fmt == 1 for each in self.sent)

    @property
    def nacks(self) -> list[int]:
        return [lost for each in self.sent if isinstance(each, RtcpRtpfbPacket) for lost in each.lost]


class Camera:
    """A video stream, its frames, and a sender that one packs films into."""

    def __init__(self, thread: DecodeThread, config: CameraConfig | None = None) -> None:
        self.network = Network()
        self.receiver: Any = Receiver()
        self.frames: list[Frame] = []
        self.asked: list[int] = []
        self.keep = True
        self.source: Source = "camera"
        self.stream = VideoStream(
            self.receiver,
            config or CameraConfig(max_side=160),
            thread,
            lambda dtls: self.network,  # type: ignore[arg-type, return-value]
            MediaClock(lambda timestamp, later_s: None),
            lambda: len(self.asked) * 800,
            self._wants,
            self.frames.append,
            lambda: self.source,
        )

    def _wants(self, at: int, source: Source) -> bool:
        assert source == self.source
        self.asked.append(at)
        return self.keep

    def show(self, packets: Iterable[Packet], codec: str = "VP8", ssrc: int = SSRC) -> None:
        for packet in packets:
            datagram = self.network.protect(packet, TYPES[codec], ssrc)
            self.stream.receive_srtp(datagram, self.network)  # type: ignore[arg-type]


@pytest.fixture
async def thread() -> AsyncIterator[DecodeThread]:
    thread = DecodeThread()
    yield thread
    await asyncio.to_thread(thread.close)


@pytest.fixture
async def camera(thread: DecodeThread) -> AsyncIterator[Camera]:
    camera = Camera(thread)
    yield camera
    camera.stream.close()
    camera.stream.close()


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - conditions here are of many kinds
            await asyncio.sleep(0.001)


def of(packets: Iterable[Packet], *pictures: int) -> list[Packet]:
    return [packet for packet in packets if packet.picture in pictures]


@pytest.mark.parametrize("codec", ["VP8", "H264"])
async def test_packets_become_frames_at_the_time_of_their_pictures(camera: Camera, codec: Codec) -> None:
    camera.show(film(codec), codec)
    await until(lambda: len(camera.frames) == 12)
    assert [frame.at for frame in camera.frames] == [number * 800 for number in range(12)]
    assert (camera.stream.wanted, camera.stream.decoded, camera.stream.dropped) == (12, 12, 0)
    assert camera.network.plis == 0


async def test_the_first_packets_may_come_aiortcs_way(camera: Camera) -> None:
    first, *rest = film("VP8")
    packet = RtpPacket(TYPES["VP8"], first.marker, first.sequence, first.timestamp, SSRC, first.payload)
    camera.stream.receive_packet(packet)
    camera.show(rest)
    await until(lambda: len(camera.frames) == 12)


async def test_only_wanted_pictures_are_converted(camera: Camera) -> None:
    camera.keep = False
    camera.show(film("VP8"))
    await until(lambda: camera.stream.decoded == 12)
    assert camera.frames == []
    assert camera.stream.wanted == 0


async def test_while_nothing_is_wanted_hardly_anything_is_decrypted(
    camera: Camera,
) -> None:
    packets = film("VP8", 12, (0, 6), sequence=0)
    camera.stream.want(0)
    camera.show(packets)
    camera.stream.want(0)
    assert camera.network.decrypted <= 1 + len(packets) // AUTHENTIC_EVERY
    assert camera.network.sent == []
    assert camera.asked == []
    (statistics,) = vars(camera.receiver)["_RTCRtpReceiver__remote_streams"].values()
    assert (statistics.packets_received, statistics.packets_lost) == (len(packets), 0)


async def test_when_pictures_are_wanted_again_a_key_frame_is_asked_for_at_once(
    camera: Camera,
) -> None:
    packets = film("VP8", 12, (0, 6))
    camera.show(of(packets, 0, 1))
    await until(lambda: camera.stream.decoded == 2)
    camera.stream.want(0)
    camera.show(of(packets, 2, 3))
    camera.stream.want(2)
    assert camera.network.plis == 1
    camera.show(of(packets, 4, 5, 6))
    await until(lambda: camera.stream.decoded == 3)
    assert len(camera.asked) == 3
    assert camera.network.plis == 1


async def test_a_camera_that_was_closed_from_the_beginning_can_be_woken(camera: Camera) -> None:
    packets = film("VP8", 12, (0, 6), sequence=0)
    camera.stream.want(0)
    camera.show(of(packets, 0))
    camera.stream.want(2)
    assert camera.network.plis == 1
    camera.show(of(packets, 5, 6))
    await until(lambda: camera.stream.decoded == 1)


async def test_the_rollover_counter_is_kept_while_the_gate_is_closed(camera: Camera) -> None:
    """More than half a round of sequence numbers passes: who decrypted none of them could not go on."""
    camera.stream.want(0)
    picture = film("VP8")[:11]
    camera.show(Packet(at & 0xFFFF, 0, False, b"\x00rest", 0) for at in range(65_530 + 66_000))
    assert camera.network.decrypted < 2_000
    camera.stream.want(2)
    camera.show(
        Packet(65_530 + 66_000 + at & 0xFFFF, 9, p.marker, p.payload, 0) for at, p in enumerate(picture)
    )
    await until(lambda: camera.frames)


async def test_a_lost_packet_is_asked_for_and_taken_from_a_retransmission(camera: Camera) -> None:
    packets = film("VP8")
    (lost,) = of(packets, 1)
    camera.show(packet for packet in packets if packet != lost)
    await until(lambda: camera.network.nacks)
    assert camera.network.nacks[0] == lost.sequence
    repeated = Packet(7, lost.timestamp, True, struct.pack("!H", lost.sequence) + lost.payload, 1)
    camera.show([Packet(6, lost.timestamp, False, b"", 1), repeated], "rtx", RTX_SSRC)
    await until(lambda: len(camera.frames) == 12)
    assert camera.network.plis == 0


async def test_a_packet_that_never_comes_leads_to_a_key_frame(camera: Camera) -> None:
    packets = film("VP8", 12, (0, 6))
    camera.show(of(packets, 0, 2, 3))
    await until(lambda: camera.network.plis)
    camera.show(of(packets, 6, 7))
    await until(lambda: len(camera.frames) == 3)


async def test_what_cannot_be_decoded_leads_to_a_key_frame(camera: Camera) -> None:
    packets = film("VP8", 12, (0, 6))
    camera.show(of(packets, 0))
    broken = of(packets, 1)[0]
    camera.show([Packet(broken.sequence, broken.timestamp, True, broken.payload[:4] + b"\x10\x00", 1)])
    await until(lambda: camera.network.plis)
    camera.show(of(packets, 2, 3, 6, 7))
    await until(lambda: camera.stream.decoded == 3)
    assert camera.network.plis == 1


async def test_a_decoder_that_cannot_keep_up_is_helped_by_a_key_frame(
    camera: Camera, thread: DecodeThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thread, "enqueue", lambda stream: None)
    camera.show(film("VP8", 60))
    assert camera.stream.dropped == 31
    await until(lambda: camera.network.plis)


async def test_the_sender_is_told_its_greatest_bit_rate(camera: Camera) -> None:
    camera.show(film("VP8"))
    (limit,) = (each for each in camera.network.sent if each.fmt == 15)
    assert unpack_remb_fci(limit.fci) == (CameraConfig().max_bitrate // 8 * 8, [SSRC])
    assert limit.ssrc == OWN_SSRC


async def test_another_source_or_codec_begins_anew(camera: Camera) -> None:
    camera.show(of(film("VP8"), 0, 1))
    camera.show(of(film("H264", sequence=200), 0, 1), "H264")
    camera.show(of(film("VP8"), 0, 1), ssrc=SSRC + 1)
    await until(lambda: len(camera.frames) == 6)


async def test_another_source_whose_numbers_are_a_little_behind_is_not_taken_for_late(camera: Camera) -> None:
    """Of a new stream the first packet comes aiortc's way, which tells whose it is."""
    camera.show(film("VP8", 4))
    await until(lambda: camera.stream.decoded == 4)
    first, *rest = film("VP8", 4, sequence=65_000)
    packet = RtpPacket(TYPES["VP8"], first.marker, first.sequence, first.timestamp, 77, first.payload)
    camera.stream.receive_packet(packet)
    camera.show(rest, ssrc=77)
    await until(lambda: camera.stream.decoded == 8)
    assert camera.network.plis == 0


async def test_what_a_stream_shows_may_change(camera: Camera) -> None:
    camera.show(of(film("VP8"), 0))
    camera.source = "screen"
    camera.show(of(film("VP8"), 1))
    await until(lambda: len(camera.frames) == 2)
    assert [frame.source for frame in camera.frames] == ["camera", "screen"]


async def test_malformed_and_unknown_packets_are_passed_over(camera: Camera) -> None:
    odd = [
        ("VP8", SSRC, b"\x90"),
        ("VP9", SSRC, b"\x90xx"),
        ("rtx", SSRC, b"\x00\x01xx"),
        ("rtx", RTX_SSRC, b""),
        ("rtx", RTX_SSRC, b"\x00"),
    ]
    for at, (codec, ssrc, payload) in enumerate(odd):
        camera.show([Packet(at, 5, False, payload, 0)], codec, ssrc)
    camera.show([Packet(9, 5, False, b"xx", 0)], "VP8")
    camera.stream.receive_packet(RtpPacket(17, 0, 10, 5, SSRC, b"xx"))
    camera.receiver._enabled = False
    camera.show(film("VP8", sequence=50))
    first = film("VP8", sequence=90)[0]
    camera.stream.receive_packet(RtpPacket(TYPES["VP8"], 0, first.sequence, 5, SSRC, first.payload))
    assert camera.asked == []
    camera.receiver._enabled = True
    camera.show(film("VP8", sequence=100))
    await until(lambda: len(camera.frames) == 12)


async def test_a_fast_sender_of_large_pictures_has_only_key_frames_taken(thread: DecodeThread) -> None:
    """Decoding is made to look expensive, and time to pass, by the film's own times."""
    camera = Camera(thread, CameraConfig(max_side=160, max_decode_load=0.0))
    loop = asyncio.get_running_loop()
    camera.stream._loop = clock = Clock(loop)  # type: ignore[assignment]
    packets = film("VP8", 60, (0, 20, 40), sequence=0)
    sequence = 0
    for round_ in range(4):  # eight seconds
        for packet in packets:
            clock.now = round_ * 2.0 + packet.picture / 30
            timestamp = packet.timestamp + round_ * 180_000 & 0xFFFF_FFFF
            camera.show([Packet(sequence & 0xFFFF, timestamp, packet.marker, packet.payload, packet.picture)])
            sequence += 1
        await until(lambda: not camera.stream._decoding.is_busy)
    assert camera.network.plis >= 2
    assert camera.network.plis <= 8 / KEY_FRAME_S
    assert camera.network.decrypted < sequence
    asked = len(camera.asked)
    assert asked < 4 * 60
    await until(lambda: camera.stream.decoded + camera.stream.dropped == asked)  # none is in hand
    camera.keep = False
    decoded = camera.stream.decoded
    for packet in packets:
        clock.now = 8.0 + packet.picture / 30
        camera.show(
            [
                Packet(
                    sequence & 0xFFFF,
                    packet.timestamp + 720_000 & 0xFFFF_FFFF,
                    packet.marker,
                    packet.payload,
                    0,
                )
            ]
        )
        sequence += 1
    assert len(camera.asked) - asked == 3
    assert camera.stream.decoded == decoded
    camera.stream.close()


async def test_higher_layers_of_a_fast_sender_are_left_out(thread: DecodeThread) -> None:
    camera = Camera(thread, CameraConfig(max_side=160, max_decode_load=0.0))
    camera.stream._loop = clock = Clock(asyncio.get_running_loop())  # type: ignore[assignment]
    packets = layered(film("VP8", 180, sequence=0), (0, 2, 1, 2), (1, 2))
    for packet in packets:
        clock.now = packet.picture / 30
        camera.show([packet])
        if packet.marker:
            await until(lambda: not camera.stream._decoding.is_busy)
    assert 180 * 0.5 < len(camera.asked) < 180 * 0.85
    assert camera.network.plis == 0
    camera.stream.close()


class Clock:
    """The loop, at a time of the test's own."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.now = 0.0

    def time(self) -> float:
        return self.now

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)


async def test_after_the_end_nothing_is_taken(camera: Camera) -> None:
    camera.show(of(film("VP8"), 0, 2))
    camera.stream.close()
    camera.show(of(film("VP8"), 3))
    camera.stream.want(1)
    first = film("VP8")[0]
    camera.stream.receive_packet(RtpPacket(TYPES["VP8"], 0, first.sequence, 5, SSRC, first.payload))
    assert camera.stream._timer is not None
    assert camera.stream._timer.cancelled()
