import queue
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

from aiortc import RTCRtpReceiver
from aiortc.jitterbuffer import JitterBuffer
from aiortc.rtcrtpreceiver import NackGenerator
from aiortc.rtp import RtpPacket

from visavis.rtc.lean.video import FREEZE_PICTURES, FREEZE_S, KEY_FRAME_S, MAX_UNDECODED, VideoGuard


@dataclass
class Bench:
    """A video receiver that only counts, and a clock."""

    now: float = 100.0
    handled: int = 0
    asked: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.receiver: Any = SimpleNamespace(
            _RTCRtpReceiver__jitter_buffer=JitterBuffer(capacity=512, is_video=True),
            _RTCRtpReceiver__nack_generator=NackGenerator(),
            _RTCRtpReceiver__decoder_queue=queue.Queue(),
            _handle_rtp_packet=self.handle,
            _send_rtcp_pli=self.ask,
        )
        self.guard = VideoGuard(cast("RTCRtpReceiver", self.receiver), lambda: self.now)
        self.buffer = self.buffer_now

    @property
    def buffer_now(self) -> JitterBuffer:
        buffer: JitterBuffer = self.receiver._RTCRtpReceiver__jitter_buffer
        return buffer

    async def handle(self, packet: RtpPacket, arrival_time_ms: int) -> None:
        self.handled += 1

    async def ask(self, media_ssrc: int) -> None:
        self.asked.append(self.now)

    async def packet(self, timestamp: int) -> None:
        await self.receiver._handle_rtp_packet(
            RtpPacket(payload_type=96, sequence_number=self.handled, timestamp=timestamp), arrival_time_ms=0
        )


async def test_packets_that_give_no_picture_make_it_start_anew() -> None:
    bench = Bench()
    for number in range(FREEZE_PICTURES + 1):
        await bench.packet(number)
        bench.now += FREEZE_S / 2
    assert bench.buffer_now is not bench.buffer
    assert len(bench.asked) == 1
    assert bench.handled == FREEZE_PICTURES + 1


async def test_a_slow_camera_is_not_taken_for_a_frozen_one() -> None:
    bench = Bench()
    for number in range(20):
        await bench.packet(number)
        bench.guard.picture_seen()
        await bench.packet(number)
        bench.now += 3 * FREEZE_S
    assert bench.buffer_now is bench.buffer
    assert bench.asked == []


async def test_key_frames_are_asked_for_now_and_then_only() -> None:
    bench = Bench()
    for _ in range(100):
        await bench.receiver._send_rtcp_pli(1)
        bench.now += KEY_FRAME_S / 10
    assert len(bench.asked) == 10


async def test_a_decoder_that_cannot_keep_up_costs_no_memory() -> None:
    bench = Bench()
    waiting = bench.receiver._RTCRtpReceiver__decoder_queue
    for number in range(MAX_UNDECODED + 1):
        waiting.put(number)
    await bench.packet(0)
    assert waiting.empty()
    assert bench.guard.dropped == MAX_UNDECODED + 1
    assert len(bench.asked) == 1
