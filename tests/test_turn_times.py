"""Marks become the times of turns, whoever asked when, and whatever never came."""

from dataclasses import replace

import numpy as np
import pytest

from sim import Reply, Sim
from visavis import events as ev
from visavis.actions import Mark, Notify, StopAhead
from visavis.audio import RATE
from visavis.config import ConversationConfig
from visavis.engine import Routed, Usage
from visavis.lines import Line, Lines
from visavis.turn_times import STAGES, Turn, TurnBook


def turns(sim: Sim) -> list[Turn]:
    book = TurnBook()
    return [turn for _, action in sim.log if (turn := book.receive(action)) is not None]


def close(book: TurnBook, response_id: int = 1, **marks_ms: int) -> Turn | None:
    return book.receive(Notify(ev.TurnTimings(response_id, "item", marks_ms, final=True)))


def test_a_spoken_turn_has_its_way_from_the_last_word_to_the_first_sample():
    sim = Sim(speech=[(1.0, 2.5)], replies=[Reply(first_delay=0.4)]).run(8)
    (turn,) = turns(sim)
    assert turn.status == "completed"
    stages = turn.stages()
    assert turn.marks["speech_end"] == pytest.approx(2.5, abs=0.06)
    assert stages["decision"] == pytest.approx(sim.marks("turn_end")[0] - 2.5, abs=0.06)
    assert stages["first_packet"] == pytest.approx(sim.marks("first_sent")[0] - sim.marks("turn_end")[0])
    assert stages["answer"] == pytest.approx(stages["decision"] + stages["first_packet"])
    assert stages["first_audio"] == 0
    assert stages["first_sample"] == sim.marks("first_sent")[0] - sim.marks("first_audio")[0]


def test_the_stages_of_an_engine_that_says_when_the_request_was_written_add_up():
    book = TurnBook()
    marks = {
        "turn_end": 5.0,
        "request_sent": 5.01,
        "first_thought": 5.2,
        "first_text": 5.3,
        "first_audio": 5.5,
    }
    for name, at in {**marks, "first_sent": 5.56, "done": 6.0}.items():
        assert book.receive(Mark(name, 1, at)) is None
    turn = close(book, speech_end=0, turn_end=240)
    assert turn is not None
    assert turn.stages() == pytest.approx(
        {
            "decision": 0.24,
            "request": 0.01,
            "first_delta": 0.19,
            "first_audio": 0.3,
            "first_sample": 0.06,
            "first_packet": 0.56,
            "answer": 0.8,
        }
    )
    assert list(turn.stages()) == list(STAGES)


def test_an_answer_asked_for_in_advance_was_requested_before_the_decision():
    sim = Sim(speech=[(1.0, 2.5)], replies=[Reply(first_delay=0.01)], config=ConversationConfig()).run(8)
    (turn,) = turns(sim)
    assert turn.marks["draft_asked"] < turn.marks["turn_end"]
    book = TurnBook()
    book.receive(Mark("turn_end", 1, 5.0))
    book.receive(Mark("request_sent", 1, 4.9))
    early = close(book, turn_end=0)
    assert early is not None
    assert early.stages() == pytest.approx({"request": -0.1})


def test_a_greeting_and_an_apology_are_no_answers_to_be_timed():
    greeting = Lines(
        greeting=Line("Hello.", np.full(RATE // 2, 700, np.int16)),
        apology=Line("Sorry.", np.full(RATE, 700, np.int16)),
    )
    sim = Sim(connects_at=0.5, lines=greeting, speech=[(3.0, 4.5)], replies=[Reply(fails_after=0)]).run(9)
    greeted, failed = turns(sim)
    assert greeted.stages() == {}
    assert failed.status == "failed"
    assert failed.stages().keys() == {"decision"}


def test_what_was_asked_in_vain_is_no_turn():
    book = TurnBook()
    book.receive(Mark("draft_asked", 1, 1.0))
    book.receive(Mark("draft_wasted", 1, 1.2))
    assert close(book) is None
    book.receive(Mark("draft_asked", 2, 1.0))  # and one that failed is never heard of again
    assert close(book, 2) is None


def test_a_turn_has_its_tokens_its_status_and_the_engine_that_answered():
    book = TurnBook()
    book.receive(Mark("turn_end", 1, 5.0))
    book.receive(Notify(ev.ResponseDone(1, "completed", usage=Usage(300, 20))))
    assert book.receive(StopAhead()) is None
    assert book.receive(Notify(ev.TurnTimings(1, "item", {"turn_end": 0}))) is None  # it goes on
    turn = book.receive(Notify(ev.TurnTimings(1, "item", {"turn_end": 0}, True, Routed("gpu", "candidate"))))
    assert turn is not None
    assert (turn.status, turn.input_tokens, turn.output_tokens) == ("completed", 300, 20)
    assert turn.route == Routed("gpu", "candidate")


def test_responses_whose_end_never_comes_do_not_gather():
    book = TurnBook()
    book.receive(Mark("turn_end", 1, 5.0))
    for response_id in range(2, 1000):
        book.receive(Mark("draft_asked", response_id, 6.0))
    assert close(book, turn_end=0) is None
    book.receive(Mark("turn_end", 999, 7.0))
    assert close(book, 999, turn_end=0) is not None


def test_every_hole_in_an_answer_is_marked():
    slow = Reply(seconds=3.0, chunks=(0.3, 0.3), rtf=3.0)
    sim = Sim(speech=[(1.0, 2.5)], replies=[slow]).run(20)
    assert len(sim.marks("underrun")) >= 2
    smooth = Sim(speech=[(1.0, 2.5)], replies=[replace(slow, rtf=0.1)]).run(20)
    assert smooth.marks("first_sent")
    assert smooth.marks("underrun") == []
