"""Callers in a process of their own, to be killed: `crowd.py URL COUNT` connects, says so, and waits."""

import asyncio
import sys

import aiohttp
from kit import Caller


async def main(url: str, count: int) -> None:
    async with aiohttp.ClientSession() as http:
        callers = [Caller(url, http) for _ in range(count)]
        for caller in callers:
            await caller.connect()
        print("connected", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
