from dataclasses import replace

import pytest

from visavis.audio import BLOCK, RATE
from visavis.config import EndpointConfig, TurnConfig, TurnDetection
from visavis.endpoint import GrowingEvidence, endpointer_for
from visavis.turns import Evidence, FixedSilence, SpeechPaused, SpeechStopped, TurnDetector

MS = RATE // 1000
ENDPOINT = replace(EndpointConfig(), even_ms=500, steepness=0.5, shortest_ms=120, longest_ms=1_500)
CONFIG = TurnConfig(endpoint=ENDPOINT)
DETECTION = TurnDetection()


def after(silence_ms: int, **known: object) -> Evidence:
    return replace(
        Evidence(position=3 * RATE, start=0, voiced=2 * RATE, silence=silence_ms * MS, probability=0.0),
        **known,
    )


def wait_ms(endpointer: GrowingEvidence | None = None, **known: object) -> int:
    """The silence after which the turn ends."""
    endpointer = endpointer or GrowingEvidence(CONFIG, DETECTION)
    return next(ms for ms in range(0, 3000, 20) if endpointer.finished(after(ms, **known)))


def draft_ms(**known: object) -> int:
    endpointer = GrowingEvidence(CONFIG, DETECTION)
    return next(ms for ms in range(0, 3000, 20) if endpointer.may_be_finished(after(ms, **known)))


def test_the_type_of_detection_chooses() -> None:
    assert isinstance(endpointer_for(CONFIG, DETECTION), GrowingEvidence)
    assert isinstance(endpointer_for(CONFIG, TurnDetection(type="server_vad")), FixedSilence)


def test_where_only_silence_is_known_a_turn_ends_after_the_silence_set() -> None:
    assert wait_ms() == 500
    assert wait_ms(GrowingEvidence(CONFIG, replace(DETECTION, silence_duration_ms=800))) == 800


def test_what_sounds_finished_ends_at_once_and_what_does_not_is_waited_for() -> None:
    waits = [wait_ms(finality=finality) for finality in (0.99, 0.9, 0.5, 0.1, 0.01)]
    assert waits == sorted(waits)
    assert waits[0] <= 140
    assert waits[2] == 500
    assert waits[-1] >= 900


def test_no_wait_is_shorter_or_longer_than_the_limits() -> None:
    assert wait_ms(finality=1.0, verdict=1.0, text="Really?") == ENDPOINT.shortest_ms
    assert wait_ms(finality=0.0, verdict=0.0, text="and") == ENDPOINT.longest_ms


def test_a_verdict_is_evidence() -> None:
    assert wait_ms(verdict=0.97) < 300
    assert wait_ms(verdict=0.03) > 700


def test_evidence_adds_up() -> None:
    assert wait_ms(finality=0.8, verdict=0.8) < wait_ms(finality=0.8) < wait_ms(finality=0.8, verdict=0.2)


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [
        ("I would like to go to Paris and", 1500, 1500),
        ("I would like a coffee,", 900, 1100),
        ("I would like a coffee.", 380, 420),
        ("Where is the station?", 200, 280),
        ("I would like a coffee", 500, 500),
    ],
)
def test_the_last_word_and_sign_are_evidence(text: str, low: int, high: int) -> None:
    assert low <= wait_ms(text=text) <= high


def test_eagerness_scales_every_wait() -> None:
    def of(eagerness: str) -> int:
        return wait_ms(GrowingEvidence(CONFIG, replace(DETECTION, eagerness=eagerness)), finality=0.7)

    assert of("high") < of("medium") == of("auto") < of("low")


def test_who_may_just_be_going_on_is_not_at_an_end() -> None:
    assert wait_ms(finality=0.99, probability=0.4) == ENDPOINT.longest_ms
    assert wait_ms(finality=0.99, probability=0.2) == ENDPOINT.shortest_ms


def test_a_caller_of_long_pauses_is_given_more_time() -> None:
    endpointer = GrowingEvidence(CONFIG, DETECTION)
    for _ in range(8):
        endpointer.note_pause(700 * MS)
    assert wait_ms(endpointer, finality=0.6) > 1.3 * wait_ms(finality=0.6)


def test_a_caller_of_short_pauses_is_answered_sooner() -> None:
    endpointer = GrowingEvidence(CONFIG, DETECTION)
    for _ in range(16):
        endpointer.note_pause(200 * MS)
    assert wait_ms(endpointer, finality=0.5) < 450


def test_stops_of_the_tongue_are_no_pauses() -> None:
    endpointer = GrowingEvidence(CONFIG, DETECTION)
    for _ in range(16):
        endpointer.note_pause(80 * MS)
    assert wait_ms(endpointer, finality=0.5) == 500


def test_old_pauses_are_forgotten() -> None:
    endpointer = GrowingEvidence(CONFIG, DETECTION)
    for pause in [1000] * 16 + [450] * 16:
        endpointer.note_pause(pause * MS)
    assert wait_ms(endpointer, finality=0.5) == 500


def test_the_engine_is_asked_as_soon_as_the_end_is_likely() -> None:
    assert draft_ms() == CONFIG.pause_ms
    assert draft_ms(finality=0.5) == CONFIG.pause_ms


def test_what_sounds_unfinished_is_asked_only_shortly_before_its_end() -> None:
    lead_ms = wait_ms(finality=0.05) - draft_ms(finality=0.05)
    assert abs(lead_ms - ENDPOINT.draft_ms) <= BLOCK // MS
    assert CONFIG.pause_ms < draft_ms(text="because") < wait_ms(text="because")


def test_the_detector_ends_turns_by_it() -> None:
    turns = TurnDetector(CONFIG, DETECTION, endpointer_for)
    events = []
    for block in range(40):
        spoken = block < 30
        events += turns.receive(turns.position, BLOCK, 0.9 if spoken else 0.0, None if spoken else 0.98)
    end = 30 * BLOCK
    assert events[1:] == [SpeechPaused(0, end), SpeechStopped(0, end, "silence")]
