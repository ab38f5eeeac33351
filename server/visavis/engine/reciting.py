"""A text that is wanted as it is, said by the voice that speaks for an engine anyway: no model is asked."""

import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from ..errors import EngineError
from ..local.clauses import ClauseSplitter
from . import AudioDelta, Delta, Done, Engine, Request, TextDelta
from .voiced import Voice

logger = logging.getLogger(__name__)


class RecitingEngine:
    """Recites while `ours` is true; else, or where the voice fails, the engine is asked in words."""

    def __init__(self, inner: Engine, voice: Voice, ours: Callable[[], bool]) -> None:
        """Owns `inner`. `ours` tells whether the caller knows it by `voice`."""
        self._inner = inner
        self._voice = voice
        self._ours = ours

    async def respond(self, request: Request) -> AsyncGenerator[Delta, None]:
        """Stream one response. Raises EngineError."""
        if request.recite and self._ours():
            begun = False
            try:
                async with aclosing(self._recite(request)) as deltas:
                    async for delta in deltas:
                        begun = True
                        yield delta
                return
            except EngineError as error:
                if begun:
                    raise
                logger.warning("call %s: the engine is asked to recite: %s", request.call_id, error)
        async with aclosing(self._inner.respond(request)) as deltas:
            async for delta in deltas:
                yield delta

    async def ready(self) -> bool:
        return await self._inner.ready()

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def _recite(self, request: Request) -> AsyncGenerator[Delta, None]:
        """Give each clause and its sound after it."""
        splitter = ClauseSplitter()
        for clause in (*splitter.feed(request.recite), splitter.flush()):
            told = not clause
            if request.speak and clause.strip():
                async with aclosing(self._voice.say(request.call_id, clause)) as sounds:
                    async for pcm in sounds:
                        if not told:
                            told = True
                            yield TextDelta(clause)
                        yield AudioDelta(pcm)
            if not told:
                yield TextDelta(clause)
        yield Done("stop")
