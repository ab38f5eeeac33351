"""What is heard while an answer is slow to come: a soft tick, or a sentence said once. Sans-I/O.

It is mixed into what goes out and belongs to no answer: it counts as heard in no history.
"""

import numpy as np

from .audio import RATE, Pcm
from .config import WaitingConfig

_FADE = RATE // 100
"10 ms: it is gone within the block in which the answer begins."

_PERIOD_S = 1.2
_NOTES = ((523.25, 0.0), (659.26, 0.16))
"Hz and onset in seconds of each period: a rising third, C5 and E5."
_ATTACK_S = 0.02
_DECAY_S = 0.12
_PEAK = 0.04
"-28 dBFS: some 12 dB below the voice."


def make_tick() -> Pcm:
    """Return one period of the thinking sound, to be repeated."""
    at = np.arange(round(_PERIOD_S * RATE)) / RATE
    sound = np.zeros(len(at))
    for frequency, onset in _NOTES:
        since = np.maximum(at - onset, 0.0)
        rise = np.minimum(since / _ATTACK_S, 1.0)
        sound += rise * np.exp(-since / _DECAY_S) * np.sin(2 * np.pi * frequency * since)
    tick: Pcm = np.rint(sound / np.abs(sound).max() * _PEAK * 32_767).astype(np.int16)
    return tick


class Waiting:
    """Plays once an answer is awaited for too long, and stops within 10 ms of its end.

    Call `begin` when a response is asked for, and `mix` for every block that goes out.
    """

    def __init__(self, config: WaitingConfig, sentence: Pcm) -> None:
        """`sentence` is the text of `config`, spoken, mono at 24 kHz; empty if there is none to be said."""
        self._after_s = config.after_s
        self._repeats = config.play == "sound"
        self._sound = make_tick() if self._repeats else sentence
        self._due = 0.0
        self._said = False
        "The sentence was, in this turn."
        self._at = 0
        "Samples played of the sound."
        self._playing = False

    def begin(self, now: float) -> None:
        """A response is asked for at `now` (monotonic seconds)."""
        self._due = now + self._after_s
        self._said = False

    def mix(self, pcm: Pcm, now: float, *, wanted: bool) -> Pcm:
        """Return the block with what is played beside it, if anything is.

        `wanted` is that the answer is still awaited and nobody speaks.
        """
        plays = wanted and now >= self._due and not self._said and len(self._sound) > 0
        if not plays and not self._playing:
            return pcm
        beside = self._take(len(pcm)).astype(np.float32)
        if plays != self._playing:
            rise = np.minimum(np.arange(len(pcm), dtype=np.float32) / _FADE, 1.0)
            beside *= rise if plays else 1.0 - rise
        self._playing = plays
        if not plays:
            self._at = 0
            self._said = not self._repeats
        mixed: Pcm = np.clip(pcm + beside, -32_768, 32_767).astype(np.int16)
        return mixed

    def _take(self, samples: int) -> Pcm:
        """Move on by so many samples of the sound, silence after its end."""
        start = self._at
        self._at += samples
        if self._repeats:
            return np.take(self._sound, range(start, self._at), mode="wrap")
        self._said = self._at >= len(self._sound)
        part = self._sound[start : self._at]
        return np.concatenate((part, np.zeros(samples - len(part), np.int16)))
