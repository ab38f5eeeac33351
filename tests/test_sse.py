from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from visavis.engine.sse import SseParser
from visavis.errors import EngineLost


def events(*chunks: bytes, limit: int = 1_000) -> list[str]:
    parser = SseParser(limit)
    found = []
    for chunk in chunks:
        parser.receive_data(chunk)
        while (event := parser.next_event()) is not None:
            found.append(event)
    return found


def cut(stream: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(at % (len(stream) + 1) for at in cuts), len(stream)]
    return [stream[start:end] for start, end in pairwise(edges)]


LINES = st.one_of(
    st.sampled_from([b"", b"data", b"data:", b": comment", b"event: x", b"id: 1", b"junk", b"datax: 1"]),
    st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), max_size=12).map(
        lambda text: b"data: " + text.encode()
    ),
)
STREAMS = st.lists(st.tuples(LINES, st.sampled_from([b"\n", b"\r\n", b"\r"])), max_size=24).map(
    lambda lines: b"".join(line + end for line, end in lines)
)


@given(STREAMS, st.lists(st.integers(0, 10_000), max_size=30))
def test_any_cutting_gives_the_same_events(stream: bytes, cuts: list[int]) -> None:
    assert events(*cut(stream, cuts)) == events(stream)


@given(STREAMS)
def test_single_bytes_give_the_same_events(stream: bytes) -> None:
    assert events(*(stream[at : at + 1] for at in range(len(stream)))) == events(stream)


@given(st.lists(st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"])), max_size=8))
def test_what_is_written_as_events_is_read_back(texts: list[str]) -> None:
    stream = b"".join(b"data: " + text.encode() + b"\n\n" for text in texts)
    assert events(stream, limit=100_000) == texts


@given(st.binary(max_size=60), st.lists(st.integers(0, 60), max_size=8))
def test_junk_is_never_a_fault(junk: bytes, cuts: list[int]) -> None:
    assert events(*cut(junk, cuts)) == events(junk)


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_every_line_end_is_known(end: bytes) -> None:
    assert events(b"data: a" + end + end + b"data: b" + end + end) == ["a", "b"]


def test_lf_after_a_cr_in_the_chunk_before_is_no_empty_line() -> None:
    assert events(b"data: a\r", b"\ndata: b\r", b"", b"\n\r\n") == ["a\nb"]


def test_data_lines_are_joined_and_one_space_is_taken_off() -> None:
    assert events(b"data:a\ndata:  b\ndata\n\n") == ["a\n b\n"]


def test_comments_other_fields_and_a_byte_order_mark_are_skipped() -> None:
    assert events(b"\xef\xbb\xbfdata: a\n: ping\nevent: e\nretry: 5\n\n\n\n: ping\n\n") == ["a"]


def test_an_event_that_the_end_cuts_off_is_not_given() -> None:
    assert events(b"data: a\n\ndata: b\n") == ["a"]


def test_broken_utf_8_becomes_a_replacement_character() -> None:
    assert events(b"data: \xff!\n\n") == ["\ufffd!"]


def test_a_line_without_end_is_refused_at_the_limit() -> None:
    assert events(b"data: " + b"x" * 94, limit=100) == []
    with pytest.raises(EngineLost, match="more than 100 bytes"):
        events(b"data: ", *[b"x" * 5] * 19, limit=100)


def test_an_event_of_many_lines_is_refused_at_the_limit() -> None:
    assert events(*[b"data: xxx\n"] * 22, b"\n", limit=100)
    with pytest.raises(EngineLost, match="more than 100 bytes"):
        events(*[b"data: xxx\n"] * 30, limit=100)


def test_many_small_events_meet_no_limit() -> None:
    assert len(events(*[b"data: xxx\n\n"] * 300, limit=100)) == 300
