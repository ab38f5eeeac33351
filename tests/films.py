"""For tests of video: short films as RTP packets, made by aiortc's encoders."""

import fractions
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

import av
import numpy as np
from aiortc.codecs import get_encoder
from aiortc.rtcrtpparameters import RTCRtpCodecParameters

Codec = Literal["VP8", "H264"]

TICKS = 3_000
"Of RTP time from picture to picture: 30 a second."


@dataclass(frozen=True)
class Packet:
    sequence: int
    timestamp: int
    marker: bool
    payload: bytes
    picture: int
    "Its number in the film."


def picture(number: int, width: int = 320, height: int = 240) -> av.VideoFrame:
    """A wall of coloured squares that moves, with some noise, so that pictures take several packets."""
    rng = np.random.default_rng(number)
    wall = np.random.default_rng(0).integers(0, 255, (height // 8, width // 8 + 8, 3), np.uint8)
    wall = wall.repeat(8, 0).repeat(8, 1)[:, number % 60 : number % 60 + width]
    noise = rng.integers(-8, 8, wall.shape)
    pixels = np.clip(wall.astype(np.int16) + noise, 0, 255).astype(np.uint8)
    frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(pixels), format="rgb24")
    frame.pts = number * TICKS
    frame.time_base = fractions.Fraction(1, 90_000)
    return frame


@cache
def film(
    codec: Codec, pictures: int = 12, keys: Sequence[int] = (0,), sequence: int = 65_530
) -> list[Packet]:
    """Numbers and times wrap soon after the beginning."""
    encoder = get_encoder(RTCRtpCodecParameters(mimeType=f"video/{codec}", clockRate=90_000))
    packets = []
    for number in range(pictures):
        payloads, _ = encoder.encode(picture(number), force_keyframe=number in keys)
        timestamp = (number - 3) * TICKS & 0xFFFF_FFFF
        for at, payload in enumerate(payloads):
            packets.append(
                Packet(sequence & 0xFFFF, timestamp, at == len(payloads) - 1, bytes(payload), number)
            )
            sequence += 1
    return packets


def layered(packets: Sequence[Packet], layers: Sequence[int], syncs: Sequence[int] = ()) -> list[Packet]:
    """Write temporal layers into a VP8 film, as picture 0, 1, … have them; those in `syncs` are marked so."""
    base = -1
    result = []
    for packet in packets:
        layer = layers[packet.picture % len(layers)]
        if packet.payload[0] & 0x10 and layer == 0:
            base += 1
        descriptor_bytes = 4 if packet.payload[0] & 0x80 else 1  # aiortc writes a long picture id, or none
        head = bytes(
            [
                packet.payload[0] | 0x80,
                0xE0,
                0x80 | packet.picture >> 8,
                packet.picture & 0xFF,
                base & 0xFF,
                layer << 6 | (packet.picture in syncs) << 5,
            ]
        )
        result.append(replace(packet, payload=head + packet.payload[descriptor_bytes:]))
    return result
