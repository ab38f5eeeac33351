"""One embedded engine for all tests of real models, in a child process as `serve` runs it."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from asking import START_S, Client, whisper_folder

from visavis.audio import RATE, Pcm, resample
from visavis.config import LocalConfig
from visavis.local.supervisor import Supervisor
from visavis.local.whisper import RATE as HEARING_RATE
from visavis.local.whisper import Recogniser


@pytest.fixture(scope="session")
def running() -> Iterator[Supervisor]:
    """A supervised engine in a thread with a loop of its own, for each test has its own."""
    supervisor = Supervisor(LocalConfig(queue=4))
    warm = threading.Event()
    with asyncio.Runner() as runner, ThreadPoolExecutor(1) as thread:
        ended = thread.submit(runner.run, supervisor.run(warm.set))
        ended.add_done_callback(lambda _: warm.set())
        assert warm.wait(START_S)
        if ended.done():
            ended.result()
        yield supervisor
        asyncio.run_coroutine_threadsafe(supervisor.aclose(), runner.get_loop()).result()
        ended.result(timeout=START_S)


@pytest.fixture
async def client(running: Supervisor) -> Client:
    async with asyncio.timeout(START_S):
        while not running.ready:  # noqa: ASYNC110 - the supervisor's loop is another
            await asyncio.sleep(0.05)
    return Client(running)


@pytest.fixture(scope="session")
def recogniser() -> Recogniser:
    """Whisper in this process, to hear what the engine says."""
    return Recogniser(whisper_folder(), threads=2)


@pytest.fixture
def hear(recogniser: Recogniser) -> Callable[[Pcm], str]:
    return lambda pcm: recogniser.recognise(resample(pcm, RATE, HEARING_RATE)).text
