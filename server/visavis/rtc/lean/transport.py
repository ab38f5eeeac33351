"""Datagrams of one DTLS transport: media goes straight from the socket to its handler, and straight out."""

import contextlib
import logging
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Protocol

import aioice
import pylibsrtp
from aioice.ice import StunProtocol
from aiortc import RTCDtlsTransport, RTCRtpReceiver
from aiortc.rtcdtlstransport import State
from aiortc.rtp import RtpPacket

from .rtp import is_srtp, peek_ssrc

logger = logging.getLogger(__name__)

MAX_DATAGRAM = 1_500
"What libsrtp's buffer holds. aiortc would end the call for a longer one, whoever sent it."

MAX_WAITING = 512
"Datagrams that wait for aiortc: DTLS, RTCP and the first of a stream. More are dropped, as by a full socket."

MAX_STREAMS = 24
"""SSRCs that are told apart; a caller has six at most, and others when a screen is shown anew. Whichever was
heard longest ago goes for a new one: each costs memory, and a receiver report has no room for more than 31.
With it goes how often its numbers have wrapped, without which nothing more of it can be decrypted."""

_LAST_OF_STUN = 3
"The first byte of whatever is no STUN message is above it (RFC 7983)."


class PacketHandler(Protocol):
    """Takes the media packets of one receiver."""

    def receive_srtp(self, datagram: bytes, transport: "Transport") -> None:
        """Take a packet as it came. `transport.decrypt` gives what it holds, and must be asked in order."""
        ...

    def receive_packet(self, packet: RtpPacket) -> None:
        """Take one of the first packets of a stream, which came aiortc's way and is decrypted."""
        ...


class Transport:
    """The way in and out of one DTLS transport's media."""

    def __init__(
        self, dtls: RTCDtlsTransport, on_datagram: Callable[[], None], on_fault: Callable[[], None]
    ) -> None:
        """`on_datagram` is told of whatever arrives, `on_fault` of a handler that raised."""
        self._dtls = dtls
        self._state = vars(dtls)
        self._on_datagram = on_datagram
        self._on_fault = on_fault
        self._handlers: OrderedDict[int, PacketHandler] = OrderedDict()
        "By SSRC; what was heard last is at the end."
        self._hooked: set[StunProtocol] = set()
        self.undecryptable = 0
        "Media packets that were not authentic, or repeated."

    @property
    def ice(self) -> aioice.Connection:
        return self._dtls.transport._connection

    @property
    def is_connected(self) -> bool:
        return self._dtls._state is State.CONNECTED

    def hook(self) -> None:
        """Take what the sockets that there are now receive."""
        for protocol in self.ice._protocols:
            if protocol not in self._hooked:
                self._hooked.add(protocol)
                vars(protocol)["datagram_received"] = self._receiver(protocol)

    def learn(self, ssrc: int, handler: PacketHandler) -> None:
        """Hand the packets of a stream to `handler` from now on."""
        self._handlers[ssrc] = handler
        self._handlers.move_to_end(ssrc)
        if len(self._handlers) > MAX_STREAMS:
            self._forget(next(iter(self._handlers)))

    def decrypt(self, datagram: bytes) -> bytes | None:
        """Give the RTP packet of an SRTP one, None if it is not authentic."""
        try:
            packet: bytes = self._dtls._rx_srtp.unprotect(datagram)
        except (pylibsrtp.Error, ValueError):
            self.undecryptable += 1
            return None
        return packet

    def send_rtp(self, packet: bytes) -> None:
        """Encrypt and send a packet, if there is a connection."""
        if self.is_connected:
            self._send(self._dtls._tx_srtp.protect(packet))

    def send_rtcp(self, packet: bytes) -> None:
        """Encrypt and send a compound packet, if there is a connection."""
        if self.is_connected:
            self._send(self._dtls._tx_srtp.protect_rtcp(packet))

    def _forget(self, ssrc: int) -> None:
        del self._handlers[ssrc]
        router = self._dtls._rtp_router
        router.ssrc_table.pop(ssrc, None)
        for receiver in router.receivers:
            vars(receiver)["_RTCRtpReceiver__remote_streams"].pop(ssrc, None)
        with contextlib.suppress(pylibsrtp.Error):
            self._dtls._rx_srtp.remove_stream(ssrc)

    def _send(self, datagram: bytes) -> None:
        pair = self.ice._nominated.get(1)
        if pair is None:
            return
        pair.protocol.transport.sendto(datagram, pair.remote_addr)
        self._state["_RTCDtlsTransport__tx_bytes"] += len(datagram)
        self._state["_RTCDtlsTransport__tx_packets"] += 1

    def _receiver(self, protocol: StunProtocol) -> Callable[[bytes, tuple[Any, ...]], None]:
        ice, state, handlers = self.ice, self._state, self._handlers
        take_stun = protocol.datagram_received

        def datagram_received(data: bytes, addr: tuple[Any, ...]) -> None:
            self._on_datagram()
            if is_srtp(data) and (handler := handlers.get(ssrc := peek_ssrc(data))) is not None:
                handlers.move_to_end(ssrc)
                state["_RTCDtlsTransport__rx_bytes"] += len(data)
                state["_RTCDtlsTransport__rx_packets"] += 1
                try:
                    handler.receive_srtp(data, self)
                except Exception:
                    logger.exception("a call ends: a packet could not be handled")
                    self._on_fault()
            elif not data or len(data) > MAX_DATAGRAM:
                logger.debug("a datagram of %d bytes was dropped", len(data))
            elif data[0] > _LAST_OF_STUN:
                if ice._queue.qsize() < MAX_WAITING:
                    ice.data_received(data, protocol.local_candidate.component)
            else:
                try:
                    take_stun(data, addr)
                except Exception as error:  # aioice raises whatever a malformed message makes it trip over
                    logger.debug("a malformed STUN message was dropped: %r", error)

        return datagram_received


def take_packets(
    receiver: RTCRtpReceiver,
    handler: PacketHandler,
    transport_of: Callable[[RTCDtlsTransport], Transport],
) -> None:
    """Hand a receiver's packets to `handler` in place of aiortc's jitter buffer, decoder thread and queue.

    The first packets of a stream go aiortc's way, which tells whose they are by MID or payload type.
    """
    receive = receiver.receive

    async def receive_without_decoder(parameters: Any) -> None:
        await receive(parameters)
        receiver._handle_disconnect()  # ends the decoder thread, which would have nothing to do
        transport = transport_of(receiver.transport)
        for encoding in parameters.encodings:  # whoever had them learned before: of two cameras, the first
            transport.learn(encoding.ssrc, handler)
            if encoding.rtx:
                transport.learn(encoding.rtx.ssrc, handler)

    async def handle(packet: RtpPacket, arrival_time_ms: int) -> None:
        transport_of(receiver.transport).learn(packet.ssrc, handler)
        handler.receive_packet(packet)

    state = vars(receiver)
    state["receive"] = receive_without_decoder
    state["_handle_rtp_packet"] = handle
