from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from visavis.audio import BLOCK, RATE, Pcm, decode_wav, resample
from visavis.config import ConversationConfig, EarConfig, VadConfig
from visavis.ear import CallerEar, caller_ear
from visavis.echo import EchoJudge
from visavis.hush import Hush, band_level
from visavis.vad import GatedVad, SileroPool

POOL = SileroPool()
VOICED = 0.35
"Speech from which a block stays voiced, as in `turns`."


class Told:
    """A detector that says what it is told."""

    def __init__(self) -> None:
        self.probability = 0.0
        self.resets = 0

    def receive(self, pcm: Pcm) -> float:
        return self.probability

    def reset(self) -> None:
        self.resets += 1


class Ours(EchoJudge):
    """An echo judge that says what it is told."""

    def __init__(self) -> None:
        self.share = 0.0
        self.played: list[Pcm] = []

    def play(self, pcm: Pcm) -> None:
        self.played.append(pcm)

    def receive(self, pcm: Pcm) -> float:
        return self.share


def tone(dbfs: float, hertz: float = 1000.0, seconds: float = 0.02) -> Pcm:
    time = np.arange(round(seconds * RATE)) / RATE
    return np.rint(32768 * 10 ** (dbfs / 20) * np.sqrt(2) * np.sin(2 * np.pi * hertz * time)).astype(np.int16)


def hushed(*steps: tuple[int, float, float], hush: Hush | None = None) -> list[bool]:
    """Whether each block is silence, of (blocks, level, probability)."""
    hush = hush or Hush(EarConfig())
    return [hush.receive(level, probability) for count, level, probability in steps for _ in range(count)]


# The level


def test_the_level_is_that_of_the_band_of_speech() -> None:
    assert band_level(tone(-20)) == pytest.approx(-20, abs=0.5)
    assert band_level(tone(-20, hertz=50)) < -60
    assert band_level(tone(-20, hertz=9000)) < -60
    assert band_level(np.zeros(BLOCK, np.int16)) == -100
    assert band_level(np.full(BLOCK, 1, np.int16)) == -100


# Silence after a word


def test_before_any_voice_nothing_is_silence() -> None:
    assert not any(hushed((50, -60, 0.0), (50, -90, 0.3)))


def test_the_room_after_a_voice_is_silence_though_the_detector_lags() -> None:
    assert hushed((50, -60, 0.0), (50, -30, 1.0), (5, -60, 1.0))[-5:] == [True] * 5


def test_weak_syllables_are_no_silence() -> None:
    assert not any(hushed((50, -60, 0.0), (50, -30, 1.0), (5, -54, 1.0)))


def test_in_a_loud_room_its_own_level_is_silence() -> None:
    assert all(hushed((100, -42, 0.0), (50, -30, 1.0), (4, -41, 1.0))[-4:])


def test_where_the_voice_hardly_stands_out_the_detector_alone_tells() -> None:
    assert not any(hushed((100, -34, 0.0), (50, -30, 1.0), (10, -34, 1.0)))


def test_a_detector_that_insists_on_speech_is_believed_in_the_end() -> None:
    assert hushed((100, -42, 0.0), (50, -30, 1.0), (10, -42, 1.0))[-10:] == [True] * 7 + [False] * 3
    assert all(hushed((100, -42, 0.0), (50, -30, 1.0), (10, -42, 0.9))[-10:])


def test_the_floor_follows_a_fan_that_starts() -> None:
    hush = Hush(EarConfig())
    assert hush.floor is None
    hushed((50, -70, 0.0), (50, -45, 0.0), hush=hush)
    assert hush.floor == pytest.approx(-45, abs=1)


def test_noise_that_begins_under_speech_is_found_out() -> None:
    hush = Hush(EarConfig())
    hushed((50, -60, 0.0), (200, -50, 1.0), hush=hush)
    assert hush.floor == pytest.approx(-52, abs=0.5)


def test_the_floor_falls_with_the_room() -> None:
    hush = Hush(EarConfig())
    hushed((50, -40, 0.0), (20, -70, 0.0), hush=hush)
    assert hush.floor == pytest.approx(-70, abs=1)


# The ear


def test_speech_falls_with_the_level_and_is_the_detectors_otherwise() -> None:
    told = Told()
    ear = CallerEar(told)
    quiet = np.zeros(BLOCK, np.int16)
    assert ear.receive(quiet).speech == 0.0
    told.probability = 0.9
    sound = ear.receive(tone(-20))
    assert sound.speech == 0.9
    assert sound.level == pytest.approx(-20, abs=0.1)
    assert ear.receive(quiet).speech == EarConfig().silence


def test_a_reset_forgets_voice_and_room() -> None:
    told = Told()
    ear = CallerEar(told)
    told.probability = 0.9
    ear.receive(tone(-20))
    ear.reset()
    assert told.resets == 1
    assert ear.receive(np.zeros(BLOCK, np.int16)).speech == 0.9


def test_our_own_voice_is_no_speech_and_tells_nothing_of_voice_and_room() -> None:
    told, ours = Told(), Ours()
    ear = CallerEar(told, echo=ours)
    ear.play(tone(-20))
    assert len(ours.played) == 1
    told.probability, ours.share = 0.9, 0.8
    for _ in range(50):
        sound = ear.receive(tone(-10))
    assert sound.speech == pytest.approx(0.9 * 0.2)
    assert sound.echo == 0.8
    ours.share = 0.0
    assert [ear.receive(tone(-50)).speech for _ in range(3)] == [0.9] * 3  # else silence beside that voice


# On speech


def loud(pcm: Pcm, below_peak_db: float) -> np.ndarray:
    """Tell for each whole block whether it is within so many dB of the loudest."""
    power = np.square(pcm[: len(pcm) // BLOCK * BLOCK].astype(float)).reshape(-1, BLOCK).mean(axis=1)
    return power > power.max() / 10 ** (below_peak_db / 10)


class Listened:
    """A detector whose word is kept."""

    def __init__(self) -> None:
        self.vad = GatedVad(VadConfig(), POOL)
        self.said: list[float] = []

    def receive(self, pcm: Pcm) -> float:
        self.said.append(self.vad.receive(pcm))
        return self.said[-1]

    def reset(self) -> None:
        self.vad.reset()


def heard(pcm: Pcm) -> tuple[np.ndarray, np.ndarray]:
    """Tell for each block whether the ear takes it for voiced, and whether the detector alone does."""
    vad = Listened()
    ear = CallerEar(vad)
    speech = [ear.receive(pcm[i : i + BLOCK]).speech for i in range(0, len(pcm) - BLOCK + 1, BLOCK)]
    ear.reset()
    return np.array(speech) >= VOICED, np.array(vad.said) >= VOICED


def test_the_detector_alone_lags(say: Callable[..., Pcm]) -> None:
    silence = np.zeros(RATE, np.int16)
    ear, detector = heard(np.concatenate([silence, say("Is it cold outside?"), silence]))
    assert np.flatnonzero(detector)[-1] - np.flatnonzero(ear)[-1] >= 3


@pytest.mark.parametrize("voice", ["hibari", "american", "german", "deep"])
def test_speech_falls_as_soon_as_the_sound_does(say: Callable[..., Pcm], voice: str) -> None:
    silence = np.zeros(RATE, np.int16)
    sound = np.concatenate([silence, say("Please tell me what you can see.", voice), silence])
    ear, detector = heard(sound)
    last = np.flatnonzero(loud(sound, 30))[-1]
    assert abs(np.flatnonzero(ear)[-1] - last) <= 1
    assert (detector & ~ear & loud(sound, 20)).sum() <= 1


@pytest.mark.people
@pytest.mark.slow
def test_people_are_heard_whole_and_their_ends_at_once_in_a_noisy_room(recordings: dict[Path, str]) -> None:
    rng = np.random.default_rng(3)
    sooner = []
    for path in recordings:
        said = resample(*decode_wav(path.read_bytes()), RATE)
        silence = np.zeros(RATE, np.int16)
        clean = np.concatenate([silence, said, silence])
        noise = rng.normal(0, said.std() / 14, len(clean))
        ear, detector = heard(np.clip(np.rint(clean + noise), -32768, 32767).astype(np.int16))
        strong = loud(clean, 15)
        lost = detector & ~ear & strong
        sooner.append((np.flatnonzero(detector)[-1] - np.flatnonzero(ear)[-1]) * 20)
        assert lost[: np.flatnonzero(ear)[-1]].sum() <= 0.03 * strong.sum(), path.name
        assert np.flatnonzero(ear)[-1] >= np.flatnonzero(strong & detector)[-1] - 5, path.name
    assert np.median(sooner) >= 60


def test_the_ear_of_a_call_has_the_settings_of_the_call() -> None:
    ear = caller_ear(ConversationConfig(), SileroPool())
    assert ear.receive(np.zeros(BLOCK, np.int16)).speech == 0.0
