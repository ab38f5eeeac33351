"""Responses outside of the conversation, by simulated calls."""

from dataclasses import replace

import numpy as np
import pytest

from sim import UNHURRIED, Reply, Sim, calling
from visavis import events as ev
from visavis.actions import CancelResponse
from visavis.config import SessionConfig
from visavis.engine import Done, TextDelta, Tool
from visavis.errors import ClientEventError, EngineRefused
from visavis.frames import Frame
from visavis.history import AudioContent, CallContent, FramesContent, Item, ResultContent, TextContent
from visavis.speaker import MAX_OUTSIDE

ASKED = [(1.0, 2.5)]
WRITTEN = ev.CreateResponse("Name the topic.", ("text",), outside=True, metadata=(("for", "topic"),))
SPOKEN = ev.CreateResponse("Say that the shop closes.", ("audio",), outside=True)
TALK = Reply("It is a sunny day out there.", seconds=3.0)
TOPIC = Reply("weather", seconds=0.5, transcript=None)


def created(sim: Sim) -> dict[int, ev.ResponseCreated]:
    return {event.response_id: event for event in sim.events(ev.ResponseCreated)}


def done(sim: Sim) -> dict[int, ev.ResponseDone]:
    return {event.response_id: event for event in sim.events(ev.ResponseDone)}


def texts(messages) -> list[tuple[str, str]]:
    return [(message.role, message.text) for message in messages]


def test_a_written_one_is_made_beside_the_answer_and_leaves_nothing_behind():
    sim = Sim(speech=ASKED, replies=[TALK, TOPIC], client=[(4.5, WRITTEN)]).run(10)
    first, second = done(sim).values()
    assert {first.status, second.status} == {"completed"}
    aside = created(sim)[2]
    assert (aside.outside, aside.metadata) == (True, (("for", "topic"),))
    roles = [item.role for item in sim.conversation.history.items]
    assert roles == ["user", "assistant"]
    assert done(sim)[2].item is not None
    assert sim.sound_between(3, 8) == pytest.approx(3.0, abs=0.1)
    assert len(sim.events(ev.PlayoutStarted)) == len(sim.events(ev.PlayoutStopped)) == 1
    assert not sim.events(ev.PlayoutCleared)
    assert len(sim.events(ev.ItemDone)) == 1
    (final,) = [event for event in sim.events(ev.TurnTimings) if event.final and event.response_id == 2]
    assert "done" in final.marks_ms


def test_by_default_it_knows_the_conversation_and_the_answer_does_not_know_it():
    client = [(1.0, ev.CreateItem("user", "Is it warm?")), (1.1, WRITTEN), (3.0, ev.CreateResponse())]
    sim = Sim(client=client, replies=[TOPIC, TALK]).run(8)
    outside, inside = sim.requests()
    assert texts(outside.messages) == [("system", "Name the topic."), ("user", "Is it warm?")]
    assert (outside.speak, inside.speak) == (False, True)
    assert texts(inside.messages)[1:] == [("user", "Is it warm?")]


def test_it_may_be_given_items_of_its_own_and_some_of_the_conversation():
    given = (
        "mine",
        Item("", "user", (TextContent("Which?"),)),
        Item("", "assistant", (CallContent("call_1", "look", "{}"),)),
        Item("", "tool", (ResultContent("call_1", "A cat."),)),
        "gone",
    )
    create = replace(WRITTEN, input=given[:-1])
    client = [
        (1.0, ev.CreateItem("user", "Not this.")),
        (1.1, ev.CreateItem("user", "But this.", item_id="mine")),
        (1.2, create),
    ]
    sim = Sim(client=client, replies=[TOPIC]).run(3)
    (request,) = sim.requests()
    shape = [(m.role, [type(part).__name__ for part in m.parts]) for m in request.messages]
    assert shape == [
        ("system", ["TextPart"]),
        ("user", ["TextPart", "TextPart"]),
        ("assistant", ["CallPart"]),
        ("tool", ["ResultPart"]),
    ]
    assert request.messages[1].text == "But this. Which?"
    assert len(sim.conversation.history.messages_of("", given)) == 3


def test_items_of_its_own_are_named_like_no_others_in_the_engines_caches():
    def seen(name: bytes) -> Item:
        return Item("", "user", (FramesContent((Frame(name, 64, 64, 0, "image"),)),))

    client = [(1.0 + k / 10, replace(WRITTEN, input=(seen(b"a"),))) for k in range(2)]
    client.append((1.5, ev.CreateItem("user", "And?", media=seen(b"b").content)))
    client.append((1.6, ev.CreateResponse(output_modalities=("text",))))
    sim = Sim(client=client, replies=[TOPIC]).run(3)
    uuids = [
        part.uuid
        for request in sim.requests()
        for m in request.messages
        for part in m.parts[:1]
        if hasattr(part, "uuid")
    ]
    assert len(uuids) == len(set(uuids)) == 3


def test_an_item_that_it_refers_to_must_be_there():
    sim = Sim(client=[(1.0, replace(WRITTEN, input=(Item("", "user", ()), "nothing")))]).run(2)
    ((_, error),) = sim.errors
    assert isinstance(error, ClientEventError)
    assert (error.code, error.param) == ("item_not_found", "response.input[1].id")
    assert not sim.events()


def test_what_is_in_the_conversation_may_be_given_other_items_too():
    given = (Item("", "user", (TextContent("Only this."),)),)
    client = [(1.0, ev.CreateItem("user", "Not this.")), (1.1, ev.CreateResponse(input=given))]
    sim = Sim(client=client).run(8)
    assert texts(sim.requests()[0].messages)[1:] == [("user", "Only this.")]
    assert [item.role for item in sim.conversation.history.items] == ["user", "assistant"]


def test_a_spoken_one_waits_for_the_floor_and_is_heard_then():
    sim = Sim(speech=ASKED, replies=[TALK, Reply("We close.", seconds=1.0)], client=[(4.5, SPOKEN)]).run(12)
    assert [type(e).__name__ for e in sim.events(ev.ResponseCreated, ev.PlayoutStopped)] == [
        "ResponseCreated",
        "PlayoutStopped",
        "ResponseCreated",
        "PlayoutStopped",
    ]
    assert created(sim)[2].outside
    assert sim.sound_between(3, 12) == pytest.approx(4.0, abs=0.1)
    assert [item.role for item in sim.conversation.history.items] == ["user", "assistant"]


def test_a_spoken_one_waits_for_who_is_speaking_and_for_their_answer():
    sim = Sim(speech=[(1.0, 4.0)], replies=[TALK], client=[(2.0, SPOKEN)]).run(14)
    first, second = sim.events(ev.ResponseCreated)
    assert (first.outside, second.outside) == (False, True)


def test_a_spoken_one_can_be_interrupted_and_no_item_is_cut():
    sim = Sim(speech=[(4.0, 6.0)], replies=[Reply(seconds=6.0), TALK], client=[(1.0, SPOKEN)]).run(12)
    assert len(sim.events(ev.PlayoutCleared)) == 1
    assert not sim.events(ev.ItemTruncated)
    assert [event.outside for event in sim.events(ev.ResponseCreated)] == [True, False]


def test_one_is_cancelled_by_its_name_and_the_answer_goes_on():
    slow = Reply("weather", seconds=0.5, first_delay=3.0)
    client = [(4.0, WRITTEN), (4.2, ev.CancelGeneration(2)), (4.3, ev.CancelGeneration(2))]
    sim = Sim(speech=ASKED, replies=[TALK, slow], client=client).run(10)
    assert (done(sim)[2].status, done(sim)[2].reason) == ("cancelled", "client_cancelled")
    assert done(sim)[1].status == "completed"
    assert CancelResponse(2) in [action for _, action in sim.log]
    assert len(sim.errors) == 1


def test_to_cancel_without_a_name_is_about_the_conversation():
    client = [(1.0, WRITTEN), (1.1, ev.CancelGeneration())]
    sim = Sim(replies=[Reply("weather", first_delay=1.0)], client=client).run(8)
    ((_, error),) = sim.errors
    assert isinstance(error, ClientEventError)
    assert error.code == "response_cancel_not_active"
    assert done(sim)[1].status == "completed"


def test_there_are_not_any_number_of_them():
    client = [(1.0, WRITTEN)] * MAX_OUTSIDE + [(1.1, SPOKEN)]
    sim = Sim(replies=[Reply(first_delay=2.0)], client=client).run(1.5)
    ((_, error),) = sim.errors
    assert isinstance(error, ClientEventError)
    assert error.code == "too_many_responses"


def test_spoken_ones_count_while_they_wait_and_are_heard():
    sim = Sim(replies=[Reply(seconds=5.0)], client=[(1.0, SPOKEN)] * 3).run(3)
    assert len(sim.requests()) == 1
    more = [(3.0, WRITTEN)] * (MAX_OUTSIDE - 3)
    for _, event in more:
        sim.conversation.receive_client(event, sim.now)
    with pytest.raises(ClientEventError):
        sim.conversation.receive_client(WRITTEN, sim.now)


def test_only_functions_of_the_client_are_offered_and_their_calls_are_not_in_the_conversation():
    tool = Tool("topic")
    create = replace(WRITTEN, tools=(tool,))
    result = ev.CreateResult("call_topic", "x")
    sim = Sim(
        client=[(1.0, create), (3.0, result)], replies=[calling("topic", "look")], gives={"look": (1, "")}
    )
    sim.run(6)
    assert sim.requests()[0].tools == (tool,)
    calls = done(sim)[1].calls
    assert [item.call.own for item in calls if item.call is not None] == [False, False]
    assert not sim.conversation.history.items
    assert len(sim.errors) == 1
    assert len(sim.requests()) == 1


def test_the_transcript_of_what_was_said_may_come_with_it():
    config = replace(UNHURRIED, session=SessionConfig(turn_detection=None))
    client = [(2.6, ev.CommitAudio()), (2.7, WRITTEN)]
    sim = Sim(speech=ASKED, config=config, client=client, replies=[Reply("weather")]).run(6)
    assert [event.text for event in sim.events(ev.TranscriptDone)] == ["hello there"]


def test_one_that_hangs_is_given_up_and_one_that_is_refused_fails_alone():
    hangs = Sim(client=[(1.0, WRITTEN)], replies=[Reply(hangs_after=0)]).run(120)
    assert done(hangs)[1].status == "failed"
    assert not hangs.sound_between(0, 120)
    heard = AudioContent(np.full(24_000, 100, np.int16))
    client = [(1.0, ev.CreateItem("user", "", item_id="a", media=(heard,))), (1.1, WRITTEN)]
    refused = Sim(client=client, replies=[Reply(fails_after=0, error=EngineRefused("No."))]).run(3)
    assert done(refused)[1].status == "failed"
    kept = refused.conversation.history.item("a").content[0]
    assert isinstance(kept, AudioContent)
    assert kept.pcm is not None


def test_each_has_its_own_time():
    client = [(1.0, ev.CreateResponse()), (5.0, WRITTEN), (9.0, WRITTEN)]
    sim = Sim(client=client, replies=[Reply(hangs_after=0)]).run(120)
    assert [event.status for event in sim.events(ev.ResponseDone)] == ["failed"] * 3
    first, second, third = sim.times(ev.ResponseDone)
    assert (second - first, third - second) == (pytest.approx(4.0, abs=0.1), pytest.approx(4.0, abs=0.1))


def test_another_voice_is_asked_for_and_told():
    sim = Sim(client=[(1.0, replace(SPOKEN, voice="Ethan"))]).run(2)
    assert sim.requests()[0].voice == created(sim)[1].voice == "Ethan"


def test_the_end_of_the_call_ends_them():
    sim = Sim(client=[(1.0, WRITTEN), (1.1, SPOKEN), (1.2, SPOKEN)], replies=[Reply(first_delay=5.0)]).run(
        1.5
    )
    sim.conversation.end(sim.now)
    assert sim.conversation.snapshot().unsaid is None
    sim.run(10)
    assert [event.status for event in sim.events(ev.ResponseDone)] == ["cancelled", "cancelled"]
    assert len(sim.requests()) == 2


def test_what_comes_late_is_dropped():
    sim = Sim(client=[(1.0, WRITTEN)], replies=[TOPIC]).run(5)
    before = len(sim.events())
    for delta in (TextDelta("more"), Done()):
        sim.conversation.receive_delta(1, delta, sim.now)
    sim.run(1)
    assert len(sim.events()) == before
