"""smart-turn, a model that hears from a turn's sound whether it is finished (pipecat-ai/smart-turn, v3).

A Whisper-tiny encoder with a classifier, 8 MB as ONNX. It takes the log-mel spectrogram of the last 8 s and
returns one probability; a verdict takes 40 to 100 ms of one core.
"""

import functools
import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .audio import RATE, Pcm, resample, to_float
from .errors import ConfigError

_RATE = 16_000
_SAMPLES = 8 * _RATE
_FFT = 400
_HOP = 160
_MELS = 80
_LEAST_POWER = 1e-10
_LEAST_VARIANCE = 1e-7
_FRAMES = _SAMPLES // _HOP
_BUNDLED = "audio/turn/smart_turn/data"
"Where the package `pipecat-ai` keeps the model."


class SmartTurn:
    """One loaded model, for all calls: `judge` may be called from several threads."""

    def __init__(self, path: Path) -> None:
        """Load the ONNX file. Raises ConfigError when it, or onnxruntime, is not there or does not load."""
        try:
            import onnxruntime  # type: ignore[import-untyped]  # it has no types
        except ImportError as error:
            raise ConfigError(
                "conversation.turns.smart_turn needs onnxruntime: pip install 'visavis[local]'"
            ) from error
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1  # media comes first
        options.log_severity_level = 3
        if not path.is_file():
            raise ConfigError(f"conversation.turns.smart_turn: there is no file {path}")
        try:
            self._session: Any = onnxruntime.InferenceSession(
                str(path), options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # onnxruntime's errors have no common base
            raise ConfigError(f"conversation.turns.smart_turn: {path} does not load: {error}") from error
        inputs = [(entry.name, entry.shape[1:]) for entry in self._session.get_inputs()]
        if inputs != [("input_features", [_MELS, _FRAMES])]:
            raise ConfigError(
                f"conversation.turns.smart_turn: {path} takes {inputs}, so it is no smart-turn v3"
            )

    def judge(self, pcm: Pcm) -> float:
        """Tell the probability, 0 to 1, that a turn is finished: 24 kHz, the silence after it included.

        Blocks for some 50 ms.
        """
        sound = resample(pcm[-8 * RATE :], RATE, _RATE)
        features = log_mel(to_float(sound))[None]
        (output, *_) = self._session.run(None, {"input_features": features})
        return float(np.asarray(output).reshape(-1)[0])


def find_smart_turn(path: Path) -> Path:
    """Return the model's file: `path` itself, or of ``bundled`` that in the installed pipecat-ai.

    Raises ConfigError when no such package, or no model in it, is installed.
    """
    if str(path) != "bundled":
        return path
    found = importlib.util.find_spec("pipecat")
    folders = found.submodule_search_locations if found else None
    models = sorted(file for folder in folders or () for file in (Path(folder) / _BUNDLED).glob("*.onnx"))
    if not models:
        raise ConfigError(
            'conversation.turns.smart_turn = "bundled" needs the package pipecat-ai: pip install pipecat-ai'
        )
    return next((file for file in models if "cpu" in file.name), models[-1])


def log_mel(sound: NDArray[np.float32]) -> NDArray[np.float32]:
    """Compute Whisper's log-mel spectrogram of the last 8 s at 16 kHz, shape (80, 800).

    Shorter sound is preceded by silence, and its volume is evened out, as the model was trained.
    """
    padded = np.zeros(_SAMPLES, np.float32)
    sound = sound[-_SAMPLES:]
    padded[_SAMPLES - len(sound) :] = sound
    padded = (padded - padded.mean()) / np.sqrt(padded.var() + _LEAST_VARIANCE)
    mirrored = np.pad(padded.astype(np.float64), _FFT // 2, mode="reflect")
    frames = np.lib.stride_tricks.sliding_window_view(mirrored, _FFT)[: _FRAMES * _HOP : _HOP]
    spectrum = np.fft.rfft(frames * np.hanning(_FFT + 1)[:-1])
    mel = (spectrum.real**2 + spectrum.imag**2) @ _mel_filters()
    levels = np.log10(np.maximum(mel, _LEAST_POWER)).T
    scaled: NDArray[np.float32] = ((np.maximum(levels, levels.max() - 8.0) + 4.0) / 4.0).astype(np.float32)
    return scaled


@functools.cache
def _mel_filters() -> NDArray[np.float64]:
    """Triangles of equal area on Slaney's mel scale, shape (201, 80): linear to 1 kHz, then logarithmic."""
    mels = np.linspace(0.0, 15.0 + 27.0 * np.log(8.0) / np.log(6.4), _MELS + 2)
    edges = np.where(mels < 15.0, 200.0 / 3.0 * mels, 1000.0 * 6.4 ** ((mels - 15.0) / 27.0))
    hertz = np.linspace(0, _RATE / 2, _FFT // 2 + 1)[:, None]
    low, middle, high = edges[:-2], edges[1:-1], edges[2:]
    rising = (hertz - low) / (middle - low)
    falling = (high - hertz) / (high - middle)
    filters: NDArray[np.float64] = np.maximum(0.0, np.minimum(rising, falling)) * 2.0 / (high - low)
    return filters
