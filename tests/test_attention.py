from dataclasses import replace

import pytest

from sim import UNHURRIED, Sim
from visavis import events as ev
from visavis.actions import WantVideo
from visavis.attention import Attention
from visavis.audio import BLOCK, RATE
from visavis.config import CameraConfig, ConfigError, ConversationConfig, SessionConfig


def wishes(sim: Sim) -> list[tuple[float, float]]:
    return [(at, action.fps) for at, action in sim.log if isinstance(action, WantVideo)]


def camera(**changes: float) -> ConversationConfig:
    return replace(UNHURRIED, camera=replace(UNHURRIED.camera, **changes))


def frames_of_the_turn(sim: Sim) -> list[float]:
    """When the pictures of the last request were taken, in seconds."""
    (message,) = [m for m in sim.requests()[-1].messages if m.role == "user"]
    return [frame.at / RATE for part in message.parts for frame in getattr(part, "frames", ())]


def test_a_client_may_have_less_looked_at_and_nothing_at_all() -> None:
    config = camera(linger_s=3.0)
    client = [
        (5.0, ev.UpdateSession(replace(config.session, camera_fps=0.0))),
        (8.0, ev.UpdateSession(replace(config.session, camera_fps=1.0))),
        (14.0, ev.UpdateSession(config.session)),
    ]
    sim = Sim(speech=[(10.0, 20.0)], config=config, client=client).run(16)
    assert [fps for _, fps in wishes(sim)] == [0.5, 0.0, 0.5, 1.0, 2.0]
    begun = replace(config, session=replace(config.session, camera_fps=0.25))
    assert [fps for _, fps in wishes(Sim(config=begun).run(1))] == [0.25]


def test_looks_closely_at_first_around_speech_and_seldom_in_between() -> None:
    sim = Sim(speech=[(10.0, 11.0)], config=camera(linger_s=3.0)).run(30)
    assert [fps for _, fps in wishes(sim)] == [0.5, 2.0, 0.5]
    first, onset, last = (at for at, _ in wishes(sim))
    assert first == pytest.approx(3.0, abs=0.05)
    assert onset == pytest.approx(10.0, abs=0.05)
    assert 14.0 <= last <= 14.5


def test_a_click_is_looked_at_but_not_for_long() -> None:
    attention = Attention(CameraConfig(linger_s=1.0))
    told = [
        (at, attention.fps)
        for at in range(0, 6 * RATE, BLOCK)
        if attention.receive(at, speaking=at == 3 * RATE)
    ]
    assert told == [(RATE, 0.5), (3 * RATE, 2.0), (4 * RATE, 0.5)]


def test_whoever_talks_by_a_button_is_looked_at_all_the_time() -> None:
    session = SessionConfig(turn_detection=None)
    assert not wishes(Sim(config=replace(camera(), session=session)).run(20))


def test_nothing_is_wanted_of_an_idle_room_if_that_is_what_is_configured() -> None:
    sim = Sim(speech=[(10.0, 12.0)], config=camera(idle_fps=0.0), camera_fps=25.0)
    sim.run(9)
    assert not sim.conversation.wants_frame(sim.conversation.position)
    sim.run(6)
    assert frames_of_the_turn(sim)[0] == pytest.approx(10.0, abs=0.1)


def test_the_room_before_the_words_is_seen_at_the_idle_rate() -> None:
    sim = Sim(speech=[(10.0, 12.0)], config=camera(idle_fps=1.0), camera_fps=25.0).run(15)
    seen = frames_of_the_turn(sim)
    assert 9.0 <= seen[0] <= 10.0
    assert len(seen) == pytest.approx(6, abs=1)


@pytest.mark.parametrize("length", [1.1, 1.28, 1.46, 1.74])
def test_the_picture_at_the_end_of_a_turn_goes_with_it(length: float) -> None:
    """At two a second it would be up to half a second old."""
    sim = Sim(speech=[(5.0, 5.0 + length)], config=camera(burst_ms=100), camera_fps=25.0).run(9)
    taken = frames_of_the_turn(sim)[-1]
    assert 5.0 + length - taken <= 0.14


def test_no_more_pictures_are_idly_wanted_than_around_speech() -> None:
    with pytest.raises(ConfigError, match="idle_fps"):
        CameraConfig(idle_fps=3.0)
