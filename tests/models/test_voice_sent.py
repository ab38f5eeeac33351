"""Our voice as callers hear it: nothing that is said gets lost in the encoder that is made to cost little."""

import fractions
from collections.abc import Callable

import av
import numpy as np
import pytest
from aiortc.codecs.opus import OpusEncoder as StockEncoder
from dictation import SENTENCES, errors, words

import speech
from visavis.audio import BLOCK, RATE, Pcm
from visavis.codecs import OpusDecoder, OpusEncoder
from visavis.config import RtcConfig

pytestmark = pytest.mark.models

Hear = Callable[[Pcm], str]

VOICES = ("hibari", "american")


def through_lean(pcm: Pcm) -> Pcm:
    encoder, decoder = OpusEncoder(RtcConfig()), OpusDecoder()
    return np.concatenate([decoder.decode(encoder.encode(block)) for block in blocks_of(pcm)])


def through_stock(pcm: Pcm) -> Pcm:
    encoder, decoder = StockEncoder(), OpusDecoder()
    heard: list[Pcm] = []
    for number, block in enumerate(blocks_of(pcm)):
        frame = av.AudioFrame.from_ndarray(block.reshape(1, -1), format="s16", layout="mono")
        frame.sample_rate, frame.pts, frame.time_base = RATE, number * BLOCK, fractions.Fraction(1, RATE)
        heard += [decoder.decode(payload) for payload in encoder.encode(frame)[0]]
    return np.concatenate(heard)


def blocks_of(pcm: Pcm) -> list[Pcm]:
    padded = np.concatenate([pcm, np.zeros(-len(pcm) % BLOCK, np.int16)])
    return list(padded.reshape(-1, BLOCK))


def test_speech_is_understood_as_well_as_through_the_stock_encoder(hear: Hear) -> None:
    """The recogniser errs by itself, too: now on one word, now on another, by less than one in a hundred."""
    ways: dict[str, Callable[[Pcm], Pcm]] = {
        "clean": lambda pcm: pcm,
        "stock": through_stock,
        "lean": through_lean,
    }
    wrong = dict.fromkeys(ways, 0)
    total = 0
    for voice in VOICES:
        if (reason := speech.lacks(voice)) is not None:
            pytest.skip(reason)
        for sentence in SENTENCES[:8]:
            pcm, said = speech.speak(sentence, voice), words(sentence)
            total += len(said)
            for way, through in ways.items():
                wrong[way] += errors(said, words(hear(through(pcm))))
    assert wrong["clean"] < 0.06 * total, "the recogniser is no judge"
    assert wrong["lean"] <= max(wrong["clean"], wrong["stock"]) + 0.01 * total, f"{wrong} of {total} words"
