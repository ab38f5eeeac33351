"""A caller's voice in and ours out: packets to blocks as they come, blocks to frames on a steady beat."""

import asyncio
import fractions
from collections.abc import Callable
from typing import Any

import av
from aiortc import MediaStreamTrack
from aiortc.mediastreams import MediaStreamError

from ..audio import BLOCK, RATE, Pcm
from ..receiver import AudioReceiver

BEAT_S = 0.02

MAX_LATE_S = 0.2
"Blocks later than this are skipped: sent in a burst they would stay in the listener's buffer as delay."

_PCM_TIME = fractions.Fraction(1, RATE)


class AudioInput:
    """Drives an `AudioReceiver` with the loop's clock and hands its blocks on."""

    def __init__(self, receiver: AudioReceiver, on_block: Callable[[Pcm], None]) -> None:
        self._receiver = receiver
        self._on_block = on_block
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    @property
    def position(self) -> int:
        """Samples handed out, at 24 kHz."""
        return self._receiver.position

    def position_of(self, timestamp: int, later_s: float) -> int | None:
        """Tell the position of what was said so long after an RTP time; None if that is not known."""
        return self._receiver.position_of(timestamp, later_s)

    def stats(self) -> dict[str, Any]:
        """Give what became of the packets, by the names of `PeerStats`."""
        counts = self._receiver.counts
        return {
            "packets_received": counts.received,
            "packets_lost": counts.lost,
            "packets_late": counts.late,
            "packets_duplicate": counts.duplicate,
            "packets_malformed": counts.malformed,
            "packets_overlapping": counts.overlapping,
            "packets_excess": counts.excess,
            "restarts": counts.restarts,
            "concealed_ms": self._receiver.concealed * 1000 // RATE,
        }

    def start(self) -> None:
        """Let the audio clock run, whether or not packets come."""
        self._receiver.start(self._loop.time())
        self._arm()

    def receive(self, ssrc: int, sequence: int, timestamp: int, payload: bytes) -> None:
        """Take the payload of an RTP packet."""
        if not self._closed:
            self._receiver.receive_packet(ssrc, sequence, timestamp, payload, self._loop.time())
            self._hand_on()

    def close(self) -> None:
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()

    def _on_timer(self) -> None:
        self._timer = None
        now = self._loop.time()
        due = self._receiver.next_timeout()
        if due is not None and due <= now:
            self._receiver.handle_timeout(now)
            self._hand_on()
        else:
            self._arm()

    def _hand_on(self) -> None:
        while not self._closed and (block := self._receiver.next_block()) is not None:
            self._on_block(block)
        self._arm()

    def _arm(self) -> None:
        due = self._receiver.next_timeout()
        if due is None or self._closed:
            return
        if self._timer is not None:
            if self._timer.when() <= due:
                return  # it will look again when it fires: cheaper than a new timer for each packet
            self._timer.cancel()
        self._timer = self._loop.call_at(due, self._on_timer)


class AudioOutput(MediaStreamTrack):
    """Our voice for aiortc to encode: a block every 20 ms, on absolute deadlines of the loop's clock."""

    kind = "audio"

    def __init__(self, pull: Callable[[], Pcm]) -> None:
        """`pull` gives 480 samples at 24 kHz."""
        super().__init__()
        self._pull = pull
        self._due: float | None = None
        self._position = 0
        "Of the next block, in samples at 24 kHz."
        self.is_sent = True
        "Whether a sender asks for the blocks; set by what was negotiated."
        self.skipped = 0
        "Blocks whose time had passed: the listener hears silence for them."

    async def play_unheard(self) -> None:
        """Keep the beat while nothing is sent: what is played to nobody still counts as played."""
        while not self.is_sent:
            await self.recv()

    async def recv(self) -> av.AudioFrame:
        if self.readyState != "live":
            raise MediaStreamError
        now = asyncio.get_running_loop().time()
        if self._due is None:
            self._due = now
        late = now - self._due
        if late > MAX_LATE_S:
            missed = int(late / BEAT_S)
            self._due += missed * BEAT_S
            self._position += missed * BLOCK
            self.skipped += missed
        await asyncio.sleep(max(0.0, self._due - now))
        self._due += BEAT_S
        position, self._position = self._position, self._position + BLOCK
        frame = av.AudioFrame.from_ndarray(self._pull().reshape(1, -1), format="s16", layout="mono")
        frame.sample_rate = RATE
        frame.pts = position
        frame.time_base = _PCM_TIME
        return frame
