"""A call that costs a tenth of libwebrtc's: ICE and DTLS of aiortc, and packets that were made before.

For the crowd around the callers of libwebrtc: sixty of those need two cores, sixty of these a third of one.
What the server gets is the same: Opus with silence left out, VP8, sender reports. What it sends in return
is looked at as closely. Nothing is sent again, so it is for networks without loss.
"""

import asyncio
import random
import time
from collections.abc import Iterable
from contextlib import suppress
from fractions import Fraction

import av
import numpy as np
from aiortc import (
    RTCCertificate,
    RTCDtlsTransport,
    RTCIceGatherer,
    RTCIceTransport,
)
from aiortc.sdp import SessionDescription, candidate_to_sdp

from .arrivals import Arrivals
from .calls import CONNECT_S, CallFailed, SetUp, Signal
from .clips import BLOCK, RATE, Clip
from .film import Film
from .packets import RTP_CLOCK, Sender, Voice, asks_for_key_picture, sound, vp8

OPUS_BPS = 32_000
"Of libwebrtc for speech."
OPUS, VP8 = 111, 96
REPORT_S = 2.0


class Light:
    """What all light lines of a process share: the encoded sound, a certificate."""

    def __init__(self, clips: Iterable[Clip]) -> None:
        self.opus: dict[bytes, bytes] = {}
        for clip in clips:
            self.opus |= zip(clip.blocks, _encode(clip.blocks), strict=True)
        self.silence = _encode([bytes(2 * BLOCK)] * 20)[-1]
        self.certificate = RTCCertificate.generateCertificate()

    def line(self, film: Film | None = None) -> "LightLine":
        return LightLine(self, film)


class LightLine:
    """As `line.Line`."""

    def __init__(self, shared: Light, film: Film | None) -> None:
        self.arrivals = Arrivals()
        self.set_up = SetUp(time.monotonic())
        self._shared = shared
        self._film = film
        self._picture = self._pictures = 0
        self._gatherer = RTCIceGatherer(iceServers=[])
        self._ice = RTCIceTransport(self._gatherer)
        self._ice._connection.ice_controlling = True
        self._dtls = _Dtls(self._ice, shared.certificate)
        self._audio = Sender("audio", OPUS, random.getrandbits(32))
        self._video = Sender("video", VP8, random.getrandbits(32))
        self._voice: Voice | None = None
        self._reported = self._began = time.monotonic()
        self._closing: asyncio.Task[None] | None = None

    async def open(self, signal: Signal) -> None:
        """Call. Raises CallFailed."""
        await self._gatherer.gather()
        offer = self._offer()
        self.set_up.posted = time.monotonic()
        answer = await signal(offer)
        self.set_up.answered = time.monotonic()
        try:
            async with asyncio.timeout(CONNECT_S):
                await self._connect(SessionDescription.parse(answer))
        except TimeoutError:
            raise CallFailed(f"not connected within {CONNECT_S:.0f} s") from None
        except (ValueError, ConnectionError) as error:
            raise CallFailed(f"the answer is no use: {error}") from error
        self.set_up.connected = time.monotonic()
        self._voice = Voice(self._audio, self._shared.opus, self._shared.silence, dtx="usedtx=1" in answer)

    def say(self, block: bytes | None) -> None:
        if self._voice is None:
            return
        packet = self._voice.next(block)
        if packet is not None:
            self._dtls.send(packet)
        now = time.monotonic()
        if now - self._reported > REPORT_S:
            self._reported = now
            self._dtls.send(self._audio.report(time.time(), self._voice.timestamp))
            if self._film is not None:
                self._dtls.send(self._video.report(time.time(), self._video_time(now)))

    def show(self) -> None:
        assert self._film is not None
        if self._dtls.key_wanted:
            self._dtls.key_wanted = False
            self._picture = 0  # which is a key picture
        data, _ = self._film.pictures[self._picture]
        self._picture = (self._picture + 1) % len(self._film.pictures)
        self._pictures += 1
        for packet in vp8(self._video, data, self._pictures, self._video_time(time.monotonic())):
            self._dtls.send(packet)

    def poll(self) -> list[float]:
        arrived, self._dtls.arrived = self._dtls.arrived, []
        return [at for at, timestamp, size in arrived if self.arrivals.receive(at, timestamp, size)]

    def close(self) -> None:
        self._closing = asyncio.create_task(self._close())

    async def _close(self) -> None:
        with suppress(ConnectionError):
            await self._dtls.stop()
        await self._ice.stop()

    def _video_time(self, now: float) -> int:
        return round((now - self._began) * RTP_CLOCK["video"])

    async def _connect(self, answer: SessionDescription) -> None:
        media = answer.media[0]
        for candidate in media.ice_candidates:
            await self._ice.addRemoteCandidate(candidate)
        await self._ice.addRemoteCandidate(None)
        if media.ice is None or media.dtls is None:
            raise ValueError("no ICE or DTLS in it")
        await self._ice.start(media.ice)
        await self._dtls.start(media.dtls)
        if self._dtls.state != "connected":
            raise ConnectionError(f"DTLS is {self._dtls.state}")

    def _offer(self) -> str:
        ice, dtls = self._gatherer.getLocalParameters(), self._dtls.getLocalParameters()
        (sha256,) = [one.value for one in dtls.fingerprints if one.algorithm == "sha-256"]
        transport = ["c=IN IP4 0.0.0.0", f"a=ice-ufrag:{ice.usernameFragment}", f"a=ice-pwd:{ice.password}"]
        transport += [f"a=fingerprint:sha-256 {sha256}", "a=setup:actpass", "a=rtcp-mux"]
        candidates = [f"a=candidate:{candidate_to_sdp(one)}" for one in self._gatherer.getLocalCandidates()]
        transport += [*candidates, "a=end-of-candidates"]
        mids = "0" if self._film is None else "0 1"
        lines = ["v=0", "o=- 1 2 IN IP4 127.0.0.1", "s=-", "t=0 0", f"a=group:BUNDLE {mids}"]
        lines += [f"m=audio 9 UDP/TLS/RTP/SAVPF {OPUS}", *transport, "a=mid:0", "a=sendrecv"]
        lines += [f"a=rtpmap:{OPUS} opus/48000/2", f"a=fmtp:{OPUS} minptime=10;useinbandfec=1"]
        lines += [f"a=ssrc:{self._audio.ssrc} cname:light"]
        if self._film is not None:
            lines += [f"m=video 9 UDP/TLS/RTP/SAVPF {VP8}", *transport, "a=mid:1", "a=sendonly"]
            lines += [f"a=rtpmap:{VP8} VP8/90000", f"a=rtcp-fb:{VP8} nack pli", f"a=rtcp-fb:{VP8} goog-remb"]
            lines += [f"a=ssrc:{self._video.ssrc} cname:light"]
        return "\r\n".join([*lines, ""])


class _Dtls(RTCDtlsTransport):
    """Notes what comes instead of parsing and decoding it. Uses private names of aiortc 1.16."""

    def __init__(self, ice: RTCIceTransport, certificate: RTCCertificate) -> None:
        super().__init__(ice, [certificate])
        self.arrived: list[tuple[float, int, int]] = []
        self.key_wanted = False

    def send(self, packet: bytes) -> None:
        """Protect and send a packet at once."""
        if self.state != "connected":
            return
        is_rtcp = 192 <= packet[1] <= 223
        data = self._tx_srtp.protect_rtcp(packet) if is_rtcp else self._tx_srtp.protect(packet)
        sending = self.transport._send(data)
        with suppress(StopIteration, ConnectionError):
            sending.send(None)  # it does not wait for anything

    async def _handle_rtp_data(self, data: bytes, arrival_time_ms: int) -> None:
        self.arrived.append((time.monotonic(), *sound(data)))

    async def _handle_rtcp_data(self, data: bytes) -> None:
        self.key_wanted |= asks_for_key_picture(data)


def _encode(blocks: Iterable[bytes]) -> list[bytes]:
    """Encode blocks of 20 ms with Opus, a packet each."""
    encoder = av.CodecContext.create("libopus", "w")
    encoder.sample_rate, encoder.layout, encoder.format = RATE, "mono", "s16"
    encoder.bit_rate, encoder.time_base = OPUS_BPS, Fraction(1, RATE)
    encoder.options = {"application": "voip", "frame_duration": "20"}
    packets: list[bytes] = []
    number = 0
    for number, block in enumerate(blocks):
        frame = av.AudioFrame.from_ndarray(np.frombuffer(block, np.int16)[None, :], "s16", "mono")
        frame.sample_rate, frame.pts, frame.time_base = RATE, number * BLOCK, Fraction(1, RATE)
        packets += [bytes(packet) for packet in encoder.encode(frame)]
    packets += [bytes(packet) for packet in encoder.encode(None)]
    return packets[: number + 1]
