"""Start the embedded engine, watch it, start it again when it dies. Runs in the server's process."""

import asyncio
import contextlib
import logging
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import aiohttp

from ..config import LocalConfig
from ..errors import EngineLost, ModelError
from ..logs import ChildLog, pass_on
from .__main__ import EXIT_MODEL, config_to_json
from .parts import ALL, Parts, to_text

logger = logging.getLogger(__name__)
engine_logger = logging.getLogger("visavis.local")
"For what the child writes to its standard error."

_POLL_S = 0.1
"Between questions whether a starting engine is warm."
_PING_EVERY_S = 5.0
_PING_S = 20.0
"An engine that does not answer a ping for so long hangs and is killed."
_FIRST_BACKOFF_S = 0.25
_MAX_BACKOFF_S = 30.0
_STEADY_S = 60.0
"After a life this long the pauses between starts begin anew."
_TERMINATE_S = 5.0
"Grace between SIGTERM and SIGKILL."
_MAX_PLACE = 48
"Characters of a folder for temporary files: a Unix socket has 107 in all, and three names follow."
_MAX_LINE = 65_536
_SPINS = "3000"
"Looks that a thread takes before it sleeps, 0.1 ms: threads that all run wait less, at 300 a fifth is lost."


class Supervisor:
    """Owns the child process of one `visavis serve`.

    `run` is a task of the server's TaskGroup; the child lives no longer than it, nor than this process,
    whose end closes the child's standard input.
    """

    def __init__(self, config: LocalConfig, *, parts: Parts = ALL, command: Sequence[str] = ()) -> None:
        """`command` stands in for the engine in tests; `--socket PATH --child --parts …` is added to it."""
        self._config = config
        self._parts = parts
        self._command = tuple(command) or (sys.executable, "-m", "visavis.local")
        self._dir = place() / f"visavis-{os.getpid()}-{os.urandom(8).hex()}"
        self._closing = asyncio.Event()
        self._ready = asyncio.Event()
        self._process: asyncio.subprocess.Process | None = None
        self._log = ChildLog()
        self.restarts = 0
        "How often the engine had to be started again."

    @property
    def socket(self) -> Path:
        """Where the engine answers; the same after a restart."""
        return self._dir / "engine.sock"

    @property
    def url(self) -> str:
        """For `EngineConfig.url`."""
        return f"unix://{self.socket}"

    @property
    def ready(self) -> bool:
        """Whether the engine was warm when last asked."""
        return self._ready.is_set()

    @property
    def pid(self) -> int | None:
        """The child's, None while there is none."""
        return None if self._process is None else self._process.pid

    async def wait_ready(self) -> None:
        await self._ready.wait()

    async def run(self, on_ready: Callable[[], None] = lambda: None) -> None:
        """Keep an engine running until `aclose`; call `on_ready` each time it is warm.

        If the first start fails, raises ModelError when a model is missing or broken, else EngineLost.
        Later deaths of whatever kind are answered by new starts, with growing pauses: calls may go on.
        """
        loop = asyncio.get_running_loop()
        self._dir.mkdir(mode=0o700)
        backoff, was_ready = _FIRST_BACKOFF_S, False

        def note_ready() -> None:
            nonlocal was_ready
            was_ready = True
            self._ready.set()
            on_ready()

        try:
            while True:
                started = loop.time()
                failure = await self._live(note_ready)
                if failure is None:
                    return
                if not was_ready:
                    raise failure
                if loop.time() - started > _STEADY_S:
                    backoff = _FIRST_BACKOFF_S
                self.restarts += 1
                logger.error("%s; starting it again in %.2f s", failure, backoff)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(backoff):
                        await self._closing.wait()
                        return
                backoff = min(_MAX_BACKOFF_S, 2 * backoff)
        finally:
            shutil.rmtree(self._dir, ignore_errors=True)

    async def aclose(self) -> None:
        """Make `run` end the child and return."""
        self._closing.set()

    async def _live(self, note_ready: Callable[[], None]) -> ModelError | EngineLost | None:
        """Run one child to its end and tell why it ended, None if it was to."""
        if self._closing.is_set():
            return None
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                "--socket",
                str(self.socket),
                "--child",
                "--parts",
                to_text(self._parts),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.PIPE,
                env=environment(os.environ),
                start_new_session=True,  # an interrupt typed at the terminal is for the server alone
                limit=_MAX_LINE,
            )
        except OSError as error:
            return EngineLost(f"the embedded engine cannot be started: {error}")
        self._process = process
        log = asyncio.create_task(self._pass_on_log(process))
        closing = asyncio.create_task(self._closing.wait())
        health = asyncio.create_task(self._watch_health(note_ready))
        ended = asyncio.create_task(process.wait())
        try:
            await _introduce(process, self._config)
            await asyncio.wait((closing, health, ended), return_when=asyncio.FIRST_COMPLETED)
            if closing.done():
                return None
            if not ended.done():
                return EngineLost(f"the embedded engine {health.result()}")
            await asyncio.wait((log,), timeout=1)  # its last words
            if ended.result() == EXIT_MODEL:
                return ModelError(self._log.last_words)
            return EngineLost(f"the embedded engine ended with status {ended.result()}")
        finally:
            self._ready.clear()
            await _end(process)
            for task in (log, closing, health, ended):
                task.cancel()
            await asyncio.gather(log, closing, health, ended, return_exceptions=True)
            self._process = None

    async def _watch_health(self, note_ready: Callable[[], None]) -> str:
        """Ask for the engine's health until it has none; say what is wrong with it."""
        loop = asyncio.get_running_loop()
        timeout = aiohttp.ClientTimeout(total=_PING_S)
        async with aiohttp.ClientSession(
            connector=aiohttp.UnixConnector(str(self.socket)), timeout=timeout
        ) as session:
            started = answered = loop.time()
            while True:
                try:
                    async with session.get("http://localhost/health") as response:
                        answered = loop.time()
                        if response.status == 200 and not self.ready:
                            note_ready()
                except (aiohttp.ClientError, OSError):  # not yet, or it is dying, which is seen elsewhere
                    pass
                now = loop.time()
                if self.ready and now - answered > _PING_S:
                    return "does not answer"
                if not self.ready and now - started > self._config.start_s:
                    return f"was not ready after {self._config.start_s:.0f} s"
                await asyncio.sleep(_PING_EVERY_S if self.ready else _POLL_S)

    async def _pass_on_log(self, process: asyncio.subprocess.Process) -> None:
        """Pass on what the child writes, at the level that it names."""
        assert process.stderr is not None, "asked for when starting it"
        await pass_on(process.stderr, self._log, lambda level, text: engine_logger.log(level, "%s", text))


def environment(own: Mapping[str, str]) -> dict[str, str]:
    """Return the child's environment: this process's own, large pages, and threads that soon sleep.

    A language model reads all of its weights for each token. With pages of 2 MB in place of 4 KB, where the
    kernel gives them (`transparent_hugepage` is "madvise" or "always"), that takes a fifth less time. C
    libraries other than glibc read past it.

    A model's threads wait for each other some hundred times a token, and GNU's OpenMP has them wait busily
    for long. Where another process wants the core of one, the others then keep theirs from it: on two cores,
    beside a process that computes for 10 ms of every 20, a token took 0.87 s so, and takes 0.13 s.
    """
    tunables = [value for value in (own.get("GLIBC_TUNABLES"),) if value]
    if not any("glibc.malloc.hugetlb" in value for value in tunables):
        tunables.append("glibc.malloc.hugetlb=1")
    chosen = {**own, "GLIBC_TUNABLES": ":".join(tunables)}
    if "OMP_WAIT_POLICY" not in own:
        chosen.setdefault("GOMP_SPINCOUNT", _SPINS)
    return chosen


async def _introduce(process: asyncio.subprocess.Process, config: LocalConfig) -> None:
    """Send the settings; standard input stays open, for its end tells the child to die."""
    assert process.stdin is not None, "asked for when starting it"
    process.stdin.write(config_to_json(config).encode() + b"\n")
    with contextlib.suppress(ConnectionError):  # it died already, which is seen elsewhere
        await process.stdin.drain()


async def _end(process: asyncio.subprocess.Process) -> None:
    """End the child and what it started."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        try:
            async with asyncio.timeout(_TERMINATE_S):
                await process.wait()
        except TimeoutError:
            logger.warning("the embedded engine did not end by itself and is killed")
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    await process.wait()


def place() -> Path:
    """Return where temporary files go, unless its name is too long for sockets within it."""
    usual = tempfile.gettempdir()
    return Path(usual if len(os.fsencode(usual)) <= _MAX_PLACE else "/tmp")  # noqa: S108 - 0700 folders within
