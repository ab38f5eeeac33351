import unicodedata
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from visavis.audio import RATE
from visavis.spoken import SpokenText, until_word


def s(seconds: float) -> int:
    return round(seconds * RATE)


def spoken(*deltas: tuple[str, float]) -> SpokenText:
    reply = SpokenText()
    for text, seconds in deltas:
        reply.extend(text, s(seconds))
    return reply


SLOW_THEN_FAST = spoken(
    ("One, two, three. ", 0), ("", 2), ("", 2), ("And then all the rest of it in one go.", 0), ("", 2)
)
"Clause by clause: 17 characters in 4 s, 38 characters in 2 s."


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1, ""),
        (0, ""),
        (0.9, ""),
        (1, "One,"),
        (2, "One,"),
        (2.2, "One, two,"),
        (4, "One, two, three."),
        (5, "One, two, three. And then all the"),
        (6, "One, two, three. And then all the rest of it in one go."),
        (9, "One, two, three. And then all the rest of it in one go."),
    ],
)
def test_text_is_placed_by_the_audio_that_came_with_its_clause(seconds: float, text: str) -> None:
    assert SLOW_THEN_FAST.heard(s(seconds), whole=True) == text


def test_text_that_ran_ahead_of_its_audio_is_spread_over_the_whole_reply() -> None:
    words = "word " * 60
    reply = spoken((words[:100], 0.3), (words[100:250], 2), (words[250:], 2), ("", 2), ("", 13.7))
    assert reply.heard(s(10), whole=True) == ("word " * 30).strip()


def test_text_without_audio_of_its_own_is_spread_over_the_whole_reply() -> None:
    reply = spoken(("", 2), ("one two three ", 2), ("four five six", 0))
    assert reply.heard(s(2), whole=True) == "one two three"


def test_the_audio_still_to_come_is_estimated_when_a_reply_was_broken_off() -> None:
    words = "word " * 60
    reply = spoken((words[:100], 0.3), (words[100:], 2), ("", 2))
    assert reply.heard(s(2), whole=False) == ("word " * 6).strip()
    assert reply.heard(s(2), whole=True) == ("word " * 28).strip()


def test_the_clauses_before_the_last_one_need_no_estimate() -> None:
    reply = spoken(("One, two, three. ", 4), ("Then a clause that was not all spoken.", 0.5))
    assert reply.heard(s(4), whole=False) == "One, two, three."
    assert reply.heard(s(4.5), whole=False) == "One, two, three. Then a"


def test_a_slow_clause_that_was_broken_off_is_not_credited_with_more_than_its_audio() -> None:
    reply = spoken(("one two three four", 10))
    assert reply.heard(s(5), whole=False) == "one two"


def test_signs_for_syllables_take_longer_than_letters() -> None:
    text = "今天天气很好我们去公园吧明天也去"
    assert len(spoken((text, 0.1)).heard(s(1), whole=False)) == 4


@pytest.mark.parametrize(
    ("text", "length", "kept"),
    [
        ("one two three", 13, "one two three"),
        ("one two three", 99, "one two three"),
        ("one two three", 12, "one two"),
        ("one two three", 8, "one two"),
        ("one two three", 7, "one two"),
        ("one two three", 6, "one"),
        ("one two", 2, ""),
        ("one", 0, ""),
        ("well-known", 5, ""),
        ("你好，世界", 3, "你好，"),
        ("你好，世界", 1, "你"),
        ("我用Python写", 5, "我用"),
        ("カ\u3099ンハ", 1, ""),
        ("カ\u3099ンハ", 2, "カ\u3099"),
        ("กำลัง", 3, "กำ"),
        ("กำลัง", 1, ""),
        ("กำลัง", 4, "กำลั"),
        ("กิน", 1, ""),
        ("👩\u200d🚀 up", 2, ""),
        ("字\u200d字", 1, ""),
        ("字\u200d字", 2, ""),
        ("안녕 하세요", 4, "안녕"),
        ("ab\ncd", 4, "ab"),
        ("", 3, ""),
    ],
)
def test_text_is_cut_between_words_or_else_whole_characters(text: str, length: int, kept: str) -> None:
    assert until_word(text, length) == kept


@given(st.text(max_size=40), st.integers(0, 50))
def test_a_cut_is_a_beginning_that_splits_no_word_and_no_character(text: str, length: int) -> None:
    kept = until_word(text, length)
    assert text.startswith(kept)
    assert len(kept) <= length
    rest = text[len(kept) :]
    if rest:
        assert not unicodedata.combining(rest[0])
        assert not (
            kept and kept[-1].isascii() and kept[-1].isalnum() and rest[0].isascii() and rest[0].isalnum()
        )


@given(
    st.lists(st.tuples(st.text("ab 字\u3099", max_size=30), st.floats(0, 3)), max_size=8),
    st.lists(st.floats(0, 30), min_size=2, max_size=5).map(sorted),
    st.booleans(),
)
def test_more_heard_is_never_less_text(
    deltas: list[tuple[str, float]], times: list[float], whole: bool
) -> None:
    reply = spoken(*deltas)
    texts = [reply.heard(s(seconds), whole=whole) for seconds in times]
    assert all(later.startswith(earlier) for earlier, later in pairwise(texts))
    assert reply.text.startswith(texts[-1])
    assert reply.heard(max(reply.samples, 1), whole=True) == reply.text
    assert reply.heard(0, whole=whole) == ""
