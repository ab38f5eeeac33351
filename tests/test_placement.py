"""Which worker takes a call, and that the books are right whatever comes first."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from visavis.placement import Load, Placement


def placement(*numbers: int) -> Placement:
    books = Placement()
    for number in numbers:
        books.add(number)
    return books


def open_call(books: Placement, call_id: str) -> int:
    number = books.choose()
    assert number is not None
    books.begin(number)
    books.opened(number, call_id)
    return number


def test_calls_are_spread_evenly() -> None:
    books = placement(0, 1, 2)
    assert sorted(Counter(open_call(books, f"c{i}") for i in range(30)).values()) == [10, 10, 10]


def test_calls_that_come_at_once_are_spread_before_any_is_open() -> None:
    books = placement(0, 1)
    taken = []
    for _ in range(4):
        number = books.choose()
        assert number is not None
        books.begin(number)
        taken.append(number)
    assert sorted(taken) == [0, 0, 1, 1]
    assert len(books) == 4


def test_who_has_lost_calls_gets_the_next() -> None:
    books = placement(0, 1)
    for i in range(4):
        open_call(books, f"c{i}")
    books.ended(1, "c1")
    assert books.choose() == 1


def test_among_equals_the_punctual_one_then_the_idle_one_is_chosen() -> None:
    books = placement(0, 1, 2)
    books.report(0, Load(cpu=0.1, lag_ms=30.0))
    books.report(1, Load(cpu=0.5, lag_ms=1.0))
    books.report(2, Load(cpu=0.4, lag_ms=1.0))
    assert books.choose() == 2
    books.begin(2)
    assert books.choose() == 1


def test_a_refused_call_counts_no_more() -> None:
    books = placement(0)
    books.begin(0)
    assert (len(books), books.is_placing(0)) == (1, True)
    books.refused(0)
    assert (len(books), books.is_placing(0)) == (0, False)


def test_a_retired_worker_keeps_its_calls_and_gets_no_more() -> None:
    books = placement(0, 1)
    books.begin(0)
    books.retire(0)
    books.opened(0, "a")
    assert books.choose() == 1
    assert len(books) == 1
    assert books.open
    books.retire(1)
    assert books.choose() is None
    assert not books.open


def test_a_worker_that_just_failed_is_passed_by() -> None:
    books = placement(0, 1)
    assert books.choose(besides=0) == 1
    books.retire(1)
    assert books.choose(besides=0) is None


def test_who_comes_back_gets_the_same_worker_if_it_takes_calls() -> None:
    books = placement(0, 1)
    open_call(books, "a")
    assert books.choose(rather=0) == 0
    assert books.choose(rather=7) == 1
    assert books.choose(besides=0, rather=0) == 1
    books.retire(0)
    assert books.choose(rather=0) == 1


def test_a_dead_worker_is_remembered_and_its_calls_are_not_counted() -> None:
    books = placement(0, 1)
    books.begin(0)
    books.opened(0, "a")
    books.begin(0)
    assert books.remove(0, lost=True) == 2
    assert len(books) == 0
    assert 0 not in books
    assert books.is_lost(0)
    assert not books.is_lost(1)


def test_one_that_was_to_go_lost_nothing() -> None:
    books = placement(0)
    assert books.remove(0, lost=False) == 0
    assert not books.is_lost(0)
    assert books.remove(7, lost=True) == 0
    assert books.is_lost(7)


def test_news_of_a_worker_that_is_gone_changes_nothing() -> None:
    books = placement(0)
    books.begin(0)
    books.remove(0, lost=True)
    books.opened(0, "a")
    books.refused(0)
    books.ended(0, "a")
    books.report(0, Load())
    books.retire(0)
    assert not books.is_placing(0)
    assert len(books) == 0


@given(st.lists(st.tuples(st.integers(0, 2), st.booleans(), st.booleans()), max_size=30))
def test_the_count_is_right_in_whatever_order_news_comes(calls: list[tuple[int, bool, bool]]) -> None:
    """Of each call: its worker, whether it is opened, and whether its end is told before its opening."""
    books = placement(0, 1, 2)
    living = 0
    for i, (number, succeeds, dies_first) in enumerate(calls):
        books.begin(number)
        assert len(books) == living + 1
        if not succeeds:
            books.refused(number)
        elif dies_first:
            books.ended(number, f"c{i}")
            books.opened(number, f"c{i}")
        else:
            books.opened(number, f"c{i}")
            living += 1
        assert len(books) == living
