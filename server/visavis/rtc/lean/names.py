"""Every private name of aiortc and aioice that is used, in one place; a release that moves one is noticed."""

from collections.abc import Mapping

import aioice.ice
from aiortc import RTCPeerConnection
from aiortc.rtcrtpreceiver import StreamStatistics

NAMES: Mapping[str, tuple[str, ...]] = {
    "RTCIceGatherer": ("_connection",),
    "RTCIceTransport": ("_connection",),
    "aioice.ice": ("get_host_addresses", "server_reflexive_candidate"),
    "Connection": (
        "_local_username",
        "_nominated",
        "_protocols",
        "_query_consent_task",
        "_queue",
        "build_request",
        "close",
        "data_received",
        "get_component_candidates",
        "query_consent",
        "remote_password",
    ),
    "StunProtocol": ("datagram_received", "request"),
    "RTCDtlsTransport": (
        "_RTCDtlsTransport__rx_bytes",
        "_RTCDtlsTransport__rx_packets",
        "_RTCDtlsTransport__tx_bytes",
        "_RTCDtlsTransport__tx_packets",
        "_rtp_router",
        "_rx_srtp",
        "_state",
        "_tx_srtp",
    ),
    "RtpRouter": ("receivers", "ssrc_table"),
    "RTCRtpReceiver": (
        "_RTCRtpReceiver__codecs",
        "_RTCRtpReceiver__remote_streams",
        "_RTCRtpReceiver__rtcp_ssrc",
        "_RTCRtpReceiver__rtx_ssrc",
        "_enabled",
        "_handle_disconnect",
        "_handle_rtcp_packet",
        "_handle_rtp_packet",
    ),
    "StreamStatistics": ("_clockrate", "_last_timestamp"),
    "RTCRtpSender": (
        "_RTCRtpSender__mid",
        "_RTCRtpSender__ntp_timestamp",
        "_RTCRtpSender__octet_count",
        "_RTCRtpSender__packet_count",
        "_RTCRtpSender__rtp_exited",
        "_RTCRtpSender__rtp_header_extensions_map",
        "_RTCRtpSender__rtp_started",
        "_RTCRtpSender__rtp_timestamp",
        "_RTCRtpSender__rtt",
        "_RTCRtpSender__stats",
        "_enabled",
        "_run_rtp",
        "_ssrc",
    ),
    "HeaderExtensionsMap": ("_HeaderExtensionsMap__ids",),
    "RTCSctpTransport": ("_advertised_rwnd",),
}


async def missing_names() -> list[str]:
    """List the names that the installed aiortc and aioice lack, as `Owner.name`."""
    connection = RTCPeerConnection()
    try:
        transceiver = connection.addTransceiver("audio")
        connection.createDataChannel("names")
        dtls = transceiver.receiver.transport
        ice = dtls.transport
        owners: dict[str, object] = {
            "RTCIceGatherer": ice.iceGatherer,
            "RTCIceTransport": ice,
            "aioice.ice": aioice.ice,
            "Connection": getattr(ice, "_connection", None),
            "StunProtocol": aioice.ice.StunProtocol,
            "RTCDtlsTransport": dtls,
            "RtpRouter": getattr(dtls, "_rtp_router", None),
            "RTCRtpReceiver": transceiver.receiver,
            "StreamStatistics": StreamStatistics(48_000),
            "RTCRtpSender": transceiver.sender,
            "HeaderExtensionsMap": getattr(
                transceiver.sender, "_RTCRtpSender__rtp_header_extensions_map", None
            ),
            "RTCSctpTransport": connection.sctp,
        }
        return [
            f"{owner}.{name}"
            for owner, names in NAMES.items()
            for name in names
            if not hasattr(owners[owner], name)
        ]
    finally:
        await connection.close()
