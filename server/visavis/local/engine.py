"""Put the embedded engine together: load its models, warm them, serve them."""

import asyncio
import logging
import os
import time
from contextlib import AsyncExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from aiohttp import web

from ..config import LocalConfig, SessionConfig
from . import models, speech
from .language import EmbeddedModel, LanguageModel, RemoteModel
from .pipeline import Pipeline
from .server import LocalServer
from .sight import Sight
from .stage import Stage
from .whisper import RATE, Recogniser

logger = logging.getLogger(__name__)

_SHUTDOWN_S = 2.0
"How long responses under way may go on after the signal to stop."


async def serve(config: LocalConfig, socket: Path, stop: asyncio.Event) -> None:
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
        loading = asyncio.ensure_future(load(config, Path(private)))
        stopping = asyncio.ensure_future(stop.wait())
        try:
            await asyncio.wait((loading, stopping), return_when=asyncio.FIRST_COMPLETED)
            if not stop.is_set():
                pipeline = loading.result()
                stack.push_async_callback(pipeline.aclose)
                server.open(pipeline)
                logger.info("ready after %.1f s", time.monotonic() - started)
                await stopping
        finally:
            for task in (loading, stopping):
                task.cancel()
            await asyncio.gather(loading, stopping, return_exceptions=True)


async def load(config: LocalConfig, private_dir: Path) -> Pipeline:
    """Load and warm everything. Raises ModelError."""
    cache = models.cache_dir(config.cache_dir, os.environ)
    threads = config.threads or spare_threads()

    # Reading words in a picture takes all threads for half a second: one thread for it and the language
    # model, so that nobody's voice falters because somebody else shows a sign.
    mind = Stage("mind")

    def load_ears() -> Recogniser:
        folder = models.resolve(config.whisper, cache)
        ears = Recogniser(folder, threads=threads, language=config.language)
        noise = np.random.default_rng(0).normal(0, 300, RATE).astype(np.int16)
        ears.recognise(noise)
        return ears

    def load_model() -> LanguageModel:
        if config.llm_url is not None:
            return RemoteModel(config.llm_url, config.llm_model, config.llm_api_key)
        model = models.resolve(config.model, cache)
        return EmbeddedModel(model, private_dir, cache / "prompts", threads=threads, stage=mind)

    async def load_senses() -> tuple[Recogniser, Sight, speech.Speaker]:
        ears = await asyncio.to_thread(load_ears)
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
    pipeline = Pipeline(ears, eyes, model, voice, max_tokens=config.max_tokens, seeing=mind)
    try:
        await pipeline.warm(SessionConfig().instructions)
    except BaseException:
        await pipeline.aclose()
        raise
    return pipeline


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
