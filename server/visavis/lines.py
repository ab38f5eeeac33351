"""The assistant's own lines: sentences that are said without an engine. Sans-I/O."""

from dataclasses import dataclass, field

from .audio import EMPTY, Pcm


@dataclass(frozen=True, slots=True, eq=False)
class Line:
    """One sentence."""

    text: str
    pcm: Pcm = field(default_factory=lambda: EMPTY)
    "Mono, 24 kHz: the text, spoken. Empty where there is no voice for it: then it is only shown."


@dataclass(frozen=True, slots=True, eq=False)
class Lines:
    """What there is to say at each occasion; None is nothing."""

    apology: Line | None = None
    "An answer failed."
    greeting: Line | None = None
    "The caller is there."
    warning: Line | None = None
    "Nobody has spoken for long, and the call is about to end."
    waiting: Line | None = None
    "The answer takes its time."


NO_LINES = Lines()
