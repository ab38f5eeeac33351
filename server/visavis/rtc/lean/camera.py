"""A camera's packets from the socket to the decode thread: what is not needed is not even decrypted."""

import asyncio
from collections.abc import Callable
from typing import Any

from aiortc import RTCDtlsTransport, RTCRtpReceiver
from aiortc.rtp import (
    RTCP_PSFB_APP,
    RTCP_PSFB_PLI,
    RTCP_RTPFB_NACK,
    RtcpPsfbPacket,
    RtcpRtpfbPacket,
    RtcpSrPacket,
    RtpPacket,
    pack_remb_fci,
)

from ...config import CameraConfig
from ...frames import Frame, Source
from ..clock import VIDEO_RATE, MediaClock
from .assemble import Assembler, Picture
from .decode import DecodeThread
from .depacketize import READERS, original_of
from .gate import AUTHENTIC_EVERY, Gate, Policy, Verdict
from .inbound import Reception
from .rtp import HEADER, payload_of
from .transport import PacketHandler, Transport

_RTX = "rtx"
"The name in SDP of what carries retransmissions (RFC 4588)."


class VideoStream(PacketHandler):
    """Takes the packets of one video receiver. Made on a running loop; `close` is due."""

    def __init__(
        self,
        receiver: RTCRtpReceiver,
        config: CameraConfig,
        thread: DecodeThread,
        transport_of: Callable[[RTCDtlsTransport], Transport],
        clock: MediaClock,
        position: Callable[[], int],
        wants: Callable[[int, Source], bool],
        on_frame: Callable[[Frame], None],
        source: Callable[[], Source],
    ) -> None:
        """`position` is that of the voice now (24 kHz); the picture at a position is kept if `wants` it.

        `source` tells what the stream shows.
        """
        self._receiver = receiver
        self._transport_of = transport_of
        self._media_clock = clock
        self._position = position
        self._wants = wants
        self._source = source
        self._state = state = vars(receiver)
        self._codecs: dict[int, Any] = state["_RTCRtpReceiver__codecs"]
        self._names: dict[int, str] = {}
        "Of those codecs: aiortc works them out each time."
        self._reception = Reception(receiver)
        self._originals: dict[int, int] = state["_RTCRtpReceiver__rtx_ssrc"]
        "By the SSRC of retransmissions, that of what they repeat."
        self._loop = asyncio.get_running_loop()
        self._gate = Gate(config)
        self._policy = Policy.ALL
        self._assembler = Assembler()
        self._decoding = thread.stream(config, on_frame, self._on_failure)
        self._accounted = (0, 0.0)
        "What the gate knows of pictures decoded, and of their cost."
        self._ssrc: int | None = None
        self._codec = ""
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        self.wanted = 0
        "Pictures that were to be converted."

    @property
    def decoded(self) -> int:
        return self._decoding.decoded

    @property
    def dropped(self) -> int:
        """Count pictures that nobody had time to decode."""
        return self._decoding.dropped

    def want(self, fps: float) -> None:
        """Let so many pictures a second through; 0 is none, and then the next has to be a key frame."""
        if self._closed:
            return
        was_open = self._gate.is_open
        self._gate.want(fps, self._loop.time())
        if was_open != self._gate.is_open:
            self._assembler.restart()
            self._decoding.clear()
        if self._gate.is_open:
            self._go_on(self._loop.time())

    def receive_srtp(self, datagram: bytes, transport: Transport) -> None:
        _, second, sequence, timestamp, ssrc = HEADER.unpack_from(datagram)
        if self._closed or not self._receiver._enabled:
            return
        now = self._loop.time()
        repeated = ssrc in self._originals
        self._count(ssrc, sequence, timestamp)
        verdict = self._gate.receive(timestamp, now)
        if verdict is Verdict.SKIP and repeated:
            verdict = Verdict.TAKE  # which packet it repeats is encrypted
        if verdict is Verdict.TAKE:
            packet = transport.decrypt(datagram)
            payload = None if packet is None else payload_of(packet)
            if payload is not None:
                self._take(ssrc, second, sequence, timestamp, payload, now)
            return
        if sequence % AUTHENTIC_EVERY == 0:
            transport.decrypt(datagram)
        if verdict is Verdict.SKIP:
            self._assembler.receive(sequence, timestamp, second > 0x7F, None, now)
            self._go_on(now)
        elif not repeated:
            self._ssrc = ssrc  # to wake it by

    def receive_packet(self, packet: RtpPacket) -> None:
        if self._closed or not self._receiver._enabled:
            return
        now = self._loop.time()
        self._count(packet.ssrc, packet.sequence_number, packet.timestamp)
        if self._gate.receive(packet.timestamp, now) is Verdict.TAKE:
            second = packet.marker << 7 | packet.payload_type
            self._take(packet.ssrc, second, packet.sequence_number, packet.timestamp, packet.payload, now)
        else:
            self._ssrc = self._originals.get(packet.ssrc, packet.ssrc)  # to wake it by

    def close(self) -> None:
        """End every timer, and whatever the decode thread has of it. May be called again."""
        self._closed = True
        self._decoding.close()
        if self._timer is not None:
            self._timer.cancel()

    def _count(self, ssrc: int, sequence: int, timestamp: int) -> None:
        """Keep the statistics of receiver reports, of what is dropped too: it was not lost on the way."""
        self._reception.count(ssrc, sequence, timestamp, VIDEO_RATE)

    def _take(
        self, ssrc: int, second: int, sequence: int, timestamp: int, payload: bytes, now: float
    ) -> None:
        codec = self._codec_of(second & 0x7F)
        try:
            if codec == _RTX:
                original = self._originals.get(ssrc)
                if original is None or not payload:
                    return
                codec = self._codec_of(self._codecs[second & 0x7F].parameters.get("apt"))
                ssrc = original
                sequence, payload = original_of(payload)
            read = READERS.get(codec)
            if read is None:
                return
            piece = read(payload) if payload else None
        except ValueError:
            return  # of a malformed packet no use is made: it is as if it were lost
        if (ssrc, codec) != (self._ssrc, self._codec):
            self._ssrc, self._codec = ssrc, codec
            self._assembler.restart()
        if piece is not None and piece.begins:
            self._gate.saw_layer(piece.layer)
            if not self._assembler.needs(piece):
                self._gate.skip(timestamp)
        if self._gate.is_skipped(timestamp):
            piece = None
        self._assembler.receive(sequence, timestamp, second > 0x7F, piece, now)
        self._go_on(now)

    def _codec_of(self, payload_type: int) -> str:
        """Give the codec's name in SDP, empty for one that was not negotiated."""
        name = self._names.get(payload_type)
        if name is None:
            codec = self._codecs.get(payload_type)
            name = self._names[payload_type] = "" if codec is None else codec.name
        return name

    def _go_on(self, now: float) -> None:
        """Do what there is to do after anything that happened."""
        if self._gate.policy is not self._policy:
            self._policy = self._gate.policy
            self._assembler.restrict(keys_only=self._policy is Policy.KEYS, max_layer=self._gate.max_layer)
        while (picture := self._assembler.next_picture()) is not None:
            self._show(picture)
        if self._gate.is_stuck(now) and not self._decoding.is_busy:
            self._assembler.restart()
        if lost := self._assembler.lost_packets(now):
            self._send(RtcpRtpfbPacket(RTCP_RTPFB_NACK, self._own_ssrc, self._ssrc or 0, lost))
        if self._ssrc is not None:
            if self._gate.ask_for_key_frame(self._assembler.needs_key_frame, now):
                self._send(RtcpPsfbPacket(RTCP_PSFB_PLI, self._own_ssrc, self._ssrc))
            if (bitrate := self._gate.max_bitrate(now)) is not None:
                limit = pack_remb_fci(bitrate, [self._ssrc])
                self._send(RtcpPsfbPacket(RTCP_PSFB_APP, self._own_ssrc, 0, limit))
        self._arm()

    def _show(self, picture: Picture) -> None:
        """Have a picture decoded. Whether it is kept has to be known before."""
        decoded, cost_s = self._decoding.decoded, self._decoding.cost_s
        self._gate.decoded(decoded - self._accounted[0], cost_s - self._accounted[1])
        self._accounted = decoded, cost_s
        if picture.key:
            self._gate.saw_key_frame()
        at = self._media_clock.place(picture.timestamp, self._position())
        source = self._source()
        wanted = self._wants(at, source)
        self.wanted += wanted
        if not wanted and self._policy is Policy.KEYS:
            return  # nothing depends on it
        if not self._decoding.submit(self._codec, picture, at if wanted else None, source):
            self._assembler.restart()

    def _on_failure(self) -> None:
        self._assembler.restart()
        self._go_on(self._loop.time())

    @property
    def _own_ssrc(self) -> int:
        """The SSRC by which aiortc's own reports of this stream go out."""
        return self._state["_RTCRtpReceiver__rtcp_ssrc"] or 0

    def _send(self, packet: RtcpPsfbPacket | RtcpRtpfbPacket) -> None:
        self._transport_of(self._receiver.transport).send_rtcp(bytes(packet))

    def _arm(self) -> None:
        due = self._assembler.next_timeout()
        if due is None or self._closed:
            return
        if self._timer is not None:
            if self._timer.when() <= due:
                return  # it will look again when it fires
            self._timer.cancel()
        self._timer = self._loop.call_at(due, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        now = self._loop.time()
        self._assembler.handle_timeout(now)
        self._go_on(now)


def observe_reports(receiver: RTCRtpReceiver, on_report: Callable[[int, int], None]) -> None:
    """Tell of each sender report of a stream which NTP time (64 bits) was which RTP time."""
    handle = receiver._handle_rtcp_packet

    async def observed(packet: Any) -> None:
        if isinstance(packet, RtcpSrPacket):
            on_report(packet.sender_info.ntp_timestamp, packet.sender_info.rtp_timestamp)
        await handle(packet)

    vars(receiver)["_handle_rtcp_packet"] = observed
