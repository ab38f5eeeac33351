import numpy as np

from visavis.audio import RATE
from visavis.config import ConversationConfig, HistoryConfig
from visavis.frames import Frame, Source
from visavis.history import History
from visavis.recorder import SCREENS, Recorder


def frame(at: int, source: Source, number: int = 0) -> Frame:
    return Frame(b"%s-%d" % (source.encode(), number), 64, 48, at, source)


def filmed(seconds: int) -> Recorder:
    """A camera of two pictures a second and a screen of one, which changes every second."""
    recorder = Recorder(ConversationConfig(), History(HistoryConfig(), "call"))
    for half in range(2 * seconds):
        at = half * RATE // 2
        recorder.append(np.ones(RATE // 2, np.int16))
        assert recorder.sampler_of("camera").wants(at)
        recorder.sampler_of("camera").receive(frame(at, "camera", half))
        if recorder.sampler_of("screen").wants(at):
            recorder.sampler_of("screen").receive(frame(at, "screen", half))
    return recorder


def test_camera_and_screen_are_sampled_each_by_itself() -> None:
    frames = filmed(6).turn(2 * RATE, 5 * RATE).frames
    camera = [each.at / RATE for each in frames if each.source == "camera"]
    screen = [each.at / RATE for each in frames if each.source == "screen"]
    assert camera == [1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0]
    assert len(screen) == SCREENS
    assert screen[-1] == 5.0


def test_a_screen_goes_with_a_turn_of_which_something_was_sent_ahead() -> None:
    recorder = filmed(20)
    recorder.begin(0)
    assert recorder.cut() is not None
    frames = recorder.turn(0, 18 * RATE).frames
    assert [each.source for each in frames[-SCREENS:]] == ["screen"] * SCREENS
    assert [each.source for each in frames[:-SCREENS]] == ["camera"] * (len(frames) - SCREENS)


def test_what_is_seen_now_is_the_newest_of_each() -> None:
    frames = filmed(4).seen(4 * RATE, 4 * RATE)
    assert {each.source for each in frames} == {"camera", "screen"}
