"""A caller of a load run asks, hears out or interrupts, and tells what came when."""

import wave
from io import BytesIO

import numpy as np
import pytest
from load.clips import BLOCK, LEVEL_DBFS, RATE, Clip, make_clip, read_clip
from load.talk import MISSED_S, Script, Talk

TICK = 0.02


def clip(name: str, blocks: int = 30, onset: int = 2, end: int = 28) -> Clip:
    return Clip(name, tuple(f"{name}{k}".encode() for k in range(blocks)), onset, end)


QUESTION, STOP = clip("question"), clip("stop", blocks=40, onset=3, end=37)


class Room:
    """Lets a talk go on in virtual time, against an assistant that is told when to sound."""

    def __init__(self, script: Script, seed: int = 1) -> None:
        self.now = 100.0
        self.talk = Talk(script, seed, self.now)
        self.said: list[tuple[float, bytes]] = []

    def pass_blocks(self, count: int, *, sounds: bool = False) -> None:
        for _ in range(count):
            if sounds:
                self.talk.hear(self.now)
            block = self.talk.next_block(self.now)
            if block is not None:
                self.said.append((self.now, block))
            self.now += TICK

    def until_said(self, block: bytes, *, sounds: bool = False) -> float:
        for _ in range(2_000):
            self.pass_blocks(1, sounds=sounds)
            if self.said and self.said[-1][1] == block:
                return self.said[-1][0]
        raise AssertionError(f"{block!r} was not said")


def script(**others: object) -> Script:
    return Script((QUESTION,), think_s=(1.0, 1.0), **others)  # type: ignore[arg-type]


def test_a_question_is_said_whole_after_a_while_of_silence() -> None:
    room = Room(script())
    room.until_said(QUESTION.blocks[-1])
    assert [block for _, block in room.said] == list(QUESTION.blocks)
    assert room.said[0][0] >= 100.5


def test_the_start_is_told_from_the_last_word_and_not_from_the_silence_after_it() -> None:
    room = Room(script())
    last_word = room.until_said(QUESTION.blocks[QUESTION.end - 1])
    room.pass_blocks(10)
    began = room.now
    room.pass_blocks(50, sounds=True)
    assert room.talk.heard.start_ms == [pytest.approx(1000 * (began - last_word))]
    assert room.talk.heard.missed == 0


def test_an_answer_that_comes_with_the_silence_at_the_end_of_the_recording_is_in_time() -> None:
    late = Room(Script((clip("question", blocks=60),), think_s=(1.0, 1.0)))
    last_word = late.until_said(b"question27")
    late.pass_blocks(5)
    began = late.now
    late.pass_blocks(60, sounds=True)
    assert late.talk.heard.start_ms == [pytest.approx(1000 * (began - last_word))]
    assert late.talk.heard.cut_in == 0


def test_an_answer_into_the_question_is_told() -> None:
    room = Room(script())
    room.until_said(QUESTION.blocks[10])
    room.pass_blocks(60, sounds=True)
    assert room.talk.heard.cut_in == 1
    assert room.talk.heard.start_ms == []


def test_the_end_of_the_answer_before_is_no_answer() -> None:
    room = Room(script())
    room.until_said(QUESTION.blocks[0])
    room.talk.hear(room.now - 0.3)
    room.pass_blocks(round(5.5 / TICK))
    assert room.talk.heard.cut_in == 0
    assert room.talk.heard.missed == 1


def test_after_an_answer_that_never_comes_the_next_question_is_asked() -> None:
    room = Room(script())
    room.until_said(QUESTION.blocks[-1])
    room.pass_blocks(round((MISSED_S + 1.5) / TICK))
    assert room.talk.heard.missed == 1
    assert len(room.said) > len(QUESTION.blocks)


def test_the_next_question_waits_for_the_end_of_the_answer_and_the_thinking() -> None:
    room = Room(script())
    room.until_said(QUESTION.blocks[-1])
    room.pass_blocks(200, sounds=True)
    assert len(room.said) == len(QUESTION.blocks)
    ended = room.now
    again = room.until_said(QUESTION.blocks[0])
    assert again - ended >= 1.5
    assert room.talk.heard.missed == 0


def test_an_interruption_is_timed_to_the_last_sound_and_its_answer_is_a_start() -> None:
    room = Room(script(interruptions=(STOP,), interrupts=1.0))
    room.until_said(QUESTION.blocks[-1])
    first_word = room.until_said(STOP.blocks[STOP.onset], sounds=True)
    room.pass_blocks(8, sounds=True)
    last_sound = room.now - TICK
    last_word = room.until_said(STOP.blocks[STOP.end - 1])
    room.pass_blocks(10)
    began = room.now
    room.pass_blocks(30, sounds=True)
    heard = room.talk.heard
    assert heard.barge_in_ms == [pytest.approx(1000 * (last_sound - first_word))]
    assert heard.start_ms[1:] == [pytest.approx(1000 * (began - last_word))]
    assert heard.not_yielded == 0


def test_an_assistant_who_goes_on_over_an_interruption_is_told() -> None:
    room = Room(script(interruptions=(STOP,), interrupts=1.0))
    room.until_said(QUESTION.blocks[-1])
    room.until_said(STOP.blocks[-1], sounds=True)
    room.pass_blocks(5, sounds=True)
    assert room.talk.heard.not_yielded == 1
    assert room.talk.heard.barge_in_ms == []


def test_an_answer_that_ends_as_it_is_interrupted_is_neither() -> None:
    room = Room(script(interruptions=(STOP,), interrupts=1.0))
    room.until_said(QUESTION.blocks[-1])
    room.until_said(STOP.blocks[0], sounds=True)
    room.until_said(STOP.blocks[-1])
    room.pass_blocks(2)
    assert room.talk.heard.not_yielded == 0
    assert room.talk.heard.barge_in_ms == []


def test_where_nobody_answers_one_question_follows_the_other() -> None:
    room = Room(script(waits=False))
    room.pass_blocks(round(10 / TICK))
    assert len(room.said) >= 4 * len(QUESTION.blocks)
    assert room.talk.heard.missed == 0


def test_callers_differ_by_their_seed_alone() -> None:
    def beginning(seed: int) -> float:
        room = Room(Script((QUESTION,)), seed)
        return room.until_said(QUESTION.blocks[0])

    assert beginning(1) == beginning(1)
    assert len({beginning(seed) for seed in range(8)}) == 8


# Clips


def wav(samples: np.ndarray, rate: int = RATE, channels: int = 1, width: int = 2) -> bytes:
    data = BytesIO()
    with wave.open(data, "wb") as file:
        file.setparams((channels, width, rate, 0, "NONE", ""))
        file.writeframes(samples.astype({1: "u1", 2: "<i2"}[width]).tobytes())
    return data.getvalue()


def speech(seconds: float = 0.5, rate: int = RATE, amplitude: float = 3_000.0) -> np.ndarray:
    voice = amplitude * np.sin(2 * np.pi * 200 * np.arange(round(seconds * rate)) / rate)
    silence = np.zeros(round(0.1 * rate))
    return np.concatenate([silence, voice, silence])


def test_a_clip_knows_where_its_voice_is() -> None:
    told = make_clip("one", speech())
    assert (told.onset, told.end, len(told.blocks)) == (5, 30, 35)
    assert {len(block) for block in told.blocks} == {2 * BLOCK}


def test_clips_are_equally_loud() -> None:
    for amplitude in (100.0, 20_000.0):
        told = make_clip("one", speech(amplitude=amplitude))
        voice = np.frombuffer(b"".join(told.blocks[told.onset : told.end]), "<i2") / 32_768
        assert 10 * np.log10(np.square(voice).mean()) == pytest.approx(LEVEL_DBFS, abs=0.1)


def test_any_rate_and_stereo_are_read() -> None:
    told = read_clip("one", wav(np.repeat(speech(rate=16_000), 2), 16_000, channels=2))
    assert (told.onset, told.end, len(told.blocks)) == (5, 30, 35)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"RIFF", "no WAV file"),
        (wav(np.full(4_800, 128), width=1), "8 bits a sample"),
        (wav(np.zeros(4_800)), "silent"),
    ],
)
def test_a_file_that_is_no_use_is_refused_in_words(data: bytes, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        read_clip("one", data)
