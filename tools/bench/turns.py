"""Measure turn-taking: when the assistant starts, stops and yields, over the scenes of `corpus.py`.

    python tools/bench/turns.py [--simulated] [--only KIND ...] [--voices VOICE ...] [--every]

Callers in processes of their own play the scenes over WebRTC on the loopback interface; the engine, another,
answers at once behind the product's client. Then what is asked and answered plainly is played again with an
engine whose first sound takes 234 ms, as Qwen3-Omni's does. `--simulated` plays all in virtual time instead,
with the same ear and conversation and no network, in a tenth of the time.

Kinds: plain, pause, noise, cough, echo, backchannel, keyboard, interruption, far. Last line: one JSON object.
"""

import argparse
import asyncio
import multiprocessing
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial

from corpus import Call, Corpus, corpus
from lanes import play_over_loopback
from measure import Speculation, Verdict, last_line, percentile, report, summary
from simulate import play_in_virtual_time

from visavis.heap import restart_on_huge_pages

FIRST_AUDIO_MS = 234.0
"Of Qwen3-Omni, by its authors: end of the input to the first packet of sound."


def play(material: Corpus, first_audio_s: float, *, simulated: bool) -> tuple[list[Verdict], Speculation]:
    """Play all calls and judge them."""
    if not simulated:
        return asyncio.run(play_over_loopback(material, first_audio_s))
    one = partial(play_in_virtual_time, answer=material.answer, first_audio_s=first_audio_s)
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as processes:
        results = list(processes.map(one, material.calls))
    return [verdict for some, _ in results for verdict in some], sum(
        (one for _, one in results), Speculation()
    )


def voice_to_voice(material: Corpus, *, simulated: bool) -> dict[str, float]:
    """Tell what is heard how soon with an engine that takes its time."""
    verdicts, speculation = play(material, FIRST_AUDIO_MS / 1000, simulated=simulated)
    starts = [ms for verdict in verdicts for ms in verdict.start_ms]
    return {
        "first_audio_ms": FIRST_AUDIO_MS,
        "median_ms": round(percentile(starts, 50), 1),
        "p95_ms": round(percentile(starts, 95), 1),
        "utterances": len(starts),
        "hits": speculation.hits,
        "wasted": speculation.wasted,
    }


def chosen(material: Corpus, kinds: Sequence[str], voices: Sequence[str]) -> Corpus:
    """Keep the scenes of some kinds and the calls of some voices; of all where none is named."""
    calls = (
        Call(call.voice, tuple(scene for scene in call.scenes if not kinds or scene.kind in kinds))
        for call in material.calls
        if not voices or call.voice in voices
    )
    return replace(material, calls=tuple(call for call in calls if call.scenes))


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure turn-taking.")
    parser.add_argument("--simulated", action="store_true", help="in virtual time, without a network")
    parser.add_argument("--only", nargs="+", default=(), help="kinds of scenes", metavar="KIND")
    parser.add_argument("--voices", nargs="+", default=(), help="who calls", metavar="VOICE")
    parser.add_argument("--every", action="store_true", help="show every scene, not the faults alone")
    parser.add_argument("--voice-to-voice", action="store_true", help="in virtual time too")
    parser.add_argument("--seed", type=int, default=4)
    arguments = parser.parse_args()
    began = time.monotonic()
    everything = corpus(arguments.seed)
    for missing in everything.missing:
        print(missing)
    material = chosen(everything, arguments.only, arguments.voices)
    verdicts, speculation = play(material, 0.0, simulated=arguments.simulated)
    told = summary(verdicts, speculation)
    plain = chosen(material, ["plain"], ())
    if plain.calls and (arguments.voice_to_voice or not arguments.simulated):
        told["voice_to_voice"] = voice_to_voice(plain, simulated=arguments.simulated)
    print(f"{len(verdicts)} scenes, {told['utterances']} utterances; {time.monotonic() - began:.0f} s")
    print("\n".join(report(verdicts, every=arguments.every)))
    print(last_line(told))


if __name__ == "__main__":
    restart_on_huge_pages()  # as `visavis serve` does
    main()
