"""What a call id says, and how it is read."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from visavis.config import ServerConfig
from visavis.errors import ConfigError
from visavis.ids import NODE, RANDOM_BYTES, CallId, read_call_id

RANDOM = "0123456789abcdef01234567"


@pytest.mark.parametrize(
    ("call_id", "text"),
    [
        (CallId(RANDOM), f"rtc_{RANDOM}"),
        (CallId(RANDOM, 3), f"rtc_3-{RANDOM}"),
        (CallId(RANDOM, 12, "visavis-0"), f"rtc_visavis-0-12-{RANDOM}"),
        (CallId(RANDOM, 0, "7"), f"rtc_7-0-{RANDOM}"),
    ],
)
def test_each_form_is_written_and_read(call_id: CallId, text: str) -> None:
    assert str(call_id) == text
    assert read_call_id(text) == call_id


@given(
    st.binary(min_size=RANDOM_BYTES, max_size=RANDOM_BYTES),
    st.integers(0, 10**9 - 1),
    st.from_regex(NODE, fullmatch=True),
)
def test_what_is_written_is_read(random: bytes, worker: int, node: str) -> None:
    call_id = CallId(random.hex(), worker, node)
    assert read_call_id(str(call_id)) == call_id


def test_a_node_names_a_worker_even_if_it_has_but_one_process() -> None:
    assert read_call_id(str(CallId(RANDOM, None, "a"))) == CallId(RANDOM, 0, "a")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "rtc_",
        "rtc_1",
        f"{RANDOM}",
        f"rtc_{RANDOM[:-1]}",
        f"rtc_{RANDOM}0",
        f"rtc_{RANDOM.upper()}",
        f"rtc_-{RANDOM}",
        f"rtc_-0-{RANDOM}",
        f"rtc_a-{RANDOM}",
        f"rtc_A-0-{RANDOM}",
        f"rtc_a_b-0-{RANDOM}",
        f"rtc_{'a' * 33}-0-{RANDOM}",
        f"rtc_1234567890-{RANDOM}",
        f"rtc_\u0661-{RANDOM}",
        f"rtc_{RANDOM}\n",
    ],
)
def test_anything_else_is_no_call_id(text: str) -> None:
    assert read_call_id(text) is None


@pytest.mark.parametrize("node", ["", "a", "visavis-0", "x" * 32])
def test_names_of_nodes_are_taken(node: str) -> None:
    assert ServerConfig(node=node).node == node


@pytest.mark.parametrize("node", ["-", "a-", "-a", "A", "a.b", "a b", "x" * 33])
def test_other_names_of_nodes_are_refused(node: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(repr(node))):
        ServerConfig(node=node)


@pytest.mark.parametrize("workers", [0, 65])
def test_a_number_of_workers_that_makes_no_sense_is_refused(workers: int) -> None:
    with pytest.raises(ConfigError, match=r"server\.workers must be 1 to 64"):
        ServerConfig(workers=workers)
