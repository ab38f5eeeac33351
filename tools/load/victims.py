"""Calls that end in one of the ways that calls end: a process of its own, which may be killed.

    python -m load.victims URL WAY CALLS SPEECH

Prints "up" when its calls stand. Then: `hang_up` says so to the server; `killed` waits to be; `reload` drops
half of the calls and makes as many anew, as a page does, and hangs up; `never` does not connect at all.
"""

import asyncio
import os
import sys
from pathlib import Path

import aiohttp

from .calls import Kinds
from .crowd import Address, Crowd
from .line import Exchange
from .servers import Speech
from .talk import Script

TALK_S = 1.0
WAYS = ("hang_up", "killed", "reload", "never")


async def main(url: str, way: str, calls: int, speech: Path) -> None:
    exchange, address = Exchange(), Address(url)
    if way == "never":
        await _offer_only(exchange, address, calls)
        print("up", flush=True)
        return
    script = Script(Speech(speech).clips("question"), think_s=(0.0, TALK_S))
    async with Crowd(Kinds(exchange), address, script) as crowd:
        await crowd.grow(calls // 2 if way == "reload" else calls)
        await asyncio.sleep(TALK_S)
        if way == "reload":
            crowd.drop()
            await crowd.grow(calls - calls // 2)
        if crowd.failures:
            sys.exit(f"{len(crowd.failures)} calls failed: {crowd.failures[0]}")
        print("up", flush=True)
        if way == "killed":
            await asyncio.Event().wait()


async def _offer_only(exchange: Exchange, address: Address, calls: int) -> None:
    async with aiohttp.ClientSession() as http:
        for _ in range(calls):
            line = exchange.line()
            await address.signal(http, await line.offer())
            line.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), Path(sys.argv[4])))
    os._exit(0)  # libwebrtc's threads are not waited for
