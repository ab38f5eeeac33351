"""Sound within events: base64 of PCM or G.711, to and from 24 kHz. Sans-I/O.

Both directions are streams: a sample cut in two by a message, and the filter between two rates, go on with
the next one.
"""

import base64
import binascii
from typing import Any

import numpy as np

from ..audio import EMPTY, RATE, Pcm, Resampler
from ..codecs import G711_RATE, encode_g711, g711_table
from ..config import SoundFormat
from .fields import refuse, refuse_type

APPEND = "input_audio_buffer.append"

MAX_SECONDS = 330
"Of sound in one message: what OpenAI's 15 MiB are of PCM. To read them takes a third of a second."

_AT_ONCE = G711_RATE
"Samples of G.711 made into PCM in one go: a minute would take six times as long as its seconds one by one."


class SoundReader:
    """The sound that a client appends to its buffer."""

    def __init__(self) -> None:
        self._format: SoundFormat = "audio/pcm"
        self._half_sample = b""
        self._resampler = Resampler(G711_RATE, RATE)

    def read(self, value: Any, param: str, kind: SoundFormat) -> Pcm:
        """Return the next of the sound (mono, 24 kHz). Raises ClientEventError."""
        data = _decoded(value, param, kind)
        if kind != self._format:
            self.clear()
            self._format = kind
        if kind == "audio/pcm":
            data = self._half_sample + data
            whole = len(data) & ~1
            pcm = np.frombuffer(data[:whole], "<i2").astype(np.int16)
            self._half_sample = data[whole:]
            return pcm
        sound = g711_table(_law(kind))[np.frombuffer(data, np.uint8)]
        parts = (sound[at : at + _AT_ONCE] for at in range(0, len(sound), _AT_ONCE))
        return np.concatenate((EMPTY, *map(self._resampler.process, parts)))

    def clear(self) -> None:
        """What comes next does not go on where that ended."""
        self._half_sample = b""
        self._resampler = Resampler(G711_RATE, RATE)


class SoundWriter:
    """The sound of one reply."""

    def __init__(self, kind: SoundFormat) -> None:
        self._format = kind
        self._resampler = Resampler(RATE, RATE if kind == "audio/pcm" else G711_RATE)

    def write(self, pcm: Pcm) -> str:
        """Return the next of it (mono, 24 kHz) as base64, as much as can be told already."""
        sound = self._resampler.process(pcm)
        if self._format == "audio/pcm":
            data = sound.astype("<i2").tobytes()
        else:
            data = encode_g711(sound, _law(self._format))
        return base64.b64encode(data).decode()

    def finish(self) -> str:
        """Return what the filter still held of it."""
        held = round(self._resampler.delay_s * RATE)
        return self.write(np.zeros(held, np.int16)) if held else ""


def _decoded(value: Any, param: str, kind: SoundFormat) -> bytes:
    if not isinstance(value, str):
        refuse_type(value, param, "a string")
    try:
        data = base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        refuse(f"{param} must be base64 of the sound.", param, "invalid_audio")
    if len(data) > MAX_SECONDS * (2 * RATE if kind == "audio/pcm" else G711_RATE):
        refuse(f"{param} must be at most {MAX_SECONDS} s of sound.", param, "invalid_audio")
    return data


def _law(kind: SoundFormat) -> str:
    return kind.removeprefix("audio/")
