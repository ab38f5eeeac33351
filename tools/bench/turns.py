"""Measure what the server adds to a turn: real WebRTC over loopback, an engine that answers at once.

    python tools/bench/turns.py [--calls N]

Each call asks a question, interrupts the answer after a second and hangs up. Server and caller share this
process, so all figures include the caller's own buffering. Speech is made by the packaged English voice.
"""

import argparse
import asyncio
import json
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import numpy as np
from aiohttp import web

from visavis.app import build_app
from visavis.audio import BLOCK, RATE, Pcm, from_float, level_dbfs
from visavis.config import Config, RtcConfig, SessionConfig
from visavis.engine.scripted import Reply, ScriptedEngine, tone
from visavis.frames import Frame
from visavis.rtc import OutgoingPeer
from visavis.session import Session
from visavis.trace import CallTrace
from visavis.vad import GatedVad, SileroPool

LOUD_DBFS, AUDIBLE_DBFS = -40.0, -50.0
PATIENCE_S = 30.0


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

    def wants_frame(self, at: int) -> bool:
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


async def one_call(url: str, http: aiohttp.ClientSession, question: Pcm, objection: Pcm) -> dict[str, float]:
    """Return seconds by name."""
    caller = Caller()
    peer = OutgoingPeer(RtcConfig(), caller)
    try:
        calls, headers = f"{url}/v1/realtime/calls", {"Content-Type": "application/sdp"}
        async with http.post(calls, data=await peer.offer(), headers=headers) as response:
            await peer.accept(await response.text())
        await until(lambda: caller.got("session.created"))
        caller.say(question)
        await until(lambda: caller.got("visavis.turn_timings") and bool(caller.heard_at))
        marks = next(e["marks"] for e in caller.events if e["type"] == "visavis.turn_timings")
        first = caller.heard_at[0] - caller.said_at[-1]
        spoken, started = len(caller.said_at), now()
        await until(lambda: now() - started > 1.0)
        caller.say(objection)
        await until(lambda: caller.got("output_audio_buffer.cleared"))
        onset = caller.said_at[spoken]
        return {
            "last word → first sound heard": first,
            "decision → engine's first sound": (marks["first_audio"] - marks["turn_end"]) / 1000,
            "engine's first sound → first block sent": (marks["first_sent"] - marks["first_audio"]) / 1000,
            "interruption → last sound heard": max(at for at in caller.heard_at if at < onset + 1.0) - onset,
        }
    finally:
        await peer.aclose()


async def main(calls: int) -> None:
    from hibari import Hibari

    voice = Hibari(threads=1)
    question, objection = (
        from_float(np.asarray(voice(text), np.float32))
        for text in ("What is the capital of France?", "Stop, please, I have another question.")
    )
    config, pool = Config(), SileroPool()
    pool.warm()
    engine = ScriptedEngine([Reply(text="word " * 60, pcm=tone(20.0))])

    def open_call(call_id: str, settings: SessionConfig) -> Session:
        vad = GatedVad(config.conversation.vad, pool)
        return Session(call_id, config, settings, engine, vad, CallTrace(config.trace, call_id))

    runner = web.AppRunner(build_app(config, open_call, engine.ready))
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        async with aiohttp.ClientSession() as http:
            rows = [await one_call(url, http, question, objection) for _ in range(calls)]
    finally:
        await runner.cleanup()
    for name in rows[0]:
        values = sorted(row[name] * 1000 for row in rows)
        print(f"{name}: median {statistics.median(values):.0f} ms, {values[0]:.0f}–{values[-1]:.0f}")
    print(f"{calls} calls; question of {len(question) / RATE:.1f} s")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Measure what the server adds to a turn.")
    parser.add_argument("--calls", type=int, default=10)
    asyncio.run(main(parser.parse_args().calls))
