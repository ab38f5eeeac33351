import asyncio
import fractions
import io

import av
import numpy as np
import pytest
from aiortc import MediaStreamTrack
from aiortc.mediastreams import MediaStreamError

from visavis.audio import RATE
from visavis.config import CameraConfig
from visavis.frames import Frame, Source
from visavis.rtc.camera import MAX_SIZES, CameraInput, JpegEncoder, encode_jpeg, quantiser


def picture(width: int = 320, height: int = 240, seed: int = 0) -> av.VideoFrame:
    pixels = np.zeros((height, width, 3), np.uint8)
    pixels[:, : width // 2] = (255, 0, 0)
    pixels[: height // 2, width // 2 :] = (0, 255, 0)
    pixels[height // 2 :, width // 2 :] = (0, 0, 255)
    return av.VideoFrame.from_ndarray(pixels, format="rgb24")


def decode(jpeg: bytes) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    with av.open(io.BytesIO(jpeg), format="jpeg_pipe") as container:
        (frame,) = container.decode(video=0)
        return frame.to_ndarray(format="rgb24")


@pytest.mark.parametrize(
    ("size", "wanted"),
    [
        ((1_920, 1_080), (1_024, 576)),
        ((1_080, 1_920), (576, 1_024)),
        ((320, 240), (320, 240)),
        ((3, 3), (4, 4)),
    ],
)
def test_a_picture_is_made_small_enough_and_keeps_its_colours(
    size: tuple[int, int], wanted: tuple[int, int]
) -> None:
    frame = encode_jpeg(picture(*size), 99, 1_024, 85)
    pixels = decode(frame.jpeg)
    assert (frame.width, frame.height, frame.at) == (*wanted, 99)
    assert pixels.shape == (wanted[1], wanted[0], 3)
    if size != (3, 3):
        corners = [pixels[8, 8], pixels[8, -8], pixels[-8, -8]]
        assert [int(corner.argmax()) for corner in corners] == [0, 1, 2]
        assert all(corner.max() > 200 and np.sort(corner)[1] < 60 for corner in corners)


def test_better_quality_costs_bytes() -> None:
    noise = av.VideoFrame.from_ndarray(
        np.random.default_rng(0).integers(0, 255, (240, 320, 3), np.uint8), format="rgb24"
    )
    sizes = [len(encode_jpeg(noise, 0, 1_024, quality).jpeg) for quality in (20, 60, 85, 100)]
    assert sizes == sorted(set(sizes))
    assert (quantiser(1), quantiser(100)) == (31, 2)


def timed(number: int, width: int, height: int) -> av.VideoFrame:
    """A picture as a decoder gives it."""
    frame = picture(width, height).reformat(format="yuv420p")
    frame.pts, frame.time_base = number * 45_000, fractions.Fraction(1, 90_000)
    return frame


def test_pictures_of_all_sizes_one_after_another_are_as_if_each_were_the_only_one() -> None:
    encoder = JpegEncoder()
    sizes = [(64, 32), (32, 64), (160, 90)] + [(64, 48 + 2 * more) for more in range(MAX_SIZES)]
    for size in sizes * 2:
        for number, quality in enumerate((85, 20, 85, 20)):
            frame = encoder.encode(timed(number, *size), number, 64, quality)
            assert frame == encode_jpeg(timed(0, *size), number, 64, quality)


def test_a_picture_that_cannot_be_converted_spoils_no_other() -> None:
    encoder = JpegEncoder()
    fine = encoder.encode(timed(0, 64, 32), 0, 64, 85)
    with pytest.raises(av.FFmpegError):
        encoder.encode(av.VideoFrame(64, 32, "rgb4"), 0, 64, 85)  # FFmpeg writes such pictures only
    assert encoder.encode(timed(1, 64, 32), 0, 64, 85) == fine


def screen() -> Source:
    return "screen"


class Tape(MediaStreamTrack):
    """A remote camera that delivers as fast as it is read."""

    kind = "video"

    def __init__(self, pictures: int, fps: int = 30) -> None:
        super().__init__()
        self.left = pictures
        self.sent = 0
        self.fps = fps

    async def recv(self) -> av.VideoFrame:
        await asyncio.sleep(0)
        if not self.left:
            raise MediaStreamError
        self.left -= 1
        frame = picture()
        frame.pts = self.sent * 90_000 // self.fps
        frame.time_base = fractions.Fraction(1, 90_000)
        self.sent += 1
        return frame


async def test_only_wanted_pictures_are_converted() -> None:
    got: list[Frame] = []
    asked: list[int] = []
    tape = Tape(90)

    def wants(at: int, source: Source) -> bool:
        asked.append(at)
        return at >= len(got) * RATE // 2

    await CameraInput(CameraConfig(), lambda: tape.sent * RATE // 30, wants, got.append, screen).run(tape)
    assert not tape.left
    assert {frame.source for frame in got} == {"screen"}
    assert 1 <= len(got) <= 7
    assert asked == sorted(asked)


async def test_at_most_one_picture_is_converted_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    release = asyncio.Event()
    running = 0

    async def slow(*_: object) -> Frame:
        nonlocal running
        running += 1
        await release.wait()
        return Frame(b"", 2, 2, 0)

    monkeypatch.setattr(asyncio, "to_thread", slow)
    tape, got = Tape(90), list[Frame]()

    def position() -> int:
        if not tape.left:
            release.set()
        return 0

    await CameraInput(CameraConfig(), position, lambda at, source: True, got.append, screen).run(tape)
    assert running == 1
    assert len(got) == 1
