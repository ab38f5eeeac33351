"""A text that is wanted as it is: said by our voice where the caller knows the engine by it."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

import numpy as np
import pytest

from visavis.audio import Pcm
from visavis.engine import AudioDelta, Delta, Done, Message, Request, TextDelta, TextPart
from visavis.engine.reciting import RecitingEngine
from visavis.engine.scripted import Reply, ScriptedEngine
from visavis.errors import EngineLost

TEXT = "And then there was the cat. It was black."
ASK = Request("call", (Message("user", (TextPart("Go on."),)),), recite=TEXT)
SOUND = np.full(240, 5, np.int16)


class Voice:
    def __init__(self, fails_at: int | None = None) -> None:
        self.said: list[str] = []
        self._fails_at = fails_at

    async def say(self, call_id: str, text: str) -> AsyncGenerator[Pcm, None]:
        if len(self.said) == self._fails_at:
            raise EngineLost("The voice is gone.")
        self.said.append(text)
        for _ in range(2):
            yield SOUND


async def ask(voice: Voice, request: Request = ASK, *, ours: bool = True) -> list[Delta]:
    inner = ScriptedEngine([Reply("The engine's own.", pcm=SOUND)])
    engine = RecitingEngine(inner, voice, lambda: ours)
    assert await engine.ready()
    async with aclosing(engine), aclosing(engine.respond(request)) as deltas:
        return [delta async for delta in deltas]


def told(deltas: list[Delta]) -> str:
    return "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))


async def test_it_is_said_clause_by_clause_each_text_before_its_sound() -> None:
    voice = Voice()
    deltas = await ask(voice)
    assert [type(delta) for delta in deltas] == [TextDelta, AudioDelta, AudioDelta] * 2 + [Done]
    assert told(deltas) == "".join(voice.said) == TEXT


async def test_to_who_reads_it_is_only_told() -> None:
    voice = Voice()
    deltas = await ask(voice, Request("call", ASK.messages, speak=False, recite=TEXT))
    assert {type(delta) for delta in deltas} == {TextDelta, Done}
    assert told(deltas) == TEXT
    assert voice.said == []


@pytest.mark.parametrize(("request_", "ours"), [(ASK, False), (Request("call", ASK.messages), True)])
async def test_an_engine_with_a_voice_of_its_own_is_asked(request_: Request, *, ours: bool) -> None:
    assert told(await ask(Voice(), request_, ours=ours)) == "The engine's own."


async def test_where_the_voice_fails_the_engine_is_asked_unless_some_was_said() -> None:
    assert told(await ask(Voice(fails_at=0))) == "The engine's own."
    with pytest.raises(EngineLost):
        await ask(Voice(fails_at=1))
