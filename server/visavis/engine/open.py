"""Which engines the configuration names, each by itself and all of them as one."""

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

from ..config import Config, EngineConfig, FusionConfig
from ..errors import ConfigError
from ..local.running import Embedded
from . import Engine
from .dashscope import KEY_VARIABLE, DashscopeEngine
from .hearing import HearingEngine
from .helper import Helper
from .pool import LockPool
from .reciting import RecitingEngine
from .router import Entry, RouterEngine
from .scripted import ScriptedEngine
from .vllm import VllmEngine
from .voiced import Voice, VoicedEngine

HELPED = frozenset({"vllm", "dashscope"})
"Engines whose answers may lack sound and transcripts, or have the wrong sound."


def open_engine(config: EngineConfig, fusion: FusionConfig | None = None) -> Engine:
    """Make the engine that `config.name` names; the caller closes it with `aclose`.

    For the embedded engine `url` must be the socket of its supervisor, who alone knows it. Raises
    ConfigError if it is not, if `url` is no address, or if a key is missing.
    """
    fusion = fusion or FusionConfig()
    match config.name:
        case "scripted":
            return ScriptedEngine()
        case "vllm":
            return VllmEngine(config, fusion)
        case "dashscope":
            key = config.api_key or os.environ.get(KEY_VARIABLE)
            return DashscopeEngine(replace(config, api_key=key), fusion)
        case "local":
            if not config.url.startswith("unix://"):
                raise ConfigError("engine.name is local, but the embedded engine has not been started")
            # The key is for another server; this one decides by grammar what is a call.
            return VllmEngine(replace(config, api_key=None, tools="server"), fusion)


def open_engines(
    config: Config, local_url: str | None = None, voice: Voice | None = None, pools: Path | None = None
) -> RouterEngine:
    """Make all engines of the configuration into one; the caller closes it with `aclose`.

    A single one too, for its limits. `local_url` is where the embedded engine answers, if it is one of
    them; `voice` speaks for the others where they do not. `pools` is the folder by which processes share the
    engines' places. Raises ConfigError as `open_engine` does, or if the embedded engine is there twice.
    """
    everything = [*settings_of(config)]
    if sum(settings.name == "local" for settings in everything) > 1:
        raise ConfigError("The embedded engine is configured twice; once is enough.")
    labels = [*_labels(everything)]
    entries = []
    for settings, label in zip(everything, labels, strict=True):
        url = local_url if settings.name == "local" and local_url is not None else settings.url
        engine = open_engine(replace(settings, url=url), config.fusion)
        if settings.name in HELPED:
            engine = _voiced(engine, settings, voice if settings.embedded_voice else None)
        elif settings.name == "local" and voice is not None:
            engine = RecitingEngine(engine, voice, lambda: True)
        # What the conversation sends ahead suits the first choice: to another kind of engine it is of no use.
        ahead = settings.takes_ahead is not None and settings.takes_ahead == config.engine.takes_ahead
        places, queue = settings.max_concurrent, settings.max_queued
        pool = None if pools is None else LockPool(pools / _pool_name(label, settings), places, queue)
        alone = settings.name == "local"
        entries.append(Entry(label, engine, places, queue, looks_ahead=ahead, one_at_a_time=alone, pool=pool))
    candidate = entries.pop() if config.candidate is not None else None
    return RouterEngine(entries, candidate, config.router)


@asynccontextmanager
async def opened_engine(
    config: Config, embedded: Embedded | None, pools: Path | None = None
) -> AsyncIterator[Engine]:
    """Open the configured engines as one, with what runs of the embedded one for voice and ears beside them.

    `pools` is the folder by which several processes share their limits. Raises ConfigError.
    """
    if embedded is None:
        async with aclosing(open_engines(config, pools=pools)) as alone:
            yield alone
        return
    async with aclosing(Helper(str(embedded.socket))) as helper:
        voice = helper if "voice" in embedded.parts else None
        engine: Engine = open_engines(config, embedded.url, voice, pools)
        if "ears" in embedded.parts:
            deaf = any(settings.name in HELPED and settings.embedded_ears for settings in settings_of(config))
            engine = HearingEngine(engine, helper, transcribes=deaf)
        async with aclosing(engine):
            yield engine


def _voiced(inner: Engine, settings: EngineConfig, voice: Voice | None) -> Engine:
    voiced = VoicedEngine(inner, settings, voice)
    return voiced if voice is None else RecitingEngine(voiced, voice, lambda: voiced.spoken_for)


def settings_of(config: Config) -> Iterator[EngineConfig]:
    """Give the settings of every engine: the first choice, the fallbacks in order, the candidate last."""
    yield config.engine
    yield from config.fallbacks
    if config.candidate is not None:
        yield config.candidate


def _pool_name(label: str, settings: EngineConfig) -> str:
    """Name an engine alike in all processes, those with older settings too."""
    return sha256(f"{label} {settings.name} {settings.url}".encode()).hexdigest()[:16]


def _labels(everything: list[EngineConfig]) -> Iterator[str]:
    """Name each engine; one that is named like an earlier one has a number behind it."""
    taken: set[str] = set()
    for settings in everything:
        name = label = settings.label or settings.name
        number = 2
        while label in taken:
            label = f"{name}-{number}"
            number += 1
        taken.add(label)
        yield label
