"""The caller's camera: pictures are chosen by media time, and only the chosen ones are converted."""

import asyncio
import fractions
import functools
import itertools
import logging
from collections.abc import Awaitable, Callable

import av
from aiortc import MediaStreamTrack
from aiortc.mediastreams import MediaStreamError
from av.codec.context import Flags
from av.video.reformatter import VideoReformatter

from ..config import CameraConfig
from ..frames import Frame, Source
from .clock import VIDEO_RATE, MediaClock

logger = logging.getLogger(__name__)

MAX_SIZES = 8
"Of pictures that encoders are kept for: each takes 2 MB at 640x360, 7 at most. Cameras have few sizes."

_COUNT = fractions.Fraction(1, 1)
"Time base of pictures that are numbered."


class CameraInput:
    """Reads a remote video track as fast as it comes; at most one picture is converted at a time."""

    def __init__(
        self,
        config: CameraConfig,
        position: Callable[[], int],
        wants: Callable[[int, Source], bool],
        on_frame: Callable[[Frame], None],
        source: Callable[[], Source],
    ) -> None:
        """`source` tells what the track shows."""
        self._config = config
        self._position = position
        self._wants = wants
        self._on_frame = on_frame
        self._source = source
        self._encoder = JpegEncoder()
        self._clock = MediaClock(lambda timestamp, later_s: None)
        "aiortc does not make sender reports known."

    async def run(self, track: MediaStreamTrack) -> None:
        """Read until the track ends. aiortc's queue behind it is unbounded, so nothing is waited for here."""
        async with asyncio.TaskGroup() as tasks:
            converting: asyncio.Task[None] | None = None
            while True:
                try:
                    picture = await track.recv()
                except MediaStreamError:
                    return
                if not isinstance(picture, av.VideoFrame) or picture.pts is None:
                    continue
                at = self._clock.place(picture.pts & 0xFFFF_FFFF, self._position())
                source = self._source()
                if (converting is None or converting.done()) and self._wants(at, source):
                    converting = tasks.create_task(self._convert(picture, at, source))

    async def _convert(self, picture: av.VideoFrame, at: int, source: Source) -> None:
        try:
            frame = await asyncio.to_thread(
                self._encoder.encode, picture, at, self._config.max_side, self._config.jpeg_quality, source
            )
        except av.FFmpegError as error:
            logger.warning("a camera picture could not be converted: %s", error)
        else:
            self._on_frame(frame)


class JpegEncoder:
    """Compresses pictures of any size, in one thread at a time.

    FFmpeg's scaler and encoder take longer to make than to use: those of the sizes seen last are kept.
    """

    def __init__(self) -> None:
        self._sized = functools.lru_cache(MAX_SIZES)(_SizedEncoder)

    def encode(
        self, picture: av.VideoFrame, at: int, max_side: int, quality: int, source: Source = "camera"
    ) -> Frame:
        """Scale the longest side to `max_side` at most and compress. Takes a millisecond.

        Senders turn the picture upright before they send it, since no orientation extension is negotiated.
        """
        sized = self._sized(picture.width, picture.height, max_side, quality)
        try:
            jpeg = sized.encode(picture)
        except av.FFmpegError:
            self._sized.cache_clear()  # no other picture is to suffer from what this one has left
            raise
        return Frame(jpeg=jpeg, width=sized.width, height=sized.height, at=at, source=source)


class _SizedEncoder:
    """Scales pictures of one size to another and compresses them."""

    def __init__(self, width: int, height: int, max_side: int, quality: int) -> None:
        scale = min(1.0, max_side / max(width, height))
        self.width, self.height = (max(2, round(side * scale / 2) * 2) for side in (width, height))
        self._scaler = VideoReformatter()
        encoder = av.CodecContext.create("mjpeg", "w")
        assert isinstance(encoder, av.VideoCodecContext)
        encoder.width, encoder.height, encoder.pix_fmt = self.width, self.height, "yuvj420p"
        encoder.time_base = _COUNT
        encoder.thread_count = 1
        encoder.options = {
            "huffman": "default"
        }  # tables made for the picture save 4 % of bytes, cost 20 % of time
        encoder.qmin = encoder.qmax = quantiser(quality)
        encoder.flags |= Flags.qscale  # it need not look for a quantiser: a tenth of its time
        self._encoder = encoder
        self._numbers = itertools.count()

    def encode(self, picture: av.VideoFrame) -> bytes:
        scaled = self._scaler.reformat(picture, self.width, self.height, "yuvj420p")
        scaled.pts, scaled.time_base = next(self._numbers), _COUNT
        return b"".join(bytes(packet) for packet in self._encoder.encode(scaled))


def encode_jpeg(
    picture: av.VideoFrame, at: int, max_side: int, quality: int, source: Source = "camera"
) -> Frame:
    """Compress a single picture as `JpegEncoder` does."""
    return JpegEncoder().encode(picture, at, max_side, quality, source)


def quantiser(quality: int) -> int:
    """Map the usual JPEG quality of 1 … 100 to FFmpeg's quantiser of 31 … 2."""
    return max(2, min(31, round(31 - quality * 0.31)))


class PictureTrack(MediaStreamTrack):
    """An outgoing camera: asks for a picture on every beat."""

    kind = "video"

    def __init__(self, next_picture: Callable[[], Awaitable[av.VideoFrame]], fps: float) -> None:
        super().__init__()
        self._next_picture = next_picture
        self._period_s = 1 / fps
        self._start: float | None = None
        self._beats = 0

    async def recv(self) -> av.VideoFrame:
        if self.readyState != "live":
            raise MediaStreamError
        loop = asyncio.get_running_loop()
        if self._start is None:
            self._start = loop.time()
        self._beats = max(self._beats + 1, int((loop.time() - self._start) / self._period_s))
        await asyncio.sleep(max(0.0, self._start + self._beats * self._period_s - loop.time()))
        picture = await self._next_picture()
        picture.pts = round(self._beats * self._period_s * VIDEO_RATE)
        picture.time_base = fractions.Fraction(1, VIDEO_RATE)
        return picture
