"""From settings to a running server: the one place that knows all parts."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from .app import CALLS, OpenCall, build_app
from .carrier import Carrier
from .config import Config, SessionConfig
from .conversation import Conversation
from .ear import caller_ear
from .engine import Engine
from .engine.hearing import HearingEngine
from .engine.open import opened_engine
from .errors import unwrapped
from .heap import settle
from .lines import Lines
from .local.running import rehearsal, running_parts
from .pulse import watch_gpus
from .repertoire import Repertoire
from .resume import Kept
from .rtc import Media
from .serving import run_server, say_when_ready
from .session import Session
from .smart_turn import SmartTurn, find_smart_turn
from .tools.toolbox import opened_toolbox
from .trace import CallTrace
from .vad import SileroPool
from .watch import watching
from .wire import MakeWire


async def serve(config: Config) -> None:
    """Serve until a signal, calls and all in this process.

    Raises VisavisError for whatever makes that impossible.
    """
    with unwrapped():
        await _serve(config)


async def _serve(config: Config) -> None:
    repertoire = Repertoire(config.conversation)
    async with (
        running_engine(config, wait=False, repertoire=repertoire) as engine,
        making_calls(config, engine, lambda: repertoire.lines) as open_call,
        asyncio.TaskGroup() as tasks,
    ):
        app = build_app(config, open_call, engine.ready)
        listening = asyncio.Event()

        def announce(address: str) -> None:
            settle()
            print(f"Visavis is at {address}", flush=True)
            listening.set()

        watching_ = [
            tasks.create_task(say_when_ready(engine.ready, listening, remote=config.engine.name != "local")),
            tasks.create_task(watch_gpus()),
        ]
        await run_server(app, app[CALLS], config.server, announce)
        for task in watching_:
            task.cancel()


@asynccontextmanager
async def making_calls(config: Config, engine: Engine, lines: Callable[[], Lines]) -> AsyncIterator[OpenCall]:
    """Give what makes a call of this process; `lines` is asked for each. Raises ConfigError."""
    pool = SileroPool()
    pool.warm()
    # What a setting makes impossible is told now rather than to the first caller.
    Conversation(config.conversation, caller_ear(config.conversation, pool), "check")
    smart_turn = config.conversation.turns.smart_turn
    judge = None if smart_turn is None else SmartTurn(find_smart_turn(smart_turn)).judge
    ears = engine if isinstance(engine, HearingEngine) else None
    async with (
        watching(config.telemetry) as watch,
        Media(config.rtc, config.conversation.camera) as media,
        opened_toolbox(config.tools) as toolbox,
    ):

        def open_call(
            call_id: str,
            settings: SessionConfig,
            kept: Kept,
            wire: MakeWire | None = None,
            carrier: Carrier | None = None,
        ) -> Session:
            ear = caller_ear(config.conversation, pool)
            trace = CallTrace(config.trace, call_id)
            parts = (call_id, config, settings, engine, ear, trace, lines(), ears, judge)
            return Session(
                *parts,
                media=carrier or media,
                watch=watch(call_id),
                kept=kept,
                wire=wire,
                max_message=None if carrier is None else config.server.max_socket_message,
                toolbox=toolbox,
            )

        yield open_call


@asynccontextmanager
async def running_engine(
    config: Config, *, wait: bool = True, repertoire: Repertoire | None = None
) -> AsyncIterator[Engine]:
    """Open the configured engines as one, and start of the embedded one what they need.

    With `wait` that is warm when the body begins. The lines of `repertoire` that lack a sound are spoken by
    the embedded voice as soon as it is there. Raises VisavisError if the embedded engine is one of them and
    cannot be started, then or later. Its voice and ears alone are done without if they must be.
    """
    with unwrapped():
        async with (
            running_parts(config, wait=wait) as running,
            opened_engine(config, None if running is None else running.embedded) as engine,
            asyncio.TaskGroup() as tasks,
        ):
            speaking: asyncio.Task[None] | None = None
            if repertoire is not None and (speech := rehearsal(running, repertoire, config.local.language)):
                speaking = tasks.create_task(speech)
            yield engine
            if speaking is not None:
                speaking.cancel()
