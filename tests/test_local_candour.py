import pytest

from visavis.local.candour import asks_for_things, honest_answer
from visavis.local.sight import View


@pytest.mark.parametrize(
    ("words", "language"),
    [
        ("What can you see?", "en"),
        ("What do you see now?", "en"),
        ("Can you see me?", "en"),
        ("Do you see anything?", "en"),
        ("Can you see?", "en"),
        ("Describe what you see.", "en"),
        ("What am I holding?", "en"),
        ("How many fingers am I holding up?", "en"),
        ("How many people are in the picture?", "en"),
        ("How do I look?", "en"),
        ("Do I look good in this shirt?", "en"),
        ("Is there a cat behind me?", "en"),
        ("Who is standing behind me?", "en"),
        ("What's in my hand?", "en"),
        ("What is this?", "en"),
        ("Was siehst du?", "de"),
        ("Kannst du mich sehen?", "de"),
        ("Was halte ich in der Hand?", "de"),
        ("Wie sehe ich aus?", "de"),
        ("Qu'est-ce que tu vois ?", "fr"),
        ("Tu me vois ?", "fr"),
        ("¿Qué ves?", "es"),
        ("¿Me ves?", "es"),
    ],
)
def test_questions_for_people_and_things_in_view_are_known(words: str, language: str) -> None:
    assert asks_for_things(words, language)


@pytest.mark.parametrize(
    ("words", "language"),
    [
        ("What does the sign say?", "en"),
        ("Can you see what is written here?", "en"),
        ("What colour do you see?", "en"),
        ("What colour is this?", "en"),
        ("Do you see what I mean?", "en"),
        ("Can you see why that is wrong?", "en"),
        ("I see. And what is a quark?", "en"),
        ("What is this all about?", "en"),
        ("See you tomorrow!", "en"),
        ("Look, I need some help with my homework.", "en"),
        ("How many days are there in a year?", "en"),
        ("Was steht auf dem Schild?", "de"),
        ("Wie viele Tage hat ein Jahr?", "de"),
        ("Quelle est la capitale de la France ?", "fr"),
        ("¿Cuál es la capital de Francia?", "es"),
        ("Co widzisz?", "pl"),
    ],
)
def test_other_questions_are_not(words: str, language: str) -> None:
    assert not asks_for_things(words, language)


def test_the_answer_tells_what_is_known_and_that_there_is_no_more() -> None:
    view = View("dim", ("grey", "blue", "red"), ("EXIT!", "Room 204"))
    assert honest_answer("en", view) == (
        "I can't make out people or things, only colours and words. "
        "It is dim, mostly grey and blue, and it says: EXIT, Room 204."
    )
    assert honest_answer("en", View("bright", ("red",), ())).endswith(
        "mostly red, and I find no words in it."
    )


def test_the_answer_is_in_the_language_of_the_question() -> None:
    view = View("bright", ("grey", "blue"), ("EXIT",))
    assert honest_answer("de", view).endswith("Es ist hell, vor allem grau und blau, und da steht: EXIT.")
    assert honest_answer("fr", view).endswith("C'est clair, surtout gris et bleu, et c'est écrit : EXIT.")
    assert honest_answer("es", view).endswith("Está claro, sobre todo gris y azul, y dice: EXIT.")


@pytest.mark.parametrize("language", ["en", "de", "fr", "es"])
def test_a_camera_that_is_off_is_told(language: str) -> None:
    assert honest_answer(language, None) != honest_answer(language, View("dim", ("red",), ()))


def test_words_in_view_are_bounded() -> None:
    view = View("dim", ("red",), tuple(f"Line {i}" for i in range(50)))
    assert "Line 3" in honest_answer("en", view)
    assert "Line 4" not in honest_answer("en", view)
