"""How a connection's media is carried: the seam between a call and aiortc, with two makes behind it.

`stock` is aiortc as it is documented, `lean` reaches into it. A `Backend` is a process's, a `Leg` a call's.
"""

from collections.abc import Coroutine
from typing import Any, Literal, Protocol

from aiortc import RTCPeerConnection, RTCRtpReceiver, RTCRtpSender

from ..audio import Pcm
from ..config import CameraConfig, RtcConfig
from ..frames import Frame, Source
from .audio import AudioOutput
from .stats import PeerStats

BackendName = Literal["lean", "stock"]

CloseReason = Literal["failed", "dead", "remote", "timeout", "flooded", "error"]
"Why a call ended: transport failed, no packets, hung up, never connected, too much sent, a fault of ours."


class LegHandler(Protocol):
    """What a leg reports to. Called on the event loop; none of it raises."""

    def pull_audio(self) -> Pcm:
        """Give the next 480 samples at 24 kHz to send."""
        ...

    def receive_audio(self, pcm: Pcm) -> None:
        """Take the next 480 samples at 24 kHz."""
        ...

    def source_of(self, receiver: RTCRtpReceiver) -> Source:
        """Tell what a video shows; it may change when the call is negotiated anew."""
        ...

    def wants_frame(self, at: int, source: Source) -> bool:
        """Tell whether the picture at this position of the audio clock (24 kHz) is to be converted."""
        ...

    def receive_frame(self, frame: Frame) -> None: ...

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run something for as long as the call lasts."""
        ...

    def fail(self, reason: CloseReason) -> None:
        """End the call."""
        ...


class Leg(Protocol):
    """The media of one connection, from the making of its transceivers to its end."""

    output: AudioOutput
    "Our voice: the track of the audio transceiver."
    heard: float
    "When the last packet of any kind came, in the loop's time; who watches may move it."
    prompt: bool
    "Whether `heard` is set by each packet at once."
    dead_after_s: float
    "Silence on the wire by which the other side is dead."

    def send_audio(self, sender: RTCRtpSender) -> None:
        """Send our voice by it; to be called before the connection is negotiated."""
        ...

    def prepare(self) -> None:
        """Look at the transports; to be called whenever candidates are about to be gathered."""
        ...

    def gathered(self) -> None:
        """Look at the sockets; to be called whenever candidates have been gathered."""
        ...

    def take_audio(self, receiver: RTCRtpReceiver, codec: str) -> None:
        """Make ready for the caller's voice, of the codec (as in SDP) that was negotiated."""
        ...

    def take_track(self, receiver: RTCRtpReceiver) -> None:
        """Take what a remote track brings, sound or pictures; to be called when it appears."""
        ...

    def want_video(self, fps: float) -> None:
        """Say how many pictures a second are wanted from now on; 0 is none."""
        ...

    def start(self) -> None:
        """Let the audio clock run and pull our voice: the connection is there."""
        ...

    def is_flooded(self) -> bool:
        """Tell whether the other side sends a message without end."""
        ...

    def stats(self) -> PeerStats: ...

    def close(self) -> None:
        """Hand nothing on any more, and end every timer. May be called again."""
        ...


class Backend(Protocol):
    name: BackendName

    async def open(self) -> None:
        """Get ready for calls. Raises ConfigError for settings that make them impossible."""
        ...

    def leg(
        self, config: RtcConfig, camera: CameraConfig, connection: RTCPeerConnection, handler: LegHandler
    ) -> Leg: ...

    async def aclose(self) -> None: ...
