import pytest
from hypothesis import given
from hypothesis import strategies as st

from visavis.audio import BLOCK, RATE
from visavis.config import IdleConfig, TurnDetection
from visavis.errors import ConfigError
from visavis.quiet import Idleness, Lull, Verdict

IDLE = IdleConfig(end_s=60.0, warn_s=10.0, max_nudges=2)


class Caller:
    """Feeds a lull block by block and notes when somebody was asked to go on, and since when it was quiet."""

    def __init__(self, timeout_ms: int | None) -> None:
        self.lull = Lull(IDLE)
        self.timeout_ms = timeout_ms
        self.position = 0
        self.nudges: list[tuple[float, float]] = []

    def wait(self, seconds: float, *, free: bool = True) -> "Caller":
        for _ in range(round(seconds * RATE / BLOCK)):
            end = self.position + BLOCK
            since = self.lull.receive(self.position, end, free=free, timeout_ms=self.timeout_ms)
            self.position = end
            if since is not None:
                self.nudges.append((since / RATE, end / RATE))
        return self


def test_a_caller_is_asked_after_so_much_silence() -> None:
    caller = Caller(5_000).wait(3, free=False).wait(4.9)
    assert caller.nudges == []
    assert caller.wait(0.2).nudges == [(3.0, 8.0)]


def test_whoever_speaks_or_is_spoken_to_is_not_asked() -> None:
    assert Caller(5_000).wait(4).wait(0.1, free=False).wait(4).wait(60, free=False).nudges == []


def test_the_silence_counts_anew_after_whoever_asked_has_spoken() -> None:
    caller = Caller(5_000).wait(5).wait(3, free=False).wait(6)
    assert caller.nudges == [(0.0, 5.0), (8.0, 13.0)]


def test_an_empty_chair_is_left_in_peace_until_somebody_answers() -> None:
    caller = Caller(1_000).wait(30)
    assert len(caller.nudges) == IDLE.max_nudges
    caller.lull.answer()
    assert len(caller.wait(30).nudges) == 2 * IDLE.max_nudges


def test_nobody_is_asked_who_did_not_want_it() -> None:
    caller = Caller(None).wait(60)
    assert caller.nudges == []
    caller.timeout_ms = 5_000  # silence from before the setting does not count
    assert caller.wait(5.1).nudges == [(60.0, 65.0)]


def test_an_idle_call_is_warned_and_then_ended() -> None:
    idle = Idleness(IDLE)
    idle.begin(100.0)
    assert idle.next_timeout() == 150.0
    assert idle.handle_timeout(149.9, busy=False) is None
    assert idle.handle_timeout(150.0, busy=False) is Verdict.WARN
    assert idle.next_timeout() == 160.0
    assert idle.handle_timeout(159.9, busy=False) is None
    assert idle.handle_timeout(160.0, busy=False) is Verdict.END
    assert idle.next_timeout() is None
    assert idle.handle_timeout(1_000.0, busy=False) is None


def test_a_word_after_the_warning_keeps_the_call_and_the_next_silence_is_warned_of_again() -> None:
    idle = Idleness(IDLE)
    idle.begin(0.0)
    assert idle.handle_timeout(50.0, busy=False) is Verdict.WARN
    idle.act(55.0)
    assert idle.next_timeout() == 105.0
    assert idle.handle_timeout(105.0, busy=False) is Verdict.WARN


def test_nothing_is_idle_before_the_caller_is_there_or_after_the_end() -> None:
    idle = Idleness(IDLE)
    idle.act(5.0)
    assert idle.next_timeout() is None
    idle.begin(10.0)
    idle.handle_timeout(60.0, busy=False)
    idle.handle_timeout(70.0, busy=False)
    idle.act(71.0)
    assert idle.next_timeout() is None


def test_a_call_may_be_idle_for_ever() -> None:
    idle = Idleness(IdleConfig(end_s=None))
    idle.begin(0.0)
    assert idle.next_timeout() is None
    assert idle.handle_timeout(1e9, busy=False) is None


@given(st.lists(st.floats(0.1, 100)))
def test_a_call_without_acts_ends_whenever_it_is_looked_at(steps: list[float]) -> None:
    """However late the timeouts are handled, there is one warning and then one end."""
    idle, now, told = Idleness(IDLE), 0.0, []
    idle.begin(now)
    for step in [*steps, 100.0, 100.0]:
        now += step
        told += [verdict for verdict in [idle.handle_timeout(now, busy=False)] if verdict]
    assert told == [Verdict.WARN, Verdict.END]


def test_a_warning_that_would_come_after_the_end_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"idle\.end_s must be above warn_s"):
        IdleConfig(end_s=10.0, warn_s=10.0)


def test_a_timeout_that_nobody_could_answer_in_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"idle_timeout_ms must be 1000 or more"):
        TurnDetection(idle_timeout_ms=0)
