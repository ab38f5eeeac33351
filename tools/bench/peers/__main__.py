"""Call our server and its peers with the same scenes, in one run, and compare.

    make bench-peers, or: PYTHONPATH=tools/bench python -m peers [--only NAME ...] [--scale S] [--seed N]

The peers run in environments of their own, `.venv-peers/NAME`, which tools/bench-peers.sh makes. Each server
is a process of its own on loopback, alone while it is called, with a stub engine that answers at once; two
rounds, the second in reverse order. Prints a Markdown table, and as its last line one JSON object.
"""

import argparse
import asyncio
import gc
import os
import platform
import signal
import sys
import time
from collections import Counter
from datetime import date
from pathlib import Path
from typing import Any

from caller import MISSED_S
from corpus import corpus
from measure import report as scene_report

from visavis.audio import RATE

from . import report
from .calling import Result, one_round
from .contestants import CONTESTANTS
from .scenes import choose, halves

BY_DEFAULT = [name for name in CONTESTANTS if name != "pipecat_vad"]
"That one would take it beyond ten minutes."


async def compare(names: list[str], scale: float, seed: int, environments: Path) -> dict[str, dict[str, Any]]:
    """Call all, and give the figures of each by its name."""
    sounds = corpus(seed)
    for lack in sounds.missing:
        print(lack)
    scenes = choose(sounds, RATE, seed, scale)
    print(", ".join(f"{n} {kind}" for kind, n in Counter(scene.kind for scene, _ in scenes).items()))
    results = {name: Result() for name in names}
    gc.freeze()
    for order, part in zip((names, names[::-1]), halves(scenes), strict=True):
        for name in order:
            begun = time.monotonic()
            await one_round(CONTESTANTS[name], part, sounds.answer, environments, results[name])
            print(f"{name}: {len(part)} scenes, {time.monotonic() - begun:.0f} s", flush=True)
    for name, result in results.items():
        print(f"\n{report.TITLES[name]}", *scene_report(result.verdicts), sep="\n")
    return {name: result.figures() for name, result in results.items()}


def machine() -> str:
    """Name the processor, how many of it there are, and how busy they are."""
    model = platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    return f"{os.cpu_count()} × {model}, load {os.getloadavg()[0]:.1f} at the start"


def main() -> None:
    parser = argparse.ArgumentParser(description="Call our server and its peers, and compare.")
    parser.add_argument(
        "--only",
        nargs="+",
        choices=CONTESTANTS,
        default=BY_DEFAULT,
        metavar="NAME",
        help=f"of {', '.join(CONTESTANTS)}; by default {', '.join(BY_DEFAULT)}",
    )
    parser.add_argument("--scale", type=float, default=1.0, help="times the usual number of scenes")
    parser.add_argument("--seed", type=int, default=4)
    parser.add_argument("--environments", type=Path, default=Path(".venv-peers"))
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that no server is left behind
    begun, told = time.monotonic(), machine()
    environments = options.environments.absolute()
    results = asyncio.run(compare(options.only, options.scale, options.seed, environments))
    print(f"\n{report.table(results, MISSED_S)}")
    print(f"\n{date.today():%d %B %Y}, {told}; {time.monotonic() - begun:.0f} s in all.")
    print(report.json_line(results), flush=True)


if __name__ == "__main__":
    main()
