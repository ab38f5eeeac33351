"""A clause's sound begins at once and ends with the pause that its punctuation calls for. Sans-I/O.

Voices put silence around what they say, a quarter of a second before it and half a second after it. At the
beginning of an answer that is delay, and between clauses a hole.
"""

import numpy as np

from ..audio import RATE, Pcm

SENTENCE_S = 0.3
COMMA_S = 0.12
MARGIN_S = 0.02
"Kept at both ends of what is loud enough: the breath of an h is fainter."

_BLOCK = RATE // 100
_SILENT = 32768 * 10 ** (-64 / 20)
"RMS. The packaged voice fades to below -70 dBFS at its ends; its softest consonants begin above -60."
_SENTENCE = ".!?…。！？"
_COMMA = ",;:—–，、；："
_CLOSING = "\"'”’»)]」』 "


def fit(pcm: Pcm, text: str) -> Pcm:
    """Give a clause's sound, 24 kHz, its pauses: none before, after it what `text` ends with.

    Sound without anything audible is returned as it is.
    """
    blocks = pcm[: len(pcm) // _BLOCK * _BLOCK].astype(np.float32).reshape(-1, _BLOCK)
    loud = np.flatnonzero(np.sqrt(np.square(blocks).mean(axis=1)) > _SILENT)
    if not len(loud):
        return pcm
    margin = int(MARGIN_S * RATE)
    begin = max(0, int(loud[0]) * _BLOCK - margin)
    end = min(len(pcm), (int(loud[-1]) + 1) * _BLOCK + margin)
    return np.concatenate([pcm[begin:end], np.zeros(int(pause_after(text) * RATE), np.int16)])


def pause_after(text: str) -> float:
    """Tell how long a speaker pauses after `text`, in seconds."""
    last = text.rstrip(_CLOSING)[-1:]
    if not last:
        return 0.0
    if last in _SENTENCE:
        return SENTENCE_S
    return COMMA_S if last in _COMMA else 0.0
