"""Pages of clients that others published, and a server for them to call.

The packages are those of package.json; VISAVIS_STOCK_CLIENTS names the folder where they are installed.
"""

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from aiohttp import web
from openai.types.realtime import RealtimeServerEvent
from pydantic import TypeAdapter

from visavis.app import CALLS, build_app
from visavis.audio import Pcm, level_dbfs
from visavis.calls import Calls
from visavis.carrier import Carrier
from visavis.config import Config, RtcConfig, SessionConfig
from visavis.ear import Sound
from visavis.engine import Engine
from visavis.resume import Kept
from visavis.rtc import Media
from visavis.session import Session
from visavis.trace import CallTrace
from visavis.wire import MakeWire

_LOUD_DBFS = -40.0

_PAGE = '<!doctype html><meta charset="utf-8"><script type="module" src="page.js"></script>'


@dataclass
class Server:
    url: str
    calls: Calls
    sessions: list[Session]


Serve = Callable[[str, Engine], Awaitable[Server]]
"Starts a server that has the page of a client's name."

_ORACLE: TypeAdapter[Any] = TypeAdapter(RealtimeServerEvent)


def check_events(told: list[dict[str, Any]]) -> None:
    """Hold what a client was told against OpenAI's own types; events of ours are not among them."""
    for event in told:
        if not event["type"].startswith("visavis."):
            _ORACLE.validate_python(event)


async def until(condition: Callable[[], object], patience_s: float = 15.0) -> None:
    """Wait for what no event tells of; the patience only bounds a test that has failed."""
    async with asyncio.timeout(patience_s):
        while not condition():  # noqa: ASYNC110 - conditions of all kinds
            await asyncio.sleep(0.02)


class LoudEar:
    """Takes whatever is loud for speech: the clients' voice is a tone."""

    def receive(self, pcm: Pcm) -> Sound:
        level = level_dbfs(pcm)
        return Sound(0.9 if level > _LOUD_DBFS else 0.0, level)

    def play(self, pcm: Pcm) -> None:
        pass

    def reset(self) -> None:
        pass


def make_page(name: str, folder: Path) -> None:
    """Make a page of NAME.js, with all that it needs, in a folder."""
    modules = Path(os.environ["VISAVIS_STOCK_CLIENTS"]) / "node_modules"
    (folder / "index.html").write_text(_PAGE)
    script = Path(__file__).with_name(f"{name}.js")
    command = [modules / ".bin" / "esbuild", script, "--bundle", "--format=esm", "--log-level=error"]
    where = f"--outfile={folder / 'page.js'}"
    subprocess.run([*command, where], env=os.environ | {"NODE_PATH": str(modules)}, check=True)


@asynccontextmanager
async def serving(page: Path, engine: Engine) -> AsyncIterator[Server]:
    """Serve a page, and the calls that it makes."""
    config = Config(rtc=replace(RtcConfig(), connect_s=10.0))
    sessions: list[Session] = []
    async with Media(config.rtc, config.conversation.camera) as media:

        def open_call(
            call_id: str,
            settings: SessionConfig,
            kept: Kept,
            wire: MakeWire | None = None,
            carrier: Carrier | None = None,
        ) -> Session:
            parts = (call_id, config, settings, engine, LoudEar(), CallTrace(config.trace, call_id))
            most = None if carrier is None else config.server.max_socket_message
            sessions.append(Session(*parts, media=carrier or media, kept=kept, wire=wire, max_message=most))
            return sessions[-1]

        app = build_app(config, open_call, engine.ready, page)
        runner = web.AppRunner(app)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            yield Server(f"http://127.0.0.1:{runner.addresses[0][1]}", app[CALLS], sessions)
        finally:
            await runner.cleanup()
