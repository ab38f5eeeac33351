"""The two ends of a call: `Peer` answers an offer, `OutgoingPeer` makes one."""

from collections.abc import Awaitable, Callable

import av
from aiortc import (
    RTCRtpReceiver,
    RTCRtpTransceiver,
    RTCSessionDescription,
)

from ..config import CameraConfig, RtcConfig
from ..errors import CallError, SignallingError
from . import hooks, sdp
from .camera import PictureTrack
from .channel import LABEL
from .link import Link, PeerHandler, State


class Peer:
    """The answering side of a call. To be made on a running loop; `aclose` is due in any case."""

    def __init__(self, config: RtcConfig, camera: CameraConfig, handler: PeerHandler) -> None:
        self._link = Link(config, camera, handler)
        self._ice: tuple[str, str] | None = None

    async def answer(self, offer_sdp: str) -> str:
        """Accept an offer and give the answer, its candidates gathered.

        Called again it renegotiates: a camera may be added, muted and unmuted. Raises SignallingError (400)
        that names what is wrong with the offer; the call as it was before goes on.
        """
        offer = sdp.read_offer(offer_sdp)
        async with self._link.negotiation:
            return await self._answer(offer)

    async def _answer(self, offer: sdp.Offer) -> str:
        link = self._link
        if link.state is State.ENDED:
            raise SignallingError(409, "the call is over", code="call_ended")
        if self._ice not in (None, offer.ice):
            raise SignallingError(
                409,
                "ICE cannot be restarted within a call: start a new call",
                code="ice_restart",
                param="sdp",
            )
        try:
            transceiver = self._prepare(offer)
            await link.connection.setRemoteDescription(RTCSessionDescription(offer.sdp, "offer"))
            link.listen(transceiver.receiver, offer.audio_codec)
            await link.connection.setLocalDescription()
        except hooks.UnknownReleaseError:
            raise
        except Exception as error:  # aiortc raises whatever a description makes it trip over
            raise SignallingError(
                400, f"the offer cannot be accepted: {error}", code="invalid_sdp", param="sdp"
            ) from error
        self._ice = offer.ice
        answer = link.connection.localDescription.sdp
        link.sends_audio = sdp.direction(answer, "audio") in ("sendrecv", "sendonly")
        link.watch()
        return sdp.write_answer(answer, offer)

    def send_message(self, text: str) -> None:
        """Send on the data channel; kept until it opens, dropped and counted if nobody takes it."""
        self._link.channel.send(text)

    def counts(self) -> dict[str, int]:
        """Tell what went wrong on the way so far, and how many audio packets came; for metrics."""
        return self._link.counts()

    async def aclose(self) -> None:
        """End the call; waits until nothing of it is left, a few seconds at most. May be called again."""
        await self._link.aclose()

    def _prepare(self, offer: sdp.Offer) -> RTCRtpTransceiver:
        """Make the audio transceiver before the offer is applied, so that it takes the codec we want."""
        connection = self._link.connection
        for transceiver in connection.getTransceivers():
            if transceiver.kind == "audio":
                return transceiver
        transceiver = connection.addTransceiver(self._link.output, "sendrecv")
        _prefer(transceiver, offer.audio_codec)
        return transceiver


class OutgoingPeer:
    """The calling side. To be made on a running loop; `aclose` is due in any case."""

    def __init__(
        self,
        config: RtcConfig,
        handler: PeerHandler,
        next_picture: Callable[[], Awaitable[av.VideoFrame]] | None = None,
        fps: float = 12.0,
    ) -> None:
        """`next_picture` is asked `fps` times a second; None is a call without camera."""
        self._link = link = Link(config, CameraConfig(), handler)
        self._audio = link.connection.addTransceiver(link.output, "sendrecv")
        _prefer(self._audio, "opus")
        if next_picture is not None:
            link.connection.addTransceiver(PictureTrack(next_picture, fps), "sendonly")
        link.channel.adopt(link.connection.createDataChannel(LABEL))

    async def offer(self) -> str:
        """Give the offer, its candidates gathered."""
        async with self._link.negotiation:
            await self._link.connection.setLocalDescription()
            return self._link.connection.localDescription.sdp

    async def accept(self, answer_sdp: str) -> None:
        """Apply the answer; `PeerHandler.connected` follows. Raises CallError."""
        link = self._link
        try:
            answer = sdp.clean_answer(answer_sdp)
            link.listen(self._audio.receiver, "opus")
            link.watch()
            async with link.negotiation:
                await link.connection.setRemoteDescription(RTCSessionDescription(answer, "answer"))
        except Exception as error:  # aiortc raises whatever a description makes it trip over
            raise CallError(f"the server's answer cannot be used: {error}") from error
        link.sends_audio = sdp.direction(answer, "audio") in ("sendrecv", "recvonly")

    def send_message(self, text: str) -> None:
        """Send on the data channel; kept until it opens, dropped and counted if nobody takes it."""
        self._link.channel.send(text)

    def counts(self) -> dict[str, int]:
        """Tell what went wrong on the way so far, and how many audio packets came."""
        return self._link.counts()

    async def aclose(self) -> None:
        """End the call; waits until nothing of it is left, a few seconds at most. May be called again."""
        await self._link.aclose()


def _prefer(transceiver: RTCRtpTransceiver, codec: str) -> None:
    capabilities = RTCRtpReceiver.getCapabilities("audio")
    assert capabilities is not None
    mime_type = f"audio/{codec}".lower()
    transceiver.setCodecPreferences([c for c in capabilities.codecs if c.mimeType.lower() == mime_type])
