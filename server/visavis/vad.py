"""Voice activity: the probability of speech of each 20 ms, by a cheap gate and a good judge. Sans-I/O."""

from collections.abc import Callable
from typing import Protocol

import numpy as np
import webrtcvad

from .audio import BLOCK, EMPTY, RATE, Pcm, Resampler, to_float
from .config import VadConfig
from .errors import ConfigError, ModelError
from .silero import SileroVoiceActivityDetector

_VAD_RATE = 16_000
"Samples per second that both detectors take."

_WINDOW = SileroVoiceActivityDetector.chunk_samples()
"Samples at `_VAD_RATE` that Silero judges at once: 512, 32 ms."

_BLOCK_MS = 1000 * BLOCK // RATE

_HOLD = 0.1
"Silero's probability that keeps the gate open by itself: webrtcvad loses words in noise that Silero hears."


class VoiceActivity(Protocol):
    """Tells speech from other sound, block by block."""

    def receive(self, pcm: Pcm) -> float:
        """Take one 20 ms block, 480 samples at 24 kHz, and return the probability of speech, 0 to 1."""
        ...

    def reset(self) -> None:
        """Forget what was heard."""
        ...


class SileroPool:
    """Silero detectors, lent to the calls in which something is heard now.

    A detector has its own copy of the weights: 3 MB, 1 to 10 ms to make. Since each is reset when lent and
    primed by its borrower, a server needs no more of them than callers speak at the same time.
    """

    def __init__(
        self, keep: int = 32, make: Callable[[], SileroVoiceActivityDetector] = SileroVoiceActivityDetector
    ) -> None:
        """Hold on to `keep` detectors at most; more are made in need and let go when they come back."""
        self._keep = keep
        self._make = make
        self._idle: list[SileroVoiceActivityDetector] = []

    def warm(self) -> None:
        """Make one detector ahead of need, so that a broken installation shows at the start.

        Raises ModelError when the packaged model cannot be loaded.
        """
        self.give(self.take())

    def take(self) -> SileroVoiceActivityDetector:
        """Lend a detector that has heard nothing. Raises ModelError as `warm` does."""
        if self._idle:
            detector = self._idle.pop()
            detector.reset()
            return detector
        try:
            return self._make()
        except OSError as error:
            raise ModelError(
                f"the voice detector does not load ({error}); install it again: pip install pysilero-vad"
            ) from error

    def give(self, detector: SileroVoiceActivityDetector) -> None:
        """Take a detector back."""
        if len(self._idle) < self._keep:
            self._idle.append(detector)


class GatedVad:
    """webrtcvad (2 µs) listens to every block, Silero (0.1 ms per 32 ms) only while the gate is open.

    On opening, Silero first hears what came just before, so that it judges the onset with its memory warm:
    that block costs `prime_ms` at once. The gate closes `hangover_ms` after the last sign of speech, and the
    probability is 0.0 while it is closed. Of digital silence, which muted microphones send, neither hears.
    Call `reset` at the end of a call to hand the detector back. Raises ConfigError for an unknown gate mode.
    """

    def __init__(self, config: VadConfig, pool: SileroPool) -> None:
        if config.gate_mode not in range(4):
            raise ConfigError(f"gate_mode = {config.gate_mode} is not 0, 1, 2 or 3")
        self._mode = config.gate_mode
        self._pool = pool
        self._hangover = max(1, config.hangover_ms // _BLOCK_MS)
        windows = max(1, config.prime_ms * _VAD_RATE // 1000 // _WINDOW)
        self._nothing: Pcm = np.zeros(windows * _WINDOW, np.int16)
        self._silero: SileroVoiceActivityDetector | None = None
        "Lent while the gate is open."
        self._start()

    def _start(self) -> None:
        self._gate = webrtcvad.Vad(self._mode)
        self._resampler = Resampler(RATE, _VAD_RATE)
        self._silent = True
        "The newest block was digital silence, and so is what the resampler still holds."
        self._recent = self._nothing
        "The newest audio at `_VAD_RATE`, to prime with."
        self._unjudged = EMPTY
        "At `_VAD_RATE`, less than a window; empty while the gate is closed."
        self._probability = 0.0
        self._closes_in = 0
        "Blocks without a sign of speech until the gate closes."

    @property
    def listening(self) -> bool:
        """The gate is open."""
        return self._silero is not None

    def receive(self, pcm: Pcm) -> float:
        """Take one 20 ms block, 480 samples at 24 kHz, and return the newest probability of speech.

        It lags the sound by up to one window. Raises ValueError for a block of another length.
        """
        if len(pcm) != BLOCK:
            raise ValueError(f"a block has {BLOCK} samples, not {len(pcm)}")
        silent = not np.count_nonzero(pcm)
        if silent and self._silent and self._silero is None:
            self._recent = self._nothing
            return 0.0
        self._silent = silent
        block = self._resampler.process(pcm)
        self._recent = np.concatenate((self._recent, block))[-len(self._nothing) :]
        sign = bool(self._gate.is_speech(block.tobytes(), _VAD_RATE))
        if self._silero is not None:
            self._judge(self._silero, block)
        elif sign:
            self._silero = self._pool.take()
            self._judge(self._silero, self._recent)
        else:
            return 0.0
        if sign or self._probability >= _HOLD:
            self._closes_in = self._hangover
        else:
            self._closes_in -= 1
            if not self._closes_in:
                self._close()
        return self._probability

    def reset(self) -> None:
        """Forget what was heard."""
        self._close()
        self._start()

    def _judge(self, silero: SileroVoiceActivityDetector, audio: Pcm) -> None:
        audio = np.concatenate((self._unjudged, audio))
        while len(audio) >= _WINDOW:
            self._probability = silero.process_samples(to_float(audio[:_WINDOW]).tolist())
            audio = audio[_WINDOW:]
        self._unjudged = audio

    def _close(self) -> None:
        if self._silero is not None:
            self._pool.give(self._silero)
            self._silero = None
        self._unjudged = EMPTY
        self._probability = 0.0
