"""What the front tells a worker over the pipe that is its standard input, and how it is framed.

Each order is pickled behind its length. The pipe joins two processes of one program and nobody else writes to
it; its end tells the worker that there is no front any more.
"""

import asyncio
import pickle
import struct
from dataclasses import dataclass
from pathlib import Path

from .config import Config
from .lines import Lines
from .local.running import Embedded

_LENGTH = struct.Struct("!I")


@dataclass(frozen=True, slots=True)
class Begin:
    """The first order: all that a worker needs to know."""

    number: int
    "In the ids of its calls."
    config: Config
    "Its own: `rtc.udp_port` is that of this worker."
    socket: Path
    "Where it is to serve."
    embedded: Embedded | None
    lines: Lines
    pools: Path
    "The folder by which the workers share the places at engines."
    log_level: int


@dataclass(frozen=True, slots=True)
class Say:
    """Calls from now on have these lines."""

    lines: Lines


@dataclass(frozen=True, slots=True)
class Drain:
    """Open no more calls, end when the last is over."""

    quiet_s: float
    "In which nobody is told;"
    seconds: float
    "then the callers are, and so much is left to them."


@dataclass(frozen=True, slots=True)
class HangUp:
    """End all calls now."""

    reason: str


Order = Begin | Say | Drain | HangUp


def encode(order: Order) -> bytes:
    body = pickle.dumps(order, pickle.HIGHEST_PROTOCOL)
    return _LENGTH.pack(len(body)) + body


async def read_order(pipe: asyncio.StreamReader) -> Order | None:
    """Read the next order; None when the front is gone."""
    try:
        (length,) = _LENGTH.unpack(await pipe.readexactly(_LENGTH.size))
        body = await pipe.readexactly(length)
    except asyncio.IncompleteReadError:
        return None
    order: Order = pickle.loads(body)  # noqa: S301 - our own process at the other end
    return order
