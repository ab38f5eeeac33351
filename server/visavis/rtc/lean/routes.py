"""Sans-I/O. Whose datagram is this? Many calls on one UDP socket are told apart by ICE name and by address.

A connectivity check names the call that it is for: its USERNAME begins with our ufrag (RFC 8445 section
7.2.2). Everything else is recognised by where it comes from. An address is learned from a check that is
authentic (it takes the call's password, so who only saw the name fills no table), and it changes hands only
when somebody there answers a check of the other call, which takes a random transaction id that was sent to
that address: who forges source addresses cannot have it.
"""

import struct
from collections.abc import Container
from dataclasses import dataclass, field
from typing import Protocol

from aioice import stun

Address = tuple[str, int]

MAX_ADDRESSES = 32
"Of one call, on one socket: a caller tries each of its interfaces and what NATs make of them."

MAX_ATTRIBUTES = 16
"Looked at for the name; browsers put it first, of six to nine."

_FIRST_NON_STUN = 4
"First bytes from here on are DTLS, RTP or RTCP (RFC 7983 section 7)."
_HEADER = 20
_COOKIE = struct.pack("!I", 0x2112A442)
_USERNAME = 0x0006
_ATTRIBUTE = struct.Struct("!HH")


class Receiver(Protocol):
    """What a call has on the socket: aioice's `StunProtocol`."""

    @property
    def transactions(self) -> Container[bytes]:
        """Ids of its own checks that wait for an answer."""
        ...

    def datagram_received(self, data: bytes, addr: Address) -> None: ...


@dataclass(slots=True, eq=False)
class _Call:
    password: bytes
    receiver: Receiver
    addresses: dict[Address, None] = field(default_factory=dict)
    "The one that answered last is at the end."


class Routes:
    """The calls on one socket. What is kept of a call ends with `remove`."""

    def __init__(self) -> None:
        self._named: dict[bytes, _Call] = {}
        self._at: dict[Address, _Call] = {}

    def __len__(self) -> int:
        """Count the calls."""
        return len(self._named)

    @property
    def addresses(self) -> int:
        """Count the addresses known, of all calls."""
        return len(self._at)

    def add(self, ufrag: str, password: str, receiver: Receiver) -> None:
        """Take a call in, under the ICE name and password that its caller is given."""
        name = ufrag.encode()
        assert name not in self._named
        self._named[name] = _Call(password.encode(), receiver)

    def remove(self, ufrag: str) -> None:
        """Forget a call and its addresses; it may be unknown."""
        call = self._named.pop(ufrag.encode(), None)
        if call is not None:
            for address in call.addresses:
                del self._at[address]

    def find(self, data: bytes, source: Address) -> Receiver | None:
        """Tell who gets a datagram, which is not empty; None is nobody."""
        holder = self._at.get(source)
        call = holder if data[0] >= _FIRST_NON_STUN else self._find_by_stun(data, source, holder)
        return None if call is None else call.receiver

    def _find_by_stun(self, data: bytes, source: Address, holder: _Call | None) -> _Call | None:
        if len(data) < _HEADER or data[4:8] != _COOKIE:
            return None
        match data[:2]:  # of the method Binding, which is all that ICE uses
            case b"\x00\x01":
                return self._asked(data, source, holder)
            case b"\x01\x01" | b"\x01\x11":
                return self._answered(data[8:_HEADER], source, holder)
            case _:  # indications keep a NAT open, and tell nothing
                return holder

    def _asked(self, data: bytes, source: Address, holder: _Call | None) -> _Call | None:
        call = self._named.get(_name_in(data))
        if call is None or call is holder:
            return call
        if not _is_authentic(data, call.password):
            return None
        if holder is None:
            if len(call.addresses) == MAX_ADDRESSES:
                return None
            self._learn(call, source)
        return call

    def _answered(self, transaction: bytes, source: Address, holder: _Call | None) -> _Call | None:
        if holder is not None and transaction in holder.receiver.transactions:
            self._learn(holder, source)
            return holder
        for call in self._named.values():
            if transaction in call.receiver.transactions:
                self._learn(call, source)
                return call
        return holder

    def _learn(self, call: _Call, address: Address) -> None:
        holder = self._at.get(address)
        if holder is not None:
            del holder.addresses[address]
        if len(call.addresses) == MAX_ADDRESSES:
            oldest = next(iter(call.addresses))
            del call.addresses[oldest], self._at[oldest]
        call.addresses[address] = None
        self._at[address] = call


def _name_in(data: bytes) -> bytes:
    """Give our ufrag in a check's USERNAME, empty if there is none."""
    at = _HEADER
    for _ in range(MAX_ATTRIBUTES):
        if at + _ATTRIBUTE.size > len(data):
            break
        kind, length = _ATTRIBUTE.unpack_from(data, at)
        at += _ATTRIBUTE.size
        if kind == _USERNAME:
            return data[at : at + length].partition(b":")[0]
        at += length + -length % 4
    return b""


def _is_authentic(data: bytes, password: bytes) -> bool:
    try:
        return stun.parse_message(data).check_message_integrity(password)
    except (ValueError, struct.error):
        return False
