from io import BytesIO

import av
import numpy as np
import pytest

from visavis.clip import decode_jpeg, jpeg_size
from visavis.pictures import MAX_BYTES, MAX_PIXELS, MAX_SIDE, read_picture
from visavis.rtc.camera import encode_jpeg

RED, CLEAR = (255, 0, 0, 255), (0, 0, 0, 0)


def png(pixels: np.ndarray, pix_fmt: str = "rgba") -> bytes:
    """Write a picture; `pixels` is (height, width, 4)."""
    file = BytesIO()
    with av.open(file, "w", format="image2pipe") as output:
        stream = output.add_stream("png", rate=1)
        assert isinstance(stream, av.VideoStream)
        stream.width, stream.height, stream.pix_fmt = pixels.shape[1], pixels.shape[0], pix_fmt
        output.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgba")))
        output.mux(stream.encode(None))
    return file.getvalue()


def plain(width: int, height: int, colour: tuple[int, int, int, int] = RED) -> np.ndarray:
    return np.full((height, width, 4), colour, np.uint8)


def jpeg(width: int, height: int) -> bytes:
    noise = np.random.default_rng(1).integers(0, 255, (height, width, 4), np.uint8)
    picture = av.VideoFrame.from_ndarray(noise, format="rgba")
    return encode_jpeg(picture, 0, 10_000, 90).jpeg


def colours(data: bytes) -> np.ndarray:
    return decode_jpeg(data).to_ndarray(format="rgb24")


def test_a_jpeg_that_is_small_enough_stays_as_it_is() -> None:
    data = jpeg(640, 480)
    frame = read_picture(data)
    assert frame.jpeg is data
    assert (frame.width, frame.height, frame.source) == (640, 480, "image")


def test_a_jpeg_with_much_beside_its_pixels_is_written_anew() -> None:
    data = jpeg(64, 48)
    comment = b"\xff\xfe" + (0xFFFF).to_bytes(2, "big") + bytes(0xFFFD)
    frame = read_picture(data[:2] + comment * 17 + data[2:])
    assert len(frame.jpeg) < 20_000
    assert (frame.width, frame.height) == (64, 48)


def test_what_is_too_large_is_shrunk() -> None:
    frame = read_picture(jpeg(3_072, 1_024))
    assert (frame.width, frame.height) == jpeg_size(frame.jpeg) == (MAX_SIDE, MAX_SIDE // 3)


@pytest.mark.parametrize("pix_fmt", ["rgba", "rgb24", "rgba64be"])
def test_a_png_becomes_a_jpeg_of_its_colours(pix_fmt: str) -> None:
    frame = read_picture(png(plain(64, 32), pix_fmt))
    assert (frame.width, frame.height) == jpeg_size(frame.jpeg) == (64, 32)
    assert np.abs(colours(frame.jpeg).mean((0, 1)) - RED[:3]).max() < 6


def test_what_can_be_seen_through_is_on_white() -> None:
    pixels = plain(64, 32, CLEAR)
    pixels[:, 32:] = RED
    seen = colours(read_picture(png(pixels)).jpeg).astype(int)
    assert seen[:, :24].min() > 245
    assert seen[:, 40:, 1].max() < 10


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "no whole JPEG or PNG"),
        (b"GIF89a" + bytes(40), "no whole JPEG or PNG"),
        (jpeg(64, 64)[:-20], "no whole JPEG or PNG"),
        (png(plain(64, 64))[:20], "no whole JPEG or PNG"),
        (png(plain(64, 64))[:16] + bytes(8) + bytes(40), "no whole JPEG or PNG"),
        (png(plain(64, 64))[:60], "broken"),
        (jpeg(64, 64)[:1_000] + b"\xff\xd9", "broken"),
        (bytes(MAX_BYTES + 1), "more than 10 MiB"),
        (png(plain(8, 8))[:16] + (2**16).to_bytes(4, "big") * 2 + bytes(9), f"more than {MAX_PIXELS}"),
    ],
    ids=["empty", "gif", "cut jpeg", "cut png", "no size", "half a png", "half a jpeg", "long", "large"],
)  # fmt: skip
def test_what_is_no_image_says_why(data: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        read_picture(data)
