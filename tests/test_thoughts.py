import re
from collections.abc import Iterable
from itertools import groupby, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from visavis.engine import TextDelta, ThinkingDelta
from visavis.engine.thoughts import ThoughtSplitter, Told


def joined(told: Iterable[Told]) -> list[Told]:
    """Join neighbours of one kind."""
    return [kind("".join(one.text for one in run)) for kind, run in groupby(told, type)]


def split(*texts: str, thinking: bool = False) -> list[Told]:
    splitter = ThoughtSplitter(thinking=thinking)
    return joined([told for text in texts for told in splitter.receive(text)] + splitter.finish())


PIECES = st.sampled_from(
    [
        "<think>",
        "</think>",
        "<",
        ">",
        "/",
        "</",
        "<th",
        "think>",
        "k>",
        "\n\n",
        " ",
        "Hm.",
        "Yes, 1 < 2.",
        "<b>",
    ]
)
TEXTS = st.lists(PIECES, max_size=12).map("".join)


@given(TEXTS, st.lists(st.integers(0, 200), max_size=20), st.booleans())
def test_any_cutting_gives_the_same(text: str, cuts: list[int], thinking: bool) -> None:
    edges = [0, *sorted(at % (len(text) + 1) for at in cuts), len(text)]
    pieces = [text[start:end] for start, end in pairwise(edges)]
    whole = split(text, thinking=thinking)
    assert split(*pieces, thinking=thinking) == whole
    assert split(*text, thinking=thinking) == whole


@given(TEXTS, st.booleans())
def test_nothing_is_lost_but_tags_and_the_space_after_them(text: str, thinking: bool) -> None:
    told = "".join(one.text for one in split(text, thinking=thinking))
    bare = re.sub("</?think>", "", text)
    assert "".join(told.split()) == "".join(bare.split())


@given(st.text(st.characters(exclude_characters="<"), max_size=40))
def test_an_answer_without_tags_is_not_touched(text: str) -> None:
    assert split(text) == ([TextDelta(text)] if text else [])


@pytest.mark.parametrize("opening", ["<think>\n", ""])
def test_a_thinking_model_begins_with_a_thought_whether_or_not_a_tag_says_so(opening: str) -> None:
    told = split(f"{opening}It is noon.</think>\n\nNoon.", thinking=True)
    assert [type(one) for one in told] == [ThinkingDelta, TextDelta]
    assert told[0].text.strip() == "It is noon."
    assert told[1] == TextDelta("Noon.")


def test_a_thought_that_a_tag_opens_is_told_apart_in_any_model() -> None:
    assert split("<think>Hm.</think>\n\nNoon.") == [ThinkingDelta("Hm."), TextDelta("Noon.")]


def test_a_thought_in_the_middle_of_an_answer_is_told_apart() -> None:
    told = split("a</think> b <think>c</think> d", thinking=True)
    assert told == [ThinkingDelta("a"), TextDelta("b "), ThinkingDelta("c"), TextDelta("d")]


def test_words_are_held_back_only_while_they_may_be_a_tag() -> None:
    splitter = ThoughtSplitter(thinking=False)
    assert splitter.receive("1 <") == [TextDelta("1 ")]
    assert splitter.receive(" 2") == [TextDelta("< 2")]
    assert splitter.receive(" </thin") == [TextDelta(" ")]
    assert splitter.finish() == [TextDelta("</thin")]
    assert splitter.finish() == []


def test_thoughts_that_the_server_names_need_no_tags() -> None:
    splitter = ThoughtSplitter(thinking=True)
    told = [*splitter.receive_thought("It is"), *splitter.receive_thought(" noon.\n")]
    told += splitter.receive("\n\nNoon.")
    assert joined(told) == [ThinkingDelta("It is noon.\n"), TextDelta("Noon.")]
    assert not splitter.thinking


def test_blank_lines_after_a_thought_are_no_part_of_the_answer_however_they_come() -> None:
    assert split("a</think>", "\n", "\n", " ", "b\n", "c", thinking=True) == [
        ThinkingDelta("a"),
        TextDelta("b\nc"),
    ]


def test_what_was_held_back_comes_before_a_named_thought() -> None:
    splitter = ThoughtSplitter(thinking=False)
    told = [*splitter.receive("a <"), *splitter.receive_thought("b"), *splitter.receive("c")]
    assert joined(told) == [TextDelta("a <"), ThinkingDelta("b"), TextDelta("c")]


def test_a_thought_that_never_ends_is_no_answer() -> None:
    splitter = ThoughtSplitter(thinking=True)
    assert joined([*splitter.receive("It is"), *splitter.finish()]) == [ThinkingDelta("It is")]
    assert splitter.thinking
