"""One call over libwebrtc: sound and camera out, what arrives noted. Of the package reactor-webrtc.

Its callbacks come on threads of libwebrtc; they only append to queues that `poll` empties on the event loop.
"""

import asyncio
import time
from collections import deque
from typing import Any

import reactor_webrtc as rtc

from . import sdp
from .arrivals import Arrivals
from .calls import CONNECT_S, CallFailed, SetUp, Signal
from .clips import BLOCK, RATE
from .film import Film

SILENCE = bytes(2 * BLOCK)
GATHER_S = 1.0
"Of candidates of this machine alone: they are there at once."
CAMERA_BPS = 5_000_000
"The sender does not adapt: what was encoded is sent."


class Exchange:
    """What all lines of a process share: libwebrtc's threads."""

    def __init__(self) -> None:
        self._factory = rtc.PeerConnectionFactory()
        # Nobody listens: packets are looked at as they come, and need not be decoded.
        self._factory.set_adm_playout_enabled(False)

    def line(self, film: Film | None = None) -> "Line":
        return Line(self._factory, film)


class Line:
    """`open` once; then `say` every 20 ms, `show` when the film is due, `poll` for what came."""

    def __init__(self, factory: rtc.PeerConnectionFactory, film: Film | None) -> None:
        self.arrivals = Arrivals()
        self.set_up = SetUp(time.monotonic())
        self.messages: deque[bytes] = deque(maxlen=1_000)
        self._loop = asyncio.get_running_loop()
        self._arrived: deque[tuple[float, int, int]] = deque()
        self._candidates: list[tuple[str, str]] = []
        self._gathered, self._connected = asyncio.Event(), asyncio.Event()
        self._observer = self._observe()
        config = rtc.RtcConfiguration(bundle_policy=rtc.BundlePolicy.MaxBundle, frame_metadata=False)
        self._connection = factory.create_peer_connection(config, self._observer)
        self._microphone = factory.create_audio_track_with_local_source("microphone")
        self._connection.add_track(self._microphone)
        self._transform = rtc.FrameTransform(self._note)
        self._film = film
        self._picture = 0
        self._camera: Any = None
        if film is not None:
            size = (film.width, film.height)
            self._camera = factory.create_video_track_with_options("camera", pre_encoded=size)
            self._camera.on_encoder_feedback(self._feedback)
        self._channel = self._connection.create_data_channel("oai-events")
        self._channel.on_message(lambda data, binary: self.messages.append(data))

    async def offer(self) -> str:
        """Give the offer, its candidates gathered."""
        if self._camera is not None:
            transceiver = self._camera.add_transceiver(self._connection, rtc.TransceiverDirection.SendOnly)
            await transceiver.set_codec_preferences([rtc.VideoCodec.Vp8])
        offer = await self._connection.create_offer()
        await self._connection.set_local_description(offer)
        try:
            async with asyncio.timeout(GATHER_S):
                await self._gathered.wait()
        except TimeoutError:
            if not self._candidates:
                raise CallFailed("no network to call over") from None
        return sdp.with_candidates(offer.sdp, self._candidates)

    async def open(self, signal: Signal) -> None:
        """Call. Raises CallFailed."""
        offer = await self.offer()
        self.set_up.posted = time.monotonic()
        answer = await signal(offer)
        self.set_up.answered = time.monotonic()
        try:
            await self._connection.set_remote_description(rtc.SessionDescription("answer", answer))
        except RuntimeError as error:
            raise CallFailed(f"the answer is no use: {error}") from error
        for transceiver in await self._connection.transceivers():
            if transceiver.kind() == rtc.MediaKind.Audio:
                transceiver.set_receiver_transform(self._transform)
        if self._camera is not None:
            await self._connection.set_bitrate(start_bps=CAMERA_BPS, max_bps=CAMERA_BPS)
        try:
            async with asyncio.timeout(CONNECT_S):
                await self._connected.wait()
        except TimeoutError:
            raise CallFailed(f"not connected within {CONNECT_S:.0f} s") from None

    def say(self, block: bytes | None) -> None:
        """Send the next 20 ms; None is silence."""
        block = block or SILENCE
        self.push(block[:BLOCK])
        self.push(block[BLOCK:])

    def push(self, half: bytes) -> None:
        """Send the next 10 ms, which is how libwebrtc takes it."""
        self._microphone.push_pcm(half, RATE, 1)

    def show(self) -> None:
        """Send the next picture of the film."""
        assert self._film is not None
        data, is_key = self._film.pictures[self._picture]
        self._picture = (self._picture + 1) % len(self._film.pictures)
        self._camera.push_encoded_frame(
            data, is_key_frame=is_key, width=self._film.width, height=self._film.height
        )

    def poll(self) -> list[float]:
        """Take in what arrived; give the times of packets with sound."""
        times = []
        while self._arrived:
            at, timestamp, size = self._arrived.popleft()
            if self.arrivals.receive(at, timestamp, size):
                times.append(at)
        return times

    def close(self) -> None:
        """Let go of everything; libwebrtc ends the connection then."""
        for name in ("on_connection_state_change", "on_ice_candidate", "on_ice_gathering_change"):
            setattr(self._observer, name, None)
        self._channel.close(0)
        del self._connection, self._microphone, self._camera, self._transform, self._channel

    # On threads of libwebrtc.

    def _observe(self) -> rtc.PeerConnectionObserver:
        observer = rtc.PeerConnectionObserver()

        def state(now: rtc.PeerConnectionState) -> None:
            if now == rtc.PeerConnectionState.Connected:
                self.set_up.connected = self.set_up.connected or time.monotonic()
                self._loop.call_soon_threadsafe(self._connected.set)

        def gathering(now: rtc.IceGatheringState) -> None:
            if now == rtc.IceGatheringState.Complete:
                self._loop.call_soon_threadsafe(self._gathered.set)

        def candidate(one: rtc.IceCandidate) -> None:
            self._candidates.append((one.sdp_mid or "", one.candidate))

        observer.on_connection_state_change = state
        observer.on_ice_gathering_change = gathering
        observer.on_ice_candidate = candidate
        return observer

    def _note(self, frame: rtc.EncodedFrame) -> rtc.FrameAction:
        self._arrived.append((time.monotonic(), frame.timestamp, len(frame.data)))
        return rtc.FrameAction.Drop

    def _feedback(self, feedback: Any) -> None:
        if isinstance(feedback, rtc.KeyFrameRequest):
            self._picture = 0  # which is a key picture
