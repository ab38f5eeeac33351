from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from visavis.audio import BLOCK, RATE
from visavis.config import TurnConfig, TurnDetection
from visavis.errors import ConfigError
from visavis.turns import (
    Evidence,
    Speech,
    SpeechDropped,
    SpeechPaused,
    SpeechResumed,
    SpeechStarted,
    SpeechStopped,
    TurnDetector,
    TurnEvent,
)

MS = RATE // 1000
CONFIG = TurnConfig(min_speech_ms=120, onset_window_ms=240, min_voiced_ms=200, max_turn_ms=10_000)
VAD = TurnDetection(threshold=0.5, prefix_padding_ms=300, silence_duration_ms=500)

VOICE, HUSH = 0.9, 0.02


def detector(vad: TurnDetection | None = VAD, **limits: int) -> TurnDetector:
    return TurnDetector(replace(CONFIG, **limits), vad)


def feed(turns: TurnDetector, *script: tuple[int, float], block: int = BLOCK) -> list[TurnEvent]:
    """Play (milliseconds, probability) after what was already played; of pauses nothing is told."""
    events = feed_all(turns, *script, block=block)
    return [event for event in events if not isinstance(event, SpeechPaused | SpeechResumed)]


def feed_all(turns: TurnDetector, *script: tuple[int, float], block: int = BLOCK) -> list[TurnEvent]:
    events: list[TurnEvent] = []
    for milliseconds, probability in script:
        end = turns.position + milliseconds * MS
        while turns.position < end:
            length = min(block, end - turns.position)
            events += turns.receive(turns.position, length, probability)
    return events


def ms(position: int) -> float:
    return position / MS


# One turn


def test_speech_is_a_turn_from_padding_before_its_onset_to_its_last_voiced_sample() -> None:
    assert feed(detector(), (1000, HUSH), (800, VOICE), (1000, HUSH)) == [
        SpeechStarted(700 * MS),
        SpeechStopped(700 * MS, 1800 * MS, "silence"),
    ]


def test_a_start_is_told_once_enough_is_voiced() -> None:
    turns = detector()
    assert feed(turns, (1000, HUSH), (100, VOICE)) == []
    assert feed(turns, (20, VOICE)) == [SpeechStarted(700 * MS)]
    assert turns.state is Speech.SPEAKING


def test_silence_is_counted_within_a_turn_alone() -> None:
    turns = detector()
    counted = []
    for step in ((1000, HUSH), (800, VOICE), (300, HUSH), (20, VOICE), (480, HUSH), (20, HUSH)):
        feed(turns, step)
        counted.append(turns.silence)
    assert counted == [0, 0, 300 * MS, 0, 480 * MS, 0]


def test_a_stop_is_told_once_the_silence_lasts() -> None:
    turns = detector()
    feed(turns, (800, VOICE))
    assert feed(turns, (480, HUSH)) == []
    assert feed(turns, (20, HUSH)) == [SpeechStopped(0, 800 * MS, "silence")]
    assert turns.state is Speech.QUIET


def test_a_pause_shorter_than_the_silence_is_part_of_the_turn() -> None:
    events = feed(detector(), (600, VOICE), (480, HUSH), (600, VOICE), (600, HUSH))
    assert events[1:] == [SpeechStopped(0, 1680 * MS, "silence")]


def test_padding_does_not_reach_into_the_turn_before() -> None:
    vad = replace(VAD, silence_duration_ms=100)
    events = feed(detector(vad), (400, VOICE), (120, HUSH), (400, VOICE), (120, HUSH))
    assert events == [
        SpeechStarted(0),
        SpeechStopped(0, 400 * MS, "silence"),
        SpeechStarted(400 * MS),
        SpeechStopped(400 * MS, 920 * MS, "silence"),
    ]


# What is no turn


def test_a_click_starts_nothing() -> None:
    assert feed(detector(), (500, HUSH), (100, VOICE), (1000, HUSH)) == []


def test_clicks_do_not_add_up() -> None:
    typing = [(40, VOICE), (120, HUSH)] * 50
    assert feed(detector(), *typing) == []


def test_a_dropped_block_does_not_undo_an_onset() -> None:
    events = feed(detector(), (1000, HUSH), (80, VOICE), (20, HUSH), (40, VOICE))
    assert events == [SpeechStarted(700 * MS)]


def test_the_least_voice_that_counts_is_a_turn() -> None:
    assert feed(detector(), (200, VOICE), (600, HUSH)) == [
        SpeechStarted(0),
        SpeechStopped(0, 200 * MS, "silence"),
    ]


def test_voice_before_the_window_does_not_count_towards_an_onset() -> None:
    assert feed(detector(), (100, VOICE), (140, HUSH), (60, VOICE), (500, HUSH)) == []


def test_a_cough_is_dropped_after_its_start_was_told() -> None:
    assert feed(detector(), (1000, HUSH), (180, VOICE), (1000, HUSH)) == [
        SpeechStarted(700 * MS),
        SpeechDropped(700 * MS, 1180 * MS),
    ]


def test_a_dropped_stretch_leaves_no_trace_in_the_next_turn() -> None:
    turns = detector()
    feed(turns, (1000, HUSH), (180, VOICE), (520, HUSH))
    assert feed(turns, (400, VOICE), (600, HUSH)) == [
        SpeechStarted(1400 * MS),
        SpeechStopped(1400 * MS, 2100 * MS, "silence"),
    ]


# Threshold


def test_below_the_threshold_nothing_starts() -> None:
    assert feed(detector(), (3000, 0.49)) == []


def test_a_voiced_stretch_goes_on_a_little_below_the_threshold() -> None:
    events = feed(detector(), (500, VOICE), (1500, 0.36), (600, 0.34))
    assert events == [SpeechStarted(0), SpeechStopped(0, 2000 * MS, "silence")]


def test_a_level_that_only_sustains_does_not_resume() -> None:
    events = feed(detector(), (500, VOICE), (20, HUSH), (600, 0.4))
    assert events[1:] == [SpeechStopped(0, 500 * MS, "silence")]


@pytest.mark.parametrize("threshold", [0.0, 0.1])
def test_digital_silence_is_never_speech(threshold: float) -> None:
    events = feed(detector(replace(VAD, threshold=threshold)), (500, VOICE), (1000, 0.0))
    assert events[1:] == [SpeechStopped(0, 500 * MS, "silence")]


# Too long


def test_a_turn_too_long_is_submitted_and_the_rest_begins_the_next_with_no_sample_lost() -> None:
    turns = detector(max_turn_ms=2000)
    assert feed(turns, (5000, VOICE), (600, HUSH)) == [
        SpeechStarted(0),
        SpeechStopped(0, 2000 * MS, "too_long"),
        SpeechStarted(2000 * MS),
        SpeechStopped(2000 * MS, 4000 * MS, "too_long"),
        SpeechStarted(4000 * MS),
        SpeechStopped(4000 * MS, 5000 * MS, "silence"),
    ]


def test_the_cut_is_exact_when_a_block_straddles_it() -> None:
    turns = detector(max_turn_ms=2000)
    turns.receive(0, 7, HUSH)
    assert feed(turns, (2010, VOICE)) == [
        SpeechStarted(0),
        SpeechStopped(0, 2000 * MS, "too_long"),
        SpeechStarted(2000 * MS),
    ]
    assert turns.evidence is not None
    assert turns.evidence.voiced == 10 * MS + 7


def test_a_turn_of_exactly_the_longest_length_is_not_too_long() -> None:
    assert feed(detector(max_turn_ms=2000), (2000, VOICE)) == [SpeechStarted(0)]


def test_a_cough_long_after_a_turn_that_was_too_long_is_dropped() -> None:
    turns = detector(max_turn_ms=2000)
    feed(turns, (2500, VOICE), (2000, HUSH))
    assert feed(turns, (180, VOICE), (600, HUSH))[1:] == [SpeechDropped(4200 * MS, 4680 * MS)]


def test_the_rest_of_a_long_turn_is_submitted_however_short() -> None:
    events = feed(detector(max_turn_ms=2000), (2020, VOICE), (600, HUSH))
    assert events[2:] == [SpeechStarted(2000 * MS), SpeechStopped(2000 * MS, 2020 * MS, "silence")]


def test_a_turn_cut_in_a_pause_ends_at_its_last_voiced_sample() -> None:
    turns = detector(max_turn_ms=2000)
    assert feed(turns, (1800, VOICE), (400, HUSH), (300, VOICE), (600, HUSH)) == [
        SpeechStarted(0),
        SpeechStopped(0, 1800 * MS, "too_long"),
        SpeechStarted(1800 * MS),
        SpeechStopped(1800 * MS, 2500 * MS, "silence"),
    ]


def test_a_long_turn_with_nothing_after_it_is_followed_by_a_dropped_rest() -> None:
    events = feed(detector(max_turn_ms=2000), (1800, VOICE), (600, HUSH))
    assert events[1:] == [
        SpeechStopped(0, 1800 * MS, "too_long"),
        SpeechStarted(1800 * MS),
        SpeechDropped(1800 * MS, 1800 * MS),
    ]


def test_silence_that_is_never_enough_ends_with_the_longest_turn() -> None:
    turns = detector(replace(VAD, silence_duration_ms=60_000), max_turn_ms=2000)
    assert feed(turns, (500, VOICE), (30_000, HUSH)) == [
        SpeechStarted(0),
        SpeechStopped(0, 500 * MS, "too_long"),
        SpeechStarted(500 * MS),
        SpeechDropped(500 * MS, 500 * MS),
    ]
    assert turns.state is Speech.QUIET


def test_padding_takes_at_most_half_of_the_longest_turn() -> None:
    turns = detector(replace(VAD, prefix_padding_ms=60_000), max_turn_ms=2000)
    assert feed(turns, (30_000, HUSH), (120, VOICE)) == [SpeechStarted(29_000 * MS)]


def test_a_longest_turn_without_room_for_an_onset_is_refused() -> None:
    with pytest.raises(ConfigError, match="max_turn_ms = 700"):
        detector(max_turn_ms=700)


# Positions


def test_a_gap_counts_as_silence() -> None:
    turns = detector()
    feed(turns, (800, VOICE))
    assert turns.receive(5000 * MS, BLOCK, VOICE) == (SpeechStopped(0, 800 * MS, "silence"),)
    assert turns.position == 5020 * MS


def test_a_short_gap_is_bridged() -> None:
    turns = detector()
    feed(turns, (800, VOICE))
    assert turns.receive(860 * MS, BLOCK, VOICE) == ()
    assert turns.state is Speech.SPEAKING


def test_a_position_that_goes_back_is_refused() -> None:
    turns = detector()
    feed(turns, (40, HUSH))
    with pytest.raises(ValueError, match=r"block at 480, but 960 samples"):
        turns.receive(480, BLOCK, HUSH)


def test_an_empty_block_changes_nothing() -> None:
    turns = detector()
    assert turns.receive(0, 0, VOICE) == ()
    assert turns.position == 0


def test_only_what_a_later_turn_can_reach_has_to_be_kept() -> None:
    turns = detector()
    feed(turns, (60_000, HUSH))
    assert 59_000 < ms(turns.oldest) < 60_000
    feed(turns, (500, VOICE))
    assert turns.oldest == 59_700 * MS
    feed(turns, (500, HUSH))
    assert turns.oldest == 60_500 * MS


# Settings changed during a call


def test_a_shorter_silence_ends_the_running_turn_sooner() -> None:
    turns = detector()
    feed(turns, (500, VOICE), (300, HUSH))
    turns.reconfigure(replace(VAD, silence_duration_ms=200))
    assert feed(turns, (20, HUSH)) == [SpeechStopped(0, 500 * MS, "silence")]


def test_a_longer_silence_keeps_the_running_turn_open() -> None:
    turns = detector()
    feed(turns, (500, VOICE), (300, HUSH))
    turns.reconfigure(replace(VAD, silence_duration_ms=900))
    assert feed(turns, (580, HUSH)) == []
    assert feed(turns, (20, HUSH)) == [SpeechStopped(0, 500 * MS, "silence")]


def test_a_higher_threshold_counts_for_the_running_turn() -> None:
    turns = detector()
    feed(turns, (500, 0.6))
    turns.reconfigure(replace(VAD, threshold=0.9))
    assert feed(turns, (500, 0.6)) == [SpeechStopped(0, 500 * MS, "silence")]


def test_an_onset_survives_new_settings() -> None:
    turns = detector()
    feed(turns, (1000, HUSH), (100, VOICE))
    turns.reconfigure(replace(VAD, prefix_padding_ms=100))
    assert feed(turns, (20, VOICE)) == [SpeechStarted(900 * MS)]


def test_a_larger_padding_does_not_ask_for_what_may_be_forgotten() -> None:
    turns = detector(replace(VAD, prefix_padding_ms=0))
    feed(turns, (20_000, HUSH))
    oldest = turns.oldest
    turns.reconfigure(replace(VAD, prefix_padding_ms=5000))
    assert feed(turns, (120, VOICE)) == [SpeechStarted(oldest)]


def test_a_turn_running_when_push_to_talk_begins_waits_for_the_commit() -> None:
    turns = detector()
    feed(turns, (500, VOICE))
    turns.reconfigure(None)
    assert feed(turns, (3000, HUSH)) == []
    assert turns.state is Speech.SPEAKING
    assert turns.commit() == SpeechStopped(0, 3500 * MS, "committed")


def test_a_turn_running_when_push_to_talk_begins_cannot_last_for_ever() -> None:
    turns = detector()
    feed(turns, (500, VOICE))
    turns.reconfigure(None)
    assert feed(turns, (30_000, HUSH)) == [SpeechStopped(0, 10_000 * MS, "too_long")]
    assert turns.state is Speech.QUIET


def test_speech_is_detected_again_after_push_to_talk() -> None:
    turns = detector(None)
    feed(turns, (2000, VOICE))
    turns.reconfigure(VAD)
    assert feed(turns, (200, VOICE)) == [SpeechStarted(1700 * MS)]


def test_a_voice_heard_before_push_to_talk_does_not_lower_the_threshold_after_it() -> None:
    turns = detector()
    feed(turns, (100, VOICE))
    turns.reconfigure(None)
    feed(turns, (1000, HUSH))
    turns.reconfigure(VAD)
    assert feed(turns, (1000, 0.4)) == []


# Push-to-talk


def test_push_to_talk_says_nothing_by_itself() -> None:
    turns = detector(None)
    assert feed(turns, (30_000, VOICE), (30_000, HUSH)) == []
    assert turns.state is Speech.QUIET


def test_push_to_talk_commits_all_since_the_last_turn() -> None:
    turns = detector(None)
    feed(turns, (700, HUSH))
    assert turns.commit() == SpeechStopped(0, 700 * MS, "committed")
    feed(turns, (300, VOICE))
    assert turns.commit() == SpeechStopped(700 * MS, 1000 * MS, "committed")


def test_push_to_talk_has_nothing_to_commit_twice() -> None:
    turns = detector(None)
    assert turns.commit() is None
    feed(turns, (700, VOICE))
    turns.commit()
    assert turns.commit() is None


def test_push_to_talk_keeps_the_newest_of_a_long_wait() -> None:
    turns = detector(None)
    feed(turns, (60_000, HUSH))
    assert turns.commit() == SpeechStopped(50_000 * MS, 60_000 * MS, "committed")


def test_what_was_cleared_is_not_committed() -> None:
    turns = detector(None)
    feed(turns, (700, VOICE))
    assert turns.clear() is None
    assert turns.commit() is None
    feed(turns, (300, VOICE))
    assert turns.commit() == SpeechStopped(700 * MS, 1000 * MS, "committed")


# Ended from outside


def test_a_commit_ends_the_running_turn_here() -> None:
    turns = detector()
    feed(turns, (500, VOICE), (200, HUSH))
    assert turns.commit() == SpeechStopped(0, 700 * MS, "committed")
    assert turns.state is Speech.QUIET


def test_a_commit_submits_an_onset_not_yet_told() -> None:
    turns = detector()
    feed(turns, (1000, HUSH), (60, VOICE))
    assert turns.commit() == SpeechStopped(700 * MS, 1060 * MS, "committed")


def test_committed_voice_does_not_count_towards_the_next_onset() -> None:
    turns = detector()
    feed(turns, (1000, HUSH), (60, VOICE))
    turns.commit()
    assert feed(turns, (100, VOICE)) == []


def test_a_commit_while_nobody_speaks_has_nothing_to_submit() -> None:
    turns = detector()
    feed(turns, (1000, HUSH))
    assert turns.commit() is None


def test_a_commit_submits_even_what_would_be_dropped() -> None:
    turns = detector()
    feed(turns, (140, VOICE))
    assert turns.commit() == SpeechStopped(0, 140 * MS, "committed")


def test_speech_that_goes_on_after_a_commit_is_a_turn_of_its_own() -> None:
    turns = detector()
    feed(turns, (500, VOICE))
    turns.commit()
    assert feed(turns, (500, VOICE), (600, HUSH)) == [
        SpeechStarted(500 * MS),
        SpeechStopped(500 * MS, 1000 * MS, "silence"),
    ]


def test_a_stalled_turn_ends_at_its_last_voiced_sample() -> None:
    turns = detector()
    feed(turns, (500, VOICE), (200, HUSH))
    assert turns.end("stalled") == SpeechStopped(0, 500 * MS, "stalled")


def test_a_stalled_cough_is_dropped() -> None:
    turns = detector()
    feed(turns, (120, VOICE))
    assert turns.end("stalled") == SpeechDropped(0, 120 * MS)


def test_there_is_nothing_to_end_while_nobody_speaks() -> None:
    turns = detector()
    feed(turns, (100, VOICE))
    assert turns.end("stalled") is None


def test_clearing_drops_the_running_turn() -> None:
    turns = detector()
    feed(turns, (500, VOICE))
    assert turns.clear() == SpeechDropped(0, 500 * MS)
    assert feed(turns, (120, VOICE)) == [SpeechStarted(500 * MS)]


# The seam of finer endpointing


class Impatient:
    """Finished at the first silence after a second of voice."""

    def __init__(self, vad: TurnDetection) -> None:
        self.vad = vad
        self.asked: list[Evidence] = []
        self.pauses: list[int] = []

    def may_be_finished(self, evidence: Evidence) -> bool:
        return False

    def note_pause(self, samples: int) -> None:
        self.pauses.append(samples)

    def finished(self, evidence: Evidence) -> bool:
        self.asked.append(evidence)
        return evidence.voiced >= RATE


def test_another_endpointer_decides_on_the_evidence() -> None:
    made: list[Impatient] = []

    def make(config: TurnConfig, vad: TurnDetection) -> Impatient:
        made.append(Impatient(vad))
        return made[-1]

    turns = TurnDetector(CONFIG, VAD, make)
    feed(turns, (1000, HUSH), (600, VOICE), (40, 0.1))
    assert made[0].asked == [
        Evidence(1620 * MS, start=700 * MS, voiced=600 * MS, silence=20 * MS, probability=0.1),
        Evidence(1640 * MS, start=700 * MS, voiced=600 * MS, silence=40 * MS, probability=0.1),
    ]
    evidence = turns.evidence
    assert evidence == made[0].asked[-1]
    assert feed(turns, (400, VOICE), (20, HUSH)) == [SpeechStopped(700 * MS, 2040 * MS, "silence")]
    assert turns.evidence is None
    assert made[0].pauses == [40 * MS]

    other = replace(VAD, threshold=0.3)
    turns.reconfigure(other)
    assert [endpointer.vad for endpointer in made] == [VAD, other]


# Pauses


def test_a_silence_that_may_be_the_end_is_told_once_and_taken_back() -> None:
    events = feed_all(detector(), (600, VOICE), (200, HUSH), (400, VOICE), (500, HUSH))
    assert events == [
        SpeechStarted(0),
        SpeechPaused(0, 600 * MS),
        SpeechResumed(0),
        SpeechPaused(0, 1200 * MS),
        SpeechStopped(0, 1200 * MS, "silence"),
    ]


def test_a_gap_too_short_to_be_the_end_is_not_told() -> None:
    assert feed_all(detector(), (600, VOICE), (60, HUSH), (400, VOICE)) == [SpeechStarted(0)]


def test_what_is_known_of_a_silence_is_forgotten_with_it() -> None:
    turns = detector()
    feed(turns, (600, VOICE), (100, HUSH))
    turns.receive_verdict(600 * MS, 0.7)
    turns.receive_text(600 * MS, "and")
    turns.receive(turns.position, BLOCK, HUSH, 0.4)
    evidence = turns.evidence
    assert evidence is not None
    assert (evidence.finality, evidence.verdict, evidence.text) == (0.4, 0.7, "and")
    feed(turns, (100, VOICE), (100, HUSH))
    turns.receive_verdict(600 * MS, 0.7)
    turns.receive_text(600 * MS, "and")
    evidence = turns.evidence
    assert evidence is not None
    assert (evidence.finality, evidence.verdict, evidence.text) == (None, None, None)


def test_a_turn_can_be_joined_with_the_one_before() -> None:
    turns = detector()
    feed(turns, (600, VOICE), (500, HUSH), (400, VOICE))
    turns.reopen(0)
    assert turns.oldest == 0
    assert feed(turns, (500, HUSH)) == [SpeechStopped(0, 1500 * MS, "silence")]


def test_voiced_time_counts_before_the_onset_is_believed() -> None:
    turns = detector()
    feed(turns, (600, HUSH), (80, VOICE))
    assert (turns.state, turns.onset) == (Speech.QUIET, 80 * MS)
    feed(turns, (80, VOICE))
    assert (turns.state, turns.onset) == (Speech.SPEAKING, 160 * MS)


# For all inputs

PROBABILITIES = st.sampled_from([0.0, 0.02, 0.36, 0.5, 0.9])
RUNS = st.lists(st.tuples(st.integers(1, 60), PROBABILITIES), max_size=25)
LIMITS = st.builds(
    TurnConfig,
    min_speech_ms=st.sampled_from([0, 20, 120]),
    onset_window_ms=st.sampled_from([60, 240]),
    min_voiced_ms=st.sampled_from([0, 200, 400]),
    max_turn_ms=st.sampled_from([800, 2_000, 60_000]),
)
VADS = st.builds(
    TurnDetection,
    threshold=st.sampled_from([0.0, 0.3, 0.5, 1.0]),
    prefix_padding_ms=st.sampled_from([0, 300, 3_000]),
    silence_duration_ms=st.sampled_from([0, 100, 500, 3_000]),
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.integers(0, 3_000), st.integers(0, 9_000), PROBABILITIES),
        st.tuples(st.just(0), st.integers(20_000, 100_000), PROBABILITIES),
        st.sampled_from(["commit", "clear", "stall"]),
        st.none(),
        VADS,
    ),
    max_size=40,
)


@given(LIMITS, st.none() | VADS, STEPS)
def test_turns_never_overlap_and_every_start_has_its_end(
    limits: TurnConfig, vad: TurnDetection | None, steps: list[object]
) -> None:
    turns = TurnDetector(limits, vad)
    running: int | None = None
    settled = oldest = 0
    for step in steps:
        told: list[TurnEvent | None] = []
        match step:
            case (int(gap), int(length), float(probability)):
                told += turns.receive(turns.position + gap, length, probability)
            case "commit":
                told.append(turns.commit())
            case "clear":
                told.append(turns.clear())
            case "stall":
                told.append(turns.end("stalled"))
            case None | TurnDetection():
                turns.reconfigure(step)
        for event in told:
            match event:
                case SpeechStarted(at):
                    assert running is None
                    assert settled <= at < turns.position
                    assert at >= oldest
                    running = at
                case SpeechStopped(start, end, reason):
                    assert running == start or (running is None and reason == "committed")
                    assert max(settled, oldest) <= start < end <= turns.position
                    assert reason == "committed" or end - start <= limits.max_turn_ms * MS
                    running, settled = None, end
                case SpeechDropped(start, end):
                    assert running == start
                    assert start <= end <= turns.position
                    running, settled = None, end
        assert turns.state is (Speech.QUIET if running is None else Speech.SPEAKING)
        assert oldest <= turns.oldest <= turns.position
        oldest = turns.oldest
        if running is not None:
            assert turns.oldest == running


@given(LIMITS, VADS, RUNS, st.integers(2, 30))
def test_decisions_do_not_hang_on_how_audio_is_cut_up(
    limits: TurnConfig, vad: TurnDetection, runs: list[tuple[int, float]], blocks: int
) -> None:
    script = [(20 * count, probability) for count, probability in runs]
    assert feed(TurnDetector(limits, vad), *script) == feed(
        TurnDetector(limits, vad), *script, block=blocks * BLOCK
    )


@given(VADS, RUNS)
def test_no_voiced_stretch_long_enough_is_lost(vad: TurnDetection, runs: list[tuple[int, float]]) -> None:
    turns = TurnDetector(TurnConfig(), vad)
    events = feed(turns, *((20 * count, probability) for count, probability in runs), (4_000, 0.0))
    covered = [(e.start, e.end) for e in events if isinstance(e, SpeechStopped)]
    position = 0
    for count, probability in runs:
        start, position = position, position + count * BLOCK
        if count >= 10 and probability >= max(vad.threshold, 0.01):
            assert any(since <= start and position <= until for since, until in covered)
