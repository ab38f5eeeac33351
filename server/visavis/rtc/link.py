"""What both kinds of peer share: a connection with its audio, camera and channel, and an eye on its life."""

import asyncio
import enum
import logging
from collections.abc import Callable, Coroutine
from dataclasses import asdict
from typing import Any, Literal, Protocol

import numpy as np
from aiortc import (
    MediaStreamTrack,
    RTCConfiguration,
    RTCDataChannel,
    RTCIceServer,
    RTCPeerConnection,
    RTCRtpReceiver,
)

from ..audio import BLOCK, Pcm
from ..config import CameraConfig, RtcConfig
from ..frames import Frame
from ..receiver import AudioReceiver
from . import hooks
from .audio import AudioInput, AudioOutput
from .camera import CameraInput
from .channel import LABEL, Channel

logger = logging.getLogger(__name__)

CloseReason = Literal["failed", "dead", "remote", "timeout", "flooded", "error"]
"Why a call ended: transport failed, no packets, hung up, never connected, too much sent, a fault of ours."

WATCH_S = 0.25
"How often life is looked for."

CHANNEL_PATIENCE_S = 2.0
"A caller that negotiated a data channel and opens none by then gets one opened by us."

CLOSE_S = 5.0
"The most that closing waits for aiortc."

_SILENCE: Pcm = np.zeros(BLOCK, np.int16)


class PeerHandler(Protocol):
    """What a peer reports to. Called on the event loop; nothing here may block.

    An exception ends the call with `closed("error")`.
    """

    def connected(self) -> None:
        """Media flows from now on."""
        ...

    def receive_audio(self, pcm: Pcm) -> None:
        """Take the next 480 samples at 24 kHz: continuous from `connected` on, silence included."""
        ...

    def wants_frame(self, at: int) -> bool:
        """Tell whether the camera picture at this position of the audio clock (24 kHz) is to be converted."""
        ...

    def receive_frame(self, frame: Frame) -> None: ...

    def pull_audio(self) -> Pcm:
        """Give the next 480 samples at 24 kHz to send; asked every 20 ms."""
        ...

    def channel_opened(self) -> None: ...

    def receive_message(self, text: str) -> None: ...

    def closed(self, reason: CloseReason) -> None:
        """The call is over; `aclose` is still due. Told once, as the last thing, and not after `aclose`."""
        ...


class State(enum.Enum):
    NEW = "new"
    CONNECTING = "connecting"
    CONNECTED = "connected"
    ENDED = "ended"


class Link:
    """What both kinds of peer share. Made on a running loop; owns every task and timer it starts."""

    def __init__(self, config: RtcConfig, camera: CameraConfig, handler: PeerHandler) -> None:
        hooks.prepare()
        self.config = config
        self.handler = handler
        self.loop = asyncio.get_running_loop()
        self.connection = RTCPeerConnection(RTCConfiguration(iceServers=_ice_servers(config)))
        self.connection.on("connectionstatechange", self._on_state)
        self.connection.on("datachannel", self._on_channel)
        self.connection.on("track", self._on_track)
        self.state = State.NEW
        self.output = AudioOutput(self._pull)
        self.input: AudioInput | None = None
        self.channel = Channel(self._on_message, self._on_channel_open)
        self.sends_audio = True
        self._camera = camera
        self._guards: list[hooks.VideoGuard] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._watch: asyncio.TimerHandle | None = None
        self._watched = 0.0
        self._heard = 0.0
        "When the last packet of any kind came."
        self._since = 0.0
        "When the present state began."
        self._closing: asyncio.Task[None] | None = None
        self.negotiation = asyncio.Lock()
        "Held while descriptions change: aiortc can neither do two at once nor close in between."

    def listen(self, receiver: RTCRtpReceiver, codec: str) -> None:
        """Take the packets of the audio receiver, whose codec was negotiated."""
        if self.input is None:
            self.output.use(codec)
            self.input = AudioInput(AudioReceiver(codec, self.config), self._on_block)
            hooks.intercept_rtp(receiver, self.input.receive)

    def watch(self) -> None:
        """Begin to look for life; to be called whenever candidates have been gathered."""
        hooks.observe_datagrams(self.connection, self._on_datagram)
        if self.state is State.NEW:
            self._set_state(State.CONNECTING)
            self._watched = self.loop.time()
            self._watch = self.loop.call_later(WATCH_S, self._look)

    def fail(self, reason: CloseReason) -> None:
        if self.state is State.ENDED:
            return
        self._set_state(State.ENDED)
        self._quieten()
        self.handler.closed(reason)

    async def aclose(self) -> None:
        """End the call; waits until nothing of it is left, a few seconds at most. May be called again."""
        if self._closing is None:
            if self.state is not State.ENDED:
                self._set_state(State.ENDED)
            self._quieten()
            self._closing = self.loop.create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        try:
            async with asyncio.timeout(CLOSE_S), self.negotiation:
                await self.connection.close()
        except TimeoutError:
            logger.error("a peer connection did not close within %.0f s", CLOSE_S)
        self.output.stop()

    def counts(self) -> dict[str, int]:
        packets = asdict(self.input.counts) if self.input is not None else {}
        return {f"packets_{name}": count for name, count in packets.items()} | {
            "blocks_skipped": self.output.skipped,
            "messages_dropped": self.channel.dropped,
            "pictures_dropped": sum(guard.dropped for guard in self._guards),
        }

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run something for as long as the call lasts."""
        if self.state is State.ENDED:
            work.close()
            return
        task = self.loop.create_task(self._guard(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _guard(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception:
            logger.exception("a call ends: its media failed")
            self.fail("error")

    def _quieten(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
        if self.input is not None:
            self.input.close()

    def _set_state(self, state: State) -> None:
        logger.debug("peer %x: %s -> %s", id(self), self.state.value, state.value)
        self.state = state
        self._since = self.loop.time()

    def _tell(self, told: Callable[..., None], *what: object) -> None:
        """Tell the handler, unless the call is over; a fault of the handler ends the call."""
        if self.state is State.ENDED:
            return
        try:
            told(*what)
        except Exception:
            logger.exception("a call ends: its handler failed")
            self.fail("error")

    # What aiortc reports.

    def _on_state(self) -> None:
        match self.connection.connectionState:
            case "connected" if self.state is State.CONNECTING:
                self._set_state(State.CONNECTED)
                self._heard = self.loop.time()
                self._tell(self.handler.connected)
                if self.input is not None:
                    self.input.start()
                if not self.sends_audio:
                    self.spawn(self._discard_output())
            case "failed":
                self.fail("failed")
            case "closed":
                self.fail("remote")

    def _on_channel(self, channel: RTCDataChannel) -> None:
        self.channel.adopt(channel)

    def _on_track(self, track: MediaStreamTrack) -> None:
        if track.kind == "video":
            receiver = next(r for r in self.connection.getReceivers() if r.track is track)
            guard = hooks.VideoGuard(receiver, self.loop.time)
            self._guards.append(guard)
            camera = CameraInput(
                self._camera, self._position, self._wants, self._on_frame, guard.picture_seen
            )
            self.spawn(camera.run(track))

    def _on_datagram(self) -> None:
        self._heard = self.loop.time()

    def _on_block(self, pcm: Pcm) -> None:
        self._tell(self.handler.receive_audio, pcm)

    def _on_message(self, text: str) -> None:
        self._tell(self.handler.receive_message, text)

    def _on_channel_open(self) -> None:
        self._tell(self.handler.channel_opened)

    def _on_frame(self, frame: Frame) -> None:
        self._tell(self.handler.receive_frame, frame)

    def _wants(self, at: int) -> bool:
        return self.state is State.CONNECTED and self.handler.wants_frame(at)

    def _position(self) -> int:
        return self.input.position if self.input is not None else 0

    def _pull(self) -> Pcm:
        pulled: list[Pcm] = []
        self._tell(lambda: pulled.append(self.handler.pull_audio()))
        return pulled[0] if pulled else _SILENCE

    async def _discard_output(self) -> None:
        """Keep the beat for a caller who does not listen: what is played still counts as played."""
        while not self.sends_audio:
            await self.output.recv()

    # Life.

    def _look(self) -> None:
        now = self.loop.time()
        late = now - self._watched - WATCH_S
        if late > WATCH_S:  # the loop stood still, and packets wait unread: that is not the caller's silence
            self._heard += late
        self._watched = now
        if self.state is State.CONNECTING and now - self._since > self.config.connect_s:
            self.fail("timeout")
        elif self.state is State.CONNECTED and now - self._heard > self.config.dead_peer_s:
            self.fail("dead")
        elif hooks.is_flooded(self.connection):
            self.fail("flooded")
        else:
            self._offer_channel(now)
            self._watch = self.loop.call_later(WATCH_S, self._look)

    def _offer_channel(self, now: float) -> None:
        if (
            self.state is State.CONNECTED
            and now - self._since > CHANNEL_PATIENCE_S
            and not self.channel.present
            and self.connection.sctp is not None
        ):
            self.channel.adopt(self.connection.createDataChannel(LABEL))


def _ice_servers(config: RtcConfig) -> list[RTCIceServer]:
    return [
        RTCIceServer(urls=list(server.urls), username=server.username, credential=server.credential)
        for server in config.ice_servers
    ]
