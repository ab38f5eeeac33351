from itertools import pairwise

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from visavis.audio import RATE, Pcm
from visavis.config import HistoryConfig, Truncation
from visavis.engine import AudioPart, CallPart, FramesPart, Message, ResultPart, TextPart
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

INSTRUCTIONS = "Be nice."


def sound(seconds: float = 2.0) -> Pcm:
    return np.ones(round(seconds * RATE), np.int16)


def sight(frames: int = 4, width: int = 320, height: int = 192) -> tuple[Frame, ...]:
    """Pictures of 60 tokens each pair."""
    return tuple(Frame(b"%d" % k, width, height, k * RATE // 2) for k in range(frames))


def history(max_tokens: int = 3_000, media_turns: int = 2) -> History:
    return History(HistoryConfig(max_tokens, media_turns), "call")


def say(to: History, item_id: str, transcript: str | None = None, frames: int = 0) -> None:
    to.append_user_turn(item_id, sound(), sight(frames))
    if transcript is not None:
        to.set_transcript(item_id, transcript)


def reply(to: History, item_id: str, text: str = "Yes.", seconds: float = 1.0) -> None:
    to.begin_reply(item_id)
    to.extend_reply(item_id, text, round(seconds * RATE))
    to.end_reply(item_id)


def call(
    to: History, call_id: str, response_id: int = 1, *, own: bool = False, arguments: str = "{}"
) -> None:
    content = CallContent(call_id, "weather", arguments, own)
    to.append_call(f"item {call_id}", content, response_id=response_id)


def give(to: History, call_id: str, output: str = "rain") -> None:
    to.append_result(f"result {call_id}", call_id, output)


def shape(messages: tuple[Message, ...]) -> list[tuple[str, ...]]:
    """Each message as its role and its parts: texts as they are, media by kind."""

    def name(part: object) -> str:
        match part:
            case TextPart(text):
                return text
            case CallPart(call_id):
                return f"call {call_id}"
            case ResultPart(call_id, output):
                return f"{call_id}: {output}"
        return type(part).__name__

    return [(message.role, *map(name, message.parts)) for message in messages]


def cost(messages: tuple[Message, ...]) -> float:
    """The estimate that the budget is kept by, as ENGINE.md gives it."""
    tokens = 0.0
    for part in (part for message in messages for part in message.parts):
        match part:
            case TextPart(text):
                tokens += len(text.encode()) / 3.5
            case AudioPart(pcm):
                tokens += len(pcm) / RATE * 12.5
            case FramesPart(frames):
                tokens += sum(frame.width * frame.height / 1024 for frame in frames) / 2
    return tokens


def test_a_turn_is_sent_with_pictures_and_sound_and_its_answer_as_text() -> None:
    h = history()
    assert h.append_user_turn("u1", sound(), sight()) is None
    assert h.begin_reply("a1") == "u1"
    h.extend_reply("a1", "Hello ", RATE)
    h.extend_reply("a1", "there.", RATE)
    h.end_reply("a1")
    h.append_text("u2", "user", "And this?")
    assert shape(h.messages(INSTRUCTIONS)) == [
        ("system", INSTRUCTIONS),
        ("user", "FramesPart", "AudioPart"),
        ("assistant", "Hello there."),
        ("user", "And this?"),
    ]
    assert [item.id for item in h.items] == ["u1", "a1", "u2"]
    assert h.get("a1") == Item("a1", "assistant", (SpokenContent("Hello there."),), "completed")
    assert h.get("u2") == Item("u2", "user", (TextContent("And this?"),))


def test_the_place_of_the_sound_on_the_clock_of_the_frames_is_sent_with_it() -> None:
    h = history()
    h.append_user_turn("u1", sound(), sight(), at=7 * RATE)
    part = h.messages("")[0].parts[1]
    assert isinstance(part, AudioPart)
    assert part.at == 7 * RATE


def test_a_shared_screen_is_shown_after_the_words_and_counts_as_a_picture_alone() -> None:
    screen = (Frame(b"screen", 640, 320, RATE, "screen"),)
    h = history()
    h.append_user_turn("u1", sound(), sight() + screen, at=0, cuts=(RATE,))
    camera, said, shown = h.messages("")[0].parts
    assert isinstance(camera, FramesPart)
    assert isinstance(said, AudioPart)
    assert isinstance(shown, FramesPart)
    assert (camera.frames, shown.frames) == (sight(), screen)
    assert camera.uuid != shown.uuid
    assert said.cuts == (RATE,)
    h.append_user_turn("u2", sound(), screen, cuts=(RATE,))
    said, shown = h.messages("")[-1].parts[-2:]
    assert isinstance(said, AudioPart)
    assert said.cuts == ()  # without a camera there are no clips
    h.release_media()
    assert "FramesPart" not in str(shape(h.messages("")))


@pytest.mark.parametrize("clip_tokens", [None, 2_000])
def test_a_shared_screen_is_never_thinned_out(clip_tokens: int | None) -> None:
    h = History(HistoryConfig(max_tokens=600, clip_tokens=clip_tokens), "call")
    screen = (Frame(b"screen", 640, 320, RATE, "screen"),)
    h.append_user_turn("u1", sound(), sight(40) + screen)
    assert h.messages("")[0].parts[-1] == FramesPart(screen, "call-1-screen")


def test_our_own_words_in_a_reply_are_not_sent_to_engines() -> None:
    past = history()
    say(past, "u1", "Who are you?")
    past.begin_reply("a1")
    past.extend_reply("a1", "I am", RATE)
    assert past.apologise("a1", "Sorry.", RATE) == " Sorry."
    past.end_reply("a1", completed=False)
    say(past, "u2", "And?")
    assert shape(past.messages(""))[1] == ("assistant", "I am")
    assert past.items[1].content == (SpokenContent("I am Sorry."),)
    past.truncate("a1", RATE // 2)
    assert shape(past.messages(""))[1] == ("assistant", "I")


def test_a_reply_of_our_own_words_alone_is_none_to_engines() -> None:
    past = history()
    say(past, "u1", "Who are you?")
    past.begin_reply("a1")
    assert past.apologise("a1", "Sorry.", RATE) == "Sorry."
    past.end_reply("a1", completed=False)
    say(past, "u2", "And?")
    assert [role for role, *_ in shape(past.messages(""))] == ["user"]
    assert past.joined_before("u2") == ["u1"]


def test_an_item_that_is_no_reply_takes_no_words_of_ours() -> None:
    past = history()
    say(past, "u1", "Who are you?")
    for item_id in ("u1", "nothing"):
        past.apologise(item_id, "Sorry.", RATE)
    assert shape(past.messages("")) == [("user", "AudioPart")]


def test_released_media_are_not_sent_again() -> None:
    past = history()
    say(past, "u1", "Who are you?", frames=2)
    reply(past, "a1")
    say(past, "u2", frames=2)
    past.release_media()
    assert shape(past.messages("")) == [
        ("user", "Who are you?"),
        ("assistant", "Yes."),
        ("user", "(inaudible)"),
    ]
    past.set_transcript("u2", "And?")
    assert shape(past.messages(""))[-1] == ("user", "And?")


def test_without_instructions_there_is_no_system_message() -> None:
    h = history()
    h.append_text("u", "user", "Hello")
    assert shape(h.messages("")) == [("user", "Hello")]
    assert history().messages("") == ()


def test_neighbours_of_one_role_become_one_message_and_empty_ones_none() -> None:
    h = history()
    h.append_text("s", "system", "He is old.")
    h.append_text("u1", "user", "Hello")
    h.begin_reply("a1")
    h.append_text("u2", "user", "Are you there?", sight())
    h.append_text("u3", "user", " ")
    h.append_text("a2", "assistant", "I am.")
    assert shape(h.messages(INSTRUCTIONS)) == [
        ("system", INSTRUCTIONS, "He is old."),
        ("user", "Hello", "FramesPart", "Are you there?"),
        ("assistant", "I am."),
    ]


def test_only_the_newest_turns_are_sent_with_media_and_older_ones_by_transcript() -> None:
    h = history(media_turns=2)
    for k in range(3):
        say(h, f"u{k}", f"Question {k}.", frames=2)
        reply(h, f"a{k}")
    assert shape(h.messages("")) == [
        ("user", "Question 0."),
        ("assistant", "Yes."),
        ("user", "FramesPart", "AudioPart"),
        ("assistant", "Yes."),
        ("user", "FramesPart", "AudioPart"),
        ("assistant", "Yes."),
    ]
    assert h.get("u0") == Item("u0", "user", (AudioContent(None, "Question 0."),))


def test_without_transcripts_no_more_sounds_are_sent_than_a_server_takes():
    h = History(HistoryConfig(22_000, 2, max_sounds=10), "call")
    counts = []
    for n in range(30):
        h.append_user_turn(f"user {n}", sound(), sight(), cuts=(24_000, 48_000) if n == 20 else ())
        h.fail_transcript(f"user {n}")
        parts = [part for message in h.messages(INSTRUCTIONS) for part in message.parts]
        assert isinstance(parts[-1], AudioPart)
        counts.append(sum(1 + len(part.cuts) for part in parts if isinstance(part, AudioPart)))
        reply(h, f"reply {n}")
    assert max(counts) == 10
    assert min(counts[10:]) >= 4
    assert counts[:11] == [*range(1, 11), 6]  # and then all goes on as it is for a while


def test_the_newest_turn_has_its_media_even_if_none_are_allowed() -> None:
    h = history(media_turns=0)
    say(h, "u0", "One.")
    say(h, "u1", "Two.")
    assert shape(h.messages("")) == [("user", "One.", "AudioPart")]


def test_an_older_turn_keeps_its_sound_until_its_transcript_is_there() -> None:
    h = history(media_turns=1)
    say(h, "u0", frames=2)
    say(h, "u1", frames=2)
    assert shape(h.messages("")) == [("user", "AudioPart", "FramesPart", "AudioPart")]
    h.set_transcript("u0", "One.")
    assert shape(h.messages("")) == [("user", "One.", "FramesPart", "AudioPart")]
    content = h.items[0].content[0]
    assert isinstance(content, AudioContent)
    assert content.pcm is None


def test_an_older_turn_in_which_nothing_was_understood_is_still_a_turn() -> None:
    h = history(media_turns=1)
    say(h, "u0", " ")
    reply(h, "a0", "Pardon?")
    say(h, "u1")
    assert shape(h.messages(""))[0] == ("user", "(inaudible)")


def test_media_have_the_same_names_in_every_request_and_no_two_the_same() -> None:
    def names(messages: tuple[Message, ...]) -> list[str]:
        return [part.uuid for m in messages for part in m.parts if not isinstance(part, TextPart)]

    h = history()
    say(h, "u0", frames=2)
    first = names(h.messages(""))
    h.delete("u0")
    say(h, "u0", frames=2)
    say(h, "u1", frames=2)
    second = names(h.messages(""))
    assert second == names(h.messages(""))
    assert len({*first, *second}) == 6
    assert all("call" in name for name in first)


def test_requests_extend_each_other_while_all_fits() -> None:
    h = history()
    before: tuple[Message, ...] = ()
    for k in range(10):
        h.append_text(f"u{k}", "user", f"Question {k}.")
        messages = h.messages(INSTRUCTIONS)
        assert messages[: len(before)] == before
        before = messages
        reply(h, f"a{k}")


def test_over_the_budget_old_turns_go_in_a_chunk_so_that_the_prefix_stays_for_many_turns() -> None:
    h = history(max_tokens=1_000)
    starts = []
    for k in range(60):
        h.append_text(f"u{k}", "user", f"{k}: " + "x" * 66)
        messages = h.messages(INSTRUCTIONS)
        assert cost(messages) <= 1_000
        assert shape(messages)[0] == ("system", INSTRUCTIONS)
        assert messages[1].role == "user"
        assert messages[-1].text.startswith(f"{k}:")
        starts.append(messages[1].text)
        reply(h, f"a{k}", "y" * 70)
    changes = [k for k in range(1, 60) if starts[k] != starts[k - 1]]
    assert 3 <= len(changes) <= 8
    assert [item.id for item in h.items][:2] == ["u0", "a0"]


def talked(truncation: Truncation, turns: int = 60, max_tokens: int = 1_000) -> list[tuple[int, int]]:
    """Tokens and number of the messages that an engine is sent with each turn."""
    h = history(max_tokens)
    h.truncation = truncation
    sent = []
    for k in range(turns):
        h.append_text(f"u{k}", "user", "x" * 70)
        messages = h.messages(INSTRUCTIONS)
        sent.append((cost(messages), len(messages)))
        reply(h, f"a{k}", "y" * 70)
    return sent


def test_a_client_may_have_nothing_left_out() -> None:
    sent = talked(Truncation("disabled"))
    assert [count for _, count in sent] == [2 + 2 * k for k in range(60)]
    assert sent[-1][0] > 1_000


def test_a_client_may_have_less_sent_and_more_or_less_kept() -> None:
    tokens = [tokens for tokens, _ in talked(Truncation("retention_ratio", 0.9, 500))]
    assert 350 < max(tokens) <= 500 + cost(history().messages(INSTRUCTIONS))

    def cuts(ratio: float) -> int:
        counts = [count for _, count in talked(Truncation("retention_ratio", ratio))]
        return sum(later <= earlier for earlier, later in pairwise(counts))

    assert cuts(0.9) > cuts(0.5) > cuts(0.0) > 0


def test_what_is_sent_of_other_items_is_left_out_by_the_same_rule() -> None:
    h = history(100)
    given = [Item("", "user", (TextContent("x" * 70),)) for _ in range(9)]
    h.truncation = Truncation("disabled")
    (message,) = h.messages_of("", given)
    assert len(message.parts) == 9
    h.truncation = Truncation()
    (message,) = h.messages_of("", given)
    assert len(message.parts) < 5


def test_a_limit_beyond_the_budget_is_none() -> None:
    assert talked(Truncation("retention_ratio", 0.6, 9_000)) == talked(Truncation())


def test_an_answer_goes_with_its_question() -> None:
    h = history(max_tokens=100)
    h.append_text("u0", "user", "x" * 245)
    reply(h, "a0")
    h.append_text("u1", "user", "y" * 70)
    assert shape(h.messages("")) == [("user", "y" * 70)]


def test_the_newest_user_message_and_the_instructions_stay_at_any_price() -> None:
    h = history(max_tokens=100)
    h.append_text("u0", "user", "Old.")
    reply(h, "a0")
    h.append_text("u1", "user", "z" * 2_000)
    reply(h, "a1")
    assert shape(h.messages("I" * 1_000)) == [
        ("system", "I" * 1_000),
        ("user", "z" * 2_000),
        ("assistant", "Yes."),
    ]


def test_a_turn_that_deletions_made_the_newest_comes_back_as_text() -> None:
    h = history(max_tokens=100)
    say(h, "u0", "First.")
    h.append_text("u1", "user", "z" * 400)
    h.messages("")
    h.delete("u1")
    assert shape(h.messages("")) == [("user", "First.")]


def test_without_any_user_message_the_newest_item_stays() -> None:
    h = history(max_tokens=100)
    for k in range(3):
        h.append_text(f"a{k}", "assistant", f"{k}" * 400)
    assert shape(h.messages("")) == [("assistant", "2" * 400)]
    assert history(max_tokens=0).messages(INSTRUCTIONS) != ()


def test_media_of_older_turns_go_before_any_text_does() -> None:
    h = history(max_tokens=300)
    h.append_text("u0", "user", "Hello")
    reply(h, "a0")
    say(h, "u1", "What is this?", frames=4)
    reply(h, "a1")
    say(h, "u2", "And this?", frames=4)
    assert shape(h.messages("")) == [
        ("user", "Hello"),
        ("assistant", "Yes."),
        ("user", "What is this?"),
        ("assistant", "Yes."),
        ("user", "FramesPart", "AudioPart"),
    ]


def test_pictures_go_before_the_sound_of_the_same_turn() -> None:
    h = history(max_tokens=280)
    h.append_user_turn("u1", sound(1.0), sight(4))
    h.set_transcript("u1", "What is this?")
    say(h, "u2", "And this?", frames=4)
    assert shape(h.messages("")) == [("user", "AudioPart", "FramesPart", "AudioPart")]


def test_sound_without_transcript_is_kept_as_long_as_there_is_room() -> None:
    h = history(max_tokens=200, media_turns=1)
    for k in range(6):
        say(h, f"u{k}")
        h.fail_transcript(f"u{k}")
    assert shape(h.messages("")) == [("user", *["AudioPart"] * 6)]
    say(h, "u6")
    assert shape(h.messages("")) == [("user", *["(inaudible)"] * 5, *["AudioPart"] * 2)]


def test_sound_that_awaits_its_transcript_goes_only_with_its_turn() -> None:
    h = history(max_tokens=100, media_turns=2)
    say(h, "u0", frames=2)
    reply(h, "a0", "y" * 100)
    say(h, "u1", "Two.")
    assert shape(h.messages("")) == [("user", "AudioPart"), ("assistant", "y" * 100), ("user", "AudioPart")]
    reply(h, "a1", "y" * 100)
    say(h, "u2", "Three.")
    assert shape(h.messages("")) == [("user", "AudioPart")]
    content = h.items[0].content[0]
    assert isinstance(content, AudioContent)
    assert content.pcm is None


def test_pictures_take_half_of_the_budget_at_most_but_never_less_than_one() -> None:
    h = history(max_tokens=1_000)
    say(h, "u0", frames=24)
    content = h.items[0].content[1]
    assert isinstance(content, FramesContent)
    assert len(content.frames) == 16
    assert content.frames[0].jpeg == b"0"
    assert content.frames[-1].jpeg == b"23"
    small = history(max_tokens=10)
    say(small, "u0", frames=3)
    assert small.items[0].content[1] == FramesContent((sight(3)[-1],))


def test_items_are_placed_after_another_at_the_start_or_at_the_end() -> None:
    h = history()
    assert h.append_text("b", "user", "B") is None
    assert h.append_text("d", "user", "D") == "b"
    assert h.append_text("a", "user", "A", previous_item_id="root") is None
    assert h.append_text("c", "user", "C", previous_item_id="b") == "b"
    assert [item.id for item in h.items] == ["a", "b", "c", "d"]
    assert h.previous_id("d") == "c"
    assert h.previous_id("a") is None
    assert h.previous_id("unknown") is None


def test_refuses_a_known_id_and_an_unknown_predecessor() -> None:
    h = history()
    h.append_text("a", "user", "A")
    with pytest.raises(ValueError, match="'a' already"):
        h.append_text("a", "user", "B")
    with pytest.raises(ValueError, match="no item 'x'"):
        h.append_text("b", "user", "B", previous_item_id="x")
    assert [item.id for item in h.items] == ["a"]


def test_progress_of_an_item_that_is_not_there_is_ignored() -> None:
    h = history()
    say(h, "u")
    h.begin_reply("a")
    assert h.delete("a")
    assert not h.delete("a")
    h.extend_reply("a", "text", 1)
    h.end_reply("a")
    h.set_transcript("a", "text")
    h.fail_transcript("a")
    assert h.truncate("a", 1) == ""
    assert h.get("a") is None
    assert [item.id for item in h.items] == ["u"]


def test_only_a_reply_in_progress_grows() -> None:
    h = history()
    reply(h, "a")
    h.extend_reply("a", " More.", RATE)
    h.append_text("u", "user", "Text")
    h.extend_reply("u", " More.")
    assert [item.content for item in h.items] == [(SpokenContent("Yes."),), (TextContent("Text"),)]


def test_a_written_reply_is_text_and_is_not_cut() -> None:
    h = history()
    h.begin_reply("a", spoken=False)
    assert h.get("a") == Item("a", "assistant", (TextContent(""),), "in_progress")
    h.extend_reply("a", "Some text.")
    h.end_reply("a")
    assert h.truncate("a", 0) == ""
    assert h.get("a") == Item("a", "assistant", (TextContent("Some text."),))


def test_a_reply_is_cut_to_the_words_that_were_heard() -> None:
    h = history()
    h.begin_reply("a")
    h.extend_reply("a", "One, two, three. ")
    h.extend_reply("a", "", 4 * RATE)
    h.extend_reply("a", "And then all the rest of it in one go.")
    h.extend_reply("a", "", 2 * RATE)
    h.end_reply("a")
    assert h.truncate("a", 5 * RATE) == "One, two, three. And then all the"
    assert h.get("a") == Item(
        "a", "assistant", (SpokenContent("One, two, three. And then all the"),), "incomplete"
    )
    assert h.truncate("a", 6 * RATE) == "One, two, three. And then all the"
    assert h.truncate("a", RATE) == "One,"
    assert shape(h.messages("")) == [("assistant", "One,")]


def test_a_reply_heard_to_its_end_is_complete() -> None:
    h = history()
    reply(h, "a", "Yes, of course.", 1.0)
    assert h.truncate("a", RATE) == "Yes, of course."
    assert h.items[0].status == "completed"


def test_a_reply_that_was_not_heard_was_not_said_but_keeps_its_place() -> None:
    h = history()
    h.append_text("u", "user", "Hello")
    reply(h, "a")
    assert h.truncate("a", 0) == ""
    assert h.get("a") == Item("a", "assistant", (SpokenContent(""),), "incomplete")
    assert shape(h.messages("")) == [("user", "Hello")]


def test_a_reply_broken_off_while_text_ran_ahead_is_cut_by_the_pace_of_speech() -> None:
    h = history()
    h.begin_reply("a")
    h.extend_reply("a", "word " * 60)
    h.extend_reply("a", "", 2 * RATE)
    h.end_reply("a", completed=False)
    assert h.truncate("a", 2 * RATE) == ("word " * 6).strip()
    h.extend_reply("a", "more")
    h.end_reply("a")
    assert h.items[0].status == "incomplete"


def test_text_that_is_no_valid_unicode_is_counted_all_the_same() -> None:
    h = history()
    h.append_text("u", "user", "\ud800")
    assert shape(h.messages(INSTRUCTIONS))[1] == ("user", "\ud800")


def test_a_client_that_floods_a_call_is_forgotten_by_itself() -> None:
    h = history()
    for k in range(10):
        h.append_text(f"u{k}", "user", "x" * 200_000)
    assert [item.id for item in h.items] == ["u6", "u7", "u8", "u9"]
    h.append_text("u", "user", "x" * 2_000_000)
    assert [item.id for item in h.items] == ["u"]


# Functions.


def test_a_call_and_its_result_are_sent_as_messages_of_their_own() -> None:
    h = history()
    h.append_text("u1", "user", "How is the weather?")
    reply(h, "a1", "Let me see.")
    call(h, "a")
    give(h, "a")
    reply(h, "a2", "It rains.")
    assert shape(h.messages("")) == [
        ("user", "How is the weather?"),
        ("assistant", "Let me see.", "call a"),
        ("tool", "a: rain"),
        ("assistant", "It rains."),
    ]
    assert h.messages("")[1].parts[1] == CallPart("a", "weather", "{}")


def test_parallel_calls_are_one_message_and_those_of_two_rounds_are_two() -> None:
    h = history()
    for response_id, ids in ((1, "ab"), (2, "c")):
        for call_id in ids:
            call(h, call_id, response_id)
        for call_id in ids:
            give(h, call_id)
    together = [("assistant", "call a", "call b"), ("tool", "a: rain"), ("tool", "b: rain")]
    assert shape(h.messages("")) == [*together, ("assistant", "call c"), ("tool", "c: rain")]


def test_a_result_is_sent_where_it_came_and_its_call_with_it() -> None:
    h = history()
    h.append_text("u1", "user", "How is the weather?")
    call(h, "a")
    before = h.messages("")
    assert shape(before)[1:] == [("assistant", "call a"), ("tool", "a: (No result yet.)")]
    h.append_text("u2", "user", "Are you there?")
    reply(h, "a2")
    give(h, "a")
    assert shape(h.messages("")) == [
        ("user", "How is the weather?", "Are you there?"),
        ("assistant", "Yes.", "call a"),
        ("tool", "a: rain"),
    ]


def test_an_own_call_with_its_result_moves_behind_what_was_said_meanwhile() -> None:
    h = history()
    h.append_text("u1", "user", "What is this?")
    call(h, "a", own=True)
    call(h, "b", own=True)
    call(h, "c", own=True)
    assert h.answer("item b", "noon") == "item a"  # nothing was said: it stays
    h.delete("item c")
    h.append_text("u2", "user", "Hello?")
    assert h.answer("item a", "a cup") == "u2"
    assert shape(h.messages("")) == [
        ("user", "What is this?"),
        ("assistant", "call b"),
        ("tool", "b: noon"),
        ("user", "Hello?"),
        ("assistant", "call a"),
        ("tool", "a: a cup"),
    ]
    assert h.item("item a").content == (
        CallContent("a", "weather", "{}", own=True),
        ResultContent("a", "a cup"),
    )


def test_a_result_whose_call_was_deleted_is_not_sent_and_a_call_whose_result_was_has_none() -> None:
    h = history()
    call(h, "a")
    call(h, "b")
    give(h, "a")
    give(h, "b")
    h.delete("item a")
    h.delete("result b")
    assert shape(h.messages("")) == [("assistant", "call b"), ("tool", "b: (No result yet.)")]


@pytest.mark.parametrize("meanwhile", [0, 3])
def test_a_call_and_its_result_go_together_when_the_budget_is_full(meanwhile: int) -> None:
    h = history(max_tokens=200)
    h.append_text("u0", "user", "How is the weather?")
    call(h, "a", arguments="x" * 100)
    for k in range(meanwhile):
        h.append_text(f"m{k}", "user", "And?")
        reply(h, f"n{k}")
    give(h, "a", "y" * 100)
    for k in range(12):
        h.append_text(f"u{k + 1}", "user", "Tell me more of it, please. " * 2)
        reply(h, f"a{k}", "There is no more to tell.")
        roles = [role for role, *_ in shape(h.messages(""))]
        assert roles.count("tool") == sum("CallPart" in str(m.parts) for m in h.messages("")) <= 1
        assert roles[0] == "user"
    assert "tool" not in roles


@pytest.mark.parametrize("size", range(20, 400, 20))
def test_what_is_left_of_the_talk_begins_with_the_user(size: int) -> None:
    h = history(max_tokens=200)
    h.append_text("u0", "user", "x" * size)
    call(h, "a", arguments="x" * 100)
    give(h, "a", "y" * 100)
    for k in range(4):
        h.append_text(f"u{k + 1}", "user", "Tell me more of it, please. " * 2)
        reply(h, f"a{k}", "There is no more to tell.")
        assert shape(h.messages(""))[0][0] == "user"


def test_a_result_whose_call_is_too_old_to_be_sent_at_its_place_is_sent_with_it() -> None:
    h = history(max_tokens=200)
    h.append_text("u0", "user", "How is the weather? " * 10)
    call(h, "a")
    for k in range(4):
        h.append_text(f"u{k + 1}", "user", "Tell me more of it, please. " * 4)
        reply(h, f"a{k}", "There is no more to tell.")
        h.messages("")
    give(h, "a")
    assert shape(h.messages(""))[-2:] == [
        ("assistant", "There is no more to tell.", "call a"),
        ("tool", "a: rain"),
    ]


def test_of_a_long_result_the_beginning_is_sent() -> None:
    h = history(max_tokens=1_000)
    call(h, "a")
    give(h, "a", "é" * 5_000)
    (part,) = h.messages("")[1].parts
    assert isinstance(part, ResultPart)
    assert len(part.output.encode()) == pytest.approx(250 * 3.5, abs=5)
    assert part.output.endswith("é …")
    assert h.item("result a").content == (ResultContent("a", "é" * 5_000),)


def test_turns_with_a_result_between_them_are_not_joined() -> None:
    h = history()
    h.append_text("u1", "user", "One.")
    call(h, "a")
    h.append_text("u2", "user", "Two.")
    h.append_text("u3", "user", "Three.")
    assert h.joined_before("u3") == ["u2"]  # that there is no result yet is sent
    give(h, "a")
    h.append_text("u4", "user", "Four.")
    assert h.joined_before("u3") == ["u1", "u2"]
    assert h.joined_before("u4") == []


def test_calls_are_found_by_their_ids_and_no_id_is_given_twice() -> None:
    h = history()
    assert h.new_call_id("a") == "a"
    call(h, "a")
    assert h.find_call("a") == h.item("item a")
    assert h.find_call("b") is None
    assert h.new_call_id("a") != "a"
    assert h.new_call_id() != h.new_call_id()
    assert not h.has_result("a")
    give(h, "a")
    assert h.has_result("a")


class HistoryMachine(RuleBasedStateMachine):
    """A call of any course, with a small budget."""

    def __init__(self) -> None:
        super().__init__()
        self.history = history(max_tokens=400)
        self.count = 0
        self.users: list[str] = []
        self.replies: list[str] = []
        self.awaited: set[str] = set()

    def new_id(self) -> str:
        self.count += 1
        return f"item{self.count}"

    @rule(seconds=st.floats(0.2, 8), frames=st.integers(0, 24))
    def speak(self, seconds: float, frames: int) -> None:
        item_id = self.new_id()
        self.history.append_user_turn(item_id, sound(seconds), sight(frames))
        self.users.append(item_id)
        self.awaited.add(item_id)

    @rule(text=st.text("ab ", min_size=1, max_size=300))
    def write(self, text: str) -> None:
        item_id = self.new_id()
        self.history.append_text(item_id, "user", "." + text)
        self.users.append(item_id)

    @rule(text=st.text("ab 字", max_size=300), seconds=st.floats(0, 5), completed=st.booleans())
    def answer(self, text: str, seconds: float, completed: bool) -> None:
        item_id = self.new_id()
        self.history.begin_reply(item_id)
        self.history.extend_reply(item_id, text, round(seconds * RATE))
        self.history.end_reply(item_id, completed)
        self.replies.append(item_id)

    @rule(heard=st.floats(0, 5), pick=st.integers(0))
    def interrupt(self, heard: float, pick: int) -> None:
        if self.replies:
            item_id = self.replies[pick % len(self.replies)]
            before = self.spoken(item_id)
            kept = self.history.truncate(item_id, round(heard * RATE))
            assert before.startswith(kept)
            assert self.spoken(item_id) == kept

    def spoken(self, item_id: str) -> str:
        item = self.history.get(item_id)
        assert item is not None
        assert isinstance(item.content[0], SpokenContent)
        return item.content[0].transcript

    @rule(pick=st.integers(0), text=st.none() | st.text("ab ", max_size=100))
    def transcribe(self, pick: int, text: str | None) -> None:
        if self.awaited:
            item_id = sorted(self.awaited)[pick % len(self.awaited)]
            self.awaited.remove(item_id)
            if text is None:
                self.history.fail_transcript(item_id)
            else:
                self.history.set_transcript(item_id, text)

    @rule(pick=st.integers(0))
    def delete(self, pick: int) -> None:
        items = self.history.items
        if items:
            item_id = items[pick % len(items)].id
            assert self.history.delete(item_id)
            for ids in (self.users, self.replies):
                if item_id in ids:
                    ids.remove(item_id)
            self.awaited.discard(item_id)

    @invariant()
    def a_request_is_in_form_and_within_the_budget(self) -> None:
        messages = self.history.messages(INSTRUCTIONS)
        assert messages == self.history.messages(INSTRUCTIONS)
        assert shape(messages[:1])[0][1] == INSTRUCTIONS
        roles = [message.role for message in messages]
        assert all(a != b for a, b in pairwise(roles))
        if self.users:
            assert "user" in roles
            newest = self.history.get(self.users[-1])
            assert newest is not None
            users = [message for message in messages if message.role == "user"]
            match newest.content[0]:
                case AudioContent(None, transcript):
                    assert users[-1].text.endswith((transcript or "").strip() or "(inaudible)")
                case AudioContent(pcm) if pcm is not None:
                    sounds = [part.pcm for part in users[-1].parts if isinstance(part, AudioPart)]
                    assert sounds[-1] is pcm
                case TextContent(text):
                    assert users[-1].text.endswith(text.strip())
        ids = [item.id for item in self.history.items]
        after_newest = ids.index(self.users[-1]) if self.users else max(len(ids) - 1, 0)
        protected = 0.0
        for item in self.history.items[after_newest:]:
            match item.content[0]:
                case SpokenContent(text) | TextContent(text):
                    protected += len(text.encode()) / 3.5
                case AudioContent(None, transcript):
                    protected += len(transcript or "(inaudible)") / 3.5
                case AudioContent(pcm) if pcm is not None:
                    protected += len(pcm) / RATE * 12.5 + 200
        assert cost(messages) <= max(400, protected + 20)

    @invariant()
    def media_are_kept_only_of_few_turns(self) -> None:
        older = [item for item in self.history.items if item.role == "user"][:-2]
        assert not any(isinstance(content, FramesContent) for item in older for content in item.content)


TestHistoryMachine = HistoryMachine.TestCase
TestHistoryMachine.settings = settings(stateful_step_count=30)


def test_of_turns_that_are_never_transcribed_the_sound_of_one_request_is_kept() -> None:
    h = history(max_tokens=125)  # ten seconds of sound
    for i in range(30):
        say(h, f"u{i}")
        h.fail_transcript(f"u{i}")
    kept = [item.id for item in h.items if any(getattr(c, "pcm", None) is not None for c in item.content)]
    assert 0 < len(kept) <= 10
    assert kept == [f"u{i}" for i in range(30 - len(kept), 30)]
    say(h, "long")
    h.append_user_turn("longer", sound(60.0))
    assert getattr(h.items[-1].content[0], "pcm", None) is not None


def test_a_reply_that_grows_is_not_forgotten_for_want_of_room() -> None:
    h = history()
    h.begin_reply("a")
    h.append_text("first", "user", "x" * 50_000)
    for i in range(30):
        h.append_text(f"u{i}", "user", "x" * 50_000, (), "root")
        assert h.get(f"u{i}") is not None
    h.end_reply("a")
    assert h.get("a") is not None
    assert sum(len(str(item.content)) for item in h.items) < 1_100_000


def test_user_items_without_an_answer_between_are_joined():
    history = History(HistoryConfig(), "call")
    history.append_text("a", "user", "one")
    history.begin_reply("r")
    history.extend_reply("r", "yes", 480)
    history.append_text("b", "user", "two")
    history.begin_reply("unheard")
    history.append_text("c", "user", "three")
    assert history.joined_before("c") == ["b"]
    assert history.joined_before("b") == []
    assert history.joined_before("a") == []
    assert history.joined_before("nowhere") == ["b", "c"]


def filmed(h: History, seconds: int, *, pictures: int = 24) -> None:
    """A turn of moving pictures of 640x480, 300 tokens a pair."""
    step = seconds * RATE // (pictures - 1)
    frames = [Frame(bytes([n]), 640, 480, n * step) for n in range(pictures)]
    h.append_user_turn(f"filmed-{len(h.items)}", np.zeros(seconds * RATE, np.int16), frames)


def sights(h: History) -> list[int]:
    return [len(part.frames) for m in h.messages("") for part in m.parts if isinstance(part, FramesPart)]


def test_a_clip_costs_by_its_length_however_few_pictures_are_kept_of_it():
    sequence, clip = history(max_tokens=22_000), History(HistoryConfig(22_000, 2, clip_tokens=16_384), "call")
    for h in (sequence, clip):
        filmed(h, 50)
        filmed(h, 30)
    assert sights(sequence) == [24, 24]
    assert sights(clip) == [24], "50 s and 30 s cost 15,300 and 9,300 tokens"


def test_a_clip_costs_no_more_than_fusion_lets_it():
    h = History(HistoryConfig(22_000, 2, clip_tokens=9_000), "call")
    filmed(h, 50)
    filmed(h, 50)
    assert sights(h) == [24, 24]


def test_what_is_unheard_of_a_reply_is_the_engines() -> None:
    history = History(HistoryConfig(), "call")
    history.begin_reply("a1")
    history.extend_reply("a1", "One two three four.", 4 * RATE)
    assert history.unheard("a1", 2 * RATE) == ("three four.", False)
    history.apologise("a1", "Sorry.", RATE)
    history.end_reply("a1")
    assert history.unheard("a1", 2 * RATE) == ("three four.", True)
    history.begin_reply("a2", spoken=False)
    history.extend_reply("a2", "Written.")
    assert history.unheard("a2", 0) == ("", False)
    history.append_text("u1", "user", "Hi.")
    assert history.unheard("u1", 0) == history.unheard("gone", 0) == ("", True)
