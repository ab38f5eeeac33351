import numpy as np
import pytest

from visavis.audio import BLOCK, EMPTY, RATE, Pcm, level_dbfs
from visavis.config import WaitingConfig
from visavis.waiting import Waiting, make_tick

TICK = BLOCK / RATE
SILENCE: Pcm = np.zeros(BLOCK, np.int16)
SENTENCE: Pcm = np.full(RATE, 1_000, np.int16)
TICKING = WaitingConfig(play="sound")
SAYING = WaitingConfig(play="sentence")


def heard(waiting: Waiting, start: float, end: float, *, wanted: bool = True) -> Pcm:
    """Mix silence from one time to another, 20 ms at a time."""
    blocks = range(round(start / TICK), round(end / TICK))
    return np.concatenate([waiting.mix(SILENCE, at * TICK, wanted=wanted) for at in blocks])


def test_a_slow_answer_is_waited_for_with_a_soft_sound() -> None:
    waiting = Waiting(TICKING, EMPTY)
    waiting.begin(1.0)
    assert not heard(waiting, 1.0, 2.5).any()
    sound = heard(waiting, 2.5, 9.5)
    assert np.flatnonzero(sound)[0] < BLOCK
    assert 400 < np.abs(sound).max() < 3_300  # -38 to -20 dBFS
    quietest = max(level_dbfs(sound[at : at + round(1.3 * RATE)]) for at in range(0, 5 * RATE, RATE))
    assert quietest > -60  # it goes on for as long as the wait


def test_the_sound_repeats_without_a_click() -> None:
    tick = make_tick()
    assert abs(int(tick[0])) <= 1
    assert abs(int(tick[-1])) <= 2
    assert np.abs(np.diff(tick.astype(int))).max() < 350


@pytest.mark.parametrize(("config", "sentence"), [(TICKING, EMPTY), (SAYING, SENTENCE)])
def test_it_is_gone_within_ten_milliseconds_of_the_answer(config: WaitingConfig, sentence: Pcm) -> None:
    waiting = Waiting(config, sentence)
    waiting.begin(0.0)
    assert heard(waiting, 0.0, 1.7).any()
    answer = np.full(BLOCK, 5_000, np.int16)
    last = waiting.mix(answer, 1.7, wanted=False)
    assert (last[:200] != 5_000).any()
    assert (last[240:] == 5_000).all()
    assert np.abs(np.diff(last.astype(int))).max() < 400
    assert waiting.mix(answer, 1.72, wanted=False) is answer


def test_a_sentence_is_said_once_a_turn() -> None:
    waiting = Waiting(SAYING, SENTENCE)
    waiting.begin(0.0)
    said = heard(waiting, 0.0, 10.0)
    assert np.flatnonzero(said)[0] == pytest.approx(1.5 * RATE, abs=BLOCK)
    assert np.count_nonzero(said) == pytest.approx(RATE, abs=2)
    waiting.begin(20.0)
    assert np.count_nonzero(heard(waiting, 20.0, 30.0)) == pytest.approx(RATE, abs=2)


def test_a_sentence_that_was_broken_off_is_not_begun_again_in_the_same_turn() -> None:
    waiting = Waiting(SAYING, SENTENCE)
    waiting.begin(0.0)
    assert heard(waiting, 0.0, 2.0).any()
    heard(waiting, 2.0, 2.2, wanted=False)  # a cough
    assert not heard(waiting, 2.2, 9.0).any()


def test_the_sound_begins_again_after_a_cough() -> None:
    waiting = Waiting(TICKING, EMPTY)
    waiting.begin(0.0)
    assert heard(waiting, 0.0, 2.0).any()
    assert not heard(waiting, 2.0, 2.2, wanted=False)[BLOCK // 2 :].any()
    assert heard(waiting, 2.2, 2.5).any()


def test_without_a_sound_nothing_is_touched() -> None:
    waiting = Waiting(WaitingConfig(), EMPTY)
    waiting.begin(0.0)
    assert waiting.mix(SILENCE, 60.0, wanted=True) is SILENCE


def test_what_is_too_loud_is_clipped_and_does_not_wrap() -> None:
    waiting = Waiting(SAYING, np.full(RATE, 30_000, np.int16))
    waiting.begin(0.0)
    loud = np.full(BLOCK, 30_000, np.int16)
    waiting.mix(loud, 1.5, wanted=True)
    assert waiting.mix(loud, 1.52, wanted=True).min() == 32_767
