"""Keeps a camera from freezing after a loss, from asking for key frames too often, its queue from growing."""

import contextlib
import queue
from collections.abc import Callable

from aiortc import RTCRtpReceiver
from aiortc.jitterbuffer import JitterBuffer
from aiortc.rtcrtpreceiver import NackGenerator
from aiortc.rtp import RtpPacket

FREEZE_S = 1.0
FREEZE_PICTURES = 3
"""Packets of so many pictures, for so long, and none came out: one packet was lost for good, and aiortc would
wait for it until 512 more have come. (A slow camera alone has no more than two on the way.)"""

KEY_FRAME_S = 0.5
"A key frame is asked for no more often than this; aiortc would for every picture that fails to decode."

MAX_UNDECODED = 60
"Pictures that wait for a decoder which cannot keep up; then they are dropped up to the next key frame."


class VideoGuard:
    """Watches one video receiver."""

    def __init__(self, receiver: RTCRtpReceiver, clock: Callable[[], float]) -> None:
        self._state = state = vars(receiver)
        self._undecoded: queue.Queue[object] = state["_RTCRtpReceiver__decoder_queue"]
        self._clock = clock
        self._waiting_since = 0.0
        "When the first packet came since the last picture."
        self._begun: set[int] = set()
        "Timestamps that came since the last picture."
        self._asked = -KEY_FRAME_S
        self._handle = receiver._handle_rtp_packet
        self._ask = receiver._send_rtcp_pli
        self.dropped = 0
        "Pictures that nobody had time to decode."
        state["_handle_rtp_packet"] = self._on_packet
        state["_send_rtcp_pli"] = self._ask_for_key_frame

    def picture_seen(self) -> None:
        self._begun.clear()

    async def _on_packet(self, packet: RtpPacket, arrival_time_ms: int) -> None:
        now = self._clock()
        if not self._begun:
            self._waiting_since = now
        self._begun.add(packet.timestamp)
        if now - self._waiting_since > FREEZE_S and len(self._begun) >= FREEZE_PICTURES:
            self._begun.clear()
            self._state["_RTCRtpReceiver__jitter_buffer"] = JitterBuffer(capacity=512, is_video=True)
            self._state["_RTCRtpReceiver__nack_generator"] = NackGenerator()
            await self._ask_for_key_frame(packet.ssrc)
        if self._undecoded.qsize() > MAX_UNDECODED:
            with contextlib.suppress(queue.Empty):
                while True:
                    self._undecoded.get_nowait()
                    self.dropped += 1
            await self._ask_for_key_frame(packet.ssrc)
        await self._handle(packet, arrival_time_ms)

    async def _ask_for_key_frame(self, media_ssrc: int) -> None:
        now = self._clock()
        if now - self._asked >= KEY_FRAME_S:
            self._asked = now
            await self._ask(media_ssrc)
