"""Changes to descriptions: candidates put in, and replaced by the address of a relay. Sans-I/O."""

from collections.abc import Iterable

_GONE = ("a=candidate:", "a=end-of-candidates")


def with_candidates(sdp: str, candidates: Iterable[tuple[str, str]]) -> str:
    """Put candidates, (mid, text) each, into the sections they are of, and say that there are no more."""
    known = list(candidates)
    lines: list[str] = []
    for line in sdp.split("\r\n"):
        lines.append(line)
        if line.startswith("a=mid:"):
            lines += [f"a={text}" for mid, text in known if mid == line[6:]]
            lines.append("a=end-of-candidates")
    return "\r\n".join(lines)


def first_candidate(sdp: str) -> tuple[str, int]:
    """Give the address and port of the first UDP candidate over IPv4. Raises ValueError without one."""
    for line in sdp.splitlines():
        fields = line.split()
        if line.startswith("a=candidate:") and fields[2].lower() == "udp" and ":" not in fields[4]:
            return fields[4], int(fields[5])
    raise ValueError("no UDP candidate over IPv4")


def through(sdp: str, host: str, port: int) -> str:
    """Replace all candidates by one address."""
    lines: list[str] = []
    for line in sdp.split("\r\n"):
        if line.startswith(_GONE):
            continue
        lines.append(line)
        if line.startswith("a=mid:"):
            lines.append(f"a=candidate:1 1 udp 2130706431 {host} {port} typ host")
            lines.append("a=end-of-candidates")
    return "\r\n".join(lines)
