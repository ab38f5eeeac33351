import numpy as np
import pytest

from visavis.local.whisper import RATE, log_mel, split_speech, tidy
from visavis.local.whisper import _mel_filters as mel_filters


def test_loops_are_cut_to_once() -> None:
    assert (
        tidy("I am here. I am here. I am here. I am here. I am here. I am here. I am here.") == "I am here."
    )
    assert tidy("So so so so so so so so") == "So"


@pytest.mark.parametrize("text", ["five five", "no, no, no, no!", "Row, row, row your boat", "2, 4, 6, 8"])
def test_what_people_repeat_stays(text: str) -> None:
    assert tidy(text) == text


@pytest.mark.parametrize("text", ["[BLANK_AUDIO]", "(music)", "♪♪", "[Music] (applause)", "  "])
def test_notes_are_no_speech(text: str) -> None:
    assert tidy(text) == ""


def test_speech_with_a_note_in_it_stays() -> None:
    assert tidy("Hello (again) to you.") == "Hello (again) to you."


def test_short_speech_is_one_chunk_and_none_is_none() -> None:
    pcm = np.ones(5 * RATE, np.int16)
    assert [len(chunk) for chunk in split_speech(pcm)] == [5 * RATE]
    assert split_speech(np.zeros(0, np.int16)) == []


def test_long_speech_is_cut_in_its_pauses_and_nothing_is_lost() -> None:
    pcm = np.random.default_rng(0).integers(-9000, 9000, 65 * RATE).astype(np.int16)
    for second in (25, 50):
        pcm[second * RATE : second * RATE + RATE // 2] = 0
    chunks = split_speech(pcm)
    assert np.array_equal(np.concatenate(chunks), pcm)
    assert all(len(chunk) <= 28 * RATE for chunk in chunks)
    ends = np.cumsum([len(chunk) for chunk in chunks])[:-1] / RATE
    assert all(min(abs(end - 25.25), abs(end - 50.25)) <= 0.25 for end in ends)


def test_features_have_whispers_shape_and_range() -> None:
    filters = mel_filters(80)
    assert filters.shape == (80, 201)
    tone = np.sin(2 * np.pi * 1000 * np.arange(RATE) / RATE).astype(np.float32)
    features = log_mel(tone, 2 * RATE, filters)
    assert features.shape == (80, 200)
    assert features.dtype == np.float32
    assert features.max() - features.min() <= 2.0 + 1e-6  # 8 decades, divided by 4
    loudest = int(features[:, 50].argmax())
    assert filters[loudest].argmax() == 1000 * 400 // RATE  # the band that holds 1 kHz
    assert np.all(features[:, 150] == features.min())  # padding is silence
