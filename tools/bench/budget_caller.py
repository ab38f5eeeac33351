"""Call a server again and again as a person would, and tell when what was said and heard: for `budget.py`.

    python tools/bench/budget_caller.py URL [--calls N] [--camera]

Prints a JSON object a call: seconds by name.
"""

import argparse
import asyncio
import itertools
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import av
import numpy as np
from hibari import Hibari

from visavis.audio import BLOCK, Pcm, from_float, level_dbfs
from visavis.config import RtcConfig
from visavis.frames import Frame
from visavis.rtc import Media

LOUD_DBFS, AUDIBLE_DBFS = -40.0, -50.0
PATIENCE_S = 30.0
CAMERA_FPS = 4.0


@dataclass
class Caller:
    """Speaks what it is given and notes when it was loud and when something was heard."""

    to_say: list[Pcm] = field(default_factory=list)
    said_at: list[float] = field(default_factory=list)
    heard_at: list[float] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)

    def say(self, pcm: Pcm) -> None:
        self.to_say += [pcm[at : at + BLOCK] for at in range(0, len(pcm) - BLOCK + 1, BLOCK)]

    def pull_audio(self) -> Pcm:
        block = self.to_say.pop(0) if self.to_say else np.zeros(BLOCK, np.int16)
        if level_dbfs(block) > LOUD_DBFS:
            self.said_at.append(now())
        return block

    def receive_audio(self, pcm: Pcm) -> None:
        if level_dbfs(pcm) > AUDIBLE_DBFS:
            self.heard_at.append(now())

    def receive_message(self, text: str) -> None:
        self.events.append(json.loads(text))

    def got(self, kind: str) -> bool:
        return any(event["type"] == kind for event in self.events)

    def wants_frame(self, at: int, source: str = "camera") -> bool:
        return False

    def receive_frame(self, frame: Frame) -> None: ...

    def channel_opened(self) -> None: ...

    def connected(self) -> None: ...

    def closed(self, reason: str) -> None: ...


def now() -> float:
    return asyncio.get_running_loop().time()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 - conditions of all kinds
            await asyncio.sleep(0.002)


class Film:
    """A camera of 640x480 before which something moves; its pictures are made ahead."""

    def __init__(self) -> None:
        scene = np.random.default_rng(0).integers(0, 255, (60, 80, 3), np.uint8).repeat(8, 0).repeat(8, 1)
        pictures = (av.VideoFrame.from_ndarray(np.roll(scene, 8 * k, 1), "rgb24") for k in range(20))
        self._pictures = itertools.cycle([picture.reformat(format="yuv420p") for picture in pictures])

    async def next_picture(self) -> av.VideoFrame:
        picture = next(self._pictures)
        picture.pts = None
        return picture


async def one_call(
    url: str, http: aiohttp.ClientSession, question: Pcm, objection: Pcm, film: Film | None
) -> dict[str, float]:
    caller = Caller()
    media = Media(RtcConfig())
    await media.open()
    peer = media.caller(caller, film and film.next_picture, CAMERA_FPS)
    try:
        calls, headers = f"{url}/v1/realtime/calls", {"Content-Type": "application/sdp"}
        async with http.post(calls, data=await peer.offer(), headers=headers) as response:
            await peer.accept(await response.text())
        await until(lambda: caller.got("session.created"))
        caller.say(question)
        await until(lambda: caller.got("visavis.turn_timings") and bool(caller.heard_at))
        first = caller.heard_at[0] - caller.said_at[-1]
        spoken, started = len(caller.said_at), now()
        await until(lambda: now() - started > 1.0)
        caller.say(objection)
        await until(lambda: caller.got("output_audio_buffer.cleared"))
        cleared = now()
        await until(lambda: now() > cleared + 0.3)  # for all that was on its way
        onset = caller.said_at[spoken]
        heard = max(at for at in caller.heard_at if at < onset + 1.0)
        return {
            "last word → first sound heard": first,
            "interruption begun → last sound heard": heard - onset,
        }
    finally:
        await peer.aclose()
        await media.aclose()


async def main(url: str, calls: int, *, camera: bool) -> None:
    voice = Hibari(threads=1)
    question, objection = (
        from_float(np.asarray(voice(text), np.float32))
        for text in ("What is the capital of France?", "Stop, please, I have another question.")
    )
    film = Film() if camera else None
    async with aiohttp.ClientSession() as http:
        for _ in range(calls):
            print(json.dumps(await one_call(url, http, question, objection, film)), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Call a server again and again.")
    parser.add_argument("url")
    parser.add_argument("--calls", type=int, default=10)
    parser.add_argument("--camera", action="store_true", help="show something that moves")
    arguments = parser.parse_args()
    asyncio.run(main(arguments.url, arguments.calls, camera=arguments.camera))
