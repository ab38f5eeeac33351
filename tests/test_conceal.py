import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from visavis.audio import EMPTY, RATE, Pcm, level_dbfs
from visavis.conceal import CROSS_FADE, FADE, Concealer


def voice(hertz: float, samples: int, start: int = 0) -> Pcm:
    """A buzz with harmonics, as of vocal cords."""
    t = (start + np.arange(samples)) / RATE
    return np.rint(sum(5_000 / k * np.sin(2 * np.pi * hertz * k * t) for k in (1, 2, 3))).astype(np.int16)


def steepest(pcm: Pcm) -> int:
    return int(np.abs(np.diff(pcm.astype(int))).max())


def test_audio_without_loss_passes_unchanged() -> None:
    concealer = Concealer()
    for start in range(0, 4_800, 480):
        pcm = voice(200, 480, start)
        assert np.array_equal(concealer.receive(pcm), pcm)


@pytest.mark.parametrize("hertz", [80, 120, 200, 333])
def test_a_hole_in_a_voice_is_filled_in_pitch_and_without_a_click(hertz: float) -> None:
    concealer = Concealer()
    before = concealer.receive(voice(hertz, 2_400))
    made = concealer.conceal(480)
    after = concealer.receive(voice(hertz, 480, 2_880))
    whole = np.concatenate([before, made, after])
    assert steepest(whole) <= 1.1 * steepest(voice(hertz, 4_800))
    wanted = voice(hertz, 480, 2_400).astype(float)
    alike = float(made @ wanted / np.sqrt((made.astype(float) @ made) * (wanted @ wanted)))
    assert alike > 0.9
    assert np.array_equal(after[CROSS_FADE:], voice(hertz, 480, 2_880)[CROSS_FADE:])


def test_a_long_hole_fades_to_silence() -> None:
    concealer = Concealer()
    concealer.receive(voice(150, 2_400))
    made = np.concatenate([concealer.conceal(480) for _ in range(5)])
    levels = [level_dbfs(made[start : start + 480]) for start in range(0, FADE, 480)]
    assert levels == sorted(levels, reverse=True)
    assert not made[FADE:].any()


def test_a_second_loss_starts_afresh() -> None:
    concealer = Concealer()
    concealer.receive(voice(150, 2_400))
    concealer.conceal(2_400)
    concealer.receive(voice(150, 2_400))
    assert level_dbfs(concealer.conceal(240)) == pytest.approx(level_dbfs(voice(150, 240)), abs=3)


def test_a_loss_before_anything_was_heard_is_silence() -> None:
    assert not Concealer().conceal(480).any()


def test_nothing_received_does_not_end_a_hole() -> None:
    concealer = Concealer()
    concealer.receive(voice(150, 2_400))
    first = concealer.conceal(240)
    assert len(concealer.receive(EMPTY)) == 0
    other = Concealer()
    other.receive(voice(150, 2_400))
    assert np.array_equal(np.concatenate([first, concealer.conceal(240)]), other.conceal(480))


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 900)), max_size=20), st.integers(0, 2**32 - 1))
def test_it_makes_as_much_as_asked_and_never_louder_than_what_was_heard(
    steps: list[tuple[bool, int]], seed: int
) -> None:
    noise = np.random.default_rng(seed)
    concealer = Concealer()
    for lost, samples in steps:
        made = (
            concealer.conceal(samples)
            if lost
            else concealer.receive(noise.integers(-9_000, 9_001, samples, np.int16))
        )
        assert made.dtype == np.int16
        assert len(made) == samples
        assert np.abs(made.astype(int), dtype=int).max(initial=0) <= 9_000
