"""The stock backend: aiortc as it is documented. It works with any release, and costs three times as much."""

import asyncio
import itertools
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Any

import av
import numpy as np
from aiortc import MediaStreamTrack, RTCPeerConnection, RTCRtpReceiver, RTCRtpSender
from aiortc.mediastreams import MediaStreamError

from ..codecs import PcmDecoder
from ..config import CameraConfig, RtcConfig
from ..frames import Source
from ..receiver import AudioReceiver
from .audio import AudioInput, AudioOutput
from .backend import Backend, BackendName, Leg, LegHandler
from .camera import CameraInput
from .stats import PeerStats

POLL_S = 1.0
"How often aiortc is asked what it has counted."

PATIENCE_S = 12.0
"""Silence by which the other side is dead. The answers to consent checks are not counted, so a caller who
sends no media is heard of only by RTCP, which may come every five seconds."""


class Stock(Backend):
    """Calls share nothing here."""

    name: BackendName = "stock"

    async def open(self) -> None: ...

    def leg(
        self, config: RtcConfig, camera: CameraConfig, connection: RTCPeerConnection, handler: LegHandler
    ) -> "StockLeg":
        return StockLeg(config, camera, connection, handler)

    async def aclose(self) -> None: ...


class StockLeg(Leg):
    """See `Leg`. Decoded audio comes out of aiortc's jitter buffer; what it loses is silence here."""

    def __init__(
        self, config: RtcConfig, camera: CameraConfig, connection: RTCPeerConnection, handler: LegHandler
    ) -> None:
        self._config = config
        self._camera = camera
        self._connection = connection
        self._handler = handler
        self._loop = asyncio.get_running_loop()
        self.output = AudioOutput(handler.pull_audio)
        self.heard = 0.0
        self.prompt = False
        self.dead_after_s = max(PATIENCE_S, config.dead_peer_s)
        self._audio: AudioInput | None = None
        self._codec = "opus"
        self._started = False
        self._track: MediaStreamTrack | None = None
        "The caller's voice."
        self._wants_video = True
        self._stats = PeerStats()
        "As aiortc told it when it was asked last."

    def send_audio(self, sender: RTCRtpSender) -> None: ...

    def prepare(self) -> None: ...

    def gathered(self) -> None: ...

    def take_audio(self, receiver: RTCRtpReceiver, codec: str) -> None:
        if self._audio is None:
            self._codec = codec
            decoder = PcmDecoder(48_000 if codec.lower() == "opus" else 8_000)
            self._audio = AudioInput(AudioReceiver(decoder, self._config), self._handler.receive_audio)

    def take_track(self, receiver: RTCRtpReceiver) -> None:
        if receiver.track.kind == "video":
            camera = CameraInput(
                self._camera,
                self._position,
                self._wants_frame,
                self._handler.receive_frame,
                partial(self._handler.source_of, receiver),
            )
            self._handler.spawn(camera.run(receiver.track))
        elif self._track is None:
            self._track = receiver.track
            self._listen()

    def want_video(self, fps: float) -> None:
        self._wants_video = fps > 0

    def start(self) -> None:
        self.heard = self._loop.time()
        self._started = True
        if self._audio is not None:
            self._audio.start()
        self._listen()
        self._handler.spawn(self.output.play_unheard())
        self._handler.spawn(self._poll())

    def is_flooded(self) -> bool:
        return False

    def stats(self) -> PeerStats:
        received = {} if self._audio is None else self._audio.stats()
        return replace(self._stats, blocks_skipped=self.output.skipped, **received)

    def close(self) -> None:
        if self._audio is not None:
            self._audio.close()

    def _listen(self) -> None:
        if self._started and self._track is not None and self._audio is not None:
            self._handler.spawn(self._hear(self._track, self._audio))

    async def _hear(self, track: MediaStreamTrack, audio: AudioInput) -> None:
        """Give decoded sound, as if its pieces were packets, the reckoning of time that packets have."""
        for number in itertools.count():
            try:
                frame = await track.recv()
            except MediaStreamError:
                return
            if isinstance(frame, av.AudioFrame) and frame.pts is not None:
                channels = frame.to_ndarray().reshape(-1, len(frame.layout.channels))
                pcm = channels.mean(axis=1).astype(np.int16)
                audio.receive(0, number & 0xFFFF, frame.pts & 0xFFFF_FFFF, pcm.tobytes())

    async def _poll(self) -> None:
        while True:
            await asyncio.sleep(POLL_S)
            told = await self._connection.getStats()
            before = self._stats.bytes_in
            self._stats = read_stats(told.values(), clock_rate=48_000 if self._codec == "opus" else 8_000)
            if self._stats.bytes_in > before:
                self.heard = self._loop.time()

    def _wants_frame(self, at: int, source: Source) -> bool:
        return self._wants_video and self._handler.wants_frame(at, source)

    def _position(self) -> int:
        return 0 if self._audio is None else self._audio.position


def read_stats(told: Iterable[Any], clock_rate: int) -> PeerStats:
    """Pick out of aiortc's report what there is; `clock_rate` is that of the audio."""
    stats = PeerStats()
    for each in told:
        match each.type:
            case "inbound-rtp" if each.kind == "audio":
                stats = replace(stats, jitter_ms=each.jitter * 1000 / clock_rate)
            case "outbound-rtp" if each.kind == "audio":
                stats = replace(stats, packets_sent=each.packetsSent)
            case "remote-inbound-rtp" if each.kind == "audio":
                stats = replace(
                    stats,
                    rtt_ms=None if each.roundTripTime is None else each.roundTripTime * 1000,
                    remote_lost=each.packetsLost,
                    remote_jitter_ms=each.jitter * 1000 / clock_rate,
                )
            case "transport":
                stats = replace(
                    stats,
                    bytes_in=stats.bytes_in + each.bytesReceived,
                    bytes_out=stats.bytes_out + each.bytesSent,
                )
    return stats
