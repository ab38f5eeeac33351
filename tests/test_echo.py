"""Our own voice in the microphone is told from the caller's: rooms, delays, loudness, codecs, jitter."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from noises import at_level, echo_of, hiss, mix, music, room

from visavis.audio import BLOCK, RATE, Pcm, decode_wav, resample
from visavis.codecs import OpusDecoder, OpusEncoder
from visavis.config import RtcConfig, TurnConfig, TurnDetection, VadConfig
from visavis.echo import EchoJudge, suppress
from visavis.turns import SpeechStarted, TurnDetector
from visavis.vad import GatedVad, SileroPool

LEVEL_DBFS = -25.5


def syllables(seed: int, seconds: float) -> Pcm:
    """Something with the rhythm, the harmonics and the formants of a voice, and its pauses."""
    rng = np.random.default_rng(seed)
    pieces = [np.zeros(round(0.3 * RATE))]
    while sum(map(len, pieces)) < seconds * RATE:
        time = np.arange(round(rng.uniform(0.12, 0.28) * RATE)) / RATE
        formants = rng.uniform((250, 800, 2_000), (800, 2_200, 3_500))
        if rng.random() < 0.3:
            sound = rng.normal(size=len(time)) * 0.1
            sound[1:] -= 0.9 * sound[:-1]
        else:
            pitch = rng.uniform(100, 220) * (1 + rng.uniform(-0.3, 0.3) * time)
            phase = 2 * np.pi * np.cumsum(pitch) / RATE
            sound = np.zeros(len(time))
            for harmonic in range(1, 40):
                gains = 1 / (1 + ((harmonic * pitch[0] - formants) / (80, 120, 180)) ** 2)
                sound += (gains @ (1, 0.5, 0.25)) * np.sin(harmonic * phase)
        pieces.append(sound * np.sqrt(np.abs(np.sin(np.pi * time / time[-1]))) * rng.uniform(0.5, 1))
        if rng.random() < 0.15:
            pieces.append(np.zeros(round(rng.uniform(0.15, 0.5) * RATE)))
    sound = np.concatenate(pieces)[: round(seconds * RATE)]
    return at_level(np.asarray(np.rint(8_000 * sound / np.abs(sound).max()), np.int16), LEVEL_DBFS)


def blocks(pcm: Pcm) -> Iterator[Pcm]:
    yield from pcm[: len(pcm) // BLOCK * BLOCK].reshape(-1, BLOCK)


def shares(ours: Pcm, mic: Pcm, judge: EchoJudge | None = None, jitter_ms: float = 0) -> list[float]:
    """What is said of each block of the microphone; it arrives up to `jitter_ms` late, never out of order."""
    judge = judge or EchoJudge()
    rng = np.random.default_rng(0)
    played = blocks(ours)
    told: list[float] = []
    next_play = arrival = 0.0
    for number, block in enumerate(blocks(mic)):
        arrival = max(arrival, 20 * number + 10 + rng.uniform(0, jitter_ms))
        while next_play <= arrival and (piece := next(played, None)) is not None:
            judge.play(piece)
            next_play += 20
        told.append(judge.receive(block))
    return told


def microphone(ours: Pcm, gain_db: float, delay_ms: float, seed: int = 1) -> Pcm:
    """The echo in a quiet room."""
    rng = np.random.default_rng(seed)
    return mix(echo_of(ours, gain_db, delay_ms, room(rng, rng.uniform(0.1, 0.35))), quiet(len(ours)))


def quiet(samples: int) -> Pcm:
    return hiss(samples / RATE, np.random.default_rng(9), -62)[:samples]


def loud(mic: Pcm, above_dbfs: float = -45) -> list[bool]:
    return [
        bool(np.square(b.astype(float)).mean() > (32_768 * 10 ** (above_dbfs / 20)) ** 2) for b in blocks(mic)
    ]


OURS, CALLER = syllables(1, 6.0), syllables(2, 1.0)[round(0.3 * RATE) :]


@pytest.mark.parametrize(("gain_db", "delay_ms"), [(-6, 400), (-12, 80), (-20, 20), (-30, 150)])
def test_an_echo_is_ours_from_its_first_sound_on(gain_db: float, delay_ms: float) -> None:
    mic = microphone(OURS, gain_db, delay_ms)
    told = [
        s
        for s, is_loud in zip(
            shares(OURS, mic, jitter_ms=60), loud(mic, max(LEVEL_DBFS + gain_db - 10, -58)), strict=True
        )
        if is_loud
    ]
    assert len(told) > 100
    assert np.mean([share > 0.8 for share in told]) > 0.96
    assert np.mean(told[:10]) > 0.85


@pytest.mark.parametrize("level_db", [0, -5])
def test_a_caller_over_the_echo_is_not_ours(level_db: float) -> None:
    at = 3 * RATE
    mic = microphone(OURS, -12, 120)
    mic[at : at + len(CALLER)] = mix(mic[at : at + len(CALLER)], at_level(CALLER, LEVEL_DBFS + level_db))
    told = shares(OURS, mic)[at // BLOCK :][: len(CALLER) // BLOCK]
    assert min(told[:7]) < 0.5
    assert np.mean([share < 0.5 for share in told]) > 0.65


def test_a_caller_is_not_ours_where_nothing_comes_back() -> None:
    told = shares(
        OURS, mix(np.concatenate([np.zeros(2 * RATE, np.int16), syllables(3, 4.0)]), quiet(6 * RATE))
    )
    assert np.mean([share > 0.5 for share in told]) < 0.1


def test_sound_that_begins_after_ours_is_doubted_shortly_and_once() -> None:
    ours = np.concatenate([np.zeros(RATE // 2, np.int16), OURS])
    other = music(2.0, np.random.default_rng(3), -25)
    at = RATE
    mic = quiet(len(ours))
    mic[at : at + len(other)] = mix(mic[at : at + len(other)], other)
    told = shares(ours, mic)
    begin = at // BLOCK
    assert max(told[:begin]) == 0
    assert sum(share == 1 for share in told[begin : begin + 50]) == 12
    assert max(told[begin + 15 :]) < 0.5
    late = np.roll(mic, 3 * RATE)
    assert max(shares(ours, late)) == 0  # we were not heard for seconds: there is no echo


def test_who_spoke_before_us_is_not_doubted() -> None:
    ours = np.concatenate([np.zeros(RATE, np.int16), OURS[: 2 * RATE]])
    assert max(shares(ours, mix(np.resize(CALLER, 3 * RATE), quiet(3 * RATE)))[:75]) < 0.5


def test_while_nothing_was_played_nothing_is_ours() -> None:
    judge = EchoJudge()
    assert set(shares(np.zeros(0, np.int16), CALLER, judge)) == {0.0}
    shares(OURS[: 2 * RATE], microphone(OURS[: 2 * RATE], -12, 80), judge)
    assert max(shares(np.zeros(2 * RATE, np.int16), quiet(2 * RATE), judge)[-20:]) == 0


def test_the_second_answer_is_known_at_once_and_a_reset_forgets() -> None:
    judge = EchoJudge()
    ours = np.concatenate([OURS[: 3 * RATE], np.zeros(2 * RATE, np.int16), OURS[3 * RATE :]])
    mic = microphone(ours, -12, 100)
    told = shares(ours, mic, judge)
    second = [share for share, yes in list(zip(told, loud(mic), strict=True))[250:] if yes]
    assert np.mean(second[:30]) > 0.9
    judge.reset()
    assert judge.receive(mic[:BLOCK]) == 0


def test_a_new_delay_or_loudness_is_found_within_half_a_second() -> None:
    for changed in (microphone(OURS, -12, 200), microphone(OURS, -4, 100)):
        mic = microphone(OURS, -12, 100)
        at = 3 * RATE
        mic[at:] = changed[at:]
        told = list(zip(shares(OURS, mic), loud(mic), strict=True))[at // BLOCK + 30 :]
        assert np.mean([share > 0.5 for share, yes in told if yes]) > 0.9


def test_an_echo_that_fades_away_no_longer_hides_the_caller() -> None:
    mic = microphone(OURS, -6, 100)
    mic[2 * RATE :] = quiet(len(mic) - 2 * RATE)
    at = 5 * RATE
    mic[at : at + len(CALLER)] = mix(mic[at : at + len(CALLER)], at_level(CALLER, LEVEL_DBFS - 10))[
        : len(mic) - at
    ]
    told = shares(OURS, mic)[at // BLOCK :][: len(CALLER) // BLOCK]
    assert np.mean([share < 0.3 for share in told]) > 0.8


def test_an_echo_that_surprises_is_found_within_a_second() -> None:
    mic = microphone(OURS, -12, 100)
    mic[: 3 * RATE] = quiet(3 * RATE)
    told = list(zip(shares(OURS, mic), loud(mic), strict=True))[4 * RATE // BLOCK :]
    assert np.mean([share > 0.5 for share, yes in told if yes]) > 0.9


def test_a_click_is_too_short_to_tell_an_echo_by() -> None:
    click = np.zeros(3 * RATE, np.int16)
    click[RATE : RATE + BLOCK] = OURS[RATE : RATE + BLOCK]
    heard = mix(echo_of(click, -6, 100, room(np.random.default_rng(1))), quiet(len(click)))
    heard[RATE + 20 * BLOCK :][: len(CALLER)] = CALLER
    told = shares(click, heard)[RATE // BLOCK + 25 :]
    assert max(told[12:]) == 0


def test_silence_that_is_not_played_counts_as_silence() -> None:
    judge = EchoJudge()
    mic = microphone(OURS, -12, 100)
    shares(OURS[: 2 * RATE], mic[: 2 * RATE], judge)
    shares(OURS[:0], quiet(RATE), judge)  # a second without a call of play
    told = list(zip(shares(OURS[2 * RATE :], mic[2 * RATE :], judge), loud(mic[2 * RATE :]), strict=True))
    assert np.mean([share > 0.5 for share, yes in told if yes]) > 0.8


@pytest.mark.parametrize("lost_ms", [300, 2_000])
def test_blocks_of_the_microphone_that_were_lost_do_not_shift_the_echo_for_good(lost_ms: int) -> None:
    judge = EchoJudge()
    mic = microphone(OURS, -12, 100)
    told = []
    for number, (played, heard) in enumerate(zip(blocks(OURS), blocks(mic), strict=True)):
        judge.play(played)
        if not 0 <= 20 * number - 1_000 < lost_ms:
            told.append(judge.receive(heard))
    kept = list(zip(reversed(told), reversed(loud(mic)), strict=False))[:75]
    assert np.mean([share > 0.5 for share, yes in kept if yes]) > 0.9


def test_a_microphone_ahead_of_the_echo_of_a_near_loudspeaker_is_judged() -> None:
    judge = EchoJudge()
    mic = microphone(OURS, -6, 20)
    at = 3 * RATE
    assert shares(OURS[:at], mic[:at], judge)[-1] > 0.8
    told = [judge.receive(block) for block in blocks(mic[at : at + 20 * BLOCK])]  # before ours is played
    assert 0 <= min(told) <= max(told) <= 1


def test_a_microphone_that_comes_in_bursts_is_judged_as_one_that_comes_in_turn() -> None:
    mic = microphone(OURS, -12, 100)
    judge = EchoJudge()
    at = RATE
    told = shares(OURS[:at], mic[:at], judge)
    rest = list(zip(blocks(OURS[at:]), blocks(mic[at:]), strict=True))
    for begin in range(0, len(rest), 20):
        burst = rest[begin : begin + 20]
        for played, _ in burst:
            judge.play(played)
        told += [judge.receive(heard) for _, heard in burst]
    assert told == pytest.approx(shares(OURS, mic))


def test_ours_is_no_speech() -> None:
    assert (suppress(0.9, 0.0), suppress(0.9, 1.0), suppress(0.8, 0.5)) == (0.9, 0.0, 0.4)


# Real voices, with the detectors of speech and of turns

TALK = (
    "Sure. I can see a small wooden table with a cup of coffee and an open notebook on it.",
    "The weather in Lisbon is mild today, about nineteen degrees, with a light breeze from the west.",
    "Well, that depends. If you want to keep it simple, start with the first chapter and skip the rest.",
    "Yes.",
    "I think you are holding a blue pen, but the picture is a little dark. Could you move it closer?",
    "Let me count: one, two, three, four, five, six, seven. There are seven apples in the bowl.",
    "Take two eggs, a cup of flour, and a pinch of salt. Stir until the batter is smooth.",
    "He was born in eighteen seventy nine in the city of Ulm, and moved to Munich as a child.",
)
INTERRUPTIONS = (
    "Wait, stop, that is not what I meant.",
    "No, I asked about the other one.",
    "Hold on a second please.",
)
POOL = SileroPool()


def talk(say: Callable[..., Pcm], seed: int) -> Pcm:
    """About a minute of answers with pauses between them."""
    rng = np.random.default_rng(seed)
    pieces = [np.zeros(RATE, np.int16)]
    for text in TALK * 2:
        pieces += [at_level(say(text), LEVEL_DBFS), np.zeros(round(rng.uniform(0.1, 1.0) * RATE), np.int16)]
    return np.concatenate(pieces)[: 60 * RATE]


def through_opus(pcm: Pcm) -> Pcm:
    encoder, decoder = OpusEncoder(RtcConfig()), OpusDecoder()
    return np.concatenate([decoder.decode(encoder.encode(block)) for block in blocks(pcm)])


def speech_in(mic: Pcm) -> list[float]:
    vad = GatedVad(VadConfig(), POOL)
    told = [vad.receive(block) for block in blocks(mic)]
    vad.reset()
    return told


def starts(speech: list[float], begin: int = 0, end: int | None = None) -> list[int]:
    """Blocks, counted from `begin`, in which speech was found to have started."""
    turns = TurnDetector(TurnConfig(), TurnDetection())
    return [
        number
        for number, probability in enumerate(speech[begin:end])
        for event in turns.receive(number * BLOCK, BLOCK, probability)
        if isinstance(event, SpeechStarted)
    ]


def longest_voiced_ms(speech: list[float]) -> int:
    """The most voiced time that any stretch of speech had."""
    turns = TurnDetector(TurnConfig(), TurnDetection())
    longest = 0
    for number, probability in enumerate(speech):
        turns.receive(number * BLOCK, BLOCK, probability)
        if turns.evidence is not None:
            longest = max(longest, turns.evidence.voiced * 1_000 // RATE)
    return longest


@dataclass(frozen=True)
class Caller:
    at: int
    pcm: Pcm


def callers(say: Callable[..., Pcm], ours: Pcm, rng: np.random.Generator) -> list[Caller]:
    """Interruptions while we speak, 4 s apart or more."""
    found: list[Caller] = []
    for at in range(3 * RATE, len(ours) - 5 * RATE, RATE // 10):
        if (not found or at > found[-1].at + 4 * RATE) and np.std(
            ours[at - RATE // 3 : at].astype(float)
        ) > 600:
            voice = ("american", "german", "british")[len(found) % 3]
            pcm = say(INTERRUPTIONS[int(rng.integers(3))], voice)
            found.append(Caller(at, pcm[np.flatnonzero(np.abs(pcm) > 300)[0] :]))
    return found


@pytest.mark.slow
@pytest.mark.espeak
@pytest.mark.parametrize(
    ("gain_db", "delay_ms"),
    [(gain, delay) for gain in (-6, -20) for delay in (20, 400)]
    + [(gain, delay) for gain in (-12, -30) for delay in (80, 150)],
)
def test_no_echo_interrupts_us_and_callers_still_do(
    say: Callable[..., Pcm], gain_db: float, delay_ms: float
) -> None:
    rng = np.random.default_rng(round(delay_ms - gain_db))
    ours = talk(say, round(delay_ms))
    coded = through_opus if delay_ms in (20, 150) else lambda pcm: pcm
    echo = microphone(ours, gain_db, delay_ms, round(delay_ms))
    mic = coded(echo)
    speech = speech_in(mic)
    assert starts(speech), "an echo that is no speech proves nothing"
    told = list(map(suppress, speech, shares(ours, mic, jitter_ms=60)))
    assert len(starts(told)) <= 1
    assert longest_voiced_ms(told) < TurnConfig().min_voiced_ms, "no barge-in is confirmed"

    heard = callers(say, ours, rng)
    over, alone = echo.copy(), quiet(len(echo))
    for level_db, caller in zip([0, -5, -10] * len(heard), heard, strict=False):
        pcm = at_level(caller.pcm, LEVEL_DBFS + level_db)
        for sound in (over, alone):
            sound[caller.at : caller.at + len(pcm)] = mix(sound[caller.at : caller.at + len(pcm)], pcm)
    over, alone = coded(over), coded(alone)
    with_echo = list(map(suppress, speech_in(over), shares(ours, over, jitter_ms=60)))
    without = speech_in(alone)
    late_ms = []
    for caller in heard:
        begin, end = caller.at // BLOCK, (caller.at + len(caller.pcm)) // BLOCK + 10
        found = starts(with_echo, begin, end)
        late_ms.append(20 * (found[0] - starts(without, begin, end)[0]) if found else 9_999)
    assert len(late_ms) >= 8
    assert np.mean([late <= 100 for late in late_ms]) >= (0.6 if gain_db == -6 else 0.75), late_ms


@pytest.mark.slow
@pytest.mark.people
def test_people_are_heard_over_the_echo(say: Callable[..., Pcm], recordings: dict[Path, str]) -> None:
    ours = talk(say, 5)
    echo = microphone(ours, -12, 120)
    late_ms = []
    for number, path in enumerate(list(recordings)[::2]):
        said = at_level(resample(*decode_wav(path.read_bytes()), RATE)[: 2 * RATE], LEVEL_DBFS - 5)
        at = (4 + 6 * number) * RATE
        over, alone = echo[at - 4 * RATE : at + 3 * RATE].copy(), quiet(7 * RATE)
        for sound in (over, alone):
            sound[4 * RATE : 4 * RATE + len(said)] = mix(sound[4 * RATE : 4 * RATE + len(said)], said)
        told = list(map(suppress, speech_in(over), shares(ours[at - 4 * RATE : at + 3 * RATE], over)))
        begin = 4 * RATE // BLOCK
        late_ms.append(20 * (starts(told, begin)[0] - starts(speech_in(alone), begin)[0]))
    assert np.mean([late <= 100 for late in late_ms]) >= 0.8, late_ms
