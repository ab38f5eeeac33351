import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from visavis.audio import BLOCK, RATE, Pcm
from visavis.config import PlayoutConfig
from visavis.playout import Playout

FADE = RATE // 100
CONFIG = PlayoutConfig()


def tone(seconds: float) -> Pcm:
    """A constant: the hardest sound to cut without a click."""
    return np.full(round(seconds * RATE), 10_000, np.int16)


def ramp(samples: int, start: int = 0) -> Pcm:
    """Samples that say where they are, never 0."""
    return (np.arange(start, start + samples) % 30_000 + 1).astype(np.int16)


def largest_step(pcm: Pcm) -> int:
    return int(np.abs(np.diff(pcm.astype(np.int32))).max(initial=0))


def is_finished(playout: Playout) -> bool:
    """A call, since a type checker takes a property for constant."""
    return playout.finished


def is_started(playout: Playout) -> bool:
    return playout.started


def answer(playout: Playout, chunks: list[tuple[float, float]], until_s: float = 60.0) -> tuple[float, Pcm]:
    """Play one reply of chunks (arrival, duration); return when it began to sound, and all that was read."""
    playout.begin()
    waiting = list(chunks)
    began = float("nan")
    blocks: list[Pcm] = []
    for tick in range(round(until_s * 50)):
        now = tick / 50
        while waiting and waiting[0][0] <= now:
            arrival, duration = waiting.pop(0)
            playout.write(tone(duration), arrival)
            if not waiting:
                playout.end()
        started = playout.started
        blocks.append(playout.read(BLOCK, now))
        if playout.started and not started:
            began = now
        if playout.finished:
            return began, np.concatenate(blocks)
    raise AssertionError("the reply did not end")


def omni(factor: float, chunks: int = 6, first_s: float = 0.5) -> list[tuple[float, float]]:
    """The cadence of vLLM-Omni: 0.3 s, then chunks of 2 s, each made in `factor` times that."""
    return [(first_s, 0.3), *((first_s + factor * 2.0 * k, 2.0) for k in range(1, chunks))]


def test_nothing_is_to_be_heard_before_the_first_reply() -> None:
    playout = Playout(CONFIG)
    assert is_finished(playout)
    assert not is_started(playout)
    assert playout.flush() == 0
    assert playout.write(tone(0.1), 0.0) == 0
    assert playout.dropped == RATE // 10
    assert not playout.read(BLOCK, 0.0).any()


def test_waits_for_the_prebuffer_and_then_plays_what_was_written() -> None:
    playout = Playout(CONFIG)
    playout.begin()
    playout.write(ramp(2 * BLOCK), 0.0)
    assert not playout.read(BLOCK, 0.02).any()
    assert not is_started(playout)
    playout.write(ramp(BLOCK, 2 * BLOCK), 0.03)
    assert np.array_equal(playout.read(BLOCK, 0.04), ramp(BLOCK))
    assert np.array_equal(playout.read(2 * BLOCK, 0.06), ramp(2 * BLOCK, BLOCK))
    assert playout.heard == 3 * BLOCK
    assert playout.buffered == 0


def test_a_reply_shorter_than_the_prebuffer_is_played_once_it_has_ended() -> None:
    playout = Playout(CONFIG)
    playout.begin()
    playout.write(ramp(100), 0.0)
    assert not playout.read(BLOCK, 5.0).any()
    playout.end()
    assert not is_finished(playout)
    block = playout.read(BLOCK, 5.02)
    assert np.array_equal(block[:100], ramp(100))
    assert playout.heard == 100
    assert is_finished(playout)
    assert playout.underruns == 0


def test_a_reply_without_audio_is_finished_when_it_ends() -> None:
    playout = Playout(CONFIG)
    playout.begin()
    assert playout.write(tone(0), 0.0) == 0
    assert not is_finished(playout)
    playout.end()
    assert is_finished(playout)
    assert not is_started(playout)


@pytest.mark.parametrize("factor", [0.22, 0.47])
def test_an_engine_with_a_pause_after_its_first_chunk_is_heard_without_holes_from_the_second_reply(
    factor: float,
) -> None:
    playout = Playout(CONFIG)
    answer(playout, omni(factor))
    assert playout.underruns == 1
    hole = 2.0 * factor - 0.3
    for _ in range(6):
        assert playout.delay_s == pytest.approx(hole, abs=0.05)
        began, _ = answer(playout, omni(factor))
        assert playout.underruns == 0
        assert began - 0.5 == pytest.approx(hole, abs=0.07)


@pytest.mark.parametrize("factor", [0.22, 0.47])
def test_chunks_that_arrive_in_pieces_teach_the_same(factor: float) -> None:
    pieces = [(at, 0.1) for at, duration in omni(factor) for _ in range(round(duration / 0.1))]
    playout = Playout(CONFIG)
    answer(playout, pieces)
    assert playout.underruns == 1
    began, _ = answer(playout, pieces)
    assert playout.underruns == 0
    assert began - 0.5 == pytest.approx(2.0 * factor - 0.3, abs=0.07)


def test_a_reply_cut_in_its_pause_teaches_all_the_same() -> None:
    playout = Playout(CONFIG)
    playout.begin()
    playout.write(tone(0.3), 0.5)
    playout.read(BLOCK, 0.5)
    playout.write(tone(2.0), 1.44)
    playout.flush()
    answer(playout, omni(0.47))
    assert playout.underruns == 0


def test_replies_that_are_cut_early_do_not_wear_down_what_is_known() -> None:
    playout = Playout(CONFIG)
    answer(playout, omni(0.47))
    known = playout.delay_s
    for _ in range(20):
        playout.begin()
        playout.write(tone(0.1), 0.0)
        playout.write(tone(0.1), 0.01)
        playout.flush()
    assert playout.delay_s == known


def test_a_reply_of_one_chunk_teaches_nothing() -> None:
    playout = Playout(CONFIG)
    answer(playout, omni(0.47))
    known = playout.delay_s
    answer(playout, [(0.5, 1.0)])
    assert playout.delay_s == known


def test_sound_that_is_not_the_engines_teaches_nothing() -> None:
    playout = Playout(CONFIG)
    answer(playout, omni(0.22))
    known = playout.delay_s
    playout.begin()
    playout.write(np.ones(RATE, np.int16), 0.5)
    playout.write(np.ones(RATE, np.int16), 60.0, learn=False)
    assert playout.buffered == 2 * RATE
    playout.end()
    assert playout.delay_s == known


def test_an_engine_without_holes_starts_as_soon_as_the_prebuffer_is_there() -> None:
    playout = Playout(CONFIG)
    for _ in range(3):
        began, _ = answer(playout, [(0.5 + 0.01 * k, 0.02) for k in range(100)])
        assert began == 0.52
        assert playout.underruns == 0


def test_a_delay_that_is_not_needed_any_more_wears_off() -> None:
    playout = Playout(CONFIG)
    answer(playout, omni(0.47))
    begins = [answer(playout, [(0.5, 0.3), (0.7, 2.0), (2.0, 1.0)])[0] for _ in range(15)]
    assert begins == sorted(begins, reverse=True)
    assert begins[0] > 1.0
    assert begins[-1] <= 0.54


def test_starts_at_once_when_what_came_before_the_newest_chunk_outlasts_the_engines_pauses() -> None:
    playout = Playout(CONFIG)
    answer(playout, omni(0.47))
    began, _ = answer(playout, [(0.5, 2.0), (0.52, 2.0), (0.54, 2.0)])
    assert began == 0.52


def test_waits_no_longer_than_the_limit_for_an_engine_slower_than_speech() -> None:
    playout = Playout(CONFIG)
    slow = [(0.5 + 1.5 * k, 1.0) for k in range(8)]
    answer(playout, slow)
    began, _ = answer(playout, slow)
    assert began == pytest.approx(1.5)
    assert playout.underruns > 0


def test_after_an_underrun_waits_for_the_rebuffer() -> None:
    playout = Playout(CONFIG)
    playout.begin()
    playout.write(tone(0.1), 0.0)
    for tick in range(6):
        playout.read(BLOCK, tick / 50)
    assert playout.heard == playout.buffered + RATE // 10
    playout.write(tone(0.1), 0.2)
    assert not playout.read(BLOCK, 0.2).any()
    playout.write(tone(0.02), 0.22)
    assert playout.underruns == 0
    assert playout.read(BLOCK, 0.22).any()
    assert playout.underruns == 1


def test_after_an_underrun_the_end_plays_what_is_left() -> None:
    playout = Playout(CONFIG)
    playout.begin()
    playout.write(tone(0.1), 0.0)
    for tick in range(6):
        playout.read(BLOCK, tick / 50)
    playout.write(tone(0.02), 0.2)
    playout.end()
    assert playout.read(BLOCK, 0.2).any()
    assert playout.underruns == 1
    assert playout.heard == RATE // 10 + BLOCK


def test_late_news_that_the_reply_is_over_makes_no_underrun() -> None:
    playout = Playout(CONFIG)
    playout.begin()
    playout.write(tone(0.1), 0.0)
    for tick in range(20):
        playout.read(BLOCK, tick / 50)
    assert not is_finished(playout)
    playout.end()
    assert is_finished(playout)
    assert playout.underruns == 0


def test_an_underrun_does_not_click() -> None:
    playout = Playout(CONFIG)
    _, pcm = answer(playout, [(0.0, 0.11), (0.5, 0.3)])
    assert playout.underruns == 1
    first = int(np.argmax(pcm > 0))
    assert largest_step(pcm[first:]) <= 10_000 / FADE + 1
    assert np.count_nonzero(pcm == 0) > 0.2 * RATE


@pytest.mark.parametrize("left", [0, 5, FADE, BLOCK])
def test_a_flush_fades_out_and_stops(left: int) -> None:
    playout = Playout(CONFIG)
    playout.begin()
    playout.write(tone(0.1), 0.0)
    playout.write(tone(left / RATE), 0.0)
    for _ in range(5):
        playout.read(BLOCK, 0.0)
    heard = playout.flush()
    assert heard == RATE // 10
    assert playout.buffered == 0
    assert not is_finished(playout)
    fade = playout.read(BLOCK, 0.1)
    assert largest_step(np.concatenate((tone(0.01), fade))) <= 10_000 / FADE + 1
    assert fade[FADE // 2] > 3_000
    assert not fade[FADE:].any()
    assert is_finished(playout)
    assert playout.heard == heard
    assert playout.write(tone(0.1), 0.2) == 0
    assert playout.dropped == RATE // 10


def test_a_flush_before_the_first_sample_is_silent() -> None:
    playout = Playout(CONFIG)
    playout.begin()
    playout.write(tone(0.5), 0.0)
    assert playout.flush() == 0
    assert is_finished(playout)
    assert not playout.read(BLOCK, 0.1).any()


def test_a_flush_in_a_hole_is_silent() -> None:
    playout = Playout(CONFIG)
    playout.begin()
    playout.write(tone(0.1), 0.0)
    for tick in range(8):
        playout.read(BLOCK, tick / 50)
    assert playout.flush() == RATE // 10
    assert is_finished(playout)


def test_a_new_reply_follows_the_fade_of_the_one_it_replaces() -> None:
    playout = Playout(CONFIG)
    playout.begin()
    playout.write(tone(1.0), 0.0)
    playout.read(BLOCK, 0.0)
    playout.begin()
    assert (playout.heard, playout.started) == (0, False)
    playout.write(ramp(RATE), 0.0)
    assert not is_started(playout)
    short = playout.read(FADE // 2, 0.02)
    assert short.all()
    assert not is_started(playout)
    block = playout.read(BLOCK, 0.03)
    rest = FADE - FADE // 2
    assert np.array_equal(block[rest:], ramp(BLOCK - rest))
    assert playout.heard == BLOCK - rest


def test_an_end_in_the_middle_of_a_sound_does_not_click() -> None:
    playout = Playout(CONFIG)
    _, pcm = answer(playout, [(0.0, 0.1), (0.01, 0.105)])
    first = int(np.argmax(pcm > 0))
    assert largest_step(pcm[first:]) <= 10_000 / FADE + 1
    assert playout.heard == round(0.205 * RATE)


def test_nothing_of_one_reply_is_heard_in_the_next() -> None:
    playout = Playout(CONFIG)
    playout.begin()
    playout.write(tone(0.1), 0.0)
    for tick in range(8):
        playout.read(BLOCK, tick / 50)
    playout.write(tone(0.001), 0.2)
    playout.end()
    while not playout.finished:
        playout.read(BLOCK, 0.2)
    playout.begin()
    playout.write(ramp(100), 1.0)
    playout.end()
    block = playout.read(BLOCK, 1.0)
    assert np.array_equal(block[:100], ramp(100))
    assert block[100:].max() <= 100


def test_without_fades_sound_ends_at_once() -> None:
    playout = Playout(PlayoutConfig(fade_ms=0))
    playout.begin()
    playout.write(tone(1.0), 0.0)
    playout.read(BLOCK, 0.0)
    playout.flush()
    assert is_finished(playout)
    assert not playout.read(BLOCK, 0.02).any()


def test_without_prebuffer_nothing_starts_before_there_is_audio() -> None:
    playout = Playout(PlayoutConfig(prebuffer_ms=0, rebuffer_ms=0))
    playout.begin()
    assert not playout.read(BLOCK, 0.0).any()
    playout.write(ramp(BLOCK), 0.01)
    assert np.array_equal(playout.read(BLOCK, 0.02), ramp(BLOCK))
    assert playout.underruns == 0


def test_refuses_and_counts_what_is_beyond_the_capacity() -> None:
    playout = Playout(PlayoutConfig(max_buffered_s=1.0))
    playout.begin()
    assert playout.write(ramp(20_000), 0.0) == 20_000
    assert playout.write(ramp(20_000, 20_000), 0.0) == 4_000
    assert playout.write(ramp(10), 0.0) == 0
    assert playout.dropped == 16_010
    assert playout.buffered == RATE
    assert np.array_equal(playout.read(RATE, 0.1), ramp(RATE))
    assert playout.write(ramp(10), 0.2) == 10


@given(
    st.lists(st.tuples(st.floats(0, 1.5), st.floats(0.001, 3.0)), min_size=1, max_size=8),
)
def test_any_cadence_within_the_limit_has_no_hole_once_it_is_known(
    steps: list[tuple[float, float]],
) -> None:
    arrivals: list[tuple[float, float]] = []
    at = spoken = late = 0.0
    for pause, duration in steps:
        duration = round(duration * RATE) / RATE
        at += pause
        late = max(late, at - (arrivals[0][0] if arrivals else at) - spoken)
        arrivals.append((at, duration))
        spoken += duration
    playout = Playout(CONFIG)
    answer(playout, arrivals, until_s=120)
    for _ in range(2):
        answer(playout, arrivals, until_s=120)
        assert playout.underruns == 0 or late > CONFIG.max_delay_ms / 1000 - 0.04
        assert playout.heard == sum(round(duration * RATE) for _, duration in arrivals)


class PlayoutMachine(RuleBasedStateMachine):
    """Any order of calls, beside a model that keeps every sample of the reply."""

    def __init__(self) -> None:
        super().__init__()
        self.playout = Playout(PlayoutConfig(max_buffered_s=2.0))
        self.now = 0.0
        self.open = False
        self.accepted = 0
        self.offered = 0
        self.cut: int | None = 0

    @rule()
    def begin(self) -> None:
        self.playout.begin()
        self.open, self.accepted, self.offered, self.cut = True, 0, 0, None

    @rule(samples=st.integers(0, 30_000))
    def write(self, samples: int) -> None:
        accepted = self.playout.write(ramp(samples, self.accepted), self.now)
        assert 0 <= accepted <= samples
        assert self.open or not accepted
        self.accepted += accepted
        self.offered += samples

    @rule()
    def end(self) -> None:
        self.playout.end()
        self.open = False

    @rule()
    def flush(self) -> None:
        heard = self.playout.flush()
        assert heard == self.playout.heard
        self.open = False
        if self.cut is None:
            self.cut = heard

    @rule(samples=st.sampled_from([0, 1, 100, BLOCK, 2 * BLOCK]), times=st.integers(1, 30))
    def read(self, samples: int, times: int) -> None:
        for _ in range(times):
            before, holes = self.playout.heard, self.playout.underruns
            out = self.playout.read(samples, self.now)
            self.now += samples / RATE
            assert out.dtype == np.int16
            assert len(out) == samples
            played = self.playout.heard - before
            if played == samples and self.playout.underruns == holes == 0:
                assert np.array_equal(out, ramp(samples, before))

    @precondition(lambda self: not self.open)
    @rule()
    def drain(self) -> None:
        for _ in range(round(2.0 * RATE / BLOCK) + 2):
            self.playout.read(BLOCK, self.now)
        assert self.playout.finished
        assert self.playout.buffered == 0
        assert self.playout.heard == (self.accepted if self.cut is None else self.cut)
        assert not self.playout.read(BLOCK, self.now).any()

    @invariant()
    def every_sample_is_accounted_for(self) -> None:
        playout = self.playout
        assert playout.started == (playout.heard > 0)
        assert playout.dropped == self.offered - self.accepted
        assert playout.buffered <= 2 * RATE
        if self.cut is None:
            assert playout.heard + playout.buffered == self.accepted
        else:
            assert playout.heard == self.cut
            assert playout.buffered == 0


TestPlayoutMachine = PlayoutMachine.TestCase
TestPlayoutMachine.settings = settings(stateful_step_count=30)


# Giving way to who may be interrupting.


def playing(seconds: float = 2.0) -> Playout:
    playout = Playout(CONFIG)
    playout.begin()
    playout.write(tone(seconds), 0.0)
    playout.read(BLOCK, 0.0)
    return playout


def test_a_ducked_reply_is_softer_by_what_is_said_and_goes_on() -> None:
    playout = playing()
    playout.stance = "ducked"
    first, second = playout.read(BLOCK, 0.02), playout.read(BLOCK, 0.04)
    assert largest_step(first) < 10_000 / FADE * 1.5
    assert second.tolist() == [round(10_000 * 10 ** (-12 / 20) - 0.5)] * BLOCK
    playout.stance = "open"
    third = playout.read(BLOCK, 0.06)
    assert largest_step(np.concatenate((second, third))) < 10_000 / FADE * 1.5
    assert third[-1] == 10_000
    assert playout.heard == 4 * BLOCK


def test_a_held_reply_fades_waits_and_loses_nothing() -> None:
    playout = Playout(CONFIG)
    playout.begin()
    playout.write(ramp(RATE), 0.0)
    playout.end()
    blocks = [playout.read(BLOCK, 0.0)]
    playout.stance = "held"
    blocks += [playout.read(BLOCK, 0.02 * k) for k in range(1, 6)]
    assert np.count_nonzero(np.concatenate(blocks[1:])) <= FADE
    assert not np.concatenate(blocks[2:]).any()
    assert playout.heard == BLOCK + FADE
    assert playout.underruns == 0
    playout.stance = "open"
    back = playout.read(BLOCK, 0.2)
    assert back[-1] == ramp(1, start=BLOCK + FADE + BLOCK - 1)[0]
    rest = [playout.read(BLOCK, 0.3) for _ in range(RATE // BLOCK)]
    assert playout.finished
    assert playout.heard == RATE
    assert np.concatenate((back, *rest))[FADE:].max() == ramp(RATE).max()


def test_a_held_reply_is_cut_in_silence() -> None:
    for buffered in (BLOCK + FADE // 2, RATE):
        playout = playing(buffered / RATE + 0.02)
        playout.stance = "held"
        playout.read(BLOCK, 0.02)
        playout.read(BLOCK, 0.04)
        playout.flush()
        assert not playout.read(BLOCK, 0.06).any()
        assert playout.finished


def test_a_ducked_reply_is_cut_at_the_volume_it_has() -> None:
    playout = playing()
    playout.stance = "ducked"
    last = [playout.read(BLOCK, 0.02), playout.read(BLOCK, 0.04)][-1]
    playout.flush()
    fade = playout.read(BLOCK, 0.06)
    assert fade.max() <= last.max()
    assert largest_step(np.concatenate((last, fade))) < 100


def test_the_next_reply_is_heard_as_it_is() -> None:
    playout = playing()
    playout.stance = "held"
    playout.read(BLOCK, 0.02)
    playout.begin()
    playout.write(tone(1.0), 0.1)
    playout.read(BLOCK, 0.1)
    assert playout.read(BLOCK, 0.12).tolist() == [10_000] * BLOCK


def test_without_fades_the_volume_changes_at_once() -> None:
    playout = Playout(PlayoutConfig(fade_ms=0))
    playout.begin()
    playout.write(tone(1.0), 0.0)
    playout.read(BLOCK, 0.0)
    playout.stance = "held"
    assert not playout.read(BLOCK, 0.02).any()
    playout.stance = "open"
    assert playout.read(BLOCK, 0.04).tolist() == [10_000] * BLOCK
