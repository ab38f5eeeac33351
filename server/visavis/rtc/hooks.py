"""Every private name of aiortc and aioice that is used, in one place; a release that moves one is told.

The versions are pinned to a minor in pyproject.toml for that reason.
"""

import contextlib
import importlib.metadata
import queue
from collections.abc import Callable
from typing import Any

import aioice.ice
from aiortc import RTCPeerConnection, RTCRtpReceiver
from aiortc.jitterbuffer import JitterBuffer
from aiortc.rtcrtpreceiver import NackGenerator, StreamStatistics
from aiortc.rtp import RtpPacket

CONSENT_INTERVAL_S = 1
"""A caller who is silent and shows nothing is heard of only through consent checks (RFC 7675). At aioice's
five seconds a dead one could not be told from a quiet one within `RtcConfig.dead_peer_s`."""

CONSENT_FAILURES = 20
"As many as make RFC 7675's thirty seconds: who sends media but loses checks is not cut off sooner."

FREEZE_S = 1.0
FREEZE_PICTURES = 3
"""Packets of so many pictures, for so long, and none came out: one packet was lost for good, and aiortc would
wait for it until 512 more have come. (A slow camera alone has no more than two on the way.)"""

KEY_FRAME_S = 0.5
"A key frame is asked for no more often than this; aiortc would for every picture that fails to decode."

MAX_UNDECODED = 60
"Pictures that wait for a decoder which cannot keep up; then they are dropped up to the next key frame."

MAX_OVERRUN = 65_536
"Bytes of unfinished messages beyond the window that the other side was told: what is on its way then."

OnPacket = Callable[[RtpPacket], None]


class UnknownReleaseError(RuntimeError):
    """aiortc or aioice is not the version that this package was made for."""

    def __init__(self, name: str) -> None:
        versions = ", ".join(f"{p} {importlib.metadata.version(p)}" for p in ("aiortc", "aioice"))
        super().__init__(f"{versions} have no {name}: install the versions that visavis asks for")


def prepare() -> None:
    """Set what aioice has as constants of its module. Raises UnknownReleaseError."""
    for name in ("CONSENT_INTERVAL", "CONSENT_FAILURES", "get_host_addresses"):
        if not hasattr(aioice.ice, name):
            raise UnknownReleaseError(f"aioice.ice.{name}")
    aioice.ice.CONSENT_INTERVAL = CONSENT_INTERVAL_S
    aioice.ice.CONSENT_FAILURES = CONSENT_FAILURES
    if aioice.ice.get_host_addresses is not _addresses_or_loopback:
        aioice.ice.get_host_addresses = _addresses_or_loopback


_stock_addresses = aioice.ice.get_host_addresses


def _addresses_or_loopback(use_ipv4: bool, use_ipv6: bool) -> list[str]:
    """Offer loopback when there is nothing else: a machine without any network can still talk to itself."""
    return _stock_addresses(use_ipv4, use_ipv6) or ["127.0.0.1"]


def intercept_rtp(receiver: RTCRtpReceiver, on_packet: OnPacket) -> None:
    """Take every RTP packet of a receiver instead of aiortc's jitter buffer, decoder thread and queue.

    Its reception statistics, and so its RTCP reports, stay right. Raises UnknownReleaseError.
    """
    state = vars(receiver)
    streams: Any = state.get("_RTCRtpReceiver__remote_streams")
    codecs: Any = state.get("_RTCRtpReceiver__codecs")
    if streams is None or codecs is None or not hasattr(receiver, "_enabled"):
        raise UnknownReleaseError("RTCRtpReceiver.__remote_streams, __codecs or _enabled")
    if not hasattr(receiver, "_handle_rtp_packet") or not hasattr(receiver, "_handle_disconnect"):
        raise UnknownReleaseError("RTCRtpReceiver._handle_rtp_packet or _handle_disconnect")
    started = False

    async def handle(packet: RtpPacket, arrival_time_ms: int) -> None:
        nonlocal started
        if not started:  # the decoder thread has nothing to do: it ends here
            started = True
            receiver._handle_disconnect()
        codec = codecs.get(packet.payload_type)
        if codec is None or not receiver._enabled:
            return
        if packet.ssrc not in streams:
            streams[packet.ssrc] = StreamStatistics(codec.clockRate)
        streams[packet.ssrc].add(packet)
        on_packet(packet)

    state["_handle_rtp_packet"] = handle


class VideoGuard:
    """Keeps a video receiver from freezing after a loss, from asking too often, and its queue from growing.

    Raises UnknownReleaseError when it is made.
    """

    def __init__(self, receiver: RTCRtpReceiver, clock: Callable[[], float]) -> None:
        self._state = state = vars(receiver)
        for name in ("_RTCRtpReceiver__jitter_buffer", "_RTCRtpReceiver__nack_generator"):
            if name not in state:
                raise UnknownReleaseError(name)
        self._undecoded: queue.Queue[object] | None = state.get("_RTCRtpReceiver__decoder_queue")
        if self._undecoded is None:
            raise UnknownReleaseError("RTCRtpReceiver.__decoder_queue")
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
        if self._undecoded is not None and self._undecoded.qsize() > MAX_UNDECODED:
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


def observe_datagrams(connection: RTCPeerConnection, on_datagram: Callable[[], None]) -> None:
    """Have `on_datagram` called for whatever arrives: media, RTCP, DTLS or STUN. Raises UnknownReleaseError.

    To be called when candidates have been gathered; calling again adds what is new.
    """
    transports = [transceiver.receiver.transport for transceiver in connection.getTransceivers()]
    if connection.sctp is not None:
        transports.append(connection.sctp.transport)
        if not hasattr(connection.sctp, "_advertised_rwnd"):
            raise UnknownReleaseError("RTCSctpTransport._advertised_rwnd")
    for transport in transports:
        protocols = getattr(getattr(transport.transport, "_connection", None), "_protocols", None)
        if protocols is None:
            raise UnknownReleaseError("RTCIceTransport._connection or Connection._protocols")
        for protocol in protocols:
            state = vars(protocol)
            if "datagram_received" not in state:
                state["datagram_received"] = _observed(protocol.datagram_received, on_datagram)


def is_flooded(connection: RTCPeerConnection) -> bool:
    """Tell whether the other side goes on with messages that do not end although its window is full.

    aiortc would keep all of it, and look through all of it for each packet.
    """
    window: Any = 0 if connection.sctp is None else connection.sctp._advertised_rwnd
    return bool(window < -MAX_OVERRUN)


def _observed(
    datagram_received: Callable[[bytes, tuple[Any, ...]], None], on_datagram: Callable[[], None]
) -> Callable[[bytes, tuple[Any, ...]], None]:
    def observed(data: bytes, addr: tuple[Any, ...]) -> None:
        on_datagram()
        datagram_received(data, addr)

    return observed
