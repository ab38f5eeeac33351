"""What sound alone tells of servers that send no events, which `measure.judge` relies on. Sans-I/O.

Such a server may give up an answer and begin another at once, with no silence between. So answers as short
as the one to an interruption are a tone, told from speech by its steady level; and of an answer that must be
heard whole, what was heard must be whole answers.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
from caller import AUDIBLE_DBFS, SHORT_ANSWER_S, Take
from corpus import Scene
from measure import CUT_S, Asked, Verdict, judge, sounds

from visavis.audio import BLOCK, RATE, SILENCE_DBFS, Pcm

BLOCK_S = BLOCK / RATE
TONE_DBFS, TONE_HZ = -26.0, 700.0
STEADY_DB, STEADY_BLOCKS = 1.0, 15
"Speech does not keep its level for 300 ms."
EDGE_S = 0.03
"By which the codec smears the beginning of the tone."


def answer_of(seconds: float, speech: Pcm) -> Pcm:
    """Give what an engine answers with: a tone for short answers, speech for others."""
    count = round(seconds * RATE)
    if seconds > SHORT_ANSWER_S:
        return speech[:count]
    amplitude = 32_768 * np.sqrt(2) * 10 ** (TONE_DBFS / 20)
    return np.rint(amplitude * np.sin(2 * np.pi * TONE_HZ / RATE * np.arange(count))).astype(np.int16)


def judge_by_ear(scene: Scene, voice: str, take: Take, asked: Sequence[Asked] | None) -> Verdict:
    """Judge a scene and put right what cannot be seen in silences; the same for all servers."""
    onset = take.said(take.utterance_at + scene.utterance.onset)
    take = replace(take, heard=_without_leftover(take.heard, onset))
    verdict = judge(scene, voice, take, asked)
    insertion = scene.insertion
    if insertion is not None and insertion.yields and take.insertion_at is not None:
        _correct_barge_in(verdict, scene, take, take.insertion_at)
    elif scene.echo is not None or (insertion is not None and take.insertion_at is not None):
        verdict.false_barge_in |= not _is_whole(take, scene.answer_s)
    return verdict


def _without_leftover(heard: list[tuple[float, float]], onset: float) -> list[tuple[float, float]]:
    """Silence what began before the scene's first word: it answers something of the scene before."""
    left = [(start, stop) for start, stop in sounds(heard) if start < onset]
    return [
        (at, SILENCE_DBFS if any(start <= at <= stop for start, stop in left) else level)
        for at, level in heard
    ]


def _correct_barge_in(verdict: Verdict, scene: Scene, take: Take, at: int) -> None:
    """Where the reply followed on the answer without a silence, tell the one from the other."""
    assert scene.insertion is not None
    said = scene.insertion.utterance
    onset, end = take.said(at + said.onset), take.said(at + said.end - 1)
    reply = tone_begins(take, onset)
    if reply is None or verdict.barge_in_ms is None or onset + verdict.barge_in_ms / 1000 < reply:
        return
    before = [when for when, level in take.heard if level > AUDIBLE_DBFS and when < reply - EDGE_S]
    verdict.barge_in_ms = 1000 * max(0.0, before[-1] - onset)
    verdict.missed_ends = max(0, verdict.missed_ends - 1)
    if reply >= end:
        verdict.start_ms.append(1000 * (reply - end))
    else:
        verdict.cut_ins.append("audible")


def tone_begins(take: Take, since: float) -> float | None:
    """Tell when the first tone after a time was heard; None without one."""
    run: list[float] = []
    blocks = [(when, level) for when, level in take.heard if when > since]
    for (_, before), (when, level) in pairwise(blocks):
        steady = level > AUDIBLE_DBFS and abs(level - before) < STEADY_DB
        run = [*run, when] if steady else []
        if len(run) == STEADY_BLOCKS:
            return run[0] - 2 * BLOCK_S  # the first block is the tone's in part, the second follows no equal
    return None


def _is_whole(take: Take, answer_s: float) -> bool:
    """Tell whether what was heard is one answer, or some, and no piece of one."""
    heard_s = sum(stop - start + BLOCK_S for start, stop in sounds(take.heard))
    if not heard_s:
        return True  # it is a missed end
    return abs(heard_s - max(1, round(heard_s / answer_s)) * answer_s) <= CUT_S
