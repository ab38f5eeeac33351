"""A voice is the caller's unless it is clearly softer than theirs; and nobody is shut out for good."""

from collections.abc import Iterable

import pytest

from visavis.audio import BLOCK, RATE
from visavis.config import NearnessConfig, TurnConfig, TurnDetection
from visavis.loudness import Loudness, Nearness
from visavis.turns import SpeechStarted, SpeechStopped, TurnDetector, TurnEvent

USUAL = -25.0
ROOM = -70.0


def usual(level: float = USUAL, seconds: float = 4.0) -> Loudness:
    loudness = Loudness()
    for _ in range(round(seconds * 50)):
        loudness.note(level)
    return loudness


class Talk:
    """Blocks of voice and silence, one after the other."""

    def __init__(self, loudness: Loudness | None = None) -> None:
        self.loudness = usual() if loudness is None else loudness
        self.near = Nearness(NearnessConfig(), self.loudness)
        self.turns = TurnDetector(TurnConfig(), TurnDetection(), near=self.near)
        self.events: list[TurnEvent] = []

    def hears(self, seconds: float, level: float, probability: float = 0.9) -> "Talk":
        for _ in range(round(seconds * 50)):
            self.events += self.turns.receive(self.turns.position, BLOCK, probability, level=level)
        return self

    def voice(self, seconds: float, below: float) -> "Talk":
        return self.hears(seconds, USUAL - below)

    def silence(self, seconds: float) -> "Talk":
        return self.hears(seconds, ROOM, 0.0)

    @property
    def starts(self) -> list[float]:
        return times(self.events)


def times(events: Iterable[TurnEvent]) -> list[float]:
    return [event.at / RATE for event in events if isinstance(event, SpeechStarted)]


# How loud a caller is


def test_nobody_knows_how_loud_a_caller_is_until_two_seconds_of_speech() -> None:
    assert usual(seconds=1.98).level is None
    assert usual(seconds=2.0).level == pytest.approx(USUAL, abs=0.1)


def test_the_loud_part_is_what_a_fifth_of_the_speech_exceeds() -> None:
    loudness = Loudness()
    for k in range(5_000):
        loudness.note(-30.0 + k * 7 % 10)
    assert loudness.level == pytest.approx(-22.5, abs=0.6)


def test_weak_syllables_and_others_in_a_turn_tell_nothing_of_it() -> None:
    loudness = usual()
    for _ in range(500):
        loudness.note(USUAL - 12)
    assert loudness.level == pytest.approx(USUAL, abs=0.1)


def test_it_falls_to_what_it_is_told_and_never_rises_for_that() -> None:
    loudness = usual()
    loudness.lower(-35.0)
    loudness.lower(-20.0)
    assert loudness.level == -35.0
    nobody = Loudness()
    nobody.lower(-35.0)
    assert nobody.level is None


# Whose voice it is


@pytest.mark.parametrize("below", [-6, 0, 6, 11])
def test_a_caller_who_varies_begins_a_turn_as_soon_as_ever(below: float) -> None:
    talk = Talk().silence(2).voice(0.12, below)
    assert talk.starts == [pytest.approx(1.7)]  # the onset less its padding
    assert talk.turns.onset == RATE * 12 // 100


@pytest.mark.parametrize("below", [16, 20, 30])
def test_a_voice_from_afar_begins_none_however_long(below: float) -> None:
    talk = Talk().silence(1)
    for _ in range(20):
        talk.voice(2, below)
        assert talk.turns.onset == 0  # and no answer gives way to it
        talk.silence(0.6)
    assert not talk.starts


def test_the_first_turn_of_a_call_begins_however_soft_it_is() -> None:
    assert Talk(Loudness()).silence(1).voice(0.12, 40).starts == [pytest.approx(0.7)]


def test_where_levels_are_not_told_no_voice_is_doubted() -> None:
    turns = Talk().turns
    events = [event for k in range(6) for event in turns.receive(k * BLOCK, BLOCK, 0.9)]
    assert times(events) == [0.0]


def test_a_caller_over_a_television_begins_a_turn_without_what_it_said() -> None:
    talk = Talk().silence(2).voice(8, 20).voice(0.3, 0)
    assert talk.starts == [pytest.approx(10.0 - 0.3, abs=0.25)]


def test_a_television_that_talks_on_is_not_kept() -> None:
    talk = Talk().silence(1)
    talk.voice(30, 20)
    assert talk.turns.position - talk.turns.oldest <= 3 * RATE


# A caller who has become softer


def test_who_speaks_a_little_softer_still_is_believed_after_a_second_and_heard_whole() -> None:
    talk = Talk().silence(2).voice(1.1, 13.5)
    assert not talk.starts
    talk.voice(0.2, 13.5)
    assert talk.starts == [pytest.approx(1.7)]
    assert talk.turns.onset == pytest.approx(1.3 * RATE, abs=BLOCK)


def test_who_was_believed_once_is_not_doubted_again() -> None:
    talk = Talk().silence(2).voice(2, 13.5).silence(3).voice(0.12, 15)
    assert talk.starts == [pytest.approx(1.7), pytest.approx(6.7)]


def test_a_soft_beginning_belongs_to_the_words_after_it() -> None:
    assert Talk().silence(2).voice(1.0, 20).voice(0.3, 0).starts == [pytest.approx(1.7)]


def calls(first_s: float, wait_s: float, again_s: float) -> list[float]:
    return Talk().silence(2).voice(first_s, 25).silence(wait_s).voice(again_s, 25).starts


def test_who_calls_again_from_far_away_is_believed_and_heard_whole() -> None:
    assert calls(1.5, 3.0, 0.5) == [pytest.approx(6.5 - 0.3)]


@pytest.mark.parametrize(
    ("first_s", "wait_s", "again_s"),
    [
        (0.3, 3.0, 0.5),  # a click
        (3.5, 3.0, 0.5),  # a speech
        (1.5, 1.5, 0.5),  # who waits for no answer
        (1.5, 9.0, 0.5),  # or for too long
        (1.5, 3.0, 0.3),
    ],
)
def test_a_television_does_not_call_again(first_s: float, wait_s: float, again_s: float) -> None:
    assert not calls(first_s, wait_s, again_s)


def test_a_voice_that_is_but_half_heard_is_not_silent_in_between() -> None:
    talk = Talk().silence(2).voice(0.5, 25)
    talk.hears(3, USUAL - 28, 0.2).voice(1.0, 25)
    assert not talk.starts


def test_a_turn_of_the_callers_own_voids_what_was_called_before() -> None:
    talk = Talk().silence(2).voice(1.5, 25).silence(2.5).voice(0.6, 0).silence(1.5).voice(1.0, 25)
    assert talk.starts == [pytest.approx(5.7)]


# With the turns


def test_a_change_of_settings_and_what_the_client_commits_end_all_doubts() -> None:
    talk = Talk().silence(2).voice(1.0, 20)
    talk.turns.reconfigure(TurnDetection())
    assert not talk.near.doubtful
    talk.silence(0.02)
    assert talk.turns.position - talk.turns.oldest < RATE
    talk = Talk().silence(2).voice(1.0, 20)
    stopped = talk.turns.commit()
    assert isinstance(stopped, SpeechStopped)
    assert stopped.end == 3 * RATE
    assert talk.turns.oldest == 3 * RATE
