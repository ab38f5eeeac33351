"""Audio as plain samples: the Pcm type, rates, resampling, WAV. Sans-I/O."""

import struct
from functools import lru_cache
from math import ceil, gcd, log10

import numpy as np
from numpy.typing import NDArray

Pcm = NDArray[np.int16]
"Mono, 16 bit. The rate is in the name or the docstring; 24 kHz where nothing is said."

FloatPcm = NDArray[np.float32]
"Mono, -1.0 … 1.0: what models and float WAV files hold."

RATE = 24_000
"Samples per second of everything inside a conversation: turn buffer, playout, engine audio."

BLOCK = 480
"Samples of one 20 ms block at `RATE`."

EMPTY: Pcm = np.zeros(0, np.int16)

SILENCE_DBFS = -100.0
"The level given for digital silence, and the lowest given at all."

MAX_WAV_RATE = 384_000

_FULL_SCALE = 32_768.0
_ZERO_CROSSINGS = 24
"Half length of the resampling filter in samples of the lower rate: 1 ms at 24 kHz."
_ROLL_OFF = 0.92
"Cut-off as a share of the lower Nyquist frequency."
_KAISER_BETA = 7.0
"70 dB of stop band, below the noise of any microphone."
_SCALE = 2.0**20
"Coefficients are whole numbers of 1/_SCALE, so that float64 sums are exact in any order."
_FEW_PHASES = 4
"Up to so many, outputs are made in groups: for more, the matrix would be large and mostly zeros."
_GROUP = 16
"Outputs of a group, or a few more to have all phases: 20 ms are 20 groups at 16 kHz, 30 at 24 kHz."
_GROUPS = 32
"Made at once: for a much larger product BLAS would start threads and wait for them."
_MAX_PHASES = 1_280
"Bounds the filter table; odd pairs of rates beyond it are refused."


def to_float(pcm: Pcm) -> FloatPcm:
    """Scale to -1.0 … 1.0."""
    return pcm.astype(np.float32) / np.float32(_FULL_SCALE)


def from_float(samples: NDArray[np.floating]) -> Pcm:
    """Scale from -1.0 … 1.0 to 16 bit, rounded; louder samples are clipped and NaN becomes 0."""
    bounded = np.clip(np.nan_to_num(np.asarray(samples, np.float64), nan=0.0), -1.0, 1.0)
    scaled: Pcm = np.minimum(np.rint(bounded * _FULL_SCALE), 32_767).astype(np.int16)
    return scaled


def level_dbfs(pcm: Pcm) -> float:
    """Tell the RMS level relative to a full-scale square wave, `SILENCE_DBFS` at least."""
    if not len(pcm):
        return SILENCE_DBFS
    samples = pcm.astype(np.float64)
    power = float(np.vdot(samples, samples)) / len(samples) / _FULL_SCALE**2
    return max(SILENCE_DBFS, 10 * log10(power)) if power else SILENCE_DBFS


class _Filter:
    """A Kaiser-windowed sinc cut into one row of taps for each output phase.

    With few phases it is also a matrix that makes a group of outputs of a row of inputs.
    """

    def __init__(self, up: int, down: int) -> None:
        stretch = max(1.0, down / up)
        self.half = ceil(_ZERO_CROSSINGS * stretch)
        "Input samples that an output needs on either side."
        offsets = np.arange(1 - self.half, self.half + 1)[None, :] - np.arange(up)[:, None] / up
        window = np.i0(_KAISER_BETA * np.sqrt(np.clip(1 - (offsets / self.half) ** 2, 0, None)))
        taps = np.sinc(offsets * _ROLL_OFF / stretch) * window
        taps /= taps.sum(axis=1, keepdims=True)
        self._taps = np.rint(taps * _SCALE) / _SCALE
        "Shape (up, 2 * half)."
        self._up, self._down = up, down
        if up <= _FEW_PHASES:
            self._make_groups()

    def _make_groups(self) -> None:
        periods = ceil(_GROUP / self._up)
        self._group = periods * self._up
        self._step = periods * self._down
        "Inputs from one group to the next."
        width = self._step + 2 * self.half - 1
        self._matrix = np.zeros((width, self._group))
        for output in range(self._group):
            begin = output * self._down // self._up
            self._matrix[begin : begin + 2 * self.half, output] = self._taps[output * self._down % self._up]
        self._inputs = np.arange(_GROUPS)[:, None] * self._step + np.arange(width)
        "Which samples each group takes."

    def apply(self, padded: NDArray[np.float64], first: int, count: int) -> Pcm:
        """Compute outputs `first` … `first + count - 1` of a stream.

        `padded` begins with the first input sample which output `first` needs.
        """
        make = self._in_groups if self._up <= _FEW_PHASES else self._one_by_one
        rounded: Pcm = np.rint(make(padded, first, count)).clip(-32_768, 32_767).astype(np.int16)
        return rounded

    def _in_groups(self, padded: NDArray[np.float64], first: int, count: int) -> NDArray[np.float64]:
        groups = ceil((first + count) / self._group)
        skipped = first * self._down // self._up
        sound = np.zeros(groups * self._step + 2 * self.half - 1)
        needed = padded[: len(sound) - skipped]
        sound[skipped : skipped + len(needed)] = needed
        sums = np.empty((groups, self._group))
        for n in range(0, groups, _GROUPS):
            rows = sound[n * self._step :][self._inputs[: groups - n]]
            np.matmul(rows, self._matrix, out=sums[n : n + _GROUPS])
        return sums.ravel()[first : first + count]

    def _one_by_one(self, padded: NDArray[np.float64], first: int, count: int) -> NDArray[np.float64]:
        position = np.arange(first, first + count) * self._down
        index = position // self._up
        rows = np.lib.stride_tricks.sliding_window_view(padded, 2 * self.half)
        # einsum, since BLAS would start threads for a product this small and wait for them.
        return np.asarray(np.einsum("ij,ij->i", rows[index - index[0]], self._taps[position % self._up]))


@lru_cache(maxsize=32)
def _filter(up: int, down: int) -> _Filter:
    return _Filter(up, down)


def _ratio(from_rate: int, to_rate: int) -> tuple[int, int]:
    if from_rate <= 0 or to_rate <= 0:
        raise ValueError(f"sample rates must be positive, not {from_rate} and {to_rate}")
    common = gcd(from_rate, to_rate)
    up, down = to_rate // common, from_rate // common
    if up > _MAX_PHASES or down > _MAX_PHASES:
        raise ValueError(f"cannot resample from {from_rate} to {to_rate} Hz: no small common ratio")
    return up, down


def resample(pcm: Pcm, from_rate: int, to_rate: int) -> Pcm:
    """Resample a whole signal, aligned in time: ceil(len · to / from) samples.

    Raises ValueError for rates that are not positive or have no small common ratio.
    """
    up, down = _ratio(from_rate, to_rate)
    if up == down or not len(pcm):
        return pcm.copy()
    kernel = _filter(up, down)
    count = -(-len(pcm) * up // down)
    padded = np.zeros(len(pcm) + 2 * kernel.half)
    padded[kernel.half - 1 : kernel.half - 1 + len(pcm)] = pcm
    return kernel.apply(padded, 0, count)


class Resampler:
    """Resample a stream: what comes out does not depend on how it is cut into blocks.

    After n samples in, ceil(n · to / from) are out, so 20 ms give 20 ms; they lag by `delay_s`.
    """

    def __init__(self, from_rate: int, to_rate: int) -> None:
        self._up, self._down = _ratio(from_rate, to_rate)
        self._same = self._up == self._down
        self._kernel = _filter(self._up, self._down)
        self.delay_s = 0.0 if self._same else self._kernel.half / from_rate
        self._tail: NDArray[np.float64] = np.zeros(2 * self._kernel.half - 1)
        "Input still needed; its first sample is the first that the next output needs."
        self._next = 0
        "Number of the next output, modulo the filter's period."

    def process(self, pcm: Pcm) -> Pcm:
        """Take the next samples at the one rate and return the next at the other."""
        if self._same or not len(pcm):
            return pcm.copy()
        up, down = self._up, self._down
        stream = np.concatenate((self._tail, pcm), dtype=np.float64)
        origin = self._next * down // up
        ready = len(stream) - (2 * self._kernel.half - 1)
        count = max(0, -(-(origin + ready) * up // down) - self._next)
        out = self._kernel.apply(stream, self._next, count) if count else EMPTY
        after = self._next + count
        self._tail = stream[after * down // up - origin :]
        self._next = after % up
        return out


def encode_wav(pcm: Pcm, rate: int) -> bytes:
    """Write a mono 16-bit WAV file."""
    data = pcm.astype("<i2", copy=False).tobytes()
    return (
        struct.pack("<4sI4s", b"RIFF", 36 + len(data), b"WAVE")
        + struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, 1, rate, 2 * rate, 2, 16)
        + struct.pack("<4sI", b"data", len(data))
        + data
    )


def decode_wav(data: bytes) -> tuple[Pcm, int]:
    """Read a WAV file of 16-bit or 32-bit float samples, mixed down to mono, with its rate.

    A data chunk of unknown length, as written to a pipe, reaches to the end.
    Raises ValueError that names what is wrong.
    """
    if len(data) < 12 or data[:4] != b"RIFF" or data[8:12] != b"WAVE":
        raise ValueError("not a WAV file: no RIFF/WAVE header")
    layout: tuple[str, int, int] | None = None
    at = 12
    while at + 8 <= len(data):
        name, size = struct.unpack_from("<4sI", data, at)
        body = data[at + 8 : at + 8 + size]
        if name == b"fmt ":
            layout = _wav_layout(body)
        elif name == b"data":
            if layout is None:
                raise ValueError("broken WAV file: samples come before their format")
            if len(body) < size != 0xFFFF_FFFF:
                raise ValueError(f"broken WAV file: {size} bytes of samples promised, {len(body)} there")
            return _wav_samples(body, *layout[:2]), layout[2]
        at += 8 + size + size % 2
    raise ValueError("broken WAV file: it holds no samples")


def _wav_layout(body: bytes) -> tuple[str, int, int]:
    """Give the numpy type, channels and rate of a format chunk."""
    if len(body) < 16:
        raise ValueError("broken WAV file: its format is cut short")
    tag, channels, rate, _, _, bits = struct.unpack_from("<HHIIHH", body)
    if tag == 0xFFFE and len(body) >= 26:  # WAVE_FORMAT_EXTENSIBLE: the sub-format's first two bytes
        (tag,) = struct.unpack_from("<H", body, 24)
    kind = {(1, 16): "<i2", (3, 32): "<f4"}.get((tag, bits))
    if kind is None:
        raise ValueError(f"cannot read this WAV file: format {tag} with {bits} bits; use 16-bit or float PCM")
    if not channels:
        raise ValueError("broken WAV file: it has no channels")
    if not 0 < rate <= MAX_WAV_RATE:
        raise ValueError(f"broken WAV file: a rate of {rate} Hz")
    return kind, channels, rate


def _wav_samples(body: bytes, kind: str, channels: int) -> Pcm:
    width = np.dtype(kind).itemsize * channels
    samples = np.frombuffer(body[: len(body) // width * width], kind).reshape(-1, channels)
    if kind == "<f4":
        if not np.isfinite(samples).all():
            raise ValueError("broken WAV file: a sample is not a number")
        return from_float(samples.astype(np.float64).mean(axis=1))
    if channels == 1:
        return samples[:, 0].astype(np.int16)
    mixed: Pcm = np.rint(samples.mean(axis=1)).astype(np.int16)
    return mixed
