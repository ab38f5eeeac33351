"""For tests with real peers: handlers that talk and listen, networks that lose, waiting for a condition."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import aioice.ice
import av
import numpy as np
import pytest
from aiortc import MediaStreamTrack, RTCPeerConnection, RTCSessionDescription
from aiortc.mediastreams import AudioStreamTrack, MediaStreamError

from visavis.audio import BLOCK, RATE, Pcm, level_dbfs
from visavis.config import RtcConfig
from visavis.frames import Frame, Source
from visavis.rtc import CloseReason, Media, OutgoingPeer, Peer

LOUD_DBFS = -30

on_both_backends = pytest.mark.parametrize(
    "config",
    [
        pytest.param(RtcConfig(), id="lean"),
        pytest.param(
            RtcConfig(backend="stock"),
            id="stock",
            marks=pytest.mark.skipif(
                not aioice.ice.get_host_addresses(use_ipv4=True, use_ipv6=True),
                reason="aioice alone offers no loopback",
            ),
        ),
    ],
)


async def until(condition: Callable[[], object], what: str, patience_s: float = 30.0) -> None:
    """Wait for a condition; the patience only bounds a test that has failed."""
    try:
        async with asyncio.timeout(patience_s):
            while not condition():  # noqa: ASYNC110 - conditions here are of many kinds
                await asyncio.sleep(0.01)
    except TimeoutError:
        pytest.fail(f"never came: {what}")


@dataclass
class Handler:
    """Says a tone (0 Hz: silence) and keeps whatever it is told."""

    hertz: float = 0.0
    audio: list[Pcm] = field(default_factory=list)
    asked: list[int] = field(default_factory=list)
    frames: list[Frame] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)
    reasons: list[CloseReason] = field(default_factory=list)
    connections: int = 0
    channels: int = 0
    pulled: int = 0

    def connected(self) -> None:
        self.connections += 1

    def receive_audio(self, pcm: Pcm) -> None:
        self.audio.append(pcm)

    def wants_frame(self, at: int, source: Source = "camera") -> bool:
        self.asked.append(at)
        shown = [frame.at for frame in self.frames if frame.source == source]
        return not shown or at - shown[-1] >= RATE // 2

    def receive_frame(self, frame: Frame) -> None:
        self.frames.append(frame)

    def pull_audio(self) -> Pcm:
        t = np.arange(self.pulled * BLOCK, (self.pulled + 1) * BLOCK) / RATE
        self.pulled += 1
        return np.rint(8_000 * np.sin(2 * np.pi * self.hertz * t)).astype(np.int16)

    def channel_opened(self) -> None:
        self.channels += 1

    def receive_message(self, text: str) -> None:
        self.messages.append(text)

    def closed(self, reason: CloseReason) -> None:
        self.reasons.append(reason)

    @property
    def pitch(self) -> float:
        """The loudest frequency of the last second heard."""
        heard = np.concatenate(self.audio[-50:]).astype(float)
        return float(np.argmax(np.abs(np.fft.rfft(heard)))) * RATE / len(heard)


@dataclass
class Metronome(Handler):
    """Strikes every half second, and knows when; hears another's strikes. It hums between them."""

    struck: list[float] = field(default_factory=list)
    heard: list[float] = field(default_factory=list)
    quiet: bool = True

    def pull_audio(self) -> Pcm:
        self.pulled += 1
        if self.pulled % 25:
            return np.random.default_rng(self.pulled).integers(-50, 50, BLOCK, np.int16)
        self.struck.append(asyncio.get_running_loop().time())
        return np.rint(8_000 * np.sin(2 * np.pi * 500 * np.arange(BLOCK) / RATE)).astype(np.int16)

    def receive_audio(self, pcm: Pcm) -> None:
        loud = level_dbfs(pcm) > LOUD_DBFS
        if loud and self.quiet:
            self.heard.append(asyncio.get_running_loop().time())
        self.quiet = not loud

    def delay_s(self, other: "Metronome", strikes: int = 4) -> float:
        """Median delay of the last strikes of the other that were heard here."""
        return median(
            heard - max(struck for struck in other.struck if struck <= heard)
            for heard in self.heard[-strikes:]
        )


class StockListener:
    """What aiortc itself makes of the same stream."""

    def __init__(self) -> None:
        self.connection = RTCPeerConnection()
        self.connection.addTrack(AudioStreamTrack())
        self.connection.on("track", self.listen)
        self.ear = Metronome()
        self.tasks: list[asyncio.Task[None]] = []

    async def answer(self, offer: str) -> str:
        await self.connection.setRemoteDescription(RTCSessionDescription(offer, "offer"))
        await self.connection.setLocalDescription()
        return self.connection.localDescription.sdp

    def listen(self, track: MediaStreamTrack) -> None:
        self.tasks.append(asyncio.create_task(self._run(track)))

    async def _run(self, track: MediaStreamTrack) -> None:
        while True:
            try:
                frame = await track.recv()
            except MediaStreamError:
                return
            assert isinstance(frame, av.AudioFrame)
            self.ear.receive_audio(frame.to_ndarray()[0][::4])

    async def aclose(self) -> None:
        await self.connection.close()
        await asyncio.gather(*self.tasks)


async def picture() -> av.VideoFrame:
    pixels = np.random.default_rng().integers(0, 255, (90, 160, 3), np.uint8)
    return av.VideoFrame.from_ndarray(pixels.repeat(2, 0).repeat(2, 1), format="rgb24")


async def connect(caller: OutgoingPeer, callee: Peer) -> None:
    await caller.accept(await callee.answer(await caller.offer()))


@asynccontextmanager
async def call(
    caller: Handler, callee: Handler, config: RtcConfig | None = None, **camera: Any
) -> AsyncIterator[tuple[OutgoingPeer, Peer]]:
    """A connected call between two of our own peers."""
    async with Media(config or RtcConfig()) as media:
        out, into = media.caller(caller, **camera), media.peer(callee)
        try:
            await connect(out, into)
            await until(lambda: caller.connections and callee.connections, "both connected")
            yield out, into
        finally:
            await out.aclose()
            await into.aclose()


@asynccontextmanager
async def answered(
    client: RTCPeerConnection, handler: Handler, config: RtcConfig | None = None
) -> AsyncIterator[Peer]:
    """A connected call of somebody else's peer, prepared as the test wants it, to ours."""
    async with Media(config or RtcConfig()) as media:
        peer = media.peer(handler)
        try:
            await negotiate(client, peer)
            await until(lambda: handler.connections, "connected")
            yield peer
        finally:
            await client.close()
            await peer.aclose()


async def negotiate(client: RTCPeerConnection, peer: Peer) -> None:
    await client.setLocalDescription(await client.createOffer())
    answer = await peer.answer(client.localDescription.sdp)
    await client.setRemoteDescription(RTCSessionDescription(answer, "answer"))


def is_rtp(datagram: bytes) -> bool:
    return 127 < datagram[0] < 192 and not 192 <= datagram[1] <= 223


class _Lossy:
    def __init__(self, transport: Any, drops: Callable[[bytes], bool]) -> None:
        self._transport = transport
        self._drops = drops

    def sendto(self, data: bytes, addr: Any = None) -> None:
        if not self._drops(data):
            self._transport.sendto(data, addr)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


def lose(sender: OutgoingPeer | RTCPeerConnection, drops: Callable[[bytes], bool]) -> None:
    """Lose every datagram of a connected sender for which `drops` says so."""
    connection = sender if isinstance(sender, RTCPeerConnection) else sender._link.connection
    for transceiver in connection.getTransceivers():
        for protocol in transceiver.receiver.transport.transport._connection._protocols:
            if not isinstance(protocol.transport, _Lossy):
                protocol.transport = _Lossy(protocol.transport, drops)
