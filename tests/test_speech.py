"""The synthetic voices of the tests speak, at the rate of a conversation."""

from collections.abc import Callable

import pytest

import speech
from visavis.audio import RATE, Pcm, level_dbfs

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("voice", speech.VOICES)
def test_a_voice_is_as_long_and_loud_as_speech(say: Callable[..., Pcm], voice: str) -> None:
    pcm = say("What is the capital of France?", voice)
    assert 1.0 < len(pcm) / RATE < 4.0
    assert -35 < level_dbfs(pcm) < -10
    assert not pcm[: RATE // 10].any()
