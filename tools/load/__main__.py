"""Load a server with calls, and tell what they hear and what they cost.

    make bench-load                       our server, lean and stock side by side, ten minutes
    tools/bench-load.sh --full            longer, and up to where each breaks
    tools/bench-load.sh --churn 1000      calls that end in every way, and what is left of them
    tools/bench-load.sh --workers 2       one process against two, at what a call costs in each
    tools/bench-load.sh --url http://…    any server that takes an offer at POST /v1/realtime/calls

The last line is one JSON object. In an environment of its own: PYTHONPATH=tools python -m load …
"""

import argparse
import asyncio
import json
import os
import signal
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import figures
from .bench import Progress, Runner, climb_at
from .calls import Kinds
from .churn import churn
from .light import Light
from .line import Exchange
from .plan import BOUNDED, FULL, Plan
from .plot import plot
from .proc import Meter
from .scale import WINDOW_S, Scaling
from .servers import Cores, Speech, make_speech

MOST_LIBWEBRTC = 10
"Callers of libwebrtc at once: one takes 0.02 to 0.03 of a core, and the core is theirs and the engine's."


@dataclass(frozen=True, slots=True)
class Place:
    """Where a run takes things from and leaves them."""

    product: Path
    speech: Speech
    scratch: Path
    out: Path
    cores: Cores

    def kinds(self, exchange: Exchange, most_libwebrtc: int) -> Kinds:
        clips = self.speech.clips("question") + self.speech.clips("interruption")
        return Kinds(exchange, Light(clips), most_libwebrtc)

    def write(self, name: str, told: dict[str, Any]) -> None:
        """Write a report."""
        (self.out / f"{name}.json").write_text(json.dumps(told, indent=1) + "\n")


async def bench(place: Place, plan: Plan, most: int, tell: Progress) -> dict[str, Any]:
    exchange = Exchange()
    kinds = place.kinds(exchange, most)
    runner = Runner(place.product, place.speech, place.scratch, place.cores, plan, tell, exchange, kinds)
    found = await runner.run()
    place.write("load", found.report())
    plot(found.climbs, place.out / "load.png")
    tell.end(f"written: {place.out}/load.json, load.png")
    for name, climb in found.climbs.items():
        bound = ", at least" if climb.is_lower_bound else ""
        why = "" if climb.end is None else f" ({climb.end.why})"
        print(f"{name}: {climb.held} calls with a camera on one core{bound}{why}")
    line = found.line()
    if (line["server_waited"] or 0.0) > figures.DISTURBED:
        print(
            f"Others had the server's core for up to {line['server_waited']:.0%} of the time: measure again."
        )
    return line


async def scale(place: Place, options: argparse.Namespace, tell: Progress) -> dict[str, Any]:
    """Compare one process with several."""
    scaling = Scaling(
        place.product,
        place.speech,
        place.scratch,
        place.kinds(Exchange(), 0),
        options.camera,
        options.workers,
        WINDOW_S * options.scale,
        tell,
    )
    found = await scaling.run()
    place.write("scale", found.report())
    tell.end(f"written: {place.out}/scale.json")
    return found.line()


async def load(place: Place, options: argparse.Namespace, tell: Progress) -> dict[str, Any]:
    """Call a server that runs already."""
    climb = await climb_at(
        place.kinds(Exchange(), options.libwebrtc),
        options.url.rstrip("/"),
        options.key,
        place.speech,
        options.camera,
        options.calls,
        options.seconds,
        Meter(options.pid, options.engine_pid),
        tell,
    )
    place.write("load", climb.figures())
    plot({options.url: climb}, place.out / "load.png")
    tell.end(f"written: {place.out}/load.json, load.png")
    return climb.figures()


def keep_library_quiet(log: Path) -> None:
    """Send what libwebrtc's wrapper writes to standard error to a file; ours goes where it did."""
    own = os.dup(2)
    with log.open("ab") as file:
        os.dup2(file.fileno(), 2)
    sys.stderr = os.fdopen(own, "w", buffering=1)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="load", description=(__doc__ or "").splitlines()[0], epilog="See tools/load/__main__.py."
    )
    parser.add_argument("--full", action="store_true", help="longer, and up to where each backend breaks")
    parser.add_argument("--scale", type=float, default=1.0, help="times as long a measurement")
    parser.add_argument("--churn", type=int, metavar="N", help="make N calls that end in every way")
    parser.add_argument("--backend", default="lean", choices=("lean", "stock"), help="of --churn")
    parser.add_argument("--workers", type=int, metavar="N", help="compare one process with N, a core each")
    parser.add_argument("--url", help="of a server that runs already")
    parser.add_argument("--key", default=os.environ.get("VISAVIS_KEY"), help="of --url")
    parser.add_argument("--calls", type=int, nargs="+", default=list(figures.STEPS), help="steps of --url")
    parser.add_argument("--seconds", type=float, default=20.0, help="of a step of --url")
    parser.add_argument("--camera", default="camera", choices=figures.MODES, help="of --url, --workers")
    parser.add_argument(
        "--libwebrtc", type=int, default=MOST_LIBWEBRTC, help="at most so many; others are light"
    )
    parser.add_argument("--pid", type=int, help="of --url, if it runs here: its CPU and memory are told")
    parser.add_argument("--engine-pid", type=int, help="of its engine, told separately")
    parser.add_argument(
        "--product", type=Path, default=Path(".venv/bin/python"), help="Python that has visavis"
    )
    parser.add_argument("--speech", type=Path, help="WAV files: question-*, interruption-*, answer")
    parser.add_argument("--out", type=Path, default=Path("load-report"), help="folder of the report")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that no server is left behind
    options.out.mkdir(parents=True, exist_ok=True)
    keep_library_quiet(options.out / "libwebrtc.log")
    tell = Progress()
    cores = Cores() if options.url or options.workers else Cores.of_this_machine()
    if not (options.url or options.workers or cores.server):
        print("One core alone: server and callers share it, and the figures are worth little.")
    with tempfile.TemporaryDirectory() as scratch:
        kept = Path(tempfile.gettempdir()) / "visavis-load" / "speech"
        speech = Speech(options.speech) if options.speech else make_speech(options.product, kept)
        # Not .absolute() of the interpreter's target: its link is what makes it an environment.
        place = Place(options.product.absolute(), speech, Path(scratch), options.out, cores)
        cores.pin_callers()
        if options.url:
            run = load(place, options, tell)
        elif options.workers:
            run = scale(place, options, tell)
        elif options.churn:
            run = churn(place.product, options.backend, speech, place.scratch, cores, options.churn, tell)
        else:
            plan = (FULL if options.full else BOUNDED).scaled(options.scale)
            run = bench(place, plan, options.libwebrtc, tell)
        told = asyncio.run(run)
    tell.end("")
    print(figures.last_line(told), flush=True)
    os._exit(0)  # libwebrtc's threads are not waited for


if __name__ == "__main__":
    main()
