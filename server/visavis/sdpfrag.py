"""The body of a PATCH that brings ICE candidates: `application/trickle-ice-sdpfrag` (RFC 8840). Sans-I/O."""

import re
from dataclasses import dataclass

from .errors import SignallingError

TYPE = "application/trickle-ice-sdpfrag"

MAX_LINES = 1_000
"As many candidates as a call takes, ten times over."
MAX_LINE = 1_024

_LINE = re.compile("[a-z]=")


@dataclass(frozen=True, slots=True)
class Fragment:
    """What a fragment says."""

    ufrag: str | None
    "The user name fragment that its candidates belong to; None if it does not say."
    candidates: tuple[tuple[str, str], ...]
    "The name (a=mid) of each one's section, empty for the first, and the candidate as in SDP."


def read_fragment(body: bytes) -> Fragment:
    """Read a fragment; candidates are not looked at. Raises SignallingError (400)."""
    try:
        lines = [line.strip() for line in body.decode().splitlines() if line.strip()]
    except UnicodeDecodeError as error:
        raise _refused("it is not UTF-8") from error
    if not lines:
        raise _refused("it is empty")
    if len(lines) > MAX_LINES:
        raise _refused(f"it has more than {MAX_LINES} lines")
    ufrag: str | None = None
    candidates: list[tuple[str, str]] = []
    mid, nameless = "", 0
    for line in lines:
        if not _LINE.match(line) or len(line) > MAX_LINE:
            raise _refused(f"malformed line {line[:80]!r}")
        name, _, value = line.partition(":")
        match name:
            case "a=ice-ufrag":
                ufrag = value
            case "a=mid":
                # The name may follow the candidates of its section.
                mid = value
                candidates[nameless:] = [(mid, text) for _, text in candidates[nameless:]]
            case "a=candidate":
                candidates.append((mid, line.removeprefix("a=")))
            case _ if line.startswith("m="):
                mid, nameless = "", len(candidates)
    return Fragment(ufrag, tuple(candidates))


def _refused(why: str) -> SignallingError:
    return SignallingError(400, f"The body is no SDP fragment: {why}.", code="invalid_sdp_fragment")
