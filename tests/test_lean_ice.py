"""When a caller is asked whether they are still there, in time that passes at once."""

import asyncio
import selectors
from collections.abc import Callable
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from aioice.stun import TransactionTimeout

from visavis.rtc.lean.ice import CHECK_S, EXPIRY_S, QUIET_S, keep_consent


class Clock(selectors.SelectSelector):
    """Has nobody wait: the time waited for has passed."""

    now = 0.0

    def select(self, timeout: float | None = None) -> Any:
        self.now += timeout or 0.0
        return super().select(0)


class Checked:
    """A connection in place of aioice's; notes when it asks."""

    remote_password = "secret"
    _query_consent_task: object = "running"

    def __init__(self, clock: Clock, answers: Callable[[float], bool], took_s: float = 0.05) -> None:
        self.asked: list[float] = []
        self.closed: float | None = None
        self._clock = clock
        self._answers = answers
        self._took_s = took_s
        pair = SimpleNamespace(protocol=self, remote_addr=("192.0.2.1", 9))
        self._nominated = {1: pair}

    query_consent: Any

    def build_request(self, pair: object, *, nominate: bool) -> str:
        assert not nominate
        return "request"

    async def request(self, *_: object, **__: object) -> None:
        self.asked.append(self._clock.now)
        await asyncio.sleep(self._took_s)
        if not self._answers(self.asked[-1]):
            raise TransactionTimeout

    async def close(self) -> None:
        self.closed = self._clock.now


def checks(
    for_s: float,
    heard: Callable[[float, list[float]], float],
    answers: Callable[[float], bool] = lambda at: True,
    *,
    nominated: bool = True,
) -> Checked:
    """Run the checks for a time; `heard` is given the time and those of the checks so far."""
    clock = Clock()
    loop = asyncio.SelectorEventLoop(clock)
    loop.time = lambda: clock.now  # type: ignore[method-assign]
    checked: Any = Checked(clock, answers)
    if not nominated:
        checked._nominated.clear()
    keep_consent(checked, lambda: heard(clock.now, checked.asked))

    async def run() -> None:
        try:
            async with asyncio.timeout(for_s):
                await checked.query_consent()
        except TimeoutError:
            pass

    loop.run_until_complete(run())
    loop.close()
    assert isinstance(checked, Checked)
    return checked


def pauses(asked: list[float]) -> list[float]:
    return [after - before for before, after in pairwise(asked)]


def test_a_caller_who_is_heard_is_asked_every_five_seconds() -> None:
    checked = checks(300, lambda now, _: now)
    assert len(checked.asked) > 45
    assert all(0.79 * CHECK_S < pause < 1.21 * CHECK_S for pause in pauses(checked.asked))
    assert checked.closed is None


def test_a_caller_who_sends_nothing_is_asked_every_second() -> None:
    checked = checks(60, lambda _, asked: asked[-1] + 0.05 if asked else 0.0)
    assert len(checked.asked) > 45
    assert all(pause < 1.21 * QUIET_S + 0.06 for pause in pauses(checked.asked))


@pytest.mark.parametrize("fell_silent", [10.0, 11.3, 14.9])
def test_who_falls_silent_is_asked_a_second_later(fell_silent: float) -> None:
    checked = checks(fell_silent + 1.21 * QUIET_S, lambda now, _: min(now, fell_silent))
    assert checked.asked[-1] > fell_silent


@pytest.mark.parametrize("sends", [True, False])
def test_who_does_not_answer_for_half_a_minute_is_sent_no_more(*, sends: bool) -> None:
    checked = checks(100, lambda now, _: now if sends else 0.0, lambda at: at < 20)
    assert checked.closed is not None
    assert (
        EXPIRY_S <= checked.closed - max(at for at in checked.asked if at < 20) <= EXPIRY_S + 1.21 * CHECK_S
    )
    assert checked._query_consent_task is None


def test_lost_answers_end_nothing() -> None:
    checked = checks(300, lambda now, _: now, lambda at: int(at / 10) % 2 == 0)
    assert checked.closed is None


def test_without_a_way_to_the_caller_there_is_no_consent() -> None:
    checked = checks(100, lambda now, _: now, nominated=False)
    assert checked.asked == []
    assert checked.closed is not None
