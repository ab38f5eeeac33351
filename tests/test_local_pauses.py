import numpy as np
import pytest

from visavis.audio import RATE
from visavis.local.pauses import COMMA_S, MARGIN_S, SENTENCE_S, fit, pause_after


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("It is late.", SENTENCE_S),
        ('He said: "Go home!" ', SENTENCE_S),
        ("你好。", SENTENCE_S),
        ("Well, ", COMMA_S),
        ("The capital of France ", 0.0),
        ("", 0.0),
        ('"', 0.0),
    ],
)
def test_a_pause_is_what_the_punctuation_calls_for(text: str, seconds: float) -> None:
    assert pause_after(text) == seconds


@pytest.mark.parametrize("before", [0, 1, 6_000, 7_001])
@pytest.mark.parametrize("after", [0, 239, 10_000])
def test_silence_around_the_words_is_replaced(before: int, after: int) -> None:
    words = np.full(RATE, 500, np.int16)
    faint = np.random.default_rng(0).integers(-5, 6, before + RATE + after).astype(np.int16)
    faint[before : before + RATE] = words
    sound = fit(faint, "Well,")
    loud = np.flatnonzero(sound == 500)
    assert len(loud) == RATE, "no word is cut"
    assert loud[0] <= MARGIN_S * RATE + RATE // 100
    tail = len(sound) - 1 - loud[-1]
    assert COMMA_S * RATE <= tail <= (COMMA_S + MARGIN_S) * RATE + RATE // 100


def test_what_has_no_sound_stays_as_it_is() -> None:
    silence = np.zeros(1_000, np.int16)
    assert fit(silence, "…") is silence
    assert len(fit(silence[:0], "…")) == 0
