import threading

import pytest
from aiortc import RTCBundlePolicy, RTCConfiguration, RTCPeerConnection, RTCRtpSender
from aiortc.mediastreams import AudioStreamTrack
from wires import Handler, answered, call, is_rtp, lose, negotiate, picture, until

from visavis.config import RtcConfig
from visavis.rtc import Media
from visavis.rtc.camera import PictureTrack
from visavis.rtc.lean.leg import LeanLeg

pytestmark = pytest.mark.loopback


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "visavis-video"]


async def listen(handler: Handler, blocks: int) -> None:
    heard = len(handler.audio)
    await until(lambda: len(handler.audio) >= heard + blocks, "audio")


async def test_what_is_not_wanted_is_not_decoded_and_a_key_frame_comes_when_it_is_wanted_again() -> None:
    callee = Handler()
    async with call(Handler(), callee, next_picture=picture, fps=10) as (_, into):
        await until(lambda: callee.frames, "a picture")
        into.want_video(0)
        decoded = into.stats().frames_decoded
        await listen(callee, 50)
        assert into.stats().frames_decoded <= decoded + 1  # one may have been at work
        shown = len(callee.frames)
        into.want_video(2)
        await until(lambda: len(callee.frames) > shown, "a picture again")
        assert into.stats().frames_wanted >= shown + 1
        assert threads()
    assert not threads()


async def test_a_camera_switched_off_in_advance_is_not_decoded_until_it_is_wanted() -> None:
    client, callee = RTCPeerConnection(), Handler()
    client.addTrack(AudioStreamTrack())
    client.addTrack(PictureTrack(picture, 10))
    async with Media(RtcConfig()) as media:
        peer = media.peer(callee)
        try:
            peer.want_video(0)
            await negotiate(client, peer)
            await listen(callee, 50)
            assert (peer.stats().frames_decoded, callee.frames) == (0, [])
            peer.want_video(2)
            await until(lambda: callee.frames, "a picture")
        finally:
            await client.close()
            await peer.aclose()


async def test_h264_is_seen_and_one_lost_packet_does_not_freeze_it() -> None:
    client, callee = RTCPeerConnection(), Handler()
    client.addTrack(AudioStreamTrack())
    transceiver = client.addTransceiver(PictureTrack(picture, 10), "sendonly")
    capabilities = RTCRtpSender.getCapabilities("video")
    assert capabilities is not None
    transceiver.setCodecPreferences([c for c in capabilities.codecs if c.mimeType == "video/H264"])
    async with answered(client, callee):
        await until(lambda: len(callee.frames) >= 2, "pictures")
        lost: list[bytes] = []

        def drops(datagram: bytes) -> bool:
            if not is_rtp(datagram) or datagram[1] & 127 == 96 or lost:
                return False
            lost.append(datagram)
            return True

        lose(client, drops)
        await until(lambda: lost, "a loss")
        shown = len(callee.frames)
        await until(lambda: len(callee.frames) >= shown + 3, "pictures after the loss")


async def test_sender_reports_of_both_streams_tell_when_a_picture_was_taken() -> None:
    callee = Handler()
    async with call(Handler(), callee, next_picture=picture, fps=10) as (_, into):
        leg = into._link.leg
        assert isinstance(leg, LeanLeg)
        await until(lambda: leg._clocks and len(leg._clocks[0]._reports) == 2, "sender reports")
        shown = len(callee.frames)
        await until(lambda: len(callee.frames) >= shown + 2, "pictures")
        now = len(callee.audio) * 480
        assert abs(callee.frames[-1].at - now) < 24_000


async def test_the_second_video_is_a_screen() -> None:
    bundled = RTCConfiguration(bundlePolicy=RTCBundlePolicy.MAX_BUNDLE)
    client, callee = RTCPeerConnection(bundled), Handler()
    client.addTrack(AudioStreamTrack())
    client.addTrack(PictureTrack(picture, 10))
    client.addTrack(PictureTrack(picture, 5))
    async with answered(client, callee):
        for source in ("camera", "screen"):
            await until(lambda: source in {frame.source for frame in callee.frames}, source)  # noqa: B023
