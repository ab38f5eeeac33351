"""ICE connections of aioice on the one port: no media yet, so each test takes a moment."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import aioice.ice
import pytest
from aioice import Candidate, Connection, stun
from wires import until

from visavis.config import RtcConfig
from visavis.errors import ConfigError
from visavis.rtc.lean import port as port_module
from visavis.rtc.lean.port import BATCH, MAX_DATAGRAM, MediaPort

pytestmark = pytest.mark.loopback

HOST = "127.0.0.1"
LOCAL = RtcConfig(udp_hosts=(HOST,))


@pytest.fixture
async def port() -> AsyncIterator[MediaPort]:
    """The server's port; every call on it has to be gone at the end."""
    port = MediaPort(LOCAL)
    port.open()
    yield port
    assert (port.calls, port.addresses) == (0, 0)
    port.close()


def caller_on(port: MediaPort | None = None) -> Connection:
    """A calling connection, on sockets of its own or on a port."""
    connection = Connection(ice_controlling=True)
    if port is not None:
        port.attach(connection)
    return connection


def callee_on(port: MediaPort, **settings: Any) -> Connection:
    connection = Connection(ice_controlling=False, **settings)
    port.attach(connection)
    return connection


async def introduce(
    caller: Connection,
    callee: Connection,
    through: tuple[str, int] | None = None,
    *,
    secretive: bool = False,
) -> None:
    """Exchange names and candidates; `through` is where the caller finds the callee, if not by its own."""
    await asyncio.gather(caller.gather_candidates(), callee.gather_candidates())
    for one, other in ((caller, callee), (callee, caller)):
        one.remote_username, one.remote_password = other.local_username, other.local_password
        candidates = other.local_candidates if one is caller or not secretive else []
        if one is caller and through is not None:
            candidates[0].host, candidates[0].port = through
            candidates[0]._network_host = through[0]
        for candidate in candidates:
            await one.add_remote_candidate(candidate)
    await caller.add_remote_candidate(None)


@asynccontextmanager
async def connected(
    port: MediaPort, caller: Connection | None = None, **how: Any
) -> AsyncIterator[tuple[Connection, Connection]]:
    caller, callee = caller or caller_on(), callee_on(port)
    try:
        await introduce(caller, callee, **how)
        async with asyncio.timeout(20):
            await asyncio.gather(caller.connect(), callee.connect())
        yield caller, callee
    finally:
        await caller.close()
        await callee.close()


async def passes(sender: Connection, receiver: Connection, data: bytes) -> None:
    await sender.send(data)
    async with asyncio.timeout(10):
        assert await receiver.recv() == data


def media(text: str) -> bytes:
    return b"\x80" + text.encode()


def request_for(ufrag: str) -> bytes:
    message = stun.Message(stun.Method.BINDING, stun.Class.REQUEST)
    message.attributes["USERNAME"] = f"{ufrag}:x"
    message.add_message_integrity(b"a password of nobody's")
    return bytes(message)


async def test_many_calls_share_one_port_and_hear_only_their_own(port: MediaPort) -> None:
    pairs = [(caller_on(), callee_on(port)) for _ in range(20)]
    try:
        await asyncio.gather(*(introduce(caller, callee) for caller, callee in pairs))
        offered = {candidate.port for _, callee in pairs for candidate in callee.local_candidates}
        assert offered == {port.number}
        assert port.calls == len(pairs)
        async with asyncio.timeout(30):
            await asyncio.gather(*(end.connect() for pair in pairs for end in pair))
        for number, (caller, callee) in enumerate(pairs):
            await passes(caller, callee, media(f"to {number}"))
            await passes(callee, caller, media(f"from {number}"))
    finally:
        await asyncio.gather(*(end.close() for pair in pairs for end in pair))
    assert (port.calls, port.addresses, port.counts.unsent) == (0, 0, 0)


async def test_a_caller_whose_candidates_nobody_knows_is_found(port: MediaPort) -> None:
    async with connected(port, secretive=True) as (caller, callee):
        await passes(caller, callee, media("hello"))
        await passes(callee, caller, media("welcome"))


async def test_a_call_ends_whenever_it_is_closed(port: MediaPort) -> None:
    idle, gathered = callee_on(port), callee_on(port)
    await gathered.gather_candidates()
    assert port.calls == 1
    waiting, silent = callee_on(port), caller_on()
    await introduce(silent, waiting)
    connecting = asyncio.create_task(waiting.connect())
    await until(lambda: waiting._check_list, "checks")
    for connection in (idle, gathered, waiting, silent):
        await connection.close()
    with pytest.raises(ConnectionError):
        await connecting
    assert port.calls == 0


async def test_attaching_again_changes_nothing(port: MediaPort) -> None:
    callee = callee_on(port)
    name = callee.local_username
    port.attach(callee)
    assert callee.local_username == name
    await callee.close()


async def test_a_port_that_a_caller_uses_again_belongs_to_its_new_call(port: MediaPort) -> None:
    """The first call was never hung up: its caller is gone, and the server does not know it yet."""
    old_port = MediaPort(LOCAL)
    old_port.open()
    old, left = caller_on(old_port), callee_on(port)
    await introduce(old, left)
    async with asyncio.timeout(20):
        await asyncio.gather(old.connect(), left.connect())
    await passes(old, left, media("first"))
    number = old_port.number
    old_port.close()
    new_port = MediaPort(RtcConfig(udp_hosts=(HOST,), udp_port=number))
    new_port.open()
    async with connected(port, caller_on(new_port)) as (caller, callee):
        await passes(caller, callee, media("second"))
        await passes(callee, caller, media("welcome"))
        assert left._queue.empty()
        await left.close()
        await passes(caller, callee, media("still here"))
    await old.close()
    new_port.close()


class Nat(asyncio.DatagramProtocol):
    """Forwards between a client and a server; `rebind` gives the client another outside port."""

    def __init__(self, server: tuple[str, int]) -> None:
        self._server = server
        self._client: tuple[str, int] | None = None
        self._inside: asyncio.DatagramTransport | None = None
        self._outside: list[asyncio.DatagramTransport] = []

    async def open(self) -> tuple[str, int]:
        loop = asyncio.get_running_loop()
        self._inside, _ = await loop.create_datagram_endpoint(lambda: self, local_addr=(HOST, 0))
        await self.rebind()
        name: tuple[str, int] = self._inside.get_extra_info("sockname")
        return name

    async def rebind(self) -> None:
        nat = self

        class Outside(asyncio.DatagramProtocol):
            def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
                if nat._outside[-1] is outside and nat._inside is not None:
                    nat._inside.sendto(data, nat._client)

        loop = asyncio.get_running_loop()
        outside, _ = await loop.create_datagram_endpoint(Outside, local_addr=(HOST, 0))
        self._outside.append(outside)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        self._client = addr
        self._outside[-1].sendto(data, self._server)

    def close(self) -> None:
        for transport in [self._inside, *self._outside]:
            if transport is not None:
                transport.close()


async def test_a_caller_whose_nat_forgets_it_is_heard_and_answered_at_its_new_address(
    port: MediaPort, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aioice.ice, "CONSENT_INTERVAL", 0.2)
    nat, caller = Nat((HOST, port.number)), caller_on()
    # As browsers do: whoever decides says so again with each check.
    vars(caller)["build_request"] = lambda pair, nominate: Connection.build_request(
        caller, pair, nominate=True
    )
    inside = await nat.open()
    async with connected(port, caller, through=inside, secretive=True) as (_, callee):
        await passes(caller, callee, media("before"))
        known = port.addresses
        await nat.rebind()
        await until(lambda: port.addresses > known, "the new address")
        await passes(caller, callee, media("after"))
        heard = asyncio.create_task(caller.recv())
        while not heard.done():  # until the callee's own check has gone through
            await callee.send(media("welcome"))
            await asyncio.wait([heard], timeout=0.05)
        assert heard.result() == media("welcome")
    nat.close()


class Stranger:
    """Somebody with a socket and no call."""

    def __init__(self, target: tuple[str, int]) -> None:
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._target = target

    def send(self, data: bytes) -> None:
        self.socket.sendto(data, self._target)


async def test_garbage_from_strangers_is_dropped_counted_and_hurts_nobody(port: MediaPort) -> None:
    stranger = Stranger((HOST, port.number))
    async with connected(port) as (caller, callee):
        known = port.addresses
        strange = [
            request_for("nobody"),
            request_for(callee.local_username),
            media("x"),
            b"\0",
            b"\0\1" * 500,
        ]
        broken = [b"", b"x" * (MAX_DATAGRAM + 1), b"x" * 60_000]
        for data in strange + broken:
            stranger.send(data)
        await until(lambda: port.counts.strange >= len(strange), "all that was strange")
        await until(lambda: port.counts.malformed >= len(broken), "all that was broken")
        await passes(caller, callee, media("undisturbed"))
        assert (port.addresses, callee._queue.empty()) == (known, True)
    stranger.socket.close()


async def test_a_burst_longer_than_a_batch_is_read_to_its_end(port: MediaPort) -> None:
    stranger = Stranger((HOST, port.number))
    for _ in range(3 * BATCH):
        stranger.send(media("x"))
    await until(lambda: port.counts.strange == 3 * BATCH, "the whole burst")
    stranger.socket.close()


async def test_a_fault_at_one_datagram_leaves_the_next_to_be_read(port: MediaPort) -> None:
    told: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: told.append(context))
    async with connected(port) as (caller, callee):
        (protocol,) = callee._protocols
        real = protocol.datagram_received

        def faulty(data: bytes, addr: Any) -> None:
            if data == media("bad"):
                raise ZeroDivisionError
            real(data, addr)

        vars(protocol)["datagram_received"] = faulty
        await caller.send(media("bad"))
        await passes(caller, callee, media("good"))
        assert [type(context["exception"]) for context in told] == [ZeroDivisionError]
        malformed = port.counts.malformed
        cut = b"\0\x24\0\1a\0\0\0"  # a PRIORITY of one byte: aioice's parser trips over it
        await caller.send(b"\0\1\0\x08\x21\x12\xa4\x42" + bytes(12) + cut)
        check = stun.Message(stun.Method.BINDING, stun.Class.INDICATION)
        await caller.send(bytes(check)[:2] + b"\0\x08" + bytes(check)[4:] + cut)
        await until(lambda: port.counts.malformed > malformed, "the malformed check")
        assert len(told) == 1


async def test_what_the_system_has_no_room_for_is_dropped_and_other_errors_are_told(port: MediaPort) -> None:
    class Full:
        def __init__(self, error: OSError) -> None:
            self.error = error

        def sendto(self, data: bytes, target: Any) -> int:
            raise self.error

    errors: list[Exception] = []
    async with connected(port) as (_, callee):
        (protocol,) = callee._protocols
        vars(protocol)["error_received"] = errors.append
        (host_socket,) = port._sockets.values()
        real = host_socket._socket
        for error in (BlockingIOError(), OSError("no route")):
            vars(host_socket)["_socket"] = Full(error)
            await callee.send(media("x"))
        vars(host_socket)["_socket"] = real
    assert port.counts.unsent == 1
    assert [str(error) for error in errors] == ["no route"]


async def gathered(config: RtcConfig, **settings: Any) -> list[Candidate]:
    port = MediaPort(config)
    port.open()
    callee = callee_on(port, **settings)
    await callee.gather_candidates()
    await callee.close()
    candidates = await ports_candidates(port, **settings)
    port.close()
    return candidates


async def ports_candidates(port: MediaPort, **settings: Any) -> list[Candidate]:
    callee = callee_on(port, **settings)
    await callee.gather_candidates()
    candidates = callee.local_candidates
    await callee.close()
    return candidates


async def test_advertised_addresses_are_offered_in_place_of_the_machines() -> None:
    candidates = await gathered(
        RtcConfig(udp_hosts=(HOST, "127.0.0.2"), advertise=("203.0.113.5", "2001:db8::5"))
    )
    assert [(each.host, each.type) for each in candidates] == [
        ("203.0.113.5", "host"),
        ("2001:db8::5", "host"),
    ]
    assert len({each.port for each in candidates}) == 1
    assert candidates[0].priority > candidates[1].priority


async def test_a_call_is_known_on_every_address_whichever_is_advertised() -> None:
    port = MediaPort(RtcConfig(udp_hosts=(HOST, "127.0.0.2"), advertise=("203.0.113.5",)))
    port.open()
    async with connected(port, through=("127.0.0.2", port.number)) as (caller, callee):
        await passes(caller, callee, media("hello"))
        await passes(callee, caller, media("welcome"))
    port.close()


async def test_all_addresses_have_the_same_port() -> None:
    port = MediaPort(RtcConfig(udp_hosts=(HOST, "127.0.0.2")))
    port.open()
    assert port.hosts == (HOST, "127.0.0.2")
    for host in port.hosts:
        with (
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other,
            pytest.raises(OSError, match="in use"),
        ):
            other.bind((host, port.number))
    port.close()
    port.close()


async def test_an_address_that_the_machine_gets_later_is_offered_to_new_calls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    addresses = [HOST]
    monkeypatch.setattr(aioice.ice, "get_host_addresses", lambda use_ipv4, use_ipv6: list(addresses))
    port = MediaPort(RtcConfig())
    port.open()
    assert [each.host for each in await ports_candidates(port)] == [HOST]
    addresses[:] = ["127.0.0.2", "192.0.2.77"]  # the second belongs to somebody else
    candidates = await ports_candidates(port)
    assert [(each.host, each.port) for each in candidates] == [("127.0.0.2", port.number)]
    port.close()


async def test_without_any_network_loopback_is_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aioice.ice, "get_host_addresses", lambda use_ipv4, use_ipv6: [])
    assert [each.host for each in await gathered(RtcConfig())] == [HOST]


async def test_a_port_in_use_is_an_error_that_says_what_to_do(port: MediaPort) -> None:
    for attempt in range(2):
        with pytest.raises(
            ConfigError, match=rf"UDP port {port.number} is in use: end .* another rtc.udp_port"
        ):
            MediaPort(RtcConfig(udp_hosts=(HOST,), udp_port=port.number + attempt - attempt)).open()


async def test_an_address_of_another_machine_is_an_error_that_says_what_to_do() -> None:
    with pytest.raises(ConfigError, match=r"rtc.udp_hosts: .* have all of .*, 192.0.2.77; .* rtc.advertise"):
        MediaPort(RtcConfig(udp_hosts=(HOST, "192.0.2.77"))).open()


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        (PermissionError(13, "no"), "choose an rtc.udp_port from 1024 on"),
        (OSError(5, "broken"), r"\(broken\)"),
    ],
)
async def test_what_the_system_refuses_is_said(
    monkeypatch: pytest.MonkeyPatch, error: OSError, advice: str
) -> None:
    def refuse(*args: object) -> None:
        raise error

    monkeypatch.setattr(port_module, "_HostSocket", refuse)
    with pytest.raises(ConfigError, match=advice):
        MediaPort(LOCAL).open()


async def test_a_machine_whose_addresses_all_fail_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aioice.ice, "get_host_addresses", lambda use_ipv4, use_ipv6: ["192.0.2.77"])
    with pytest.raises(ConfigError, match="no address that can be listened on"):
        MediaPort(RtcConfig()).open()


class StunServer(asyncio.DatagramProtocol):
    """Says that whoever asks looks like 198.51.100.9:999."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def datagram_received(self, data: bytes, addr: Any) -> None:
        asked = stun.parse_message(data)
        answer = stun.Message(stun.Method.BINDING, stun.Class.RESPONSE, asked.transaction_id)
        answer.attributes["XOR-MAPPED-ADDRESS"] = ("198.51.100.9", 999)
        self.transport.sendto(bytes(answer), addr)  # type: ignore[attr-defined]


async def test_a_stun_server_tells_how_the_port_looks_from_outside() -> None:
    loop = asyncio.get_running_loop()
    server, _ = await loop.create_datagram_endpoint(StunServer, local_addr=(HOST, 0))
    port = MediaPort(LOCAL)
    port.open()
    address = server.get_extra_info("sockname")
    for _ in range(2):  # the second asks from the same port as the first
        _, reflexive = await ports_candidates(port, stun_server=address)
        assert (reflexive.host, reflexive.port, reflexive.type) == ("198.51.100.9", 999, "srflx")
        assert (reflexive.related_address, reflexive.related_port) == (HOST, port.number)
    port.close()
    server.close()


async def test_a_dead_stun_server_costs_its_candidate_alone(port: MediaPort) -> None:
    silent = Stranger((HOST, 0))
    silent.socket.bind((HOST, 0))
    callee = callee_on(port, stun_server=silent.socket.getsockname())
    gather: Callable[..., Any] = callee.get_component_candidates
    assert [each.type for each in await gather(1, [HOST], timeout=0.1)] == ["host"]
    await callee.close()
    silent.socket.close()
