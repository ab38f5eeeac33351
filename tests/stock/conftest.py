"""What the tests of stock clients share: pages of what others published, and a server that they call.

The packages are those of package.json; VISAVIS_STOCK_CLIENTS names the folder where they are installed.
"""

import os
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from aiohttp import web

from browser.cdp import INVENTED_DEVICES, launched
from visavis.app import CALLS, build_app
from visavis.audio import Pcm, level_dbfs
from visavis.calls import Calls
from visavis.config import Config, RtcConfig, SessionConfig
from visavis.ear import Sound
from visavis.engine import Engine
from visavis.resume import Kept
from visavis.rtc import Media
from visavis.session import Session
from visavis.trace import CallTrace
from visavis.wire import MakeWire

HERE = Path(__file__).parent
PAGE = (
    '<!doctype html><meta charset="utf-8"><title>{name}</title><script type="module" src="page.js"></script>'
)


class LoudEar:
    """Takes whatever is loud for speech: the clients' voice is a tone."""

    def receive(self, pcm: Pcm) -> Sound:
        level = level_dbfs(pcm)
        return Sound(0.9 if level > -40 else 0.0, level)

    def play(self, pcm: Pcm) -> None:
        pass

    def reset(self) -> None:
        pass


@dataclass
class Server:
    url: str
    calls: Calls
    sessions: list[Session]


Serve = Callable[[str, Engine], Awaitable[Server]]
"Starts a server that has the page of a client's name."


@pytest.fixture(scope="session")
def page_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Make, once, the page of a client: NAME.js with all that it needs."""
    modules = Path(os.environ["VISAVIS_STOCK_CLIENTS"]) / "node_modules"
    made: dict[str, Path] = {}

    def make(name: str) -> Path:
        if name not in made:
            made[name] = folder = tmp_path_factory.mktemp(name)
            (folder / "index.html").write_text(PAGE.format(name=name))
            command = [modules / ".bin" / "esbuild", HERE / f"{name}.js", "--bundle", "--format=esm"]
            where = [f"--outfile={folder / 'page.js'}", "--log-level=error"]
            subprocess.run([*command, *where], env=os.environ | {"NODE_PATH": str(modules)}, check=True)
        return made[name]

    return make


@pytest.fixture(scope="session")
def browser() -> Iterator[int]:
    with launched((*INVENTED_DEVICES, "--autoplay-policy=no-user-gesture-required")) as port:
        yield port


@pytest.fixture
async def serve(page_of: Callable[[str], Path]) -> AsyncIterator[Serve]:
    async with AsyncExitStack() as stack:

        async def start(client: str, engine: Engine) -> Server:
            return await stack.enter_async_context(_serving(page_of(client), engine))

        yield start


@asynccontextmanager
async def _serving(page: Path, engine: Engine) -> AsyncIterator[Server]:
    config = Config(rtc=replace(RtcConfig(), connect_s=10.0))
    sessions: list[Session] = []
    async with Media(config.rtc, config.conversation.camera) as media:

        def open_call(
            call_id: str, settings: SessionConfig, kept: Kept, wire: MakeWire | None = None
        ) -> Session:
            parts = (call_id, config, settings, engine, LoudEar(), CallTrace(config.trace, call_id))
            sessions.append(Session(*parts, media=media, kept=kept, wire=wire))
            return sessions[-1]

        app = build_app(config, open_call, engine.ready, page)
        runner = web.AppRunner(app)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            yield Server(f"http://127.0.0.1:{runner.addresses[0][1]}", app[CALLS], sessions)
        finally:
            await runner.cleanup()
