"""Gaps, lost and late sound are told from packets alone; silence and the listener's own stalls are none."""

import pytest
from load.arrivals import GAP_S, Arrivals, heard_gaps

SOUND, SILENCE = 90, 3
TICKS = 960
START = 1_000.0


def arrivals(*packets: tuple[float, int, int], first: int = 0) -> Arrivals:
    """Packets as (milliseconds after the start, number of the 20 ms, size)."""
    told = Arrivals()
    for ms, number, size in packets:
        told.receive(START + ms / 1000, (first + number * TICKS) % 2**32, size)
    return told


def test_packets_in_time_have_no_gaps() -> None:
    told = arrivals(*((20 * k, k, SOUND) for k in range(50)))
    assert told.packets == 50
    assert told.sound_s == pytest.approx(1.0)
    assert not told.gaps
    assert told.gap_s == pytest.approx(0.02)
    assert told.concealed_s == 0
    assert told.first_at == START


def test_a_hole_within_sound_is_a_gap_and_what_comes_late_then_is_concealed() -> None:
    told = arrivals((0, 0, SOUND), (20, 1, SOUND), (140, 2, SOUND), (141, 3, SOUND), (142, 4, SOUND))
    assert told.gaps == [(pytest.approx(START + 0.02), pytest.approx(START + 0.14))]
    # 100 and 81 ms late; the third, 62 ms
    assert told.concealed_s == pytest.approx(0.06)


def test_a_wait_that_is_no_longer_than_a_jitter_buffer_is_no_gap() -> None:
    told = arrivals((0, 0, SOUND), (59, 1, SOUND), (60, 2, SOUND))
    assert not told.gaps
    assert told.gap_s == pytest.approx(0.059)
    assert told.concealed_s == 0
    assert len(arrivals((0, 0, SOUND), (61, 1, SOUND)).gaps) == 1


@pytest.mark.parametrize("sizes", [(SOUND, SILENCE), (SILENCE, SOUND), (SILENCE, SILENCE)])
def test_a_hole_beside_silence_is_heard_by_nobody(sizes: tuple[int, int]) -> None:
    told = arrivals((0, 0, sizes[0]), (500, 25, sizes[1]))
    assert not told.gaps
    assert told.gap_s == 0
    assert told.concealed_s == 0


def test_sound_that_never_came_is_concealed() -> None:
    told = arrivals((0, 0, SOUND), (20, 1, SOUND), (60, 3, SOUND), (80, 4, SOUND))
    assert told.concealed_s == pytest.approx(0.02)
    assert told.sound_s == pytest.approx(0.1)


def test_a_packet_out_of_order_is_looked_at_once() -> None:
    told = arrivals((0, 0, SOUND), (41, 2, SOUND), (42, 1, SOUND), (60, 3, SOUND))
    assert told.packets == 4
    assert told.concealed_s == pytest.approx(0.02)


def test_after_silence_punctuality_is_judged_anew() -> None:
    # The server's clock fell 200 ms behind in silence: what it says then is not late.
    told = arrivals((0, 0, SOUND), (20, 1, SILENCE), (500, 15, SOUND), (520, 16, SOUND))
    assert told.concealed_s == 0


def test_the_timestamp_may_begin_again() -> None:
    told = arrivals(*((20 * k, k, SOUND) for k in range(10)), first=2**32 - 5 * TICKS)
    assert not told.gaps
    assert told.concealed_s == pytest.approx(0)
    late = arrivals((0, 0, SOUND), (20, 1, SOUND), (140, 2, SOUND), first=2**32 - TICKS)
    assert late.concealed_s == pytest.approx(0.02)


def test_what_carries_sound_is_told_to_who_asks() -> None:
    told = Arrivals()
    assert told.receive(START, 0, SOUND)
    assert not told.receive(START + 0.02, TICKS, SILENCE)
    assert told.receive(START + 0.03, 0, SOUND)


def test_counting_begins_anew_within_a_call() -> None:
    told = arrivals((0, 0, SOUND), (120, 1, SOUND))
    told.forget()
    assert (told.packets, told.sound_s, told.gap_s, told.concealed_s, told.gaps) == (0, 0, 0, 0, [])
    assert told.first_at == START
    told.receive(START + 0.14, 2 * TICKS, SOUND)
    assert told.gap_s == pytest.approx(0.02)


# The listener's own stalls


def test_a_gap_counts_less_the_time_in_which_the_listener_stood_still() -> None:
    gaps = [(1.0, 1.2), (2.0, 2.1)]
    assert heard_gaps(gaps, []) == pytest.approx([0.2, 0.1])
    assert heard_gaps(gaps, [(0.9, 1.05), (2.03, 2.5)]) == pytest.approx([0.15])
    assert heard_gaps(gaps, [(1.2, 2.0)]) == pytest.approx([0.2, 0.1])


def test_what_is_left_of_a_gap_must_be_one_still() -> None:
    assert heard_gaps([(1.0, 1.1)], [(1.0, 1.1 - GAP_S + 0.001)]) == []
