"""The bench's corpus says what is true of its sound, and its judge tells a good scene from a bad one."""

import importlib.util
from dataclasses import replace

import corpus
import numpy as np
import pytest
from caller import EchoPath, ScenePlayer, Take
from corpus import Echo, Insertion, Scene, Utterance, gaps, measured, with_pauses
from measure import Asked, judge, onset_lost_ms, sounds, summary
from noises import active_dbfs

from visavis.audio import BLOCK, RATE, Pcm, level_dbfs

S = RATE
RNG = np.random.default_rng(1)


def words(*lengths_s: float) -> Pcm:
    """Noise of the first length, silence of the next, and so on."""
    loud = [
        RNG.normal(0, 2000, round(length * S)) if k % 2 == 0 else np.zeros(round(length * S))
        for k, length in enumerate(lengths_s)
    ]
    return np.concatenate([np.zeros(S // 2), *loud, np.zeros(S // 2)]).astype(np.int16)


def said(*lengths_s: float) -> Utterance:
    return measured("words", "test", words(*lengths_s))


# The truth of utterances


def test_an_utterance_begins_and_ends_where_its_sound_does() -> None:
    one = said(0.5, 0.1, 0.7)
    assert one.end - one.onset == round(1.3 * S)
    assert one.pcm[one.onset]
    assert one.pcm[one.end - 1]
    assert not one.pcm[: one.onset].any()
    assert not one.pcm[one.end :].any()


def test_a_pause_is_as_long_as_is_said_and_where_it_is_said() -> None:
    for length_ms in (60, 200, 1200):
        paused = with_pauses(said(0.5, 0.1, 0.7), [length_ms])
        ((start, end),) = paused.pauses
        assert end - start == length_ms * S // 1000
        assert not paused.pcm[start:end].any()
        assert paused.pcm[start - 1]
        assert paused.pcm[end]
        assert paused.end - paused.onset == round(1.2 * S) + end - start
        assert paused.pcm[paused.end - 1]


def test_pauses_are_put_into_the_longest_silences() -> None:
    paused = with_pauses(said(0.5, 0.05, 0.5, 0.2, 0.5, 0.1, 0.5), [700, 300])
    lengths = [round((end - start) * 1000 / S) for start, end in paused.pauses]
    assert lengths == [700, 300]
    within = gaps(paused.pcm)[1:-1]
    assert [round((end - start) * 1000 / S) for start, end in within] == [50, 700, 300]


@pytest.mark.skipif(not importlib.util.find_spec("hibari"), reason="no hibari-tts (pip install '.[local]')")
def test_the_corpus_is_the_same_again_and_its_truth_holds() -> None:
    scenes = corpus._synthetic("packaged", 0, seed=4)
    again = corpus._synthetic("packaged", 0, seed=4)
    assert [scene.name for scene in scenes] == [scene.name for scene in again]
    assert {scene.kind for scene in scenes} >= {"pause", "plain", "noise", "echo", "cough", "interruption"}
    for scene, same in zip(scenes, again, strict=True):
        assert scene.background is None or np.array_equal(scene.background, same.background)
        one = scene.utterance
        assert one.onset < one.end <= len(one.pcm)
        for start, end in one.pauses:
            assert one.onset < start < end < one.end
            assert level_dbfs(one.pcm[start:end]) < corpus.LEVEL_DBFS - 15
        if scene.answered:
            assert level_dbfs(one.pcm[one.end :]) < corpus.LEVEL_DBFS - 15
            assert level_dbfs(one.pcm[one.end - corpus.FRAME : one.end]) > -60
    longest = max(end - start for start, end in gaps(corpus.answer_sound()))
    assert longest < 0.15 * S


@pytest.mark.skipif(not importlib.util.find_spec("hibari"), reason="no hibari-tts (pip install '.[local]')")
def test_others_talk_softer_than_the_caller_and_are_not_to_be_answered() -> None:
    one = corpus.speak(corpus.PLAIN[0], "packaged")
    *alone, over = corpus._far(("packaged", "low"), 0, one, seed=4)
    for scene in alone:
        assert not scene.answered
        below_db = corpus.LEVEL_DBFS - active_dbfs(scene.utterance.pcm)
        assert min(abs(below_db - db) for db in corpus.FAR_DB) < 0.5
    assert over.insertion is not None
    assert not over.insertion.yields
    told = summary([judge(scene, "v", take()) for scene in alone], None)
    assert told["noises"] == {"far": 2}


# The caller


def test_an_echo_comes_back_later_and_softer() -> None:
    path = EchoPath(Echo(-20.0, 100.0, seed=3))
    back = []
    for k in range(50):
        path.receive(
            np.full(BLOCK, 8000 if k % 2 else -8000, np.int16) if k < 10 else np.zeros(BLOCK, np.int16)
        )
        back.append(path.next())
    pcm = np.concatenate(back)
    first = int(np.flatnonzero(pcm)[0])
    assert first == S // 10
    echoed = float(np.square(pcm.astype(float)).sum())
    assert 10 * np.log10(echoed / (8000.0**2 * 10 * BLOCK)) == pytest.approx(-20, abs=4)


def test_a_caller_talks_waits_for_the_answer_and_interrupts_it() -> None:
    stop = Insertion(said(0.4), after_s=0.5, yields=True)
    takes, answers = play([Scene("s", "interruption", said(0.6), answer_s=8.0, insertion=stop)])
    (take,) = takes
    assert answers == [8.0, 0.8]
    assert take.insertion_at is not None
    verdict = judge(replace(scene(), insertion=stop, answer_s=8.0), "v", take)
    assert verdict.start_ms == [pytest.approx(300, abs=21), pytest.approx(300, abs=21)]
    assert verdict.barge_in_ms == pytest.approx(200, abs=41)
    assert not verdict.faults


def test_a_caller_gives_up_on_a_server_that_is_silent() -> None:
    takes, _ = play([Scene("s", "plain", said(0.6))] * 2, delay_s=99.0)
    assert [judge(scene(), "v", take).missed_ends for take in takes] == [1, 1]


# The judge


def scene(**changes: object) -> Scene:
    return replace(Scene("s", "plain", said(0.6)), **changes)  # type: ignore[arg-type]


def play(scenes: list[Scene], delay_s: float = 0.3) -> tuple[list[Take], list[float]]:
    """Against a server that answers so long after the last sound, and yields 0.2 s after the next begins."""
    now, answers = 0.0, list[float]()
    player = ScenePlayer(scenes, lambda: now, answers.append)
    loud_at, began_at, until = -99.0, -99.0, 0.0
    while not player.over:
        now += BLOCK / RATE
        loud = level_dbfs(player.pull_audio()) > -40
        if loud:
            began_at = now if now - loud_at > 0.1 else began_at
            loud_at = now
        if 0 < now - loud_at - delay_s < 0.02 + 1e-9:
            until = now + answers[-1]
        if loud and now - began_at >= 0.2:
            until = 0.0
        player.receive_audio(np.full(BLOCK, 1000 if now < until else 0, np.int16))
    return player.takes, answers


def take(*heard: tuple[float, float], insertion_at: int | None = None, length_s: float = 6.0) -> Take:
    """Something heard from … to …, in seconds of a scene whose utterance begins with it."""
    blocks = [k * BLOCK / RATE for k in range(round(length_s * RATE / BLOCK))]
    levels = [(at, -20.0 if any(a <= at < b for a, b in heard) else -90.0) for at in blocks]
    return Take("s", blocks, 0, insertion_at, levels)


def test_the_start_is_counted_from_the_last_word() -> None:
    one = scene()
    verdict = judge(one, "v", take((1.0, 1.8)))
    assert verdict.start_ms == [pytest.approx(1000 * (1.0 - one.utterance.end / S), abs=21)]
    assert not verdict.faults


def test_sound_within_a_pause_is_a_cut_in_and_no_start() -> None:
    paused = with_pauses(said(0.5, 0.1, 0.7), [800])
    verdict = judge(scene(utterance=paused), "v", take((1.0, 1.2), (2.5, 3.3)))
    assert verdict.cut_ins == ["audible"]
    assert not verdict.start_ms


def test_an_utterance_made_two_items_is_split_unless_they_are_joined() -> None:
    one = take((1.0, 1.8))
    one.events = [
        (0.3 + k / 10, {"type": "conversation.item.added", "item": {"id": f"i{k}", "role": "user"}})
        for k in (0, 1)
    ]
    assert judge(scene(), "v", one).cut_ins == ["split"]
    one.events.append((0.5, {"type": "conversation.item.deleted", "item_id": "i0"}))
    assert judge(scene(), "v", one).cut_ins == []


def test_an_answer_cut_by_what_is_no_interruption_is_a_false_barge_in() -> None:
    cough = Insertion(said(0.3), 0.5, yields=False)
    one = scene(kind="cough", answer_s=3.0, insertion=cough)
    assert judge(one, "v", take((1.0, 2.1), insertion_at=2 * S)).false_barge_in
    assert not judge(one, "v", take((1.0, 4.0), insertion_at=2 * S)).faults
    held = judge(one, "v", take((1.0, 2.1), (2.5, 4.4), insertion_at=2 * S))
    assert held.held
    assert not held.false_barge_in
    assert judge(one, "v", take((1.0, 4.0), (4.5, 5.3), insertion_at=2 * S)).aside_answered


def test_noise_that_is_answered_is_told() -> None:
    one = scene(answered=False)
    assert judge(one, "v", take((1.0, 1.8))).false_start
    assert not judge(one, "v", take()).faults


def test_a_short_silence_does_not_part_a_sound() -> None:
    blocks = [(0.00, -20.0), (0.02, -60.0), (0.19, -20.0), (0.40, -20.0)]
    assert sounds(blocks) == [(0.0, 0.19), (0.40, 0.40)]


def test_what_is_lost_of_an_onset_is_found_in_what_the_engine_was_sent() -> None:
    one = said(0.5, 0.1, 0.7)
    lost = S // 10
    assert onset_lost_ms(one, np.concatenate([np.zeros(S // 3, np.int16), one.pcm])) == 0
    assert onset_lost_ms(one, one.pcm[one.onset + lost :]) == pytest.approx(100, abs=0.1)
    assert onset_lost_ms(one, words(1.3)) is None
    verdict = judge(scene(utterance=one), "v", take((2.0, 2.8)), [Asked(1.9, one.pcm[one.onset + lost :])])
    assert verdict.onset_lost_ms == [pytest.approx(100, abs=0.1)]


def test_the_summary_has_the_figures_of_all_scenes() -> None:
    told = summary([judge(scene(), "v", take((1.0, 1.8))), judge(scene(), "v", take((1.1, 1.8)))], None)
    assert told["start_ms_median"] == pytest.approx(1000 * (1.05 - scene().utterance.end / S), abs=21)
    assert (told["cut_ins"], told["missed_ends"], told["false_barge_ins"]) == (0, 0, 0)
