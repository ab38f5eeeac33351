"""How long is waited before a new start."""

from visavis.backoff import Backoff


def test_pauses_double_up_to_the_longest() -> None:
    backoff = Backoff(0.25, 1.5, 60.0)
    assert [backoff.pause(1.0) for _ in range(5)] == [0.25, 0.5, 1.0, 1.5, 1.5]


def test_a_long_life_makes_them_begin_anew() -> None:
    backoff = Backoff(0.25, 30.0, 60.0)
    assert [backoff.pause(lived) for lived in (0.0, 59.9, 60.0, 0.0)] == [0.25, 0.5, 0.25, 0.5]
