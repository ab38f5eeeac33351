"""Measure turn-taking: when the assistant starts, stops and yields, over the scenes of `corpus.py`.

    python tools/bench/turns.py --simulated [--only KIND ...] [--every] [--first-audio-ms MS]

The last line is one JSON object.
"""

import argparse
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from corpus import Call, corpus
from measure import Speculation, Verdict, judge, last_line, report, summary
from simulate import SimulatedCall

from visavis.audio import Pcm
from visavis.config import Config
from visavis.vad import SileroPool


def simulated(call: Call, answer: Pcm, first_audio_s: float) -> tuple[list[Verdict], Speculation]:
    """Play one call in virtual time."""
    one = SimulatedCall(Config(), SileroPool(), call.scenes, answer, first_audio_s)
    takes = one.run()
    verdicts = [
        judge(scene, call.voice, take, one.asked) for scene, take in zip(call.scenes, takes, strict=True)
    ]
    return verdicts, one.drafts.speculation


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure turn-taking.")
    parser.add_argument("--simulated", action="store_true", help="in virtual time, without a network")
    parser.add_argument("--only", nargs="+", default=(), help="kinds of scenes", metavar="KIND")
    parser.add_argument("--every", action="store_true", help="show every scene, not the faults alone")
    parser.add_argument("--first-audio-ms", type=float, default=0.0, help="of the engine")
    parser.add_argument("--seed", type=int, default=4)
    arguments = parser.parse_args()
    began = time.monotonic()
    material = corpus(arguments.seed, arguments.only)
    for missing in material.missing:
        print(missing)
    play = partial(simulated, answer=material.answer, first_audio_s=arguments.first_audio_ms / 1000)
    with ProcessPoolExecutor(2) as processes:
        results = list(processes.map(play, material.calls))
    verdicts = [verdict for some, _ in results for verdict in some]
    speculation = sum((one for _, one in results), Speculation())
    print(f"{len(verdicts)} scenes in {time.monotonic() - began:.0f} s")
    print("\n".join(report(verdicts, every=arguments.every)))
    print(last_line(summary(verdicts, speculation)))


if __name__ == "__main__":
    main()
