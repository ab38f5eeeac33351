import json
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from visavis.audio import RATE
from visavis.config import (
    HistoryConfig,
    SessionConfig,
    Tool,
    ToolChoice,
    Transcription,
    Truncation,
    TurnDetection,
)
from visavis.engine import AudioPart
from visavis.frames import Frame
from visavis.history import (
    AudioContent,
    CallContent,
    FramesContent,
    History,
    Item,
    ResultContent,
    SpokenContent,
    TextContent,
)
from visavis.snapshot import Snapshot, UnreadableSnapshotError, unpack
from visavis.unsaid import Unsaid

SESSION = SessionConfig(
    instructions="Sei nett. ☺",
    voice="Ethan",
    turn_detection=TurnDetection(eagerness="low", min_interruption_ms=500),
    max_output_tokens=90,
    transcription=Transcription("whisper-1", "de"),
    truncation=Truncation("retention_ratio", 0.5, 900),
    noise_reduction="far_field",
    camera_fps=0.5,
)


def talk() -> History:
    history = History(HistoryConfig(), "one")
    history.append_text("s1", "system", "Be brief.")
    history.append_user_turn("u1", np.ones(RATE, np.int16), [Frame(b"x", 64, 64, 0)])
    history.set_transcript("u1", "What is this?")
    history.begin_reply("a1")
    history.extend_reply("a1", "A cup of tea.", RATE)
    history.end_reply("a1")
    history.append_user_turn("u2", np.arange(RATE, dtype=np.int16))
    return history


def resumed(history: History) -> History:
    """Go on in another call."""
    other = History(HistoryConfig(), "two")
    for item in unpack(Snapshot(history.remembered(), SESSION).pack()).items:
        other.add(item)
    return other


def test_a_conversation_goes_on_as_engines_knew_it() -> None:
    after = resumed(talk())
    assert [item.id for item in after.items] == ["s1", "u1", "a1", "u2"]
    said = ["Be brief.", "What is this?", "A cup of tea.", ""]
    assert [message.text for message in after.messages("")] == said
    (heard,) = after.messages("")[-1].parts
    assert isinstance(heard, AudioPart)
    assert np.array_equal(heard.pcm, np.arange(RATE))
    assert heard.uuid.startswith("two-")


def test_pictures_and_sound_that_is_written_down_are_not_kept() -> None:
    (u1,) = [item for item in talk().remembered() if item.id == "u1"]
    assert u1.content == (AudioContent(None, "What is this?"),)
    assert len(Snapshot(talk().remembered()[:3], SESSION).pack()) < 1_000


def test_what_was_not_heard_is_not_kept() -> None:
    history = talk()
    history.begin_reply("a2")
    history.extend_reply("a2", "You are", RATE)
    assert [item.id for item in history.remembered()][-1] == "u2"  # it goes on
    history.end_reply("a2", completed=False)
    assert [item.id for item in history.remembered()][-1] == "a2"
    history.truncate("a2", 0)
    assert [item.id for item in history.remembered()][-1] == "u2"


def test_functions_are_kept_but_for_what_was_still_running() -> None:
    history = talk()
    for call_id, own in (("a", False), ("b", False), ("c", True), ("d", True)):
        history.append_call(call_id, CallContent(call_id, "weather", "{}", own))
    history.append_result("result", "a", "")
    history.answer("c", "")
    after = resumed(history)
    assert [item.id for item in after.items][4:] == ["a", "b", "result", "c"]
    assert after.has_result("a")
    assert not after.has_result("b")  # its client may come back with one
    assert after.item("c").content == (CallContent("c", "weather", "{}", own=True), ResultContent("c", ""))


@pytest.mark.parametrize("spoken", [True, False])
def test_our_own_words_are_not_kept(*, spoken: bool) -> None:
    history = talk()
    history.begin_reply("a2", spoken=spoken)
    history.extend_reply("a2", "It is", RATE)
    history.apologise("a2", "Sorry.", RATE)
    history.end_reply("a2", completed=False)
    (content,) = history.remembered()[-1].content
    assert content == (SpokenContent("It is") if spoken else TextContent("It is"))


modes = st.sampled_from(["semantic_vad", "server_vad"])
sessions = st.builds(
    SessionConfig,
    instructions=st.text(max_size=20),
    output_modalities=st.sampled_from([("audio",), ("text",)]),
    voice=st.none() | st.just("x"),
    turn_detection=st.none() | st.builds(TurnDetection, type=modes, create_response=st.booleans()),
    transcribe=st.booleans(),
    temperature=st.none() | st.floats(0, 2),
    tools=st.lists(st.builds(Tool, st.just("weather"), st.text(max_size=9)), max_size=2).map(tuple),
    tool_choice=st.just(ToolChoice("function", "weather")) | st.just(ToolChoice("none")),
)
contents = (
    st.builds(TextContent, st.text())
    | st.builds(SpokenContent, st.text())
    | st.builds(AudioContent, st.none(), st.none() | st.text())
    | st.builds(CallContent, st.text(), st.text(), st.text(), st.booleans())
    | st.builds(ResultContent, st.text(), st.text())
)
items = st.builds(
    Item, st.text(min_size=1), st.sampled_from(["user", "assistant", "system", "tool"]), st.tuples(contents)
)


@given(st.lists(items, unique_by=lambda item: item.id), sessions)
def test_what_is_packed_is_unpacked(said: list[Item], session: SessionConfig) -> None:
    snapshot = Snapshot(tuple(said), session)
    assert unpack(snapshot.pack()) == snapshot


def test_members_of_another_version_are_passed_over() -> None:
    body = b'{"format":2,"items":[],"session":{"voice":"x","colour":"red","turn_detection":{"smell":1}}}'
    assert unpack(zlib.compress(body)).session == SessionConfig(voice="x", turn_detection=TurnDetection())


ITEM = b'{"id":"x","role":"user","status":"completed","content":[]}'
HEARD = (
    b'{"format":2,"session":{},"items":[{"id":"x","role":"user","status":"completed",'
    b'"content":[{"kind":"audio","transcript":null,"samples":2}]}]}'
)
TWICE = b'{"format":2,"session":{},"items":[' + ITEM + b"," + ITEM + b"]}"


def test_sound_comes_back_after_what_was_said() -> None:
    (item,) = unpack(zlib.compress(HEARD) + b"\1\0\2\0").items
    (content,) = item.content
    assert isinstance(content, AudioContent)
    assert content.pcm is not None
    assert content.pcm.tolist() == [1, 2]


def test_each_turn_has_its_own_sound() -> None:
    sounds = [np.full(3, at, np.int16) for at in range(3)]
    said = [Item(str(at), "user", (AudioContent(pcm, None),)) for at, pcm in enumerate(sounds)]
    for pcm, item in zip(sounds, unpack(Snapshot(tuple(said), SESSION).pack()).items, strict=True):
        (content,) = item.content
        assert isinstance(content, AudioContent)
        assert content.pcm is not None
        assert np.array_equal(content.pcm, pcm)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"no zlib",
        zlib.compress(b"no json"),
        zlib.compress(b"[]"),
        zlib.compress(b'{"format":1}'),
        zlib.compress(b'{"format":2,"items":[{}],"session":{}}'),
        zlib.compress(b'{"format":2,"items":[{"id":"x","role":"user","status":"completed","content":[{}]}]}'),
        zlib.compress(TWICE),
        zlib.compress(b'{"format":2,"items":[],"session":{"turn_detection":{"threshold":7}}}'),
        zlib.compress(b'{"format":2,"items":[],"session":{}}')[:-3],
        zlib.compress(b'{"format":2,"items":[],"session":{}}') + b"\0\0",
        zlib.compress(HEARD) + b"\0\0\0",
        zlib.compress(HEARD.replace(b"2}", b"-1}")) + b"\0\0",
    ],
)
def test_what_is_no_snapshot_is_told(data: bytes) -> None:
    with pytest.raises(UnreadableSnapshotError):
        unpack(data)


def test_a_bomb_does_not_go_off() -> None:
    with pytest.raises(UnreadableSnapshotError, match="too long"):
        unpack(zlib.compress(b" " * (80 << 20)))


def test_pictures_have_no_place_in_it() -> None:
    picture = Item("u1", "user", (FramesContent((Frame(b"x", 64, 64, 0),)),))
    with pytest.raises(TypeError):
        Snapshot((picture,), SESSION).pack()


@pytest.mark.parametrize("unsaid", [None, Unsaid(), Unsaid(True, "And so on.", True, False)])
def test_what_was_not_said_is_kept_with_it(unsaid: Unsaid | None) -> None:
    assert unpack(Snapshot(talk().remembered(), SESSION, unsaid).pack()).unsaid == unsaid


def test_what_was_not_said_has_a_form() -> None:
    data = json.loads(zlib.decompress(Snapshot((), SESSION, Unsaid()).pack()))
    data["unsaid"]["text"] = 7
    with pytest.raises(UnreadableSnapshotError, match="unknown form"):
        unpack(zlib.compress(json.dumps(data).encode()))
    del data["unsaid"]  # an earlier version wrote none
    assert unpack(zlib.compress(json.dumps(data).encode())).unsaid is None
