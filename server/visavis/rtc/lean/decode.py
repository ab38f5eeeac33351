"""One thread decodes the pictures of all calls: in turn, a picture of each, and only so many in wait."""

import asyncio
import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

import av

from ...config import CameraConfig
from ...frames import Frame, Source
from ..camera import JpegEncoder
from .assemble import Picture

logger = logging.getLogger(__name__)

MAX_WAITING = 30
"Pictures of one call that wait: a second of a fast camera. More cannot be had in time."

MAX_PIXELS = 16_777_216
"""Of a picture; screens of 5K have 15 million. Some decoders hold five pictures, and a few bytes can claim a
size of which each takes 400 MB and half a second of all callers' thread."""

DECODERS = {"VP8": "vp8", "H264": "h264"}
"FFmpeg's own, by the codec's name in SDP: its vp8 takes 0.9 of the time that libvpx takes."


class _Job(NamedTuple):
    codec: str
    picture: Picture
    keep_at: int | None
    "Where on the audio clock the picture lies if it is to be converted."
    source: Source


class Stream:
    """The pictures of one camera. All but `_work` is for the event loop it was made on."""

    def __init__(
        self,
        thread: "DecodeThread",
        config: CameraConfig,
        on_frame: Callable[[Frame], None],
        on_failure: Callable[[], None],
    ) -> None:
        self.decoded = 0
        self.cost_s = 0.0
        "Processor time that decoding has taken; converting is not counted."
        self.dropped = 0
        "Pictures that nobody had time to decode."
        self._thread = thread
        self._config = config
        self._on_frame = on_frame
        self._on_failure = on_failure
        self._loop = asyncio.get_running_loop()
        self._closed = False
        # What follows is guarded by the thread's lock, the decoder is the thread's own.
        self._jobs: deque[_Job] = deque()
        self._codec = ""
        self._decoder: av.VideoCodecContext | None = None
        self._is_lost = False
        "A picture failed: those that depend on it are not tried."

    @property
    def is_busy(self) -> bool:
        """Whether pictures wait to be decoded."""
        return bool(self._jobs)

    def submit(self, codec: str, picture: Picture, keep_at: int | None, source: Source = "camera") -> bool:
        """Have a picture decoded, and converted if it is kept.

        When too many wait, those before the next key frame are dropped; with none, all are, and False is
        returned: a key frame has to be asked for.
        """
        with self._thread.lock:
            if self._closed:
                return True
            self._jobs.append(_Job(codec, picture, keep_at, source))
            if len(self._jobs) > MAX_WAITING:
                waiting = len(self._jobs)
                while self._jobs:
                    self._jobs.popleft()
                    if self._jobs and self._jobs[0].picture.key:
                        break
                self.dropped += waiting - len(self._jobs)
            kept = bool(self._jobs)
            if kept:
                self._thread.enqueue(self)
            return kept

    def clear(self) -> None:
        """Let go of what waits; nobody wants it any more."""
        with self._thread.lock:
            self._jobs.clear()

    def close(self) -> None:
        """Nothing of the stream is left when the thread has come by. May be called again."""
        with self._thread.lock:
            self._closed = True
            self._jobs.clear()
            self._thread.enqueue(self)

    def _work(self) -> bool:
        """Decode one picture; in the thread. Tell whether there is more."""
        with self._thread.lock:
            closed = self._closed
            job = self._jobs.popleft() if self._jobs else None
            more = bool(self._jobs)
        if closed:
            self._decoder = None
            return False
        if job is not None and (job.picture.key or not self._is_lost):
            try:
                self._decode(job)
                self._is_lost = False
            except Exception as error:
                # Whatever it is, it is a fault of this picture: FFmpeg's errors have many names.
                logger.debug("a picture could not be decoded: %s", error)
                self._is_lost = True
                self._report(self._failed)
        return more

    def _decode(self, job: _Job) -> None:
        if job.codec != self._codec or self._decoder is None:
            self._codec, self._decoder = job.codec, _decoder_for(job.codec)
        began = time.thread_time()
        pictures = self._decoder.decode(av.Packet(job.picture.data))
        self.cost_s += time.thread_time() - began
        if not pictures:
            return
        self.decoded += 1
        if job.keep_at is not None:
            config = self._config
            frame = self._thread.encoder.encode(
                pictures[-1], job.keep_at, config.max_side, config.jpeg_quality, job.source
            )
            self._report(lambda: self._converted(frame))

    def _report(self, told: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed, nobody wants to know
            self._loop.call_soon_threadsafe(told)

    def _converted(self, frame: Frame) -> None:
        if not self._closed:
            self._on_frame(frame)

    def _failed(self) -> None:
        if not self._closed:
            self._on_failure()


class DecodeThread:
    """Runs from the first picture to `close`."""

    def __init__(self) -> None:
        self.lock = threading.Condition()
        self.encoder = JpegEncoder()
        "For all streams, within the thread."
        self._turns: deque[Stream] = deque()
        "Streams that have something to do, each once."
        self._closed = False
        self._thread: threading.Thread | None = None

    def stream(
        self,
        config: CameraConfig,
        on_frame: Callable[[Frame], None],
        on_failure: Callable[[], None],
    ) -> Stream:
        """Take a camera's pictures from the running loop, where the callbacks are called.

        `on_failure` tells that a picture could not be decoded; none is tried then up to the next key frame.
        """
        return Stream(self, config, on_frame, on_failure)

    def enqueue(self, stream: Stream) -> None:
        """Give a stream its turn. The lock is held."""
        if stream in self._turns or self._closed:
            return
        self._turns.append(stream)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="visavis-video", daemon=True)
            self._thread.start()
        self.lock.notify()

    def close(self, timeout_s: float = 2.0) -> None:
        """End the thread after the picture it is at; waits for it. May be called again."""
        with self.lock:
            self._closed = True
            self._turns.clear()
            self.lock.notify()
        if self._thread is not None:
            self._thread.join(timeout_s)

    def _run(self) -> None:
        while self._take_turn():
            pass

    def _take_turn(self) -> bool:
        """Let the next stream work; False at the end. Of one that is over nothing is held while it waits."""
        stream = self._next()
        if stream is None:
            return False
        if stream._work():
            with self.lock:
                self.enqueue(stream)
        return True

    def _next(self) -> Stream | None:
        with self.lock:
            while not self._turns and not self._closed:
                self.lock.wait()
            return None if self._closed else self._turns.popleft()


def _decoder_for(codec: str) -> av.VideoCodecContext:
    decoder = av.CodecContext.create(DECODERS[codec], "r")
    assert isinstance(decoder, av.VideoCodecContext)
    decoder.thread_count = 1
    decoder.options = {"max_pixels": str(MAX_PIXELS)}
    decoder.flags |= av.codec.context.Flags.low_delay
    return decoder
