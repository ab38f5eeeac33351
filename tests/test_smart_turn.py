import builtins
import importlib.util
import os
from pathlib import Path

import numpy as np
import pytest

from visavis import smart_turn
from visavis.audio import RATE, Pcm
from visavis.errors import ConfigError
from visavis.smart_turn import SmartTurn, find_smart_turn, log_mel


def model() -> SmartTurn:
    """The real one."""
    return SmartTurn(Path(os.environ["VISAVIS_TEST_SMART_TURN"]))


# What the model hears


def test_a_tone_is_loud_in_its_own_band_and_at_the_end() -> None:
    time = np.arange(16_000) / 16_000
    mel = log_mel(np.sin(2 * np.pi * 440 * time).astype(np.float32) / 10)
    assert mel.shape == (80, 800)
    assert mel.dtype == np.float32
    loudest = mel.mean(axis=1).argmax()
    assert loudest == round(440 / (15 + 27 * np.log(8) / np.log(6.4)) * 81 / (200 / 3)) - 1
    assert mel[loudest, 710:].min() > mel[loudest, :690].max() + 1


def test_volume_changes_nothing() -> None:
    sound = np.random.default_rng(4).normal(size=128_000).astype(np.float32)
    np.testing.assert_allclose(log_mel(sound / 20), log_mel(sound / 200), atol=1e-3)


def test_only_the_last_eight_seconds_count() -> None:
    sound = np.random.default_rng(4).normal(size=160_000).astype(np.float32)
    np.testing.assert_array_equal(log_mel(sound), log_mel(sound[-128_000:]))


def test_silence_can_be_heard() -> None:
    assert np.isfinite(log_mel(np.zeros(0, np.float32))).all()


# Where it comes from


def test_a_path_is_taken_as_it_is() -> None:
    assert find_smart_turn(Path("here.onnx")) == Path("here.onnx")


def test_the_bundled_model_is_found_in_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "pipecat" / "audio" / "turn" / "smart_turn" / "data"
    folder.mkdir(parents=True)
    (tmp_path / "pipecat" / "__init__.py").touch()
    for name in ("smart-turn-v3.2-cpu.onnx", "smart-turn-v3.2-gpu.onnx"):
        (folder / name).touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(smart_turn.__dict__, "pipecat", raising=False)
    assert find_smart_turn(Path("bundled")).name == "smart-turn-v3.2-cpu.onnx"


def test_a_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="pip install pipecat-ai"):
        find_smart_turn(Path("bundled"))


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    with pytest.raises(ConfigError, match="there is no file"):
        SmartTurn(tmp_path / "none.onnx")


def test_a_file_that_is_no_model_is_named(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    path = tmp_path / "broken.onnx"
    path.write_bytes(b"not a model")
    with pytest.raises(ConfigError, match=r"broken\.onnx does not load"):
        SmartTurn(path)


def test_a_missing_runtime_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    imported = builtins.__import__

    def without(name: str, *rest: object) -> object:
        if name == "onnxruntime":
            raise ImportError(name)
        return imported(name, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ConfigError, match="needs onnxruntime"):
        SmartTurn(tmp_path / "model.onnx")


# The model itself


@pytest.mark.smart_turn
def test_the_model_judges_whole_and_broken_sentences(say: object) -> None:
    judge = model().judge
    assert callable(say)
    whole: Pcm = say("What is the capital of France?")
    pause = np.zeros(RATE // 5, np.int16)
    done = judge(np.concatenate([whole, pause]))
    broken = judge(np.concatenate([whole[: len(whole) // 2], pause]))
    assert 0 <= broken < done <= 1
