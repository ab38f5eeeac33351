import pytest

from visavis.local.tongues import looks_english, of_script


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("こんにちは", "ja"),
        ("안녕하세요", "ko"),
        ("你好", "zh"),
        ("Привет", "ru"),
        ("Привіт, як справи? Її", "uk"),
        ("Γειά", "el"),
        ("مرحبا", "ar"),
        ("שלום", "he"),
        ("Hello", None),
        ("", None),
    ],
)
def test_a_script_tells_the_language(text: str, language: str | None) -> None:
    assert of_script(text) == language


@pytest.mark.parametrize(
    "text", ["I can't tell, because the camera is off.", "What is it?", "It’s on the table."]
)
def test_english_is_known_by_its_small_words(text: str) -> None:
    assert looks_english(text)


@pytest.mark.parametrize(
    "text", ["Mir geht es gut, danke!", "Je ne sais pas, désolé.", "Está muy bien.", "你好", "7"]
)
def test_other_languages_are_not_english(text: str) -> None:
    assert not looks_english(text)
