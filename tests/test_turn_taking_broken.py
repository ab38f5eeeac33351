"""What once went wrong when the turns were taken at an awkward moment: a call in virtual time."""

from dataclasses import replace

import pytest

from sim import SILENCE, TICK, UNHURRIED, VOICE, Reply, Sim, user_turns
from visavis import events as ev
from visavis.actions import CancelResponse, StartResponse
from visavis.audio import BLOCK, RATE
from visavis.config import ConversationConfig, HistoryConfig, SessionConfig, TurnDetection

EAGER = ConversationConfig(history=HistoryConfig(media_turns=5))
PATIENT = replace(UNHURRIED, history=EAGER.history)
LONG = Reply(text=" ".join(f"word{i}" for i in range(40)), seconds=20.0)


def left_running(sim: Sim) -> set[int]:
    """Requests that were neither taken for the answer nor cancelled."""
    asked = {action.response_id for _, action in sim.log if isinstance(action, StartResponse)}
    cancelled = {action.response_id for _, action in sim.log if isinstance(action, CancelResponse)}
    return asked - cancelled - {event.response_id for event in sim.events(ev.ResponseCreated)}


def kept_s(sim: Sim) -> float:
    """Seconds of the microphone that are still kept."""
    tape = sim.conversation._listener._recorder._tape
    return (tape.end - tape.start) / RATE


def test_an_answer_in_advance_to_a_turn_that_becomes_too_long_in_the_pause_is_cancelled():
    config = replace(EAGER, turns=replace(EAGER.turns, max_turn_ms=4_000))
    sim = Sim(speech=[(1.0, 4.5)], replies=[Reply()], config=config).run(12)
    assert not left_running(sim)
    assert [done.status for done in sim.events(ev.ResponseDone)] == ["completed"]


def test_no_sound_is_in_both_parts_of_a_turn_that_became_too_long():
    config = replace(PATIENT, turns=replace(EAGER.turns, max_turn_ms=4_000))
    sim = Sim(speech=[(1.0, 6.0)], config=config).run(12)
    assert len(user_turns(sim)) == 2
    assert sum(user_turns(sim)) == pytest.approx(5.0, abs=1e-6)


def test_a_client_that_answers_itself_is_not_answered_for_when_it_clears_the_rest_of_a_long_turn():
    session = SessionConfig(turn_detection=TurnDetection(create_response=False))
    config = replace(EAGER, session=session, turns=replace(EAGER.turns, max_turn_ms=4_000))
    sim = Sim(speech=[(1.0, 5.4)], client=[(5.5, ev.ClearAudio())], config=config).run(12)
    assert len(user_turns(sim)) == 1
    assert not sim.requests()


def test_what_was_committed_at_its_first_sound_is_no_part_of_a_turn_that_goes_on():
    client = [(2.77, ev.CommitAudio())]
    sim = Sim(speech=[(1.0, 2.0), (2.7, 3.5)], replies=[LONG, Reply()], client=client, config=PATIENT).run(12)
    assert sum(user_turns(sim)) == pytest.approx(1.8, abs=0.05)


def test_what_was_cleared_is_no_part_of_a_turn_that_goes_on():
    sim = Sim(speech=[(1.0, 2.0), (2.7, 3.5)], replies=[LONG, Reply()], client=[(2.77, ev.ClearAudio())]).run(
        12
    )
    assert sum(user_turns(sim)) == pytest.approx(1.0 + 0.72, abs=0.03)


def test_a_word_that_only_a_recogniser_was_sure_of_is_submitted_however_short():
    sim = Sim(speech=[(1.0, 2.5), (6.0, 6.16)], replies=[LONG, Reply()], recogniser=(0.1, "Stop!")).run(14)
    assert len(sim.events(ev.PlayoutCleared)) == 1
    assert user_turns(sim) == [pytest.approx(1.5, abs=0.05), pytest.approx(0.16, abs=0.03)]
    assert [done.status for done in sim.events(ev.ResponseDone)] == ["cancelled", "completed"]


def test_a_remark_that_is_understood_while_the_user_speaks_on_is_answered_with_what_is_said_then():
    sim = Sim(
        speech=[(1.0, 2.5), (6.0, 6.3), (7.8, 9.8)],
        replies=[LONG, Reply()],
        recogniser=(2.2, "Go back"),
        config=PATIENT,
    ).run(14)
    assert not [at for at in sim.times(StartResponse) if 8.25 < at < 9.8]
    assert user_turns(sim) == [pytest.approx(s, abs=0.05) for s in (1.5, 0.3, 2.0)]
    assert len(sim.events(ev.PlayoutCleared)) == 1
    assert len(sim.requests()) == 2


def test_a_remark_that_is_understood_while_an_answer_is_asked_for_in_advance_makes_it_void():
    reply = Reply(seconds=5.0)
    sim = Sim(
        speech=[(1.0, 2.5), (6.0, 6.3), (9.0, 10.0)],
        replies=[reply, Reply()],
        recogniser=(3.8, "Go back"),
        config=EAGER,
    ).run(20)
    assert not left_running(sim)
    assert user_turns(sim) == [pytest.approx(s, abs=0.05) for s in (1.5, 0.3, 1.0)]
    assert len(sim.events(ev.ResponseCreated)) == len(sim.events(ev.ResponseDone)) == 2


def test_a_remark_that_is_understood_while_the_next_answer_is_awaited_is_answered_too():
    reply, slow = Reply(seconds=5.0), Reply(first_delay=3.0)
    sim = Sim(
        speech=[(1.0, 2.5), (6.0, 6.3), (9.0, 10.0)],
        replies=[reply, slow, Reply()],
        recogniser=(5.0, "Go back"),
    ).run(25)
    assert [done.status for done in sim.events(ev.ResponseDone)] == ["completed", "cancelled", "completed"]
    assert sim.conversation.history.items[-1].role == "assistant"


def test_a_remark_that_became_part_of_a_turn_that_went_on_is_not_submitted_again():
    prompt = replace(LONG, first_delay=0.0, transcript=None)
    sim = Sim(
        speech=[(1.0, 2.0), (2.55, 2.8), (3.55, 5.0)],
        replies=[prompt, Reply()],
        recogniser=(1.4, "and more"),
        config=replace(UNHURRIED, turns=replace(UNHURRIED.turns, reopen_heard_ms=5_000, reopen_ms=2_000)),
    ).run(14)
    assert sum(user_turns(sim)) == pytest.approx(1.0 + 0.25 + 1.45, abs=0.08)


@pytest.mark.parametrize("switch", [False, True])
def test_sound_is_not_kept_for_ever_where_something_clicks_on_and_on(switch):
    """Every 200 ms, which is no speech and yet never quiet; or once, before the client is to commit."""
    sim = Sim(speech=[(1.0, 2.0)], replies=[Reply(seconds=1.0)]).run(2.6)
    for block in range(100 * 50):
        click = block % 10 == 0 and not (switch and block)
        sim.conversation.receive_audio(VOICE if click else SILENCE, 2.6 + block * TICK)
        if switch and block == 0:
            session = SessionConfig(turn_detection=None)
            sim.conversation.receive_client(ev.UpdateSession(session), 2.6)
    assert kept_s(sim) <= (62.0 if switch else 3.0)
    assert sim.conversation.position == pytest.approx((2.6 + 100) * RATE, abs=BLOCK)
