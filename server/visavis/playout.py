"""What the caller hears: a reply's audio as full blocks, started late enough to have no holes. Sans-I/O.

Feed it with `begin`, `write` and `end`, take 20 ms blocks with `read`, cut it with `flush`.
"""

import logging
import math
from collections import deque
from enum import Enum, auto

import numpy as np
import numpy.typing as npt

from .audio import EMPTY, RATE, Pcm
from .config import PlayoutConfig
from .events import Stance

logger = logging.getLogger(__name__)

_MARGIN_S = 0.04
"Added to what was learned: one block because reads fall on a 20 ms grid, one for the next reply's jitter."

_DECAY = 0.8
"What is left of a learned delay after each reply that did not need it."


class Phase(Enum):
    WAITING = auto()  # gathering audio before the first sample
    PLAYING = auto()
    STARVED = auto()  # gathering audio again after the buffer ran dry
    DONE = auto()  # played to the end or flushed; also before the first reply


class Cadence:
    """How far behind playback an engine's chunks arrive, learned over replies.

    A chunk is late by `arrival - (arrival of the first + duration of the audio before it)`: a reply that
    starts to play `max(lateness)` after its first chunk has no hole. vLLM-Omni's first chunk is 0.3 s and
    the others 2 s, so the second is late by 0.15 s at a real-time factor of 0.22 and by 0.64 s at 0.47.

    Playing at once is as safe when the audio *before* the newest chunk lasts longer than the engine ever
    fell back within a reply: `arrival_j <= arrival_i + setback + duration(i..j)`.
    """

    def __init__(self, max_delay_s: float) -> None:
        self._max_delay_s = max_delay_s
        self.delay_s = 0.0
        "Learned: how long the next reply waits after its first chunk."
        self._reserve_s = 0.0
        self._reset()

    def _reset(self) -> None:
        self._first: float | None = None
        self._before = 0
        self._received = 0
        self._latest = -math.inf
        self._earliest = 0.0
        self._setback = 0.0

    def receive(self, samples: int, now: float) -> None:
        """Note a chunk of `samples` at 24 kHz that arrived at `now` (monotonic seconds)."""
        if self._first is None:
            self._first = now
        else:
            late = now - self._first - self._received / RATE
            self._latest = max(self._latest, late)
            self._setback = max(self._setback, late - self._earliest)
            self._earliest = min(self._earliest, late)
        self._before = self._received
        self._received += samples

    def covers(self, now: float) -> bool:
        """Tell whether a reply that begins to play at `now` will have no hole, as far as is known."""
        assert self._first is not None
        return now - self._first >= self.delay_s or self._before / RATE >= self._reserve_s

    def learn(self, *, whole: bool) -> None:
        """Close a reply. One that was cut (not `whole`) can raise what is known but not lower it."""
        if self._latest > -math.inf:  # a single chunk says nothing
            decay = _DECAY if whole else 1.0
            delay = min(self._latest + _MARGIN_S, self._max_delay_s)
            self.delay_s = max(delay, self.delay_s * decay)
            self._reserve_s = max(self._setback + _MARGIN_S, self._reserve_s * decay)
        self._reset()


class Playout:
    """One reply after the other as blocks of 24 kHz audio, silence where there is none, and a count.

    `heard`, `underruns` and `dropped` are of the current reply, and of the last one until `begin`.
    """

    def __init__(self, config: PlayoutConfig) -> None:
        self._prebuffer = max(1, _samples(config.prebuffer_ms))
        self._rebuffer = max(1, _samples(config.rebuffer_ms))
        self._fade = _samples(config.fade_ms)
        self._capacity = round(config.max_buffered_s * RATE)
        self._rise = np.linspace(0.0, 1.0, self._fade, endpoint=False, dtype=np.float32)
        self._volumes: dict[Stance, float] = {"open": 1.0, "ducked": 10 ** (config.duck_db / 20), "held": 0.0}
        self._volume = 1.0
        "Of the next sample; it moves towards that of the stance by a whole in the time of a fade."
        self.stance: Stance = "open"
        "How the reply is heard: as it is, softer, or not at all, in which case it waits."
        self._cadence = Cadence(config.max_delay_ms / 1000)
        self._phase = Phase.DONE
        self._ended = False
        self._chunks: deque[Pcm] = deque()
        self._risen = self._fade
        self._last = EMPTY
        self._tail = EMPTY
        self.buffered = 0
        "Samples accepted and neither played nor flushed yet."
        self.heard = 0
        "Samples of the reply handed out by `read`: the heard cursor. Fades and silence do not count."
        self.underruns = 0
        "Holes: the buffer ran dry and sound came again. Late news that the reply is over makes none."
        self.dropped = 0
        "Samples refused by `write`: over the capacity, or after `end` or `flush`."

    @property
    def delay_s(self) -> float:
        """How long a reply waits after its first chunk before it plays, as learned so far."""
        return self._cadence.delay_s

    @property
    def started(self) -> bool:
        """Whether any of the reply was handed out."""
        return self.heard > 0

    @property
    def finished(self) -> bool:
        """Whether nothing is left to be heard: ended and drained, or flushed and faded."""
        return self._phase is Phase.DONE and not len(self._tail)

    def begin(self) -> None:
        """Start a new reply. One still playing is flushed, and its fade is heard first."""
        self.flush()
        self._ended = False
        self._last = EMPTY
        self._risen = self._fade
        self.stance, self._volume = "open", 1.0
        self.heard = self.underruns = self.dropped = 0
        self._set_phase(Phase.WAITING)

    def write(self, pcm: Pcm, now: float, *, learn: bool = True) -> int:
        """Add audio (mono, 24 kHz, kept and not copied) that arrived at `now`; return the samples accepted.

        Overflow drops the newest: what was accepted is promised to be heard. Sound that does not come from
        the engine teaches nothing about its cadence: then `learn` is False.
        """
        closed = self._ended or self._phase is Phase.DONE
        accepted = 0 if closed else min(len(pcm), self._capacity - self.buffered)
        self.dropped += len(pcm) - accepted
        if accepted:
            self._chunks.append(pcm[:accepted])
            self.buffered += accepted
            if learn:
                self._cadence.receive(accepted, now)
        return accepted

    def end(self) -> None:
        """No more audio will come for this reply: play what there is, however little."""
        self._ended = True
        self._cadence.learn(whole=True)
        if not self.buffered:
            self._stop()

    def flush(self) -> int:
        """Cut the reply: drop its audio but for a fade-out that the next read plays. Return `heard`."""
        self._stop()
        self._chunks.clear()
        self.buffered = 0
        self._cadence.learn(whole=False)
        return self.heard

    def read(self, samples: int, now: float) -> Pcm:
        """Hand out the next `samples` at 24 kHz: a new array, always full."""
        out = np.zeros(samples, np.int16)
        at = self._play_tail(out) if len(self._tail) else 0
        if at < samples:
            if self._ready(now):
                self._start()
            if self._phase is Phase.PLAYING:
                self._play(out[at:])
        return out

    def _play(self, out: Pcm) -> None:
        """Play the next of the reply into `out`, which is silence; where it ends, its fade comes after it."""
        ramp = self._next_ramp(len(out))
        wanted = len(out) if ramp is None else len(ramp)
        filled = self._take(out[:wanted])
        played = out[:filled]
        if ramp is not None:
            played[:] = played * ramp[:filled]
        self.heard += filled
        self._remember(played if self._volume else EMPTY)
        if self._ended and not self.buffered:
            self._stop()
        elif filled < wanted:
            self._fade_out(EMPTY)
            self._set_phase(Phase.STARVED)
        if len(self._tail):
            self._play_tail(out[filled:])

    def _next_ramp(self, samples: int) -> npt.NDArray[np.float32] | None:
        """Move the volume on; return it sample by sample, fewer than `samples` if the reply is to wait.

        None is full volume all along, as nearly always.
        """
        target = self._volumes[self.stance]
        if target == self._volume == 1.0:
            return None
        away = target - self._volume
        moving = min(samples, round(abs(away) * self._fade))
        step = math.copysign(1 / max(1, self._fade), away)
        ramp = self._volume + step * np.arange(1, moving + 1, dtype=np.float32)
        self._volume = float(ramp[-1]) if moving == samples else target
        rest = 0 if self.stance == "held" else samples - moving
        return np.concatenate((ramp, np.full(rest, target, np.float32)))

    def _ready(self, now: float) -> bool:
        match self._phase:
            case Phase.WAITING:
                return self._ended or (self.buffered >= self._prebuffer and self._cadence.covers(now))
            case Phase.STARVED:
                return self._ended or self.buffered >= self._rebuffer
            case _:
                return False

    def _start(self) -> None:
        if self._phase is Phase.STARVED:
            self.underruns += 1
            self._risen = 0
        self._set_phase(Phase.PLAYING)

    def _stop(self) -> None:
        if self._phase is Phase.PLAYING:
            upcoming = np.empty(min(self._fade, self.buffered), np.int16)
            self._take(upcoming)
            self._fade_out((upcoming * self._volume).astype(np.int16))
        self._set_phase(Phase.DONE)

    def _take(self, out: Pcm) -> int:
        """Move audio into `out`, fading in after an underrun; return the samples moved."""
        filled = 0
        while filled < len(out) and self._chunks:
            head = self._chunks[0]
            part = head[: len(out) - filled]
            out[filled : filled + len(part)] = part
            filled += len(part)
            if len(part) == len(head):
                self._chunks.popleft()
            else:
                self._chunks[0] = head[len(part) :]
        self.buffered -= filled
        if self._risen < self._fade:
            rising = self._rise[self._risen : self._risen + filled]
            out[: len(rising)] = out[: len(rising)] * rising
            self._risen += len(rising)
        return filled

    def _remember(self, played: Pcm) -> None:
        if len(played) < self._fade and self._volume:
            played = np.concatenate((self._last, played))
        self._last = played[max(0, len(played) - self._fade) :].copy()

    def _fade_out(self, upcoming: Pcm) -> None:
        """Set the tail: `upcoming` faded out, made long enough by the sound before it, backwards.

        Mirrored sound goes on where the last sample was, so an end that nobody saw coming does not click.
        """
        mirrored = np.concatenate((self._last, upcoming))[::-1]
        tail = np.concatenate((upcoming, mirrored))[: self._fade]
        self._tail = (tail * np.linspace(1.0, 0.0, len(tail), dtype=np.float32)).astype(np.int16)

    def _play_tail(self, out: Pcm) -> int:
        part = self._tail[: len(out)]
        out[: len(part)] = part
        self._tail = self._tail[len(part) :]
        return len(part)

    def _set_phase(self, phase: Phase) -> None:
        if phase is not self._phase:
            logger.debug("playout %s -> %s", self._phase.name, phase.name)
            self._phase = phase


def _samples(ms: int) -> int:
    return ms * RATE // 1000
