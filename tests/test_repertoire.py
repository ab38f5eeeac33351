import logging
from collections.abc import AsyncGenerator
from pathlib import Path

import numpy as np
import pytest

from visavis.audio import RATE, Pcm, encode_wav, level_dbfs
from visavis.config import ApologyConfig, ConversationConfig, GreetingConfig, IdleConfig, WaitingConfig
from visavis.engine.helper import Helper
from visavis.errors import ConfigError, EngineLost
from visavis.repertoire import Repertoire

HELLO = ConversationConfig(greeting=GreetingConfig("Hello!"))


class Voice(Helper):
    """Says each text as half a second of sound, in two pieces, or fails at one of them."""

    def __init__(self, fails_at: str = "") -> None:
        self.fails_at = fails_at
        self.said: list[tuple[str, str | None]] = []

    async def say(self, call_id: str, text: str, language: str | None = None) -> AsyncGenerator[Pcm, None]:
        self.said.append((text, language))
        yield np.full(RATE // 4, 100, np.int16)
        if text == self.fails_at:
            raise EngineLost("The voice is hoarse.")
        yield np.full(RATE // 4, 100, np.int16)


@pytest.mark.parametrize("occasion", ["apology", "warning"])
def test_the_packaged_lines_are_spoken_sentences(occasion: str) -> None:
    repertoire = Repertoire(ConversationConfig())
    line = getattr(repertoire.lines, occasion)
    assert line.text in (ApologyConfig().text, IdleConfig().text)
    assert line.pcm.dtype == np.int16
    assert 2 * RATE < len(line.pcm) < 5 * RATE
    assert -35 < level_dbfs(line.pcm) < -10
    assert repertoire.unspoken == ()


def test_what_has_no_text_or_no_occasion_is_no_line() -> None:
    config = ConversationConfig(
        apology=ApologyConfig(text="", sound=Path("nowhere")),
        idle=IdleConfig(end_s=None),
        waiting=WaitingConfig(play="sound"),
    )
    lines = Repertoire(config).lines
    assert lines.apology is lines.greeting is lines.warning is lines.waiting is None


def test_a_line_may_come_with_its_own_sound(tmp_path: Path) -> None:
    wave = np.rint(9_000 * np.sin(np.arange(16_000) / 20)).astype(np.int16)
    path = tmp_path / "sorry.wav"
    path.write_bytes(encode_wav(wave, 16_000))
    repertoire = Repertoire(ConversationConfig(apology=ApologyConfig("Verzeihung!", path)))
    apology = repertoire.lines.apology
    assert apology is not None
    assert apology.text == "Verzeihung!"
    assert len(apology.pcm) == pytest.approx(RATE, abs=50)
    assert np.abs(apology.pcm).max() == pytest.approx(9_000, rel=0.05)


@pytest.mark.parametrize("content", [None, b"", b"no sound at all"])
def test_a_sound_that_cannot_be_read_is_named(content: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "hello.wav"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"conversation\.greeting\.sound .*hello\.wav cannot be read"):
        Repertoire(ConversationConfig(greeting=GreetingConfig("Hello!", path)))


async def test_the_embedded_voice_says_what_has_no_sound_yet() -> None:
    config = ConversationConfig(
        apology=ApologyConfig("Pardon!"),
        greeting=GreetingConfig("Bonjour!"),
        waiting=WaitingConfig(play="sentence", text="Un moment."),
    )
    repertoire, voice = Repertoire(config), Voice()
    assert repertoire.unspoken == (
        "conversation.apology.text",
        "conversation.greeting.text",
        "conversation.waiting.text",
    )
    await repertoire.speak(voice, "fr")
    assert voice.said == [("Pardon!", "fr"), ("Bonjour!", "fr"), ("Un moment.", "fr")]
    assert repertoire.unspoken == ()
    assert repertoire.lines.greeting is not None
    assert len(repertoire.lines.greeting.pcm) == RATE // 2


async def test_a_text_that_the_voice_cannot_say_is_shown_alone(caplog: pytest.LogCaptureFixture) -> None:
    config = ConversationConfig(apology=ApologyConfig("Pardon!"), greeting=GreetingConfig("Bonjour!"))
    repertoire = Repertoire(config)
    await repertoire.speak(Voice(fails_at="Pardon!"), None)
    assert repertoire.lines.greeting is not None
    assert len(repertoire.lines.greeting.pcm) == RATE // 2
    assert repertoire.lines.apology is not None
    assert repertoire.lines.apology.text == "Pardon!"
    assert not len(repertoire.lines.apology.pcm)
    assert "apology.text is shown and not spoken: The voice is hoarse." in caplog.text


def test_without_a_voice_it_is_told_what_will_not_be_spoken(caplog: pytest.LogCaptureFixture) -> None:
    Repertoire(ConversationConfig()).do_without()
    assert not caplog.records
    repertoire = Repertoire(HELLO)
    repertoire.do_without()
    assert repertoire.unspoken == ()
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "conversation.greeting.text is shown and not spoken" in caplog.text
