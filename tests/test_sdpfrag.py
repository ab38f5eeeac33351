import pytest
from hypothesis import given
from hypothesis import strategies as st

from visavis.errors import SignallingError
from visavis.sdpfrag import MAX_LINE, MAX_LINES, Fragment, read_fragment

FIRST = "candidate:1 1 udp 2122260223 192.0.2.1 61764 typ host generation 0 ufrag EsAw"
SECOND = "candidate:2 1 udp 2122194687 198.51.100.1 61765 typ host"


def body(*lines: str, end: str = "\r\n") -> bytes:
    return end.join([*lines, ""]).encode()


@pytest.mark.parametrize("end", ["\r\n", "\n"])
def test_candidates_have_the_name_of_their_section(end: str) -> None:
    fragment = body(
        "a=ice-ufrag:EsAw",
        "a=ice-pwd:P2uYro0UCOQ4zxjKXaWCBui1",
        "m=audio 9 RTP/AVP 0",
        "a=mid:voice",
        f"a={FIRST}",
        "m=video 9 RTP/AVP 0",
        "a=mid:1",
        f"a={SECOND}",
        "a=end-of-candidates",
        end=end,
    )
    assert read_fragment(fragment) == Fragment("EsAw", (("voice", FIRST), ("1", SECOND)))


def test_the_name_may_come_after_the_candidates() -> None:
    fragment = body("m=audio 9 RTP/AVP 0", f"a={FIRST}", "a=mid:0", "m=video 9 RTP/AVP 0", f"a={SECOND}")
    assert read_fragment(fragment) == Fragment(None, (("0", FIRST), ("", SECOND)))


def test_candidates_without_a_section_are_the_firsts() -> None:
    assert read_fragment(body(f"a={FIRST}")) == Fragment(None, (("", FIRST),))


def test_the_end_of_candidates_alone_says_nothing() -> None:
    assert read_fragment(body("a=ice-ufrag:EsAw", "a=end-of-candidates")) == Fragment("EsAw", ())


@pytest.mark.parametrize(
    "wrong",
    [
        b"",
        b"\r\n",
        b"\xff",
        b"hello",
        b'{"candidate": ""}',
        body(*["a=x"] * (MAX_LINES + 1)),
        body("a=" + "x" * MAX_LINE),
    ],
)
def test_what_is_no_fragment_is_refused(wrong: bytes) -> None:
    with pytest.raises(SignallingError) as caught:
        read_fragment(wrong)
    assert (caught.value.status, caught.value.code) == (400, "invalid_sdp_fragment")


@given(st.lists(st.sampled_from(["m=audio 9 RTP/AVP 0", "a=mid:0", f"a={FIRST}", "a=ice-ufrag:x", "b=y"])))
def test_no_candidate_is_lost_or_invented(lines: list[str]) -> None:
    if lines:
        assert len(read_fragment(body(*lines)).candidates) == lines.count(f"a={FIRST}")
