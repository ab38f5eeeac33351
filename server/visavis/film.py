"""A file as a camera: a picture that stands still or a clip that starts over when it ends."""

import asyncio
from collections.abc import Generator
from pathlib import Path

import av

from .errors import CallError
from .frames import fit

_MAX_SIDE = 1280
"Larger pictures are scaled to this: what a webcam sends at most."


class Film:
    """Gives the pictures of a file one after the other, at the pace at which it is asked.

    Raises CallError for a file without pictures.
    """

    def __init__(self, path: Path, fps: float) -> None:
        self.fps = fps
        self._path = path
        self._pictures = self._play()
        self._next = self._read()

    async def next_picture(self) -> av.VideoFrame:
        """Return the picture to show now; decoding is done off the event loop."""
        picture = self._next
        self._next = await asyncio.to_thread(self._read)
        return picture

    def _read(self) -> av.VideoFrame:
        try:
            return next(self._pictures)
        except (OSError, av.FFmpegError) as error:
            raise CallError(f"cannot show {self._path}: {error}") from error
        except StopIteration:
            raise CallError(f"cannot show {self._path}: there is no picture in it") from None

    def _play(self) -> Generator[av.VideoFrame, None, None]:
        """Decode for ever, leaving out pictures of a clip that is faster than we are."""
        shown = True
        while shown:
            shown = False
            with av.open(str(self._path)) as container:
                due = 0.0
                for picture in container.decode(video=0):
                    if picture.time is not None and picture.time < due:
                        continue
                    due += 1 / self.fps
                    width, height = fit(picture.width, picture.height, _MAX_SIDE)
                    still = picture.reformat(width=width, height=height, format="yuv420p")
                    still.pts = None
                    yield still
                    shown = True
