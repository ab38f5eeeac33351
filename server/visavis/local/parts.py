"""Which parts of the embedded engine a configuration needs."""

from typing import Literal, get_args

from ..config import Config

Part = Literal["ears", "mind", "voice"]
"`ears` write down what is said, `mind` sees and answers, `voice` speaks."

Parts = frozenset[Part]

ALL: Parts = frozenset(get_args(Part))


def wanted(config: Config) -> Parts:
    """Return all parts if an engine is the embedded one; else those that help the other engines."""
    engines = [*config.fallbacks, config.engine, *([config.candidate] if config.candidate else [])]
    if any(engine.name == "local" for engine in engines):
        return ALL
    parts: set[Part] = set()
    for engine in engines:
        if engine.name != "scripted":
            parts |= {"ears"} if engine.embedded_ears else set()
            parts |= {"voice"} if engine.embedded_voice else set()
    return frozenset(parts)


def to_text(parts: Parts) -> str:
    return ",".join(sorted(parts))


def from_text(text: str) -> Parts:
    """Read names with commas between. Raises ValueError for one that is unknown, or none at all."""
    parts = frozenset(part for part in ALL if part in text.split(","))
    if not parts or len(parts) != len(text.split(",")):
        raise ValueError(f"{text!r} is not a list out of {to_text(ALL)}")
    return parts
