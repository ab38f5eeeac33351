"""The two ends of a call: `Peer` answers an offer, `OutgoingPeer` makes one."""

from collections.abc import Awaitable, Callable, Iterable

import av
from aiortc import (
    RTCRtpReceiver,
    RTCRtpTransceiver,
    RTCSessionDescription,
)

from ..config import CameraConfig, RtcConfig
from ..errors import CallError, SignallingError
from . import sdp
from .backend import Backend
from .camera import PictureTrack
from .channel import LABEL
from .link import Link, PeerHandler, State
from .stats import PeerStats


class Peer:
    """The answering side of a call, made by `Media.peer`; `aclose` is due in any case."""

    def __init__(
        self,
        config: RtcConfig,
        camera: CameraConfig,
        backend: Backend,
        handler: PeerHandler,
        label: str = LABEL,
    ) -> None:
        """`label` names the data channel that is spoken on if there are several, or opened if none is."""
        self._link = Link(config, camera, backend, handler, label)
        self._offer: sdp.Offer | None = None
        "The one that was answered last."
        self._candidates = 0
        "So many came after it."

    async def answer(self, offer_sdp: str) -> str:
        """Accept an offer and give the answer, its candidates gathered.

        Called again it renegotiates: camera and screen may be added, muted, unmuted and taken away. Raises
        SignallingError (400) that names what is wrong with the offer; the call as it was before goes on.
        """
        async with self._link.negotiation:
            return await self._answer(sdp.read_offer(offer_sdp, self._offer))

    async def _answer(self, offer: sdp.Offer) -> str:
        link = self._link
        if link.state is State.ENDED:
            raise _call_ended()
        if self._offer is not None and self._offer.ice != offer.ice:
            raise _ice_restart(409)
        try:
            transceiver = self._prepare(offer)
            link.screen = offer.screen
            await link.connection.setRemoteDescription(RTCSessionDescription(offer.sdp, "offer"))
            link.join_videos()
            link.leg.take_audio(transceiver.receiver, offer.audio_codec)
            link.leg.prepare()
            await link.connection.setLocalDescription()
        except Exception as error:  # aiortc raises whatever a description makes it trip over
            raise SignallingError(
                400, f"the offer cannot be accepted: {error}", code="invalid_sdp", param="sdp"
            ) from error
        self._offer = offer
        answer = link.connection.localDescription.sdp
        link.leg.output.is_sent = sdp.direction(answer, "audio") in ("sendrecv", "sendonly")
        link.watch()
        return sdp.write_answer(answer, offer)

    async def add_candidates(self, candidates: Iterable[tuple[str, str]], ufrag: str | None = None) -> None:
        """Take candidates that came after the offer: each with the name (a=mid) of its section, as in SDP.

        A name may be empty: of the first section. `ufrag` is the user name fragment that they belong to, if
        the caller says. Passed over are those that aiortc would stumble over, as in an offer, and more than
        an offer may have. Raises SignallingError: 409 if the call is over, 422 for a fragment that is not the
        call's, which restarts ICE.
        """
        async with self._link.negotiation:
            if self._link.state is State.ENDED or self._offer is None:
                raise _call_ended()
            if ufrag is not None and ufrag != self._offer.ice[0]:
                raise _ice_restart(422)
            for mid, text in candidates:
                candidate = sdp.read_candidate(text, mid or self._offer.first_mid)
                if candidate is not None and self._candidates < sdp.MAX_CANDIDATES:
                    self._candidates += 1
                    await self._link.connection.addIceCandidate(candidate)

    def send_message(self, text: str) -> None:
        """Send on the data channel; kept until it opens, dropped and counted if nobody takes it."""
        self._link.channel.send(text)

    def want_video(self, fps: float) -> None:
        """Say how many pictures a second are wanted from now on; 0 is none."""
        self._link.leg.want_video(fps)

    def stats(self) -> PeerStats:
        """Tell what became of the media so far."""
        return self._link.stats()

    async def aclose(self) -> None:
        """End the call; waits until nothing of it is left, a few seconds at most. May be called again."""
        await self._link.aclose()

    def _prepare(self, offer: sdp.Offer) -> RTCRtpTransceiver:
        """Make the audio transceiver before the offer is applied, so that it takes the codec we want."""
        connection = self._link.connection
        for transceiver in connection.getTransceivers():
            if transceiver.kind == "audio":
                return transceiver
        transceiver = connection.addTransceiver(self._link.leg.output, "sendrecv")
        self._link.leg.send_audio(transceiver.sender)
        _prefer(transceiver, offer.audio_codec)
        return transceiver


class OutgoingPeer:
    """The calling side, made by `Media.caller`; `aclose` is due in any case."""

    def __init__(
        self,
        config: RtcConfig,
        camera: CameraConfig,
        backend: Backend,
        handler: PeerHandler,
        next_picture: Callable[[], Awaitable[av.VideoFrame]] | None,
        fps: float,
    ) -> None:
        """`next_picture` is asked `fps` times a second; None is a call without camera."""
        self._link = link = Link(config, camera, backend, handler)
        self._audio = link.connection.addTransceiver(link.leg.output, "sendrecv")
        link.leg.send_audio(self._audio.sender)
        _prefer(self._audio, "opus")
        if next_picture is not None:
            link.connection.addTransceiver(PictureTrack(next_picture, fps), "sendonly")
        link.channel.adopt(link.connection.createDataChannel(link.channel.label))

    async def offer(self) -> str:
        """Give the offer, its candidates gathered."""
        async with self._link.negotiation:
            self._link.leg.prepare()
            await self._link.connection.setLocalDescription()
            return self._link.connection.localDescription.sdp

    async def accept(self, answer_sdp: str) -> None:
        """Apply the answer; `PeerHandler.connected` follows. Raises CallError."""
        link = self._link
        try:
            answer = sdp.clean_answer(answer_sdp)
            link.leg.take_audio(self._audio.receiver, "opus")
            link.watch()
            async with link.negotiation:
                await link.connection.setRemoteDescription(RTCSessionDescription(answer, "answer"))
        except Exception as error:  # aiortc raises whatever a description makes it trip over
            raise CallError(f"the server's answer cannot be used: {error}") from error
        link.leg.output.is_sent = sdp.direction(answer, "audio") in ("sendrecv", "recvonly")

    def send_message(self, text: str) -> None:
        """Send on the data channel; kept until it opens, dropped and counted if nobody takes it."""
        self._link.channel.send(text)

    def stats(self) -> PeerStats:
        """Tell what became of the media so far."""
        return self._link.stats()

    async def aclose(self) -> None:
        """End the call; waits until nothing of it is left, a few seconds at most. May be called again."""
        await self._link.aclose()


def _ice_restart(status: int) -> SignallingError:
    return SignallingError(
        status,
        "ICE cannot be restarted within a call: make a new one, which goes on from it by its token",
        code="ice_restart",
        param="sdp",
    )


def _call_ended() -> SignallingError:
    return SignallingError(409, "the call is over", code="call_ended")


def _prefer(transceiver: RTCRtpTransceiver, codec: str) -> None:
    capabilities = RTCRtpReceiver.getCapabilities("audio")
    assert capabilities is not None
    mime_type = f"audio/{codec}".lower()
    transceiver.setCodecPreferences([c for c in capabilities.codecs if c.mimeType.lower() == mime_type])
