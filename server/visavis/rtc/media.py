"""What all calls of a process share: a backend, which is chosen when it is opened, and what belongs to it."""

import logging
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self

import av

from ..config import CameraConfig, RtcConfig
from .backend import Backend, BackendName
from .channel import LABEL
from .link import PeerHandler
from .peer import OutgoingPeer, Peer
from .stock import Stock

logger = logging.getLogger(__name__)


class Media:
    """Makes the two ends of calls. `open` it on the loop that they run on, or `async with` it."""

    def __init__(self, rtc: RtcConfig, camera: CameraConfig | None = None) -> None:
        self._rtc = rtc
        self._camera = camera or CameraConfig()
        self._backend: Backend | None = None

    async def open(self) -> None:
        """Choose the backend and get it ready. Raises ConfigError, which says what to do.

        Where aiortc or aioice lack a name that `lean` needs, it is `stock`, with a warning.
        """
        backend: Backend = Stock()
        if self._rtc.backend == "lean":
            try:
                backend = await _lean(self._rtc)
            except _MovedNamesError as error:
                logger.warning(
                    "media falls back to the stock backend, which costs three times as much: %s; install "
                    "the versions of aiortc and aioice that visavis asks for",
                    error,
                )
        await backend.open()
        self._backend = backend

    @property
    def backend(self) -> BackendName:
        """The backend in use."""
        return self._opened.name

    def peer(self, handler: PeerHandler, label: str = LABEL) -> Peer:
        """Make the answering side of a call; its `aclose` is due in any case.

        `label` names the data channel that is spoken on if there are several, or opened if none is.
        """
        return Peer(self._rtc, self._camera, self._opened, handler, label)

    def listener(self, handler: PeerHandler) -> Peer:
        """Make the side of a call that lets others hear it; its `aclose` is due in any case."""
        return self.peer(handler)

    def caller(
        self,
        handler: PeerHandler,
        next_picture: Callable[[], Awaitable[av.VideoFrame]] | None = None,
        fps: float = 12.0,
    ) -> OutgoingPeer:
        """Make the calling side of a call; its `aclose` is due in any case.

        `next_picture` is asked `fps` times a second; None is a call without camera.
        """
        return OutgoingPeer(self._rtc, self._camera, self._opened, handler, next_picture, fps)

    async def aclose(self) -> None:
        """Give everything back; the calls are to be closed before. May be called again."""
        backend, self._backend = self._backend, None
        if backend is not None:
            await backend.aclose()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    @property
    def _opened(self) -> Backend:
        if self._backend is None:
            raise RuntimeError("media has not been opened")
        return self._backend


class _MovedNamesError(Exception):
    """aiortc or aioice are not the versions that `lean` was made for."""


async def _lean(config: RtcConfig) -> Backend:
    try:
        from .lean import Lean, missing_names  # it imports what another release may lack
    except ImportError as error:
        raise _MovedNamesError(str(error)) from error
    if missing := await missing_names():
        raise _MovedNamesError(f"{', '.join(missing)} cannot be found")
    return Lean(config)
