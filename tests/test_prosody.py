from collections.abc import Callable

import numpy as np
import pytest

from visavis.audio import BLOCK, RATE, Pcm, from_float
from visavis.config import VadConfig
from visavis.ear import CallerEar
from visavis.finality import FEATURES, finality_of
from visavis.hush import band_level
from visavis.prosody import Prosody, pitch_of
from visavis.vad import GatedVad, SileroPool

POOL = SileroPool()


def voice(*steps: tuple[float, float, float], dbfs: float = -20.0) -> Pcm:
    """A buzz of (seconds, pitch at its start, pitch at its end) each."""
    hertz = np.concatenate([np.linspace(a, b, round(seconds * RATE)) for seconds, a, b in steps])
    phase = 2 * np.pi * np.cumsum(hertz) / RATE
    sound = sum(np.sin(k * phase) / k for k in range(1, 8))
    return from_float(10 ** (dbfs / 20) * sound / np.std(sound))


def blocks(pcm: Pcm) -> list[Pcm]:
    return [pcm[i : i + BLOCK] for i in range(0, len(pcm) - BLOCK + 1, BLOCK)]


def heard(prosody: Prosody, pcm: Pcm, *, voiced: bool = True) -> list[float | None]:
    return [prosody.receive(block, band_level(block), voiced=voiced) for block in blocks(pcm)]


def silence(count: int) -> Pcm:
    return np.zeros(count * BLOCK, np.int16)


def named(prosody: Prosody) -> dict[str, float]:
    features = prosody.features()
    assert features is not None
    return dict(zip(FEATURES, features.tolist(), strict=True))


# Pitch


def coarse(pcm: Pcm) -> np.ndarray:
    return pcm.reshape(-1, 6).mean(axis=1)[:160]


@pytest.mark.parametrize("hertz", [80, 120, 200, 300, 390])
def test_pitch_is_found(hertz: float) -> None:
    pitch, periodicity = pitch_of(coarse(voice((0.1, hertz, hertz))))
    assert pitch == pytest.approx(12 * np.log2(hertz), abs=0.3)
    assert periodicity > 0.9


def test_noise_and_silence_have_no_pitch() -> None:
    noise = np.random.default_rng(2).normal(0, 3000, 960)
    pitch, periodicity = pitch_of(noise.reshape(-1, 6).mean(axis=1))
    assert np.isnan(pitch)
    assert 0 <= periodicity < 0.45
    assert np.isnan(pitch_of(np.zeros(160))[0])


def test_what_rises_to_the_edge_of_the_range_has_no_pitch() -> None:
    assert np.isnan(pitch_of(np.linspace(-3000, 3000, 160))[0])


# What is measured


def test_a_fall_is_told_from_a_rise_and_a_level_end() -> None:
    ends = {}
    for name, to in (("fall", 100), ("level", 150), ("rise", 230)):
        prosody = Prosody()
        heard(prosody, voice((0.8, 160, 150), (0.3, 150, to)))
        ends[name] = named(prosody)["last fall or rise"]
    assert ends["fall"] < -1 < ends["level"] < 1 < ends["rise"]


def test_the_end_is_measured_against_the_callers_own_range() -> None:
    ends = []
    for factor in (1.0, 1.8):
        prosody = Prosody()
        heard(prosody, voice((1.5, 130 * factor, 180 * factor), (0.4, 150 * factor, 110 * factor)))
        ends.append(named(prosody)["pitch at the end, above the caller's middle, semitones"])
    assert ends[0] == pytest.approx(ends[1], abs=0.4)
    assert ends[0] < -3


def test_a_soft_end_is_noticed_at_any_volume() -> None:
    softer = []
    for dbfs in (-20, -35):
        prosody = Prosody()
        heard(prosody, voice((1.0, 150, 150), dbfs=dbfs))
        heard(prosody, voice((0.06, 150, 150), dbfs=dbfs - 12))
        softer.append(named(prosody)["level of the last 60 ms below the loud syllables, dB"])
    assert softer == pytest.approx([-12, -12], abs=1)


def test_the_last_voiced_stretch_is_measured() -> None:
    prosody = Prosody()
    heard(prosody, voice((0.5, 150, 150)))
    hiss = np.random.default_rng(3).normal(0, 2000, 6 * BLOCK).astype(np.int16)
    heard(prosody, hiss)
    heard(prosody, voice((0.3, 150, 150)))
    measured = named(prosody)
    assert measured["blocks of the last voiced stretch: final syllables are long"] in (13, 14, 15)
    assert measured["blocks without pitch at the end"] == 0


# When something is said


def test_nothing_is_said_during_speech_and_of_too_little() -> None:
    prosody = Prosody()
    assert set(heard(prosody, voice((0.12, 150, 150)))) == {None}
    assert set(heard(prosody, silence(10), voiced=False)) == {None}


def test_nothing_is_said_of_what_has_no_pitch() -> None:
    prosody = Prosody()
    hiss = np.random.default_rng(3).normal(0, 2000, 40 * BLOCK).astype(np.int16)
    heard(prosody, hiss)
    assert set(heard(prosody, silence(10), voiced=False)) == {None}


def test_nothing_is_said_of_whispers_after_speech() -> None:
    prosody = Prosody()
    heard(prosody, voice((1.0, 150, 150)))
    heard(prosody, silence(80), voiced=False)
    hiss = np.random.default_rng(3).normal(0, 2000, 40 * BLOCK).astype(np.int16)
    heard(prosody, hiss)
    assert set(heard(prosody, silence(10), voiced=False)) == {None}


def test_a_silence_has_one_finality_from_its_third_block_on_until_speech() -> None:
    prosody = Prosody()
    heard(prosody, voice((1.0, 160, 100)))
    told = heard(prosody, silence(6), voiced=False)
    assert told[:2] == [None, None]
    assert told[2] is not None
    assert len(set(told[2:])) == 1
    assert heard(prosody, voice((0.02, 150, 150))) == [None]


def test_after_a_long_silence_a_phrase_begins_anew() -> None:
    for blocks_of_silence, anew in ((60, False), (80, True)):
        prosody = Prosody()
        heard(prosody, voice((1.0, 150, 150)))
        heard(prosody, silence(blocks_of_silence), voiced=False)
        heard(prosody, voice((0.5, 150, 150)))
        blocks_heard = round(np.exp(named(prosody)["length of the phrase, log of blocks"]))
        assert blocks_heard == (25 if anew else 75)


def test_a_reset_forgets_the_caller() -> None:
    prosody = Prosody()
    heard(prosody, voice((1.0, 160, 100)))
    prosody.reset()
    assert prosody.features() is None


def test_finality_is_a_probability_whatever_is_measured() -> None:
    for value in (-1e6, 0.0, 1e6):
        assert 0 <= finality_of(np.full(len(FEATURES), value)) <= 1


# On speech


def finalities(*sounds: Pcm) -> list[float]:
    """What the ear tells of the ends of these sounds, said by one caller one after the other."""
    ear = CallerEar(GatedVad(VadConfig(), POOL))
    ends = []
    for pcm in sounds:
        told = [
            ear.receive(block).finality for block in blocks(np.concatenate([silence(30), pcm, silence(10)]))
        ]
        assert told[-1] is not None
        ends.append(told[-1])
    ear.reset()
    return ends


@pytest.mark.parametrize("speaker", ["american", "british"])
def test_ends_sound_more_final_than_first_clauses(say: Callable[..., Pcm], speaker: str) -> None:
    texts = (
        "Good morning, I have come about the apartment.",
        "It will be ready tomorrow afternoon.",
        "The soup was much too hot for me.",
        "Please give this letter to your teacher.",
        "If you want to come with us,",
        "Before you take the bus,",
        "Although nobody had asked him,",
    )
    _, *ends = finalities(*(say(text, speaker) for text in texts))
    assert np.mean(ends[:3]) > 0.6
    assert np.mean(ends[:3]) > np.mean(ends[3:]) + 0.2
