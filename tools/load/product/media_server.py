"""A server that does a call's media and nothing else: `visavis.rtc` alone, with either backend.

    python tools/load/product/media_server.py --backend lean|stock --answer WAV [--onsets FILE] [--port 0]

It sends the sound of the file and as long a silence, in turn, and takes what comes: sound, and 2 pictures a
second, decoded and encoded as for the engine. With --onsets it writes when sound began after silence, in
monotonic seconds, which all processes of a Linux machine share: where `Session.receive_audio` would be told.
Runs in the product's environment. Prints its address.
"""

import argparse
import asyncio
import itertools
import secrets
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
from aiohttp import web

from visavis.audio import BLOCK, RATE, Pcm, decode_wav, resample
from visavis.config import CameraConfig, RtcConfig
from visavis.errors import SignallingError
from visavis.frames import Frame
from visavis.rtc import Media, Peer

LOUD = 2_000
"Of 32768: a click, and nothing of a codec's noise."
QUIET_S = 0.3


class Handler:
    """One call."""

    def __init__(
        self,
        blocks: Iterator[Pcm],
        camera: CameraConfig,
        onset: Callable[[float], None],
        take_frame: Callable[[Frame], None],
    ) -> None:
        self.receive_frame = take_frame
        self._blocks = blocks
        self._every = round(RATE / camera.fps)
        self._picture_at = 0
        self._onset = onset
        self._loud_at = 0.0
        self.over = asyncio.Event()

    def connected(self) -> None: ...

    def pull_audio(self) -> Pcm:
        return next(self._blocks)

    def receive_audio(self, pcm: Pcm) -> None:
        if np.abs(pcm).max(initial=0) < LOUD:
            return
        now = time.monotonic()
        if now - self._loud_at > QUIET_S:
            self._onset(now)
        self._loud_at = now

    def wants_frame(self, at: int, source: str = "camera") -> bool:
        wanted = at >= self._picture_at
        if wanted:
            self._picture_at = at + self._every
        return wanted

    def channel_opened(self) -> None: ...

    def receive_message(self, text: str) -> None: ...

    def closed(self, reason: str) -> None:
        self.over.set()


class Server:
    def __init__(self, media: Media, answer: Pcm, camera: CameraConfig, onset: Callable[[float], None]):
        self._media = media
        self._camera = camera
        self._onset = onset
        blocks = answer[: len(answer) // BLOCK * BLOCK].reshape(-1, BLOCK)
        self._blocks = [*blocks, *np.zeros_like(blocks)]
        self.calls: dict[str, tuple[Peer, Handler, asyncio.Task[None]]] = {}

    def receive_frame(self, frame: Frame) -> None:
        """Take a picture of any call, encoded as for the engine."""

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_post("/v1/realtime/calls", self.create)
        app.router.add_delete("/v1/realtime/calls/{call}", self.end)
        return app

    async def create(self, request: web.Request) -> web.Response:
        handler = Handler(itertools.cycle(self._blocks), self._camera, self._onset, self.receive_frame)
        peer = self._media.peer(handler)
        try:
            answer = await peer.answer(await request.text())
        except SignallingError as error:
            await peer.aclose()
            return web.Response(status=error.status, text=str(error))
        peer.want_video(self._camera.fps)
        call = secrets.token_hex(8)
        self.calls[call] = peer, handler, asyncio.create_task(self._watch(call, peer, handler))
        place = {"Location": f"/v1/realtime/calls/{call}"}
        return web.Response(status=201, text=answer, content_type="application/sdp", headers=place)

    async def end(self, request: web.Request) -> web.Response:
        if (known := self.calls.get(request.match_info["call"])) is not None:
            known[1].over.set()
            await asyncio.wait({known[2]})
        return web.Response()

    async def aclose(self) -> None:
        tasks = [task for _, handler, task in self.calls.values() if not handler.over.set()]
        await asyncio.gather(*tasks)

    async def _watch(self, call: str, peer: Peer, handler: Handler) -> None:
        try:
            await handler.over.wait()
        finally:
            del self.calls[call]
            await peer.aclose()


async def serve(backend: str, answer: Pcm, onsets: Path | None, port: int) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    camera = CameraConfig()
    with open(onsets or "/dev/null", "a", buffering=1) as told:  # noqa: ASYNC230, PTH123 - a line a second

        def onset(at: float) -> None:
            told.write(f"{at:.6f}\n")

        async with Media(RtcConfig(backend=backend), camera) as media:  # type: ignore[arg-type]
            if media.backend != backend:
                sys.exit(f"{backend} cannot be had; see above")
            server = Server(media, answer, camera, onset)
            runner = web.AppRunner(server.app())
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", port).start()
            print(f"at http://127.0.0.1:{runner.addresses[0][1]}", flush=True)
            await stop.wait()
            await server.aclose()
            await runner.cleanup()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="A server that does a call's media and nothing else.")
    parser.add_argument("--backend", choices=("lean", "stock"), default="lean")
    parser.add_argument("--answer", type=Path, required=True)
    parser.add_argument("--onsets", type=Path)
    parser.add_argument("--port", type=int, default=0)
    arguments = parser.parse_args()
    with suppress(KeyboardInterrupt):
        sound = resample(*decode_wav(arguments.answer.read_bytes()), RATE)
        asyncio.run(serve(arguments.backend, sound, arguments.onsets, arguments.port))
