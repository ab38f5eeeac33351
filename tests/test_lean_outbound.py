"""Our voice as packets: what a receiver reads of them, and what is not sent."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from aiortc.rtp import HeaderExtensions, HeaderExtensionsMap, RtpPacket

from visavis.audio import BLOCK, RATE, Pcm
from visavis.codecs import OpusDecoder, opus_duration
from visavis.config import RtcConfig
from visavis.rtc.lean.beat import Beat
from visavis.rtc.lean.outbound import BLOCK_TICKS, QUIETEST, SPOKEN_SILENCE, Voice, below_overload

SILENCE: Pcm = np.zeros(BLOCK, np.int16)


def tone(amplitude: float = 8_000.0) -> Pcm:
    return np.rint(amplitude * np.sin(2 * np.pi * 500 * np.arange(BLOCK) / RATE)).astype(np.int16)


class Wire:
    """In place of the transport, and of the beat, which a test moves itself."""

    def __init__(self) -> None:
        self.packets: list[bytes] = []

    def send_rtp(self, packet: bytes) -> None:
        self.packets.append(packet)

    def join(self, tick: Any, failed: Any) -> Any:
        self.tick = tick
        return lambda: None


class Bench:
    """A voice whose sender has been started."""

    def __init__(self, mid: str | None = "0", ids: dict[str, int] | None = None) -> None:
        self.extensions = HeaderExtensionsMap()
        known = vars(self.extensions)["_HeaderExtensionsMap__ids"]
        for name, number in (ids or {}).items():
            setattr(known, name, number)
        self.sender: Any = SimpleNamespace(
            _ssrc=4_321,
            _enabled=True,
            transport=None,
            _RTCRtpSender__mid=mid,
            _RTCRtpSender__rtp_header_extensions_map=self.extensions,
            _RTCRtpSender__rtp_started=asyncio.Event(),
            _RTCRtpSender__rtp_exited=asyncio.Event(),
            _RTCRtpSender__ntp_timestamp=0,
            _RTCRtpSender__rtp_timestamp=0,
            _RTCRtpSender__packet_count=0,
            _RTCRtpSender__octet_count=0,
        )
        self.pulled = 0
        self.says = SILENCE
        self.wire = Wire()
        self.voice = Voice(RtcConfig(), self.sender, self._pull, lambda dtls: cast("Any", self.wire))
        self.voice.start(cast("Beat", self.wire), lambda: None)
        self.running: asyncio.Task[None] | None = None

    async def start(self) -> None:
        codec = SimpleNamespace(payloadType=111, name="opus")
        self.running = asyncio.create_task(self.voice.run(codec))
        await self.sender._RTCRtpSender__rtp_started.wait()

    async def stop(self) -> None:
        assert self.running is not None
        self.running.cancel()
        await self.sender._RTCRtpSender__rtp_exited.wait()
        await asyncio.gather(self.running, return_exceptions=True)

    def say(self, *blocks: Pcm, beats: int = 1) -> list[RtpPacket]:
        """Let the beat go on for each block; give what was sent meanwhile."""
        before = len(self.wire.packets)
        for block in blocks:
            self.says = block
            self.wire.tick(beats)
        return [RtpPacket.parse(packet, self.extensions) for packet in self.wire.packets[before:]]

    def _pull(self) -> Pcm:
        self.pulled += 1
        return self.says


async def test_packets_follow_each_other_and_tell_mid_and_level() -> None:
    bench = Bench("audio", {"mid": 1, "audio_level": 2})
    await bench.start()
    decoder = OpusDecoder()
    packets = bench.say(*[tone()] * 6)
    assert [packet.sequence_number for packet in packets] == [
        (packets[0].sequence_number + n) & 0xFFFF for n in range(6)
    ]
    assert [(packet.timestamp - packets[0].timestamp) & 0xFFFF_FFFF for packet in packets] == [
        n * BLOCK_TICKS for n in range(6)
    ]
    assert [packet.marker for packet in packets] == [1, 0, 0, 0, 0, 0]
    assert {(packet.ssrc, packet.payload_type) for packet in packets} == {(4_321, 111)}
    assert {packet.extensions.mid for packet in packets} == {"audio"}
    assert {packet.extensions.audio_level for packet in packets} == {(False, 15)}
    heard = [decoder.decode(packet.payload) for packet in packets][-1]
    assert int(np.argmax(np.abs(np.fft.rfft(heard.astype(float))))) == 10
    await bench.stop()


@pytest.mark.parametrize(
    ("mid", "ids", "told"),
    [
        ("0", {}, (None, None)),
        ("0", {"mid": 4}, ("0", None)),
        ("0", {"audio_level": 14}, (None, (False, 15))),
        (None, {"mid": 4}, (None, None)),
        ("0", {"mid": 15, "audio_level": 20}, (None, None)),  # 15 is reserved, more does not fit
        ("m" * 16, {"mid": 1}, ("m" * 16, None)),
        ("m" * 17, {"mid": 1}, (None, None)),
    ],
)
async def test_what_was_not_negotiated_or_does_not_fit_is_left_out(
    mid: str | None, ids: dict[str, int], told: tuple[Any, Any]
) -> None:
    bench = Bench(mid, ids)
    await bench.start()
    [packet] = bench.say(tone())
    assert isinstance(packet.extensions, HeaderExtensions)
    assert (packet.extensions.mid, packet.extensions.audio_level) == told
    assert opus_duration(packet.payload) == BLOCK_TICKS
    await bench.stop()


async def test_after_a_fifth_of_a_second_silence_is_announced_and_nothing_sent() -> None:
    bench = Bench()
    await bench.start()
    first, *_ = bench.say(tone())
    *spoken, announced = bench.say(*[SILENCE] * 100)
    assert len(spoken) == SPOKEN_SILENCE
    assert all(opus_duration(packet.payload) == BLOCK_TICKS for packet in spoken)
    assert len(announced.payload) == 1
    assert opus_duration(announced.payload) == BLOCK_TICKS
    again, following = bench.say(tone(), tone())
    assert again.sequence_number == (announced.sequence_number + 1) & 0xFFFF
    assert (again.timestamp - first.timestamp) & 0xFFFF_FFFF == 101 * BLOCK_TICKS
    assert (again.marker, following.marker) == (1, 0)
    await bench.stop()


async def test_a_voice_that_is_not_sent_is_pulled_all_the_same() -> None:
    bench = Bench()
    assert bench.say(tone()) == []
    await bench.start()
    assert len(bench.say(tone())) == 1
    bench.sender._enabled = False
    assert bench.say(tone(), tone()) == []
    bench.sender._enabled = True
    [packet] = bench.say(tone())
    assert packet.marker == 1
    await bench.stop()
    assert bench.say(tone()) == []
    assert bench.pulled == 6


async def test_missed_beats_are_a_gap_in_time_and_counted() -> None:
    bench = Bench()
    await bench.start()
    [before], [after] = bench.say(tone()), bench.say(tone(), beats=15)
    assert (after.timestamp - before.timestamp) & 0xFFFF_FFFF == 15 * BLOCK_TICKS
    assert (after.sequence_number - before.sequence_number) & 0xFFFF == 1
    assert bench.voice.skipped == 14
    await bench.stop()


async def test_sender_reports_have_the_count_and_the_time_even_in_silence() -> None:
    bench = Bench()
    await bench.start()
    sent = bench.say(*[tone()] * 3)
    assert bench.sender._RTCRtpSender__packet_count == 3
    assert bench.sender._RTCRtpSender__octet_count == sum(len(packet.payload) for packet in sent)
    assert bench.sender._RTCRtpSender__rtp_timestamp == sent[-1].timestamp
    before = bench.sender._RTCRtpSender__ntp_timestamp
    bench.say(*[SILENCE] * 50)
    assert bench.sender._RTCRtpSender__ntp_timestamp > before > 3_900_000_000 << 32
    assert (bench.sender._RTCRtpSender__rtp_timestamp - sent[-1].timestamp) & 0xFFFF_FFFF == 50 * BLOCK_TICKS
    await bench.stop()


def test_levels_are_below_the_loudest_possible_block() -> None:
    square = np.where(np.arange(BLOCK) % 2, 32_767, -32_768).astype(np.int16)
    assert below_overload(square) == 0
    assert below_overload(tone(32_767)) == 3
    assert below_overload(tone(328)) == 43
    faint = SILENCE.copy()
    faint[0] = 1
    assert below_overload(faint) == 117
    assert below_overload(SILENCE) == QUIETEST
