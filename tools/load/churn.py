"""Calls opened and ended in every way, and what of them is left in the server."""

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .figures import Left, Leftovers
from .proc import measure
from .servers import Cores, Speech, whole_server
from .victims import WAYS

BATCH = 20
"Calls of one process that ends one way."
REST_S = 1.0
"In which nothing changes in a server that is at rest."
SETTLE_S = 30.0
"In which what was ended must be gone."
CONNECT_S = 5.0
"Of the server under test, for those who never connect: the default is 20, and nobody wants to wait."
WARM_SHARE = 0.2
"Of the calls, before memory is looked at: pools and caches fill."


@dataclass(frozen=True, slots=True)
class Watch:
    """What `product/watched.py` tells, and Linux."""

    pid: int
    told: Path

    async def left(self) -> Left:
        self.told.unlink(missing_ok=True)
        os.kill(self.pid, signal.SIGUSR1)
        async with asyncio.timeout(SETTLE_S):
            while not self.told.exists():  # noqa: ASYNC110 - another process writes it
                await asyncio.sleep(0.01)
        tasks = int(json.loads(self.told.read_text())["tasks"])
        usage = measure(self.pid)
        return Left(usage.rss_mb, tasks, usage.threads, usage.sockets)

    async def at_rest(self) -> Left:
        """Wait until the server has started all that it starts by itself."""
        before, now = None, await self.left()
        while before is None or before.tasks != now.tasks:
            await asyncio.sleep(REST_S)
            before, now = now, await self.left()
        return now

    async def settled(self, tasks: int) -> float:
        """Wait until no more tasks are left than that; give the seconds it took."""
        began = time.monotonic()
        while time.monotonic() - began < SETTLE_S:
            if (await self.left()).tasks <= tasks:
                break
            await asyncio.sleep(0.1)
        return time.monotonic() - began


async def churn(
    product: Path,
    backend: str,
    speech: Speech,
    folder: Path,
    cores: Cores,
    calls: int,
    tell: Callable[[str], None],
) -> dict[str, Any]:
    """Make so many calls, a batch of each way in turn, and tell what is left of them."""
    told = folder / "watched.json"
    settings = {"VISAVIS_RTC_CONNECT_S": str(CONNECT_S), "VISAVIS_WATCHED": str(told)}
    script = (str(Path(__file__).parent / "product/watched.py"),)
    async with whole_server(product, backend, speech, folder, cores, settings, script) as server:
        assert server.meter.server_pid is not None
        watch = Watch(server.meter.server_pid, told)
        leftovers = Leftovers(before=await watch.at_rest())
        done = number = 0
        while done < calls:
            way = WAYS[number % len(WAYS)]
            number += 1
            tell(f"{done} of {calls} calls, {leftovers.latest.rss_mb:.0f} MB, next: {way}")
            await _batch(server.url, way, speech)
            if way == "killed":
                leftovers.dead_peer_s.append(await watch.settled(leftovers.before.tasks))
            done += BATCH
            if done % (BATCH * len(WAYS)) == 0:
                await watch.settled(leftovers.before.tasks)
                leftovers.rounds.append(await watch.left())
        await watch.settled(leftovers.before.tasks)
        leftovers.rounds.append(await watch.left())
    return {"calls": done, "backend": backend} | leftovers.figures(WARM_SHARE)


async def _batch(url: str, way: str, speech: Speech) -> None:
    command = [sys.executable, "-m", "load.victims", url, way, str(BATCH), str(speech.folder)]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    up = await process.stdout.readline() == b"up\n"
    if way == "killed" and up:
        process.kill()
    await process.wait()
    if not up:
        raise SystemExit(f"calls that were to end by {way} did not come about; see above")
