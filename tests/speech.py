"""Speech for tests, made on the spot: the packaged English voice and espeak-ng's robots."""

import functools
import importlib.util
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from visavis.audio import RATE, Pcm, decode_wav, encode_wav, from_float, resample

ESPEAK = {
    "american": ("-v", "en-us", "-s", "150"),
    "british": ("-v", "en-gb+f3", "-s", "140"),
    "deep": ("-v", "en-us+m3", "-s", "140"),
    "german": ("-v", "de", "-s", "150"),
}
VOICES = ("hibari", *ESPEAK)


def lacks(voice: str) -> str | None:
    """Say why a voice cannot speak here; None when it can."""
    if voice in ESPEAK:
        return None if shutil.which("espeak-ng") else "no espeak-ng (apt-get install espeak-ng)"
    return None if importlib.util.find_spec("hibari") else "no hibari-tts (pip install '.[local]')"


@functools.lru_cache(maxsize=64)
def speak(text: str, voice: str = "hibari") -> Pcm:
    """Return the spoken text, 24 kHz, with 0.2 s of digital silence at both ends; read-only."""
    if voice in ESPEAK:
        # To a file: on a pipe it promises a length that it does not know.
        with tempfile.NamedTemporaryFile(suffix=".wav") as wav:
            command = ("espeak-ng", *ESPEAK[voice], "--stdin", "-w", wav.name)
            subprocess.run(command, input=text.encode(), check=True, timeout=60)
            spoken = resample(*decode_wav(wav.read()), RATE)
    else:
        spoken = from_float(np.asarray(_hibari()(text, seed=0), np.float32))
    pcm = np.concatenate([silence(0.2), spoken, silence(0.2)])
    pcm.flags.writeable = False
    return pcm


def silence(seconds: float) -> Pcm:
    return np.zeros(round(seconds * RATE), np.int16)


def write_wav(path: Path, pcm: Pcm, rate: int = RATE) -> Path:
    path.write_bytes(encode_wav(pcm, rate))
    return path


@functools.cache
def _hibari() -> Any:  # the package has no types
    from hibari import Hibari

    return Hibari(threads=1)
