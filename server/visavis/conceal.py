"""Making up for lost audio at the level of samples: the last period repeats and fades. Sans-I/O.

For streams whose codec cannot do better itself (see `codecs`). After the idea of ITU-T G.711 appendix I.
"""

import numpy as np

from .audio import EMPTY, RATE, Pcm

MIN_PERIOD = RATE // 400
MAX_PERIOD = RATE // 66
"Human voices speak at 66 to 400 Hz."

FADE = RATE * 60 // 1000
"From here on repetition would be heard as a buzz: silence."

CROSS_FADE = RATE * 5 // 1000

_MATCH = RATE * 10 // 1000
"Samples compared to find the period."


class Concealer:
    """Audio at 24 kHz passes through `receive`; `conceal` continues it where some is lost."""

    def __init__(self) -> None:
        self._past = np.zeros(_MATCH + MAX_PERIOD, np.int16)
        self._period: Pcm = EMPTY
        "What repeats; empty while nothing is lost."
        self._made = 0
        "Samples made since the loss began."

    def receive(self, pcm: Pcm) -> Pcm:
        """Pass audio that came; the first after a loss is blended with what was made up."""
        if len(self._period) and len(pcm):
            length = min(CROSS_FADE, len(pcm))
            rise = np.arange(1, length + 1) / (length + 1)
            pcm = pcm.copy()
            pcm[:length] = np.rint(pcm[:length] * rise + self._continue(length) * (1 - rise))
            self._period = EMPTY
            self._made = 0
        self._past = np.concatenate([self._past, pcm])[-len(self._past) :]
        return pcm

    def conceal(self, samples: int) -> Pcm:
        """Make exactly `samples` of audio in place of what was lost."""
        if not len(self._period):
            self._period = self._past[-self._find_period() :]
        return np.rint(self._continue(samples)).astype(np.int16)

    def _continue(self, samples: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        position = self._made + np.arange(samples)
        self._made += samples
        fade = np.clip(1 - position / FADE, 0, 1)
        return self._period[position % len(self._period)] * fade

    def _find_period(self) -> int:
        """Find the lag at which the newest audio is most like what came before it."""
        past = self._past.astype(np.float64)
        newest = past[-_MATCH:]
        alike = np.correlate(past[:-MIN_PERIOD], newest, "valid")
        power = np.convolve(past[:-MIN_PERIOD] ** 2, np.ones(_MATCH), "valid")
        best = int(np.argmax(alike / np.sqrt(power + 1)))
        return len(alike) - 1 - best + MIN_PERIOD
