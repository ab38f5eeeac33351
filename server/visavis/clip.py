"""Pictures and sound into one MP4, and pictures into other sizes, in memory. All that fusion needs of PyAV.

A clip's pictures are the camera's own JPEGs, put into the file as they are, and its sound is FLAC: nothing is
lost, a clip of five seconds takes milliseconds where H.264 and AAC take sixty, and there is neither
encoder delay nor padding, so that sample n is heard at n / 16000 s. FFmpeg reads it since version 4, and so
does all that vLLM reads clips with (OpenCV, PyAV, torchcodec). For services of which that is not known there
is `common`: H.264 and AAC, whose delay an edit list takes out again, and up to 64 ms of silence at the end.
"""

import fractions
import io
from collections.abc import Sequence
from typing import Literal

import av
import numpy as np
from numpy.typing import NDArray

from .audio import Pcm, to_float
from .tokens import SOUND_RATE

Container = Literal["exact", "common"]

Size = tuple[int, int]
"Width and height."

_QUANTISER = 4
"Of JPEGs that are written anew: quality 87."
_SHRINK = 3
"Thumbnails are made by decoding at a size of 1/8: the mean of each block of 8 by 8, and nothing else."

_FLAC_LEVEL = "3"
"The lowest with blocks of 1152 samples; smaller ones take three times as long."
_AAC_BITS_PER_S = 64_000


def write_clip(jpegs: Sequence[bytes], size: Size, fps: int, pcm: Pcm, container: Container) -> bytes:
    """Write an MP4 whose pictures (of `size`) and sound (16 kHz) begin together.

    Raises av.FFmpegError if a picture cannot be read; the exact container does not look at them.
    """
    file = io.BytesIO()
    with av.open(file, "w", format="mp4") as output:
        if container == "exact":
            # The camera's own pictures need no encoder.
            pictures = output.add_mux_stream("mjpeg", rate=fps, width=size[0], height=size[1])
            sound = output.add_stream("flac", rate=SOUND_RATE)
            sound.options = {"compression_level": _FLAC_LEVEL}
        else:
            sight = output.add_stream("libx264", rate=fps)
            sight.pix_fmt = "yuv420p"
            sight.options = {"preset": "ultrafast", "crf": "20", "tune": "zerolatency"}
            sight.width, sight.height = size
            sight.thread_count = 1  # starting threads takes longer than they would save
            sound = output.add_stream("aac", rate=SOUND_RATE)
            sound.bit_rate = _AAC_BITS_PER_S
        sound.layout = "mono"
        output.start_encoding()
        for number, jpeg in enumerate(jpegs):
            if container == "exact":
                packet = av.Packet(jpeg)
                packet.stream = pictures
                packet.pts = packet.dts = number
                packet.duration = 1
                packet.time_base = fractions.Fraction(1, fps)
                packet.is_keyframe = True
                output.mux(packet)
            else:
                # Said in so many words, since else a JPEG's full range would pass for a film's.
                picture = decode_jpeg(jpeg).reformat(format="yuv420p", dst_color_range="MPEG")
                picture.pts = number
                picture.time_base = fractions.Fraction(1, fps)
                output.mux(sight.encode(picture))
        if container == "common":
            output.mux(sight.encode(None))
        step = sound.codec_context.frame_size
        for start in range(0, len(pcm), step):
            block = pcm[start : start + step].reshape(1, -1)
            if container == "exact":
                heard = av.AudioFrame.from_ndarray(block, format="s16", layout="mono")
            else:
                heard = av.AudioFrame.from_ndarray(to_float(block), format="fltp", layout="mono")
            heard.sample_rate = SOUND_RATE
            heard.pts = start
            heard.time_base = fractions.Fraction(1, SOUND_RATE)
            output.mux(sound.encode(heard))
        output.mux(sound.encode(None))
    return file.getvalue()


def jpeg_size(jpeg: bytes) -> Size | None:
    """Read the size of a whole JPEG from its headers; None if it is none, or is cut short."""
    if jpeg[:2] != b"\xff\xd8" or b"\xff\xd9" not in jpeg[-64:]:
        return None
    at = 2
    while at + 9 <= len(jpeg) and jpeg[at] == 0xFF:
        kind = jpeg[at + 1]
        if 0xC0 <= kind <= 0xCF and kind not in (0xC4, 0xC8, 0xCC):  # a start of frame, of whatever kind
            height, width = (int.from_bytes(jpeg[at + k : at + k + 2], "big") for k in (5, 7))
            return (width, height) if width and height else None
        at += 2 + int.from_bytes(jpeg[at + 2 : at + 4], "big")
    return None


def decode_jpeg(jpeg: bytes, shrink: int = 0) -> av.VideoFrame:
    """Decode a picture, at 1/2**shrink of its size. Raises av.FFmpegError if it is broken."""
    decoder = av.CodecContext.create("mjpeg", "r")
    assert isinstance(decoder, av.VideoCodecContext)
    decoder.thread_count = 1
    decoder.options = {"err_detect": "explode", "lowres": str(shrink)}
    pictures = decoder.decode(av.Packet(jpeg)) or decoder.decode(None)
    return pictures[0]


def thumbnail(jpeg: bytes) -> NDArray[np.int16]:
    """Give the brightness of each 8 by 8 pixels, 0 … 255. Raises av.FFmpegError if the picture is broken."""
    picture = decode_jpeg(jpeg, _SHRINK)
    plane = picture.planes[0]
    rows = np.frombuffer(memoryview(plane), np.uint8).reshape(-1, plane.line_size)
    brightness: NDArray[np.int16] = rows[: picture.height, : picture.width].astype(np.int16)
    return brightness


def resize_jpeg(jpeg: bytes, size: Size) -> bytes:
    """Write a picture in another size. Raises av.FFmpegError if it is broken."""
    picture = decode_jpeg(jpeg).reformat(width=size[0], height=size[1], format="yuvj420p")
    return encode_jpeg(picture)


def blank_jpeg(size: Size) -> bytes:
    """Write a picture of nothing, a middle grey."""
    picture = av.VideoFrame(*size, "yuvj420p")
    for plane in picture.planes:
        plane.update(bytes([128]) * plane.buffer_size)
    return encode_jpeg(picture)


def encode_jpeg(picture: av.VideoFrame) -> bytes:
    picture.pts = 0
    encoder = av.CodecContext.create("mjpeg", "w")
    assert isinstance(encoder, av.VideoCodecContext)
    encoder.width, encoder.height, encoder.pix_fmt = picture.width, picture.height, "yuvj420p"
    encoder.time_base = fractions.Fraction(1, 1)
    encoder.thread_count = 1
    encoder.qmin = encoder.qmax = _QUANTISER
    return b"".join(bytes(packet) for packet in [*encoder.encode(picture), *encoder.encode(None)])
