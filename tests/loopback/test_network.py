"""Talks over bad networks: what of an answer is heard, word by word, and for how long nothing is."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from itertools import groupby

import aiohttp
import numpy as np
import pytest
from kit import Ear, running_server, until
from link import SERVER, Link, linked

from visavis.audio import BLOCK, RATE, Pcm, level_dbfs
from visavis.config import Config, RtcConfig, ServerConfig
from visavis.dialer import Dialer
from visavis.engine import Request
from visavis.engine.scripted import Reply, ScriptedEngine
from visavis.rtc import Media

pytestmark = [pytest.mark.loopback, pytest.mark.network]

KEY = "key-of-a-traveller"
WORDS = 20
WORD_S = 0.3
LOWEST_HZ, STEP_HZ = 400, 100
"Each word is a tone of its own, by which it is known when it is heard."
WINDOW = RATE // 25
"Samples of which the pitch is told: 40 ms, to 25 Hz."
AUDIBLE_DBFS = -45.0
KNOWN_BY = 2
"Windows that tell a word, of some seven that it lasts."
SOME = 2
"Words that a bad network may cost, or a busy machine; two seconds hold seven."
STORY = " ".join(f"word{number}" for number in range(WORDS))


def spoken(text: str) -> Pcm:
    """Say words, each by its tone."""
    times = np.arange(round(WORD_S * RATE)) / RATE
    fade = np.clip(np.minimum(times, WORD_S - times) / 0.01, 0.0, 1.0)
    tones = [
        8_000 * fade * np.sin(2 * np.pi * (LOWEST_HZ + STEP_HZ * int(word.removeprefix("word"))) * times)
        for word in text.split()
    ]
    return np.concatenate(tones).astype(np.int16)


def tell(request: Request) -> Reply:
    """Tell the story, or the rest of it."""
    text = request.recite or STORY
    return Reply(text, pcm=spoken(text), chunk_s=WORD_S, first_chunk_s=WORD_S)


def words_of(blocks: list[Pcm]) -> list[int]:
    """Tell which words there are in what was heard."""
    heard = np.concatenate(blocks)
    windows = heard[: len(heard) // WINDOW * WINDOW].reshape(-1, WINDOW)
    spectra = np.abs(np.fft.rfft(windows * np.hanning(WINDOW)))
    pitches = (spectra.argmax(axis=1) * RATE / WINDOW - LOWEST_HZ) / STEP_HZ
    loud = [level_dbfs(window) > AUDIBLE_DBFS for window in windows]
    numbers = [
        round(p) if ok and abs(p - round(p)) < 0.3 else -1 for p, ok in zip(pitches, loud, strict=True)
    ]
    runs = [(number, len(list(run))) for number, run in groupby(numbers)]
    return [number for number, length in runs if number >= 0 and length >= KNOWN_BY]


class Traveller(Ear):
    """Hears, and calls again when the call is lost."""

    def __init__(self) -> None:
        super().__init__()
        self.opened, self.over = asyncio.Event(), asyncio.Event()
        self.send: Callable[[str], None] = lambda _: None
        self.calls = 0
        self._hum = np.random.default_rng(1)
        self.at: list[float] = []
        "When each block of `heard` came."

    def pull_audio(self) -> Pcm:
        """Give what a microphone does where nobody speaks: never quite nothing."""
        return self._hum.integers(-3, 4, BLOCK).astype(np.int16)

    def begin_call(self) -> None:
        self.calls += 1
        self.opened.clear()
        self.over.clear()

    def receive_audio(self, pcm: Pcm) -> None:
        super().receive_audio(pcm)
        self.at.append(asyncio.get_running_loop().time())

    def receive_message(self, text: str) -> None:
        super().receive_message(text)
        if self.open:
            self.opened.set()

    def closed(self, reason: str) -> None:
        self.over.set()

    def ask(self) -> None:
        """Have the story told."""
        item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Go."}]}
        self.send(json.dumps({"type": "conversation.item.create", "item": item}))
        self.send(json.dumps({"type": "response.create"}))

    def words(self) -> list[int]:
        return words_of(self.heard) if self.heard else []

    def longest_silence_s(self) -> float:
        """Return the longest stretch without sound between the first and the last that was heard."""
        loud = [at for at, pcm in zip(self.at, self.heard, strict=True) if level_dbfs(pcm) > AUDIBLE_DBFS]
        return float(np.diff(loud).max())


@asynccontextmanager
async def calling(url: str) -> AsyncIterator[Traveller]:
    """Call, and again after each loss."""
    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(
            aiohttp.ClientSession(
                headers={"Authorization": f"Bearer {KEY}"},
                connector=aiohttp.TCPConnector(force_close=True),
            )
        )
        media = await stack.enter_async_context(Media(RtcConfig()))
        traveller = Traveller()
        dialer = Dialer(http, url, lambda: media.caller(traveller, None, 12.0), traveller)
        stack.push_async_callback(dialer.aclose)
        await dialer.connect()

        async def come_back() -> None:
            while True:
                await traveller.over.wait()
                await dialer.reconnect()

        coming_back = asyncio.create_task(come_back())
        try:
            yield traveller
        finally:
            coming_back.cancel()
            await asyncio.wait({coming_back})


async def story_over(traveller: Traveller) -> None:
    await until(lambda: traveller.kinds()["output_audio_buffer.stopped"] == 1, "the story's end")


@pytest.fixture
def link():
    with linked() as link:
        yield link


@pytest.fixture
def url(link: Link):
    """A server at its end of the line."""
    stack = AsyncExitStack()
    config = Config(server=ServerConfig(keys=(KEY,)), rtc=replace(RtcConfig(), connect_s=10.0))

    async def start() -> str:
        running = running_server(config, ScriptedEngine([tell]), host=SERVER)
        return (await stack.enter_async_context(running)).url

    yield link.server.run(start())
    link.server.run(stack.aclose())


def lost(traveller: Traveller, what: str) -> int:
    """Count the words that were not heard, and tell what became of the others."""
    words = traveller.words()
    missing = WORDS - len({*words})
    print(
        f"{what}: {traveller.calls} call(s), longest silence {traveller.longest_silence_s():.2f} s, "
        f"{missing} of {WORDS} words lost, {len(words) - WORDS + missing} heard twice"
    )
    return missing


def test_200_ms_and_a_tenth_of_the_packets_lost_each_way(link: Link, url: str) -> None:
    async def talk() -> Traveller:
        async with calling(url) as traveller:
            await link.set(delay_s=0.2, loss=0.1)
            traveller.ask()
            await story_over(traveller)
        return traveller

    traveller = link.caller.run(talk())
    assert lost(traveller, "200 ms and 10 % each way") <= SOME
    assert traveller.calls == 1


def test_two_seconds_without_a_network(link: Link, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """While nothing comes from a caller who sends all the time, the answer waits."""
    monkeypatch.setattr("visavis.rtc.link.STEADY_LOOKS", 4)

    async def talk() -> Traveller:
        async with calling(url) as traveller:
            traveller.ask()
            await until(lambda: len(traveller.words()) >= 4, "some words")
            await link.set(down=True)
            await asyncio.sleep(2.0)
            await link.set()
            await story_over(traveller)
        return traveller

    traveller = link.caller.run(talk())
    assert lost(traveller, "2 s without a network") <= SOME


def test_another_address(link: Link, url: str) -> None:
    async def talk() -> Traveller:
        async with calling(url) as traveller:
            traveller.ask()
            await until(lambda: len(traveller.words()) >= 4, "some words")
            await link.move_caller()
            await story_over(traveller)
        return traveller

    traveller = link.caller.run(talk())
    assert lost(traveller, "another address") <= SOME
    assert traveller.calls == 2
    assert traveller.kinds()["visavis.resumed"] == 1
