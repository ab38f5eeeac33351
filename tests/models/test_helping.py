"""Plain vLLM's part played by a stand-in, the voice and the ears real: a child process with these alone."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from asking import START_S, Client

from engine_wire import DONE, chunk, playing, serving
from test_talker import TEXT
from test_voiced import Inner, answer, asked, order_of, sound_of, text_of
from visavis.audio import RATE, Pcm
from visavis.config import Config, ConversationConfig, EngineConfig, GreetingConfig, LocalConfig
from visavis.engine import AudioDelta, AudioPart, Delta, Done, Message, Request, TextDelta, TranscriptDelta
from visavis.engine.hearing import HearingEngine
from visavis.engine.helper import Helper
from visavis.engine.voiced import VoicedEngine
from visavis.local.parts import Parts
from visavis.local.supervisor import Supervisor
from visavis.repertoire import Repertoire
from visavis.wiring import running_engine

pytestmark = pytest.mark.models

PARTS: Parts = frozenset({"ears", "voice"})
VLLM = EngineConfig(name="vllm")
KINDS = (TextDelta, AudioDelta, TranscriptDelta, Done)
Say = Callable[..., Pcm]
Hear = Callable[[Pcm], str]


@pytest.fixture
async def supervisor() -> AsyncGenerator[Supervisor, None]:
    supervisor = Supervisor(LocalConfig(), parts=PARTS)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(supervisor.run())
        async with asyncio.timeout(START_S):
            await supervisor.wait_ready()
        yield supervisor
        await supervisor.aclose()


@pytest.fixture
async def helper(supervisor: Supervisor) -> AsyncGenerator[Helper, None]:
    helper = Helper(str(supervisor.socket))
    yield helper
    await helper.aclose()


async def test_what_is_only_written_is_spoken_and_what_was_said_is_written(
    helper: Helper, say: Say, hear: Hear
) -> None:
    question = say("What is the weather like today?")
    request = replace(asked(5), messages=(Message("user", (AudioPart(question, "u"),)),))
    words = [TextDelta(word + " ") for word in TEXT.split(" ")]
    engine = HearingEngine(VoicedEngine(Inner([*words, Done()]), VLLM, helper), helper)
    deltas = await answer(engine, request)
    assert text_of(deltas).strip() == TEXT
    assert "breeze from the west" in hear(sound_of(deltas)).lower()
    assert "friend for lunch" in hear(sound_of(deltas)).lower()
    (transcript,) = [delta.text for delta in deltas if isinstance(delta, TranscriptDelta)]
    assert "weather" in transcript.lower()
    assert deltas[-1] == Done()


async def test_a_talker_that_goes_astray_is_replaced_in_the_middle(
    helper: Helper, say: Say, hear: Hear
) -> None:
    speech = say(TEXT)
    astray = np.concatenate([speech[: 2 * RATE], *[speech[RATE : 2 * RATE]] * 12])
    steps: list[Delta] = [TextDelta(TEXT)]
    steps += [AudioDelta(astray[at : at + RATE]) for at in range(0, len(astray), RATE)]
    engine = VoicedEngine(Inner([*steps, Done()]), VLLM, helper)
    deltas = await answer(engine, Request("call", asked(5).messages))
    assert engine.counts() == {"repeated": 1, "spoken": 1}
    assert order_of(deltas) == "TAD"
    assert "meet a friend for lunch" in hear(sound_of(deltas)).lower()


def test_voice_and_ears_alone_load_no_language_model(supervisor: Supervisor) -> None:
    maps = Path(f"/proc/{supervisor.pid}/maps").read_text()
    assert "ctranslate2" in maps
    assert "xllamacpp" not in maps
    assert ".gguf" not in maps


async def test_the_whole_embedded_engine_helps_too(client: Client, say: Say, hear: Hear) -> None:
    """As a fallback it is there anyway: no second process is started for its voice and ears."""
    helper = Helper(str(client.supervisor.socket))
    assert "capital" in (await helper.hear("help", say("What is the capital of France?"))).lower()
    async with aclosing(helper.say("help", "The weather is fine. Let us take a walk.")) as sounds:
        spoken = np.concatenate([pcm async for pcm in sounds])
    assert "take a walk" in hear(spoken).lower()
    await helper.aclose()


async def test_plain_vllm_is_heard_and_hears(say: Say, hear: Hear) -> None:
    """All as the server wires it; the engine's answer as mainline vLLM streams it, without modalities."""
    words = [chunk(word + " ") for word in TEXT.split(" ")]
    async with serving(playing(*words, chunk("", finish="stop"), DONE)) as wire:
        config = Config(engine=EngineConfig(name="vllm", url=wire.url))
        async with running_engine(config) as engine:
            spoken = (AudioPart(say("Is there a breeze today?"), "u"),)
            request = Request("call", (Message("user", spoken),))
            for order in ("TAD", "TATATAD"):  # the second time it is known that no sound will come
                deltas = [delta for delta in await answer(engine, request) if type(delta) in KINDS]
                heard = [delta for delta in deltas if isinstance(delta, TranscriptDelta)]
                assert "breeze" in heard[0].text.lower()
                deltas.remove(heard[0])
                assert order_of(deltas).startswith(order[:4])
                assert text_of(deltas).strip() == TEXT
                assert "friend for lunch" in hear(sound_of(deltas)).lower()


async def test_a_greeting_without_a_recording_is_spoken_once_the_voice_is_there(hear: Hear) -> None:
    greeting = GreetingConfig("Welcome to the railway station.")
    config = Config(conversation=ConversationConfig(greeting=greeting), engine=VLLM)
    repertoire = Repertoire(config.conversation)
    async with running_engine(config, repertoire=repertoire):
        async with asyncio.timeout(START_S):
            while (line := repertoire.lines.greeting) is None or not len(line.pcm):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
    assert "railway station" in hear(line.pcm).lower()
