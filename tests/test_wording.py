import pytest

from visavis.wording import Ending, ending_of


@pytest.mark.parametrize(
    "text",
    [
        "I would like to go to Paris and",
        "I stayed at home because.",
        "Can you show me the…",
        "Well, um",
        "I want to talk about",
        "Ich möchte nach Paris, weil",
        "Ist das für den",
        "Je voudrais aller à Paris parce que",
        "Quiero un café con",
        'He said "and"',
        "and",
    ],
)
def test_nobody_ends_on_a_conjunction_an_article_or_a_hesitation(text: str) -> None:
    assert ending_of(text) is Ending.DANGLING


@pytest.mark.parametrize(
    "text", ["First,", "Well...", "I mean –", "そうですね、", "That is what I look for."]
)
def test_an_open_end_is_heard(text: str) -> None:
    assert ending_of(text) is Ending.OPEN


@pytest.mark.parametrize(
    "text", ["That is all.", "“Stop!”", "今日は寒い。", "No.", "I want a car.", "Ich bin da."]
)
def test_a_sentence_is_closed(text: str) -> None:
    assert ending_of(text) is Ending.CLOSED


@pytest.mark.parametrize(
    "text", ["Where are you from?", "What is it for?", "Was ist das?", "今日は寒いですか？", "¿Qué?"]
)
def test_a_question_may_end_on_a_preposition(text: str) -> None:
    assert ending_of(text) is Ending.QUESTION


@pytest.mark.parametrize("text", ["", "  ", "…", "I would like a coffee", "今日は寒い"])
def test_nothing_is_said_of_what_is_not_known(text: str) -> None:
    assert ending_of(text) is Ending.UNKNOWN
