from dataclasses import dataclass, field

import pytest

from visavis.config import CameraConfig
from visavis.rtc.lean.assemble import ALL_LAYERS
from visavis.rtc.lean.gate import (
    KEY_FRAME_S,
    MAX_IN_VAIN,
    REVIEW_S,
    WATCHDOG_PICTURES,
    WATCHDOG_S,
    Gate,
    Policy,
    Verdict,
)

PACKETS = 3


@dataclass
class Sender:
    """Shows so many pictures a second of three packets each, and heeds requests if it likes."""

    gate: Gate
    fps: float
    cost_s: float = 0.0015
    "Of decoding a picture."
    heeds: bool = True
    layers: tuple[int, ...] = (0,)
    now: float = 50.0
    asked: list[float] = field(default_factory=list)
    taken: int = 0
    pictures: int = 0

    def show(self, seconds: float) -> None:
        key = True
        for number in range(round(seconds * self.fps)):
            timestamp = round(self.now * 90_000) & 0xFFFF_FFFF
            self.pictures += 1
            for at in range(PACKETS):
                if self.gate.receive(timestamp, self.now) is not Verdict.TAKE:
                    continue
                self.taken += 1
                layer = self.layers[number % len(self.layers)]
                if at == 0:
                    self.gate.saw_layer(layer)
                    if (self.gate.policy is Policy.KEYS and not key) or layer > self.gate.max_layer:
                        self.gate.skip(timestamp)
                elif at == PACKETS - 1:
                    if key:
                        self.gate.saw_key_frame()
                    self.gate.decoded(1, self.cost_s)
            key = False
            if self.gate.ask_for_key_frame(False, self.now):
                self.asked.append(self.now)
                key = self.heeds
            self.now += 1 / self.fps


def test_all_is_taken_until_nothing_is_wanted_and_again_afterwards() -> None:
    gate = Gate(CameraConfig())
    assert gate.is_open
    assert gate.receive(1, 0.0) is Verdict.TAKE
    gate.want(0, 1.0)
    assert not gate.is_open
    assert [gate.receive(2, 1.0), gate.receive(3, 2.0)] == [Verdict.DROP] * 2
    gate.want(2, 3.0)
    assert gate.receive(4, 3.0) is Verdict.TAKE


def test_the_rest_of_a_picture_that_is_not_needed_is_skipped() -> None:
    gate = Gate(CameraConfig())
    assert gate.receive(1, 0.0) is Verdict.TAKE
    gate.skip(1)
    assert gate.is_skipped(1)
    assert gate.receive(1, 0.0) is Verdict.SKIP
    assert gate.receive(2, 0.0) is Verdict.TAKE
    gate.want(0, 0.0)
    gate.want(2, 0.0)
    assert gate.receive(1, 0.0) is Verdict.TAKE


def test_key_frames_are_asked_for_when_needed_but_not_more_often_than_that() -> None:
    gate = Gate(CameraConfig())
    times = [tenth / 10 for tenth in range(20) if gate.ask_for_key_frame(True, tenth / 10)]
    assert times == [0.0, 0.5, 1.0, 1.5]
    assert not gate.ask_for_key_frame(False, 9.0)


def test_the_bit_rate_is_told_once_a_second() -> None:
    gate = Gate(CameraConfig(max_bitrate=7))
    told = [gate.max_bitrate(tenth / 10) for tenth in range(21)]
    assert told == ([7] + [None] * 9) * 2 + [7]


def test_packets_without_a_picture_are_noticed_once() -> None:
    gate = Gate(CameraConfig())
    for number in range(WATCHDOG_PICTURES):
        assert not gate.is_stuck(10.0 + number * WATCHDOG_S)
        gate.receive(number, 10.0 + number * WATCHDOG_S / 2)
    assert gate.is_stuck(10.0 + WATCHDOG_S)
    assert not gate.is_stuck(10.0 + WATCHDOG_S)


def test_pictures_and_a_slow_camera_are_not_taken_for_a_freeze() -> None:
    gate = Gate(CameraConfig())
    for number in range(40):
        gate.receive(number, number / 10)
        gate.decoded(1, 0.001)
        assert not gate.is_stuck(number / 10)
    for number in range(WATCHDOG_PICTURES - 1):
        gate.decoded(0, 0.001)
        gate.receive(100 + number, 10.0 + number)
    assert not gate.is_stuck(13.0)


def test_a_fast_costly_sender_is_asked_for_key_frames_at_the_wanted_rate() -> None:
    gate = Gate(CameraConfig())
    sender = Sender(gate, fps=30)
    sender.show(2.5 * REVIEW_S)
    assert gate.policy is Policy.KEYS
    sender.taken = sender.pictures = 0
    asked = len(sender.asked)
    sender.show(20)
    assert 34 <= len(sender.asked) - asked <= 40
    assert sender.taken < 1.2 * sender.pictures
    assert not gate.is_stuck(sender.now + 9)


@pytest.mark.parametrize(("fps", "cost_s"), [(30, 0.0003), (7, 0.01)])
def test_a_cheap_or_slow_sender_is_taken_as_it_is(fps: float, cost_s: float) -> None:
    gate = Gate(CameraConfig())
    sender = Sender(gate, fps=fps, cost_s=cost_s)
    sender.show(30)
    assert gate.policy is Policy.ALL
    assert sender.asked == []


def test_one_costly_moment_changes_nothing() -> None:
    gate = Gate(CameraConfig())
    sender = Sender(gate, fps=30)
    sender.show(1.2 * REVIEW_S)
    sender.cost_s = 0.0001
    sender.show(10)
    assert gate.policy is Policy.ALL


def test_temporal_layers_are_left_out_before_key_frames_are_asked_for() -> None:
    gate = Gate(CameraConfig())
    sender = Sender(gate, fps=30, layers=(0, 2, 1, 2))
    assert gate.max_layer == ALL_LAYERS
    sender.show(20)
    assert gate.policy is Policy.BASE
    assert gate.max_layer == 0
    assert sender.asked == []
    sender.cost_s = 0.02
    sender.show(20)
    assert gate.policy is Policy.KEYS


def test_a_sender_that_becomes_slow_is_taken_whole_again() -> None:
    gate = Gate(CameraConfig())
    sender = Sender(gate, fps=30)
    sender.show(10)
    assert gate.policy is Policy.KEYS
    sender.fps = 3
    sender.show(10)
    assert gate.policy is Policy.ALL


def test_a_sender_that_gives_no_key_frames_is_taken_as_it_is_for_good() -> None:
    gate = Gate(CameraConfig())
    sender = Sender(gate, fps=30, heeds=False)
    sender.show(60)
    assert gate.policy is Policy.ALL
    assert MAX_IN_VAIN <= len(sender.asked) < 2 * MAX_IN_VAIN


def test_more_pictures_than_key_frames_can_be_had_are_taken_from_all() -> None:
    gate = Gate(CameraConfig())
    sender = Sender(gate, fps=30)
    sender.show(10)
    gate.want(2, sender.now)
    assert gate.policy is Policy.KEYS
    gate.want(4, sender.now)
    assert gate.policy is Policy.ALL
    sender.show(20)
    assert gate.policy is Policy.ALL


def test_few_wanted_pictures_are_few_requests_and_more_are_asked_for_at_once() -> None:
    gate = Gate(CameraConfig())
    sender = Sender(gate, fps=30)
    sender.show(10)
    gate.want(0.5, sender.now)
    sender.show(1)
    sender.asked.clear()
    sender.show(20)
    assert 9 <= len(sender.asked) <= 11
    gate.want(0, sender.now)
    sender.now += 60
    gate.want(2, sender.now)
    assert gate.ask_for_key_frame(False, sender.now)
    sender.now += KEY_FRAME_S
    assert gate.ask_for_key_frame(False, sender.now)
