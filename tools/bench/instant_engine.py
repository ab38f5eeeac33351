"""An engine that answers at once over the contract of vLLM-Omni, and tells when it was asked and with what.

    python tools/bench/instant_engine.py SOCKET [--folder FOLDER] [--forget] [--first-audio-ms MS]

It answers with a tone, or with what FOLDER/answer.pcm holds when it is asked (16 bit, mono, 24 kHz), and then
writes the newest speech of each request to FOLDER/given-TIME-RATE.pcm, TIME in monotonic nanoseconds; with
--forget it does not. Times are monotonic, which all processes of a Linux machine share. It ends with its
standard input, so that it cannot outlive who started it.
"""

import argparse
import asyncio
import base64
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from visavis.audio import RATE, decode_wav

CHUNK_S = 2.0
"Sound in each chunk but the first, which has 0.3 s: the cadence of Qwen3-Omni's Talker."
REPLY_S = 20.0
PITCH_HZ = 330.0
CHARS_PER_S = 14
"Of the text beside the sound, as people speak: the client watches for models that derail."


class InstantEngine:
    """Answers each request; `GET /times` gives what was noted of them, oldest first."""

    def __init__(
        self, folder: Path | None = None, first_audio_s: float = 0.0, *, forgets: bool = False
    ) -> None:
        self._folder = folder
        self._forgets = forgets
        self._first_audio_s = first_audio_s
        self._times: list[dict[str, float]] = []
        times = np.arange(round(REPLY_S * RATE)) / RATE
        self._tone = (3000 * np.sin(2 * np.pi * PITCH_HZ * times)).astype("<i2").tobytes()
        self._arrived = 0.0

    def note_arrivals(self) -> None:
        """Remember when bytes last came, before anything is made of them."""
        receive = RequestHandler.data_received

        def noted(connection: Any, data: bytes) -> None:
            self._arrived = time.monotonic()
            receive(connection, data)

        RequestHandler.data_received = noted  # type: ignore[method-assign]

    def app(self) -> web.Application:
        app = web.Application(client_max_size=2**26)
        app.router.add_get("/times", self._tell)
        app.router.add_get("/health", self._tell)
        app.router.add_post("/v1/chat/completions", self._answer)
        return app

    async def _tell(self, _: web.Request) -> web.Response:
        return web.json_response(self._times)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        times = {"asked": self._arrived, "bytes": float(len(body))}
        self._times.append(times)
        sound = self._tone if self._folder is None else (self._folder / "answer.pcm").read_bytes()
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await _send(response, "text", "word " * round(len(sound) / 2 / RATE * CHARS_PER_S / 5 + 1))
        await asyncio.sleep(max(0.0, times["asked"] + self._first_audio_s - time.monotonic()))
        times["first_audio"] = time.monotonic()
        at, end = 0, 2 * (RATE * 3 // 10)
        while at < len(sound):
            await _send(response, "audio", base64.b64encode(sound[at:end]).decode())
            at, end = end, end + 2 * round(RATE * CHUNK_S)
        await _send(response, "audio", "", finish="stop")
        await response.write(b"data: [DONE]\n\n")
        self._keep(body, times["asked"])
        return response

    def _keep(self, body: bytes, asked: float) -> None:
        """Write the sound of the newest turn; nothing without a folder."""
        if self._folder is None or self._forgets:
            return
        contents = [
            message["content"] for message in json.loads(body)["messages"] if message["role"] == "user"
        ]
        parts = contents[-1] if contents and isinstance(contents[-1], list) else []
        data = [part["input_audio"]["data"] for part in parts if part["type"] == "input_audio"]
        sounds = [decode_wav(base64.b64decode(one)) for one in data]
        if sounds:
            name = f"given-{round(asked * 1e9)}-{sounds[0][1]}.pcm"
            (self._folder / name).write_bytes(b"".join(pcm.tobytes() for pcm, _ in sounds))


async def _send(response: web.StreamResponse, modality: str, content: str, finish: str | None = None) -> None:
    choice: dict[str, Any] = {"index": 0, "delta": {"content": content}, "finish_reason": finish}
    chunk = {"modality": modality, "choices": [choice]}
    await response.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")


async def serve(socket: str, folder: Path | None, first_audio_s: float, *, forgets: bool) -> None:
    engine = InstantEngine(folder, first_audio_s, forgets=forgets)
    engine.note_arrivals()
    runner = web.AppRunner(engine.app(), handler_cancellation=True)
    await runner.setup()
    try:
        await web.UnixSite(runner, socket).start()
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.read)
    finally:
        await runner.cleanup()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="An engine that answers at once.")
    parser.add_argument("socket")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--forget", action="store_true")
    parser.add_argument("--first-audio-ms", type=float, default=0.0)
    arguments = parser.parse_args()
    first_audio_s = arguments.first_audio_ms / 1000
    asyncio.run(serve(arguments.socket, arguments.folder, first_audio_s, forgets=arguments.forget))
