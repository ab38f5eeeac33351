"""The lean backend: short ways through aiortc, by hooks on its instances. It costs a third of `stock`.

Nothing of aiortc's or aioice's modules or classes is replaced, so both backends may run in one process. The
private names in use are listed in `names`; the versions are pinned to a minor in pyproject.toml.
"""

import asyncio

import aioice
from aiortc import RTCPeerConnection

from ...config import CameraConfig, RtcConfig
from ..backend import Backend, BackendName, LegHandler
from .beat import Beat
from .decode import DecodeThread
from .leg import LeanLeg
from .names import missing_names
from .port import MediaPort

__all__ = ["Lean", "missing_names"]


class Lean(Backend):
    """What the calls of a process share: a UDP port, the beat of their voices, a thread for pictures."""

    name: BackendName = "lean"

    def __init__(self, config: RtcConfig) -> None:
        self._beat = Beat(asyncio.get_running_loop())
        self._decoding = DecodeThread()
        self._port = MediaPort(config)

    async def open(self) -> None:
        self._port.open()

    def leg(
        self, config: RtcConfig, camera: CameraConfig, connection: RTCPeerConnection, handler: LegHandler
    ) -> LeanLeg:
        return LeanLeg(config, camera, connection, handler, self._beat, self._decoding, self._attach)

    async def aclose(self) -> None:
        self._beat.close()
        self._port.close()
        await asyncio.to_thread(self._decoding.close)

    def _attach(self, connection: aioice.Connection, answers: bool) -> None:
        (self._port.attach if answers else self._port.attach_caller)(connection)
