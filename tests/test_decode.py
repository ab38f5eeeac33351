import asyncio
import gc
import struct
import threading
import weakref
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

import pytest

from films import Codec, film
from visavis.config import CameraConfig
from visavis.frames import Frame
from visavis.rtc.lean.assemble import Picture
from visavis.rtc.lean.decode import MAX_WAITING, DecodeThread, Stream
from visavis.rtc.lean.depacketize import READERS

BROKEN = Picture(b"\x10\x00\x00\x9d\x01\x2a\xff", 0, key=True)


def compressed(codec: Codec, pictures: int, keys: tuple[int, ...] = (0,)) -> list[Picture]:
    packets = film(codec, pictures, keys)
    return [
        Picture(
            b"".join(READERS[codec](p.payload).data for p in packets if p.picture == number),
            number * 3_000,
            number in keys,
        )
        for number in range(pictures)
    ]


@pytest.fixture
async def thread() -> AsyncIterator[DecodeThread]:
    thread = DecodeThread()
    yield thread
    await asyncio.to_thread(thread.close)
    assert not [each for each in threading.enumerate() if each.name == "visavis-video"]


@dataclass
class Viewer:
    thread: DecodeThread
    frames: list[Frame] = field(default_factory=list)
    failures: int = 0

    def __post_init__(self) -> None:
        self.stream: Stream = self.thread.stream(CameraConfig(max_side=160), self.frames.append, self._fail)

    def _fail(self) -> None:
        self.failures += 1


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - the thread tells nobody of a picture that is not kept
            await asyncio.sleep(0.001)


@pytest.mark.parametrize("codec", ["VP8", "H264"])
async def test_every_picture_is_decoded_at_once_and_only_the_kept_are_converted(
    thread: DecodeThread, codec: Codec
) -> None:
    viewer = Viewer(thread)
    for number, picture in enumerate(compressed(codec, 12)):
        assert viewer.stream.submit(codec, picture, number if number in (0, 7) else None)
        await until(lambda: viewer.stream.decoded == number + 1)  # noqa: B023
    await until(lambda: len(viewer.frames) == 2)
    assert [(frame.at, frame.width, frame.height) for frame in viewer.frames] == [
        (0, 160, 120),
        (7, 160, 120),
    ]
    assert viewer.frames[0].jpeg.startswith(b"\xff\xd8")
    assert viewer.failures == 0
    assert viewer.stream.cost_s > 0


async def test_a_camera_may_change_its_codec(thread: DecodeThread) -> None:
    viewer = Viewer(thread)
    for codec in ("VP8", "H264", "VP8"):
        viewer.stream.submit(codec, compressed(codec, 1)[0], 1)
    await until(lambda: len(viewer.frames) == 3)


async def test_a_picture_that_fails_is_told_once_and_a_key_frame_is_taken(
    thread: DecodeThread,
) -> None:
    viewer = Viewer(thread)
    pictures = compressed("VP8", 12, (0, 6))
    for picture in [pictures[0], BROKEN, *pictures[2:]]:
        viewer.stream.submit("VP8", picture, 1)
    await until(lambda: viewer.stream.decoded == 7)
    await until(lambda: len(viewer.frames) == 7)
    assert viewer.failures == 1


async def test_a_picture_that_would_take_all_memory_is_refused_by_its_size(thread: DecodeThread) -> None:
    """A kilobyte can claim 16,000 × 16,000 pixels: 400 MB for each picture that the decoder keeps."""
    viewer = Viewer(thread)
    (picture,) = compressed("VP8", 1)
    for width, height in ((16_000, 16_000), (16_000, 1_200), (5_120, 2_880)):
        size = struct.pack("<HH", width, height)
        # So long because FFmpeg looks whether there are bits enough for so many pixels.
        data = picture.data[:6] + size + picture.data[10:] + bytes(100_000)
        viewer.stream.submit("VP8", picture._replace(data=data), None)
    await until(lambda: viewer.stream.decoded == 1)
    assert viewer.failures == 2


async def test_an_unknown_codec_fails_and_the_thread_goes_on(thread: DecodeThread) -> None:
    viewer, other = Viewer(thread), Viewer(thread)
    viewer.stream.submit("VP9", compressed("VP8", 1)[0], 1)
    other.stream.submit("VP8", compressed("VP8", 1)[0], 1)
    await until(lambda: viewer.failures and other.frames)


async def test_of_a_call_that_is_over_the_thread_keeps_nothing(thread: DecodeThread) -> None:
    """Whoever is told of pictures has the whole conversation."""

    async def look() -> weakref.ref[Stream]:
        viewer = Viewer(thread)
        viewer.stream.submit("VP8", compressed("VP8", 1)[0], 1)
        await until(lambda: viewer.frames)
        viewer.stream.close()
        return weakref.ref(viewer.stream)

    stream = await look()
    await until(lambda: gc.collect() >= 0 and stream() is None)


class Held(DecodeThread):
    """Begins to work when it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()

    def _run(self) -> None:
        self.gate.wait()
        super()._run()


async def test_what_cannot_be_decoded_in_time_is_dropped_up_to_the_next_key_frame() -> None:
    thread = Held()
    viewer = Viewer(thread)
    pictures = compressed("VP8", 60, (0, 20, 40))
    assert all(viewer.stream.submit("VP8", picture, None) for picture in pictures[:25])
    assert viewer.stream.is_busy
    assert all(viewer.stream.submit("VP8", picture, None) for picture in pictures[25 : MAX_WAITING + 1])
    assert viewer.stream.dropped == 20
    thread.gate.set()
    await until(lambda: viewer.stream.decoded == MAX_WAITING + 1 - 20)
    assert viewer.failures == 0
    await asyncio.to_thread(thread.close)


async def test_without_a_key_frame_in_wait_one_has_to_be_asked_for() -> None:
    thread = Held()
    viewer = Viewer(thread)
    pictures = compressed("VP8", 60)
    told = [viewer.stream.submit("VP8", picture, None) for picture in pictures[: MAX_WAITING + 1]]
    assert told == [True] * MAX_WAITING + [False]
    assert not viewer.stream.is_busy
    thread.gate.set()
    await asyncio.to_thread(thread.close)
    assert viewer.stream.decoded == 0


async def test_a_call_with_much_to_decode_does_not_keep_another_waiting() -> None:
    thread = Held()
    busy, quiet = Viewer(thread), Viewer(thread)
    for picture in compressed("VP8", 25):
        busy.stream.submit("VP8", picture, None)
    decoded: list[int] = []
    quiet.stream._on_frame = lambda frame: decoded.append(busy.stream.decoded)
    work = quiet.stream._work

    def noted() -> bool:
        decoded.append(busy.stream.decoded)
        return work()

    vars(quiet.stream)["_work"] = noted
    quiet.stream.submit("VP8", compressed("VP8", 1)[0], None)
    thread.gate.set()
    await until(lambda: busy.stream.decoded == 25)
    assert decoded == [1]
    await asyncio.to_thread(thread.close)


async def test_a_call_that_ends_takes_its_pictures_along() -> None:
    thread = Held()
    viewer, other = Viewer(thread), Viewer(thread)
    for picture in compressed("VP8", 12):
        viewer.stream.submit("VP8", picture, 1)
    viewer.stream.close()
    viewer.stream.close()
    assert viewer.stream.submit("VP8", BROKEN, 1)
    other.stream.submit("VP8", compressed("VP8", 1)[0], 1)
    other.stream.clear()
    other.stream.submit("VP8", compressed("VP8", 1)[0], 2)
    thread.gate.set()
    await until(lambda: other.frames)
    assert [frame.at for frame in other.frames] == [2]
    assert (viewer.stream.decoded, viewer.frames, viewer.failures) == (0, [], 0)
    await asyncio.to_thread(thread.close)


async def test_news_of_a_call_that_has_ended_meanwhile_are_not_told(thread: DecodeThread) -> None:
    viewer = Viewer(thread)
    viewer.stream.submit("VP8", compressed("VP8", 1)[0], 1)
    viewer.stream.submit("VP8", BROKEN, 1)
    while not viewer.stream._is_lost:
        pass
    viewer.stream.close()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert (viewer.frames, viewer.failures) == ([], 0)


async def test_a_closed_thread_takes_nothing_more(thread: DecodeThread) -> None:
    thread.close()
    thread.close()
    viewer = Viewer(thread)
    viewer.stream.submit("VP8", BROKEN, 1)
    viewer.stream.close()
    assert viewer.failures == 0
