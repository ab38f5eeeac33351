"""Which engine the configuration names."""

from dataclasses import replace

from ..config import EngineConfig
from ..errors import ConfigError
from . import Engine
from .scripted import ScriptedEngine
from .vllm import VllmEngine


def open_engine(config: EngineConfig) -> Engine:
    """Make the engine that `config.name` names; the caller closes it with `aclose`.

    For the embedded engine `url` must be the socket of its supervisor, who alone knows it. Raises
    ConfigError if it is not, or if `url` is no address.
    """
    match config.name:
        case "scripted":
            return ScriptedEngine()
        case "vllm":
            return VllmEngine(config)
        case "local":
            if not config.url.startswith("unix://"):
                raise ConfigError("engine.name is local, but the embedded engine has not been started")
            return VllmEngine(replace(config, api_key=None))  # the key is for another server
