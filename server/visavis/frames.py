"""Which camera frames a turn keeps: sampled by media time, deduplicated, bounded. Sans-I/O."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Frame:
    """One kept picture of the camera."""

    jpeg: bytes
    width: int
    height: int
    at: int
    "Position on the conversation's audio clock, in samples at 24 kHz."
