from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from visavis.audio import RATE
from visavis.config import CameraConfig
from visavis.frames import Frame, FrameSampler, fit, spread

CONFIG = CameraConfig()


def at_s(seconds: float) -> int:
    return round(seconds * RATE)


def frame(seconds: float, jpeg: bytes | None = None) -> Frame:
    return Frame(jpeg if jpeg is not None else f"picture {seconds}".encode(), 640, 360, at_s(seconds))


def watch(sampler: FrameSampler, *times: float) -> list[float]:
    """Offer frames at these seconds; return those that were wanted and given."""
    wanted = [seconds for seconds in times if sampler.wants(at_s(seconds))]
    for seconds in wanted:
        sampler.receive(frame(seconds))
    return wanted


def taken(sampler: FrameSampler, start: float, end: float) -> list[float]:
    return [frame.at / RATE for frame in sampler.take(at_s(start), at_s(end))]


@pytest.mark.parametrize("rate", [30, 25, 15, 10, 4])
def test_keeps_two_frames_a_second_of_any_faster_camera(rate: int) -> None:
    sampler = FrameSampler(CONFIG)
    wanted = watch(sampler, *(k / rate for k in range(60 * rate)))
    assert len(wanted) == pytest.approx(120, abs=2)


@given(st.lists(st.floats(-1 / 30, 1 / 30), min_size=60, max_size=60))
def test_keeps_every_frame_of_a_camera_that_sends_at_just_this_rate_with_jitter(jitter: list[float]) -> None:
    sampler = FrameSampler(CONFIG)
    times = [1 + k / 2 + late for k, late in enumerate(jitter)]
    assert watch(sampler, *times) == times


def test_keeps_every_frame_of_a_slow_camera() -> None:
    times = [0.9 * k for k in range(50)]
    assert watch(FrameSampler(CONFIG), *times) == times


def test_goes_on_at_once_after_a_gap_and_without_a_burst() -> None:
    sampler = FrameSampler(CONFIG)
    watch(sampler, 0.0, 0.5)
    wanted = watch(sampler, *(10 + k / 30 for k in range(90)))
    assert wanted[0] == 10
    assert len(wanted) <= 7
    assert all(b - a > 0.3 for a, b in pairwise(wanted))


def test_a_sender_that_starts_again_is_sampled_at_once() -> None:
    sampler = FrameSampler(CONFIG)
    watch(sampler, 100.0, 100.5)
    assert watch(sampler, 0.0, 0.1, 0.5) == [0.0, 0.5]
    assert taken(sampler, 0.0, 200.0) == [0.0, 0.5]


def test_a_frame_that_comes_out_of_order_is_not_wanted() -> None:
    sampler = FrameSampler(CONFIG)
    watch(sampler, 1.0)
    assert not sampler.wants(at_s(1.0 - 1 / 30))
    assert not sampler.wants(at_s(1.0))


@given(st.lists(st.integers(0, 20 * RATE), max_size=100).map(sorted))
def test_never_keeps_more_than_the_rate(times: list[int]) -> None:
    sampler = FrameSampler(CONFIG)
    wanted = [at for at in times if sampler.wants(at)]
    assert len(wanted) <= 20 * CONFIG.fps + 2
    assert all(b - a >= 0.5 * RATE / CONFIG.fps for a, b in pairwise(wanted))


def test_a_turn_has_the_frames_of_its_speech_and_of_the_second_before() -> None:
    sampler = FrameSampler(CONFIG)
    watch(sampler, *(k / 2 for k in range(20)))
    assert taken(sampler, 4.0, 5.2) == [3.0, 3.5, 4.0, 4.5, 5.0]
    assert taken(sampler, 4.0, 5.2) == [3.0, 3.5, 4.0, 4.5, 5.0]


def test_a_turn_without_frames_of_its_own_has_the_newest_one() -> None:
    sampler = FrameSampler(CONFIG)
    watch(sampler, 1.0, 2.0)
    assert taken(sampler, 5.0, 6.0) == [2.0]
    assert taken(sampler, 0.0, 0.5) == [2.0]


def test_a_turn_long_after_the_camera_stopped_has_none() -> None:
    sampler = FrameSampler(CONFIG)
    watch(sampler, 1.0, 2.0)
    assert taken(sampler, 6.5, 7.5) == []


def test_a_call_without_camera_has_no_frames() -> None:
    assert FrameSampler(CONFIG).take(0, RATE) == ()


def test_a_picture_that_does_not_change_comes_once() -> None:
    sampler = FrameSampler(CONFIG)
    for k, jpeg in enumerate([b"a", b"a", b"b", b"b", b"b", b"a"]):
        sampler.receive(frame(k / 2, jpeg))
    assert [(f.jpeg, f.at / RATE) for f in sampler.take(0, 3 * RATE)] == [(b"a", 0), (b"b", 1), (b"a", 2.5)]


def test_forgets_all_when_the_camera_is_switched_off() -> None:
    sampler = FrameSampler(CONFIG)
    watch(sampler, 1.0)
    sampler.clear()
    assert taken(sampler, 1.0, 2.0) == []
    assert watch(sampler, 1.1) == [1.1]


@pytest.mark.parametrize("seconds", [13, 30, 60, 100])
def test_a_long_turn_has_frames_spread_over_its_whole_length(seconds: int) -> None:
    sampler = FrameSampler(CONFIG)
    watch(sampler, *(k / 2 for k in range(1000)))
    end = 499.0
    times = taken(sampler, end - seconds, end)
    gaps = [b - a for a, b in pairwise(times)]
    assert CONFIG.max_frames * 0.6 <= len(times) <= CONFIG.max_frames
    assert max(gaps) <= 2.5 * (seconds + 1) / CONFIG.max_frames
    assert times[0] <= end - seconds - 1 + max(gaps)
    assert times[-1] == end


@given(
    st.lists(st.tuples(st.integers(0, 300 * RATE), st.sampled_from([b"a", b"b", b"c"])), max_size=150),
    st.integers(1, 5),
    st.integers(0, 300 * RATE),
    st.integers(0, 60 * RATE),
)
def test_a_turn_never_has_too_many_frames_nor_the_same_twice_nor_disorder(
    seen: list[tuple[int, bytes]], most: int, start: int, duration: int
) -> None:
    sampler = FrameSampler(CameraConfig(max_frames=most))
    for at, jpeg in seen:
        sampler.receive(Frame(jpeg, 640, 360, at))
        frames = sampler.take(0, 300 * RATE)
        assert frames[-1].at == at or frames[-1].jpeg == jpeg
    frames = sampler.take(start, start + duration)
    assert len(frames) <= most
    assert all(a.at < b.at for a, b in pairwise(frames))
    if most >= len(seen):
        assert all(a.jpeg != b.jpeg for a, b in pairwise(frames))


def test_holds_a_bounded_number_of_frames_however_long_the_call() -> None:
    config = CameraConfig(max_frames=4)
    sampler = FrameSampler(config)
    watch(sampler, *(k / 2 for k in range(500)))
    wide = FrameSampler.take(sampler, 0, 1000 * RATE)
    assert len(wide) == 4
    assert len(sampler._frames) == 12


def test_forgets_what_is_older_than_any_turn() -> None:
    sampler = FrameSampler(CONFIG)
    watch(sampler, 0.0, 10.0, 125.0)
    assert taken(sampler, 0.0, 130.0) == [10.0, 125.0]


def test_spread_keeps_the_newest_when_there_is_room_for_one() -> None:
    assert [f.at for f in spread([frame(0), frame(1), frame(2)], 1)] == [at_s(2)]


def test_spread_is_by_time_and_not_by_number() -> None:
    frames = [frame(seconds) for seconds in (0, 5, 9.7, 9.8, 9.9, 10)]
    assert [f.at / RATE for f in spread(frames, 3)] == [0, 5, 10]


@pytest.mark.parametrize(
    ("size", "fitted"),
    [
        ((1920, 1080), (1024, 576)),
        ((1080, 1920), (576, 1024)),
        ((640, 480), (640, 480)),
        ((641, 479), (640, 478)),
        ((4000, 3), (1024, 2)),
        ((1, 1), (2, 2)),
        ((1366, 768), (1024, 576)),
    ],
)
def test_fit_shrinks_to_even_sides(size: tuple[int, int], fitted: tuple[int, int]) -> None:
    assert fit(*size, 1024) == fitted


@given(st.integers(2, 8000), st.integers(2, 8000), st.integers(2, 2000))
def test_fit_never_enlarges_and_keeps_the_aspect(width: int, height: int, max_side: int) -> None:
    w, h = fit(width, height, max_side)
    assert w % 2 == h % 2 == 0
    assert 2 <= w <= width
    assert 2 <= h <= height
    assert max(w, h) <= max_side
    scale = min(1, max_side / max(width, height))
    assert w == 2 or w == pytest.approx(width * scale, abs=1.001)
    assert h == 2 or h == pytest.approx(height * scale, abs=1.001)
