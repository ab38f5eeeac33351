"""How often one address may open calls: a token bucket each, in a bounded table. Sans-I/O."""

import ipaddress
from dataclasses import dataclass


@dataclass(slots=True)
class _Bucket:
    tokens: float
    at: float
    "When `tokens` was true."


class RateLimit:
    """Token buckets by address: `per_s` tokens a second, `burst` at most.

    Of more than `max_peers` addresses the one unseen for longest is forgotten: it would be full soon anyway.
    """

    def __init__(self, per_s: float, burst: float, max_peers: int = 4096) -> None:
        self._per_s = per_s
        self._burst = burst
        self._max_peers = max_peers
        self._buckets: dict[str, _Bucket] = {}

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, address: str, now: float) -> float:
        """Take one token; return 0, or the seconds until there is one. `now` is monotonic seconds."""
        network = _network(address)
        bucket = self._buckets.pop(network, None) or _Bucket(self._burst, now)
        self._buckets[network] = bucket
        if len(self._buckets) > self._max_peers:
            del self._buckets[next(iter(self._buckets))]
        bucket.tokens = min(self._burst, bucket.tokens + (now - bucket.at) * self._per_s)
        bucket.at = now
        if bucket.tokens < 1:
            return (1 - bucket.tokens) / self._per_s
        bucket.tokens -= 1
        return 0.0


def _network(address: str) -> str:
    """Return what stands for one caller: an IPv4 address, or the /64 that one subscriber has in IPv6."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv4Address):
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.ip_network((int(parsed), 64), strict=False))
