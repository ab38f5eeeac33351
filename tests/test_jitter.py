from dataclasses import dataclass, field

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from visavis.jitter import (
    DTX_PATIENCE_S,
    MAX_GAP_S,
    MAX_JUMP,
    PACKET_S,
    PATIENCE_S,
    Audio,
    Event,
    JitterBuffer,
    Lost,
    Silence,
)

TICKS = 960
HOLD_S = 0.06


def duration(payload: bytes) -> int:
    """Payloads of these tests: their number, or nothing for a malformed one; one byte announces silence."""
    return TICKS if payload else 0


@dataclass
class Ear:
    """A jitter buffer whose timers fire exactly when they are due, and a record of what it said when."""

    buffer: JitterBuffer = field(default_factory=lambda: JitterBuffer(duration))
    said: list[tuple[float, Event]] = field(default_factory=list)
    passed: int = 0
    "Ticks of silence that were told because nothing came."

    def packet(self, sequence: int, timestamp: int, payload: bytes, now: float) -> list[Event]:
        self.run_until(now)
        self.buffer.receive(sequence & 0xFFFF, timestamp & 0xFFFF_FFFF, payload, now)
        return self.drain(now)

    def run_until(self, now: float) -> list[Event]:
        told: list[Event] = []
        while (due := self.buffer.next_timeout()) is not None and due <= now:
            self.buffer.handle_timeout(due)
            fresh = self.drain(due)
            assert fresh or self.buffer.next_timeout() != due, "it would fire for ever"
            if fresh and isinstance(fresh[-1], Silence):
                self.passed += fresh[-1].ticks
            told += fresh
        return told

    def drain(self, now: float) -> list[Event]:
        fresh = []
        while (event := self.buffer.next_event()) is not None:
            fresh.append(event)
        self.said += [(now, event) for event in fresh]
        return fresh

    @property
    def ticks(self) -> int:
        return sum(event.ticks for _, event in self.said)


def number(n: int) -> bytes:
    return b"packet" + n.to_bytes(4, "big")


def sent(event: Event) -> int:
    assert isinstance(event, Audio)
    return int.from_bytes(event.payload[-4:], "big")


def test_packets_in_order_go_on_at_once() -> None:
    ear = Ear()
    for n in range(5):
        assert ear.packet(n, n * TICKS, number(n), n * PACKET_S) == [Audio(number(n), TICKS)]


def test_overtaken_packets_are_put_in_order() -> None:
    ear = Ear()
    ear.packet(0, 0, number(0), 0)
    assert ear.packet(2, 2 * TICKS, number(2), 0.02) == []
    assert ear.packet(1, TICKS, number(1), 0.03) == [Audio(number(1), TICKS), Audio(number(2), TICKS)]
    assert ear.buffer.counts.lost == ear.buffer.counts.late == 0


def test_a_hole_is_lost_after_the_hold_time_without_waiting_for_a_packet() -> None:
    ear = Ear()
    ear.packet(0, 0, number(0), 0)
    ear.packet(2, 2 * TICKS, number(2), 0.02)
    assert ear.buffer.next_timeout() == 0.02 + HOLD_S
    ear.buffer.handle_timeout(0.05)
    assert ear.drain(0.05) == []
    assert ear.run_until(0.02 + HOLD_S) == [Lost(TICKS, number(2)), Audio(number(2), TICKS)]


def test_a_hole_is_lost_once_too_many_packets_wait_behind_it() -> None:
    ear = Ear()
    ear.packet(0, 0, number(0), 0)
    for n in (3, 4, 5):
        assert ear.packet(n, n * TICKS, number(n), 0.02) == []
    told = ear.packet(6, 6 * TICKS, number(6), 0.02)
    assert told == [Lost(2 * TICKS, number(3)), *(Audio(number(n), TICKS) for n in (3, 4, 5, 6))]
    assert ear.buffer.counts.lost == 2


def test_each_of_two_holes_has_its_own_hold_time() -> None:
    ear = Ear()
    ear.packet(0, 0, number(0), 0)
    ear.packet(2, 2 * TICKS, number(2), 0.02)
    ear.packet(4, 4 * TICKS, number(4), 0.05)
    assert ear.run_until(0.09) == [Lost(TICKS, number(2)), Audio(number(2), TICKS)]
    assert ear.run_until(0.12) == [Lost(TICKS, number(4)), Audio(number(4), TICKS)]


def test_a_packet_that_comes_after_it_was_told_lost_is_dropped_as_late() -> None:
    ear = Ear()
    ear.packet(0, 0, number(0), 0)
    ear.packet(2, 2 * TICKS, number(2), 0.02)
    ear.run_until(0.1)
    assert ear.packet(1, TICKS, number(1), 0.1) == []
    assert (ear.buffer.counts.late, ear.buffer.counts.duplicate) == (1, 0)


def test_a_packet_that_comes_twice_is_dropped_whether_held_or_delivered() -> None:
    ear = Ear()
    ear.packet(0, 0, number(0), 0)
    ear.packet(0, 0, number(0), 0)
    ear.packet(2, 2 * TICKS, number(2), 0.02)
    ear.packet(2, 2 * TICKS, number(2), 0.02)
    assert len(ear.said) == 1
    assert (ear.buffer.counts.late, ear.buffer.counts.duplicate) == (0, 2)


@pytest.mark.parametrize("jump", [MAX_JUMP + 1, -MAX_JUMP - 1, 0x8000])
def test_a_sender_that_starts_anew_is_followed_at_once(jump: int) -> None:
    ear = Ear()
    ear.packet(0, 5 * TICKS, number(0), 0)
    ear.packet(2, 7 * TICKS, number(2), 0.02)
    assert ear.packet(1 + jump, 1_000_000_000, number(9), 0.04) == [Audio(number(9), TICKS)]
    assert ear.packet(2 + jump, 1_000_000_000 + TICKS, number(10), 0.06) == [Audio(number(10), TICKS)]
    assert ear.buffer.counts.restarts == 1


def test_time_without_packets_is_silence_of_that_length() -> None:
    ear = Ear()
    ear.packet(0, 0, number(0), 0)
    assert ear.packet(1, 11 * TICKS, number(1), 0.2) == [Silence(10 * TICKS), Audio(number(1), TICKS)]


def test_a_hole_in_a_silence_is_told_as_both() -> None:
    ear = Ear()
    ear.packet(0, 0, number(0), 0)
    ear.packet(2, 12 * TICKS, number(2), 0.2)
    told = ear.run_until(0.3)
    assert told == [Silence(10 * TICKS), Lost(TICKS, number(2)), Audio(number(2), TICKS)]


@pytest.mark.parametrize("jump", [int(MAX_GAP_S * 48_000) + 1, 1 << 31, -int(MAX_GAP_S * 48_000) - 2 * TICKS])
def test_a_timestamp_far_away_begins_a_new_time_line_without_silence(jump: int) -> None:
    ear = Ear()
    ear.packet(0, 0, number(0), 0)
    assert ear.packet(1, TICKS + jump, number(1), 0.02) == [Audio(number(1), TICKS)]
    assert ear.packet(2, 2 * TICKS + jump, number(2), 0.04) == [Audio(number(2), TICKS)]


def test_a_packet_that_claims_time_already_delivered_is_dropped() -> None:
    ear = Ear()
    ear.packet(0, 0, number(0), 0)
    assert ear.packet(1, TICKS - 1, number(1), 0.02) == []
    assert ear.packet(2, 2 * TICKS, number(2), 0.04) == [Silence(TICKS), Audio(number(2), TICKS)]
    assert ear.buffer.counts.overlapping == 1


def test_a_malformed_packet_leaves_silence_and_nothing_worse() -> None:
    ear = Ear()
    ear.packet(0, 0, number(0), 0)
    assert ear.packet(1, TICKS, b"", 0.02) == []
    assert ear.packet(2, 2 * TICKS, number(2), 0.04) == [Silence(TICKS), Audio(number(2), TICKS)]
    assert ear.buffer.counts.malformed == 1


def test_after_a_packet_that_announces_silence_time_goes_on() -> None:
    ear = Ear()
    ear.packet(0, 0, b"0", 0)
    assert ear.run_until(DTX_PATIENCE_S + 0.01) == []
    assert ear.run_until(0.201) == [Silence(TICKS)] * 7
    # What was told already is not told again when the next packet shows the whole silence.
    assert ear.packet(1, 20 * TICKS, number(1), 0.4)[-2:] == [Silence(3 * TICKS), Audio(number(1), TICKS)]
    assert ear.ticks == 21 * TICKS


def test_without_an_announcement_time_goes_on_after_more_patience() -> None:
    ear = Ear()
    ear.packet(0, 0, number(0), 0)
    assert ear.run_until(PATIENCE_S) == []
    assert ear.run_until(PATIENCE_S + 0.11) == [Silence(TICKS)] * 5


def test_time_goes_on_from_the_start_even_if_no_packet_ever_comes() -> None:
    ear = Ear()
    assert ear.buffer.next_timeout() is None
    ear.buffer.start(10.0)
    ear.buffer.start(99.0)
    assert ear.run_until(10.0 + PATIENCE_S + 0.05) == [Silence(TICKS)] * 3


def test_packets_that_come_after_a_stall_are_all_heard() -> None:
    ear = Ear()
    ear.packet(0, 0, number(0), 0)
    silence = ear.run_until(PATIENCE_S + 0.5)
    burst = [event for n in range(1, 76) for event in ear.packet(n, n * TICKS, number(n), PATIENCE_S + 0.5)]
    assert silence
    assert burst == [Audio(number(n), TICKS) for n in range(1, 76)]


def test_a_timer_that_is_much_too_late_tells_no_more_than_the_longest_gap() -> None:
    buffer = JitterBuffer(duration)
    buffer.start(0.0)
    buffer.handle_timeout(1_000.0)
    event = buffer.next_event()
    assert isinstance(event, Silence)
    assert event.ticks == pytest.approx(MAX_GAP_S * 48_000, abs=2 * TICKS)
    assert buffer.next_timeout() == pytest.approx(1_000.0, abs=0.03)


def test_a_hold_time_shorter_than_a_packet_still_holds_one() -> None:
    ear = Ear(JitterBuffer(duration, max_hold_ms=5))
    ear.packet(0, 0, number(0), 0)
    assert ear.packet(2, 2 * TICKS, number(2), 0.020) == []
    assert ear.packet(1, TICKS, number(1), 0.021) == [Audio(number(n), TICKS) for n in (1, 2)]


@dataclass(frozen=True)
class Sent:
    """What the network does to one packet, and how long the sender was silent before it."""

    delay_ms: int
    lost: bool
    twice: bool
    pause: int
    "In packets."


fates = st.builds(
    Sent,
    delay_ms=st.one_of(st.just(10), st.integers(0, 150)),
    lost=st.sampled_from([False] * 7 + [True]),
    twice=st.sampled_from([False] * 9 + [True]),
    pause=st.one_of(st.just(0), st.integers(0, 40)),
)
CALM = [Sent(10, lost=False, twice=False, pause=0)] * 10


def call(fates: list[Sent], sequence: int, timestamp: int) -> tuple[Ear, dict[int, float], int]:
    """Run a call; give what was heard, when each packet first came, and its length in packets."""
    arrivals: list[tuple[float, int, int]] = []
    clock = 0
    for n, fate in enumerate(fates):
        clock += fate.pause
        if not fate.lost or not n:
            arrivals += [(clock * PACKET_S + fate.delay_ms / 1000, n, clock)] * (1 + fate.twice)
        clock += 1
    ear = Ear()
    came: dict[int, float] = {}
    for at, n, place in sorted(arrivals):
        came.setdefault(n, at)
        ear.packet(sequence + n, timestamp + place * TICKS, number(n), at)
    ear.run_until(max(at for at, _, _ in arrivals) + 2 * HOLD_S)
    return ear, came, clock


starts = st.tuples(st.integers(0, 0xFFFF), st.integers(0, 0xFFFF_FFFF))


@given(st.lists(fates, min_size=1, max_size=80), starts)
def test_no_network_makes_the_order_wrong_or_the_delay_lasting(
    fates: list[Sent], start: tuple[int, int]
) -> None:
    ear, came, _ = call(fates + CALM, *start)
    heard = [(now, sent(event)) for now, event in ear.said if isinstance(event, Audio)]
    numbers = [n for _, n in heard]
    assert numbers == sorted(set(numbers)), "each once, in order"
    assert all(-1e-9 <= now - came[n] <= HOLD_S + 1e-9 for now, n in heard), "bounded delay"
    settled = numbers.index(len(fates) + 5)
    assert all(now == came[n] for now, n in heard[settled:]), "after a loss the delay is nought again"


@given(st.lists(fates, min_size=1, max_size=80), starts)
def test_what_is_told_adds_up_to_the_time_that_passed(fates: list[Sent], start: tuple[int, int]) -> None:
    ear, _, length = call(fates + CALM, *start)
    first = next(sent(event) for _, event in ear.said if isinstance(event, Audio))
    before = sum(fate.pause + 1 for fate in fates[:first]) + (fates + CALM)[first].pause
    elapsed = (length - before) * TICKS
    assume(not ear.buffer.counts.restarts)
    # Silence told while nothing came is kept if late packets then fill the same time.
    assert elapsed <= ear.ticks <= elapsed + ear.passed


@given(st.lists(fates, min_size=1, max_size=80), starts)
def test_every_packet_is_accounted_for(fates: list[Sent], start: tuple[int, int]) -> None:
    ear, came, _ = call(fates + CALM, *start)
    counts = ear.buffer.counts
    delivered = sum(isinstance(event, Audio) for _, event in ear.said)
    assert counts.received == delivered + counts.late + counts.duplicate + counts.overlapping
    assert counts.received >= len(came)


@given(
    st.lists(
        st.tuples(
            st.integers(0, 0xFFFF),
            st.integers(0, 0xFFFF_FFFF),
            st.binary(max_size=4),
            st.floats(0, 3, allow_subnormal=False),
        ),
        max_size=60,
    )
)
def test_nothing_a_sender_does_breaks_the_time_line(packets: list[tuple[int, int, bytes, float]]) -> None:
    ear = Ear()
    now = 0.0
    for sequence, timestamp, payload, pause in packets:
        now += pause
        ear.packet(sequence, timestamp, payload, now)
    assert all(event.ticks > 0 for _, event in ear.said)
    assert [at for at, _ in ear.said] == sorted(at for at, _ in ear.said)
    assert ear.ticks <= (len(packets) * (MAX_GAP_S + PACKET_S) + now + 1) * 48_000
