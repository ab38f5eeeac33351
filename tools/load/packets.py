"""RTP packets as libwebrtc would send them, from sound and pictures that are encoded already. Sans-I/O."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

RTP_CLOCK = {"audio": 48_000, "video": 90_000}
SILENT_BLOCKS = 10
"Silence that is sent before discontinuous transmission begins,"
DTX_BLOCKS = 20
"and from then on one packet in so many: every 400 ms, as Opus has it."
MAX_PAYLOAD = 1_200
_NTP_EPOCH = 2_208_988_800
_PLI, _FIR, _PAYLOAD_FEEDBACK = 1, 4, 206


@dataclass(slots=True)
class Sender:
    """One stream: numbers its packets."""

    kind: str
    payload_type: int
    ssrc: int
    sequence: int = 0
    packets: int = 0
    octets: int = 0

    def packet(self, timestamp: int, payload: bytes, *, marker: bool) -> bytes:
        header = struct.pack(
            "!BBHII",
            0x80,
            self.payload_type | (0x80 if marker else 0),
            self.sequence,
            timestamp & 0xFFFFFFFF,
            self.ssrc,
        )
        self.sequence = (self.sequence + 1) & 0xFFFF
        self.packets += 1
        self.octets += len(payload)
        return header + payload

    def report(self, now: float, timestamp: int) -> bytes:
        """Give a sender report (RFC 3550, 6.4.1); `now` in seconds since 1970 of any clock."""
        seconds = now + _NTP_EPOCH
        ntp = int(seconds) << 32 | int(seconds % 1 * 2**32)
        counts = (timestamp & 0xFFFFFFFF, self.packets, self.octets & 0xFFFFFFFF)
        return struct.pack("!BBHIQIII", 0x80, 200, 6, self.ssrc, ntp, *counts)


class Voice:
    """Turns blocks of 20 ms into packets, with silence left out as Opus's DTX does it."""

    def __init__(self, sender: Sender, opus: dict[bytes, bytes], silence: bytes, *, dtx: bool) -> None:
        self.timestamp = 0
        self._sender = sender
        self._opus = opus
        "Encoded blocks."
        self._silence = silence
        self._dtx = dtx
        self._silent = 0

    def next(self, block: bytes | None) -> bytes | None:
        """Give the packet of the next 20 ms; None where none is sent."""
        payload, marker = self._silence, False
        if block is not None:
            payload, marker = self._opus[block], self._silent > SILENT_BLOCKS
            self._silent = 0
        else:
            self._silent += 1
        timestamp = self.timestamp
        self.timestamp += RTP_CLOCK["audio"] // 50
        past = self._silent - SILENT_BLOCKS
        if self._dtx and past > 0 and past % DTX_BLOCKS:
            return None
        return self._sender.packet(timestamp, payload, marker=marker)


def vp8(sender: Sender, picture: bytes, number: int, timestamp: int) -> Iterator[bytes]:
    """Cut an encoded picture into packets (RFC 7741), with its number as libwebrtc does."""
    for at in range(0, len(picture), MAX_PAYLOAD):
        descriptor = struct.pack("!BBH", 0x90 if at == 0 else 0x80, 0x80, 0x8000 | number & 0x7FFF)
        last = at + MAX_PAYLOAD >= len(picture)
        yield sender.packet(timestamp, descriptor + picture[at : at + MAX_PAYLOAD], marker=last)


def asks_for_key_picture(rtcp: bytes) -> bool:
    """Tell whether a compound RTCP packet has a PLI or FIR."""
    at = 0
    while at + 4 <= len(rtcp):
        first, kind, words = struct.unpack_from("!BBH", rtcp, at)
        if kind == _PAYLOAD_FEEDBACK and first & 0x1F in (_PLI, _FIR):
            return True
        at += 4 * (words + 1)
    return False


def sound(rtp: bytes) -> tuple[int, int]:
    """Give timestamp and payload size of an RTP packet, already decrypted."""
    size = len(rtp) - 12 - 4 * (rtp[0] & 0x0F)
    if rtp[0] & 0x10:  # a header extension
        at = 12 + 4 * (rtp[0] & 0x0F)
        size -= 4 + 4 * int.from_bytes(rtp[at + 2 : at + 4], "big")
    return int.from_bytes(rtp[4:8], "big"), size
