"""Where the sound of a word ends: its level against the room's and the voice's. Sans-I/O.

Silero's probability falls some 90 ms after a word's sound does, in noise 200 ms. The level falls at once.
"""

from math import log10

import numpy as np

from .audio import BLOCK, RATE, SILENCE_DBFS, Pcm
from .config import EarConfig

_BLOCK_MS = 1000 * BLOCK // RATE

_WINDOW = np.hanning(BLOCK + 1)[:-1]
_FREQUENCIES = np.fft.rfftfreq(BLOCK, 1 / RATE)
_BAND = np.flatnonzero((_FREQUENCIES >= 120) & (_FREQUENCIES <= 8_000))
"Where speech is loud, hissing s included, without the hum and rumble of rooms."
_BAND_SLICE = slice(int(_BAND[0]), int(_BAND[-1]) + 1)
_FULL_SCALE = 32_768.0**2 * float(np.sum(_WINDOW**2)) * BLOCK / 2

_LEAST_POWER = 10 ** (SILENCE_DBFS / 10)

_DARK_DBFS = -80.0
"Nothing below is told apart: a muted microphone is no quieter room."
_UNVOICED = 0.1
"Silero's probability below which the room alone is heard."
_VOICED = 0.5

# Per block of 20 ms.
_FLOOR_DOWN = 0.3
_FLOOR_UP = 0.1
"A new fan is the room after 0.4 s."
_FLOOR_STEP_DB = 10.0
"The most that one block counts: a slammed door is not the room."
_FLOOR_CREEP_DB = 0.04
"While Silero hears speech, 2 dB a second: noise that began under speech is found out in time."
_VOICE_UP = 0.5
_VOICE_DOWN = 0.01
"The voice's level is that of its loud syllables."


def band_level(pcm: Pcm) -> float:
    """Tell the level of one block between 120 and 8000 Hz, dBFS."""
    if not np.count_nonzero(pcm):  # a muted microphone, or a pause of which nothing was sent
        return SILENCE_DBFS
    spectrum = np.fft.rfft(pcm * _WINDOW)[_BAND_SLICE]
    power = float(np.vdot(spectrum, spectrum).real) / _FULL_SCALE
    return 10 * log10(max(power, _LEAST_POWER))


class Hush:
    """Tells the silence after a word, and within, from weak sounds of speech."""

    def __init__(self, config: EarConfig) -> None:
        self._config = config
        self._insist = config.insist_ms // _BLOCK_MS
        self.reset()

    def reset(self) -> None:
        """Forget the room and the voice."""
        self._floor: float | None = None
        self._voice: float | None = None
        self._quiet = 0
        "Blocks of silence so far."

    @property
    def floor(self) -> float | None:
        """Level of the room, dBFS; None before anything was heard."""
        return self._floor

    def receive(self, level: float, probability: float) -> bool:
        """Take a block's `band_level` and its probability of speech; tell whether it is silence."""
        level = max(level, _DARK_DBFS)
        floor = self._follow_floor(level, probability)
        voice = self._follow_voice(level, probability)
        if voice is None:
            return False
        config = self._config
        limit = min(max(floor + config.margin_db, voice - config.deep_db), voice - config.least_db)
        self._quiet = self._quiet + 1 if level < limit else 0
        insists = probability >= config.insist and self._quiet > self._insist
        return self._quiet > 0 and not insists

    def _follow_floor(self, level: float, probability: float) -> float:
        floor = level if self._floor is None else self._floor
        above = level - floor
        if above < 0:
            floor += _FLOOR_DOWN * above
        elif probability < _UNVOICED:
            floor += _FLOOR_UP * min(above, _FLOOR_STEP_DB)
        else:
            floor += min(_FLOOR_CREEP_DB, above)
        self._floor = floor
        return floor

    def _follow_voice(self, level: float, probability: float) -> float | None:
        if probability >= _VOICED:
            if self._voice is None:
                self._voice = level
            self._voice += (_VOICE_UP if level > self._voice else _VOICE_DOWN) * (level - self._voice)
        return self._voice
