"""What a Talker's guard lets through and what it cuts, on made-up sound and on the packaged voice's."""

from collections.abc import Callable, Iterator

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from visavis.audio import RATE, Pcm
from visavis.config import TalkerConfig
from visavis.engine.talker import Fault, TalkerGuard

CONFIG = TalkerConfig()
CHUNK = 7 * RATE // 25
JUDGE_S = 0.2
"Between two looks for repetition."
TEXT = (
    "The weather today is sunny with a light breeze from the west, so it is a good day for a walk. "
    "You could also sit in a café and read a book. Or would you like to meet a friend for lunch?"
)
Say = Callable[..., Pcm]


def syllables(seconds: float, seed: int, pauses: tuple[float, ...] = ()) -> Pcm:
    """Babble that never says the same thing twice; the pauses are digital silence, spread over it."""
    rng = np.random.default_rng(seed)
    parts: list[Pcm] = []
    left = round(seconds * RATE) - round(sum(pauses) * RATE)
    rests = [round(pause * RATE) for pause in pauses]
    while left > 0:
        length = min(left, int(rng.uniform(0.08, 0.3) * RATE))
        time = np.arange(length) / RATE
        sound = np.zeros(length)
        for _ in range(4):
            sound += rng.uniform(0.1, 1) * np.sin(2 * np.pi * rng.uniform(150, 5000) * time)
        parts.append((sound * np.hanning(length) * 4000 + rng.normal(0, 40, length)).astype(np.int16))
        left -= length
        if rests and rng.random() < 0.2:
            parts.append(np.zeros(rests.pop(), np.int16))
    return np.concatenate([*parts, *(np.zeros(rest, np.int16) for rest in rests)])


def chunks(pcm: Pcm, size: int = CHUNK) -> Iterator[Pcm]:
    for at in range(0, len(pcm), size):
        yield pcm[at : at + size]


def heard_of(guard: TalkerGuard, pcm: Pcm, size: int = CHUNK) -> int:
    """Give sound until the guard finds a fault or it ends; return how much it took."""
    taken = 0
    for chunk in chunks(pcm, size):
        guard.receive_audio(chunk)
        taken += len(chunk)
        if guard.fault is not None:
            break
    return taken


@given(
    pace=st.floats(CONFIG.slowest_chars_per_s, CONFIG.fastest_chars_per_s),
    letters=st.integers(4, 160),
    pauses=st.lists(st.floats(0.1, CONFIG.max_silence_s - 0.05), max_size=4),
    sizes=st.lists(st.integers(480, 2 * RATE), min_size=1, max_size=6),
    seed=st.integers(0, 1000),
)
@example(pace=4.0, letters=160, pauses=[], sizes=[480], seed=1)
@example(pace=40.0, letters=400, pauses=[], sizes=[48_000], seed=2)
def test_speech_of_a_human_pace_with_pauses_is_never_cut(
    pace: float, letters: int, pauses: list[float], sizes: list[int], seed: int
) -> None:
    seconds = letters / pace
    kept = []
    for pause in pauses:  # as many as fit beside some speech between them
        if sum(kept) + pause < seconds / 2 and not kept:
            kept.append(pause)
    pcm = syllables(seconds, seed, tuple(kept))
    guard = TalkerGuard(CONFIG)
    guard.receive_text(("words " * letters)[:letters])
    out, at, turn = [], 0, 0
    while at < len(pcm):
        size = sizes[turn % len(sizes)]
        out.append(guard.receive_audio(pcm[at : at + size]))
        at, turn = at + size, turn + 1
    assert guard.finish() is None
    assert np.array_equal(np.concatenate(out), pcm)


@pytest.mark.slow
@pytest.mark.parametrize("voice", ["hibari", "american", "british", "german"])
def test_a_real_voice_is_never_cut(say: Say, voice: str) -> None:
    for text in (
        TEXT,
        "Yes.",
        "One, two, three, four, five, six, seven, eight, nine, ten, eleven, twelve.",
        "No, no, no, no, no. Ha ha ha ha ha ha ha ha. Well, well, well, well.",
        "Row, row, row your boat. Merrily, merrily, merrily, merrily, life is but a dream.",
        "It is 3.14159265, or 1234567890 in 2026.",
    ):
        guard, pcm = TalkerGuard(CONFIG), say(text, voice)
        guard.receive_text(text)
        assert heard_of(guard, pcm) == len(pcm)
        assert guard.finish() is None, text


def test_text_may_come_after_its_sound_within_the_grace() -> None:
    guard, pcm = TalkerGuard(CONFIG), syllables(10, 3)
    for i, chunk in enumerate(chunks(pcm, RATE)):
        assert len(guard.receive_audio(chunk)) == RATE
        if i >= 3:
            guard.receive_text("fifteen letters")
    assert guard.finish() is None


@pytest.mark.parametrize("size", [480, CHUNK, 2 * RATE])
def test_sound_much_longer_than_its_text_is_cut_where_it_must_have_derailed(size: int) -> None:
    guard = TalkerGuard(CONFIG)
    guard.receive_text("This is twenty chars")
    longest = round((20 / CONFIG.slowest_chars_per_s + CONFIG.grace_s) * RATE)
    taken = heard_of(guard, syllables(60, 4), size)
    assert guard.fault is Fault.DERAILED
    assert guard.samples == longest
    assert taken <= longest + size
    assert guard.unspoken() == ""


def test_chinese_and_digits_are_given_their_time() -> None:
    for text, seconds in (("今天天气很好我们去公园散步吧" * 3, 14.0), ("1234567890", 10.0)):
        guard = TalkerGuard(CONFIG)
        guard.receive_text(text)
        pcm = syllables(seconds, 5)
        assert heard_of(guard, pcm) == len(pcm)
        assert guard.finish() is None


@pytest.mark.parametrize("size", [480, CHUNK, 2 * RATE])
def test_long_digital_silence_is_cut_where_it_begins_in_what_has_not_been_passed_on(size: int) -> None:
    guard = TalkerGuard(CONFIG)
    guard.receive_text(TEXT)
    pcm = np.concatenate([syllables(3, 6), np.full(10 * RATE, 20, np.int16)])
    taken = heard_of(guard, pcm, size)
    assert guard.fault is Fault.SILENT
    assert taken <= (3 + CONFIG.max_silence_s) * RATE + size + 480
    assert guard.samples <= taken
    assert TEXT.endswith(guard.unspoken())
    assert guard.unspoken().startswith("The weather today is sunny")


@pytest.mark.parametrize("text", ["Yes.", "Yes, of course I can."])
def test_what_was_said_before_a_silence_at_the_end_is_not_said_again(text: str) -> None:
    guard = TalkerGuard(CONFIG)
    guard.receive_text(text)
    heard_of(guard, np.concatenate([syllables(0.4 + len(text) / 15, 8), np.zeros(5 * RATE, np.int16)]))
    assert guard.fault is Fault.SILENT
    assert guard.unspoken() == ""


def test_sound_that_begins_with_silence_alone_leaves_all_of_the_text() -> None:
    guard = TalkerGuard(CONFIG)
    guard.receive_text(TEXT)
    heard_of(guard, np.zeros(8 * RATE, np.int16))
    assert guard.fault is Fault.SILENT
    assert guard.unspoken() == TEXT


@pytest.mark.parametrize("length_s", [0.3, 0.5, 0.77, 1.0, 1.333, 1.7, 2.0])
@pytest.mark.parametrize("noise", [0, 60])
def test_a_stretch_of_real_speech_again_and_again_is_found(say: Say, length_s: float, noise: int) -> None:
    speech = say(TEXT)
    at, length = 3 * RATE, round(length_s * RATE)
    stretch = speech[at : at + length]
    loop = np.concatenate([speech[:at], *[stretch] * int(12 / length_s)]).astype(np.float64)
    loop += np.random.default_rng(0).normal(0, noise, len(loop))
    guard = TalkerGuard(CONFIG)
    guard.receive_text(TEXT)
    taken = heard_of(guard, loop.astype(np.int16), 480)
    assert guard.fault is Fault.REPEATED
    assert taken - at <= (max(3 * length_s, 4.0) + JUDGE_S + 0.3) * RATE
    assert TEXT.endswith(guard.unspoken())
    assert 0 < len(guard.unspoken()) < len(TEXT)


def test_what_comes_in_one_chunk_with_its_repetitions_is_cut_after_the_first_time(say: Say) -> None:
    speech = say(TEXT)
    loop = np.concatenate([speech[: 3 * RATE], *[speech[2 * RATE : 3 * RATE]] * 6])
    guard = TalkerGuard(CONFIG)
    guard.receive_text(TEXT)
    kept = guard.receive_audio(loop)
    assert guard.fault is Fault.REPEATED
    assert len(kept) / RATE == pytest.approx(3.0, abs=0.3)
    assert len(guard.receive_audio(loop)) == 0


def test_what_the_text_says_three_times_may_be_said_three_times(say: Say) -> None:
    speech = say("Round and round it goes, ")
    text = "Round and round it goes, " * 6
    guard = TalkerGuard(CONFIG)
    guard.receive_text(text)
    pcm = np.concatenate([speech] * 6)
    assert heard_of(guard, pcm) == len(pcm)
    assert guard.finish() is None


@pytest.mark.parametrize("kind", ["tone", "noise", "hum"])
def test_steady_sound_is_no_repetition(kind: str) -> None:
    time = np.arange(12 * RATE) / RATE
    pcm = {
        "tone": 8000 * np.sin(2 * np.pi * 440 * time),
        "noise": np.random.default_rng(1).normal(0, 3000, len(time)),
        "hum": 8000 * np.sign(np.sin(2 * np.pi * 110 * time)),
    }[kind].astype(np.int16)
    guard = TalkerGuard(CONFIG)
    guard.receive_text(TEXT)
    assert heard_of(guard, pcm) == len(pcm)


def test_speech_that_breaks_off_is_found_at_the_end_and_the_sentence_is_begun_again(say: Say) -> None:
    speech = say(TEXT)
    guard = TalkerGuard(CONFIG)
    guard.receive_text(TEXT)
    heard_of(guard, speech[: 2 * RATE])
    assert guard.fault is None
    assert guard.finish() is Fault.TRUNCATED
    assert guard.unspoken() == TEXT
    longer = TEXT * 3
    guard = TalkerGuard(CONFIG)
    guard.receive_text(longer)
    first = say(TEXT.partition(", so")[0])
    heard_of(guard, first)
    assert guard.finish() is Fault.TRUNCATED
    assert longer.endswith(guard.unspoken())
    assert guard.unspoken().startswith("so it is a good day")


def test_signs_and_pictures_need_no_sound() -> None:
    guard = TalkerGuard(CONFIG)
    guard.receive_text("Yes! " + "😀🎉" * 100 + "*" * 200)
    guard.receive_audio(syllables(0.5, 7))
    assert guard.finish() is None


def test_an_answer_without_sound_is_another_matter() -> None:
    guard = TalkerGuard(CONFIG)
    guard.receive_text(TEXT)
    assert guard.finish() is None
    assert guard.unspoken() == TEXT


def test_switched_off_it_judges_nothing() -> None:
    guard = TalkerGuard(TalkerConfig(guard=False))
    guard.receive_text(TEXT)
    pcm = np.zeros(60 * RATE, np.int16)
    assert heard_of(guard, pcm) == guard.samples == len(pcm)
    assert guard.finish() is None


def test_how_sound_is_cut_into_chunks_changes_no_judgement(say: Say) -> None:
    speech = say(TEXT)
    loop = np.concatenate([speech[: 3 * RATE], *[speech[2 * RATE : 3 * RATE]] * 6])
    found = set()
    for size in (480, 1000, CHUNK, 3 * RATE):
        guard = TalkerGuard(CONFIG)
        guard.receive_text(TEXT)
        heard_of(guard, loop, size)
        found.add((guard.fault, guard.unspoken()))
    assert len(found) == 1
