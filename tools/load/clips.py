"""What callers say: recordings cut into blocks of 20 ms, with marks where the voice is. Sans-I/O."""

import io
import wave
from dataclasses import dataclass

import numpy as np

RATE = 24_000
BLOCK_S = 0.02
BLOCK = round(RATE * BLOCK_S)
SPEECH_RANGE_DB = 25.0
"Speech is what is so close to its loud parts; softer is breath and room."
LEVEL_DBFS = -26.0
"To which speech is brought: recordings differ by 20 dB, and microphones do not."


@dataclass(frozen=True, slots=True)
class Clip:
    """Something said."""

    name: str
    blocks: tuple[bytes, ...]
    "20 ms each: mono, 16 bit, little endian, `RATE`."
    onset: int
    "The first block with voice."
    end: int
    "One past the last block with voice."


def read_clip(name: str, data: bytes) -> Clip:
    """Read a WAV file of 16 bit and any rate. Raises ValueError that says what is wrong."""
    try:
        with wave.open(io.BytesIO(data)) as file:
            width, channels, rate = file.getsampwidth(), file.getnchannels(), file.getframerate()
            frames = file.readframes(file.getnframes())
    except (wave.Error, EOFError) as error:
        raise ValueError(f"{name} is no WAV file: {error}") from error
    if width != 2:
        raise ValueError(f"{name} has {8 * width} bits a sample; 16 are needed")
    samples = np.frombuffer(frames, "<i2").reshape(-1, channels).mean(axis=1)
    if not samples.any():
        raise ValueError(f"{name} is silent")
    return make_clip(name, _at_rate(samples, rate))


def make_clip(name: str, samples: np.ndarray) -> Clip:
    """Cut mono samples at `RATE` into blocks, at `LEVEL_DBFS`."""
    padded = np.concatenate([samples, np.zeros(-len(samples) % BLOCK)]).reshape(-1, BLOCK)
    levels = 10 * np.log10(np.square(padded).mean(axis=1) + 1e-3)
    loud = np.percentile(levels[levels > levels.max() - 40], 95)
    voiced = np.flatnonzero(levels > loud - SPEECH_RANGE_DB)
    power = np.square(padded[voiced]).mean() / 32_768**2
    gain = 10 ** (LEVEL_DBFS / 20) / np.sqrt(power)
    scaled = np.clip(np.rint(padded * gain), -32_768, 32_767).astype("<i2")
    blocks = tuple(block.tobytes() for block in scaled)
    return Clip(name, blocks, int(voiced[0]), int(voiced[-1]) + 1)


def _at_rate(samples: np.ndarray, rate: int) -> np.ndarray:
    """Resample by straight lines: an engine that is none does not mind the quality."""
    if rate == RATE:
        return samples
    at = np.arange(len(samples) * RATE // rate) * (rate / RATE)
    return np.asarray(np.interp(at, np.arange(len(samples)), samples))
