"""An engine with ears beside it: what the user said is written down while the answer is being made."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Protocol

from ..audio import Pcm
from ..errors import EngineError
from . import AudioPart, Delta, Done, Engine, Request, TranscriptDelta

logger = logging.getLogger(__name__)

LATE_S = 5.0
"How long the end of an answer, not the answer itself, waits for the transcript: after it none is taken."


class Ears(Protocol):
    """`helper.Helper`, or a stand-in."""

    async def hear(self, call_id: str, pcm: Pcm) -> str:
        """Write down what is said in `pcm` (24 kHz), "" where nobody speaks. Raises EngineError."""
        ...


class HearingEngine:
    """Adds a transcript of the newest user message to the answers of an engine that gives none.

    It stands around the router: whoever answers, a message is heard once. An engine that tells a
    transcript of its own is believed. Where the ears fail there is no transcript, and the answer goes on.
    """

    def __init__(
        self, inner: Engine, ears: Ears, *, late_s: float = LATE_S, transcribes: bool = True
    ) -> None:
        """Owns `inner`. Without `transcribes` answers are left as they are, and there is only `hear`."""
        self._inner = inner
        self._ears = ears
        self._late_s = late_s
        self._transcribes = transcribes

    async def respond(self, request: Request) -> AsyncGenerator[Delta, None]:
        """Stream one response; the transcript comes when it is ready, before `Done`. Raises EngineError."""
        sounds = _newest_sounds(request) if self._transcribes and not request.ahead else []
        async with aclosing(self._inner.respond(request)) as deltas:
            if sounds:
                async with aclosing(self._merge(request.call_id, sounds, deltas)) as merged:
                    async for delta in merged:
                        yield delta
            async for delta in deltas:
                yield delta

    async def hear(self, call_id: str, pcm: Pcm) -> str:
        """Write down what is said in `pcm` (24 kHz), "" where nobody speaks. Raises EngineError."""
        return await self._ears.hear(call_id, pcm)

    async def ready(self) -> bool:
        return await self._inner.ready()

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def _merge(
        self, call_id: str, sounds: list[Pcm], deltas: AsyncGenerator[Delta, None]
    ) -> AsyncGenerator[Delta, None]:
        """Yield deltas and the transcript as they come, until the transcript is out of the way."""
        hearing = asyncio.create_task(self._hear(call_id, sounds))
        coming = asyncio.create_task(_next(deltas))
        try:
            while True:
                await asyncio.wait((hearing, coming), return_when=asyncio.FIRST_COMPLETED)
                if not coming.done():
                    if (transcript := hearing.result()) is not None:
                        yield transcript
                    await asyncio.wait((coming,))
                    if (delta := coming.result()) is not None:
                        yield delta
                    return
                delta = coming.result()
                if delta is None or isinstance(delta, TranscriptDelta):
                    if delta is not None:
                        yield delta
                    return
                if isinstance(delta, Done):
                    await asyncio.wait((hearing,), timeout=self._late_s)
                if hearing.done() and (transcript := hearing.result()) is not None:
                    yield transcript
                yield delta
                if hearing.done():
                    return
                coming = asyncio.create_task(_next(deltas))
        finally:
            hearing.cancel()
            coming.cancel()
            await asyncio.gather(hearing, coming, return_exceptions=True)

    async def _hear(self, call_id: str, sounds: list[Pcm]) -> TranscriptDelta | None:
        """Write down all that is said in one message; None if that fails."""
        try:
            texts = [await self._ears.hear(call_id, pcm) for pcm in sounds]
        except EngineError as error:
            logger.warning("call %s: there will be no transcript: %s", call_id, error)
            return None
        return TranscriptDelta(" ".join(text for text in texts if text))


def _newest_sounds(request: Request) -> list[Pcm]:
    newest = request.messages[-1]
    return [part.pcm for part in newest.parts if isinstance(part, AudioPart)] if newest.role == "user" else []


async def _next(deltas: AsyncGenerator[Delta, None]) -> Delta | None:
    return await anext(deltas, None)
