"""The one UDP port of a process's calls: a socket for each address, and on it a transport for each call.

A firewall then opens one port, and a container publishes one; aioice would bind another for each call and
address.
"""

import asyncio
import errno
import ipaddress
import itertools
import logging
import secrets
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import aioice.ice
from aioice import Candidate, Connection
from aioice.candidate import candidate_foundation, candidate_priority
from aioice.ice import StunProtocol
from aioice.stun import TransactionError

from ...config import RtcConfig
from ...errors import ConfigError
from .routes import Address, Routes

logger = logging.getLogger(__name__)

MAX_DATAGRAM = 2_048
"Bytes. Nothing in WebRTC is longer than an Ethernet frame holds."

BATCH = 64
"Datagrams read at a time: then timers and other sockets have their turn."

RECEIVE_BUFFER = 4_194_304
"Bytes asked of the system for a socket: what 100 cameras send while the loop is away for 0.2 s."

UFRAG_BYTES = 8
"Of randomness in a call's ICE name: none meet by chance, as some of a thousand by aioice's four letters do."

_LOOPBACK = ["127.0.0.1"]
"A machine without any network can still talk to itself."

_NOT_HERE = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)

MAX_ATTEMPTS = 32
"To find a port that is free on all addresses, where any will do."


@dataclass(slots=True)
class PortCounts:
    """Datagrams of all calls, counted since the port was opened."""

    received: int = 0
    strange: int = 0
    "Dropped: they name no call, or come from where none is."
    malformed: int = 0
    "Dropped: empty, too long, or broken STUN."
    unsent: int = 0
    "Dropped: the system had no room for them."


class MediaPort:
    """Binds the port, and has ICE connections use it. To be opened on the loop that the calls run on."""

    def __init__(self, config: RtcConfig) -> None:
        self._config = config
        self._sockets: dict[str, _HostSocket] = {}
        self.number = 0
        "The UDP port, once it is open."
        self.counts = PortCounts()

    def open(self) -> None:
        """Bind. Raises ConfigError, which says what to do."""
        hosts = self._hosts(aioice.ice.get_host_addresses(use_ipv4=True, use_ipv6=True))
        for attempt in itertools.count(1):
            try:
                self._open(hosts)
            except OSError as error:
                self.close()
                if error.errno == errno.EADDRINUSE and not self._config.udp_port and attempt < MAX_ATTEMPTS:
                    continue
                raise ConfigError(self._explain(error)) from error
            break
        if not self._sockets:
            raise ConfigError(
                "No UDP port can be opened: this machine has no address that can be listened on."
            )

    @property
    def hosts(self) -> tuple[str, ...]:
        """The addresses listened on."""
        return tuple(self._sockets)

    @property
    def calls(self) -> int:
        """Count the connections that use the port."""
        return max((len(each.routes) for each in self._sockets.values()), default=0)

    @property
    def addresses(self) -> int:
        """Count the callers' addresses that are known."""
        return sum(each.routes.addresses for each in self._sockets.values())

    def attach(self, connection: Connection) -> None:
        """Have a connection use this port; to be called before it gathers and its user name is told.

        What it keeps here ends when it is closed. Called again it does nothing.
        """
        state = vars(connection)
        if getattr(state.get("get_component_candidates"), "func", None) == self._gather:
            return
        state["_local_username"] = secrets.token_hex(UFRAG_BYTES)
        state["get_component_candidates"] = partial(self._gather, connection)

    def attach_caller(self, connection: Connection) -> None:
        """Have a connection that calls use the same addresses, by sockets of its own as aioice makes them.

        It would be taken for whom it calls if both were on one socket: there an address is one call's.
        """
        state, gather = vars(connection), connection.get_component_candidates

        async def gather_here(component: int, addresses: list[str], timeout: int = 5) -> list[Candidate]:
            return await gather(component, self._hosts(addresses), timeout)

        state["get_component_candidates"] = gather_here

    def close(self) -> None:
        """Give the sockets back; the calls are to be closed before. May be called again."""
        for each in self._sockets.values():
            each.close()
        self._sockets.clear()

    def _open(self, hosts: Iterable[str]) -> None:
        self.number = self._config.udp_port
        for host in hosts:
            try:
                self._bind(host)
            except OSError as error:
                # Interfaces come and go; only of addresses that somebody wrote down none may be missing.
                if self._config.udp_hosts or error.errno not in _NOT_HERE:
                    raise
                logger.info("media is not offered on %s: %s", host, error.strerror)

    def _bind(self, host: str) -> None:
        each = _HostSocket(host, self.number, self.counts)
        self.number = each.port
        self._sockets[host] = each

    def _explain(self, error: OSError) -> str:
        number = self._config.udp_port
        match error.errno:
            case errno.EADDRINUSE:
                return (
                    f"UDP port {number} is in use: end the program that has it, or choose another "
                    "rtc.udp_port (0 is any free one)."
                )
            case errno.EADDRNOTAVAIL | errno.EAFNOSUPPORT:
                return (
                    f"rtc.udp_hosts: this machine does not have all of {', '.join(self._config.udp_hosts)}; "
                    "name addresses that it has, and others that callers use in rtc.advertise."
                )
            case errno.EACCES | errno.EPERM:
                return f"UDP port {number} may not be used: choose an rtc.udp_port from 1024 on."
            case _:
                return (
                    f"UDP port {number} cannot be opened ({error.strerror}): choose another rtc.udp_port or "
                    "other rtc.udp_hosts."
                )

    async def _gather(
        self, connection: Connection, component: int, addresses: list[str], timeout: float = 5.0
    ) -> list[Candidate]:
        """Give this port's candidates, and as aioice's own method those of STUN and TURN servers."""
        protocols = [self._join(connection, each) for each in self._sockets_on(self._hosts(addresses))]
        candidates = self._candidates(component, protocols)
        relayed = type(connection).get_component_candidates(connection, component, [], cast("int", timeout))
        reflexive = [
            _reflexive(protocol, connection.stun_server, timeout)
            for protocol in protocols
            if connection.stun_server is not None and _version(protocol.local_candidate.host) == 4
        ]
        for found in await asyncio.gather(relayed, *reflexive):
            candidates += found
        return candidates

    def _hosts(self, addresses: list[str]) -> list[str]:
        """Give the addresses that a call uses; `addresses` are the machine's, as aioice found them."""
        return list(self._config.udp_hosts) or addresses or _LOOPBACK

    def _sockets_on(self, hosts: list[str]) -> list["_HostSocket"]:
        """Give the sockets; an address that the machine has got since is bound now."""
        for host in hosts:
            if host not in self._sockets:
                try:
                    self._bind(host)
                except OSError as error:
                    logger.info("media is not offered on %s: %s", host, error.strerror)
        return [self._sockets[host] for host in hosts if host in self._sockets]

    def _join(self, connection: Connection, each: "_HostSocket") -> StunProtocol:
        protocol = StunProtocol(connection)
        each.routes.add(connection.local_username, connection.local_password, protocol)
        protocol.connection_made(_CallTransport(each, connection.local_username, protocol))
        connection._protocols.append(protocol)
        return protocol

    def _candidates(self, component: int, protocols: list[StunProtocol]) -> list[Candidate]:
        """Give each protocol a candidate, and return those that are offered."""
        own: list[Candidate] = []
        for protocol in protocols:
            host, _ = protocol.transport.get_extra_info("sockname")
            protocol.local_candidate = self._candidate(component, host, len(own))
            own.append(protocol.local_candidate)
        if not self._config.advertise:
            return own
        offered = [self._candidate(component, host, rank) for rank, host in enumerate(self._config.advertise)]
        for protocol in protocols:
            # The same stands for all sockets of its kind: whichever a NAT leads to knows the call.
            for candidate in offered:
                if _version(candidate.host) == _version(protocol.local_candidate.host):
                    protocol.local_candidate = candidate
                    break
        return offered

    def _candidate(self, component: int, host: str, rank: int) -> Candidate:
        return Candidate(
            foundation=candidate_foundation("host", "udp", host),
            component=component,
            transport="udp",
            priority=candidate_priority(component, "host", 65_535 - rank),
            host=host,
            port=self.number,
            type="host",
        )


class _HostSocket:
    """One address's socket, with the calls on it. Raises OSError when it cannot be bound."""

    def __init__(self, host: str, port: int, counts: PortCounts) -> None:
        self.routes = Routes()
        self._counts = counts
        self._loop = asyncio.get_running_loop()
        family = socket.AF_INET6 if _version(host) == 6 else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_DGRAM)
        try:
            self._socket.setblocking(False)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
            self._socket.bind((host, port))
        except OSError:
            self._socket.close()
            raise
        self.host, self.port = host, int(self._socket.getsockname()[1])
        self._loop.add_reader(self._socket.fileno(), self._read)

    def send(self, data: bytes, target: Address, sender: StunProtocol) -> None:
        """Send, or drop as UDP does; what the system says against it is told to the sender."""
        try:
            self._socket.sendto(data, target)
        except (BlockingIOError, InterruptedError):
            self._counts.unsent += 1
        except OSError as error:
            sender.error_received(error)

    def close(self) -> None:
        if self._socket.fileno() >= 0:
            self._loop.remove_reader(self._socket.fileno())
            self._socket.close()

    def _read(self) -> None:
        counts, receive, find = self._counts, self._socket.recvfrom, self.routes.find
        for _ in range(BATCH):
            try:
                data, source = receive(MAX_DATAGRAM + 1)
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                logger.debug("nothing was read from %s: %s", self.host, error)
                return
            counts.received += 1
            if not 0 < len(data) <= MAX_DATAGRAM:
                counts.malformed += 1
                continue
            source = source[:2]
            receiver = find(data, source)
            if receiver is None:
                counts.strange += 1
                continue
            try:
                receiver.datagram_received(data, source)
            except Exception as error:
                # One call's datagram is no reason to leave the others' unread.
                if data[0] < 4:
                    counts.malformed += 1  # aioice's parser raises whatever an attribute makes it trip over
                    logger.debug("malformed STUN from %s: %r", source, error)
                else:
                    self._loop.call_exception_handler(
                        {"message": "a datagram could not be handled", "exception": error}
                    )


class _CallTransport(asyncio.DatagramTransport):
    """A call's share of a socket, as aioice's `StunProtocol` wants it."""

    def __init__(self, host_socket: _HostSocket, ufrag: str, protocol: StunProtocol) -> None:
        super().__init__()
        self._socket = host_socket
        self._ufrag = ufrag
        self._protocol = protocol
        self._closed = False

    def sendto(self, data: Any, addr: Any = None) -> None:
        if not self._closed:
            self._socket.send(data, addr, self._protocol)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return (self._socket.host, self._socket.port) if name == "sockname" else default

    def is_closing(self) -> bool:
        return self._closed

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._socket.routes.remove(self._ufrag)
            asyncio.get_running_loop().call_soon(self._protocol.connection_lost, None)

    def abort(self) -> None:
        self.close()


async def _reflexive(protocol: StunProtocol, server: Address, timeout: float) -> list[Candidate]:
    """Ask a STUN server how we look from outside; it may be dead."""
    try:
        async with asyncio.timeout(timeout):
            candidate, _ = await aioice.ice.server_reflexive_candidate(protocol, server)
    except (TimeoutError, OSError, TransactionError) as error:
        logger.info("STUN server %s does not answer: %r", server[0], error)
        return []
    return [candidate]


def _version(host: str) -> int:
    return ipaddress.ip_address(host).version
