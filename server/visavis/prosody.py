"""Whether the last words sound final: melody, loudness and rhythm before a silence. Sans-I/O.

Speakers of most languages end a turn low in their range, falling or rising steeply, softly and slowly; before
a comma or in search of a word they stay level and loud. What is measured is relative to the caller, so that
neither voice nor microphone matters.
"""

import math
from collections import deque
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .audio import BLOCK, RATE, Pcm
from .finality import finality_of

Row = NDArray[np.float64]

_DECIMATION = 6
"Pitch is looked for at 4 kHz: ten of the lowest harmonics of a high voice."
_RATE = RATE // _DECIMATION
_STEP = BLOCK // _DECIMATION
_WINDOW = 2 * _STEP
"40 ms: two periods of a voice of 50 Hz."
_LEAST_LAG, _MOST_LAG = _RATE // 420, _RATE // 65
"Of voices between 65 and 420 Hz."
_TAPER = np.hanning(_WINDOW)
_NOTHING = np.zeros(_MOST_LAG + 1)
_TAPER_CORRELATION = np.correlate(np.append(_TAPER, _NOTHING), _TAPER)
_TAPER_CORRELATION = _TAPER_CORRELATION / _TAPER_CORRELATION[0]
_MEAN = np.full(_DECIMATION, 1 / _DECIMATION)
_PERIODIC = 0.45
"Autocorrelation of a block with a pitch."
_SAME = 0.85
"Share of the highest peak that a shorter lag needs: else an octave too low would win."

_MEMORY = 100
"Blocks of speech that a phrase is judged by: 2 s."
_RANGE = 500
"Blocks with a pitch that tell a caller's range: some 15 s of speech."
_LEAST_BLOCKS, _LEAST_PITCHES, _LEAST_RANGE = 8, 4, 6
"Without which nothing is said."
_OCTAVE = 9.0
"Semitones from the caller's middle beyond which a pitch is a mistake."
_LISTEN = 3
"Blocks of silence before a phrase is judged: most stops of the tongue are shorter."
_FORGET = 75
"Blocks of silence after which another phrase begins: 1.5 s."


def pitch_of(sound: Row) -> tuple[float, float]:
    """Tell the pitch of 160 samples at 4 kHz, in semitones above 1 Hz, and how periodic they are, 0 to 1.

    The pitch is NaN for what is not periodic.
    """
    tapered = (sound - sound.sum() / _WINDOW) * _TAPER
    correlation = np.correlate(np.concatenate((tapered, _NOTHING)), tapered)
    if correlation[0] < 1.0:
        return math.nan, 0.0
    correlation = correlation / (correlation[0] * _TAPER_CORRELATION)
    inner = correlation[_LEAST_LAG : _MOST_LAG + 1]
    rising = inner >= correlation[_LEAST_LAG - 1 : _MOST_LAG]
    peaks = np.flatnonzero(rising & (inner >= correlation[_LEAST_LAG + 1 :]))
    heights = inner[peaks].tolist()
    highest = max(heights, default=0.0)
    if highest < _PERIODIC:
        return math.nan, min(max(0.0, float(inner.max())), 1.0)
    first = next(n for n, height in enumerate(heights) if height >= _SAME * highest)
    lag = int(peaks[first]) + _LEAST_LAG
    before, at, after = correlation[lag - 1 : lag + 2].tolist()
    bend = before - 2 * at + after
    shift = 0.5 * (before - after) / bend if bend else 0.0
    return 12 * math.log2(_RATE / (lag + shift)), min(1.0, highest)


class Prosody:
    """Give every block of one caller to `receive`. Costs 20 µs a block of speech, none of silence."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget the caller."""
        self._before: Pcm = np.zeros(BLOCK, np.int16)
        self._range: deque[float] = deque(maxlen=_RANGE)
        self._begin()

    def _begin(self) -> None:
        self._phrase: deque[_Block] = deque(maxlen=_MEMORY)
        self._voiced = 0
        "Blocks of speech since a long silence."
        self._silence = 0
        self._finality: float | None = None

    def receive(self, pcm: Pcm, level: float, *, voiced: bool) -> float | None:
        """Take one 20 ms block at 24 kHz and its level in dB; return how final the words before a pause are.

        That is the probability, 0 to 1, that they were the last; None during speech and when too little was
        heard.
        """
        before, self._before = self._before, pcm
        if not voiced:
            self._silence += 1
            if self._silence == _LISTEN:
                self._finality = self._judge()
            return self._finality
        if self._silence >= _FORGET:
            self._begin()
        self._silence = 0
        self._finality = None
        self._voiced += 1
        sound = np.concatenate((before, pcm)).reshape(_WINDOW, _DECIMATION)
        pitch, periodicity = pitch_of(sound @ _MEAN)
        self._phrase.append(_Block(level, pitch, periodicity, _hiss(pcm)))
        if not math.isnan(pitch):
            self._range.append(pitch)
        return None

    def features(self) -> Row | None:
        """Measure how the newest words end, as `FEATURES`; None when too little was heard."""
        if len(self._phrase) < _LEAST_BLOCKS or len(self._range) < _LEAST_RANGE:
            return None
        level, pitch, periodicity, hiss = np.array(self._phrase).T
        low, middle, high = np.quantile(self._range, (0.1, 0.5, 0.9))
        (pitched,) = np.nonzero(np.abs(pitch - middle) <= _OCTAVE)
        if len(pitched) < _LEAST_PITCHES:
            return None
        melody = pitch[pitched]
        last = float(np.median(melody[-3:]))
        before = melody[-7:-3] if len(melody) > 5 else melody
        loud = np.quantile(level, 0.8)
        breaks = np.flatnonzero(np.diff(pitched) > 2)
        newest = melody[-15:]
        return np.array(
            (
                last - middle,
                (last - low) / max(2.0, high - low),
                last - np.median(before),
                last - melody[-20:].max(),
                melody[-6:].min() - low,
                melody[-12:].std(),
                np.median(melody[-10:]) - np.median(melody[:15]),
                len(newest) - 1 - np.argmax(newest),
                level[-3:].mean() - loud,
                level[-8:-3].mean() - loud,
                periodicity[-10:-4].mean(),
                np.mean(~np.isnan(pitch[-25:])),
                hiss[-4:].mean(),
                hiss[-10:-4].mean(),
                min(len(level) - 1 - pitched[-1], 12),
                min(len(pitched) - 1 - breaks[-1] if len(breaks) else len(pitched), 20),
                math.log(self._voiced),
            )
        )

    def _judge(self) -> float | None:
        features = self.features()
        return None if features is None else finality_of(features)


class _Block(NamedTuple):
    level: float
    pitch: float
    periodicity: float
    hiss: float


def _hiss(pcm: Pcm) -> float:
    """Tell how much of the power is high: log10, about 0 for an s and -2 for a vowel."""
    sound = pcm.astype(np.float64)
    steps = sound[1:] - sound[:-1]
    return math.log10((float(np.vdot(steps, steps)) + 1) / (float(np.vdot(sound, sound)) + 1))
