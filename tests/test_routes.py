import os
from dataclasses import dataclass, field

import pytest
from aioice import stun
from hypothesis import given
from hypothesis import strategies as st

from visavis.rtc.lean.routes import MAX_ADDRESSES, MAX_ATTRIBUTES, Address, Routes

HOME, OFFICE = ("192.0.2.1", 5000), ("192.0.2.2", 6000)
PASSWORD = "aPasswordOfTwentyTwoOrMore"
RTP = bytes([0x80, 111]) + bytes(20)
DTLS = bytes([22, 254, 253]) + bytes(20)


@dataclass
class FakeCall:
    """What aioice's protocol is to the routes; compared by identity."""

    ufrag: str
    transactions: dict[bytes, None] = field(default_factory=dict)

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other

    def datagram_received(self, data: bytes, addr: Address) -> None:
        raise AssertionError("finding delivers nothing")

    def check(self) -> bytes:
        """Send a check of its own; gives the answer that it waits for."""
        transaction = os.urandom(12)
        self.transactions[transaction] = None
        return answer(transaction)


def request(ufrag: str, password: str = PASSWORD, **attributes: object) -> bytes:
    message = stun.Message(stun.Method.BINDING, stun.Class.REQUEST)
    message.attributes.update({"SOFTWARE": "x", "USERNAME": f"{ufrag}:theirs", "PRIORITY": 1, **attributes})
    message.add_message_integrity(password.encode())
    return bytes(message)


def answer(transaction: bytes, kind: stun.Class = stun.Class.RESPONSE) -> bytes:
    return bytes(stun.Message(stun.Method.BINDING, kind, transaction))


@pytest.fixture
def routes() -> Routes:
    return Routes()


def enter(routes: Routes, ufrag: str) -> FakeCall:
    call = FakeCall(ufrag)
    routes.add(ufrag, PASSWORD, call)
    return call


def test_a_check_names_its_call_and_what_follows_goes_there(routes: Routes) -> None:
    one, other = enter(routes, "oneX"), enter(routes, "otherX")
    assert routes.find(RTP, HOME) is None
    assert routes.find(request("oneX"), HOME) is one
    assert routes.find(request("otherX"), OFFICE) is other
    for datagram in (RTP, DTLS, request("oneX")):
        assert routes.find(datagram, HOME) is one
        assert routes.find(datagram, OFFICE) is (one if datagram[0] == 0 else other)


def test_a_check_that_names_no_call_finds_nobody(routes: Routes) -> None:
    enter(routes, "oneX")
    assert routes.find(request("strange"), HOME) is None
    assert routes.find(request("oneX:"), HOME) is not None
    assert routes.addresses == 1


def test_who_knows_the_name_but_not_the_password_gets_in_nowhere(routes: Routes) -> None:
    one = enter(routes, "oneX")
    assert routes.find(request("oneX", password="guessed"), HOME) is None
    assert routes.find(request("oneX")[:-3] + b"abc", HOME) is None
    assert routes.addresses == 0
    routes.find(request("oneX"), HOME)
    # The call itself refuses it: from a known address there is nothing to learn.
    assert routes.find(request("oneX", password="guessed"), HOME) is one


def test_a_caller_whose_address_changes_is_recognised_at_the_new_one(routes: Routes) -> None:
    one = enter(routes, "oneX")
    routes.find(request("oneX"), HOME)
    assert routes.find(RTP, OFFICE) is None
    routes.find(request("oneX"), OFFICE)
    assert routes.find(RTP, OFFICE) is one


def test_an_answer_leads_to_the_call_that_asked_though_its_address_was_never_seen(routes: Routes) -> None:
    enter(routes, "otherX")
    one = enter(routes, "oneX")
    assert routes.find(one.check(), HOME) is one
    assert routes.find(RTP, HOME) is one
    assert routes.find(answer(bytes(12)), OFFICE) is None


def test_a_refused_check_is_an_answer_too(routes: Routes) -> None:
    one = enter(routes, "oneX")
    one.transactions[bytes(12)] = None
    assert routes.find(answer(bytes(12), stun.Class.ERROR), HOME) is one


def test_an_answer_that_comes_twice_stays_with_its_call(routes: Routes) -> None:
    one = enter(routes, "oneX")
    late = one.check()
    routes.find(late, HOME)
    one.transactions.clear()
    assert routes.find(late, HOME) is one


def test_an_address_cannot_be_taken_from_a_call_by_asking(routes: Routes) -> None:
    """The thief has a call of its own and forges the source address."""
    victim, thief = enter(routes, "victimX"), enter(routes, "thiefX")
    routes.find(request("victimX"), HOME)
    assert routes.find(request("thiefX"), HOME) is thief
    assert routes.find(RTP, HOME) is victim


def test_an_address_that_another_call_has_taken_first_goes_to_who_answers_there(routes: Routes) -> None:
    victim, thief = enter(routes, "victimX"), enter(routes, "thiefX")
    routes.find(request("thiefX"), HOME)
    assert routes.find(request("victimX"), HOME) is victim
    assert routes.find(RTP, HOME) is thief
    assert routes.find(victim.check(), HOME) is victim
    assert routes.find(RTP, HOME) is victim
    routes.remove("thiefX")
    assert routes.find(RTP, HOME) is victim


def test_a_port_that_a_new_call_uses_again_is_its_own_once_it_has_answered(routes: Routes) -> None:
    old = enter(routes, "oldX")
    routes.find(request("oldX"), HOME)
    new = enter(routes, "newX")
    assert routes.find(request("newX"), HOME) is new
    assert routes.find(new.check(), HOME) is new
    assert routes.find(RTP, HOME) is new
    routes.remove("oldX")
    assert old.transactions == {}
    assert routes.find(RTP, HOME) is new


def test_nothing_is_left_of_a_call_that_ends(routes: Routes) -> None:
    one, other = enter(routes, "oneX"), enter(routes, "otherX")
    routes.find(request("oneX"), HOME)
    routes.find(one.check(), OFFICE)
    assert (len(routes), routes.addresses) == (2, 2)
    routes.remove("oneX")
    routes.remove("oneX")
    assert (len(routes), routes.addresses) == (1, 0)
    assert routes.find(RTP, HOME) is None
    assert routes.find(request("oneX"), HOME) is None
    assert routes.find(request("otherX"), HOME) is other


def test_a_call_has_so_many_addresses_and_no_more(routes: Routes) -> None:
    one = enter(routes, "oneX")
    crowd = [("192.0.2.3", port) for port in range(1_000, 1_000 + MAX_ADDRESSES)]
    for address in crowd:
        assert routes.find(request("oneX"), address) is one
    assert routes.find(request("oneX"), HOME) is None
    assert routes.find(RTP, HOME) is None
    assert routes.addresses == MAX_ADDRESSES


def test_who_answers_finds_room_and_the_one_that_was_silent_longest_goes(routes: Routes) -> None:
    one = enter(routes, "oneX")
    crowd = [("192.0.2.3", port) for port in range(1_000, 1_000 + MAX_ADDRESSES)]
    for address in crowd:
        routes.find(request("oneX"), address)
    routes.find(one.check(), crowd[0])
    assert routes.find(one.check(), HOME) is one
    assert routes.find(RTP, HOME) is one
    assert routes.find(RTP, crowd[0]) is one
    assert routes.find(RTP, crowd[1]) is None
    assert routes.addresses == MAX_ADDRESSES


def test_an_indication_goes_where_its_address_does(routes: Routes) -> None:
    one = enter(routes, "oneX")
    indication = bytes(stun.Message(stun.Method.BINDING, stun.Class.INDICATION))
    assert routes.find(indication, HOME) is None
    routes.find(request("oneX"), HOME)
    assert routes.find(indication, HOME) is one


@pytest.mark.parametrize(
    "garbage",
    [
        b"\0",
        b"\0\1" + bytes(17),
        b"\0\1" + bytes(30),
        request("oneX").replace(b"\x21\x12\xa4\x42", bytes(4)),
        request("oneX")[:21],
        request("oneX")[:40],
        b"\3" * 1_200,
    ],
    ids=["a byte", "a header cut", "no name", "no cookie", "an attribute cut", "a name cut", "no STUN"],
)
def test_broken_checks_find_nobody(routes: Routes, garbage: bytes) -> None:
    enter(routes, "oneX")
    assert routes.find(garbage, HOME) is None
    assert routes.addresses == 0


def test_a_name_behind_too_many_attributes_is_not_looked_for(routes: Routes) -> None:
    enter(routes, "oneX")
    padding = b"\x80\x99\0\0" * MAX_ATTRIBUTES
    real = request("oneX")
    assert routes.find(real[:20] + padding + real[20:], HOME) is None


def test_an_attribute_that_is_cut_short_is_no_proof(routes: Routes) -> None:
    enter(routes, "oneX")
    cut = b"\0\x24\0\1a\0\0\0"  # a PRIORITY of one byte
    real = request("oneX")
    changed = real[:2] + (len(real) - 20 + len(cut)).to_bytes(2, "big") + real[4:] + cut
    changed = changed[:20] + cut + real[20:]
    changed = changed[:2] + (len(changed) - 20).to_bytes(2, "big") + changed[4:]
    assert routes.find(changed, HOME) is None


@given(st.binary(min_size=1, max_size=200), st.booleans())
def test_whatever_comes_fills_no_table(data: bytes, stun_like: bool) -> None:
    routes = Routes()
    enter(routes, "oneX")
    if stun_like:
        data = b"\0\1" + len(data).to_bytes(2, "big") + b"\x21\x12\xa4\x42" + bytes(12) + data
    routes.find(data, HOME)
    assert (len(routes), routes.addresses) == (1, 0)
