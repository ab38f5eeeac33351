"""What the assistant does of itself: greets, asks silent callers to go on, fills a wait, ends idle calls."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim import Reply, Sim
from visavis import events as ev
from visavis.actions import CancelResponse, HangUp, StartResponse
from visavis.audio import BLOCK, RATE
from visavis.config import (
    ConversationConfig,
    GreetingConfig,
    IdleConfig,
    SessionConfig,
    TurnDetection,
    WaitingConfig,
    WatchdogConfig,
)
from visavis.conversation import Floor
from visavis.engine import AudioPart, TextPart
from visavis.lines import Line, Lines

TICK = BLOCK / RATE
HELLO = Line("Hello, I am Visavis.", np.full(2 * RATE, 700, np.int16))
STILL_THERE = Line("Are you still there?", np.full(RATE, 600, np.int16))
LET_ME_THINK = Line("Let me think.", np.full(RATE, 400, np.int16))
LINES = Lines(greeting=HELLO, warning=STILL_THERE, waiting=LET_ME_THINK)


def config(idle_timeout_ms: int | None = None, detection: bool = True, **parts: object) -> ConversationConfig:
    turn_detection = TurnDetection(idle_timeout_ms=idle_timeout_ms) if detection else None
    return ConversationConfig(session=SessionConfig(turn_detection=turn_detection), **parts)  # type: ignore[arg-type]


def names(sim: Sim) -> list[str]:
    return [type(event).__name__ for event in sim.events()]


def texts(sim: Sim, request: int = -1) -> list[tuple[str, str]]:
    """Role and text of what the engine was sent, the instructions aside."""
    return [
        (message.role, "".join(part.text for part in message.parts if isinstance(part, TextPart)))
        for message in sim.requests()[request].messages[1:]
    ]


# The greeting.


def test_the_caller_is_greeted_as_soon_as_the_media_is_there():
    sim = Sim(connects_at=1.0, lines=LINES).run(5)
    assert names(sim) == [
        "ResponseCreated",
        "ReplyBegan",
        "ReplyText",
        "ReplyEnded",
        "ResponseDone",
        "PlayoutStarted",
        "TurnTimings",
        "PlayoutStopped",
        "TurnTimings",
    ]
    assert sim.events(ev.ReplyText)[0].text == HELLO.text
    assert sim.times(ev.PlayoutStarted)[0] == pytest.approx(1.0, abs=0.1)
    assert sim.sound_between(1.0, 5.0) == pytest.approx(2.0, abs=0.05)
    assert sim.times(StartResponse) == []
    assert sim.conversation.floor is Floor.IDLE


def test_the_engine_is_told_of_the_greeting():
    sim = Sim(speech=[(4.0, 5.5)], connects_at=1.0, lines=LINES).run(8)
    assert texts(sim) == [("assistant", HELLO.text), ("user", "")]


def test_a_greeting_is_interrupted_like_an_answer():
    sim = Sim(speech=[(2.0, 3.5)], connects_at=1.0, lines=LINES).run(8)
    assert sim.sound_between(2.7, 3.5) == 0
    (cut,) = sim.events(ev.ItemTruncated)
    assert cut.text
    assert HELLO.text.startswith(cut.text)
    assert cut.text != HELLO.text
    assert texts(sim) == [("assistant", cut.text), ("user", "")]


def test_a_greeting_that_everybody_must_hear_is_not_interrupted():
    must = config(greeting=GreetingConfig(interruptible=False))
    sim = Sim(speech=[(1.5, 2.5)], connects_at=1.0, lines=LINES, config=must).run(12)
    assert sim.events(ev.ItemTruncated) == []
    assert sim.sound_between(1.0, 3.2) == pytest.approx(2.0, abs=0.1)
    assert [done.status for done in sim.events(ev.ResponseDone)] == ["completed", "completed"]
    assert texts(sim) == [("assistant", HELLO.text), ("user", "")]


@pytest.mark.parametrize(
    ("lines", "session"),
    [
        (Lines(greeting=Line("Hello!")), SessionConfig()),
        (LINES, SessionConfig(output_modalities=("text",))),
    ],
)
def test_a_greeting_without_a_voice_is_written(lines, session):
    sim = Sim(connects_at=1.0, lines=lines, config=ConversationConfig(session=session)).run(4)
    assert names(sim) == [
        "ResponseCreated", "ReplyBegan", "ReplyText", "ReplyEnded", "ResponseDone", "TurnTimings",
    ]  # fmt: skip
    assert sim.events(ev.ResponseCreated)[0].output_modalities == ("text",)
    assert sim.sound_between(0, 4) == 0
    assert sim.conversation.floor is Floor.IDLE


def test_whoever_speaks_before_the_greeting_interrupts_it_and_is_answered():
    sim = Sim(speech=[(0.5, 2.5)], connects_at=2.6, lines=LINES, config=config()).run(9)
    assert len(sim.times(CancelResponse)) >= 1  # of what was asked for in the pause
    assert texts(sim)[-1] == ("user", "")
    assert [done.status for done in sim.events(ev.ResponseDone)] == ["completed", "completed"]


def test_without_a_greeting_the_caller_speaks_first():
    assert Sim(connects_at=1.0).run(5).events() == []


def test_whoever_asks_before_the_media_is_there_is_answered_and_not_greeted():
    sim = Sim(client=[(0.5, ev.CreateResponse())], connects_at=1.0, lines=LINES).run(8)
    assert HELLO.text not in [event.text for event in sim.events(ev.ReplyText)]
    assert len(sim.events(ev.ResponseDone)) == 1


# A silent caller.


def test_a_caller_who_says_nothing_after_an_answer_is_asked_to_go_on():
    sim = Sim(speech=[(1.0, 2.5)], config=config(5_000), connects_at=0.0).run(13)
    stopped, nudged = sim.times(ev.PlayoutStopped)[0], sim.times(ev.TimeoutTriggered)[0]
    assert nudged - stopped == pytest.approx(5.0, abs=0.05)
    (event,) = sim.events(ev.TimeoutTriggered)
    assert event.end_ms - event.start_ms == pytest.approx(5_000, abs=40)
    assert event.end_ms == pytest.approx(nudged * 1000, abs=40)
    after = names(sim)[names(sim).index("TimeoutTriggered") :]
    assert after[:5] == ["TimeoutTriggered", "TurnCommitted", "ItemAdded", "ItemDone", "ResponseCreated"]
    assert sim.events(ev.TurnCommitted)[-1].item_id == event.item_id
    item = sim.conversation.history.get(event.item_id)
    assert item is not None
    assert item.role == "user"


def test_the_engine_hears_the_silence_and_reads_what_it_is_for():
    sim = Sim(speech=[(1.0, 2.5)], config=config(5_000), connects_at=0.0).run(13)
    first, nudge = sim.requests()
    assert nudge.messages[0] == first.messages[0]
    sound, text = nudge.messages[-1].parts
    assert isinstance(sound, AudioPart)
    assert len(sound.pcm) == pytest.approx(5 * RATE, abs=RATE // 5)
    assert text == TextPart(IdleConfig().nudge)


def test_what_the_engine_read_of_a_silence_is_not_said_again():
    sim = Sim(speech=[(1.0, 2.5), (17.0, 18.5)], config=config(5_000), connects_at=0.0).run(22)
    assert len(sim.requests()) == 3
    assert IdleConfig().nudge not in [text for _, text in texts(sim)]


def test_a_silence_longer_than_the_engine_need_hear_is_sent_by_its_end():
    sim = Sim(speech=[(1.0, 2.5)], config=config(60_000), connects_at=0.0).run(70)
    sound = sim.requests()[-1].messages[-1].parts[0]
    assert isinstance(sound, AudioPart)
    assert len(sound.pcm) == pytest.approx(10 * RATE, abs=RATE // 5)


def test_an_empty_chair_is_asked_three_times():
    sim = Sim(speech=[(1.0, 2.5)], config=config(2_000), connects_at=0.0).run(60)
    assert len(sim.events(ev.TimeoutTriggered)) == IdleConfig().max_nudges


@pytest.mark.parametrize("act", [ev.CreateItem("user", "I am typing."), ev.CreateResponse()])
def test_a_caller_who_answers_is_asked_again_at_the_next_silence(act):
    client = [(50.0, act)]
    sim = Sim(speech=[(1.0, 2.5)], config=config(2_000), client=client, connects_at=0.0).run(100)
    assert len(sim.events(ev.TimeoutTriggered)) == 2 * IdleConfig().max_nudges


def test_a_caller_who_goes_on_in_time_is_not_asked():
    speech = [(at, at + 1.5) for at in (1.0, 9.0, 17.0)]
    sim = Sim(speech=speech, config=config(5_000), connects_at=0.0).run(24)
    assert sim.events(ev.TimeoutTriggered) == []


COMMITS_ONLY = TurnDetection(idle_timeout_ms=5_000, create_response=False)


@pytest.mark.parametrize(
    "quiet",
    [
        config(None),
        config(detection=False),
        replace(config(), session=SessionConfig(turn_detection=COMMITS_ONLY)),
    ],
)
def test_nobody_is_asked_who_did_not_want_it_or_pushes_to_talk_or_asks_for_answers_itself(quiet):
    client = [(1.0, ev.CreateItem("user", "Hi")), (1.1, ev.CreateResponse())]
    sim = Sim(config=quiet, client=client, connects_at=0.0).run(40)
    assert len(sim.events(ev.ResponseDone)) == 1
    assert sim.events(ev.TimeoutTriggered) == []


def test_nobody_is_asked_before_the_first_answer_or_greeting():
    assert Sim(config=config(5_000), connects_at=0.0).run(30).events() == []
    greeted = Sim(config=config(5_000), connects_at=0.0, lines=LINES).run(9)
    assert greeted.times(ev.TimeoutTriggered) == [pytest.approx(7.0, abs=0.2)]


def test_where_no_microphone_is_heard_nobody_is_asked():
    client = [(1.0, ev.CreateItem("user", "Hi")), (1.1, ev.CreateResponse())]
    sim = Sim(config=config(5_000), client=client, connects_at=0.0, hears_until=0.5).run(30)
    assert len(sim.events(ev.ResponseDone)) == 1
    assert sim.events(ev.TimeoutTriggered) == []


# An idle call.

IDLE = IdleConfig(end_s=30.0, warn_s=10.0)


def test_an_idle_call_is_warned_and_ends():
    sim = Sim(config=config(idle=IDLE), connects_at=1.0, lines=Lines(warning=STILL_THERE)).run(40)
    warning, end = sim.events(ev.CallEnding)
    assert (warning.seconds, end.seconds) == (10, 0)
    assert sim.times(ev.CallEnding) == [pytest.approx(21, abs=0.1), pytest.approx(31, abs=0.1)]
    assert sim.sound_between(21, 23) == pytest.approx(1.0, abs=0.05)
    assert sim.times(HangUp) == [pytest.approx(31, abs=0.1)]
    assert names(sim).count("ResponseDone") == 1


def test_without_a_sentence_the_page_alone_is_warned():
    sim = Sim(config=config(idle=IDLE), connects_at=1.0).run(40)
    assert names(sim) == ["CallEnding", "CallEnding"]
    assert len(sim.times(HangUp)) == 1


@pytest.mark.parametrize(
    ("speech", "client"),
    [([(25.0, 26.5)], []), ([], [(25.0, ev.CreateItem("user", "Yes!"))]), ([(21.3, 24.0)], [])],
)
def test_whoever_answers_the_warning_keeps_the_call(speech, client):
    sim = Sim(
        speech=speech,
        client=client,
        config=config(idle=IDLE),
        connects_at=1.0,
        lines=Lines(warning=STILL_THERE),
    ).run(44)
    assert sim.times(HangUp) == []
    assert [event.seconds for event in sim.events(ev.CallEnding)] == [10]


def test_a_call_does_not_end_while_somebody_speaks_or_is_answered():
    long = Reply(seconds=40.0, text="word " * 100)
    sim = Sim(speech=[(2.0, 28.0)], replies=[long], config=config(idle=IDLE), connects_at=1.0).run(85)
    assert sim.times(HangUp) == []
    assert len(sim.events(ev.PlayoutStopped)) == 1


def test_nudges_do_not_keep_an_empty_call_for_ever():
    sim = Sim(speech=[(2.0, 3.0)], config=config(4_000, idle=IDLE), connects_at=1.0).run(100)
    assert len(sim.times(HangUp)) == 1


def test_a_call_may_be_idle_for_ever():
    sim = Sim(config=config(idle=IdleConfig(end_s=None)), connects_at=1.0).run(60)
    assert not sim.events()
    assert sim.conversation.next_timeout() is None


# A slow answer.

SLOW = Reply(first_delay=5.0, seconds=2.0, transcript=None)
SLOWER = replace(SLOW, first_delay=9.0)
TICKING = config(waiting=WaitingConfig(play="sound"))
SAYING = config(waiting=WaitingConfig(play="sentence"))


@pytest.mark.parametrize("waiting", [TICKING, SAYING])
def test_a_slow_answer_is_waited_for_with_a_sound_that_is_no_part_of_it(waiting):
    sim = Sim(speech=[(1.0, 2.5)], replies=[SLOW], config=waiting, lines=LINES).run(14)
    asked = sim.marks("turn_end")[0]
    began = sim.times(ev.PlayoutStarted)[0]
    assert sim.sound_between(0, asked + 1.45) == 0
    assert sim.sound_between(asked + 1.5, asked + 2.5) > 0.2
    without = Sim(speech=[(1.0, 2.5)], replies=[SLOW], config=config()).run(14)
    assert without.sound_between(0, began) == 0
    assert without.times(ev.PlayoutStarted)[0] == began
    assert without.sound_between(began, 14) == pytest.approx(sim.sound_between(began, 14), abs=0.03)
    assert without.events(ev.ReplyEnded)[0].item == sim.events(ev.ReplyEnded)[0].item


def test_a_sentence_is_said_once_for_an_answer():
    sim = Sim(speech=[(1.0, 2.5)], replies=[SLOWER], config=SAYING, lines=LINES).run(11)
    assert sim.sound_between(0, 11) == pytest.approx(1.0, abs=0.05)


def test_the_waiting_sound_stops_when_the_caller_speaks():
    sim = Sim(speech=[(1.0, 2.5), (6.0, 7.0)], replies=[SLOWER], config=TICKING).run(8)
    assert sim.sound_between(5.0, 6.0) > 0.2
    assert sim.sound_between(6.11, 7.4) == 0  # after 80 ms of what is probably speech


def test_an_answer_that_was_not_to_be_spoken_is_waited_for_in_silence():
    text = replace(TICKING, session=SessionConfig(output_modalities=("text",)))
    sim = Sim(speech=[(1.0, 2.5)], replies=[SLOW], config=text).run(12)
    assert sim.sound_between(0, 12) == 0


# No state lasts for ever.

HASTY = IdleConfig(end_s=12.0, warn_s=4.0)
PATIENCE = WatchdogConfig(first_delta_s=4.0, idle_delta_s=3.0, response_s=12.0, transcript_s=5.0)


@given(
    speech=st.lists(st.tuples(st.floats(0.1, 3.0), st.floats(0.05, 3.0)), max_size=3),
    reply=st.builds(
        Reply,
        seconds=st.sampled_from([0.0, 0.5, 8.0]),
        first_delay=st.sampled_from([0.0, 0.3, 3.0]),
        fails_after=st.sampled_from([None, 0, 0.5]),
        hangs_after=st.sampled_from([None, 0, 0.5]),
    ),
    greets=st.booleans(),
    play=st.sampled_from(["nothing", "sound", "sentence"]),
    idle_timeout_ms=st.sampled_from([None, 1_000]),
    pulls=st.booleans(),
    vanishes_at=st.floats(0.5, 8.0),
    talks=st.booleans(),
)
def test_whatever_stops_no_state_lasts_for_ever(
    speech, reply, greets, play, idle_timeout_ms, pulls, vanishes_at, talks
):
    """The microphone stops in the middle, the engine hangs, nobody listens: all comes to rest and ends."""
    spoken, at = [], 0.0
    for pause, length in speech:
        spoken.append((at + pause, at + pause + length))
        at += pause + length
    if talks:
        spoken.append((vanishes_at - 0.5, vanishes_at))
    sim = Sim(
        spoken,
        [reply],
        config=config(idle_timeout_ms, idle=HASTY, waiting=WaitingConfig(play=play), watchdog=PATIENCE),
        lines=LINES if greets else Lines(),
        pulls=pulls,
        connects_at=0.0,
        hears_until=vanishes_at,
    ).run(vanishes_at + 40)
    assert len(sim.times(HangUp)) == 1
    assert sim.conversation.floor is Floor.IDLE
    assert len(sim.events(ev.SpeechBegan)) == len(sim.events(ev.SpeechEnded))
    assert sim.conversation.next_timeout() is None
    assert len(sim.times(StartResponse)) >= len(sim.times(CancelResponse))
