"""One call's media by short ways: what is hooked where, and when."""

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import aioice
from aiortc import RTCDtlsTransport, RTCPeerConnection, RTCRtpReceiver, RTCRtpSender

from ...codecs import decoder_for, libopus
from ...config import CameraConfig, RtcConfig
from ...receiver import AudioReceiver
from ..audio import AudioInput, AudioOutput
from ..backend import Leg, LegHandler
from ..clock import MediaClock
from ..stats import PeerStats
from .beat import Beat
from .camera import VideoStream, observe_reports
from .decode import DecodeThread
from .ice import keep_consent
from .inbound import AudioStream
from .outbound import Voice
from .transport import Transport, take_packets

MAX_OVERRUN = 65_536
"Bytes of unfinished messages beyond the window that the other side was told: what is on its way then."


class LeanLeg(Leg):
    """See `Leg`. `attach` has an ICE connection use what calls share, before it gathers, if it answers."""

    def __init__(
        self,
        config: RtcConfig,
        camera: CameraConfig,
        connection: RTCPeerConnection,
        handler: LegHandler,
        beat: Beat,
        decoding: DecodeThread,
        attach: Callable[[aioice.Connection, bool], None],
    ) -> None:
        self._config = config
        self._camera = camera
        self._connection = connection
        self._handler = handler
        self._beat = beat
        self._decoding = decoding
        self._attach = attach
        self._loop = asyncio.get_running_loop()
        self.output = AudioOutput(handler.pull_audio)
        self.heard = 0.0
        self.prompt = True
        self.dead_after_s = config.dead_peer_s
        self._transports: dict[RTCDtlsTransport, Transport] = {}
        self._attached: set[aioice.Connection] = set()
        self._audio: AudioInput | None = None
        self._stream: AudioStream | None = None
        self._clock_rate = 48_000
        "Of the voices' RTP."
        self._sender: RTCRtpSender | None = None
        self._voice: Voice | None = None
        "None where aiortc encodes and sends, by `output`: for G.711."
        self._cameras: list[VideoStream] = []
        self._clocks: list[MediaClock] = []
        self._fps = camera.fps

    def send_audio(self, sender: RTCRtpSender) -> None:
        self._sender = sender
        run = sender._run_rtp

        async def run_lean(codec: Any) -> None:
            await (run(codec) if self._voice is None else self._voice.run(codec))

        vars(sender)["_run_rtp"] = run_lean

    def prepare(self) -> None:
        for dtls in self._dtls():
            connection = dtls.transport._connection
            if connection not in self._attached:
                self._attached.add(connection)
                keep_consent(connection, lambda: self.heard)
                self._attach(connection, self._connection.remoteDescription is not None)

    def gathered(self) -> None:
        for dtls in self._dtls():
            self._transport_of(dtls).hook()

    def take_audio(self, receiver: RTCRtpReceiver, codec: str) -> None:
        if self._audio is not None:
            return
        decoder = decoder_for(codec)
        self._clock_rate = decoder.clock_rate
        self._audio = AudioInput(AudioReceiver(decoder, self._config), self._handler.receive_audio)
        self._stream = AudioStream(receiver, self._audio)
        take_packets(receiver, self._stream, self._transport_of)
        observe_reports(receiver, self._on_audio_report)
        if codec.lower() == "opus" and libopus() is not None and self._sender is not None:
            self._voice = Voice(self._config, self._sender, self._handler.pull_audio, self._transport_of)

    def take_track(self, receiver: RTCRtpReceiver) -> None:
        if receiver.track.kind != "video":
            return
        clock = MediaClock(self._position_of)
        self._clocks.append(clock)
        camera = VideoStream(
            receiver,
            self._camera,
            self._decoding,
            self._transport_of,
            clock,
            self._position,
            self._handler.wants_frame,
            self._handler.receive_frame,
            partial(self._handler.source_of, receiver),
        )
        camera.want(self._fps)
        self._cameras.append(camera)
        observe_reports(receiver, partial(clock.receive_report, "video"))
        take_packets(receiver, camera, self._transport_of)

    def want_video(self, fps: float) -> None:
        self._fps = fps
        for camera in self._cameras:
            camera.want(fps)

    def start(self) -> None:
        self.heard = self._loop.time()
        if self._audio is not None:
            self._audio.start()
        if self._voice is not None:
            self._voice.start(self._beat, lambda: self._handler.fail("error"))
        else:
            self._handler.spawn(self.output.play_unheard())

    def is_flooded(self) -> bool:
        """Tell it by the window that was announced: aiortc keeps what goes beyond, and looks through it."""
        sctp = self._connection.sctp
        return sctp is not None and sctp._advertised_rwnd < -MAX_OVERRUN

    def stats(self) -> PeerStats:
        sent: dict[str, Any] = {} if self._sender is None else vars(self._sender)
        told = sent.get("_RTCRtpSender__stats", {}).values()
        remote = next((each for each in told if each.type == "remote-inbound-rtp"), None)
        rtt_s = sent.get("_RTCRtpSender__rtt")
        carried = [vars(dtls) for dtls in self._transports]
        skipped = self.output.skipped if self._voice is None else self._voice.skipped
        received = {} if self._audio is None else self._audio.stats()
        if self._stream is not None:
            received["packets_malformed"] += self._stream.malformed
            received["jitter_ms"] = self._stream.jitter_ms
        return PeerStats(
            **received,
            packets_sent=sent.get("_RTCRtpSender__packet_count", 0),
            blocks_skipped=skipped,
            rtt_ms=None if rtt_s is None else max(0.0, rtt_s * 1000),
            remote_lost=None if remote is None else remote.packetsLost,
            remote_jitter_ms=None if remote is None else remote.jitter * 1000 / self._clock_rate,
            bytes_in=sum(each["_RTCDtlsTransport__rx_bytes"] for each in carried),
            bytes_out=sum(each["_RTCDtlsTransport__tx_bytes"] for each in carried),
            undecryptable=sum(each.undecryptable for each in self._transports.values()),
            frames_wanted=sum(camera.wanted for camera in self._cameras),
            frames_decoded=sum(camera.decoded for camera in self._cameras),
            frames_dropped=sum(camera.dropped for camera in self._cameras),
        )

    def close(self) -> None:
        if self._audio is not None:
            self._audio.close()
        if self._voice is not None:
            self._voice.close()
        for camera in self._cameras:
            camera.close()

    def _transport_of(self, dtls: RTCDtlsTransport) -> Transport:
        transport = self._transports.get(dtls)
        if transport is None:
            transport = self._transports[dtls] = Transport(
                dtls, self._on_datagram, lambda: self._handler.fail("error")
            )
        return transport

    def _dtls(self) -> Iterator[RTCDtlsTransport]:
        for transceiver in self._connection.getTransceivers():
            yield transceiver.receiver.transport
        if self._connection.sctp is not None:
            yield self._connection.sctp.transport

    def _on_datagram(self) -> None:
        self.heard = self._loop.time()

    def _position(self) -> int:
        return 0 if self._audio is None else self._audio.position

    def _position_of(self, timestamp: int, later_s: float) -> int | None:
        return None if self._audio is None else self._audio.position_of(timestamp, later_s)

    def _on_audio_report(self, ntp: int, rtp: int) -> None:
        for clock in self._clocks:
            clock.receive_report("audio", ntp, rtp)
