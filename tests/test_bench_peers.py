"""The bench against peers adds up CPU time, tells answers apart by ear, and says what it did not measure."""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from caller import Take
from corpus import Call, Corpus, Echo, Insertion, Scene, Utterance
from measure import Verdict, judge
from peers.by_ear import answer_of, judge_by_ear, tone_begins
from peers.processes import StartError, running, tree_cpu_s
from peers.report import json_line, nothing, table
from peers.scenes import choose, halves

from visavis.audio import BLOCK, RATE, Pcm, level_dbfs

TICKS = os.sysconf("SC_CLK_TCK")
RNG = np.random.default_rng(4)


def figures(**others: Any) -> dict[str, Any]:
    return {
        "start_ms_median": 200.0,
        "start_ms_p95": 300.0,
        "barge_in_ms_median": 150.0,
        "cpu_s_per_call_min": 4.0,
        "utterances": 20,
        "cut_ins": 0,
        "missed_ends": 1,
        "false_barge_ins": 0,
        "disturbances": 4,
        "onset_lost_ms_max": 0.0,
    } | others


# The table and the line


def test_a_peers_figures_are_told_as_multiples_of_ours() -> None:
    results = {"ours": figures(), "floor": figures(start_ms_median=520.0, cpu_s_per_call_min=9.2, cut_ins=3)}
    lines = table(results, 3.0).splitlines()
    assert lines[0] == "| | Visavis | bare aiortc, 320 ms |"
    assert "| last word → first sound, median, ms | 200 | 520 (2.6×) |" in lines
    assert "| answers into a sentence | 0/20 | 3/20 |" in lines
    assert "| sentences without an answer within 3 s | 1/20 | 1/20 |" in lines
    assert "| CPU-s per minute of a call | 4.0 | 9.2 (2.3×) |" in lines


def test_a_figure_that_was_not_seen_is_a_dash_and_has_no_ratio() -> None:
    results = {"ours": figures(barge_in_ms_median=None), "pipecat": figures(onset_lost_ms_max=None)}
    lines = table(results, 3.0).splitlines()
    assert "| interruption → last sound, median, ms | – | 150 |" in lines
    assert "| beginning of a sentence lost, most, ms | 0 | – |" in lines


def test_a_peer_that_could_not_be_called_has_no_column_but_a_reason() -> None:
    results = {"ours": figures(), "fastrtc": nothing() | {"failure": "it did not listen within 60 s"}}
    text = table(results, 3.0)
    assert text.startswith("| | Visavis |\n")
    assert text.endswith("FastRTC: it did not listen within 60 s")


def test_the_line_is_one_object_with_null_for_what_was_not_measured() -> None:
    line = json_line({"fastrtc": nothing() | {"failure": "refused"}, "ours": figures()})
    told = json.loads(line)
    assert "\n" not in line
    assert list(told) == ["ours", "fastrtc"]
    assert told["ours"]["barge_in_ms_median"] == 150.0
    assert told["fastrtc"] == {
        "start_ms_median": None,
        "barge_in_ms_median": None,
        "cpu_s_per_call_min": None,
        "failure": "refused",
    }


# CPU time


def process(proc: Path, pid: int, parent: int, name: str, *ticks: int) -> None:
    """Write the stat of a process: user, system, and the two of children waited for."""
    folder = proc / str(pid)
    folder.mkdir()
    times = " ".join(map(str, ticks))
    (folder / "stat").write_text(f"{pid} ({name}) S {parent} 1 1 0 -1 0 0 0 0 0 {times} 20 0 1 0 5 0 0\n")


def test_the_cpu_time_of_a_server_is_that_of_its_whole_family(tmp_path: Path) -> None:
    process(tmp_path, 10, 1, "server", 100, 20, 3, 4)
    process(tmp_path, 11, 10, "child", 50, 0, 0, 0)
    process(tmp_path, 12, 11, "a) S 1 (b", 7, 0, 0, 0)
    process(tmp_path, 13, 1, "stranger", 1000, 1000, 0, 0)
    assert tree_cpu_s(10, tmp_path) * TICKS == 100 + 20 + 3 + 4 + 50 + 7


def test_a_process_that_is_gone_counts_nothing(tmp_path: Path) -> None:
    process(tmp_path, 13, 1, "stranger", 1000, 1000, 0, 0)
    assert tree_cpu_s(10, tmp_path) == 0


@pytest.mark.slow
async def test_a_server_is_waited_for_and_ended_with_what_it_started(tmp_path: Path) -> None:
    script = (
        "import subprocess, sys; child = subprocess.Popen(['sleep', '600']);"
        "print('loading'); print('at http://127.0.0.1:81', child.pid, file=open(sys.argv[1], 'w'));"
        "print('at http://127.0.0.1:81', flush=True); child.wait()"
    )
    told = tmp_path / "told"
    async with running([sys.executable, "-c", script, str(told)], tmp_path / "log", {}) as server:
        assert server.url == "http://127.0.0.1:81"
        child = int(told.read_text().split()[-1])
        os.kill(child, 0)
    assert _is_gone(server.pid)
    async with asyncio.timeout(30):
        while not _is_gone(child):  # noqa: ASYNC110 - the kernel tells nobody
            await asyncio.sleep(0.01)


@pytest.mark.slow
async def test_a_server_that_ends_at_once_is_told_by_its_last_words(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "raise SystemExit('no such model')"]
    with pytest.raises(StartError, match="ended at once: no such model"):
        async with running(command, tmp_path / "log", {}):
            pass


def _is_gone(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z"


# By ear

SPEECH: Pcm = (RNG.normal(0, 1, (100, BLOCK)) * RNG.uniform(500, 4000, (100, 1))).astype(np.int16).reshape(-1)


def utterance(seconds: float) -> Utterance:
    pcm = SPEECH[: round(seconds * RATE)]
    return Utterance("words", "test", pcm, 0, len(pcm))


def take(scene: Scene, *sounds: tuple[float, Pcm], insertion_s: float | None = None) -> Take:
    """What a caller notes that begins at 0 and hears each sound at its second."""
    heard = np.zeros(12 * RATE, np.int16)
    for at, pcm in sounds:
        heard[round(at * RATE) : round(at * RATE) + len(pcm)] = pcm
    times = np.arange(0, len(heard), BLOCK)
    return Take(
        scene.name,
        said_at=[float(at / RATE) for at in times],
        insertion_at=None if insertion_s is None else round(insertion_s * RATE),
        heard=[(float(at / RATE), level_dbfs(heard[at : at + BLOCK])) for at in times],
    )


def by_ear(scene: Scene, one: Take) -> Verdict:
    return judge_by_ear(scene, "test", one, None)


INTERRUPTED = Scene(
    "stop", "interruption", utterance(1.0), answer_s=8.0, insertion=Insertion(utterance(1.0), 0.5, True)
)
COUGHED = Scene(
    "cough", "cough", utterance(1.0), answer_s=1.5, insertion=Insertion(utterance(0.3), 0.5, False)
)


def test_a_reply_right_after_the_answer_that_it_replaces_is_told_from_it() -> None:
    # Interrupted at 2.0 until 3.0; the answer goes on to 3.5 and the reply follows at once.
    one = take(
        INTERRUPTED, (1.5, np.resize(SPEECH, 2 * RATE)), (3.5, answer_of(0.8, SPEECH)), insertion_s=2.0
    )
    verdict = by_ear(INTERRUPTED, one)
    assert verdict.barge_in_ms == pytest.approx(1500, abs=60)
    assert verdict.start_ms == pytest.approx([520, 520], abs=40)
    assert not verdict.missed_ends


def test_a_reply_after_a_silence_is_left_as_it_was_judged() -> None:
    one = take(INTERRUPTED, (1.5, SPEECH[: RATE * 7 // 10]), (3.3, answer_of(0.8, SPEECH)), insertion_s=2.0)
    judged = judge(INTERRUPTED, "test", one)
    assert by_ear(INTERRUPTED, one) == judged
    assert judged.barge_in_ms == pytest.approx(180, abs=25)


def test_speech_is_no_tone() -> None:
    one = take(INTERRUPTED, (1.5, np.resize(SPEECH, 5 * RATE)), insertion_s=2.0)
    assert tone_begins(one, 0.0) is None


@pytest.mark.parametrize(
    ("sounds", "lost"),
    [
        ([(1.5, 1.5)], False),  # heard to its end
        ([(1.5, 0.7), (2.6, 0.8)], False),  # held, and went on
        ([(1.5, 1.5), (3.6, 1.5)], False),  # heard to its end, and the cough was answered after it
        ([(1.5, 0.7)], True),
        ([(1.5, 0.7), (3.0, 1.5)], True),  # given up, and the cough was answered
        ([(1.5, 2.2)], True),  # the same, without a silence
    ],
)
def test_an_answer_is_lost_where_a_piece_of_one_is_heard(
    sounds: list[tuple[float, float]], lost: bool
) -> None:
    loud = np.resize(SPEECH, 3 * RATE)
    one = take(COUGHED, *((at, loud[: round(length * RATE)]) for at, length in sounds), insertion_s=2.0)
    assert by_ear(COUGHED, one).false_barge_in is lost


def test_an_echo_that_ends_the_answer_is_a_false_barge_in() -> None:
    scene = Scene("echo", "echo", utterance(1.0), answer_s=1.5, echo=Echo(-10.0, 50.0, 1))
    assert by_ear(scene, take(scene, (1.5, SPEECH[: RATE // 2]))).false_barge_in
    assert not by_ear(scene, take(scene, (1.5, np.resize(SPEECH, RATE * 3 // 2)))).false_barge_in


def test_what_still_answers_the_scene_before_cuts_in_on_nobody() -> None:
    scene = Scene("plain", "plain", utterance(1.0))
    late = np.resize(SPEECH, 2 * RATE)
    one = take(scene, (0.3, late[: RATE // 2]), (1.9, late[: RATE // 2]))
    one.utterance_at = RATE // 2  # said from 0.5 to 1.5
    verdict = by_ear(scene, one)
    assert not verdict.cut_ins
    assert verdict.start_ms == pytest.approx([400], abs=40)
    one = take(scene, (0.7, late[: RATE // 2]), (1.9, late[: RATE // 2]))
    one.utterance_at = RATE // 2
    assert by_ear(scene, one).cut_ins == ["audible"]


# The choice of scenes


def scenes(voice: str) -> Call:
    made = [Scene(f"{voice} {k}", "pause", utterance(1.0)) for k in range(9)]
    stops = [Scene(f"{voice} {k}", "interruption", utterance(1.0)) for k in range(9)]
    over_echo = Scene("over echo", "interruption", utterance(1.0), echo=Echo(-10.0, 50.0, 1))
    return Call(voice, (Scene("too long", "pause", utterance(1.9)), over_echo, *made, *stops))


def test_all_servers_are_played_the_same_scenes_of_all_voices() -> None:
    material = Corpus(tuple(map(scenes, "abc")), SPEECH, ())
    chosen = choose(material, RATE // 4, 1)  # at which rate 1.9 s of sound are 7.6
    assert chosen == choose(material, RATE // 4, 1)
    assert {voice for _, voice in chosen} == set("abc")
    assert not {"too long", "over echo"} & {scene.name for scene, _ in chosen}
    kinds = [scene.kind for scene, _ in chosen]
    assert (kinds.count("pause"), kinds.count("interruption")) == (7, 6)


def test_robots_speak_only_what_is_left() -> None:
    material = Corpus((scenes("deep"), scenes("people")), SPEECH, ())
    assert {voice for _, voice in choose(material, RATE // 4, 1)} == {"people"}
    assert {voice for _, voice in choose(material, RATE // 4, 1, 2.0)} == {"people", "deep"}


def test_the_two_rounds_share_the_scenes_evenly() -> None:
    chosen = choose(Corpus(tuple(map(scenes, "abc")), SPEECH, ()), RATE // 4, 1)
    one, other = halves(chosen)
    assert sorted(scene.name for scene, _ in one + other) == sorted(scene.name for scene, _ in chosen)
    assert abs(len(one) - len(other)) <= 1
    for part in (one, other):
        assert sum(scene.kind == "interruption" for scene, _ in part) == 3
