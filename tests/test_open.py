"""From settings to engines."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from typing import Literal

import pytest

from visavis.audio import EMPTY, Pcm
from visavis.config import Config, ConversationConfig, EngineConfig, GreetingConfig, RouterConfig
from visavis.engine import Message, Request, Routed, TextPart
from visavis.engine.dashscope import DashscopeEngine
from visavis.engine.open import open_engine, open_engines, settings_of
from visavis.engine.reciting import RecitingEngine
from visavis.engine.router import RouterEngine
from visavis.errors import ConfigError, EngineBusy, EngineLost
from visavis.repertoire import Repertoire
from visavis.wiring import running_engine


class NoVoice:
    async def say(self, call_id: str, text: str) -> AsyncGenerator[Pcm, None]:
        raise EngineLost("There is none.")
        yield EMPTY


SCRIPTED = EngineConfig(name="scripted")
VLLM = EngineConfig(name="vllm")
GONE = replace(VLLM, url="unix:///nowhere/at/all")


def ask(call_id: str = "call-1") -> Request:
    return Request(call_id, (Message("user", (TextPart("Hi."),)),))


async def route(engine: RouterEngine, call_id: str = "call-1") -> Routed:
    async with aclosing(engine.respond(ask(call_id))) as deltas:
        return next(delta for delta in [delta async for delta in deltas] if isinstance(delta, Routed))


async def test_one_engine_is_routed_too_and_named_as_configured() -> None:
    engine = open_engines(Config(engine=SCRIPTED))
    assert await route(engine) == Routed("scripted")
    assert await route(open_engines(Config(engine=replace(SCRIPTED, label="stage")))) == Routed("stage")


async def test_fallbacks_answer_in_their_order() -> None:
    config = Config(engine=GONE, fallbacks=(replace(GONE, label="second"), SCRIPTED))
    engine = open_engines(config)
    assert await route(engine) == Routed("scripted", "vllm: lost; second: lost")
    await engine.aclose()


async def test_the_candidate_answers_its_share_of_calls() -> None:
    config = Config(
        engine=SCRIPTED,
        candidate=replace(SCRIPTED, label="new"),
        router=RouterConfig(candidate_share=0.5),
    )
    engine = open_engines(config)
    assert {(await route(engine, f"call-{number}")).engine for number in range(40)} == {"scripted", "new"}


async def test_a_candidate_that_is_sent_no_clips_is_sent_nothing_ahead() -> None:
    # Apart, the sound of a turn has one name however much there is of it: what was sent ahead would stay.
    candidate = replace(GONE, media="separate")
    config = Config(engine=VLLM, candidate=candidate, router=RouterConfig(candidate_share=1))
    engine = open_engines(config)
    with pytest.raises(EngineBusy, match="sent ahead"):
        async with aclosing(engine.respond(replace(ask(), ahead=True))) as deltas:
            await anext(deltas)
    await engine.aclose()


@pytest.mark.parametrize(("kind", "sent"), [("vllm", False), ("local", True)])
async def test_words_are_sent_ahead_to_the_embedded_engine_alone(
    kind: Literal["vllm", "local"], sent: bool
) -> None:
    """A request that is let through is lost at the socket, where nobody listens."""
    engines = {"vllm": replace(GONE, media="interleaved"), "local": EngineConfig(name="local")}
    config = Config(engine=engines["local"], candidate=engines["vllm"], router=RouterConfig())
    share = 1.0 if kind == "vllm" else 0.0
    config = replace(config, router=RouterConfig(candidate_share=share))
    engine = open_engines(config, "unix:///nowhere")
    with pytest.raises(EngineLost if sent else EngineBusy):
        async with aclosing(engine.respond(replace(ask(), ahead=True))) as deltas:
            await anext(deltas)
    await engine.aclose()


async def test_engines_of_one_name_are_told_apart_by_number() -> None:
    engine = open_engines(Config(engine=GONE, fallbacks=(GONE, GONE, SCRIPTED)))
    assert (await route(engine)).reason == "vllm: lost; vllm-2: lost; vllm-3: lost"
    await engine.aclose()


async def test_limits_are_each_engines_own() -> None:
    narrow = replace(SCRIPTED, label="narrow", max_concurrent=1, max_queued=0)
    engine = open_engines(Config(engine=narrow, fallbacks=(SCRIPTED,)))
    async with aclosing(engine.respond(ask())) as deltas:
        assert await anext(deltas) == Routed("narrow")
        assert await route(engine) == Routed("scripted", "narrow: queue full")


def test_the_order_is_first_choice_fallbacks_candidate() -> None:
    config = Config(engine=VLLM, fallbacks=(SCRIPTED,), candidate=replace(VLLM, label="new"))
    assert [settings.label or settings.name for settings in settings_of(config)] == [
        "vllm",
        "scripted",
        "new",
    ]


async def test_the_embedded_engine_may_be_any_of_them_but_only_once() -> None:
    local = EngineConfig()
    engine = open_engines(Config(engine=VLLM, fallbacks=(local,)), "unix:///s")
    await engine.aclose()
    with pytest.raises(ConfigError, match="twice"):
        open_engines(Config(engine=local, fallbacks=(local,)), "unix:///s")
    with pytest.raises(ConfigError, match="has not been started"):
        open_engines(Config(engine=VLLM, candidate=local))


def test_the_hosted_engines_key_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    hosted = EngineConfig(name="dashscope")
    monkeypatch.delenv("DASHSCOPE_API_KEY", raising=False)
    with pytest.raises(ConfigError, match="DASHSCOPE_API_KEY"):
        open_engine(hosted)
    monkeypatch.setenv("DASHSCOPE_API_KEY", "sk-1")
    assert isinstance(open_engine(hosted), DashscopeEngine)


async def test_the_server_closes_the_engines_that_it_opened() -> None:
    async with running_engine(Config(engine=SCRIPTED, fallbacks=(SCRIPTED,))) as engine:
        assert await engine.ready()
    assert not await engine.ready()


async def test_a_greeting_that_nobody_can_speak_is_told_at_the_start(
    caplog: pytest.LogCaptureFixture,
) -> None:
    config = Config(conversation=ConversationConfig(greeting=GreetingConfig("Hello!")), engine=SCRIPTED)
    async with running_engine(config, repertoire=Repertoire(config.conversation)):
        assert "conversation.greeting.text is shown and not spoken" in caplog.text


async def test_the_embedded_engine_recites_with_its_voice() -> None:
    local = EngineConfig(name="local", url="unix:///nowhere/at/all")
    for voice, recites in ((NoVoice(), True), (None, False)):
        async with aclosing(open_engines(Config(engine=local), voice=voice)) as engine:
            (lane,) = engine._lanes
            assert isinstance(lane.engine, RecitingEngine) is recites
