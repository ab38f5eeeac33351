from visavis import events as ev
from visavis.history import CallContent, Item
from visavis.tools.farewell import Farewell

CALL = Item("i1", "assistant", (CallContent("c1", "clock", "{}"),))


def heard(response_id: int) -> ev.TurnTimings:
    return ev.TurnTimings(response_id, None, final=True)


def follow(*events: ev.ServerEvent, asked: bool = True) -> list[bool]:
    farewell = Farewell()
    if asked:
        farewell.ask()
    return [farewell.receive(event) for event in events]


BEGUN = ev.ResponseCreated(2, ("audio",))
SAID = ev.ResponseDone(2, "completed")


def test_the_call_is_over_when_the_goodbye_has_been_heard() -> None:
    early = ev.TurnTimings(2, None, final=False)
    assert follow(heard(1), BEGUN, early, SAID, ev.PlayoutStopped(2), heard(2)) == [False] * 5 + [True]


def test_nobody_who_was_not_asked_to_ends_a_call() -> None:
    assert not any(follow(BEGUN, SAID, heard(2), asked=False))


def test_who_interrupts_the_goodbye_keeps_the_call() -> None:
    assert not any(follow(BEGUN, ev.PlayoutCleared(2), SAID, heard(2)))


def test_who_says_something_before_it_keeps_the_call() -> None:
    assert not any(follow(ev.TurnCommitted("i", None), BEGUN, SAID, heard(2)))


def test_an_answer_that_calls_another_function_is_no_goodbye_yet() -> None:
    calling = ev.ResponseDone(2, "completed", calls=(CALL,))
    later = (ev.ResponseCreated(3, ("audio",)), heard(3))
    assert follow(BEGUN, calling, heard(2), *later) == [False] * 4 + [True]


def test_the_end_of_a_call_is_told_once() -> None:
    assert follow(BEGUN, heard(2), heard(2)) == [False, True, False]
