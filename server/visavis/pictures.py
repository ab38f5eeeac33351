"""Images that clients send, made into pictures as engines are shown them. May take tens of milliseconds."""

import av
import numpy as np

from .clip import decode_jpeg, jpeg_size
from .frames import Frame
from .rtc.camera import encode_jpeg

MAX_BYTES = 10 << 20
"Of a file: a phone's photograph has 5 MB."
MAX_PIXELS = 4096 * 4096
"What is decoded takes four bytes of each."
MAX_SIDE = 1536
"A page's text is legible then, and no more than 2304 tokens are spent."
MAX_KEPT = 1 << 20
"Bytes of a JPEG that stays as it is: some have more beside their pixels, and a call keeps many."
QUALITY = 90
"Of JPEGs that are written anew: edges of text survive it."

_PNG = b"\x89PNG\r\n\x1a\n"
_WHITE = 255


def read_picture(data: bytes) -> Frame:
    """Return a JPEG or PNG as a JPEG of `MAX_SIDE` at most; a JPEG that is small enough stays as it is.

    What can be seen through is on white. Raises ValueError, with what is wrong as its message.
    """
    if len(data) > MAX_BYTES:
        raise ValueError(f"it has more than {MAX_BYTES >> 20} MiB")
    is_png = data.startswith(_PNG)
    size = _png_size(data) if is_png else jpeg_size(data)
    if size is None:
        raise ValueError("it is no whole JPEG or PNG")
    if size[0] * size[1] > MAX_PIXELS:
        raise ValueError(f"it has {size[0]}×{size[1]} pixels, more than {MAX_PIXELS}")
    try:
        picture = _decode_png(data) if is_png else decode_jpeg(data)
        if not is_png and max(size) <= MAX_SIDE and len(data) <= MAX_KEPT:
            return Frame(data, *size, 0, "image")
        return encode_jpeg(picture, 0, MAX_SIDE, QUALITY, "image")
    except (av.FFmpegError, IndexError) as error:
        raise ValueError("it is broken") from error


def _png_size(data: bytes) -> tuple[int, int] | None:
    if len(data) < 24 or data[12:16] != b"IHDR":
        return None
    width, height = int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")
    return (width, height) if width and height else None


def _decode_png(data: bytes) -> av.VideoFrame:
    """Decode a picture, and lay it on white. Raises av.FFmpegError, or IndexError if there is none."""
    decoder = av.CodecContext.create("png", "r")
    assert isinstance(decoder, av.VideoCodecContext)
    decoder.thread_count = 1
    picture = (decoder.decode(av.Packet(data)) or decoder.decode(None))[0]
    if (
        not any(component.is_alpha for component in picture.format.components)
        and picture.format.name != "pal8"
    ):
        return picture
    pixels = picture.to_ndarray(format="rgba")
    shade = pixels[..., 3:].astype(np.uint16)
    seen = (pixels[..., :3] * shade + _WHITE * (_WHITE - shade)) // _WHITE
    return av.VideoFrame.from_ndarray(seen.astype(np.uint8), format="rgb24")
