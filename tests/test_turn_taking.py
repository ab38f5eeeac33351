"""Who starts, stops and gives way when: a call in virtual time, with the product's own settings."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sim import TICK, UNHURRIED, Reply, Sim, user_turns
from visavis import events as ev
from visavis.actions import CancelResponse, HearAside, JudgeTurn, SendAhead, StartResponse, StopAhead
from visavis.audio import RATE
from visavis.config import (
    AheadConfig,
    ConversationConfig,
    HistoryConfig,
    SessionConfig,
    SpeculationConfig,
    TurnDetection,
)
from visavis.engine import AudioPart, Request
from visavis.errors import EngineBusy
from visavis.history import TextContent

EAGER = ConversationConfig()
LONG = Reply(text=" ".join(f"word{i}" for i in range(40)), seconds=20.0)


def voiced_s(request: Request) -> float:
    """Seconds of voice in the newest message."""
    parts = [part for part in request.messages[-1].parts if isinstance(part, AudioPart)]
    return sum(np.count_nonzero(part.pcm) for part in parts) / RATE


# Asking in advance


def test_the_engine_is_asked_in_the_pause_and_heard_at_its_end():
    sim = Sim(speech=[(1.0, 2.5)], replies=[Reply(first_delay=0.2)], config=EAGER).run(8)
    (request,) = sim.requests()
    assert request.speculative
    assert sim.times(StartResponse) == [pytest.approx(2.58, abs=0.03)]
    assert sim.times(ev.ResponseCreated) == [pytest.approx(3.0, abs=0.03)]
    assert sim.marks("first_sent")[0] - sim.marks("turn_end")[0] <= 2 * TICK
    assert not sim.times(CancelResponse)
    assert [done.status for done in sim.events(ev.ResponseDone)] == ["completed"]


def test_nothing_of_an_answer_in_advance_is_told_before_the_turn_is_over():
    sim = Sim(speech=[(1.0, 2.5)], replies=[Reply(first_delay=0.1)], config=EAGER).run(2.9)
    assert sim.times(StartResponse)
    assert [type(event) for event in sim.events()] == [ev.SpeechBegan]


def test_an_answer_in_advance_is_to_just_what_becomes_the_turn():
    sim = Sim(speech=[(1.0, 2.5)], config=EAGER, camera_fps=4).run(8)
    (asked,) = sim.requests()
    sent = [part for part in asked.messages[-1].parts if isinstance(part, AudioPart)]
    later = sim.conversation.history.messages("")
    kept = [part for message in later for part in message.parts if isinstance(part, AudioPart)]
    assert [(part.uuid, part.at, len(part.pcm)) for part in kept] == [
        (part.uuid, part.at, len(part.pcm)) for part in sent
    ]


def test_who_goes_on_after_a_pause_is_asked_for_as_a_whole_and_never_under_the_same_name():
    sim = Sim(speech=[(1.0, 2.0), (2.3, 3.0)], config=EAGER).run(8)
    first, second = sim.requests()
    assert (voiced_s(first), voiced_s(second)) == (pytest.approx(1.0, abs=0.05), pytest.approx(1.7, abs=0.05))
    assert len({request.messages[-1].parts[0].uuid for request in (first, second)}) == 2
    assert sim.times(CancelResponse) == [pytest.approx(2.32, abs=0.03)]
    assert len(sim.events(ev.TurnCommitted)) == len(sim.events(ev.ResponseDone)) == 1
    assert len(sim.marks("draft_wasted")) == len(sim.marks("draft_used")) == 1


def test_wasted_answers_have_a_budget():
    words = [(1.0 + 0.6 * k, 1.4 + 0.6 * k) for k in range(20)]
    budget = SpeculationConfig(burst=3, wasted_per_min=6.0)
    sim = Sim(speech=words, config=replace(EAGER, speculation=budget)).run(20)
    assert len(sim.marks("draft_wasted")) == 3 + 1  # and one more for ten seconds
    assert [done.status for done in sim.events(ev.ResponseDone)] == ["completed"]


def test_an_engine_that_has_no_place_for_what_may_be_in_vain_is_asked_again_at_the_end():
    busy = Reply(fails_after=0, first_delay=0.05, error=EngineBusy("There is no place."))
    sim = Sim(speech=[(1.0, 2.5)], replies=[busy, Reply()], config=EAGER).run(8)
    first, second = sim.requests()
    assert (first.speculative, second.speculative) == (True, False)
    assert first.messages == second.messages
    assert [done.status for done in sim.events(ev.ResponseDone)] == ["completed"]
    assert not sim.times(CancelResponse)


@pytest.mark.parametrize(
    "event",
    [
        ev.UpdateSession(SessionConfig(instructions="Be brief.")),
        ev.CreateItem("user", "and in writing"),
        ev.CreateResponse(),
    ],
)
def test_an_answer_in_advance_to_something_else_than_is_wanted_is_dropped(event):
    sim = Sim(speech=[(1.0, 2.5)], client=[(2.8, event)], config=EAGER).run(12)
    first, second, *_ = sim.requests()
    assert first.speculative
    assert not second.speculative
    assert sim.times(CancelResponse) == [pytest.approx(2.8, abs=0.03)]


def test_what_is_cleared_or_committed_in_a_pause_is_not_answered_in_advance():
    cleared = Sim(speech=[(1.0, 2.5)], client=[(2.8, ev.ClearAudio())], config=EAGER).run(8)
    assert len(cleared.times(CancelResponse)) == 1
    assert not cleared.events(ev.ResponseCreated)
    committed = Sim(speech=[(1.0, 2.5)], client=[(2.8, ev.CommitAudio())], config=EAGER).run(8)
    assert len(committed.times(CancelResponse)) == 1
    assert [done.status for done in committed.events(ev.ResponseDone)] == ["completed"]


def test_nobody_is_asked_in_advance_who_will_not_be_asked():
    session = SessionConfig(turn_detection=TurnDetection(create_response=False))
    assert not Sim(speech=[(1.0, 2.5)], config=replace(EAGER, session=session)).run(8).requests()
    cough = Sim(speech=[(1.0, 1.14)], config=EAGER).run(4)
    assert not cough.requests()


def test_what_is_sent_ahead_of_a_long_turn_is_stopped_for_the_answer_and_goes_on_if_the_user_does():
    config = replace(EAGER, ahead=AheadConfig(clip_s=2.0), history=HistoryConfig(24_000))
    sim = Sim(speech=[(1.0, 5.5), (5.9, 9.0)], config=config, camera_fps=4).run(14)
    first, second = sim.requests()
    assert sim.times(StopAhead)[0] == sim.times(StartResponse)[0]
    assert [at for at in sim.times(SendAhead) if at > sim.times(StartResponse)[0]]
    heard = [part for part in second.messages[-1].parts if isinstance(part, AudioPart)]
    before = [part for part in first.messages[-1].parts if isinstance(part, AudioPart)]
    assert heard[0].cuts[: len(before[0].cuts)] == before[0].cuts
    assert len(heard[0].cuts) > len(before[0].cuts)


# A model's verdict


def judged(*verdicts: float | None) -> Sim:
    turns = replace(UNHURRIED.turns, smart_turn=Path("model.onnx"), smart_turn_at_ms=(200, 400))
    return Sim(speech=[(1.0, 2.5)], verdicts=verdicts, config=replace(UNHURRIED, turns=turns))


def test_a_model_is_asked_as_the_silence_grows():
    sim = judged(None, None).run(6)
    asked = [action for _, action in sim.log if isinstance(action, JudgeTurn)]
    assert [at - 2.5 for at in sim.times(JudgeTurn)] == [pytest.approx(s, abs=0.03) for s in (0.2, 0.4)]
    assert len({action.end for action in asked}) == 1
    assert [np.count_nonzero(action.pcm) / RATE for action in asked] == [pytest.approx(1.5, abs=0.03)] * 2
    assert len(asked[1].pcm) - len(asked[0].pcm) == pytest.approx(0.2 * RATE, abs=480)


def test_a_model_that_is_sure_ends_the_turn_sooner_and_one_that_is_not_later():
    (unknown,) = judged(None, None).run(6).times(ev.TurnCommitted)
    (sure,) = judged(0.99, 0.99).run(6).times(ev.TurnCommitted)
    (doubting,) = judged(0.02, 0.02).run(6).times(ev.TurnCommitted)
    assert sure < unknown < doubting


def test_a_verdict_on_what_was_said_before_is_dropped():
    sim = judged(None, None).run(2.8)
    sim.conversation.receive_verdict(123, 0.99, sim.now)
    assert not sim.run(0.1).times(ev.TurnCommitted)


def test_the_next_silence_is_judged_anew():
    sim = judged(0.02)
    sim.speech = [(1.0, 2.0), (2.3, 3.0)]
    sim.run(5)
    assert len({action.end for _, action in sim.log if isinstance(action, JudgeTurn)}) == 2


def test_who_goes_on_after_the_client_has_asked_for_an_answer_in_the_pause_is_not_spoken_over():
    sim = Sim(
        speech=[(1.0, 2.0), (2.4, 4.0)],
        client=[(2.3, ev.CreateResponse())],
        replies=[replace(LONG, first_delay=0.02), Reply()],
    ).run(12)
    assert sim.sound_between(2.5, 4.0) == 0
    assert [done.status for done in sim.events(ev.ResponseDone)] == ["cancelled", "completed"]


def test_a_client_event_that_is_refused_leaves_the_answer_in_advance():
    again = ev.CreateItem("user", "hello", item_id="twice")
    sim = Sim(speech=[(1.0, 2.5)], client=[(0.5, again), (2.8, again)], config=EAGER).run(8)
    assert len(sim.errors) == 1
    assert not sim.times(CancelResponse)
    assert len(sim.requests()) == 1


# Joining what belongs together


def test_who_goes_on_soon_after_the_end_of_a_turn_is_answered_anew_as_one():
    sim = Sim(speech=[(1.0, 2.0), (2.9, 4.0)], replies=[LONG, Reply()], config=EAGER).run(12)
    assert user_turns(sim) == [pytest.approx(2.1, abs=0.05)]
    assert voiced_s(sim.requests()[-1]) == pytest.approx(2.1, abs=0.05)
    roles = [item.role for item in sim.conversation.history.items]
    assert roles == ["user", "assistant"]
    deleted = [event.item_id for event in sim.events(ev.ItemDeleted)]
    assert len(deleted) == 2
    assert sim.events(ev.TurnCommitted)[0].item_id in deleted
    assert [done.status for done in sim.events(ev.ResponseDone)] == ["cancelled", "completed"]
    assert not sim.events(ev.ItemTruncated)
    assert len(sim.events(ev.PlayoutCleared)) == 1


def test_who_goes_on_before_the_answer_is_heard_is_answered_anew_as_one():
    slow = Reply(first_delay=2.0)
    sim = Sim(speech=[(1.0, 2.0), (2.9, 4.0)], replies=[slow, Reply()]).run(12)
    assert user_turns(sim) == [pytest.approx(2.1, abs=0.05)]
    assert len(sim.events(ev.ItemDeleted)) == 1
    assert not sim.events(ev.PlayoutCleared)


def test_who_goes_on_later_has_said_something_else():
    sim = Sim(speech=[(1.0, 2.0), (3.5, 4.5)], replies=[LONG, Reply()]).run(12)
    assert user_turns(sim) == [pytest.approx(1.0, abs=0.05)] * 2
    assert not sim.events(ev.ItemDeleted)
    assert len(sim.events(ev.ItemTruncated)) == 1


def test_who_has_heard_enough_of_the_answer_interrupts_it():
    little = replace(UNHURRIED, turns=replace(UNHURRIED.turns, reopen_heard_ms=100))
    prompt = replace(LONG, first_delay=0.02)
    sim = Sim(speech=[(1.0, 2.0), (2.9, 4.0)], replies=[prompt, Reply()], config=little).run(12)
    assert not sim.events(ev.ItemDeleted)
    assert len(user_turns(sim)) == 2


def test_a_long_turn_is_not_made_longer():
    config = replace(UNHURRIED, turns=replace(UNHURRIED.turns, max_turn_ms=4_000))
    sim = Sim(speech=[(1.0, 3.2), (4.1, 5.0)], replies=[LONG, Reply()], config=config).run(12)
    assert not sim.events(ev.ItemDeleted)


def test_a_remark_that_goes_on_with_a_turn_is_joined_when_it_ends():
    """Too short to be sure of while it lasts, at the end of a short answer: it is what was left to say."""
    short = Reply("Yes.", seconds=0.5, first_delay=0.02)
    sim = Sim(speech=[(1.0, 2.0), (2.8, 3.1)], replies=[short, Reply()]).run(12)
    assert user_turns(sim) == [pytest.approx(1.3, abs=0.05)]
    assert len(sim.requests()) == 2


# Giving way


def stances(sim: Sim) -> list[tuple[float, str]]:
    return [
        (at, action.event.stance)
        for at, action in sim.log
        if isinstance(getattr(action, "event", None), ev.StanceChanged)
    ]


def test_the_answer_gives_way_step_by_step():
    sim = Sim(speech=[(1.0, 2.5), (6.0, 7.5)], replies=[LONG, Reply()]).run(12)
    (ducked, first), (held, second) = stances(sim)
    assert (first, second) == ("ducked", "held")
    assert ducked - 6.0 == pytest.approx(0.08, abs=0.03)
    assert held - 6.0 == pytest.approx(0.12, abs=0.03)
    assert sim.sound_between(6.17, 7.5) == 0
    assert sim.marks("barge_in")[0] - 6.0 == pytest.approx(0.45, abs=0.03)


@pytest.mark.parametrize("length", [0.1, 0.18, 0.3])
def test_a_cough_or_a_word_of_assent_takes_nothing_from_the_answer(length):
    reply = Reply(seconds=8.0)
    sim = Sim(speech=[(1.0, 2.5), (6.0, 6.0 + length)], replies=[reply]).run(20)
    assert stances(sim)[-1][1] == "open"
    assert not sim.events(ev.PlayoutCleared)
    assert [done.status for done in sim.events(ev.ResponseDone)] == ["completed"]
    assert sim.sound_between(0, 20) == pytest.approx(8.0, abs=0.1)
    assert len(user_turns(sim)) == 1
    assert len(sim.events(ev.TurnCommitted)) == 1


def test_a_word_of_assent_is_kept_as_an_aside_in_the_trace():
    sim = Sim(speech=[(1.0, 2.5), (6.0, 6.3)], replies=[Reply(seconds=8.0)]).run(20)
    assert len(sim.marks("aside")) == 1
    told = [name for name in names_after(sim, 6.0) if name != "StanceChanged"]
    assert told[:3] == ["SpeechBegan", "SpeechEnded", "InputCleared"]


def names_after(sim: Sim, at: float) -> list[str]:
    return [type(action.event).__name__ for when, action in sim.log if when > at and hasattr(action, "event")]


def test_the_answer_goes_on_soon_after_a_word_of_assent():
    sim = Sim(speech=[(1.0, 2.5), (6.0, 6.3)], replies=[Reply(seconds=8.0)]).run(20)
    (opened,) = [at for at, stance in stances(sim) if stance == "open"]
    assert opened - 6.3 == pytest.approx(0.3, abs=0.05)


def test_the_answer_waits_for_more_even_where_turns_end_sooner():
    session = SessionConfig(turn_detection=TurnDetection(silence_duration_ms=160))
    config = replace(UNHURRIED, session=session)
    sim = Sim(speech=[(1.0, 2.5), (6.0, 6.3)], replies=[Reply(seconds=8.0)], config=config).run(20)
    (opened,) = [at for at, stance in stances(sim) if stance == "open"]
    assert opened - 6.3 == pytest.approx(0.3, abs=0.05)


def test_a_short_word_that_begins_an_interruption_is_part_of_it():
    sim = Sim(speech=[(1.0, 2.5), (6.0, 6.3), (6.85, 8.0)], replies=[LONG, Reply()]).run(14)
    assert len(sim.marks("aside")) == 1
    assert user_turns(sim) == [pytest.approx(1.5, abs=0.05), pytest.approx(1.45, abs=0.05)]
    assert len(sim.events(ev.ItemTruncated)) == 1


def test_a_word_of_assent_long_before_an_interruption_is_no_part_of_it():
    sim = Sim(speech=[(1.0, 2.5), (6.0, 6.3), (8.5, 9.5)], replies=[LONG, Reply()]).run(14)
    assert user_turns(sim) == [pytest.approx(1.5, abs=0.05), pytest.approx(1.0, abs=0.05)]


def test_a_loud_word_interrupts_however_short():
    sim = Sim(speech=[(1.0, 4.0), (7.0, 7.34)], replies=[LONG, Reply()], louder_db=(0, 12)).run(12)
    assert sim.marks("barge_in")[0] - 7.0 == pytest.approx(0.28, abs=0.03)
    assert len(user_turns(sim)) == 2


def test_a_word_at_the_end_of_an_answer_is_the_reply_to_it():
    reply = Reply("Shall I go on?", seconds=3.0, first_delay=0.02)
    sim = Sim(speech=[(1.0, 2.5), (5.6, 5.9)], replies=[reply, Reply()]).run(12)
    assert len(user_turns(sim)) == 2


def test_what_a_recogniser_hears_decides_on_a_short_remark():
    for text, cleared in [("Mm-hm.", 0), ("Yes, right!", 0), ("", 0), ("Next one please.", 1)]:
        sim = Sim(speech=[(1.0, 2.5), (6.0, 6.3)], replies=[LONG, Reply()], recogniser=(0.15, text)).run(12)
        assert len(sim.events(ev.PlayoutCleared)) == cleared, text
        assert len(user_turns(sim)) == 1 + cleared, text


def test_a_recogniser_that_is_late_brings_the_remark_back():
    sim = Sim(speech=[(1.0, 2.5), (6.0, 6.3)], replies=[LONG, Reply()], recogniser=(0.9, "Go back")).run(12)
    assert len(sim.events(ev.PlayoutCleared)) == 1
    assert user_turns(sim) == [pytest.approx(1.5, abs=0.05), pytest.approx(0.3, abs=0.05)]
    assert sim.requests()[-1].messages[-1].role == "user"
    assert sum(isinstance(action, HearAside) for _, action in sim.log) == 1


def test_a_recogniser_that_is_later_than_the_answer_brings_the_remark_back_too():
    reply = Reply(seconds=5.0)
    sim = Sim(speech=[(1.0, 2.5), (6.0, 6.3)], replies=[reply, Reply()], recogniser=(3.5, "Go back")).run(20)
    assert not sim.events(ev.PlayoutCleared)
    assert user_turns(sim) == [pytest.approx(1.5, abs=0.05), pytest.approx(0.3, abs=0.05)]


def test_the_word_on_an_older_remark_changes_nothing():
    sim = Sim(speech=[(1.0, 2.5), (6.0, 6.3)], replies=[LONG]).run(9)
    sim.conversation.receive_text(12345, "something else", sim.now)
    assert sim.conversation.next_action() is None


def test_an_answer_that_is_not_to_be_interrupted_does_not_give_way():
    session = SessionConfig(turn_detection=TurnDetection(interrupt_response=False))
    reply = Reply(seconds=6.0)
    config = replace(UNHURRIED, session=session)
    sim = Sim(speech=[(1.0, 2.5), (4.0, 5.5)], replies=[reply, Reply()], config=config).run(20)
    assert not stances(sim)
    assert not sim.events(ev.PlayoutCleared)
    assert [done.status for done in sim.events(ev.ResponseDone)] == ["completed", "completed"]


@pytest.mark.parametrize(
    ("least_ms", "said_s", "interrupts"), [(200, 0.3, True), (900, 0.8, False), (900, 1.2, True)]
)
def test_a_client_may_say_how_much_speech_interrupts(least_ms: int, said_s: float, *, interrupts: bool):
    session = SessionConfig(turn_detection=TurnDetection(min_interruption_ms=least_ms))
    sim = Sim(
        speech=[(1.0, 4.0), (7.0, 7.0 + said_s)],
        replies=[LONG, Reply()],
        config=replace(UNHURRIED, session=session),
        recogniser=(0.15, "Next one please."),
        louder_db=(0, 12),
    ).run(14)
    assert [at - 7.0 for at in sim.marks("barge_in")] == [
        pytest.approx(least_ms / 1000, abs=0.05)
    ] * interrupts
    assert len(user_turns(sim)) == 1 + interrupts


def test_an_answer_that_waits_goes_on_when_it_is_no_longer_to_be_interrupted():
    session = SessionConfig(turn_detection=TurnDetection(interrupt_response=False))
    sim = Sim(
        speech=[(1.0, 2.5), (6.0, 6.3)],
        replies=[Reply(seconds=8.0), Reply()],
        client=[(6.45, ev.UpdateSession(session))],
    ).run(30)
    assert [stance for _, stance in stances(sim)] == ["ducked", "held", "open"]
    assert sim.sound_between(0, 30) == pytest.approx(8.0 + 3.0, abs=0.15)
    assert len(user_turns(sim)) == 2  # it may have been a question, and it waits for its answer


def test_what_was_said_over_an_answer_counts_if_the_answer_is_not_to_be_interrupted_from_then_on():
    session = SessionConfig(turn_detection=TurnDetection(interrupt_response=False))
    sim = Sim(
        speech=[(1.0, 2.5), (6.0, 6.3)],
        replies=[Reply(seconds=8.0), Reply()],
        client=[(6.77, ev.UpdateSession(session))],
    ).run(30)
    assert len(user_turns(sim)) == 2


def test_an_answer_goes_on_when_nothing_more_is_heard_of_the_caller():
    sim = Sim(speech=[(1.0, 2.5), (6.0, 6.1)], replies=[Reply(seconds=8.0)])
    sim.run(6.1)
    assert stances(sim)[-1][1] == "ducked"
    sim.deaf = True
    sim.run(10)
    assert stances(sim)[-1][1] == "open"
    assert sim.sound_between(0, 30) == pytest.approx(8.0, abs=0.1)


def test_text_between_turns_is_not_joined():
    sim = Sim(speech=[(1.0, 2.0)], client=[(2.7, ev.CreateItem("user", "and more"))]).run(8)
    (written,) = [
        content
        for item in sim.conversation.history.items
        for content in item.content
        if isinstance(content, TextContent)
    ]
    assert written.text == "and more"


# Others, far away


TELEVISION = [(12.0 + 3 * k, 14.4 + 3 * k) for k in range(5)]


def talk_beside_a_television(detection: TurnDetection, louder_db: float, answer_s: float = 2.0) -> Sim:
    replies = [Reply(seconds=answer_s)]
    config = replace(EAGER, session=SessionConfig(turn_detection=detection))
    speech = [(1.0, 4.0), *TELEVISION]
    return Sim(speech=speech, louder_db=(0, *[louder_db] * 5), replies=replies, config=config).run(30)


def test_a_voice_from_afar_is_neither_answered_nor_asked_about():
    sim = talk_beside_a_television(TurnDetection(), -18)
    assert len(sim.requests()) == len(user_turns(sim)) == len(sim.events(ev.SpeechBegan)) == 1


def test_a_voice_from_afar_takes_nothing_from_the_answer():
    sim = talk_beside_a_television(TurnDetection(), -18, answer_s=20.0)
    assert not sim.events(ev.StanceChanged)
    assert not sim.marks("barge_in")


def test_plain_voice_detection_and_softer_callers_are_as_they_were():
    assert len(user_turns(talk_beside_a_television(TurnDetection("server_vad"), -18))) > 1
    assert len(user_turns(talk_beside_a_television(TurnDetection(), -10))) > 1


def test_a_loud_word_interrupts_over_a_voice_from_afar():
    speech = [(1.0, 4.0), (5.0, 7.0), (7.0, 7.34)]
    sim = Sim(speech=speech, replies=[LONG, Reply()], louder_db=(0, -18, 12)).run(12)
    assert sim.marks("barge_in")[0] - 7.0 == pytest.approx(0.28, abs=0.03)
