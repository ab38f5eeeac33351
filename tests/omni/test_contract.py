"""The bridge against a server of vLLM-Omni's contract whose model is real but for its size."""

from contextlib import aclosing
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from omni.chain import Model
from omni.media import jpeg, picture
from omni.tiny import ANSWER
from visavis.audio import RATE
from visavis.config import EngineConfig
from visavis.engine import (
    AudioDelta,
    AudioPart,
    Delta,
    Done,
    FramesPart,
    Message,
    Request,
    TextDelta,
    TextPart,
    Usage,
)
from visavis.engine.vllm import VllmEngine
from visavis.errors import EngineRefused
from visavis.frames import Frame

SIGHT = FramesPart(
    tuple(Frame(jpeg(picture(320, 240, 20 * k + 20)), 320, 240, k * RATE // 2) for k in range(6)), "t1-frames"
)
SOUND = AudioPart((3_000 * np.sin(np.arange(3 * RATE) / 20)).astype(np.int16), "t1-audio")
TURN = Message("user", (SIGHT, SOUND))
TYPED = Message("user", (TextPart("And now?"),))


async def ask(model: Model, request: Request, /, **settings: Any) -> list[Delta]:
    settings = {"name": "vllm", "url": model.url, "model": "short", **settings}
    engine = VllmEngine(replace(EngineConfig(), **settings))
    try:
        async with aclosing(engine.respond(request)) as deltas:
            return [delta async for delta in deltas]
    finally:
        await engine.aclose()


def text_of(deltas: list[Delta]) -> str:
    return "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))


@pytest.mark.parametrize("media", ["interleaved", "separate", "frames"])
async def test_a_turn_and_its_history_are_answered_in_text_and_sound(model: Model, media: str):
    history = (
        Message("system", (TextPart("Be brief."),)),
        TURN,
        Message("assistant", (TextPart(ANSWER),)),
        TYPED,
    )
    deltas = await ask(model, Request(f"call-{media}", history), media=media)
    [answer] = await model.answers(f"call-{media}")
    sound = np.concatenate([delta.pcm for delta in deltas if isinstance(delta, AudioDelta)])
    [usage] = [delta for delta in deltas if isinstance(delta, Usage)]
    assert text_of(deltas) == ANSWER
    assert np.array_equal(sound, await model.sound(answer))
    assert usage.input_tokens == answer["prompt_tokens"] > 300
    assert deltas[-1] == Done("stop")
    body = await model.request(answer)
    kinds = [part["type"] for part in body["messages"][1]["content"]]
    assert (
        kinds
        == {
            "interleaved": ["video_url"],
            "separate": ["video_url", "input_audio"],
            "frames": ["image_url"] * 6 + ["input_audio"],
        }[media]
    )


async def test_with_the_talker_off_there_is_text_alone(model: Model):
    deltas = await ask(model, Request("call-text", (TURN,), speak=False))
    [answer] = await model.answers("call-text")
    assert text_of(deltas) == ANSWER
    assert not any(isinstance(delta, AudioDelta) for delta in deltas)
    assert answer["frames"] == 0


async def test_an_unknown_voice_is_replaced_and_the_text_ends_at_its_bound(model: Model):
    request = Request("call-voice", (TYPED,), voice="marin", max_tokens=5)
    deltas = await ask(model, request)
    assert ANSWER.startswith(text_of(deltas))
    assert deltas[-1] == Done("length")
    assert len(await model.answers("call-voice")) == 1


async def test_an_unknown_model_is_refused(model: Model):
    with pytest.raises(EngineRefused, match="does not exist"):
        await ask(model, Request("call-model", (TYPED,)), model="large")


async def test_the_server_is_ready(model: Model):
    engine = VllmEngine(replace(EngineConfig(), name="vllm", url=model.url))
    try:
        assert await engine.ready()
    finally:
        await engine.aclose()
