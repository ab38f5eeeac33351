"""The ear and the turn detector together, on sound: speech makes turns, noise makes none."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from visavis.audio import BLOCK, RATE, Pcm, decode_wav, level_dbfs, resample
from visavis.config import NearnessConfig, TurnConfig, TurnDetection, VadConfig
from visavis.ear import CallerEar
from visavis.loudness import Loudness, Nearness
from visavis.turns import (
    FixedSilence,
    Speech,
    SpeechPaused,
    SpeechResumed,
    SpeechStarted,
    SpeechStopped,
    TurnDetector,
    TurnEvent,
)
from visavis.vad import GatedVad, SileroPool

pytestmark = pytest.mark.slow

Sound = NDArray[np.float64]
Rng = np.random.Generator

POOL = SileroPool()
MS = RATE // 1000


def turns_of(sound: Sound, settings: TurnDetection | None = None) -> list[TurnEvent]:
    """What a caller who sends this sound and then silence is taken to have said."""
    pcm = np.clip(np.rint(np.concatenate([sound, pause(1.0)])), -32768, 32767).astype(np.int16)
    ear = CallerEar(GatedVad(VadConfig(), POOL))
    turns = TurnDetector(TurnConfig(), settings or TurnDetection(), FixedSilence)
    events: list[TurnEvent] = []
    for position in range(0, len(pcm) - BLOCK + 1, BLOCK):
        events += turns.receive(position, BLOCK, ear.receive(pcm[position : position + BLOCK]).speech)
    ear.reset()
    return [event for event in events if not isinstance(event, SpeechPaused | SpeechResumed)]


def turns_in(sound: Sound, settings: TurnDetection | None = None) -> list[SpeechStopped]:
    return [event for event in turns_of(sound, settings) if isinstance(event, SpeechStopped)]


def pause(seconds: float) -> Sound:
    return np.zeros(round(seconds * RATE))


def extent(sound: Sound | Pcm, below_peak_db: float) -> tuple[int, int]:
    """First and last 10 ms whose level is within so many dB of the loudest, in samples."""
    step = 10 * MS
    power = np.square(sound[: len(sound) // step * step].astype(float)).reshape(-1, step).mean(axis=1)
    loud = np.flatnonzero(power > power.max() / 10 ** (below_peak_db / 10))
    return int(loud[0]) * step, int(loud[-1] + 1) * step


# Noises, each with an RMS or peak of about 1


def clock(seconds: float) -> Sound:
    return np.arange(round(seconds * RATE)) / RATE


def coloured(rng: Rng, seconds: float, slope: float) -> Sound:
    """Noise whose amplitude falls with frequency to the power of `slope`."""
    frequencies = np.fft.rfftfreq(round(seconds * RATE), 1 / RATE)
    spectrum = rng.normal(size=len(frequencies)) + 1j * rng.normal(size=len(frequencies))
    spectrum /= np.maximum(frequencies, 20) ** slope
    noise = np.fft.irfft(spectrum, round(seconds * RATE))
    return np.asarray(noise / noise.std())


def strokes(rng: Rng, seconds: float, per_second: float, length_s: float) -> Sound:
    """Decaying bursts at random moments."""
    sound = pause(seconds)
    length = round(length_s * RATE)
    for at in rng.integers(0, len(sound) - length, round(per_second * seconds)):
        burst = rng.normal(size=length) * np.exp(-4 * np.arange(length) / length)
        sound[at : at + length] += burst * rng.uniform(0.4, 1)
    return sound


def white(rng: Rng, seconds: float) -> Sound:
    return coloured(rng, seconds, 0)


def rain(rng: Rng, seconds: float) -> Sound:
    return coloured(rng, seconds, 0.5)


def traffic(rng: Rng, seconds: float) -> Sound:
    return coloured(rng, seconds, 1) * (1 + 0.6 * np.sin(2 * np.pi * 0.4 * clock(seconds)))


def hum(rng: Rng, seconds: float) -> Sound:
    time = clock(seconds)
    sound = pause(seconds)
    for harmonic in (1, 2, 3, 5, 7):
        sound += np.sin(2 * np.pi * 50 * harmonic * time + rng.uniform(0, 6)) / harmonic
    return sound


def keyboard(rng: Rng, seconds: float) -> Sound:
    return 2 * strokes(rng, seconds, 7, 0.012)


def applause(rng: Rng, seconds: float) -> Sound:
    return strokes(rng, seconds, 120, 0.02)


def knocks(rng: Rng, seconds: float) -> Sound:
    sound = pause(seconds)
    time = clock(0.12)
    for at in np.arange(0.4, seconds - 0.2, 0.35):
        start = round(at * RATE)
        sound[start : start + len(time)] += 2 * np.sin(2 * np.pi * 140 * time) * np.exp(-40 * time)
    return sound


def coughs(rng: Rng, seconds: float) -> Sound:
    """A burst of breath through an open throat, and a weaker second one."""
    sound = pause(seconds)
    time = clock(0.16)
    throat = np.exp(-300 * clock(0.02)) * np.sin(2 * np.pi * 900 * clock(0.02))
    for at, level in ((0.5, 1.0), (0.75, 0.6)):
        burst = rng.normal(size=len(time)) * np.minimum(1, time / 0.005) * np.exp(-20 * time)
        start = round(at * RATE)
        sound[start : start + len(time)] += level * np.convolve(burst, throat, "same")
    return np.asarray(3 * sound / np.abs(sound).max())


def ringing(rng: Rng, seconds: float) -> Sound:
    time = clock(seconds)
    return (np.sin(2 * np.pi * 440 * time) + np.sin(2 * np.pi * 480 * time)) * (time % 1 < 0.4)


def music(rng: Rng, seconds: float) -> Sound:
    """Plucked chords of four harmonics."""
    sound = pause(seconds)
    for at in np.arange(0, seconds - 0.5, 0.4):
        time = clock(0.5)
        start = round(at * RATE)
        for root in rng.choice([220, 262, 330, 392, 440], 2, replace=False):
            for harmonic in (1, 2, 3, 4):
                tone = np.sin(2 * np.pi * root * harmonic * time) / harmonic
                sound[start : start + len(time)] += tone * np.exp(-6 * time) / 2
    return sound


NOISES = [white, rain, traffic, hum, keyboard, applause, knocks, coughs, ringing, music]


@pytest.mark.parametrize("level", [300, 4000])
@pytest.mark.parametrize("noise", NOISES, ids=lambda noise: noise.__name__)
def test_noise_makes_no_turn(noise: Callable[[Rng, float], Sound], level: float) -> None:
    assert turns_in(level * noise(np.random.default_rng(7), 2.0)) == []


@pytest.mark.parametrize("noise", [keyboard, knocks, coughs], ids=lambda noise: noise.__name__)
def test_clicks_and_coughs_do_not_even_interrupt(noise: Callable[[Rng, float], Sound]) -> None:
    assert turns_of(4000 * noise(np.random.default_rng(8), 2.0)) == []


# Speech


def test_a_spoken_sentence_is_one_turn_with_its_edges(say: Callable[..., Pcm]) -> None:
    rng = np.random.default_rng(3)
    for voice in ("hibari", "german"):
        spoken = say("Please tell me what you can see.", voice)
        first, last = extent(spoken, 30)
        sound = (
            np.concatenate([pause(1.0), spoken])
            + 15 * white(rng, 1.0 + len(spoken) / RATE)[: RATE + len(spoken)]
        )
        (turn,) = turns_in(sound)
        assert RATE + first - 450 * MS < turn.start < RATE + first, voice
        assert abs(RATE + last - turn.end) < 150 * MS, voice


def test_short_answers_are_turns(say: Callable[..., Pcm]) -> None:
    for word in ("Yes.", "No.", "Stop!"):
        assert len(turns_in(np.concatenate([pause(0.5), say(word)]))) == 1, word


@pytest.mark.parametrize(("seconds", "turns"), [(0.3, 1), (0.9, 2)])
def test_a_pause_within_a_turn_is_shorter_than_the_silence_that_ends_it(
    say: Callable[..., Pcm], seconds: float, turns: int
) -> None:
    spoken = say("Good morning everyone.")
    first, last = extent(spoken, 30)
    words = spoken[first:last]
    assert len(turns_in(np.concatenate([pause(0.5), words, pause(seconds), words]))) == turns


@pytest.mark.parametrize("below_db", [18, 24])
def test_a_television_begins_no_turns_between_those_of_the_caller(
    say: Callable[..., Pcm], below_db: float
) -> None:
    caller = [say("Please tell me what you can see.")] * 3 + [say("Is it cold outside?")]
    television = np.concatenate([say("Good morning everyone.", voice) for voice in ("deep", "german")] * 3)
    softer = 10 ** ((level_dbfs(caller[0]) - level_dbfs(television) - below_db) / 20)
    rest = pause(1.5)
    said = [piece for sentence in caller[:3] for piece in (sentence, rest)]
    pcm = np.concatenate([*said, softer * television, rest, caller[3], rest])
    pcm = np.rint(pcm + 3 * white(np.random.default_rng(6), len(pcm) / RATE)[: len(pcm)]).astype(np.int16)
    usual = Loudness()
    ear = CallerEar(GatedVad(VadConfig(), POOL))
    turns = TurnDetector(TurnConfig(), TurnDetection(), near=Nearness(NearnessConfig(), usual))
    starts = []
    for position in range(0, len(pcm) - BLOCK + 1, BLOCK):
        sound = ear.receive(pcm[position : position + BLOCK])
        events = turns.receive(position, BLOCK, sound.speech, level=sound.level)
        starts += [event.at / RATE for event in events if isinstance(event, SpeechStarted)]
        if turns.state is Speech.SPEAKING and turns.voiced:
            usual.note(sound.level)
    ear.reset()
    assert len(starts) == 4
    assert starts[3] > (len(pcm) - len(caller[3]) - len(rest)) / RATE - 0.5


@pytest.mark.people
def test_people_are_heard_whole_in_a_noisy_room(recordings: dict[Path, str]) -> None:
    rng = np.random.default_rng(5)
    for path in list(recordings)[1::5]:
        said = resample(*decode_wav(path.read_bytes()), RATE)
        lead = round(rng.uniform(0.4, 0.6) * RATE)
        for level, noise_db in ((1.0, 20), (0.05, 30)):
            sound = level * np.concatenate([np.zeros(lead), said])
            sound += level * said.std() / 10 ** (noise_db / 20) * rain(rng, len(sound) / RATE)[: len(sound)]
            events = turns_of(sound)
            assert [type(event) for event in events] == [SpeechStarted, SpeechStopped], path.name
            first, last = extent(said, 15)  # some recordings begin with the end of the word before
            turn = events[-1]
            assert isinstance(turn, SpeechStopped)
            assert lead + first - 600 * MS < turn.start < lead + first, path.name
            assert turn.end > lead + last - 50 * MS, path.name
