"""An engine that answers at once over the contract of vLLM-Omni, and tells when it was asked: for `turns.py`.

    python tools/bench/instant_engine.py SOCKET

Times are monotonic seconds, which all processes of a Linux machine share. It ends with its standard input,
so that it cannot outlive who started it.
"""

import argparse
import asyncio
import base64
import json
import sys
import time
from typing import Any

import numpy as np
from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from visavis.audio import RATE

CHUNK_S = 2.0
"Sound in each chunk but the first, which has 0.3 s: the cadence of Qwen3-Omni's Talker."
REPLY_S = 20.0
PITCH_HZ = 330.0


class InstantEngine:
    """Answers each request with a tone; `GET /times` gives what was noted, oldest first."""

    def __init__(self) -> None:
        self._times: list[dict[str, float]] = []
        times = np.arange(round(REPLY_S * RATE)) / RATE
        self._sound = (3000 * np.sin(2 * np.pi * PITCH_HZ * times)).astype("<i2")
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
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await _send(response, "text", "word " * 60)
        times["first_audio"] = time.monotonic()
        at, end = 0, RATE * 3 // 10
        while at < len(self._sound):
            await _send(response, "audio", base64.b64encode(self._sound[at:end].tobytes()).decode())
            at, end = end, end + round(RATE * CHUNK_S)
        await _send(response, "audio", "", finish="stop")
        await response.write(b"data: [DONE]\n\n")
        return response


async def _send(response: web.StreamResponse, modality: str, content: str, finish: str | None = None) -> None:
    choice: dict[str, Any] = {"index": 0, "delta": {"content": content}, "finish_reason": finish}
    chunk = {"modality": modality, "choices": [choice]}
    await response.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")


async def serve(socket: str) -> None:
    engine = InstantEngine()
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
    asyncio.run(serve(parser.parse_args().socket))
