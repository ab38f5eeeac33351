"""Windows become costs, ratios, a breaking point and one line."""

import json
from dataclasses import replace
from typing import Any

import pytest
from load.figures import (
    MODES,
    STEPS,
    Bench,
    Climb,
    Left,
    Leftovers,
    Scale,
    Window,
    cost,
    end_of,
    last_line,
    match,
    ratios,
    spread,
)
from load.plan import BOUNDED

NOTHING = dict.fromkeys(MODES)


def window(calls: int = 10, cpu_s: float = 2.0, **others: Any) -> Window:
    return Window(calls=calls, seconds=10.0, server_cpu_s=cpu_s, **others)


# Costs


def test_the_cost_is_of_one_call_for_a_minute() -> None:
    assert window().cpu_s_per_call_min == pytest.approx(1.2)
    assert window(calls=0).cpu_s_per_call_min == 0


def test_windows_count_by_their_calls_and_time() -> None:
    long = Window(calls=10, seconds=30.0, server_cpu_s=12.0)
    assert cost([window(), long]) == pytest.approx(60 * 14 / 400)
    assert cost([]) is None


def test_ratios_are_of_the_modes_that_both_have() -> None:
    ours = {"audio": [window(cpu_s=1.0)], "camera": [window()]}
    others = {"audio": [window(cpu_s=4.0)], "camera_720p30": [window()]}
    assert ratios(ours, others) == {"audio": 0.25, "camera": None, "camera_720p30": None}


def test_a_spread_is_median_tail_and_number() -> None:
    assert spread([]) is None
    assert spread([3.0, 1.0, 2.0]) == {"median": 2.0, "p95": 3.0, "most": 3.0, "n": 3}
    assert spread([*map(float, range(100))]) == {"median": 49.5, "p95": 95.0, "most": 99.0, "n": 100}


# Where it breaks


def test_a_step_without_a_fault_is_not_the_last() -> None:
    assert end_of(window(gap_ms=59.0)) is None


@pytest.mark.parametrize(
    ("fault", "words", "broke"),
    [
        ({"failed": 2, "failure": "refused"}, "2 of 12 calls failed: refused", True),
        ({"cpu_s": 9.8}, "the server's core is full", True),
        ({"callers_cpu_s": 9.8}, "the callers' core is full", False),
        ({"gaps": 3, "gap_ms": 81.0}, "3 gaps above 60 ms, the longest 81 ms", True),
    ],
)
def test_a_step_with_a_fault_is_the_last(fault: dict[str, Any], words: str, broke: bool) -> None:
    end = end_of(window(**fault))
    assert end is not None
    assert (end.why, end.broke) == (words, broke)


def test_several_cores_are_full_when_all_are() -> None:
    assert end_of(window(cpu_s=15.0), server_cores=2) is None
    end = end_of(window(cpu_s=19.5), server_cores=2)
    assert end is not None
    assert end.why == "the server's 2 cores are full"


def test_callers_who_lack_time_are_not_believed_about_gaps() -> None:
    end = end_of(window(callers_cpu_s=9.8, gaps=3))
    assert end is not None
    assert not end.broke


def test_a_server_that_was_not_let_run_is_told_so() -> None:
    end = end_of(window(gaps=1, gap_ms=70.0, server_waited_s=2.5))
    assert end is not None
    assert end.why.endswith("for 25% of the time it was not let run")


def test_the_most_calls_are_those_of_the_last_good_step() -> None:
    climb = Climb()
    for step in (window(1, gap_ms=30.0), window(20, gap_ms=41.0), window(40, cpu_s=9.9, gap_ms=400.0)):
        climb.add(step)
    assert climb.held == 20
    assert not climb.is_lower_bound
    assert climb.gap_ms == 41.0


def test_without_an_end_more_might_have_gone() -> None:
    climb = Climb()
    climb.add(window(20))
    assert (climb.held, climb.is_lower_bound) == (20, True)
    climb.add(window(40, callers_cpu_s=9.9))
    assert (climb.held, climb.is_lower_bound) == (20, True)


def test_gaps_end_a_climb_only_when_they_come_again() -> None:
    climb = Climb()
    climb.add(window(10, gaps=1, gap_ms=99.0, connected_ms=[30.0], answered_ms=[4.0], first_audio_ms=[50.0]))
    assert climb.doubtful
    assert climb.end is None
    climb.add(window(10))
    assert not climb.doubtful
    assert (climb.held, len(climb.windows)) == (10, 1)
    assert climb.windows[0].connected_ms == [30.0]  # they were set up before the first try
    climb.add(window(20, gaps=1))
    climb.add(window(20, gaps=2, gap_ms=80.0))
    assert climb.end is not None
    assert climb.held == 10


def test_memory_a_call_is_the_slope_over_the_steps() -> None:
    climb = Climb([window(1, rss_mb=101.5), window(10, rss_mb=115.0), window(20, rss_mb=130.0)])
    assert climb.mb_per_call() == pytest.approx(1.5)
    assert Climb([window(1)]).mb_per_call() is None


def test_no_window_of_a_climb_is_left_out_of_its_figures() -> None:
    climb = Climb()
    for calls in STEPS[:3]:
        climb.add(window(calls))
    told = climb.figures()
    assert [step["calls"] for step in told["steps"]] == list(STEPS[:3])
    json.dumps(told)


# Tones


def test_a_tone_is_timed_by_the_first_onset_after_it() -> None:
    delays, lost = match([1.0, 2.0, 3.0], [0.9, 1.011, 1.3, 3.0805])
    assert delays == pytest.approx([11.0, 80.5])
    assert lost == 1


# What is left


def test_growth_is_told_from_when_it_was_warm() -> None:
    rounds = [Left(rss, tasks=9, threads=4, sockets=7) for rss in (120.0, 130.0, 131.0, 132.0, 133.0)]
    left = Leftovers(Left(100.0, tasks=8, threads=4, sockets=6), rounds, [3.5, 3.9])
    told = left.figures(warm_share=0.2)
    assert told["rss_mb"] == {"before": 100.0, "warm": 130.0, "after": 133.0, "growth": 3.0}
    assert told["tasks"] == {"before": 8, "warm": 9, "after": 9, "growth": 0}
    assert told["dead_peer_s"]["most"] == 3.9


def test_before_the_first_round_what_is_left_is_what_was_there() -> None:
    left = Leftovers(Left(100.0, tasks=8, threads=4, sockets=6))
    assert left.latest.rss_mb == 100.0
    assert left.figures(0.2)["rss_mb"]["growth"] == 0


# The line


def test_the_line_has_its_keys_even_of_nothing() -> None:
    line = Bench().line()
    assert list(line)[:5] == [
        "cpu_s_per_call_min",
        "ratio_to_stock",
        "calls_per_core",
        "gap_ms_max",
        "mic_to_pcm_ms",
    ]
    assert line["cpu_s_per_call_min"] == line["ratio_to_stock"] == NOTHING
    assert line["mic_to_pcm_ms"] == {"no_loss": None, "loss_3pct": None}
    assert line["calls_per_core"] is None
    assert "\n" not in last_line(line)


def test_the_line_sets_lean_against_aiortc_and_against_the_stock_backend() -> None:
    media = [("lean", 1), ("stock", 2), ("aiortc", 4)]
    bench = Bench(
        media={name: {"audio": [window(cpu_s=cpu_s)]} for name, cpu_s in media},
        whole={name: {"camera": [window(cpu_s=cpu_s)]} for name, cpu_s in [("lean", 3), ("stock", 4)]},
        climbs={"lean": Climb([window(40, gap_ms=44.44)])},
        delays_ms={"lean": {"no_loss": [10.0, 11.0, 12.0], "loss_3pct": [11.5]}},
    )
    line = bench.line()
    assert line["cpu_s_per_call_min"]["audio"] == 0.6
    assert line["ratio_to_stock"]["audio"] == 0.25
    assert line["ratio_to_stock_backend"]["audio"] == 0.5
    assert line["whole_server"]["ratio_to_stock_backend"]["camera"] == 0.75
    assert (line["calls_per_core"], line["calls_per_core_is_lower_bound"]) == (40, True)
    assert line["gap_ms_max"] == 44.4
    assert line["server_waited"] == 0
    assert line["mic_to_pcm_ms"] == {"no_loss": 11.0, "loss_3pct": 11.5}
    assert json.loads(last_line(line)) == line
    json.dumps(bench.report())


def test_the_line_tells_how_long_others_had_the_servers_core() -> None:
    quiet, disturbed = window(server_waited_s=0.2), window(server_waited_s=4.0)
    bench = Bench(media={"lean": {"audio": [quiet], "camera_720p30": [disturbed]}})
    assert bench.server_waited() == 0.02
    bench.whole = {"stock": {"camera": [quiet, disturbed]}}
    assert bench.server_waited() == 0.4
    assert Bench().server_waited() is None


def test_a_plan_is_scaled_in_time_alone() -> None:
    half = BOUNDED.scaled(0.5)
    assert half.window_s == BOUNDED.window_s / 2
    assert replace(half, window_s=BOUNDED.window_s, step_s=BOUNDED.step_s, tones_s=BOUNDED.tones_s) == BOUNDED


# One process against several


def test_workers_carry_as_many_calls_more_as_a_call_costs_no_more() -> None:
    scale = Scale(2, one=[window(cpu_s=3.0)], same=[window(cpu_s=4.0)], same_each=[window(20, cpu_s=6.0)])
    told = scale.line()
    assert told["cpu_s_per_call_min"] == {"one": 1.8, "same": 2.4, "same_each": 1.8}
    assert told["capacity_of_one"] == {"same": 1.5, "same_each": 2.0}


def test_what_the_process_in_front_takes_is_told_apart() -> None:
    same = [window(front_cpu_s=0.1)]
    told = Scale(2, same=same, begun=10, front_begun_cpu_s=0.05).line()
    assert told["of_it_in_front"] == {"same": 0.06, "same_each": None}
    assert told["front_ms_per_call_begun"] == 5.0


def test_calls_held_are_compared_where_both_were_brought_to_their_limit() -> None:
    one, many = Climb(), Climb()
    for calls in (10, 20):
        one.add(window(calls), 1, 1)
    for calls in (10, 20, 40):
        many.add(window(calls), 2, 1)
    told = Scale(2, climbs={"one": one, "many": many}).line()
    assert told["calls_held"] == {"one": 20, "many": 40}
    assert told["held_of_one"] == 2.0
    assert Scale(2).line()["held_of_one"] is None
