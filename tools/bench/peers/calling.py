"""One call of one server: the scenes, what they showed, and what they cost."""

import asyncio
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from caller import MISSED_S, Phase, ScenePlayer
from lanes import given
from measure import Verdict, summary

from visavis.audio import Pcm
from visavis.config import RtcConfig
from visavis.errors import CallError
from visavis.rtc import Media

from . import report
from .by_ear import answer_of, judge_by_ear
from .contestants import Contestant, Negotiate, serving
from .processes import Server, StartError
from .scenes import Spoken

CONNECT_S = 10.0
LEAD_S = 0.4
"After connecting, before the CPU is first looked at: the silence before the first word."
LATE_S = 4.5
"An answer counts as missed before, but pipecat's comes after 3.5 s: not into the next scene, please."
ROUND_S = 75.0
"A call that takes longer is ended, and what it leaves out is told."


@dataclass
class Result:
    """What was seen of one server in all its calls."""

    verdicts: list[Verdict] = field(default_factory=list)
    cpu_s: float = 0.0
    call_s: float = 0.0
    failures: list[str] = field(default_factory=list)

    def figures(self) -> dict[str, Any]:
        failure = {"failure": "; ".join(dict.fromkeys(self.failures))} if self.failures else {}
        if not self.verdicts:
            return report.nothing() | failure
        told = summary(self.verdicts, None)
        kept = {name: told[name] for name in report.KEPT}
        interruptions = [
            v for v in self.verdicts if v.scene.insertion is not None and v.scene.insertion.yields
        ]
        return (
            kept
            | {
                "cpu_s_per_call_min": round(60 * self.cpu_s / self.call_s, 1),
                "starts": sum(len(verdict.start_ms) for verdict in self.verdicts),
                "interruptions": len(interruptions),
                "disturbances": sum(told["to_be_passed_over"].values()),
                "scenes": len(self.verdicts),
            }
            | failure
        )


class Player(ScenePlayer):
    """Also tells when the call stands and when it falls, and waits for late answers."""

    def __init__(self, *arguments: Any) -> None:  # the base's
        super().__init__(*arguments)
        self.up = asyncio.Event()
        self.down: str | None = None

    @property
    def done(self) -> bool:
        return self.over or self.down is not None

    def _step(self, now: float) -> None:
        waits = self._phase is Phase.WAITING and self._quiet_since <= self._phase_since
        if not waits or now - self._phase_since >= LATE_S:
            super()._step(now)

    def _settling(self) -> float:
        wait_s = super()._settling()
        return LATE_S if wait_s > MISSED_S else wait_s

    def connected(self) -> None:
        self.up.set()

    def closed(self, reason: str) -> None:
        self.down = reason


async def one_round(
    contestant: Contestant, scenes: Sequence[Spoken], answer: Pcm, environments: Path, result: Result
) -> None:
    """Start a server, call it once, and add what was seen. A failure is noted, not raised."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        try:
            async with serving(contestant, folder, environments) as server:
                await call(server, contestant.negotiate, scenes, answer, folder, result)
        except (StartError, CallError, aiohttp.ClientError) as error:
            result.failures.append(str(error))


async def call(
    server: Server, negotiate: Negotiate, scenes: Sequence[Spoken], answer: Pcm, folder: Path, result: Result
) -> None:
    def set_answer(seconds: float) -> None:
        new = folder / "answer.new"
        new.write_bytes(answer_of(seconds, answer).astype("<i2").tobytes())
        new.replace(folder / "answer.pcm")

    player = Player([scene for scene, _ in scenes], time.monotonic, set_answer)
    media = Media(RtcConfig())
    await media.open()
    peer = media.caller(player)
    try:
        try:
            async with asyncio.timeout(CONNECT_S):
                await peer.accept(await negotiate(server.url, await peer.offer()))
                await player.up.wait()
        except TimeoutError as error:
            raise CallError(f"no call within {CONNECT_S:.0f} s") from error
        await asyncio.sleep(LEAD_S)
        cpu_s, began = server.cpu_s(), time.monotonic()
        ends = began + ROUND_S
        while not player.done and time.monotonic() < ends:  # noqa: ASYNC110 - it is asked block by block
            await asyncio.sleep(0.05)
        result.cpu_s += server.cpu_s() - cpu_s
        result.call_s += time.monotonic() - began
    finally:
        await peer.aclose()
        await media.aclose()
    asked = given(folder)
    for (scene, voice), take in zip(scenes, player.takes, strict=False):
        result.verdicts.append(judge_by_ear(scene, voice, take, asked or None))
    if player.down is not None:
        raise CallError(f"the call was lost: {player.down}")
    if left := len(scenes) - len(player.takes):
        raise CallError(f"{left} scenes were not reached within {ROUND_S:.0f} s")
