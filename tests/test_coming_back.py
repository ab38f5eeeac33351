"""A caller who comes back goes on where the call was lost."""

import numpy as np
import pytest

from sim import UNHURRIED, Reply, Sim
from visavis import events as ev
from visavis.actions import CancelResponse
from visavis.audio import RATE
from visavis.history import Item, SpokenContent, TextContent
from visavis.lines import Line, Lines
from visavis.snapshot import Snapshot, unpack

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
