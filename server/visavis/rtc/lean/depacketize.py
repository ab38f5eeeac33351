"""What the payload of a video packet is a piece of: VP8 (RFC 7741) and H264 (RFC 6184). Sans-I/O."""

from collections.abc import Callable
from typing import NamedTuple

_START_CODE = b"\x00\x00\x00\x01"

_SLICE, _IDR, _SPS = 1, 5, 7
_STAP_A, _FU_A = 24, 28


class Piece(NamedTuple):
    """What one packet holds of a picture."""

    data: bytes
    "As the decoder wants it: joined, the pieces of a picture are its packet (H264: Annex B)."
    begins: bool
    "Pictures begin with such a piece (H264 may have a header before it, as for access units)."
    key: bool
    "It begins a picture that can be decoded without any other."
    layer: int = 0
    "Temporal layer (TID): no picture depends on one of a higher layer."
    base: int | None = None
    "Running number modulo 256 of the newest picture of layer 0 (TL0PICIDX)."
    sync: bool = False
    "The picture depends on layer 0 alone (Y)."


def read_vp8(payload: bytes) -> Piece:
    """Take the payload descriptor off. Raises ValueError if it is cut off."""
    try:
        first = payload[0]
        at, layer, base, sync = 1, 0, None, False
        if first & 0x80:
            present = payload[1]
            at = 2
            if present & 0x80:  # picture id
                at += 2 if payload[at] & 0x80 else 1
            if present & 0x40:
                base = payload[at]
                at += 1
            if present & 0x30:
                if present & 0x20:
                    layer, sync = payload[at] >> 6, bool(payload[at] & 0x20)
                at += 1
        begins = first & 0x1F == 0x10  # start of partition 0
        return Piece(payload[at:], begins, begins and not payload[at] & 1, layer, base, sync)
    except IndexError:
        raise ValueError("VP8 payload is cut off") from None


def read_h264(payload: bytes) -> Piece:
    """Turn a single NAL unit, several (STAP-A) or a fragment (FU-A) into Annex B. Raises ValueError."""
    if len(payload) < 2:
        raise ValueError("H264 payload is cut off")
    kind = payload[0] & 0x1F
    if 1 <= kind < _STAP_A:
        return _h264([payload])
    if kind == _FU_A:
        if not payload[1] & 0x80:
            return Piece(payload[2:], begins=False, key=False)
        return _h264([bytes([payload[0] & 0xE0 | payload[1] & 0x1F]) + payload[2:]])
    if kind == _STAP_A:
        return _h264(_aggregated(payload))
    raise ValueError(f"H264 packets of type {kind} were not negotiated")


def original_of(payload: bytes) -> tuple[int, bytes]:
    """Return sequence number and payload of what a retransmission carries (RFC 4588). Raises ValueError."""
    if len(payload) < 2:
        raise ValueError("RTX payload is cut off")
    return int.from_bytes(payload[:2], "big"), payload[2:]


def _h264(units: list[bytes]) -> Piece:
    data = b"".join(_START_CODE + unit for unit in units)
    for unit in units:
        kind = unit[0] & 0x1F
        # A picture's first slice has `first_mb_in_slice` 0, which is coded as a single 1 (H.264, 7.3.3).
        if kind == _SPS or (kind in (_SLICE, _IDR) and unit[1:2] >= b"\x80"):
            return Piece(data, begins=True, key=kind != _SLICE)
    return Piece(data, begins=False, key=False)


def _aggregated(payload: bytes) -> list[bytes]:
    units = []
    at = 1
    while at < len(payload):
        size = int.from_bytes(payload[at : at + 2], "big")
        at += 2
        if not size or at + size > len(payload):
            raise ValueError("H264 aggregation is cut off")
        units.append(payload[at : at + size])
        at += size
    return units


READERS: dict[str, Callable[[bytes], Piece]] = {"VP8": read_vp8, "H264": read_h264}
"By the codec's name in SDP."
