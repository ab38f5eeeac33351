"""RTP headers by struct: no object for a packet that is only looked at (RFC 3550 section 5.1). Sans-I/O."""

from struct import Struct

HEADER = Struct("!BBHII")
"Version and flags, marker and payload type, sequence number, timestamp, SSRC."

_SHORT = Struct("!H")


def is_srtp(datagram: bytes) -> bool:
    """Tell SRTP from what else comes on the same port (RFC 7983, RFC 5761), whole header and all."""
    return len(datagram) >= HEADER.size and 127 < datagram[0] < 192 and not 192 <= datagram[1] <= 223


def peek_ssrc(datagram: bytes) -> int:
    """Read the SSRC of what `is_srtp`: its header is not encrypted."""
    return int.from_bytes(datagram[8:12], "big")


def payload_of(packet: bytes) -> bytes | None:
    """Cut the payload out of a decrypted packet that `is_srtp` was true of; None if it is malformed.

    Contributing sources, header extensions and padding are passed over.
    """
    flags = packet[0]
    start, end = HEADER.size + 4 * (flags & 0x0F), len(packet)
    if flags & 0x10:
        if start + 4 > end:
            return None
        start += 4 + 4 * _SHORT.unpack_from(packet, start + 2)[0]
    if flags & 0x20:
        padding = packet[-1]
        if not padding:
            return None
        end -= padding
    return packet[start:end] if start <= end else None
