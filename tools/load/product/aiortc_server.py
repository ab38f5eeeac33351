"""A call's media on aiortc as its documentation has it: what `ratio_to_stock` compares with.

    python tools/load/product/aiortc_server.py --answer WAV [--port 0]

It does what `media_server.py` does: sends the sound of the file and as long a silence in turn, brings what it
hears to 24 kHz mono, and makes JPEGs of 2 pictures a second. Runs in the product's environment.
"""

import argparse
import asyncio
import fractions
import itertools
import secrets
import signal
from pathlib import Path

import av
import numpy as np
from aiohttp import web
from aiortc import MediaStreamTrack, RTCConfiguration, RTCPeerConnection, RTCSessionDescription
from aiortc.mediastreams import MediaStreamError

from visavis.audio import BLOCK, RATE, Pcm, decode_wav, resample
from visavis.clip import encode_jpeg

FPS = 2.0


class Voice(MediaStreamTrack):
    """Plays blocks over and over, 20 ms each."""

    kind = "audio"

    def __init__(self, blocks: list[Pcm]) -> None:
        super().__init__()
        self._blocks = itertools.cycle(blocks)
        self._began = asyncio.get_running_loop().time()
        self._number = 0

    async def recv(self) -> av.AudioFrame:
        due = self._began + self._number * BLOCK / RATE
        await asyncio.sleep(max(0.0, due - asyncio.get_running_loop().time()))
        frame = av.AudioFrame.from_ndarray(next(self._blocks)[None, :], "s16", "mono")
        frame.sample_rate, frame.time_base = RATE, fractions.Fraction(1, RATE)
        frame.pts = self._number * BLOCK
        self._number += 1
        return frame


async def listen(track: MediaStreamTrack) -> None:
    resampler = av.AudioResampler("s16", "mono", RATE)
    while True:
        for frame in resampler.resample(await track.recv()):
            frame.to_ndarray()


async def look(track: MediaStreamTrack) -> None:
    due = 0.0
    while True:
        picture = await track.recv()
        now = asyncio.get_running_loop().time()
        if now >= due:
            due = now + 1 / FPS
            await asyncio.to_thread(lambda one=picture: encode_jpeg(one.reformat(format="yuvj420p")))


class Server:
    def __init__(self, answer: Pcm) -> None:
        blocks = answer[: len(answer) // BLOCK * BLOCK].reshape(-1, BLOCK)
        self._blocks = [*blocks, *np.zeros_like(blocks)]
        self._calls: dict[str, RTCPeerConnection] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_post("/v1/realtime/calls", self.create)
        app.router.add_delete("/v1/realtime/calls/{call}", self.end)
        return app

    async def create(self, request: web.Request) -> web.Response:
        connection = RTCPeerConnection(RTCConfiguration(iceServers=[]))
        connection.on("track", self._take)
        await connection.setRemoteDescription(RTCSessionDescription(await request.text(), "offer"))
        connection.addTrack(Voice(self._blocks))
        await connection.setLocalDescription()
        call = secrets.token_hex(8)
        self._calls[call] = connection
        place = {"Location": f"/v1/realtime/calls/{call}"}
        answer = connection.localDescription.sdp
        return web.Response(status=201, text=answer, content_type="application/sdp", headers=place)

    async def end(self, request: web.Request) -> web.Response:
        connection = self._calls.pop(request.match_info["call"], None)
        if connection is not None:
            await connection.close()
        return web.Response()

    async def aclose(self) -> None:
        await asyncio.gather(*(connection.close() for connection in self._calls.values()))

    def _take(self, track: MediaStreamTrack) -> None:
        task = asyncio.create_task(self._follow(track))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _follow(self, track: MediaStreamTrack) -> None:
        try:
            await (listen(track) if track.kind == "audio" else look(track))
        except MediaStreamError:
            return


async def serve(answer: Pcm, port: int) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    server = Server(answer)
    runner = web.AppRunner(server.app())
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    print(f"at http://127.0.0.1:{runner.addresses[0][1]}", flush=True)
    await stop.wait()
    await server.aclose()
    await runner.cleanup()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="A call's media on aiortc as its documentation has it.")
    parser.add_argument("--answer", type=Path, required=True)
    parser.add_argument("--port", type=int, default=0)
    arguments = parser.parse_args()
    asyncio.run(serve(resample(*decode_wav(arguments.answer.read_bytes()), RATE), arguments.port))
