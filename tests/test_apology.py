from pathlib import Path

import numpy as np
import pytest

from visavis.apology import load_apology
from visavis.audio import RATE, encode_wav, level_dbfs
from visavis.config import ApologyConfig
from visavis.errors import ConfigError


def test_the_packaged_apology_is_a_spoken_sentence() -> None:
    apology = load_apology(ApologyConfig())
    assert apology is not None
    assert apology.text == ApologyConfig().text
    assert apology.pcm.dtype == np.int16
    assert 2 * RATE < len(apology.pcm) < 5 * RATE
    assert -35 < level_dbfs(apology.pcm) < -10


def test_without_a_text_there_is_none() -> None:
    assert load_apology(ApologyConfig(text="", sound=Path("nowhere"))) is None


def test_another_text_comes_with_its_own_sound(tmp_path: Path) -> None:
    wave = np.rint(9_000 * np.sin(np.arange(16_000) / 20)).astype(np.int16)
    (tmp_path / "sorry.wav").write_bytes(encode_wav(wave, 16_000))
    apology = load_apology(ApologyConfig("Verzeihung!", tmp_path / "sorry.wav"))
    assert apology is not None
    assert apology.text == "Verzeihung!"
    assert len(apology.pcm) == pytest.approx(RATE, abs=50)
    assert np.abs(apology.pcm).max() == pytest.approx(9_000, rel=0.05)


def test_another_text_without_its_sound_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"apology\.sound is missing"):
        load_apology(ApologyConfig("Verzeihung!"))


@pytest.mark.parametrize("content", [None, b"", b"no sound at all"])
def test_a_sound_that_cannot_be_read_is_named(content: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "sorry.wav"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"sorry\.wav cannot be read"):
        load_apology(ApologyConfig(sound=path))
