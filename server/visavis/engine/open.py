"""Which engine the configuration names."""

from dataclasses import replace
from pathlib import Path

from ..config import EngineConfig
from ..errors import ConfigError
from . import Engine
from .scripted import ScriptedEngine
from .vllm import VllmEngine


def open_engine(config: EngineConfig, local_socket: Path | None = None) -> Engine:
    """Make the engine that `config.name` names; the caller closes it with `aclose`.

    `local_socket` is where the embedded engine listens, whose process is its supervisor's business.
    Raises ConfigError if the engine is local and there is no socket, or if `config.url` is no use.
    """
    match config.name:
        case "vllm":
            return VllmEngine(config)
        case "scripted":
            return ScriptedEngine()
        case "local":
            if local_socket is None:
                raise ConfigError("engine.name is local, but the embedded engine has not been started")
            # The key is for another server.
            return VllmEngine(replace(config, url=f"unix://{local_socket.absolute()}", api_key=None))
