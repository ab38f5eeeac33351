"""Speech codecs at 24 kHz mono: Opus through libopus itself, G.711. Sans-I/O.

FFmpeg's wrapper decodes Opus to 48 kHz stereo and reaches neither its error correction nor its concealment.
libopus does all of that at our rate in 30 µs, so it is called directly: the copy that PyAV brings, else the
system's. Where neither can be loaded, PyAV decodes and lost audio is concealed by `conceal.Concealer`.
"""

import ctypes
import ctypes.util
import logging
import weakref
from functools import lru_cache
from pathlib import Path
from typing import Protocol

import av
import numpy as np
from numpy.typing import NDArray

from .audio import BLOCK, RATE, Pcm, Resampler
from .conceal import Concealer
from .config import RtcConfig

logger = logging.getLogger(__name__)

G711_RATE = 8_000

MAX_PACKET_MS = 120
"The most audio in one Opus packet (RFC 6716 section 2.1.4)."

_LOW_DELAY = 2051
"""Pure CELT. Against the mode for speech it takes a third of the time, 4 ms less delay, and keeps the wave
(correlation 0.98 against 0.86 on recorded speech); it repeats no lost packets, listeners conceal them."""
_SET_BITRATE, _SET_COMPLEXITY = 4002, 4010
_FRAMES = 3
"The bits of a packet's first byte that tell how many frames it has; 0 is one."
_GRAIN = RATE // 400
"libopus conceals in steps of 2.5 ms."


class Decoder(Protocol):
    """What turns the payloads of one stream into audio at 24 kHz."""

    clock_rate: int
    "Ticks of the RTP timestamp per second."

    def duration(self, payload: bytes) -> int:
        """Tell how many ticks of `clock_rate` a payload lasts, 0 if it is malformed."""
        ...

    def decode(self, payload: bytes) -> Pcm:
        """Decode the next payload. Raises ValueError when it is malformed."""
        ...

    def conceal(self, samples: int, following: bytes | None) -> Pcm:
        """Make up for lost audio: exactly `samples`, with the help of the payload that follows."""
        ...


def decoder_for(codec: str) -> Decoder:
    """Make a decoder for `opus`, `pcmu` or `pcma`. Raises ValueError for another."""
    match codec.lower():
        case "opus":
            return OpusDecoder() if libopus() else AvOpusDecoder()
        case "pcmu" | "pcma":
            return G711Decoder(codec.lower())
    raise ValueError(f"no decoder for the audio codec {codec!r}")


def opus_duration(payload: bytes) -> int:
    """Tell the length of an Opus packet in 48 kHz ticks (RFC 6716 section 3.1), 0 if it is malformed."""
    if not payload:
        return 0
    config, code = payload[0] >> 3, payload[0] & 3
    if config < 12:
        frame = (480, 960, 1_920, 2_880)[config & 3]
    elif config < 16:
        frame = (480, 960)[config & 1]
    else:
        frame = (120, 240, 480, 960)[config & 3]
    counted = payload[1] & 0x3F if len(payload) > 1 else 0
    ticks = frame * (1, 2, 2, counted)[code]
    return ticks if ticks <= 48 * MAX_PACKET_MS else 0


@lru_cache(maxsize=1)
def libopus() -> ctypes.PyDLL | None:
    """Load libopus, or tell that there is none.

    PyDLL keeps the interpreter lock: a call takes 30 µs, giving the lock away can cost the loop milliseconds.
    """
    package = Path(av.__file__).parent
    bundled = [
        *(package.parent / "av.libs").glob("*opus*"),
        *(package / ".dylibs").glob("*opus*"),
    ]
    for name in (*map(str, bundled), ctypes.util.find_library("opus")):
        if name is None:
            continue
        try:
            library = ctypes.PyDLL(name)
            _declare(library)
        except (OSError, AttributeError) as error:
            logger.debug("%s is no usable libopus: %s", name, error)
        else:
            return library
    logger.warning("no libopus found: Opus goes through PyAV, without error correction")
    return None


def _declare(library: ctypes.PyDLL) -> None:
    pointer, number = ctypes.c_void_p, ctypes.c_int
    result = ctypes.POINTER(number)
    library.opus_decoder_create.argtypes = [ctypes.c_int32, number, result]
    library.opus_decoder_create.restype = pointer
    library.opus_decoder_destroy.argtypes = [pointer]
    library.opus_decoder_destroy.restype = None
    library.opus_decode.argtypes = [pointer, ctypes.c_char_p, ctypes.c_int32, pointer, number, number]
    library.opus_encoder_create.argtypes = [ctypes.c_int32, number, number, result]
    library.opus_encoder_create.restype = pointer
    library.opus_encoder_destroy.argtypes = [pointer]
    library.opus_encoder_destroy.restype = None
    library.opus_encode.argtypes = [pointer, pointer, number, pointer, ctypes.c_int32]
    library.opus_encoder_ctl.argtypes = [pointer, number]  # variadic from here


def _library() -> ctypes.PyDLL:
    library = libopus()
    if library is None:
        raise RuntimeError("libopus cannot be loaded")
    return library


class OpusDecoder:
    """libopus at 24 kHz mono, with its in-band error correction and its concealment."""

    clock_rate = 48_000

    def __init__(self) -> None:
        self._opus = _library()
        error = ctypes.c_int()
        self._state = self._opus.opus_decoder_create(RATE, 1, ctypes.byref(error))
        if error.value:
            raise MemoryError(f"libopus could not make a decoder: error {error.value}")
        weakref.finalize(self, self._opus.opus_decoder_destroy, self._state)
        self._out = np.zeros(RATE * MAX_PACKET_MS // 1000, np.int16)
        self._out_at = self._out.ctypes.data

    def duration(self, payload: bytes) -> int:
        return opus_duration(payload)

    def decode(self, payload: bytes) -> Pcm:
        return self._decode(payload, len(self._out), 0)

    def conceal(self, samples: int, following: bytes | None) -> Pcm:
        out = np.zeros(samples, np.int16)
        # Longer than one packet, concealment is a drone: the rest is silence. What the next packet
        # repeats belongs at the end of the hole, so a short hole is the case that it mends.
        length = min(samples, len(self._out)) // _GRAIN * _GRAIN
        if length:
            try:
                made = self._decode(following, length, 1 if following else 0)
            except ValueError:
                return out
            out[: len(made)] = made
        return out

    def _decode(self, payload: bytes | None, capacity: int, fec: int) -> Pcm:
        size = len(payload) if payload else 0
        count = self._opus.opus_decode(self._state, payload, size, self._out_at, capacity, fec)
        if count < 0:
            raise ValueError(f"malformed Opus packet of {size} bytes: error {count}")
        return self._out[:count].copy()


class OpusEncoder:
    """20 ms blocks of 24 kHz mono to Opus packets."""

    def __init__(self, config: RtcConfig) -> None:
        self._opus = _library()
        error = ctypes.c_int()
        self._state = self._opus.opus_encoder_create(RATE, 1, _LOW_DELAY, ctypes.byref(error))
        if error.value:
            raise MemoryError(f"libopus could not make an encoder: error {error.value}")
        weakref.finalize(self, self._opus.opus_encoder_destroy, self._state)
        for setting, value in (
            (_SET_BITRATE, config.opus_bitrate),
            (_SET_COMPLEXITY, config.opus_complexity),
        ):
            self._opus.opus_encoder_ctl(self._state, setting, ctypes.c_int32(value))
        self._out = ctypes.create_string_buffer(1_276)
        self._kind = 0
        "The first byte of the newest packet: mode, bandwidth and length."

    def encode(self, pcm: Pcm) -> bytes:
        """Encode exactly 480 samples."""
        if len(pcm) != BLOCK:
            raise ValueError(f"an Opus packet takes {BLOCK} samples, not {len(pcm)}")
        size = self._opus.opus_encode(self._state, pcm.tobytes(), BLOCK, self._out, len(self._out))
        if size < 0:
            raise RuntimeError(f"libopus could not encode a block: error {size}")
        packet = ctypes.string_at(self._out, size)
        self._kind = packet[0]
        return packet

    def nothing(self) -> bytes:
        """Make the packet that announces a time without packets: a header alone (RFC 6716 section 2.1.9)."""
        return bytes([self._kind & ~_FRAMES])


class AvOpusDecoder:
    """Opus through PyAV: for machines without a libopus that can be called."""

    clock_rate = 48_000

    def __init__(self) -> None:
        self._codec = av.CodecContext.create("opus", "r")
        self._resampler = Resampler(48_000, RATE)
        self._format = av.AudioResampler(format="s16", layout="mono", rate=48_000)
        self._concealer = Concealer()

    def duration(self, payload: bytes) -> int:
        return opus_duration(payload)

    def decode(self, payload: bytes) -> Pcm:
        expected = opus_duration(payload) // 2
        try:
            frames = self._codec.decode(av.Packet(payload))
            pieces = [
                mono.to_ndarray()[0]
                for frame in frames
                if isinstance(frame, av.AudioFrame)
                for mono in self._format.resample(frame)
            ]
        except av.FFmpegError as error:
            raise ValueError(f"malformed Opus packet of {len(payload)} bytes") from error
        got = self._resampler.process(np.concatenate([*pieces, np.zeros(0, np.int16)]))
        # FFmpeg's decoder swallows its priming samples from the first packet: silence stands in for them.
        pcm = np.concatenate([np.zeros(max(0, expected - len(got)), np.int16), got])
        return self._concealer.receive(pcm)

    def conceal(self, samples: int, following: bytes | None) -> Pcm:
        return self._concealer.conceal(samples)


def g711_table(law: str) -> Pcm:
    """Return the sample that each byte stands for, of `pcmu` or `pcma`."""
    return _ulaw_table() if law == "pcmu" else _alaw_table()


def encode_g711(pcm: Pcm, law: str) -> bytes:
    """Return the bytes of `pcmu` or `pcma` that are nearest to the samples (8 kHz)."""
    return _g711_bytes(law)[pcm.view(np.uint16)].tobytes()


@lru_cache(maxsize=2)
def _g711_bytes(law: str) -> NDArray[np.uint8]:
    """Return the byte for each sample, these taken as numbers without a sign."""
    table = g711_table(law).astype(np.int32)
    order = np.argsort(table, kind="stable")
    samples = np.arange(65_536).astype(np.uint16).view(np.int16).astype(np.int32)
    borders = (table[order][1:] + table[order][:-1]) / 2
    return order[np.searchsorted(borders, samples)].astype(np.uint8)


class G711Decoder:
    """µ-law or A-law at 8 kHz (ITU-T G.711), brought to 24 kHz."""

    clock_rate = G711_RATE

    def __init__(self, law: str) -> None:
        self._table = g711_table(law)
        self._resampler = Resampler(G711_RATE, RATE)
        self._concealer = Concealer()

    def duration(self, payload: bytes) -> int:
        return len(payload)

    def decode(self, payload: bytes) -> Pcm:
        pcm = self._resampler.process(self._table[np.frombuffer(payload, np.uint8)])
        return self._concealer.receive(pcm)

    def conceal(self, samples: int, following: bytes | None) -> Pcm:
        return self._concealer.conceal(samples)


class PcmDecoder:
    """What has been decoded already, 16-bit mono, brought to 24 kHz. What is lost of it is silence."""

    def __init__(self, rate: int) -> None:
        self.clock_rate = rate
        self._resampler = Resampler(rate, RATE)

    def duration(self, payload: bytes) -> int:
        return len(payload) // 2

    def decode(self, payload: bytes) -> Pcm:
        return self._resampler.process(np.frombuffer(payload, np.int16))

    def conceal(self, samples: int, following: bytes | None) -> Pcm:
        return np.zeros(samples, np.int16)


@lru_cache(maxsize=1)
def _ulaw_table() -> Pcm:
    code = ~np.arange(256, dtype=np.int32) & 0xFF
    magnitude = (((code & 0x0F) << 3) + 0x84 << ((code & 0x70) >> 4)) - 0x84
    return np.where(code & 0x80, -magnitude, magnitude).astype(np.int16)


@lru_cache(maxsize=1)
def _alaw_table() -> Pcm:
    code = np.arange(256, dtype=np.int32) ^ 0x55
    segment = (code & 0x70) >> 4
    mantissa = ((code & 0x0F) << 4) + 8
    magnitude = np.where(segment > 0, mantissa + 0x100 << np.maximum(segment - 1, 0), mantissa)
    return np.where(code & 0x80, magnitude, -magnitude).astype(np.int16)
