"""What the caller hears in place of an answer that failed: a sentence of our own, which needs no engine."""

from pathlib import Path

import av
import numpy as np

from .audio import EMPTY, RATE
from .config import ApologyConfig
from .errors import ConfigError
from .response import Apology

_SPOKEN = Path(__file__).parent / "apology.ogg"
"The default text in the embedded voice (hibari-tts, Apache-2.0)."


def load_apology(config: ApologyConfig) -> Apology | None:
    """Read the spoken sentence, or return None if there shall be none.

    Raises ConfigError if `config.sound` cannot be read, or another text comes without a sound of its own.
    """
    if not config.text:
        return None
    if config.sound is None and config.text != ApologyConfig().text:
        raise ConfigError("conversation.apology.sound is missing: the packaged voice says another text.")
    path = _SPOKEN if config.sound is None else config.sound
    resampler = av.AudioResampler(format="s16", layout="mono", rate=RATE)
    pieces = [EMPTY]
    try:
        with av.open(str(path)) as container:
            for decoded in container.decode(audio=0):
                pieces += [frame.to_ndarray()[0] for frame in resampler.resample(decoded)]
        pieces += [frame.to_ndarray()[0] for frame in resampler.resample(None)]
    except (av.FFmpegError, IndexError) as error:
        raise ConfigError(f"conversation.apology.sound {path} cannot be read: {error}.") from error
    return Apology(config.text, np.concatenate(pieces).astype(np.int16))
