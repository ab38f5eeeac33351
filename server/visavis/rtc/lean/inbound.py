"""The caller's voice from the socket to its blocks, in one go: no queue, no task and no thread between."""

from dataclasses import dataclass
from typing import Any

from aiortc import RTCRtpReceiver
from aiortc.rtcrtpreceiver import StreamStatistics
from aiortc.rtp import RtpPacket

from ...jitter import signed
from ..audio import AudioInput
from .rtp import HEADER, payload_of
from .transport import PacketHandler, Transport

MAX_JUMP_S = 2.0
"""A longer jump of the timestamp begins a new time line. aiortc would take it for jitter, and one that wraps
for 25 hours of it; either takes seconds to decay."""


@dataclass(slots=True)
class _Seen:
    """As much of a packet as reception statistics look at."""

    sequence_number: int = 0
    timestamp: int = 0
    "It does not wrap."


class Reception:
    """Keeps the statistics from which aiortc makes the receiver reports of one receiver."""

    def __init__(self, receiver: RTCRtpReceiver) -> None:
        self._streams: dict[int, StreamStatistics] = vars(receiver)["_RTCRtpReceiver__remote_streams"]
        self._seen = _Seen()

    def count(self, ssrc: int, sequence: int, timestamp: int, clock_rate: int) -> None:
        stream = self._streams.get(ssrc)
        if stream is None:
            stream = self._streams[ssrc] = StreamStatistics(clock_rate)
        last = stream._last_timestamp
        if last is not None:
            ahead = signed(timestamp - last, 32)
            timestamp = last + ahead
            if abs(ahead) > MAX_JUMP_S * clock_rate:
                stream._last_timestamp = timestamp
        self._seen.sequence_number, self._seen.timestamp = sequence, timestamp
        stream.add(self._seen)  # type: ignore[arg-type]  # it looks at these two alone

    @property
    def jitter_ms(self) -> float | None:
        """Of the newest stream's arrival (RFC 3550 section 6.4.1)."""
        if not self._streams:
            return None
        stream = next(reversed(self._streams.values()))
        return stream.jitter * 1000 / stream._clockrate


class AudioStream(PacketHandler):
    """Decrypts, reads the header, keeps the statistics of aiortc's receiver reports, and hands on."""

    def __init__(self, receiver: RTCRtpReceiver, audio: AudioInput) -> None:
        self._receiver = receiver
        self._audio = audio
        self._codecs: dict[int, Any] = vars(receiver)["_RTCRtpReceiver__codecs"]
        self._reception = Reception(receiver)
        self.malformed = 0

    @property
    def jitter_ms(self) -> float | None:
        return self._reception.jitter_ms

    def receive_srtp(self, datagram: bytes, transport: Transport) -> None:
        packet = transport.decrypt(datagram)
        if packet is None:
            return
        payload = payload_of(packet)
        if payload is None:
            self.malformed += 1
            return
        _, kind, sequence, timestamp, ssrc = HEADER.unpack_from(packet)
        self._take(ssrc, kind & 0x7F, sequence, timestamp, payload)

    def receive_packet(self, packet: RtpPacket) -> None:
        self._take(packet.ssrc, packet.payload_type, packet.sequence_number, packet.timestamp, packet.payload)

    def _take(self, ssrc: int, payload_type: int, sequence: int, timestamp: int, payload: bytes) -> None:
        codec = self._codecs.get(payload_type)
        if codec is None or not self._receiver._enabled:
            return
        self._reception.count(ssrc, sequence, timestamp, codec.clockRate)
        self._audio.receive(ssrc, sequence, timestamp, payload)
