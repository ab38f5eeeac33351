"""A caller who comes back goes on where the call was lost."""

from dataclasses import replace

import numpy as np
import pytest

from sim import UNHURRIED, Reply, Sim, calling
from visavis import events as ev
from visavis.actions import CancelResponse
from visavis.audio import RATE
from visavis.history import Item, SpokenContent, TextContent
from visavis.lines import Line, Lines
from visavis.snapshot import Snapshot, unpack
from visavis.unsaid import Unsaid

HELLO = Lines(greeting=Line("Hello.", np.full(RATE, 700, np.int16)), warning=None, waiting=None)
LONG = Reply("One two three four five six seven eight nine ten.", seconds=10.0, first_delay=0.02)


def again(sim: Sim) -> Snapshot:
    return unpack(sim.conversation.snapshot().pack())


def test_what_was_said_before_is_what_the_engine_is_asked_with() -> None:
    before = Sim(speech=[(1.0, 2.0)], replies=[Reply("It is red.", transcript="What is it?")]).run(8)
    after = Sim(speech=[(1.0, 2.0)], past=again(before).items, connects_at=0.5, lines=HELLO).run(8)
    (request,) = after.requests()
    said = [message.text for message in request.messages[1:]]
    assert said == ["What is it?", "It is red.", ""]


def test_who_comes_back_is_not_greeted_again() -> None:
    past = (Item("item_1", "user", (TextContent("Hi."),)),)
    assert Sim(past=past, connects_at=0.5, lines=HELLO).run(3).events() == []
    assert Sim(connects_at=0.5, lines=HELLO).run(3).events(ev.ResponseCreated)


def test_of_an_answer_that_the_end_cut_off_what_was_heard_is_kept() -> None:
    sim = Sim(speech=[(1.0, 2.0)], replies=[LONG]).run(7.5)
    whole = sim.conversation.history.items[-1].content[0]
    assert isinstance(whole, SpokenContent)
    sim.conversation.end(sim.now)
    kept = again(sim).items[-1].content[0]
    assert isinstance(kept, SpokenContent)
    assert whole.transcript.startswith(kept.transcript)
    assert 0 < len(kept.transcript) < len(whole.transcript)


@pytest.mark.parametrize("at", [2.1, 2.7])
def test_the_end_takes_back_what_was_asked(at: float) -> None:
    """In a pause, on the chance that the turn was over, or of a turn that was."""
    sim = Sim(speech=[(1.0, 2.0)], replies=[Reply(first_delay=3.0)], config=type(UNHURRIED)()).run(at)
    assert sim.requests()
    sim.conversation.end(sim.now)
    sim.run(0.1)
    assert any(isinstance(action, CancelResponse) for _, action in sim.log)


def test_what_the_client_had_set_comes_with_it() -> None:
    session = ev.UpdateSession(UNHURRIED.session)
    sim = Sim(client=[(1.0, session)]).run(2)
    assert again(sim).session == UNHURRIED.session


# What the end of a call kept from being said.


def lost(sim: Sim, lost_s: float = 0.0) -> Snapshot:
    """Lose the call, and read what is left of it."""
    sim.conversation.end(sim.now, lost_s)
    return again(sim)


def back(left: Snapshot, *replies: Reply) -> Sim:
    """Come back, and say nothing."""
    script = replies or (Reply("And so on."),)
    return Sim(replies=script, past=left.items, unsaid=left.unsaid, connects_at=0.5).run(8)


def heard(left: Snapshot) -> str:
    (content,) = left.items[-1].content
    assert isinstance(content, SpokenContent)
    return content.transcript


def test_an_answer_that_was_cut_off_is_said_to_its_end() -> None:
    left = lost(Sim(speech=[(1.0, 2.0)], replies=[LONG]).run(7.5))
    assert left.unsaid is not None
    assert left.unsaid.whole
    assert f"{heard(left)} {left.unsaid.text}" == LONG.text
    after = back(left)
    (request,) = after.requests()
    assert request.recite == left.unsaid.text
    assert [message.role for message in request.messages[-2:]] == ["assistant", "user"]
    assert left.unsaid.text in request.messages[-1].text
    assert after.conversation.history.items[-1].content == (SpokenContent("And so on."),)


def test_what_was_sent_after_the_caller_was_last_heard_of_is_said_again() -> None:
    lefts = [lost(Sim(speech=[(1.0, 2.0)], replies=[LONG]).run(7.5), lost_s) for lost_s in (0.0, 2.5, 60.0)]
    assert [len(left.unsaid.text.split()) for left in lefts if left.unsaid] == [6, 8, 10]
    assert heard(lefts[1]) == "One two"
    assert lefts[2].items[-1].role == "user"


def test_an_answer_that_was_still_being_written_is_gone_on_with() -> None:
    slow = replace(LONG, rtf=1.0)
    left = lost(Sim(speech=[(1.0, 2.0)], replies=[slow]).run(6.0))
    assert left.unsaid is not None
    assert left.unsaid.begun
    assert not left.unsaid.whole
    assert slow.text.startswith(f"{heard(left)} {left.unsaid.text}")
    (request,) = back(left).requests()
    assert request.recite == ""
    assert left.unsaid.text in request.messages[-1].text


@pytest.mark.parametrize("delay", [0.3, 3.0])
def test_a_question_that_had_no_answer_yet_gets_one(delay: float) -> None:
    """None was there, or nothing of it had been heard."""
    late = Reply("Late.", first_delay=delay, hangs_after=0.1, chunks=(0.1,), transcript=None)
    left = lost(Sim(speech=[(1.0, 2.0)], replies=[late]).run(3.3), lost_s=1.0)
    assert left.unsaid == Unsaid()
    after = back(left, Reply("Now.", transcript="Well?"))
    (request,) = after.requests()
    assert [message.role for message in request.messages] == ["system", "user"]
    assert request.messages[-1].text == ""
    assert [event.text for event in after.events(ev.TranscriptDone)] == ["Well?"]


def test_who_types_is_answered_in_writing() -> None:
    ask = [
        (1.0, ev.CreateItem(None, "user", "Hi.")),
        (1.0, ev.CreateResponse(output_modalities=("text",))),
    ]
    half = Reply("One two three.", hangs_after=1.0, chunks=(1.0,))
    sim = Sim(client=ask, replies=[half]).run(3)
    assert again(sim).items[-1].content == (TextContent("One"),)
    left = lost(sim)
    assert left.unsaid == Unsaid(begun=True, spoken=False)
    assert left.items[-1].content == (TextContent("One"),)
    (request,) = back(left).requests()
    assert not request.speak
    assert "breaks off" in request.messages[-1].text


def test_nothing_is_owed_once_all_was_heard_or_when_only_our_own_line_was_cut() -> None:
    assert lost(Sim(speech=[(1.0, 2.0)]).run(9)).unsaid is None
    assert lost(Sim(lines=HELLO, connects_at=0.5).run(1)).unsaid is None
    assert lost(Sim(speech=[(1.0, 2.0), (4.0, 5.0)], replies=[LONG]).run(4.8)).unsaid is None


def test_what_functions_were_to_bring_is_asked_for_again() -> None:
    sim = Sim(speech=[(1.0, 2.0)], replies=[calling("look")], gives={"look": (60.0, "A cat.")}).run(5)
    left = lost(sim)
    assert left.unsaid == Unsaid()
    assert len(back(left).requests()) == 1


def test_what_is_kept_while_an_answer_is_heard_is_what_was_heard_by_then() -> None:
    """A machine that dies says nothing at its end."""
    sim = Sim(speech=[(1.0, 2.0)], replies=[LONG]).run(7.5)
    assert again(sim) == lost(sim)


def test_what_is_to_be_said_is_kept_until_it_can_be() -> None:
    unsaid = Unsaid(True, "Bye.", True)
    item = Item("item_1", "user", (TextContent("Hi."),))
    sim = Sim(past=[item], unsaid=unsaid).run(1)
    assert lost(sim).unsaid == unsaid


def test_who_is_answered_already_is_not_answered_twice() -> None:
    item = Item("item_1", "user", (TextContent("Hi."),))
    asked = [(0.5, ev.CreateResponse())]
    sim = Sim(past=[item], unsaid=Unsaid(), client=asked, connects_at=1.0).run(2)
    assert len(sim.requests()) == 1
