"""Call ids, which name where a call lives, so that its requests find it without a table. Sans-I/O.

    rtc_<random>                    one process, as `server.node` and `server.workers` are by default
    rtc_<worker>-<random>           a process of several
    rtc_<node>-<worker>-<random>    a process of a named machine of several

The node may hold hyphens of its own; worker and random cannot, so they are read from the end.
"""

import re
from dataclasses import dataclass

_NAME = r"[a-z0-9](?:[a-z0-9-]{0,30}[a-z0-9])?"
NODE = re.compile(rf"(?:{_NAME})?")
"What `server.node` may be: empty, or a label as in a host name (RFC 1123), up to 32 characters."

RANDOM_BYTES = 12
"Of chance in an id: where there is no key it alone gives the right to end the call."

_CALL_ID = re.compile(rf"rtc_(?:(?:({_NAME})-)?(\d{{1,9}})-)?([0-9a-f]{{{2 * RANDOM_BYTES}}})", re.ASCII)


@dataclass(frozen=True, slots=True)
class CallId:
    """What an id says."""

    random: str
    "Lower-case hexadecimal."
    worker: int | None = None
    "Number of the process within its machine; None where there is but one."
    node: str = ""

    def __str__(self) -> str:
        node, worker = self.node, self.worker
        if node and worker is None:
            worker = 0
        place = "" if worker is None else f"{node}-{worker}-" if node else f"{worker}-"
        return f"rtc_{place}{self.random}"


def read_call_id(text: str) -> CallId | None:
    """Read an id of one of the three forms; None for anything else."""
    match = _CALL_ID.fullmatch(text)
    if match is None:
        return None
    node, worker, random = match.groups()
    return CallId(random, None if worker is None else int(worker), node or "")
