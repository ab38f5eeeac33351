"""From what a caller noted to figures: how soon it was answered, cut in on, yielded to. Sans-I/O.

Times are of the blocks of 20 ms as they were sent and heard, the caller's own buffers included. What is heard
is enough for all but two figures: an utterance split in silence needs the events of the data channel, and
the onset lost needs what the engine was sent.
"""

import json
import math
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from caller import AUDIBLE_DBFS, MISSED_S, STOPPED_S, Take
from corpus import Scene, Utterance

from visavis.actions import Action, CancelResponse, Notify, StartResponse
from visavis.audio import BLOCK, RATE, Pcm
from visavis.events import ResponseCreated

CUT_S = 0.3
"An answer heard shorter than it is by more than this was cut; one so much longer was another."
LEAST_LIKENESS = 0.3
"Correlation below which what the engine was sent is not what was said."


@dataclass(frozen=True, slots=True)
class Asked:
    """One request as the engine saw it."""

    at: float
    "Seconds, of the caller's clock."
    sound: Pcm
    "Of the newest user turn, 24 kHz."


@dataclass
class Verdict:
    """How one scene went. Milliseconds; None: not to be told."""

    scene: Scene
    voice: str
    start_ms: list[float] = field(default_factory=list)
    "Of each utterance that was answered once it was over."
    cut_ins: list[str] = field(default_factory=list)
    "Of each utterance at most one: audible, or split."
    missed_ends: int = 0
    barge_in_ms: float | None = None
    false_barge_in: bool = False
    false_start: bool = False
    "Something was answered that was no speech."
    held: bool = False
    "An answer that was to go on fell silent and then went on."
    aside_answered: bool = False
    "Something that was to be passed over was answered after the answer."
    onset_lost_ms: list[float] = field(default_factory=list)
    unlike: int = 0
    "Utterances of which the engine was sent nothing that is like them."
    utterances: int = 0

    @property
    def faults(self) -> str:
        """What was wrong, in words; empty: nothing."""
        told = [f"cut in ({kind})" for kind in self.cut_ins] + ["missed end"] * self.missed_ends
        told += ["false barge-in"] * self.false_barge_in + ["noise answered"] * self.false_start
        told += ["aside answered"] * self.aside_answered + ["held"] * self.held
        told += [f"{lost:.0f} ms of onset lost" for lost in self.onset_lost_ms if lost >= 1]
        return ", ".join(told)


@dataclass(frozen=True, slots=True)
class Speculation:
    """Requests sent before the end of a turn was sure."""

    hits: int = 0
    wasted: int = 0

    def __add__(self, other: "Speculation") -> "Speculation":
        return Speculation(self.hits + other.hits, self.wasted + other.wasted)


class Drafts:
    """Counts the requests sent before a turn's end was sure, by the actions of one call."""

    def __init__(self) -> None:
        self._open: set[int] = set()
        "Asked for, and not yet told to the client."
        self.speculation = Speculation()
        self._created: set[int] = set()

    def receive(self, action: Action) -> None:
        match action:
            case Notify(ResponseCreated(response_id)):
                self._created.add(response_id)
                if response_id in self._open:
                    self._open.remove(response_id)
                    self.speculation += Speculation(hits=1)
            case StartResponse(response_id) if response_id not in self._created:
                self._open.add(response_id)
            case CancelResponse(response_id) if response_id in self._open:
                self._open.remove(response_id)
                self.speculation += Speculation(wasted=1)
            case _:
                pass


def judge(scene: Scene, voice: str, take: Take, asked: Sequence[Asked] | None = None) -> Verdict:
    """Judge a scene; `asked` are all requests that the engine saw, None where that is not known."""
    verdict = Verdict(scene, voice)
    heard = sounds(take.heard)
    over = take.heard[-1][0] if take.heard else 0.0
    insertion = scene.insertion
    inserted = over
    if insertion is not None and take.insertion_at is not None:
        inserted = take.said(take.insertion_at + insertion.utterance.onset)
    if not scene.answered:
        verdict.false_start = bool(heard)
        return verdict
    _judge_utterance(verdict, scene.utterance, take, take.utterance_at, heard, inserted, asked)
    if insertion is None:
        verdict.false_barge_in = scene.echo is not None and _was_cut(scene, take, heard, 0.0)
    elif take.insertion_at is None:
        verdict.false_barge_in = bool(heard)
    elif insertion.yields:
        stopping = [end for start, end in heard if start <= inserted <= end]
        if stopping:
            verdict.barge_in_ms = 1000 * (stopping[0] - inserted)
        else:  # it had stopped before, or was held
            verdict.false_barge_in = _told_cut(take, 0.0, inserted)
        after = [(start, end) for start, end in heard if start > inserted]
        _judge_utterance(verdict, insertion.utterance, take, take.insertion_at, after, over, asked)
    else:
        verdict.false_barge_in = _was_cut(scene, take, heard, inserted)
        verdict.aside_answered = _seconds(heard) > scene.answer_s + CUT_S
    if scene.echo is not None or (insertion is not None and not insertion.yields):
        verdict.held = len(heard) > 1 and not verdict.false_barge_in and not verdict.aside_answered
    return verdict


def sounds(heard: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Join what was audible, (time, dBFS) of blocks, into (start, end); a silence of `STOPPED_S` parts."""
    found: list[tuple[float, float]] = []
    for at, level in heard:
        if level <= AUDIBLE_DBFS:
            continue
        if found and at - found[-1][1] < STOPPED_S:
            found[-1] = (found[-1][0], at)
        else:
            found.append((at, at))
    return found


def onset_lost_ms(said: Utterance, sent: Pcm) -> float | None:
    """Tell how much of the utterance's beginning is not in what was sent; None if nothing of it is there."""
    size = 1 << (len(said.pcm) + len(sent)).bit_length()
    one, other = said.pcm.astype(np.float64), sent.astype(np.float64)
    products = np.fft.irfft(np.fft.rfft(one, size) * np.conj(np.fft.rfft(other, size)), size)
    lag = int(np.argmax(products))
    if lag > size // 2:
        lag -= size
    # Of the stretch that both have.
    mine, its = one[max(0, lag) :], other[max(0, -lag) :]
    both = min(len(mine), len(its))
    norm = float(np.linalg.norm(mine[:both]) * np.linalg.norm(its[:both]))
    if not norm or products.max() / norm < LEAST_LIKENESS:
        return None
    return max(0, lag - said.onset) * 1000 / RATE


def _judge_utterance(
    verdict: Verdict,
    said: Utterance,
    take: Take,
    at: int,
    heard: Sequence[tuple[float, float]],
    until: float,
    asked: Sequence[Asked] | None,
) -> None:
    """Judge what came between an utterance's onset and `until`."""
    verdict.utterances += 1
    onset, end = take.said(at + said.onset), take.said(at + said.end - 1)
    items = _user_items(take, onset, until)
    if any(start < end and stop >= onset for start, stop in heard):
        verdict.cut_ins.append("audible")
    elif items > 1:
        verdict.cut_ins.append("split")
    answers = [max(start, end) for start, stop in heard if stop >= end and start <= end + MISSED_S]
    if not answers:
        verdict.missed_ends += 1
    elif "audible" not in verdict.cut_ins:
        verdict.start_ms.append(1000 * (answers[0] - end))
    if asked is not None and answers:
        # Of a turn in two pieces, the first has the onset.
        lost = [onset_lost_ms(said, one.sound) for one in asked if onset <= one.at <= answers[0] + 0.1]
        found = [ms for ms in lost if ms is not None]
        if found:
            verdict.onset_lost_ms.append(min(found))
        else:
            verdict.unlike += 1


def _user_items(take: Take, since: float, until: float) -> int:
    """Count what the server made user items of, less what it joined again."""
    ids = set()
    for at, event in take.events:
        if since <= at <= until + 0.05 and event["type"] == "conversation.item.added":
            if event["item"].get("role") == "user":
                ids.add(event["item"]["id"])
        elif event["type"] == "conversation.item.deleted":
            ids.discard(event["item_id"])
    return len(ids)


def _was_cut(scene: Scene, take: Take, heard: Sequence[tuple[float, float]], since: float) -> bool:
    """Tell whether an answer that was to be heard whole was not."""
    return _told_cut(take, since) or (bool(heard) and _seconds(heard) < scene.answer_s - CUT_S)


def _told_cut(take: Take, since: float, until: float = math.inf) -> bool:
    return any(
        event["type"] == "output_audio_buffer.cleared"
        or (event["type"] == "response.done" and event["response"]["status"] == "cancelled")
        for at, event in take.events
        if since <= at <= until
    )


def _seconds(heard: Sequence[tuple[float, float]]) -> float:
    return sum(end - start + BLOCK / RATE for start, end in heard)


# The report


def summary(verdicts: Sequence[Verdict], speculation: Speculation | None) -> dict[str, Any]:
    """Give the figures that the last line of a bench has. Medians of nothing are None."""
    starts = [ms for verdict in verdicts for ms in verdict.start_ms]
    cuts = Counter(kind for verdict in verdicts for kind in verdict.cut_ins)
    lost = [ms for verdict in verdicts for ms in verdict.onset_lost_ms]
    barges = [verdict.barge_in_ms for verdict in verdicts if verdict.barge_in_ms is not None]
    false = Counter(verdict.scene.kind for verdict in verdicts if verdict.false_barge_in)
    told: dict[str, Any] = {
        "start_ms_median": _round(statistics.median(starts)) if starts else None,
        "start_ms_p95": _round(percentile(starts, 95)) if starts else None,
        "cut_ins": cuts.total(),
        "missed_ends": sum(verdict.missed_ends for verdict in verdicts),
        "onset_lost_ms_max": _round(max(lost)) if lost else None,
        "barge_in_ms_median": _round(statistics.median(barges)) if barges else None,
        "false_barge_ins": false.total(),
    }
    if speculation is not None:
        told["speculation"] = {"hits": speculation.hits, "wasted": speculation.wasted}
    return told | {
        "utterances": sum(verdict.utterances for verdict in verdicts),
        "interruptions": sum(verdict.barge_in_ms is not None for verdict in verdicts),
        "barge_in_ms_p95": _round(percentile(barges, 95)) if barges else None,
        "cut_ins_by_kind": dict(cuts),
        "false_barge_ins_by_kind": dict(false),
        "to_be_passed_over": dict(
            Counter(
                verdict.scene.kind
                for verdict in verdicts
                if verdict.scene.kind == "echo"
                or (verdict.scene.insertion is not None and not verdict.scene.insertion.yields)
            )
        ),
        "noises": dict(Counter(verdict.scene.kind for verdict in verdicts if not verdict.scene.answered)),
        "noises_answered": sum(verdict.false_start for verdict in verdicts),
        "answers_held": sum(verdict.held for verdict in verdicts),
        "asides_answered": sum(verdict.aside_answered for verdict in verdicts),
        "unlike": sum(verdict.unlike for verdict in verdicts),
    }


def report(verdicts: Sequence[Verdict], *, every: bool = False) -> list[str]:
    """Give lines for people: figures by kind, then each scene with a fault, or `every` one."""
    lines = [
        f"{'':14}{'scenes':>7}{'start ms: median':>18}{'p95':>6}"
        f"{'cut-ins':>9}{'missed':>8}{'false barge-ins':>17}"
    ]
    for kind in dict.fromkeys(verdict.scene.kind for verdict in verdicts):
        some = [verdict for verdict in verdicts if verdict.scene.kind == kind]
        starts = [ms for verdict in some for ms in verdict.start_ms]
        median, p95 = (
            (f"{statistics.median(starts):.0f}", f"{percentile(starts, 95):.0f}") if starts else ("", "")
        )
        cuts = sum(len(verdict.cut_ins) for verdict in some)
        missed, false = sum(v.missed_ends for v in some), sum(v.false_barge_in for v in some)
        lines.append(f"{kind:14}{len(some):7}{median:>18}{p95:>6}{cuts:9}{missed:8}{false:17}")
    barges = sorted(verdict.barge_in_ms for verdict in verdicts if verdict.barge_in_ms is not None)
    if barges:
        lines.append(
            f"interruption begun → last sound heard: median {statistics.median(barges):.0f} ms, "
            f"{barges[0]:.0f}–{barges[-1]:.0f}, of {len(barges)}"
        )
    for verdict in verdicts:
        if every or verdict.faults:
            delays = " ".join(f"{ms:.0f}" for ms in verdict.start_ms)
            barge = "" if verdict.barge_in_ms is None else f", stopped after {verdict.barge_in_ms:.0f}"
            lines.append(
                f"  {verdict.voice}, {verdict.scene.kind}, {verdict.scene.name}: "
                f"{verdict.faults or 'well'} ({delays or 'no start'} ms{barge})"
            )
    return lines


def last_line(told: dict[str, Any]) -> str:
    return json.dumps(told, separators=(",", ":"))


def percentile(values: Sequence[float], percent: float) -> float:
    return float(np.percentile(values, percent))


def _round(value: float) -> float:
    return round(value, 1)
