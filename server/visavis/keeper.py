"""`visavis engine`: start vLLM-Omni as our settings ask, pass its output on, start it again when it dies."""

import asyncio
import contextlib
import importlib.metadata
import importlib.util
import json
import logging
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import aiohttp

from .config import Config
from .deploy import arguments, check, parse_version, shell_command, stages
from .engine.health import is_out_of_memory, read_figures, read_gpus
from .errors import ConfigError, EngineLost
from .signals import on_stop_signal
from .tether import tethered

logger = logging.getLogger(__name__)

_OLDEST = "0.30"
"The version written for where vLLM is not installed: vLLM-Omni's newest on the package registry."
_INSTALL = (
    "vLLM-Omni is not installed here. On the machine with the GPUs, in an environment of its own, run this "
    "in Visavis's folder: pip install '.[vllm]'"
)
_MAX_LINE = 65_536


@dataclass(frozen=True, slots=True)
class Pace:
    """Times of the keeping, in seconds."""

    poll_s: float = 2.0
    "Between questions whether the server is well."
    ping_s: float = 5.0
    "In which it must answer one."
    sick_s: float = 60.0
    "A server that was well and is not for so long is started again; vLLM's own long stalls are shorter."
    first_pause_s: float = 1.0
    "Before the first new start; each further one waits twice as long."
    longest_pause_s: float = 60.0
    steady_s: float = 600.0
    "After a life this long the pauses begin anew."
    terminate_s: float = 20.0
    "Between SIGTERM and SIGKILL: the stages free their GPUs one after the other."


def print_command(config: Config) -> None:
    """Print the command for a shell, and on standard error what it cannot hold."""
    check(config)
    version = config.deploy.vllm or _installed_version()
    print(shell_command(config, version=parse_version(version)))
    if config.engine.api_key is not None:
        print("visavis: set VLLM_API_KEY to engine.api_key before you run it.", file=sys.stderr)


async def keep(config: Config) -> int:
    """Run the server until SIGTERM or SIGINT, which it is given too, and start it again whenever it dies.

    Returns its exit status if it dies before it was ever well, for then a new start helps nothing; else 0.

    Raises:
        ConfigError: the settings make no server, or vLLM-Omni is not installed.
    """
    check(config)
    program = _program()
    version = parse_version(config.deploy.vllm or _installed_version())
    with tempfile.TemporaryDirectory(prefix="visavis-engine-") as folder:
        file = Path(folder) / "stages.json"
        file.write_text(json.dumps(stages(config), indent=1))
        command = [program, *arguments(config, str(file), version=version)[1:]]
        environment = dict(os.environ)
        if config.engine.api_key is not None:
            environment["VLLM_API_KEY"] = config.engine.api_key
        url = None if config.deploy.headless else _url(config)
        keeper = Keeper(command, environment, url, key=config.engine.api_key)
        with on_stop_signal(keeper.stop):
            return await keeper.run()


class Keeper:
    """Owns the child process. `run` is awaited by whoever made it."""

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        url: str | None,
        *,
        key: str | None = None,
        pace: Pace | None = None,
    ) -> None:
        """`url` is the root of the server, None for a part of it that answers no requests."""
        self._command = tuple(command)
        self._environment = dict(environment)
        self._url = url
        self._key = key
        self._pace = pace or Pace()
        self._stopping = asyncio.Event()
        self._was_well = False
        self._out_of_memory = False
        self.starts = 0

    def stop(self) -> None:
        """Make `run` end the server and return."""
        self._stopping.set()

    async def run(self) -> int:
        """Keep the server running until `stop`. Returns as `keep` does."""
        loop = asyncio.get_running_loop()
        pause = self._pace.first_pause_s
        while True:
            started = loop.time()
            status = await self._live()
            if status is None:
                return 0
            if self._out_of_memory:
                self._out_of_memory = False
                await _tell_memory("it has ended")
            if not self._was_well and self._url is not None:
                logger.error("the engine ended with status %d before it was ready", status)
                return status or 1
            if loop.time() - started > self._pace.steady_s:
                pause = self._pace.first_pause_s
            logger.error("the engine ended with status %d; starting it again in %.0f s", status, pause)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._stopping.wait()
                    return 0
            pause = min(self._pace.longest_pause_s, 2 * pause)

    async def _live(self) -> int | None:
        """Run one server to its end and tell its exit status, None if it was to end."""
        if self._stopping.is_set():
            return None
        self.starts += 1
        process = await asyncio.create_subprocess_exec(
            *tethered(self._command),
            env=self._environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,  # an interrupt typed at the terminal comes through us
            limit=_MAX_LINE,
        )
        logger.info("engine started, process %d", process.pid)
        assert process.stdout is not None, "asked for"
        assert process.stderr is not None, "asked for"
        pipes = [
            asyncio.create_task(self._pass_on(process.stdout, sys.stdout.buffer)),
            asyncio.create_task(self._pass_on(process.stderr, sys.stderr.buffer)),
        ]
        stopping = asyncio.create_task(self._stopping.wait())
        ended = asyncio.create_task(process.wait())
        tasks = [*pipes, stopping, ended]
        if self._url is not None:
            tasks.append(asyncio.create_task(self._watch(self._url)))
        try:
            await asyncio.wait((stopping, ended, *tasks[4:]), return_when=asyncio.FIRST_COMPLETED)
            was_to_end = stopping.done()
        finally:
            await self._end(process)
            await asyncio.wait(pipes, timeout=1)  # its last words
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return None if was_to_end else process.returncode

    async def _watch(self, url: str) -> None:
        """Ask for the server's health; return when it was well and is so no more."""
        loop = asyncio.get_running_loop()
        started, well = loop.time(), 0.0
        headers = {} if self._key is None else {"Authorization": f"Bearer {self._key}"}
        timeout = aiohttp.ClientTimeout(total=self._pace.ping_s)
        async with aiohttp.ClientSession(headers=headers, timeout=timeout) as session:
            while True:
                with contextlib.suppress(aiohttp.ClientError, OSError):
                    async with session.get(f"{url}/health") as response:
                        if response.status == 200:
                            if not well:
                                logger.info("engine ready at %s after %.0f s", url, loop.time() - started)
                            well, self._was_well = loop.time(), True
                if well and loop.time() - well > self._pace.sick_s:
                    logger.error("the engine has not been well for %.0f s and is ended", self._pace.sick_s)
                    return
                if self._out_of_memory:
                    await _tell_memory(await _figures(session, url))
                    self._out_of_memory = False  # only now: when the server ends meanwhile, `run` tells
                await asyncio.sleep(self._pace.poll_s)

    async def _pass_on(self, source: asyncio.StreamReader, target: BinaryIO) -> None:
        """Copy the server's output and look out for memory that was not enough."""
        while data := await _line(source):
            target.write(data)
            target.flush()
            if is_out_of_memory(data.decode(errors="replace")):
                self._out_of_memory = True

    async def _end(self, process: asyncio.subprocess.Process) -> None:
        """End the server and what it started: a worker left behind would hold its GPU."""
        try:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.terminate()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._pace.terminate_s):
                        await process.wait()
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()


async def _figures(session: aiohttp.ClientSession, url: str) -> str:
    try:
        return str(await read_figures(session, url))
    except EngineLost as error:
        return str(error)


async def _tell_memory(figures: str) -> None:
    gpus = "; ".join(map(str, await read_gpus())) or "no nvidia-smi here"
    logger.error(
        "the engine is out of GPU memory (%s; %s): lower deploy.max_num_seqs, deploy.max_model_len or"
        " deploy.max_videos",
        figures,
        gpus,
    )


async def _line(source: asyncio.StreamReader) -> bytes:
    """Read a line, or as much of a very long one as is buffered; nothing at the end."""
    try:
        return await source.readuntil(b"\n")
    except asyncio.IncompleteReadError as rest:
        return rest.partial
    except asyncio.LimitOverrunError as long:
        return await source.read(max(1, long.consumed))


def _program() -> str:
    """Find `vllm`: in our own environment, whether or not that is active, else on the path."""
    beside = Path(sys.executable).with_name("vllm")
    if beside.exists():
        if importlib.util.find_spec("vllm_omni") is None:
            raise ConfigError(_INSTALL)
        return str(beside)
    found = shutil.which("vllm")
    if found is None:
        raise ConfigError(_INSTALL)
    return found


def _installed_version() -> str:
    try:
        return importlib.metadata.version("vllm")
    except importlib.metadata.PackageNotFoundError:
        return _OLDEST


def _url(config: Config) -> str:
    host = config.deploy.host
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - not listened on
    return f"http://[{host}]:{config.deploy.port}" if ":" in host else f"http://{host}:{config.deploy.port}"
