import pytest

from visavis.local.speech import speakable


@pytest.mark.parametrize(
    ("text", "spoken"),
    [
        ("**Sure!** Use `pip`.", "Sure! Use pip ."),
        ("Great 😀👍🏽!", "Great !"),
        ("See https://example.com/a?b=c for more.", "See the link for more."),
        ("# Title", "Title"),
        ("  two\n lines ", "two lines"),
        ("Grüß Gott, 3 °C", "Grüß Gott, 3 °C"),
        ("你好。", "你好。"),
        ("...", ""),
        ("😀", ""),
        ("", ""),
    ],
)
def test_what_a_voice_stumbles_over_is_taken_out(text: str, spoken: str) -> None:
    assert speakable(text) == spoken
