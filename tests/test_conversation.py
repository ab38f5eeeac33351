"""The conversation, by simulated calls."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim import SILENCE, UNHURRIED, VOICE, LevelEar, Network, Reply, Sim
from visavis import events as ev
from visavis.actions import CancelResponse, Notify, StartResponse, WantVideo
from visavis.audio import BLOCK, RATE
from visavis.config import (
    AheadConfig,
    CameraConfig,
    ConversationConfig,
    IdleConfig,
    SessionConfig,
    SpeculationConfig,
    TurnConfig,
    TurnDetection,
    WaitingConfig,
    WatchdogConfig,
)
from visavis.conversation import Conversation, Floor
from visavis.engine import (
    AudioDelta,
    AudioPart,
    Done,
    FramesPart,
    Routed,
    Sent,
    TextDelta,
    ThinkingDelta,
    ToolCall,
    TranscriptDelta,
    Usage,
)
from visavis.errors import ClientEventError, EngineLost, EngineRefused
from visavis.history import SpokenContent
from visavis.lines import NO_LINES, Line, Lines

PUSH_TO_TALK = replace(UNHURRIED, session=SessionConfig(turn_detection=None))


def with_session(**changes: object) -> ConversationConfig:
    return replace(UNHURRIED, session=replace(SessionConfig(), **changes))  # type: ignore[arg-type]


def names(sim: Sim) -> list[str]:
    return [type(event).__name__ for event in sim.events()]


def drained(conversation: Conversation):
    """Drain a conversation; return its events by kind."""
    events = []
    while (action := conversation.next_action()) is not None:
        events += [action.event] if isinstance(action, Notify) else []
    return lambda *kinds: [event for event in events if isinstance(event, kinds)]


def assistant_texts(sim: Sim) -> list[str]:
    return [
        "".join(getattr(part, "text", None) or getattr(part, "transcript", "") or "" for part in item.content)
        for item in sim.conversation.history.items
        if item.role == "assistant"
    ]


# One turn.


def test_a_turn_is_heard_answered_and_played_in_order():
    sim = Sim(speech=[(1.0, 2.5)], replies=[Reply(text="Fine", chunks=(0.3,), seconds=0.3)]).run(8)
    assert names(sim) == [
        "SpeechBegan",
        "SpeechEnded",
        "TurnCommitted",
        "ItemAdded",
        "ItemDone",
        "ResponseCreated",
        "TranscriptDone",
        "ReplyBegan",
        "ReplyText",
        "ReplyEnded",
        "ResponseDone",
        "PlayoutStarted",
        "TurnTimings",
        "PlayoutStopped",
        "TurnTimings",
    ]
    assert sim.events(ev.ResponseDone)[0].status == "completed"
    assert sim.conversation.floor is Floor.IDLE
    assert sim.conversation.next_timeout() is None


def test_the_turn_keeps_the_sound_from_before_the_onset_to_after_the_last_voice():
    sim = Sim(speech=[(1.0, 2.5)]).run(4)
    request = next(action.request for _, action in sim.log if isinstance(action, StartResponse))
    sound = next(part for part in request.messages[-1].parts if isinstance(part, AudioPart)).pcm
    voiced = np.flatnonzero(sound)
    assert len(voiced) == 1.5 * RATE
    assert voiced[0] == pytest.approx(0.3 * RATE, abs=480)
    assert len(sound) - voiced[-1] - 1 >= 0.1 * RATE - 480


def test_the_request_leaves_with_the_decision_and_the_first_sound_with_the_next_block():
    sim = Sim(speech=[(1.0, 2.5)]).run(8)
    assert sim.marks("turn_end") == sim.times(StartResponse)
    assert sim.marks("turn_end")[0] == pytest.approx(3.0, abs=0.05)
    assert sim.marks("first_sent")[0] - sim.marks("first_audio")[0] <= 0.021


def test_timings_count_from_the_end_of_speech():
    sim = Sim(speech=[(1.0, 2.5)]).run(8)
    last = sim.events(ev.TurnTimings)[-1]
    assert last.final
    assert last.marks_ms["speech_end"] == 0
    assert last.marks_ms["turn_end"] == pytest.approx(500, abs=25)
    assert last.marks_ms["first_audio"] == pytest.approx(900, abs=25)
    assert set(last.marks_ms) == {
        "speech_end",
        "turn_end",
        "transcript",
        "first_text",
        "first_audio",
        "first_sent",
        "done",
    }


def test_a_click_is_no_turn():
    sim = Sim(speech=[(1.0, 1.04)]).run(5)
    assert not [action for _, action in sim.log if not isinstance(action, WantVideo)]


@pytest.mark.parametrize("cough", [(3.1, 3.2), (6.0, 6.1)])
def test_a_cough_stops_no_answer_heard_or_unheard(cough):
    config = replace(UNHURRIED, turns=TurnConfig(min_speech_ms=60, min_voiced_ms=200))
    sim = Sim(speech=[(1.0, 2.5), cough], replies=[Reply(first_delay=1.0, seconds=6.0)], config=config).run(
        15
    )
    assert sim.events(ev.InputCleared)
    assert [done.status for done in sim.events(ev.ResponseDone)] == ["completed"]
    assert not sim.events(ev.PlayoutCleared)
    assert sim.sound_between(0, 15) == pytest.approx(6.0, abs=0.1)


def test_a_word_committed_by_the_client_breaks_off_the_answer_however_short_it_is():
    config = replace(UNHURRIED, turns=TurnConfig(min_speech_ms=60, min_voiced_ms=200))
    sim = Sim(
        speech=[(1.0, 2.5), (6.0, 6.12)],
        replies=[Reply(seconds=30.0), Reply()],
        client=[(6.1, ev.CommitAudio())],
        config=config,
    ).run(15)
    assert len(sim.events(ev.PlayoutCleared)) == 1
    assert len(sim.events(ev.TurnCommitted)) == 2


def test_speech_that_is_forgotten_after_it_broke_off_an_unheard_answer_has_it_asked_for_again():
    sim = Sim(
        speech=[(1.0, 2.5), (4.2, 5.0)],
        replies=[Reply(first_delay=3.0), Reply()],
        client=[(4.9, ev.ClearAudio())],
    ).run(12)
    assert [done.status for done in sim.events(ev.ResponseDone)] == ["cancelled", "completed"]
    assert len(sim.events(ev.TurnCommitted)) == 1


def test_speech_that_went_on_with_a_turn_and_is_forgotten_leaves_that_turn_as_it_was():
    sim = Sim(
        speech=[(1.0, 2.5), (3.1, 3.9)],
        replies=[Reply(first_delay=2.0), Reply()],
        client=[(3.8, ev.ClearAudio())],
    ).run(12)
    assert [done.status for done in sim.events(ev.ResponseDone)] == ["cancelled", "completed"]
    first, again = sim.events(ev.TurnCommitted)
    assert [deleted.item_id for deleted in sim.events(ev.ItemDeleted)] == [first.item_id]
    heard = sim.conversation.history.get(again.item_id)
    assert heard is not None
    assert np.count_nonzero(heard.content[0].pcm) == pytest.approx(1.5 * RATE, abs=BLOCK)


def test_a_cough_in_silence_makes_no_response():
    config = replace(UNHURRIED, turns=TurnConfig(min_speech_ms=60, min_voiced_ms=200))
    sim = Sim(speech=[(1.0, 1.1)], config=config).run(5)
    assert names(sim) == ["SpeechBegan", "SpeechEnded", "InputCleared"]


def test_an_endless_turn_is_submitted_and_none_of_it_is_lost():
    config = replace(UNHURRIED, turns=TurnConfig(max_turn_ms=5_000))
    sim = Sim(speech=[(1.0, 13.0)], config=config).run(20)
    requests = [action.request for _, action in sim.log if isinstance(action, StartResponse)]
    assert len(requests) == 1
    sent = {
        part.uuid: np.count_nonzero(part.pcm)
        for request in requests
        for message in request.messages
        for part in message.parts
        if isinstance(part, AudioPart)
    }
    assert len(sent) == len(sim.events(ev.TurnCommitted)) == 3
    # The tail of one turn is the beginning of the next, so that no cut falls into a word.
    assert sum(sent.values()) == pytest.approx(12 * RATE, abs=0.25 * RATE)


def test_a_turn_that_was_cut_at_its_limit_is_answered_though_nothing_follows():
    config = replace(UNHURRIED, turns=TurnConfig(max_turn_ms=5_000))
    sim = Sim(speech=[(1.0, 5.69)], config=config).run(12)
    assert sim.events(ev.InputCleared)
    assert [done.status for done in sim.events(ev.ResponseDone)] == ["completed"]


def test_clearing_while_somebody_speaks_drops_the_speech():
    sim = Sim(speech=[(1.0, 2.0)], client=[(2.0, ev.ClearAudio())]).run(2.5)
    assert names(sim) == ["SpeechBegan", "SpeechEnded", "InputCleared"]


def test_a_caller_whose_packets_stop_has_ended_the_turn():
    conversation = Conversation(ConversationConfig(), LevelEar(), "call")
    for tick in range(100):
        conversation.receive_audio(VOICE, tick * 0.02)
    due = conversation.next_timeout()
    assert due == pytest.approx(99 * 0.02 + 1.5)
    conversation.handle_timeout(due)
    actions = []
    while (action := conversation.next_action()) is not None:
        actions.append(action)
    assert any(isinstance(action, StartResponse) for action in actions)


# Barge-in.


def test_speech_over_the_answer_silences_it_and_cuts_history_to_what_was_heard():
    reply = Reply(text=" ".join(f"word{i}" for i in range(40)), seconds=20.0)
    sim = Sim(speech=[(1.0, 2.5), (6.0, 7.5)], replies=[reply, Reply()]).run(15)
    decided = sim.marks("barge_in")[0]
    assert decided - 6.0 <= 0.47
    assert sim.sound_between(6.17, sim.marks("first_sent")[1]) == 0
    cut = sim.events(ev.ItemTruncated)[0]
    assert cut.audio_end_ms == pytest.approx(sim.sound_between(0, decided) * 1000, abs=45)
    share = cut.audio_end_ms / 20_000
    assert 40 * share - 2 <= len(cut.text.split()) <= 40 * share + 1
    assert assistant_texts(sim)[0] == cut.text
    assert reply.text.startswith(cut.text)
    order = [type(event) for event in sim.events(ev.ResponseDone, ev.PlayoutCleared, ev.ItemTruncated)]
    assert order[:3] == [ev.ResponseDone, ev.PlayoutCleared, ev.ItemTruncated]


def test_speech_while_the_engine_works_cancels_it_once():
    reply = Reply(seconds=30.0, rtf=0.5)
    sim = Sim(speech=[(1.0, 2.5), (6.0, 7.5)], replies=[reply, Reply()]).run(15)
    done = sim.events(ev.ResponseDone)
    assert [(d.status, d.reason) for d in done] == [("cancelled", "turn_detected"), ("completed", None)]
    assert len(sim.times(CancelResponse)) == 1


def test_speech_before_the_answer_is_heard_joins_the_next_request():
    sim = Sim(speech=[(1.0, 2.5), (4.2, 5.5)], replies=[Reply(first_delay=2.0), Reply()]).run(12)
    requests = [action.request for _, action in sim.log if isinstance(action, StartResponse)]
    sounds = [
        part for message in requests[1].messages for part in message.parts if isinstance(part, AudioPart)
    ]
    assert len(sounds) == 2
    assert not sim.events(ev.ItemTruncated)
    assert not sim.events(ev.PlayoutCleared)


def test_speech_over_the_rest_of_a_finished_response_does_not_end_it_twice():
    reply = Reply(seconds=8.0, rtf=0.01)
    sim = Sim(speech=[(1.0, 2.5), (6.0, 7.5)], replies=[reply, Reply()]).run(15)
    assert [d.status for d in sim.events(ev.ResponseDone)] == ["completed", "completed"]
    assert not sim.times(CancelResponse)
    assert len(sim.events(ev.PlayoutCleared)) == 1
    assert sim.events(ev.ItemTruncated)[0].audio_end_ms < 4000


def test_an_uninterruptible_answer_plays_on_and_the_next_turn_waits_for_its_end():
    config = with_session(turn_detection=TurnDetection(interrupt_response=False))
    sim = Sim(speech=[(1.0, 2.5), (4.0, 5.0)], replies=[Reply(seconds=6.0), Reply()], config=config).run(20)
    assert [d.status for d in sim.events(ev.ResponseDone)] == ["completed", "completed"]
    assert sim.times(ev.ResponseCreated)[1] >= sim.times(ev.PlayoutStopped)[0]


def test_without_create_response_a_turn_is_only_committed():
    config = with_session(turn_detection=TurnDetection(create_response=False))
    sim = Sim(speech=[(1.0, 2.5)], config=config).run(5)
    assert sim.events(ev.TurnCommitted)
    assert not sim.events(ev.ResponseCreated)


# Failures and watchdogs.


@pytest.mark.parametrize("after", [0, 2.3])
def test_an_engine_that_dies_fails_one_response_and_the_next_turn_works(after):
    replies = [Reply(seconds=6.0, fails_after=after), Reply()]
    sim = Sim(speech=[(1.0, 2.5), (9.0, 10.5)], replies=replies).run(20)
    first, second = sim.events(ev.ResponseDone)
    assert (first.status, first.error_code) == ("failed", "engine_lost")
    assert second.status == "completed"


def test_what_was_made_before_the_engine_died_is_still_heard():
    sim = Sim(speech=[(1.0, 2.5)], replies=[Reply(seconds=6.0, fails_after=2.3)]).run(15)
    assert sim.sound_between(0, 15) == pytest.approx(2.3, abs=0.05)
    assert sim.events(ev.PlayoutStopped)


@pytest.mark.parametrize(("after", "patience"), [(0, 30.0), (0.3, 20.0)])
def test_a_silent_engine_is_given_up(after, patience):
    sim = Sim(speech=[(1.0, 2.5)], replies=[Reply(hangs_after=after, transcript=None)]).run(60)
    done = sim.events(ev.ResponseDone)[0]
    assert (done.status, done.error_code) == ("failed", "engine_lost")
    assert sim.times(ev.ResponseDone)[0] == pytest.approx(3.0 + 0.4 * (after > 0) + patience, abs=0.1)
    assert len(sim.times(CancelResponse)) == 1
    assert sim.conversation.floor is Floor.IDLE


def test_ears_that_write_down_what_was_said_do_not_shorten_the_patience_with_the_engine():
    conversation = Conversation(ConversationConfig(), LevelEar(), "call")
    for tick in range(200):
        conversation.receive_audio(VOICE if tick < 100 else SILENCE, tick * 0.02)
    conversation.receive_delta(1, TranscriptDelta("good morning"), 4.0)
    assert conversation.next_timeout() == pytest.approx(2.5 + 30.0, abs=0.1)
    conversation.receive_delta(1, TextDelta("Good"), 5.0)
    assert conversation.next_timeout() == pytest.approx(5.0 + 20.0, abs=0.1)


@pytest.mark.parametrize("rtf", [0.01, 0.9])
def test_a_caller_who_does_not_listen_cannot_hold_the_floor_for_ever(rtf):
    config = replace(UNHURRIED, watchdog=WatchdogConfig(response_s=10.0))
    sim = Sim(speech=[(1.0, 2.5)], replies=[Reply(seconds=30.0, rtf=rtf)], pulls=False, config=config).run(20)
    assert sim.conversation.floor is Floor.IDLE
    assert len(sim.events(ev.ResponseDone)) == 1


def test_late_deltas_of_a_cancelled_response_are_dropped():
    conversation = Conversation(PUSH_TO_TALK, LevelEar(), "call")
    conversation.receive_client(ev.CreateResponse(), 0.0)
    conversation.receive_delta(1, TextDelta("one"), 0.1)
    conversation.receive_client(ev.CancelGeneration(), 0.2)
    conversation.receive_client(ev.CreateResponse(), 0.3)
    conversation.receive_delta(1, TextDelta("stale"), 0.4)
    conversation.receive_failure(1, EngineLost("stale"), 0.4)
    conversation.receive_delta(2, TextDelta("two"), 0.5)
    texts = []
    while (action := conversation.next_action()) is not None:
        if isinstance(getattr(action, "event", None), ev.ReplyText):
            texts.append(action.event.text)
    assert texts == ["one", "two"]


SORRY = Lines(apology=Line("Sorry.", np.full(RATE, 500, np.int16)))


def test_the_caller_hears_an_apology_in_place_of_an_answer_and_the_engine_never_does():
    replies = [Reply(fails_after=0, transcript=None), Reply(transcript="and what?")]
    sim = Sim(speech=[(1.0, 2.5), (6.0, 7.5)], replies=replies, lines=SORRY).run(15)
    failed, fine = sim.events(ev.ResponseDone)
    assert (failed.status, failed.error_code) == ("failed", "engine_lost")
    assert failed.item.content == (SpokenContent("Sorry."),)
    assert sim.sound_between(3.0, 5.0) == pytest.approx(1.0, abs=0.05)
    assert fine.status == "completed"
    assert assistant_texts(sim)[0] == "Sorry."
    asked = sim.requests()[1]
    assert [message.role for message in asked.messages[1:]] == ["user"]
    assert sum(isinstance(part, AudioPart) for part in asked.messages[1].parts) == 2


def test_an_answer_that_breaks_off_goes_over_into_the_apology():
    replies = [Reply(text="one two three four", seconds=4.0, fails_after=2.3), Reply()]
    sim = Sim(speech=[(1.0, 2.5), (9.0, 10.5)], replies=replies, lines=SORRY).run(20)
    assert sim.sound_between(3.0, 8.0) == pytest.approx(3.3, abs=0.05)
    told = "".join(event.text for event in sim.events(ev.ReplyText) if event.response_id == 1)
    assert told == "one two Sorry."
    assert assistant_texts(sim)[0] == told
    said = next(message for message in sim.requests()[1].messages if message.role == "assistant")
    assert said.text == "one two"
    assert sim.events(ev.TurnTimings)[0].marks_ms.keys() >= {"first_audio"}


def test_an_engine_that_hangs_for_ever_ends_in_an_apology():
    sim = Sim(speech=[(1.0, 2.5)], replies=[Reply(hangs_after=0)], lines=SORRY).run(40)
    assert sim.sound_between(32.9, 35.0) == pytest.approx(1.0, abs=0.05)
    assert len(sim.times(CancelResponse)) == len(sim.events(ev.ResponseDone)) == 1
    assert sim.conversation.floor is Floor.IDLE


def test_an_apology_is_not_taken_for_the_engines_way_of_speaking():
    replies = [Reply(hangs_after=0.3), Reply()]
    sim = Sim(speech=[(1.0, 2.5), (30.0, 31.5)], replies=replies, lines=SORRY).run(45)
    assert sim.sound_between(23, 26) == pytest.approx(1.0, abs=0.05)
    assert sim.marks("first_sent")[1] - sim.marks("first_audio")[1] <= 0.021


def test_an_apology_can_be_interrupted_like_an_answer():
    replies = [Reply(fails_after=0), Reply()]
    sim = Sim(speech=[(1.0, 2.5), (3.7, 6.0)], replies=replies, lines=SORRY).run(15)
    assert sim.events(ev.PlayoutCleared)
    assert [done.status for done in sim.events(ev.ResponseDone)] == ["failed", "completed"]
    assert sim.sound_between(3.0, 6.0) < 0.9


def test_nobody_apologises_for_an_answer_that_was_not_to_be_spoken_or_was_stopped():
    written = ev.CreateResponse(output_modalities=("text",))
    client = [(1.0, ev.CreateItem("user", "hi")), (1.0, written), (4.0, ev.CreateResponse())]
    client.append((4.2, ev.CancelGeneration()))
    sim = Sim(client=client, replies=[Reply(fails_after=0), Reply()], lines=SORRY).run(10)
    assert [done.status for done in sim.events(ev.ResponseDone)] == ["failed", "cancelled"]
    assert sim.sound_between(0, 10) == 0
    assert not assistant_texts(sim)


@pytest.mark.parametrize(("text", "apologies"), [("", 1), ("Well", 0)])
def test_an_answer_that_was_cut_short_before_its_first_word_is_apologised_for(text, apologies):
    conversation = Conversation(PUSH_TO_TALK, LevelEar(), "call", SORRY)
    conversation.receive_client(ev.CreateResponse(), 0.0)
    conversation.receive_delta(1, ThinkingDelta("Hm."), 0.1)
    if text:
        conversation.receive_delta(1, TextDelta(text), 0.2)
    conversation.receive_delta(1, Done("length"), 0.3)
    told = drained(conversation)
    assert sum(event == ev.ReplyText(1, event.item_id, "Sorry.") for event in told(ev.ReplyText)) == apologies
    assert [done.status for done in told(ev.ResponseDone)] == ["incomplete"]


def test_after_a_refusal_the_engine_is_asked_without_what_was_seen_and_heard():
    replies = [Reply(), Reply(fails_after=0, error=EngineRefused("too long"), transcript=None), Reply()]
    speech = [(1.0, 2.5), (9.0, 10.5), (14.0, 15.5)]
    sim = Sim(speech=speech, replies=replies, camera_fps=2.0).run(25)
    media = [
        sum(isinstance(part, AudioPart | FramesPart) for message in asked.messages for part in message.parts)
        for asked in sim.requests()
    ]
    assert media == [2, 4, 2]
    assert sim.requests()[2].messages[-1].text == "(inaudible)"
    assert [done.status for done in sim.events(ev.ResponseDone)] == ["completed", "failed", "completed"]


# Thinking.


def test_that_the_model_thinks_is_told_and_what_it_thinks_is_not():
    sim = Sim(speech=[(1.0, 2.5)], replies=[Reply(text="Fine", thinks=3)]).run(15)
    assert names(sim).count("ThinkingBegan") == names(sim).count("ThinkingEnded") == 1
    (began,), (ended,) = sim.times(ev.ThinkingBegan), sim.times(ev.ThinkingEnded)
    assert (began, ended) == (pytest.approx(3.4, abs=0.05), pytest.approx(6.4, abs=0.05))
    assert names(sim).index("ThinkingEnded") < names(sim).index("ReplyBegan")
    assert assistant_texts(sim) == ["Fine"]
    assert "Hm." not in repr(sim.log)


@pytest.mark.parametrize("end", [AudioDelta(np.ones(480, np.int16)), Done(), EngineLost("dead")])
def test_thinking_ends_with_whatever_comes_next(end):
    conversation = Conversation(PUSH_TO_TALK, LevelEar(), "call")
    conversation.receive_client(ev.CreateResponse(), 0.0)
    for at in (0.1, 0.2):
        conversation.receive_delta(1, ThinkingDelta("Hm."), at)
    if isinstance(end, EngineLost):
        conversation.receive_failure(1, end, 0.3)
    else:
        conversation.receive_delta(1, end, 0.3)
    told = drained(conversation)(ev.ThinkingBegan, ev.ThinkingEnded)
    assert told == [ev.ThinkingBegan(1), ev.ThinkingEnded(1)]


def test_a_model_may_think_for_longer_than_an_answer_may_take():
    config = replace(UNHURRIED, watchdog=WatchdogConfig(idle_delta_s=5.0, response_s=10.0))
    sim = Sim(speech=[(1.0, 2.5)], replies=[Reply(thinks=40)], config=config).run(60)
    assert [done.status for done in sim.events(ev.ResponseDone)] == ["completed"]
    assert sim.sound_between(40, 60) == pytest.approx(3.0, abs=0.05)


def test_a_model_that_stops_thinking_and_says_nothing_is_given_up():
    config = replace(UNHURRIED, watchdog=WatchdogConfig(idle_delta_s=5.0, response_s=10.0))
    sim = Sim(speech=[(1.0, 2.5)], replies=[Reply(thinks=20, hangs_after=0)], config=config).run(60)
    assert sim.times(ev.ResponseDone) == [pytest.approx(3.4 + 19 + 5, abs=0.1)]
    assert sim.conversation.floor is Floor.IDLE


def test_when_the_request_was_written_is_a_stage_of_the_turn():
    conversation = Conversation(PUSH_TO_TALK, LevelEar(), "call")
    conversation.receive_client(ev.CreateResponse(), 10.0)
    conversation.receive_delta(1, Sent(10.02), 10.5)
    conversation.receive_delta(1, TextDelta("Hi."), 10.5)
    conversation.receive_delta(1, Done(), 10.6)
    (timings,) = drained(conversation)(ev.TurnTimings)
    assert timings.marks_ms == {"turn_end": 0, "request_sent": 20, "first_text": 500, "done": 600}


# Transcripts.


def test_an_engine_that_gives_no_transcript_is_said_so_when_it_is_done():
    sim = Sim(speech=[(1.0, 2.5)], replies=[Reply(transcript=None)]).run(8)
    assert len(sim.events(ev.TranscriptFailed)) == 1
    assert not sim.events(ev.TranscriptDone)


def test_a_transcript_that_does_not_come_is_given_up():
    config = replace(UNHURRIED, watchdog=WatchdogConfig(first_delta_s=5.0, transcript_s=8.0))
    sim = Sim(speech=[(1.0, 2.5)], replies=[Reply(hangs_after=0)], config=config).run(15)
    assert sim.times(ev.TranscriptFailed) == [pytest.approx(11.0, abs=0.1)]
    assert sim.conversation.next_timeout() is None


def test_a_transcript_in_parts_is_passed_on_and_kept_whole():
    conversation = Conversation(ConversationConfig(), LevelEar(), "call")
    for tick in range(200):
        conversation.receive_audio(VOICE if tick < 100 else SILENCE, tick * 0.02)
    conversation.receive_delta(1, TranscriptDelta("good ", final=False), 5.0)
    conversation.receive_delta(1, TranscriptDelta("morning"), 5.1)
    conversation.receive_delta(1, TranscriptDelta("again"), 5.2)
    got = []
    while (action := conversation.next_action()) is not None:
        got.append(getattr(action, "event", None))
    assert [e for e in got if isinstance(e, ev.TranscriptPart | ev.TranscriptDone)] == [
        ev.TranscriptPart("item_call_1", "good "),
        ev.TranscriptDone("item_call_1", "good morning"),
    ]


def test_the_transcript_of_turns_that_went_as_one_message_settles_them_all():
    replies = [Reply(first_delay=2.0, transcript=None), Reply(transcript="my name is Anna who are you")]
    sim = Sim(speech=[(1.0, 2.5), (4.2, 5.5)], replies=replies).run(12)
    first, second = sim.events(ev.TranscriptDone)
    assert (first.text, second.text) == ("", "my name is Anna who are you")
    assert not sim.events(ev.TranscriptFailed)


def test_a_transcript_does_not_settle_a_turn_before_an_answer_that_was_heard():
    replies = [Reply(seconds=20.0, transcript=None), Reply()]
    sim = Sim(speech=[(1.0, 2.5), (6.0, 7.0)], replies=[replies[0], replies[1]]).run(15)
    assert [done.item_id for done in sim.events(ev.TranscriptDone)] == ["item_call_3"]


def test_without_transcription_nobody_waits_for_one():
    sim = Sim(speech=[(1.0, 2.5)], config=with_session(transcribe=False)).run(8)
    assert not sim.events(ev.TranscriptDone, ev.TranscriptFailed)


# The client.


def test_push_to_talk_commits_what_was_said_and_answers_on_demand():
    sim = Sim(
        speech=[(1.0, 2.5)],
        config=PUSH_TO_TALK,
        client=[(3.0, ev.CommitAudio()), (3.1, ev.CreateResponse())],
    ).run(8)
    assert not sim.errors
    assert names(sim)[:4] == ["TurnCommitted", "ItemAdded", "ItemDone", "ResponseCreated"]
    request = next(action.request for _, action in sim.log if isinstance(action, StartResponse))
    sound = next(part for part in request.messages[-1].parts if isinstance(part, AudioPart)).pcm
    assert np.count_nonzero(sound) == 1.5 * RATE


def test_push_to_talk_needs_a_tenth_of_a_second():
    sim = Sim(
        config=PUSH_TO_TALK,
        client=[(3.0, ev.ClearAudio()), (3.02, ev.CommitAudio())],
    ).run(5)
    assert [error.code for _, error in sim.errors] == ["input_audio_buffer_commit_empty"]
    assert names(sim) == ["InputCleared"]


def speech_told(sim: Sim) -> list[tuple[str, str]]:
    return [
        (type(e).__name__, e.item_id) for e in sim.events(ev.SpeechBegan, ev.SpeechEnded, ev.TurnCommitted)
    ]


def test_speech_whose_beginning_was_told_ends_even_if_detection_is_switched_off_meanwhile():
    off = ev.UpdateSession(replace(SessionConfig(), turn_detection=None))
    sim = Sim(speech=[(1.0, 3.0)], client=[(2.0, off), (2.5, ev.CommitAudio()), (3.5, ev.CommitAudio())]).run(
        5
    )
    (item_id,) = [event.item_id for event in sim.events(ev.SpeechBegan)]
    assert speech_told(sim)[:3] == [
        ("SpeechBegan", item_id),
        ("SpeechEnded", item_id),
        ("TurnCommitted", item_id),
    ]
    assert [kind for kind, _ in speech_told(sim)[3:]] == ["TurnCommitted"]


def test_a_commit_before_speech_is_believed_tells_of_no_end_without_a_beginning():
    sim = Sim(speech=[(1.0, 3.0)], client=[(1.07, ev.CommitAudio())]).run(5)
    assert [kind for kind, _ in speech_told(sim)] == [
        "TurnCommitted",
        "SpeechBegan",
        "SpeechEnded",
        "TurnCommitted",
    ]


def test_items_named_by_the_client_never_collide_with_ours():
    names_to_come = [ev.CreateItem("user", "mine", item_id=f"item_call_{i}") for i in range(1, 5)]
    sim = Sim(speech=[(1.0, 2.5)], client=[(0.5, event) for event in names_to_come]).run(9)
    assert len(sim.events(ev.ResponseDone)) == 1
    assert len({item.id for item in sim.conversation.history.items}) == 6

    announced = ev.CreateItem("user", "mine", item_id="item_call_1")
    sim = Sim(speech=[(1.0, 2.5)], client=[(2.0, announced)]).run(9)
    assert [error.code for _, error in sim.errors] == ["item_exists"]
    assert len(sim.events(ev.ResponseDone)) == 1


def test_a_flood_of_text_during_a_reply_does_not_lose_the_reply():
    flood = [(2.0, ev.CreateItem("user", "x" * 50_000)) for _ in range(25)]
    sim = Sim(client=[(1.0, ev.CreateResponse()), *flood], replies=[Reply(rtf=0.9)]).run(9)
    assert sim.events(ev.ResponseDone)[0].status == "completed"
    assert sim.events(ev.ReplyEnded)


def test_a_commit_ends_a_running_turn_and_none_that_does_not_run():
    sim = Sim(speech=[(1.0, 2.5)], client=[(0.5, ev.CommitAudio()), (2.0, ev.CommitAudio())]).run(2.2)
    assert [error.code for _, error in sim.errors] == ["input_audio_buffer_commit_empty"]
    assert sim.times(StartResponse) == [pytest.approx(2.0, abs=0.03)]


def test_a_typed_message_is_answered_with_the_latest_picture():
    sim = Sim(
        camera_fps=30,
        client=[(2.0, ev.CreateItem("user", "What is this?", item_id="mine")), (2.0, ev.CreateResponse())],
    ).run(8)
    request = next(action.request for _, action in sim.log if isinstance(action, StartResponse))
    assert request.messages[-1].text == "What is this?"
    assert any(isinstance(part, FramesPart) for part in request.messages[-1].parts)
    assert sim.events(ev.ItemAdded)[0].item.id == "mine"
    assert sim.events(ev.ResponseDone)[0].status == "completed"


def test_a_written_instruction_is_no_question_to_answer():
    sim = Sim(client=[(1.0, ev.CreateItem("system", "Be kind.")), (1.1, ev.CreateResponse())]).run(5)
    assert sim.events(ev.TurnTimings)[-1].item_id is None


def test_items_are_refused_with_a_known_id_or_an_unknown_predecessor():
    sim = Sim(
        client=[
            (1.0, ev.CreateItem("user", "one", item_id="a")),
            (1.1, ev.CreateItem("user", "two", item_id="a")),
            (1.2, ev.CreateItem("user", "three", previous_item_id="nowhere")),
            (1.3, ev.CreateItem("user", "zero", previous_item_id="root")),
            (1.4, ev.RetrieveItem("a")),
            (1.5, ev.RetrieveItem("b")),
        ]
    ).run(2)
    assert [(error.code, error.param) for _, error in sim.errors] == [
        ("item_exists", "item.id"),
        ("item_not_found", "previous_item_id"),
        ("item_not_found", "item_id"),
    ]
    assert [added.previous_item_id for added in sim.events(ev.ItemAdded)] == [None, None]
    assert sim.events(ev.ItemRetrieved)[0].item.id == "a"


def test_a_second_response_is_refused_while_one_is_generated_and_waits_while_one_is_heard():
    slow = Reply(seconds=4.0, rtf=0.01)
    sim = Sim(
        config=PUSH_TO_TALK,
        replies=[slow, Reply()],
        client=[(1.0, ev.CreateResponse()), (1.1, ev.CreateResponse()), (3.0, ev.CreateResponse())],
    ).run(12)
    assert [error.code for _, error in sim.errors] == ["conversation_already_has_active_response"]
    created = sim.times(ev.ResponseCreated)
    assert len(created) == 2
    assert created[1] >= sim.times(ev.PlayoutStopped)[0]


def test_cancel_stops_generating_but_what_is_buffered_plays():
    slow = Reply(seconds=20.0, rtf=0.5)
    sim = Sim(
        config=PUSH_TO_TALK,
        replies=[slow],
        client=[(1.0, ev.CreateResponse()), (2.6, ev.CancelGeneration(1))],
    ).run(10)
    done = sim.events(ev.ResponseDone)[0]
    assert (done.status, done.reason) == ("cancelled", "client_cancelled")
    assert sim.events(ev.PlayoutStopped)
    assert sim.sound_between(0, 10) == pytest.approx(2.3, abs=0.1)


def test_cancel_of_nothing_or_of_another_response_is_refused():
    sim = Sim(
        config=PUSH_TO_TALK,
        client=[
            (0.5, ev.CancelGeneration()),
            (1.0, ev.CreateResponse()),
            (1.1, ev.CancelGeneration(7)),
        ],
    ).run(8)
    assert [error.code for _, error in sim.errors] == ["response_cancel_not_active"] * 2
    assert sim.events(ev.ResponseDone)[0].status == "completed"


def test_clear_alone_stops_playing_and_truncates():
    sim = Sim(
        config=PUSH_TO_TALK,
        replies=[Reply(seconds=20.0)],
        client=[(1.0, ev.CreateResponse()), (3.0, ev.ClearOutput()), (3.1, ev.ClearOutput())],
    ).run(6)
    assert sim.sound_between(3.03, 6) == 0
    assert len(sim.events(ev.PlayoutCleared)) == 1
    assert sim.events(ev.ItemTruncated)[0].audio_end_ms <= 2000
    assert not sim.errors


def test_an_update_changes_the_session_from_now_on():
    later = replace(SessionConfig(), instructions="Be brief.", turn_detection=None)
    sim = Sim(
        client=[
            (1.0, ev.UpdateSession(later)),
            (1.1, ev.CreateItem("user", "Hi")),
            (1.2, ev.CreateResponse()),
        ],
        speech=[(1.5, 3.0)],
    ).run(8)
    request = next(action.request for _, action in sim.log if isinstance(action, StartResponse))
    assert request.messages[0].text == "Be brief."
    assert not sim.events(ev.SpeechBegan)
    assert sim.events(ev.SessionUpdated)[0].session == later
    sim.conversation.receive_client(ev.UpdateSession(later), 9.0)


def test_a_response_can_have_its_own_terms():
    conversation = Conversation(ConversationConfig(), LevelEar(), "call")
    own = ev.CreateResponse("Rhyme.", ("text",), 10, 0.0)
    conversation.receive_client(own, 0.0)
    request = None
    while (action := conversation.next_action()) is not None:
        if isinstance(action, StartResponse):
            request = action.request
    assert request is not None
    assert (request.messages[0].text, request.speak, request.max_tokens, request.temperature) == (
        "Rhyme.",
        False,
        10,
        0.0,
    )
    conversation.receive_delta(1, TextDelta("so"), 0.1)
    conversation.receive_delta(1, AudioDelta(VOICE), 0.2)
    conversation.receive_delta(1, Usage(10, 2), 0.3)
    conversation.receive_delta(1, ToolCall("c", "f", "{}"), 0.3)
    conversation.receive_delta(1, Done("length"), 0.4)
    done = None
    while (action := conversation.next_action()) is not None:
        if isinstance(getattr(action, "event", None), ev.ResponseDone):
            done = action.event
    assert done is not None
    assert (done.status, done.reason, done.usage) == ("incomplete", "max_output_tokens", Usage(10, 2))
    assert not conversation.pull_audio(480, 0.5).any()
    assert conversation.floor is Floor.IDLE


def test_filtered_content_is_incomplete():
    conversation = Conversation(ConversationConfig(), LevelEar(), "call")
    conversation.receive_client(ev.CreateResponse(), 0.0)
    conversation.receive_delta(1, Done("content_filter"), 0.4)
    events = []
    while (action := conversation.next_action()) is not None:
        events.append(getattr(action, "event", None))
    assert [e.reason for e in events if isinstance(e, ev.ResponseDone)] == ["content_filter"]


# The camera.


def test_a_turn_takes_the_frames_around_its_speech_at_two_a_second():
    steady = replace(UNHURRIED, camera=replace(UNHURRIED.camera, idle_fps=2.0, burst_ms=500))
    sim = Sim(speech=[(5.0, 8.0)], camera_fps=30, config=steady).run(10)
    request = next(action.request for _, action in sim.log if isinstance(action, StartResponse))
    frames = next(part for part in request.messages[-1].parts if isinstance(part, FramesPart)).frames
    assert 6 <= len(frames) <= 10
    assert frames[0].at >= 3.0 * RATE
    gaps = np.diff([frame.at for frame in frames])
    assert all(abs(gap - RATE / 2) <= RATE / 20 for gap in gaps)


def test_the_sound_of_a_turn_lies_on_the_clock_of_its_frames():
    for start in (1.0, 30.0):  # with and without all of the tape still there
        sim = Sim(speech=[(start, start + 2.0)], camera_fps=30).run(start + 4.0)
        request = next(a.request for _, a in sim.log if isinstance(a, StartResponse))
        frames, sound = request.messages[-1].parts
        assert isinstance(sound, AudioPart)
        assert isinstance(frames, FramesPart)
        loud = sound.at + int(np.argmax(sound.pcm != 0))
        assert loud == pytest.approx(start * RATE, abs=BLOCK)
        assert frames.frames[0].at < loud <= frames.frames[-1].at


def test_many_pictures_of_a_long_turn_stay_within_the_limit():
    config = replace(UNHURRIED, camera=CameraConfig(max_frames=8), ahead=AheadConfig(clip_s=0))
    sim = Sim(speech=[(2.0, 22.0)], camera_fps=30, config=config).run(25)
    request = next(action.request for _, action in sim.log if isinstance(action, StartResponse))
    frames = next(part for part in request.messages[-1].parts if isinstance(part, FramesPart)).frames
    assert len(frames) == 8
    assert frames[-1].at - frames[0].at > 15 * RATE


# Long talks.


def test_ten_minutes_of_talk():
    speech = [(at, at + 2.0) for at in range(1, 600, 10)]
    sim = Sim(speech=speech, replies=[Reply(seconds=4.0)]).run(600)
    assert len(sim.events(ev.TurnCommitted)) == 60
    assert [d.status for d in sim.events(ev.ResponseDone)] == ["completed"] * 60
    assert sim.sound_between(0, 600) == pytest.approx(240, abs=3)


def test_a_lossy_jittery_network_splits_no_turn_and_loses_none():
    speech = [(at, at + 2.0) for at in range(1, 120, 10)]
    sim = Sim(speech=speech, network=Network(loss=0.02, jitter_s=0.03), replies=[Reply(seconds=3.0)]).run(120)
    assert len(sim.events(ev.TurnCommitted)) == 12
    delays = [turn.marks_ms["turn_end"] for turn in sim.events(ev.TurnTimings) if turn.final]
    assert max(delays) <= 620


CLIENT_EVENTS = st.sampled_from(
    [
        ev.CreateResponse(),
        ev.CreateResponse(output_modalities=("text",)),
        ev.CancelGeneration(),
        ev.ClearOutput(),
        ev.CommitAudio(),
        ev.ClearAudio(),
        ev.CreateItem("user", "typed"),
        ev.UpdateSession(SessionConfig()),
        ev.UpdateSession(SessionConfig(turn_detection=None)),
        ev.UpdateSession(SessionConfig(turn_detection=TurnDetection(interrupt_response=False))),
    ]
)
REPLIES = st.builds(
    Reply,
    seconds=st.sampled_from([0.0, 0.05, 1.0, 5.0]),
    first_delay=st.sampled_from([0.0, 0.3, 3.0]),
    rtf=st.sampled_from([0.0, 0.3, 1.5]),
    transcript=st.sampled_from([None, "", "yes"]),
    fails_after=st.sampled_from([None, None, 0, 0.5]),
    hangs_after=st.sampled_from([None, None, 0, 0.5]),
    thinks=st.sampled_from([0, 0, 2]),
)
SHORT = replace(
    UNHURRIED,
    watchdog=WatchdogConfig(first_delta_s=4.0, idle_delta_s=3.0, response_s=12.0, transcript_s=5.0),
    turns=TurnConfig(max_turn_ms=20_000),
    idle=IdleConfig(max_nudges=1),
    waiting=WaitingConfig(play="sound", after_s=0.5),
)
TALKATIVE = replace(SORRY, greeting=Line("Hello there, caller.", np.full(2 * RATE, 500, np.int16)))


@given(
    pauses=st.lists(st.tuples(st.floats(0.1, 3.0), st.floats(0.05, 3.0)), max_size=6),
    replies=st.lists(REPLIES, min_size=1, max_size=5),
    client=st.lists(st.tuples(st.floats(0.0, 12.0), CLIENT_EVENTS), max_size=8),
    loss=st.sampled_from([0.0, 0.2]),
    lines=st.sampled_from([NO_LINES, TALKATIVE]),
    connects_at=st.sampled_from([None, 0.0, 2.0]),
    idle_timeout_ms=st.sampled_from([None, 1_000]),
    recogniser=st.sampled_from([None, (0.2, "mm-hm"), (0.2, "stop"), (0.9, "go back")]),
    eager=st.booleans(),
)
def test_whatever_happens_the_books_balance(
    pauses, replies, client, loss, lines, connects_at, idle_timeout_ms, recogniser, eager
):
    speech, at = [], 0.0
    for pause, length in pauses:
        speech.append((at + pause, at + pause + length))
        at += pause + length
    network = Network(loss=loss, jitter_s=0.04) if loss else None
    session = SessionConfig(turn_detection=TurnDetection(idle_timeout_ms=idle_timeout_ms))
    config = replace(SHORT, session=session, speculation=SpeculationConfig(enabled=eager))
    sim = Sim(
        speech,
        replies,
        network,
        config,
        client,
        lines=lines,
        recogniser=recogniser,
        connects_at=connects_at,
    ).run(at + 60)

    assert all(isinstance(error, ClientEventError) for _, error in sim.errors)
    live: int | None = None
    playing: int | None = None
    thinking: int | None = None
    open_replies: set[str] = set()
    for event in sim.events():
        match event:
            case ev.ResponseCreated(response_id):
                assert live is None
                live = response_id
            case ev.ResponseDone(response_id):
                assert live == response_id
                assert thinking is None
                assert not open_replies
                live = None
            case ev.ThinkingBegan(response_id):
                assert thinking is None
                assert live == response_id
                thinking = response_id
            case ev.ThinkingEnded(response_id):
                assert thinking == response_id
                thinking = None
            case ev.ReplyBegan(_, item):
                assert live is not None
                open_replies.add(item.id)
            case ev.ReplyEnded(_, item):
                open_replies.remove(item.id)
                assert item.status in ("completed", "incomplete")
            case ev.PlayoutStarted(response_id):
                assert playing is None
                playing = response_id
            case ev.PlayoutStopped(response_id) | ev.PlayoutCleared(response_id):
                assert playing == response_id
                playing = None
            case _:
                pass
    assert live is None
    assert playing is None
    assert sim.conversation.floor is Floor.IDLE
    created = {event.response_id for event in sim.events(ev.ResponseCreated)}
    finals = [event.response_id for event in sim.events(ev.TurnTimings) if event.final]
    assert sorted(finals) == sorted(created)
    waiting = {event.item_id for event in sim.events(ev.TurnCommitted)}
    told = [event.item_id for event in sim.events(ev.TranscriptDone, ev.TranscriptFailed)]
    joined = {event.item_id for event in sim.events(ev.ItemDeleted)}
    assert len(set(told)) == len(told)
    assert waiting - joined <= set(told) <= waiting


def test_the_timings_of_a_turn_name_the_engine_that_answered():
    sim = Sim(replies=[Reply(first_delay=2.0)], speech=[(1.0, 2.5)])
    routed = Routed("hosted", "vllm: lost")
    sim.at(4.0, lambda: sim.conversation.receive_delta(1, routed, 4.0))
    sim.run(12)
    assert {event.route for event in sim.events(ev.TurnTimings)} == {routed}
