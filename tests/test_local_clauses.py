import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from visavis.local.clauses import FIRST_WORDS, MAX_CHARACTERS, ClauseSplitter


def split(*pieces: str) -> list[str]:
    splitter = ClauseSplitter()
    clauses = [clause for piece in pieces for clause in splitter.feed(piece)]
    rest = splitter.flush()
    return [*clauses, rest] if rest else clauses


def test_first_clause_ends_at_the_first_pause_after_twelve_characters() -> None:
    assert split("Well, of course, I can do that, if you like. ") == [
        "Well, of course, ",
        *(["I can do that, if you like. "]),
    ]


def test_later_clauses_are_sentences() -> None:
    assert split("I think it is, yes. It is late, dark, and cold. Go home! ")[1:] == [
        "yes. ",
        "It is late, dark, and cold. ",
        "Go home! ",
    ]


def test_first_clause_without_punctuation_ends_after_ten_words() -> None:
    first, *_ = split("one two three four five six seven eight nine ten eleven twelve")
    assert len(first.split()) == FIRST_WORDS


def phrases(text: str) -> list[str]:
    """Feed a word at a time, its space before it, as language models write."""
    splitter = ClauseSplitter(phrases=True)
    clauses = [clause for piece in re.findall(r"\s*\S+", text) for clause in splitter.feed(piece)]
    return [*clauses, splitter.flush()]


@pytest.mark.parametrize(
    "clauses",
    [
        ["The capital of France ", "is Paris."],
        ["The sky is blue ", "because of the scattering of light by the air ", "and by what floats in it."],
        ["The largest planet ", "of our solar system is Jupiter."],
        ["We will not see it again."],
        ["Seven times eight ", "equals 56."],
        ["We have 10 cloves."],
        ["Good morning is Buenos días."],
        ["You're welcome! ", "Have a nice day on the coast and in the hills, will you?"],
        ["Sure! ", "Why was the math book sad? ", "It had many problems on the mind and in the heart."],
        [
            "Sure! ",
            "My favourite joke ",
            "is about a horse. ",
            "It comes into a bar and is asked why it looks so.",
        ],
        ["To make a cup ", "of tea you boil water, ", "let it stand in the pot for a while and pour it."],
        ["I know one two three four five six seven eight ", "nine ten eleven."],
    ],
)
def test_a_first_phrase_ends_between_a_word_of_content_and_a_function_word(clauses: list[str]) -> None:
    given = phrases("".join(clauses))[: len(clauses)]
    assert [clause.strip() for clause in given] == [clause.strip() for clause in clauses]


def test_a_first_phrase_is_given_as_soon_as_the_word_after_it_has_begun() -> None:
    splitter = ClauseSplitter(phrases=True)
    assert splitter.feed("The capital of France") == []
    assert splitter.feed(" is") == ["The capital of France "]


@pytest.mark.parametrize("answer", ["You have ten cloves.", "Your name is Alice.", "Is it Alice?", "Yes!"])
def test_a_first_sentence_is_given_with_its_last_letter(answer: str) -> None:
    assert ClauseSplitter(phrases=True).feed(answer) == [answer]


@pytest.mark.parametrize("begun", ["The number is 3.", "You have met Dr.", "It is J.", "I see."])
def test_a_full_stop_that_may_not_end_the_sentence_gives_nothing(begun: str) -> None:
    assert ClauseSplitter(phrases=True).feed(begun) == []


def test_text_that_is_there_already_is_cut_at_its_punctuation() -> None:
    splitter = ClauseSplitter(phrases=True)
    assert splitter.feed("I see the words on the wall, and more. ") == [
        "I see the words on the wall, ",
        "and more. ",
    ]


def test_nothing_is_given_before_the_space_that_proves_the_end() -> None:
    splitter = ClauseSplitter()
    assert splitter.feed("The price is exactly 3.") == []
    assert splitter.feed("50 euros.") == []
    assert splitter.flush() == "The price is exactly 3.50 euros."


@pytest.mark.parametrize("title", ["Dr.", "Mr.", "e.g.", "J.", "(Prof."])
def test_an_abbreviation_ends_nothing(title: str) -> None:
    assert split(f"I have met {title} Smith today. Really. ")[0] == f"I have met {title} Smith today. "


def test_a_sentence_may_end_in_the_word_i() -> None:
    assert split("It is of course I. Who else? ")[0] == "It is of course I. "


def test_quotation_marks_stay_with_their_sentence() -> None:
    assert split('It says "platform nine." Then it ends. ')[0] == 'It says "platform nine." '


def test_scripts_without_spaces_are_cut_at_their_own_marks() -> None:
    assert split("今天天气很好，我们去公园吧。你觉得呢？") == [
        "今天天气很好，",
        "我们去公园吧。",
        "你觉得呢？",
    ]


def test_a_sentence_without_end_is_cut_at_its_last_pause() -> None:
    clauses = split("Yes, of course, " + "and so on and on, " * 20)
    assert len(clauses) > 2
    assert all(len(clause) <= MAX_CHARACTERS for clause in clauses)
    assert all(clause.endswith(", ") for clause in clauses)


@given(st.lists(st.text(alphabet="aI .,!?…\"')。，\n1é", max_size=30), max_size=40))
def test_clauses_put_together_are_the_text(pieces: list[str]) -> None:
    for splitter in (ClauseSplitter(), ClauseSplitter(phrases=True)):
        clauses = [clause for piece in pieces for clause in splitter.feed(piece)]
        assert all(clauses)
        assert "".join(clauses) + splitter.flush() == "".join(pieces)


@given(st.text(alphabet="ab .,!?。", max_size=120), st.integers(1, 7))
def test_sentences_do_not_depend_on_how_the_text_is_cut_up_except_where_it_ends(text: str, size: int) -> None:
    words = text.split()
    pieces = [text[i : i + size] for i in range(0, len(text), size)]
    assert "".join(split(*pieces)).split() == words
