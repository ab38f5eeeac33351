"""From the RTP packets of a caller's voice to 20 ms blocks: buffer, decoder, re-blocking. Sans-I/O."""

import logging

import numpy as np

from .audio import BLOCK, EMPTY, RATE, Pcm
from .codecs import Decoder
from .config import RtcConfig
from .jitter import Audio, Counts, JitterBuffer, Lost, signed

logger = logging.getLogger(__name__)

_PACE = 1.05
"How much faster than time a sender's clock may run for good: real ones are off by less than 0.001."

_MAX_AHEAD_S = 10.0
"What may come at once, as after a stall of the network. More would take the processor from other calls."


class AudioReceiver:
    """After every call drain `next_block` and arm `next_timeout`.

    Blocks are 480 samples at 24 kHz and follow each other without a gap: what is lost is concealed, and time
    in which the caller sends nothing passes as silence.
    """

    def __init__(self, decoder: Decoder, config: RtcConfig) -> None:
        self._decoder = decoder
        self._buffer = JitterBuffer(
            self._decoder.duration,
            clock_rate=self._decoder.clock_rate,
            max_hold_ms=config.max_loss_hold_ms,
        )
        self._ssrc: int | None = None
        self._pending = EMPTY
        self._credit_s = _MAX_AHEAD_S
        "How much audio may come now."
        self._paced_at: float | None = None
        self._paced = 0
        "`position` at `_paced_at`."
        self.position = 0
        "Samples handed out: the conversation's audio clock."
        self.concealed = 0
        "Samples made up for lost packets."

    @property
    def counts(self) -> Counts:
        return self._buffer.counts

    def start(self, now: float) -> None:
        """Begin the audio clock, whether or not the caller ever sends audio."""
        self._buffer.start(now)
        self._paced_at = now

    def receive_packet(self, ssrc: int, sequence: int, timestamp: int, payload: bytes, now: float) -> None:
        """Take a packet; those of a sender that runs ahead of time are dropped and counted."""
        if not self._keeps_pace(now):
            self.counts.excess += 1
            self._ssrc = None  # the next is a beginning: what was dropped is no loss to be concealed
            return
        if ssrc != self._ssrc:
            if self.counts.received:
                self._buffer.restart()
            self._ssrc = ssrc
        self._buffer.receive(sequence, timestamp, payload, now)
        self._decode()

    def handle_timeout(self, now: float) -> None:
        self._buffer.handle_timeout(now)
        self._decode()

    def next_timeout(self) -> float | None:
        return self._buffer.next_timeout()

    def next_block(self) -> Pcm | None:
        if len(self._pending) < BLOCK:
            return None
        block, self._pending = self._pending[:BLOCK], self._pending[BLOCK:]
        self.position += BLOCK
        return block

    def position_of(self, timestamp: int, later_s: float = 0.0) -> int | None:
        """Tell the position of what was said so long after an RTP time; None without a stream."""
        end = self._buffer.end
        if end is None:
            return None
        rate = self._decoder.clock_rate
        ahead_s = signed(timestamp - end, 32) / rate + later_s
        return self.position + len(self._pending) + round(ahead_s * RATE)

    def _keeps_pace(self, now: float) -> bool:
        passed_s = 0.0 if self._paced_at is None else now - self._paced_at
        # What came since is taken off first: a long silence is no credit, but no debt either.
        earned_s = passed_s * _PACE - (self.position - self._paced) / RATE
        self._credit_s = min(_MAX_AHEAD_S, self._credit_s + earned_s)
        self._paced_at, self._paced = now, self.position
        return self._credit_s > 0

    def _decode(self) -> None:
        pieces = [self._pending] if len(self._pending) else []
        while (event := self._buffer.next_event()) is not None:
            match event:
                case Audio(payload, ticks):
                    try:
                        pieces.append(self._decoder.decode(payload))
                    except ValueError as error:
                        logger.debug("audio packet: %s", error)
                        pieces.append(self._conceal(ticks, None))
                case Lost(ticks, following):
                    pieces.append(self._conceal(ticks, following))
                case _:
                    pieces.append(np.zeros(self._samples(event.ticks), np.int16))
        if pieces:
            self._pending = pieces[0] if len(pieces) == 1 else np.concatenate(pieces)

    def _conceal(self, ticks: int, following: bytes | None) -> Pcm:
        samples = self._samples(ticks)
        self.concealed += samples
        return self._decoder.conceal(samples, following)

    def _samples(self, ticks: int) -> int:
        return ticks * RATE // self._decoder.clock_rate
