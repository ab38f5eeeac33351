"""Put the embedded engine together: load its models, warm them, serve them."""

import asyncio
import logging
import os
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from aiohttp import web

from ..config import LocalConfig, SessionConfig
from . import models, speech
from .hearing import Hearing
from .language import EmbeddedModel, LanguageModel, RemoteModel
from .parts import ALL, Parts, to_text
from .pipeline import Pipeline
from .server import LocalServer
from .sight import Sight
from .speech import Voice
from .stage import Stage
from .whisper import RATE, Recogniser

logger = logging.getLogger(__name__)

_SHUTDOWN_S = 2.0
"How long responses under way may go on after the signal to stop."


async def serve(config: LocalConfig, socket: Path, stop: asyncio.Event, parts: Parts = ALL) -> None:
    """Serve on a Unix socket until `stop` is set. Raises ModelError if a model cannot be loaded."""
    server = LocalServer(Path(config.model).stem, queue=config.queue)
    async with AsyncExitStack() as stack:
        # Without handler_cancellation a client that leaves would be served to the end.
        runner = web.AppRunner(
            server.app(), handler_cancellation=True, access_log=None, shutdown_timeout=_SHUTDOWN_S
        )
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        await asyncio.to_thread(socket.unlink, missing_ok=True)  # of a process that was killed
        stack.push_async_callback(asyncio.to_thread, socket.unlink, missing_ok=True)
        # Private whatever folder the socket is in, and gone with that folder if this process is killed.
        private = stack.enter_context(TemporaryDirectory(prefix="llama-", dir=socket.parent))
        await web.UnixSite(runner, socket).start()
        started = time.monotonic()
        loading = asyncio.ensure_future(load(config, Path(private), parts))
        stopping = asyncio.ensure_future(stop.wait())
        try:
            await asyncio.wait((loading, stopping), return_when=asyncio.FIRST_COMPLETED)
            if not stop.is_set():
                loaded = loading.result()
                stack.push_async_callback(loaded.aclose)
                server.open(loaded.pipeline, loaded.hearing, loaded.voice)
                logger.info("ready after %.1f s: %s", time.monotonic() - started, to_text(parts))
                await stopping
        finally:
            for task in (loading, stopping):
                task.cancel()
            await asyncio.gather(loading, stopping, return_exceptions=True)


@dataclass(frozen=True, slots=True)
class Loaded:
    """The parts that were asked for, warm. A pipeline owns the others."""

    hearing: Hearing | None = None
    voice: Voice | None = None
    pipeline: Pipeline | None = None

    async def aclose(self) -> None:
        if self.pipeline is not None:
            await self.pipeline.aclose()
            return
        await asyncio.gather(*(part.aclose() for part in (self.hearing, self.voice) if part is not None))


async def load(config: LocalConfig, private_dir: Path, parts: Parts = ALL) -> Loaded:
    """Load and warm these parts, all of them if the mind is one. Raises ModelError."""
    threads = config.threads or spare_threads()
    if "mind" in parts:
        return await _load_all(config, private_dir, threads)
    hearing = Hearing(await asyncio.to_thread(_load_ears, config, threads)) if "ears" in parts else None
    return Loaded(hearing, await speech.load() if "voice" in parts else None)


def _load_ears(config: LocalConfig, threads: int) -> Recogniser:
    folder = models.resolve(config.whisper, models.cache_dir(config.cache_dir, os.environ))
    ears = Recogniser(folder, threads=threads, language=config.language)
    noise = np.random.default_rng(0).normal(0, 300, RATE).astype(np.int16)
    ears.recognise(noise)
    return ears


async def _load_all(config: LocalConfig, private_dir: Path, threads: int) -> Loaded:
    cache = models.cache_dir(config.cache_dir, os.environ)

    # Reading words in a picture takes all threads for half a second: one thread for it and the language
    # model, so that nobody's voice falters because somebody else shows a sign.
    mind = Stage("mind")

    def load_model() -> LanguageModel:
        if config.llm_url is not None:
            return RemoteModel(config.llm_url, config.llm_model, config.llm_api_key)
        model = models.resolve(config.model, cache)
        return EmbeddedModel(model, private_dir, cache / "prompts", threads=threads, stage=mind)

    async def load_senses() -> tuple[Recogniser, Sight, speech.Speaker]:
        ears = await asyncio.to_thread(_load_ears, config, threads)
        eyes = await asyncio.to_thread(lambda: Sight(threads=threads))
        return ears, eyes, await speech.load()

    started = time.monotonic()
    loading = asyncio.create_task(load_senses())
    try:
        model = await asyncio.to_thread(load_model)
        ears, eyes, voice = await loading
    except BaseException:
        loading.cancel()
        await asyncio.wait((loading,))
        raise
    logger.info(
        "%d threads, %d spoken languages; loaded in %.1f s",
        threads,
        len(voice.languages),
        time.monotonic() - started,
    )
    hearing = Hearing(ears)
    pipeline = Pipeline(hearing, eyes, model, voice, max_tokens=config.max_tokens, seeing=mind)
    try:
        await pipeline.warm(SessionConfig().instructions)
    except BaseException:
        await pipeline.aclose()
        raise
    return Loaded(hearing, voice, pipeline)


def spare_threads() -> int:
    """Count physical cores that this process may use, less one for the media; two at least if there are two.

    On two cores the nice value keeps the media ahead, and one thread would halve the speed.
    """
    usable = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    cores = set()
    for cpu in usable:
        siblings = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
        cores.add(siblings.read_text().strip() if siblings.exists() else str(cpu))
    return max(min(2, len(cores)), len(cores) - 1)
