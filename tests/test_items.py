"""What clients do to the items of a conversation, by simulated calls."""

from dataclasses import replace

import numpy as np
import pytest

from sim import UNHURRIED, Reply, Sim
from visavis import events as ev
from visavis.actions import CancelResponse
from visavis.audio import RATE
from visavis.config import SessionConfig, SpeculationConfig
from visavis.conversation import Floor
from visavis.engine import AudioPart, FramesPart, TextPart
from visavis.errors import ClientEventError
from visavis.frames import Frame
from visavis.history import AudioContent, FramesContent, Item, SpokenContent, TextContent

ASKED = [(1.0, 2.5)]
WRITTEN = replace(UNHURRIED, session=SessionConfig(output_modalities=("text",)))
HEARD = AudioContent(np.full(RATE, 500, np.int16))
IMAGE = FramesContent((Frame(b"one", 640, 480, 0, "image"), Frame(b"two", 640, 480, 0, "image")))


def codes(sim: Sim) -> list[tuple[str, str | None]]:
    found = []
    for _, error in sim.errors:
        assert isinstance(error, ClientEventError)
        found.append((error.code, error.param))
    return found


def reply_id(sim: Sim) -> str:
    return next(item.id for item in sim.conversation.history.items if item.role == "assistant")


def spoken(sim: Sim, item_id: str) -> str:
    content = sim.conversation.history.item(item_id).content[0]
    assert isinstance(content, SpokenContent)
    return content.transcript


def answered(seconds: float = 8.0) -> Sim:
    """A turn and its answer of three seconds, heard from about 3.6 s on."""
    return Sim(speech=ASKED).run(seconds)


# Deleting.


def test_a_deleted_item_is_gone_and_engines_are_not_sent_it():
    sim = Sim(
        client=[
            (1.0, ev.CreateItem("user", "My name is Ann.", item_id="secret")),
            (1.1, ev.CreateItem("user", "Hello.")),
            (1.2, ev.DeleteItem("secret")),
            (1.3, ev.CreateResponse()),
        ]
    ).run(2)
    assert sim.events(ev.ItemDeleted) == [ev.ItemDeleted("secret")]
    assert [message.text for message in sim.requests()[0].messages[1:]] == ["Hello."]


@pytest.mark.parametrize("event", [ev.DeleteItem("nothing"), ev.TruncateItem("nothing", 0)])
def test_an_item_that_is_not_there_cannot_be_changed(event: ev.ClientEvent):
    sim = Sim(client=[(1.0, event)]).run(2)
    assert codes(sim) == [("item_not_found", "item_id")]
    assert not sim.events()


def test_deleting_what_is_being_spoken_silences_it():
    sim = answered(4.5)
    assert sim.conversation.floor is Floor.SPEAKING
    item_id = reply_id(sim)
    sim.conversation.receive_client(ev.DeleteItem(item_id), sim.now)
    sim.run(2)
    assert sim.sound_between(4.6, 7) == 0
    assert sim.conversation.floor is Floor.IDLE
    names = [type(event).__name__ for event in sim.events()]
    assert names.index("PlayoutCleared") < names.index("ItemDeleted")
    assert sim.conversation.history.get(item_id) is None


def test_deleting_a_turn_that_awaits_its_transcript_tells_of_none():
    sim = Sim(speech=ASKED, replies=[Reply(transcript=None, hangs_after=0)]).run(3.4)
    (turn,) = sim.conversation.history.items
    sim.conversation.receive_client(ev.DeleteItem(turn.id), sim.now)
    sim.run(60)
    assert not sim.events(ev.TranscriptDone, ev.TranscriptFailed)


def test_who_goes_on_with_a_turn_that_was_deleted_interrupts_its_answer():
    sim = Sim(speech=[(1.0, 2.5), (3.5, 5.0)], replies=[Reply(first_delay=3.0)]).run(3.3)
    (turn,) = sim.conversation.history.items
    sim.conversation.receive_client(ev.DeleteItem(turn.id), sim.now)
    sim.run(3)
    assert sim.events(ev.ItemDeleted) == [ev.ItemDeleted(turn.id)]
    assert len(sim.conversation.history.items) == 1


def test_what_was_asked_for_in_advance_does_not_outlive_what_it_was_asked_with():
    config = replace(UNHURRIED, speculation=SpeculationConfig())
    created = (0.5, ev.CreateItem("user", "Earlier.", item_id="earlier"))
    sim = Sim(speech=ASKED, config=config, client=[created]).run(2.65)
    sim.conversation.receive_client(ev.DeleteItem("earlier"), sim.now)
    sim.run(2)
    assert [type(action) for _, action in sim.log].count(CancelResponse) == 1


# Truncating.


def test_a_reply_is_cut_to_what_the_client_heard():
    sim = answered(9)
    item_id = reply_id(sim)
    whole = spoken(sim, item_id)
    sim.conversation.receive_client(ev.TruncateItem(item_id, 1_500), sim.now)
    sim.run(1)
    (told,) = sim.events(ev.ItemTruncated)
    assert (told.item_id, told.audio_end_ms) == (item_id, 1_500)
    assert whole.startswith(told.text)
    assert 0 < len(told.text) < len(whole)
    assert spoken(sim, item_id) == told.text


def test_what_was_cut_does_not_come_back_and_the_client_is_told_what_holds():
    sim = answered(9)
    item_id = reply_id(sim)
    for milliseconds in (1_000, 2_500):
        sim.conversation.receive_client(ev.TruncateItem(item_id, milliseconds), sim.now)
    sim.run(1)
    first, second = sim.events(ev.ItemTruncated)
    assert first == second
    assert second.audio_end_ms == 1_000


def test_truncating_what_is_being_spoken_silences_it_and_the_clients_word_counts():
    sim = answered(5.5)
    item_id = reply_id(sim)
    sim.conversation.receive_client(ev.TruncateItem(item_id, 300), sim.now)
    sim.run(2)
    assert sim.sound_between(5.6, 8) == 0
    assert [event.audio_end_ms for event in sim.events(ev.ItemTruncated)] == [300]
    assert len(sim.events(ev.PlayoutCleared)) == 1


def test_truncating_a_reply_that_is_still_made_ends_it():
    sim = Sim(speech=ASKED, replies=[Reply(rtf=0.9)]).run(5.0)
    sim.conversation.receive_client(ev.TruncateItem(reply_id(sim), 300), sim.now)
    sim.run(1)
    (done,) = sim.events(ev.ResponseDone)
    assert (done.status, done.reason) == ("cancelled", "client_cancelled")


def test_no_more_can_have_been_heard_than_there_is():
    sim = answered(9)
    sim.conversation.receive_client(ev.TruncateItem(reply_id(sim), 3_000), sim.now)
    with pytest.raises(ClientEventError) as caught:
        sim.conversation.receive_client(ev.TruncateItem(reply_id(sim), 3_001), sim.now)
    assert (caught.value.code, caught.value.param) == ("invalid_value", "audio_end_ms")


@pytest.mark.parametrize("role", ["user", "assistant"])
def test_what_was_not_spoken_in_this_call_cannot_be_cut(role):
    created = ev.CreateItem(role, "Hello.", item_id="mine", spoken=role == "assistant")
    sim = Sim(client=[(1.0, created), (1.1, ev.TruncateItem("mine", 0))]).run(2)
    assert codes(sim) == [("item_not_spoken", "item_id")]


def test_after_an_interruption_the_client_may_say_that_less_was_heard():
    sim = Sim(speech=[(1.0, 2.5), (5.0, 7.0)]).run(6.5)
    item_id = reply_id(sim)
    (cut,) = sim.events(ev.ItemTruncated)
    sim.conversation.receive_client(ev.TruncateItem(item_id, cut.audio_end_ms // 2), sim.now)
    sim.run(1)
    assert sim.events(ev.ItemTruncated)[1].audio_end_ms == cut.audio_end_ms // 2


# What is in items.


def test_sound_that_a_client_sends_is_a_turn_whose_transcript_the_answer_brings():
    heard = ev.CreateItem("user", "", item_id="said", media=(HEARD,))
    sim = Sim(client=[(1.0, heard), (1.1, ev.CreateResponse())]).run(8)
    (request,) = sim.requests()
    (part,) = request.messages[-1].parts
    assert isinstance(part, AudioPart)
    assert len(part.pcm) == RATE
    assert sim.events(ev.TranscriptDone) == [ev.TranscriptDone("said", "hello there")]
    assert not sim.events(ev.TurnCommitted)


def test_sound_with_a_transcript_needs_none():
    known = AudioContent(HEARD.pcm, "Hello.")
    sim = Sim(client=[(1.0, ev.CreateItem("user", "", media=(known,)))]).run(40)
    assert not sim.events(ev.TranscriptDone, ev.TranscriptFailed)


def test_images_are_shown_before_the_words_and_what_the_camera_sees_is_not():
    created = ev.CreateItem("user", "Which is older?", media=(HEARD, IMAGE))
    sim = Sim(client=[(2.0, created), (2.1, ev.CreateResponse())], camera_fps=5).run(3)
    pictures, words, sound = sim.requests()[0].messages[-1].parts
    assert isinstance(pictures, FramesPart)
    assert [frame.jpeg for frame in pictures.frames] == [b"one", b"two"]
    assert pictures.frames[0].at < pictures.frames[1].at
    assert words == TextPart("Which is older?")
    assert isinstance(sound, AudioPart)


def test_an_image_outlives_the_camera_pictures_of_its_time_but_not_many_others():
    turns = [(10.0 + k, ev.CreateItem("user", f"And {k}?")) for k in range(4)]
    sim = Sim(client=[(1.0, ev.CreateItem("user", "See.", media=(IMAGE,))), *turns], camera_fps=2).run(16)
    kinds = [[type(c) for c in item.content] for item in sim.conversation.history.items]
    assert FramesContent in kinds[0]
    assert FramesContent not in kinds[1]
    assert FramesContent in kinds[-1]
    for number in range(8):
        created = ev.CreateItem("user", "See.", item_id=f"image_{number}", media=(IMAGE,))
        sim.conversation.receive_client(created, sim.now)
    items = sim.conversation.history.items
    assert [type(c) for c in items[0].content] == [TextContent]
    assert len(items[-8].content) == len(items[-1].content) == 2


def test_an_image_stays_when_what_was_said_with_it_is_known_in_words():
    known = AudioContent(HEARD.pcm, "See this.")
    turns = [(2.0 + k, ev.CreateItem("user", f"And {k}?")) for k in range(4)]
    sim = Sim(client=[(1.0, ev.CreateItem("user", "", media=(known, IMAGE))), *turns]).run(7)
    sound, images = sim.conversation.history.items[0].content
    assert isinstance(sound, AudioContent)
    assert sound.pcm is None
    assert isinstance(images, FramesContent)


def test_images_cost_what_they_are_worth():
    large = FramesContent((Frame(b"large", 1_024, 1_024, 0, "image"),))
    config = replace(UNHURRIED, history=replace(UNHURRIED.history, max_tokens=1_500))
    client = [
        (1.0, ev.CreateItem("user", "One.", media=(large,))),
        (1.1, ev.CreateItem("user", "Two.", media=(large,))),
        (1.2, ev.CreateResponse(output_modalities=("text",))),
    ]
    sim = Sim(client=client, config=config).run(2)
    (message,) = sim.requests()[0].messages[1:]
    assert [type(part) for part in message.parts] == [TextPart, FramesPart, TextPart]


def test_what_the_assistant_said_before_is_an_item_that_was_spoken():
    said = ev.CreateItem("assistant", "I am fine.", item_id="said", spoken=True)
    sim = Sim(client=[(1.0, said), (1.1, ev.CreateItem("user", "Good.")), (1.2, ev.CreateResponse())]).run(2)
    assert sim.conversation.history.item("said") == Item("said", "assistant", (SpokenContent("I am fine."),))
    assert [message.role for message in sim.requests()[0].messages] == ["system", "assistant", "user"]
