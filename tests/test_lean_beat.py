"""The common beat, by a clock that only tests move."""

import heapq
from collections.abc import Callable
from typing import Any, cast

import pytest

from visavis.rtc.audio import BEAT_S, MAX_LATE_S
from visavis.rtc.lean.beat import PHASES, Beat


class Loop:
    """A clock with timers."""

    def __init__(self) -> None:
        self.now = 1_000.003
        self._timers: list[tuple[float, int, Timer]] = []

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, callback: Callable[[], None]) -> "Timer":
        timer = Timer(callback)
        heapq.heappush(self._timers, (when, id(timer), timer))
        return timer

    @property
    def is_idle(self) -> bool:
        return all(timer.cancelled for _, _, timer in self._timers)

    def pass_time(self, seconds: float) -> None:
        end = self.now + seconds
        while self._timers and self._timers[0][0] <= end + 1e-9:
            when, _, timer = heapq.heappop(self._timers)
            self.now = max(self.now, when)
            if not timer.cancelled:
                timer.callback()
        self.now = max(self.now, end)

    def stand_still(self, seconds: float) -> None:
        """Let time pass in which no timer is looked at."""
        self.now += seconds


class Timer:
    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class Member:
    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self.ticks: list[tuple[float, int]] = []
        self.failures = 0

    def tick(self, beats: int) -> None:
        self.ticks.append((self._loop.now, beats))

    def failed(self) -> None:
        self.failures += 1

    def join(self, beat: Beat) -> Callable[[], None]:
        return beat.join(self.tick, self.failed)


@pytest.fixture
def loop() -> Loop:
    return Loop()


@pytest.fixture
def beat(loop: Loop) -> Beat:
    return Beat(cast("Any", loop))


def test_a_member_is_called_fifty_times_a_second_without_drift(loop: Loop, beat: Beat) -> None:
    member = Member(loop)
    member.join(beat)
    loop.pass_time(100.0)
    assert len(member.ticks) == 5_000
    first = member.ticks[0][0]
    assert all(at == pytest.approx(first + n * BEAT_S, abs=1e-6) for n, (at, _) in enumerate(member.ticks))
    assert {beats for _, beats in member.ticks} == {1}


def test_it_runs_only_while_there_are_calls(loop: Loop, beat: Beat) -> None:
    assert loop.is_idle
    leave = Member(loop).join(beat)
    assert not loop.is_idle
    leave()
    assert loop.is_idle
    leave()
    member = Member(loop)
    member.join(beat)
    loop.pass_time(1.0)
    assert len(member.ticks) == 50


def test_calls_are_spread_over_the_beat(loop: Loop, beat: Beat) -> None:
    members = [Member(loop) for _ in range(2 * PHASES)]
    for member in members:
        member.join(beat)
    loop.pass_time(BEAT_S)
    times = sorted(at for member in members for at, _ in member.ticks)
    assert len(times) == len(members)
    assert len({round(at, 6) for at in times}) == PHASES


def test_a_short_stall_is_made_up(loop: Loop, beat: Beat) -> None:
    member = Member(loop)
    member.join(beat)
    loop.pass_time(0.1)
    loop.stand_still(MAX_LATE_S - BEAT_S)
    loop.pass_time(1.0)
    assert {beats for _, beats in member.ticks} == {1}
    assert len(member.ticks) == pytest.approx((0.1 + MAX_LATE_S - BEAT_S + 1.0) / BEAT_S, abs=1)


def test_beats_of_a_long_stall_are_counted_and_not_made_up(loop: Loop, beat: Beat) -> None:
    member = Member(loop)
    member.join(beat)
    loop.pass_time(0.1)
    loop.stand_still(1.0)
    loop.pass_time(1.0)
    assert sum(beats > 1 for _, beats in member.ticks) == 1
    assert sum(beats for _, beats in member.ticks) == pytest.approx(2.1 / BEAT_S, abs=1)
    late = next(n for n, (_, beats) in enumerate(member.ticks) if beats > 1)
    gaps = [
        later - at for (at, _), (later, _) in zip(member.ticks[late:], member.ticks[late + 1 :], strict=False)
    ]
    assert all(gap > BEAT_S / 2 for gap in gaps[1:]), "no burst"


def test_a_fault_ends_one_call_and_no_other(loop: Loop, beat: Beat, caplog: pytest.LogCaptureFixture) -> None:
    class Faulty(Member):
        def tick(self, beats: int) -> None:
            super().tick(beats)
            raise ZeroDivisionError

    faulty, sound = Faulty(loop), [Member(loop) for _ in range(PHASES)]
    for member in (faulty, *sound):
        member.join(beat)
    loop.pass_time(1.0)
    assert (len(faulty.ticks), faulty.failures) == (1, 1)
    assert all(len(member.ticks) == 50 for member in sound)
    assert "ZeroDivisionError" in caplog.text


def test_a_call_that_another_ends_is_not_called_any_more(loop: Loop, beat: Beat) -> None:
    beats = [beat]
    victims = [Member(loop) for _ in range(2 * PHASES)]

    class Killer(Member):
        def tick(self, beats: int) -> None:
            for leave in leaves:
                leave()

    Killer(loop).join(beats[0])
    leaves = [victim.join(beat) for victim in victims]
    loop.pass_time(BEAT_S)
    called = sum(len(victim.ticks) for victim in victims)
    loop.pass_time(1.0)
    assert sum(len(victim.ticks) for victim in victims) == called < len(victims)


def test_a_closed_beat_is_silent(loop: Loop, beat: Beat) -> None:
    member = Member(loop)
    member.join(beat)
    beat.close()
    loop.pass_time(1.0)
    assert member.ticks == []
    assert loop.is_idle
