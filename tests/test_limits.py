"""When an engine is left alone, and how many it serves at once."""

import logging

import pytest

from visavis.engine.limits import Breaker, BreakerState, Places, Ticket


def tripped(failures: int = 3, open_s: float = 10.0) -> Breaker:
    breaker = Breaker("gpu", failures, open_s)
    for _ in range(failures):
        assert breaker.enter(0.0)
        breaker.note_failure(0.0)
    return breaker


# The breaker.


def test_failures_in_a_row_open_it() -> None:
    breaker = Breaker("gpu", 3, 10.0)
    for now in (0.0, 1.0):
        assert breaker.enter(now)
        breaker.note_failure(now)
    assert breaker.enter(2.0)
    breaker.note_failure(2.0)
    assert breaker.state is BreakerState.OPEN
    assert not breaker.enter(11.9)


def test_a_success_in_between_forgives_the_failures_before() -> None:
    breaker = Breaker("gpu", 2, 10.0)
    for _ in range(5):
        breaker.note_failure(0.0)
        breaker.note_success()
    assert breaker.enter(0.0)


def test_an_answer_that_only_began_forgives_nothing() -> None:
    breaker = Breaker("gpu", 2, 10.0)
    for _ in range(2):
        assert breaker.enter(0.0)
        breaker.note_answering()
        breaker.note_failure(0.0)
    assert not breaker.lets_through(0.0)


def test_after_its_time_one_request_probes_and_others_wait_for_what_it_finds() -> None:
    breaker = tripped()
    assert breaker.lets_through(10.0)
    assert breaker.enter(10.0)
    assert not breaker.lets_through(10.0)
    assert not breaker.enter(10.0)
    breaker.note_answering()
    assert breaker.enter(10.5)


def test_a_probe_that_fails_opens_it_for_the_whole_time_again() -> None:
    breaker = tripped()
    assert breaker.enter(10.0)
    breaker.note_failure(12.0)
    assert not breaker.enter(21.9)
    assert breaker.enter(22.0)


def test_a_probe_that_answers_and_breaks_off_opens_it_at_once() -> None:
    breaker = tripped()
    assert breaker.enter(10.0)
    breaker.note_answering()
    breaker.note_failure(11.0)
    assert not breaker.enter(12.0)


def test_a_probe_that_tells_nothing_leaves_the_next_request_to_probe() -> None:
    breaker = tripped()
    assert breaker.enter(10.0)
    breaker.note_nothing(10.1)
    assert breaker.enter(10.1)
    assert not breaker.enter(10.1)


def test_nothing_told_changes_nothing_otherwise() -> None:
    breaker = Breaker("gpu", 1, 10.0)
    breaker.note_nothing(0.0)
    assert breaker.state is BreakerState.CLOSED


def test_late_failures_do_not_prolong_the_rest() -> None:
    breaker = tripped()
    breaker.note_failure(9.0)
    assert breaker.enter(10.0)


def test_where_there_is_no_other_it_is_probed_before_its_time_by_one() -> None:
    breaker = tripped()
    assert not breaker.enter(1.0)
    assert breaker.enter(1.0, early=True)
    assert not breaker.enter(1.0, early=True)


def test_each_change_is_one_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="visavis.engine.limits"):
        breaker = tripped()
        breaker.enter(10.0)
        breaker.note_success()
    assert [message.split(": ")[1] for message in caplog.messages] == [
        "CLOSED -> OPEN",
        "OPEN -> PROBING",
        "PROBING -> CLOSED",
    ]
    assert all(message.startswith("engine gpu: ") for message in caplog.messages)


# The places.


def entered(places: Places) -> Ticket:
    ticket = places.enter()
    assert ticket is not None
    return ticket


def test_beyond_the_places_requests_wait_and_beyond_the_queue_they_are_refused() -> None:
    places = Places("gpu", 2, 1)
    assert [entered(places).granted for _ in range(3)] == [True, True, False]
    assert places.enter() is None
    assert (places.busy, places.waiting) == (2, 1)


def test_first_come_is_first_served() -> None:
    places = Places("gpu", 1, 3)
    served, *waiting = [entered(places) for _ in range(4)]
    for ticket in waiting:
        assert places.leave(served) == [ticket]
        assert ticket.granted
        served = ticket
    assert places.leave(served) == []
    assert places.busy == 0


def test_nobody_overtakes_the_queue() -> None:
    places = Places("gpu", 1, 2)
    served, waiting = entered(places), entered(places)
    places.leave(served)
    assert waiting.granted
    assert not entered(places).granted


def test_who_stops_waiting_leaves_the_queue() -> None:
    places = Places("gpu", 1, 2)
    served, gone, next_one = entered(places), entered(places), entered(places)
    assert places.leave(gone) == []
    assert places.leave(served) == [next_one]


def test_no_memory_halves_the_places_down_to_one() -> None:
    places = Places("gpu", 8, 0)
    for left in (4, 2, 1):
        ticket = entered(places)
        assert places.note_out_of_memory(ticket)
        places.leave(ticket)
        assert places.places == left
    assert not places.note_out_of_memory(entered(places))
    assert places.places == 1


def test_requests_that_run_out_of_memory_together_halve_once() -> None:
    places = Places("gpu", 8, 0)
    together = [entered(places) for _ in range(8)]
    assert all(places.note_out_of_memory(ticket) for ticket in together)
    assert places.places == 4


def test_fewer_places_take_effect_as_requests_end() -> None:
    places = Places("gpu", 4, 1)
    together = [entered(places) for _ in range(4)]
    places.note_out_of_memory(together[0])
    waiting = entered(places)
    assert places.leave(together[0]) == places.leave(together[1]) == []
    assert places.leave(together[2]) == [waiting]


def test_places_come_back_one_by_one_after_many_answers() -> None:
    places = Places("gpu", 4, 1)
    tickets = [entered(places) for _ in range(2)]
    places.note_out_of_memory(tickets[0])
    waiting = entered(places)
    granted, needed = [], 0
    while places.places < 3:
        granted += places.note_success()
        needed += 1
    assert granted == [waiting]
    assert needed >= 8
    for _ in range(needed):
        places.note_success()
    assert places.places == 4
    for _ in range(100):
        assert places.note_success() == []
    assert places.places == 4


def test_places_are_free_that_nobody_has_or_waits_for() -> None:
    places = Places("gpu", 2, 2)
    assert places.free == 2
    tickets = [places.enter() for _ in range(3)]
    assert places.free == 0
    for ticket in tickets[:2]:
        assert ticket is not None
        places.leave(ticket)
    assert places.free == 1


# Places shared with other processes.


class FakePool:
    """A pool as one process sees it."""

    def __init__(self, places: int, seats: int) -> None:
        self.places = places
        self.seats = seats
        self.crowded = False

    def free(self) -> int:
        return 0 if self.crowded else self.places

    def others_wait(self) -> bool:
        return self.crowded

    def take(self) -> bool:
        self.places -= (taken := self.places > 0)
        return taken

    def give(self) -> None:
        self.places += 1

    def sit(self) -> bool:
        self.seats -= (taken := self.seats > 0)
        return taken

    def stand(self) -> None:
        self.seats += 1


def test_a_shared_place_that_others_have_is_waited_for() -> None:
    pool = FakePool(places=1, seats=2)
    places = Places("gpu", 4, 4, pool)
    assert places.shared
    assert not Places("gpu", 4, 4).shared
    first, second = places.enter(), places.enter()
    assert first is not None
    assert second is not None
    assert (first.granted, second.granted, places.free) == (True, False, 0)
    assert places.retry() == []
    assert places.leave(first) == []  # it is nobody's now
    assert places.retry() == [second]
    assert (pool.places, pool.seats) == (0, 2)
    places.leave(second)
    assert (pool.places, places.free) == (1, 1)


def test_who_comes_while_others_wait_elsewhere_waits_too() -> None:
    pool = FakePool(places=1, seats=1)
    pool.crowded = True
    places = Places("gpu", 4, 4, pool)
    ticket = places.enter()
    assert ticket is not None
    assert not ticket.granted
    assert places.enter() is None  # the seats of all are taken
    places.leave(ticket)
    assert pool.seats == 1


def test_a_place_that_comes_back_is_had_by_trying() -> None:
    places = Places("gpu", 2, 4, FakePool(places=4, seats=4))
    tickets = [places.enter() for _ in range(3)]
    first = tickets[0]
    assert first is not None
    assert places.note_out_of_memory(first)
    places.leave(first)
    assert places.retry() == []
    for _ in range(15):
        assert places.note_success() == []
    assert places.note_success() == []
    assert places.retry() == [tickets[2]]
