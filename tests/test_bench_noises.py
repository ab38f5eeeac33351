"""The sounds of rooms, of which corpora and tests are made, are as loud and as late as they say."""

from collections.abc import Callable

import noises
import numpy as np
import pytest

from visavis.audio import RATE, Pcm, level_dbfs

Rng = np.random.Generator


def rng(seed: int = 1) -> Rng:
    return np.random.default_rng(seed)


def tone(seconds: float = 1.0, level: float = 3_000) -> Pcm:
    return np.rint(level * np.sin(2 * np.pi * 440 * np.arange(round(seconds * RATE)) / RATE)).astype(np.int16)


@pytest.mark.parametrize("noise", [noises.keyboard, noises.traffic, noises.music, noises.hiss])
def test_a_noise_lasts_as_long_as_asked_and_is_the_same_for_the_same_seed(
    noise: Callable[[float, Rng], Pcm],
) -> None:
    sound = noise(1.5, rng())
    assert len(sound) == 1.5 * RATE
    assert np.array_equal(sound, noise(1.5, rng()))
    assert not np.array_equal(sound, noise(1.5, rng(2)))


@pytest.mark.parametrize("noise", [noises.traffic, noises.music])
def test_a_noise_is_as_loud_as_asked(noise: Callable[[float, Rng, float], Pcm]) -> None:
    assert level_dbfs(noise(3.0, rng(), -40.0)) == pytest.approx(-40, abs=0.1)


def test_coughs_are_short_and_differ() -> None:
    source = rng()
    coughs = [noises.cough(source) for _ in range(20)]
    assert all(0.2 < len(cough) / RATE < 1.0 for cough in coughs)
    assert len({len(cough) for cough in coughs}) > 10


def test_voices_from_afar_are_as_loud_as_asked() -> None:
    for away in (noises.far_voice, noises.distant):
        assert level_dbfs(away(tone(), rng())) == pytest.approx(-46, abs=0.1)
    assert level_dbfs(noises.babble([tone()] * 3, 2.0, rng())) == pytest.approx(-38, abs=0.1)


@pytest.mark.parametrize("seconds", [0.1, 0.4])
def test_a_room_falls_silent_in_its_time(seconds: float) -> None:
    response = noises.room(rng(), seconds, direct_db=3)
    assert response[0] == 1
    energy = np.square(response[1:])
    assert 10 * np.log10(energy.sum()) == pytest.approx(-3, abs=0.1)
    fifth = len(energy) // 5
    assert 10 * np.log10(energy[fifth : 2 * fifth].sum() / energy[3 * fifth : 4 * fifth].sum()) > 20


def test_an_echo_is_late_and_weaker_as_asked() -> None:
    played = np.concatenate([tone(0.5), np.zeros(RATE, np.int16)])
    echo = noises.echo_of(played, -12, 150, noises.room(rng()))
    assert len(echo) == len(played)
    assert np.flatnonzero(np.abs(echo) > 50)[0] / RATE == pytest.approx(0.15, abs=0.005)
    assert level_dbfs(echo) == pytest.approx(level_dbfs(played) - 12, abs=0.1)
    assert not noises.echo_of(np.zeros(RATE, np.int16), -6, 20, noises.room(rng())).any()


def test_noise_is_mixed_in_at_the_ratio_to_the_words_alone() -> None:
    speech = np.concatenate([tone(0.5), np.zeros(RATE, np.int16)])
    mixed = noises.mix_at_snr(speech, noises.hiss(2.0, rng()), 10)
    assert len(mixed) == len(speech)
    assert level_dbfs(mixed[RATE:]) == pytest.approx(noises.active_dbfs(speech) - 10, abs=0.3)
    with pytest.raises(ValueError, match="samples of noise"):
        noises.mix_at_snr(speech, noises.hiss(0.1, rng()), 10)


def test_levels_are_of_the_words_without_the_pauses() -> None:
    speech = np.concatenate([tone(0.5), np.zeros(2 * RATE, np.int16)])
    assert noises.active_dbfs(speech) == pytest.approx(level_dbfs(tone()), abs=0.1)
    assert noises.active_dbfs(noises.at_level(speech, -30)) == pytest.approx(-30, abs=0.1)


def test_a_mix_is_clipped_and_as_long_as_the_longest() -> None:
    loud = np.full(100, 30_000, np.int16)
    assert np.array_equal(noises.mix(loud, loud[:50]), [32_767] * 50 + [30_000] * 50)
