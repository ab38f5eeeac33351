import asyncio
import gc
import re
import socket
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import cast

import aioice.ice
import av
import numpy as np
import pytest
import wires
from aiortc import RTCDataChannel, RTCPeerConnection
from aiortc.mediastreams import AudioStreamTrack
from hypothesis import given, settings
from hypothesis import strategies as st
from wires import (
    Handler,
    Metronome,
    StockListener,
    answered,
    call,
    connect,
    is_rtp,
    lose,
    negotiate,
    on_both_backends,
    picture,
    until,
)

from visavis.audio import BLOCK, RATE, Pcm, level_dbfs
from visavis.config import RtcConfig
from visavis.errors import CallError, SignallingError
from visavis.rtc import Media
from visavis.rtc.camera import PictureTrack
from visavis.rtc.link import WATCH_S

pytestmark = pytest.mark.loopback

CHROMIUM = (Path(__file__).parents[1] / "golden" / "offer_chromium.sdp").read_text()


@pytest.fixture(autouse=True)
async def all_ends() -> AsyncIterator[None]:
    """No test leaves a task or a decoder thread behind."""
    before = asyncio.all_tasks()
    yield
    before.add(cast("asyncio.Task[None]", asyncio.current_task()))
    await until(lambda: not asyncio.all_tasks() - before, f"the end of {asyncio.all_tasks() - before}")
    await until(lambda: not decoders(), "the end of all decoder threads")


@pytest.fixture
async def media() -> AsyncIterator[Media]:
    async with Media(RtcConfig()) as media:
        yield media


def decoders() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.endswith("-decoder")]


@on_both_backends
async def test_both_sides_hear_each_other_without_a_gap_and_exchange_messages(config: RtcConfig) -> None:
    caller, callee = Handler(hertz=700), Handler(hertz=400)
    async with call(caller, callee, config) as (out, into):
        out.send_message("hello")
        into.send_message("welcome")
        for ear in (caller, callee):
            await until(lambda ear=ear: len(ear.audio) >= 100, "two seconds of audio")
            await until(lambda ear=ear: ear.messages, "a message")
        assert (caller.pitch, callee.pitch) == (400, 700)
        assert all(len(pcm) == BLOCK for pcm in caller.audio + callee.audio)
        for ear, mouth in ((caller, into), (callee, out)):
            quiet = sum(level_dbfs(pcm) < -20 for pcm in ear.audio[1:])  # codecs fade in
            assert quiet <= mouth.stats().blocks_skipped  # a busy machine may make the sender late
        assert (caller.messages, callee.messages) == (["welcome"], ["hello"])
        assert (caller.channels, callee.channels, caller.connections, callee.connections) == (1, 1, 1, 1)
    assert caller.reasons == []


@on_both_backends
async def test_a_caller_that_hangs_up_ends_the_call(config: RtcConfig) -> None:
    callee = Handler()
    async with call(Handler(), callee, config) as (out, into):
        await out.aclose()
        await until(lambda: callee.reasons, "the end")
        await into.aclose()
        await into.aclose()
    assert callee.reasons == ["remote"]


async def test_lost_packets_leave_no_delay_behind_where_the_stock_buffer_does(media: Media) -> None:
    """One packet in a hundred is lost; the stock receiver is the control that this matters at all."""

    def network() -> tuple[Callable[[bytes], bool], list[int]]:
        sent: list[int] = []

        def drops(datagram: bytes) -> bool:
            if not is_rtp(datagram):
                return False
            sent.append(len(sent))
            return sent[-1] % 100 == 50

        return drops, sent

    stock, speaker = StockListener(), Metronome()
    control = media.caller(speaker)
    caller, callee = Metronome(), Metronome()
    ears = ((callee, caller), (stock.ear, speaker))
    try:
        await control.accept(await stock.answer(await control.offer()))
        async with call(caller, callee) as (out, _):
            await until(lambda: all(len(ear.heard) >= 6 for ear, _ in ears), "strikes without loss")
            before = [ear.delay_s(mouth) for ear, mouth in ears]
            counts = []
            for sender in (out, control):
                drops, sent = network()
                lose(sender, drops)
                counts.append(sent)
            await until(lambda: all(len(sent) > 160 for sent in counts), "two losses")
            marks = [len(ear.heard) for ear, _ in ears]
            await until(
                lambda: all(len(ear.heard) >= mark + 4 for (ear, _), mark in zip(ears, marks, strict=True)),
                "strikes after the losses",
            )
            ours, theirs = (ear.delay_s(m) - b for (ear, m), b in zip(ears, before, strict=True))
    finally:
        await control.aclose()
        await stock.aclose()
    assert theirs > 0.1
    assert ours < 0.05


@on_both_backends
async def test_the_camera_is_sampled_by_media_time_and_converted_only_when_kept(config: RtcConfig) -> None:
    callee = Handler()
    async with call(Handler(), callee, config, next_picture=picture, fps=10):
        await until(lambda: len(callee.frames) >= 4, "four pictures")
    places = [frame.at for frame in callee.frames]
    assert all(RATE // 2 <= later - at <= RATE for at, later in pairwise(places))
    assert len(callee.asked) >= 3 * len(places)
    assert all(frame.jpeg.startswith(b"\xff\xd8") for frame in callee.frames)
    assert {(frame.width, frame.height) for frame in callee.frames} == {(320, 180)}


async def test_a_caller_with_neither_camera_nor_channel_is_heard() -> None:
    client, callee = RTCPeerConnection(), Handler(hertz=400)
    client.addTrack(AudioStreamTrack())
    async with answered(client, callee) as peer:
        await until(lambda: len(callee.audio) >= 50, "audio")
        peer.send_message("nobody reads this")
    assert (callee.channels, callee.frames) == (0, [])
    assert peer.stats().messages_dropped == 0


async def test_a_caller_that_opens_no_channel_gets_one() -> None:
    client, callee = RTCPeerConnection(), Handler()
    client.addTrack(AudioStreamTrack())
    client.createDataChannel("elsewhere", negotiated=True, id=100)  # negotiates SCTP, announces no channel
    offered: list[RTCDataChannel] = []
    received: list[str] = []
    client.on("datachannel", offered.append)
    async with answered(client, callee) as peer:
        peer.send_message("early")
        await until(lambda: offered, "a channel")
        offered[0].on("message", received.append)
        await until(lambda: callee.channels, "the channel to open")
        peer.send_message("hello")
        await until(lambda: "hello" in received, "a message")
    assert offered[0].label == "oai-events"


@on_both_backends
async def test_a_camera_can_be_added_muted_and_shown_again(config: RtcConfig) -> None:
    client, callee = RTCPeerConnection(), Handler()
    client.addTrack(AudioStreamTrack())
    async with answered(client, callee, config) as peer:
        camera = client.addTransceiver(PictureTrack(picture, 10), "sendonly")
        await negotiate(client, peer)
        await until(lambda: len(callee.frames) >= 2, "pictures of the new camera")
        camera.direction = "inactive"
        await negotiate(client, peer)
        asked = -1
        while asked != len(callee.asked):  # what is on its way still arrives
            asked = len(callee.asked)
            length = len(callee.audio)
            await until(lambda: len(callee.audio) >= length + 25, "half a second of audio")  # noqa: B023
        camera.direction = "sendonly"
        await negotiate(client, peer)
        shown = len(callee.frames)
        await until(lambda: len(callee.frames) > shown, "pictures again")
    assert callee.connections == 1


@on_both_backends
async def test_a_caller_that_only_listens_sees_time_pass_as_silence(config: RtcConfig) -> None:
    client, callee = RTCPeerConnection(), Handler(hertz=400)
    client.addTransceiver("audio", "recvonly")
    async with answered(client, callee, config):
        await until(lambda: len(callee.audio) >= 25, "half a second of silence")
        await until(lambda: callee.pulled >= 50, "a second of our voice")
    assert not any(pcm.any() for pcm in callee.audio)


@on_both_backends
async def test_for_a_caller_that_only_speaks_our_voice_still_passes(config: RtcConfig) -> None:
    client, callee = RTCPeerConnection(), Handler(hertz=400)
    client.addTransceiver(AudioStreamTrack(), "sendonly")
    async with answered(client, callee, config):
        await until(lambda: callee.pulled >= 50, "a second of our voice")
        await until(lambda: len(callee.audio) >= 50, "a second of theirs")


@on_both_backends
@pytest.mark.parametrize("codec", ["PCMU", "PCMA"])
async def test_a_caller_without_opus_is_heard_and_hears(codec: str, config: RtcConfig, media: Media) -> None:
    client, callee = RTCPeerConnection(), Handler(hertz=400)
    voice = Handler(hertz=700)
    out = media.caller(voice)
    transceiver = client.addTransceiver(out._link.leg.output)
    codecs = type(transceiver.receiver).getCapabilities("audio")
    assert codecs is not None
    transceiver.setCodecPreferences([c for c in codecs.codecs if c.mimeType == f"audio/{codec}"])
    ear = StockListener()
    client.on("track", ear.listen)
    async with answered(client, callee, config):
        await until(lambda: len(callee.audio) >= 100, "two seconds of audio")
        assert callee.pitch == pytest.approx(700, abs=2)
        await until(lambda: ear.ear.heard, "our voice")
    await out.aclose()
    await ear.aclose()


async def test_a_caller_that_vanishes_is_noticed() -> None:
    assert RtcConfig().dead_peer_s + WATCH_S < 4
    callee = Handler()
    async with call(Handler(), callee, replace(RtcConfig(), dead_peer_s=1.5)) as (out, into):
        lose(out, lambda datagram: True)
        await until(lambda: callee.reasons, "the end")
        into.send_message("too late")
    assert callee.reasons == ["dead"]


async def test_a_caller_that_is_only_quiet_is_kept() -> None:
    client, callee = RTCPeerConnection(), Handler()
    client.addTransceiver("audio", "recvonly")
    async with answered(client, callee, replace(RtcConfig(), dead_peer_s=2.5)):
        lose(client, is_rtp)
        await until(lambda: len(callee.audio) >= 200, "four seconds of silence")
        assert callee.reasons == []


async def test_a_message_without_end_ends_the_call() -> None:
    caller, callee = Handler(), Handler()
    async with call(caller, callee) as (out, _):
        await until(lambda: callee.channels, "the channel")
        sctp = out._link.connection.sctp
        assert sctp is not None
        sctp._remote_max_message_size = 2**30  # who means harm asks for no leave
        out.send_message("x" * 10_000_000)
        await until(lambda: callee.reasons, "the end")
        assert callee.reasons == ["flooded"]
        assert callee.messages == []


async def test_a_caller_that_never_connects_is_given_up() -> None:
    handler = Handler()
    async with Media(replace(RtcConfig(), connect_s=0.5)) as media:
        peer = media.peer(handler)
        await peer.answer(CHROMIUM)
        await until(lambda: handler.reasons, "the end")
        await peer.aclose()
    assert (handler.reasons, handler.connections) == (["timeout"], 0)


async def test_a_wrong_fingerprint_fails_the_call(media: Media) -> None:
    caller, callee = Handler(), Handler()
    out, into = media.caller(caller), media.peer(callee)
    forged = re.sub(r"(a=fingerprint:sha-\d+ )..", r"\g<1>00", await out.offer())
    await out.accept(await into.answer(forged))
    await until(lambda: callee.reasons, "the end")
    await out.aclose()
    await into.aclose()
    assert callee.reasons == ["failed"]


@on_both_backends
async def test_a_fault_of_the_handler_ends_its_own_call(config: RtcConfig) -> None:
    class Faulty(Handler):
        def receive_audio(self, pcm: Pcm) -> None:
            raise ZeroDivisionError

    callee = Faulty()
    async with call(Handler(), callee, config):
        await until(lambda: callee.reasons, "the end")
    assert callee.reasons == ["error"]


async def test_a_picture_lost_for_good_does_not_freeze_the_camera() -> None:
    """At few packets a second aiortc alone would wait for minutes: 512 packets have to come."""
    callee = Handler()

    async def plain() -> av.VideoFrame:
        """A picture that fits in one packet."""
        return av.VideoFrame.from_ndarray(np.zeros((120, 160, 3), np.uint8), format="rgb24")

    async with call(Handler(), callee, next_picture=plain, fps=6) as (out, _):
        await until(lambda: len(callee.frames) >= 2, "pictures")
        video: list[int] = []

        def drops(datagram: bytes) -> bool:
            """Lose one packet of the camera, and whatever is sent again (another payload type)."""
            kind = datagram[1] & 127
            if not is_rtp(datagram) or kind == audio:
                return False
            video.append(kind)
            return len(video) == 1 or kind != video[0]

        audio = 96
        lose(out, drops)
        await until(lambda: len(video) > 1, "a loss")
        shown = len(callee.frames)
        await until(lambda: len(callee.frames) >= shown + 3, "pictures after the loss")


async def test_an_offer_that_is_refused_leaves_a_live_call_alone() -> None:
    caller, callee = Handler(hertz=700), Handler()
    async with call(caller, callee) as (out, into):
        with pytest.raises(SignallingError, match="v=0"):
            await into.answer("nonsense")
        offer = out._link.connection.localDescription.sdp
        with pytest.raises(SignallingError, match="restart") as caught:
            await into.answer(re.sub("(a=ice-ufrag:).*", r"\1other", offer))
        assert caught.value.status == 409
        heard = len(callee.audio)
        await until(lambda: len(callee.audio) >= heard + 50, "audio as before")
        assert callee.pitch == 700
    with pytest.raises(SignallingError, match="over"):
        await into.answer(offer)


@on_both_backends
async def test_candidates_that_come_after_the_offer_connect_the_call(config: RtcConfig) -> None:
    caller, callee = Handler(), Handler()
    async with Media(config) as media:
        out, into = media.caller(caller), media.peer(callee)
        with pytest.raises(SignallingError):  # there was no offer yet
            await into.add_candidates([])
        offer = await out.offer()
        candidates = re.findall("a=(candidate:.*)", offer)
        answer = await into.answer(bare(offer))
        await out.accept(bare(answer))
        await into.add_candidates([("0", text) for text in ["candidate:nonsense", *candidates, ""]])
        await until(lambda: caller.connections and callee.connections, "both connected")
        await out.aclose()
        await into.aclose()
        with pytest.raises(SignallingError, match="over"):
            await into.add_candidates([])


def bare(sdp: str) -> str:
    """A description whose candidates go another way."""
    return re.sub(r"a=(candidate:.*|end-of-candidates)\r\n", "", sdp)


@pytest.mark.parametrize("offer", ["", "v=0", "\0", CHROMIUM[:900], CHROMIUM.replace("m=audio", "m=image")])
async def test_a_bad_offer_is_refused_and_leaves_nothing(offer: str, media: Media) -> None:
    peer = media.peer(Handler())
    with pytest.raises(SignallingError):
        await peer.answer(offer)
    await peer.aclose()
    await peer.aclose()


async def test_a_call_closed_while_it_is_answered_leaves_nothing(media: Media) -> None:
    peer = media.peer(Handler())
    answering = asyncio.create_task(peer.answer(CHROMIUM))
    await asyncio.sleep(0)
    await peer.aclose()
    await asyncio.gather(answering, return_exceptions=True)
    with pytest.raises(SignallingError, match="over"):
        await peer.answer(CHROMIUM)


async def test_two_offers_at_once_are_answered_one_after_the_other(media: Media) -> None:
    peer = media.peer(Handler())
    first, second = await asyncio.gather(peer.answer(CHROMIUM), peer.answer(CHROMIUM))
    assert first.count("m=") == second.count("m=") == 3
    await peer.aclose()


lines = CHROMIUM.split("\n")


@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(lines) - 1), st.integers(0, 20)), min_size=1, max_size=4))
def test_a_damaged_offer_is_answered_or_refused(damage: list[tuple[int, int]]) -> None:
    damaged = list(lines)
    for line, length in damage:
        damaged[line] = damaged[line][:length]

    async def attempt() -> None:
        async with Media(RtcConfig()) as media:
            peer = media.peer(Handler())
            try:
                answer = await peer.answer("\n".join(damaged))
            except SignallingError:
                return
            finally:
                await peer.aclose()
            assert "m=audio" in answer

    asyncio.run(attempt())


async def test_an_answer_that_makes_no_sense_is_an_error_of_the_call(media: Media) -> None:
    out = media.caller(Handler())
    await out.offer()
    with pytest.raises(CallError, match="answer cannot be used"):
        await out.accept("nonsense")
    await out.aclose()


async def test_many_calls_leave_no_task_thread_or_socket(media: Media) -> None:
    def sockets() -> int:
        gc.collect()
        return sum(1 for each in gc.get_objects() if isinstance(each, socket.socket) and each.fileno() >= 0)

    before = sockets()
    for _ in range(3):
        calls = [(media.caller(Handler()), Handler()) for _ in range(5)]
        peers = [media.peer(handler) for _, handler in calls]
        await asyncio.gather(*(connect(out, into) for (out, _), into in zip(calls, peers, strict=True)))
        # Some are closed while they still connect, some when they talk.
        await until(lambda: any(handler.connections for _, handler in calls), "a connection")  # noqa: B023
        await asyncio.gather(*(peer.aclose() for peer in [*peers, *(out for out, _ in calls)]))
    await until(lambda: sockets() == before, "the end of all sockets")


async def test_without_any_network_the_loopback_interface_is_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aioice.ice, "get_host_addresses", lambda use_ipv4, use_ipv6: [])
    caller, callee = Handler(hertz=700), Handler()
    async with call(caller, callee):
        await until(lambda: len(callee.audio) >= 50, "audio")


def test_the_wires_know_media_from_the_rest() -> None:
    assert [wires.is_rtp(bytes([first, second])) for first, second in ((128, 111), (128, 200), (22, 0))] == [
        True,
        False,
        False,
    ]
