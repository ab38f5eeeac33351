"""Callers for another program: it says how many, and reads what they hear, a JSON object a line.

    PYTHONPATH=tools python -m load.desk URL SPEECH [--camera MODE] [--libwebrtc N]

Each line of standard input is how many callers there shall be. Each line of output is something timed:
`{"name": …, "ms": …}`, with `"failure"` where it went wrong. It ends with its input.
"""

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .calls import Kinds
from .crowd import Address, Crowd, measure
from .figures import MODES, Window
from .film import film
from .light import Light
from .line import Exchange
from .proc import Meter
from .servers import Speech
from .talk import Script

TELL_S = 1.0


async def main(url: str, speech: Speech, mode: str, most_libwebrtc: int) -> None:
    script = Script(speech.clips("question"), speech.clips("interruption"))
    light = Light((*script.questions, *script.interruptions))
    kinds = Kinds(Exchange(), light, most_libwebrtc)
    address = Address(url, os.environ.get("VISAVIS_KEY"))
    async with Crowd(kinds, address, script, None if mode == "audio" else film(mode)) as crowd:
        telling = asyncio.create_task(_tell(crowd))
        try:
            while line := await asyncio.to_thread(sys.stdin.readline):
                await crowd.shrink(int(line))
                await crowd.grow(int(line))
        finally:
            telling.cancel()


async def _tell(crowd: Crowd) -> None:
    while True:
        for one in timed(await measure(crowd, TELL_S, Meter())):
            print(json.dumps(one), flush=True)


def timed(window: Window) -> Iterator[dict[str, Any]]:
    """Give what a window saw, one by one."""
    for name, times in (
        ("POST → answer", window.answered_ms),
        ("POST → connected", window.connected_ms),
        ("POST → first sound", window.first_audio_ms),
        ("last word → first sound", window.start_ms),
        ("interruption → last sound", window.barge_in_ms),
    ):
        for ms in times:
            yield {"name": name, "ms": ms}
    for _ in range(window.failed):
        yield {"name": "POST → answer", "ms": 0.0, "failure": window.failure}
    for _ in range(window.missed):
        yield {"name": "last word → first sound", "ms": 0.0, "failure": "no answer came"}
    if window.gaps:
        yield {"name": "longest gap", "ms": window.gap_ms, "failure": f"{window.gaps} gaps above 60 ms"}
    elif window.sound_s:
        yield {"name": "longest gap", "ms": window.gap_ms}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Callers for another program.")
    parser.add_argument("url")
    parser.add_argument("speech", type=Path)
    parser.add_argument("--camera", default="camera", choices=MODES)
    parser.add_argument("--libwebrtc", type=int, default=10)
    options = parser.parse_args()
    asyncio.run(main(options.url.rstrip("/"), Speech(options.speech), options.camera, options.libwebrtc))
    os._exit(0)  # libwebrtc's threads are not waited for
