"""Which voice an engine is asked for: clients name OpenAI's, it tells its own only in a refusal. Sans-I/O."""

import logging
import re
import zlib

logger = logging.getLogger(__name__)

_LIST = re.compile(
    r"\b(?:supported|available|allowed|valid|one of|choose from)[^:\[(]*[:\[(](?P<names>[^\])]*)", re.I
)
_NAME = re.compile(r"\w[\w .-]{0,63}")
_SEPARATOR = re.compile(r",|;|\band\b|\bor\b", re.I)

_LIKE = {
    "alloy": "chelsie",
    "ash": "aiden",
    "ballad": "ethan",
    "cedar": "ethan",
    "coral": "chelsie",
    "echo": "aiden",
    "fable": "ethan",
    "marin": "chelsie",
    "nova": "chelsie",
    "onyx": "ethan",
    "sage": "chelsie",
    "shimmer": "chelsie",
    "verse": "aiden",
}
"OpenAI's voices, and those of Qwen3-Omni's open weights that sound most like them."

_MAX_UNKNOWN = 100
"Names remembered as unknown to the engine; clients make them up."


class Voices:
    """The voices of one engine, as far as it has told them.

    A name that it does not have stands for one that it has, always the same, so that two clients with
    different voices are likely to stay different.
    """

    def __init__(self, default: str | None) -> None:
        """`default` speaks for who names no voice; None leaves that to the engine."""
        self.known: tuple[str, ...] = ()
        "Names as the engine spells them, sorted; none until it has told them."
        self._default = default
        self._unknown: set[str] = set()

    def choose(self, wanted: str | None) -> str | None:
        """Return the name to ask for, or None to let the engine choose."""
        if self.known:
            name = wanted or self._default
            return None if name is None else self._alias(name.strip().casefold())
        return next((name for name in (wanted, self._default) if name and self._may_be(name)), None)

    def receive_refusal(self, name: str, message: str) -> None:
        """Learn from the engine's message why it does not have a voice."""
        if names := listed(message):
            if names != self.known:
                logger.info("the engine's voices are %s", ", ".join(names))
            self.known = names
        if len(self._unknown) < _MAX_UNKNOWN:
            self._unknown.add(name.casefold())

    def _may_be(self, name: str) -> bool:
        return name.casefold() not in self._unknown

    def _alias(self, name: str) -> str:
        for candidate in (name, _LIKE.get(name)):
            for known in self.known:
                if known.casefold() == candidate:
                    return known
        return self.known[zlib.crc32(name.encode("utf-8", "replace")) % len(self.known)]


def listed(message: str) -> tuple[str, ...]:
    """Return the names that a refusal lists ("Invalid speaker 'x'. Supported: aiden, chelsie"), sorted."""
    found = _LIST.search(message)
    if found is None:
        return ()
    names = (name.strip(" '\"`.\n[(") for name in _SEPARATOR.split(found["names"]))
    return tuple(sorted({name for name in names if _NAME.fullmatch(name)}))


def is_about_voice(message: str) -> bool:
    """Tell whether a refusal names the voice as its cause."""
    return re.search(r"\b(voice|speaker)", message, re.I) is not None
