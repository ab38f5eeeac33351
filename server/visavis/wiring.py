"""From settings to a running server: the one place that knows all parts."""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager

from .app import build_app
from .config import Config, SessionConfig
from .conversation import Conversation
from .ear import caller_ear
from .engine import Engine
from .engine.hearing import HearingEngine
from .engine.helper import Helper
from .engine.open import HELPED, open_engines, settings_of
from .errors import VisavisError
from .heap import settle
from .local import models
from .local.helping import available, help_out, settled
from .local.parts import Parts, wanted
from .local.supervisor import Supervisor
from .repertoire import Repertoire
from .serving import run_server
from .session import Session
from .smart_turn import SmartTurn, find_smart_turn
from .trace import CallTrace
from .vad import SileroPool

logger = logging.getLogger(__name__)

_UNREACHED_S = 5.0
"After which it is said that no engine answers."


async def serve(config: Config) -> None:
    """Serve until a signal. Raises VisavisError for whatever makes that impossible."""
    pool = SileroPool()
    pool.warm()
    # What a setting makes impossible is told now rather than to the first caller.
    Conversation(config.conversation, caller_ear(config.conversation, pool), "check")
    with _unwrapped():
        await _serve(config, pool)


async def _serve(config: Config, pool: SileroPool) -> None:
    repertoire = Repertoire(config.conversation)
    smart_turn = config.conversation.turns.smart_turn
    judge = None if smart_turn is None else SmartTurn(find_smart_turn(smart_turn)).judge
    async with running_engine(config, wait=False, repertoire=repertoire) as engine:
        ears = engine if isinstance(engine, HearingEngine) else None

        def open_call(call_id: str, settings: SessionConfig) -> Session:
            ear = caller_ear(config.conversation, pool)
            trace = CallTrace(config.trace, call_id)
            return Session(call_id, config, settings, engine, ear, trace, repertoire.lines, ears, judge)

        app = build_app(config, open_call, engine.ready)
        listening = asyncio.Event()

        def announce(address: str) -> None:
            settle()
            print(f"Visavis is at {address}", flush=True)
            listening.set()

        async with asyncio.TaskGroup() as tasks:
            warming = tasks.create_task(
                _say_when_ready(engine, listening, remote=config.engine.name != "local")
            )
            await run_server(app, config.server, announce)
            warming.cancel()


@asynccontextmanager
async def running_engine(
    config: Config, *, wait: bool = True, repertoire: Repertoire | None = None
) -> AsyncIterator[Engine]:
    """Open the configured engines as one, and start of the embedded one what they need.

    With `wait` that is warm when the body begins. The lines of `repertoire` that lack a sound are spoken by
    the embedded voice as soon as it is there. Raises VisavisError if the embedded engine is one of them and
    cannot be started, then or later. Its voice and ears alone are done without if they must be.
    """
    parts = wanted(config)
    answers = "mind" in parts
    if answers:
        for name in models.needed(config.local, parts):
            models.resolve(name, models.cache_dir(config.local.cache_dir, os.environ))
    else:
        parts = available(config.local, parts)
    if repertoire is not None and "voice" not in parts:
        repertoire.do_without()
    if not parts:
        async with aclosing(open_engines(config)) as alone:
            yield alone
        return
    supervisor = Supervisor(config.local, parts=parts)
    async with aclosing(Helper(str(supervisor.socket))) as helper:
        engine = _assisted(config, supervisor.url, helper, parts)
        with _unwrapped():
            async with asyncio.TaskGroup() as tasks:
                living = tasks.create_task(supervisor.run() if answers else help_out(supervisor, parts))
                speaking = tasks.create_task(_rehearse(repertoire, config, supervisor, helper))
                if wait:
                    await settled(supervisor, living)
                try:
                    yield engine
                finally:
                    speaking.cancel()
                    await engine.aclose()
                    await supervisor.aclose()


async def _rehearse(
    repertoire: Repertoire | None, config: Config, supervisor: Supervisor, helper: Helper
) -> None:
    """Have the embedded voice, once it is there, say what has no sound yet."""
    if repertoire is not None and repertoire.unspoken:
        await supervisor.wait_ready()
        await repertoire.speak(helper, config.local.language)


def _assisted(config: Config, local_url: str, helper: Helper, parts: Parts) -> Engine:
    """Open the engines with what there is of voice and ears beside them."""
    engine = open_engines(config, local_url, helper if "voice" in parts else None)
    deaf = any(settings.name in HELPED and settings.embedded_ears for settings in settings_of(config))
    return HearingEngine(engine, helper, transcribes=deaf) if "ears" in parts else engine


async def _say_when_ready(engine: Engine, listening: asyncio.Event, *, remote: bool) -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()
    await listening.wait()
    told = not remote  # the embedded engine tells of itself
    while not await engine.ready():
        if not told and loop.time() > began + _UNREACHED_S:
            told = True
            logger.warning(
                "no engine answers yet, calls are refused: check engine.url (visavis doctor --engine URL)"
            )
        await asyncio.sleep(0.2)
    print(f"The engine is warm after {loop.time() - began:.1f} s: open the page and talk.", flush=True)


@contextmanager
def _unwrapped() -> Iterator[None]:
    """Turn a task group's group of our errors into the first of them."""
    try:
        yield
    except* VisavisError as group:
        error: BaseException = group
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        raise error from None
