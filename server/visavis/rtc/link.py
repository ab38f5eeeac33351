"""What both kinds of peer share: a connection with its audio, camera and channel, and an eye on its life."""

import asyncio
import enum
import logging
import time
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, Protocol

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
from ..frames import Frame, Source
from ..turn import with_credentials
from .backend import Backend, CloseReason, LegHandler
from .channel import LABEL, Channel
from .stats import PeerStats

logger = logging.getLogger(__name__)

WATCH_S = 0.25
"How often life is looked for."

HOLD_S = 0.4
"""Without a packet from who sends sound all the time: the network is out, and what would be said now would
not be heard. It waits. A radio that sleeps or hands over takes less."""

MANY = 3
"Packets of sound between two looks, of twelve: who sends nothing in silence has one then."

STEADY_LOOKS = 40
"With as many each time, who sends sends in silence, too: nobody speaks for ten seconds without a breath."

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

    def wants_frame(self, at: int, source: Source = "camera") -> bool:
        """Tell whether the picture at this position of the audio clock (24 kHz) is to be converted."""
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


class Link(LegHandler):
    """What both kinds of peer share. Made on a running loop; owns every task and timer it starts."""

    def __init__(
        self,
        config: RtcConfig,
        camera: CameraConfig,
        backend: Backend,
        handler: PeerHandler,
        label: str = LABEL,
    ) -> None:
        self.config = config
        self.handler = handler
        self.loop = asyncio.get_running_loop()
        self.connection = RTCPeerConnection(RTCConfiguration(iceServers=_ice_servers(config)))
        self.connection.on("connectionstatechange", self._on_state)
        self.connection.on("datachannel", self._on_channel)
        self.connection.on("track", self._on_track)
        self.state = State.NEW
        self.leg = backend.leg(config, camera, self.connection, self)
        self.screen: str | None = None
        "Name (a=mid) of the section that shows a screen."
        self.channel = Channel(self._on_message, self._on_channel_open, label)
        self._tasks: set[asyncio.Task[None]] = set()
        self._watch: asyncio.TimerHandle | None = None
        self._watched = 0.0
        self._voice = 0
        "Packets of sound by the last look."
        self._few = True
        "Hardly any came since the look before."
        self._steady_looks = 0
        self._since = 0.0
        "When the present state began."
        self._closing: asyncio.Task[None] | None = None
        self.negotiation = asyncio.Lock()
        "Held while descriptions change: aiortc can neither do two at once nor close in between."

    def join_videos(self) -> None:
        """Carry a screen where the camera is carried; to be called when an offer has been applied.

        aiortc (1.16) does not where both come in one offer: it moves the camera's bundled section to the
        transport of the voice, and leaves the screen at the one that it gives up.
        """
        videos = [each for each in self.connection.getTransceivers() if each.kind == "video"]
        for other in videos[1:]:
            other.receiver.setTransport(videos[0].receiver.transport)
            other.sender.setTransport(videos[0].receiver.transport)

    def watch(self) -> None:
        """Begin to look for life; to be called whenever candidates have been gathered."""
        self.leg.gathered()
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
        except Exception as error:  # aiortc stumbles over the remains of an offer that it stumbled over
            logger.warning("a peer connection closed with an error: %r", error)
        self.leg.output.stop()

    def stats(self) -> PeerStats:
        heard = self.leg.heard
        silent_s = self.loop.time() - heard if heard else 0.0
        return replace(
            self.leg.stats(),
            messages_dropped=self.channel.dropped,
            silent_ms=round(1000 * silent_s),
            said_since_ms=round(1000 * (min(silent_s, HOLD_S) if self._steady else silent_s)),
        )

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
        self.leg.close()

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
                self.leg.start()
                self._tell(self.handler.connected)
            case "failed":
                self.fail("failed")
            case "closed":
                self.fail("remote")

    def _on_channel(self, channel: RTCDataChannel) -> None:
        self.channel.adopt(channel)

    def _on_track(self, track: MediaStreamTrack) -> None:
        self.leg.take_track(next(r for r in self.connection.getReceivers() if r.track is track))

    def _on_message(self, text: str) -> None:
        self._tell(self.handler.receive_message, text)

    def _on_channel_open(self) -> None:
        self._tell(self.handler.channel_opened)

    # What the leg calls.

    def receive_audio(self, pcm: Pcm) -> None:
        self._tell(self.handler.receive_audio, pcm)

    def source_of(self, receiver: RTCRtpReceiver) -> Source:
        shown = next(t for t in self.connection.getTransceivers() if t.receiver is receiver)
        return "screen" if shown.mid is not None and shown.mid == self.screen else "camera"

    def wants_frame(self, at: int, source: Source) -> bool:
        return self.state is State.CONNECTED and self.handler.wants_frame(at, source)

    def receive_frame(self, frame: Frame) -> None:
        self._tell(self.handler.receive_frame, frame)

    def pull_audio(self) -> Pcm:
        if self.state is State.ENDED or (self._steady and self.loop.time() - self.leg.heard > HOLD_S):
            return _SILENCE
        try:
            return self.handler.pull_audio()
        except Exception:
            logger.exception("a call ends: its handler failed")
            self.fail("error")
            return _SILENCE

    # Life.

    def _look(self) -> None:
        now = self.loop.time()
        late = now - self._watched - WATCH_S
        if late > WATCH_S:  # the loop stood still, and packets wait unread: that is not the caller's silence
            self.leg.heard += late
        self._watched = now
        self._note_steadiness(now)
        if self.state is State.CONNECTING and now - self._since > self.config.connect_s:
            self.fail("timeout")
        elif self.state is State.CONNECTED and now - self.leg.heard > self.leg.dead_after_s:
            self.fail("dead")
        elif self.leg.is_flooded():
            self.fail("flooded")
        else:
            self._offer_channel(now)
            self._watch = self.loop.call_later(WATCH_S, self._look)

    def _note_steadiness(self, now: float) -> None:
        """See whether the other side sends sound all the time; while nothing comes, that is not seen."""
        voice = self.leg.stats().packets_received
        many, few = voice - self._voice >= MANY, self._few
        self._voice, self._few = voice, not many
        if many:
            self._steady_looks += 1
        elif few and now - self.leg.heard < WATCH_S:
            self._steady_looks = 0

    @property
    def _steady(self) -> bool:
        return self.leg.prompt and self._steady_looks >= STEADY_LOOKS

    def _offer_channel(self, now: float) -> None:
        if (
            self.state is State.CONNECTED
            and now - self._since > CHANNEL_PATIENCE_S
            and not self.channel.present
            and self.connection.sctp is not None
        ):
            self.channel.adopt(self.connection.createDataChannel(self.channel.label))


def _ice_servers(config: RtcConfig) -> list[RTCIceServer]:
    servers = [with_credentials(server, time.time(), config.turn_s) for server in config.ice_servers]
    return [RTCIceServer(list(each.urls), each.username, each.credential) for each in servers]
