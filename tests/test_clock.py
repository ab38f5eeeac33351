import heapq
import random
from collections.abc import Callable
from itertools import count

import numpy as np
import pytest

from visavis.audio import BLOCK, RATE
from visavis.codecs import decoder_for
from visavis.config import RtcConfig
from visavis.receiver import AudioReceiver
from visavis.rtc.clock import VIDEO_RATE, MediaClock


def unreported() -> MediaClock:
    return MediaClock(lambda timestamp, later_s: None)


def ticks(seconds: float) -> int:
    return round(seconds * VIDEO_RATE) & 0xFFFF_FFFF


def test_without_reports_pictures_are_placed_by_their_own_time_and_not_by_when_they_came() -> None:
    clock, jitter = unreported(), random.Random(1)
    clock.place(ticks(0.0), 48_000)
    for n in range(1, 100):
        at = clock.place(ticks(n / 30), 48_000 + n * RATE // 30 + jitter.randrange(0, 4_000))
        assert abs(at - (48_000 + n * RATE / 30)) < 700


def test_without_reports_a_drifting_camera_clock_is_followed() -> None:
    clock = unreported()
    for n in range(3_000):
        at = clock.place(ticks(n / 30 * 0.999 - 50), n * RATE // 30)
    assert abs(at - 2_999 * RATE // 30) < RATE // 4


def test_a_jump_of_the_camera_clock_is_anchored_anew_and_never_goes_back() -> None:
    clock = unreported()
    assert clock.place(0, 1_000) == 1_000
    assert clock.place(ticks(20_000.0), 2_000) == 2_000
    assert clock.place(ticks(19_999.5), 2_100) == 2_000


def test_reports_say_where_a_picture_belongs_however_long_it_took() -> None:
    heard: list[tuple[int, float]] = []

    def position_of(timestamp: int, later_s: float) -> int:
        heard.append((timestamp, later_s))
        return 100_000 + round(later_s * RATE)

    clock = MediaClock(position_of)
    assert clock.place(ticks(10.0), 106_000) == 106_000
    clock.receive_report("audio", 5 << 32, 777)
    assert clock.place(ticks(10.1), 108_400) == 108_400
    clock.receive_report("video", (5 << 32) + (1 << 31), ticks(10.0))
    assert clock.place(ticks(10.2), 125_000) == 100_000 + round(0.7 * RATE)
    assert heard == [(777, pytest.approx(0.7))]


def test_reports_that_make_no_sense_are_not_believed() -> None:
    clock = MediaClock(lambda timestamp, later_s: round(later_s * RATE))
    clock.receive_report("audio", 0, 0)
    clock.receive_report("video", 99 << 32, 0)
    assert clock.place(0, 1_000) == 1_000


class Call:
    """In simulated time: every second a beep, and a picture of it, from a sender whose clock is another."""

    def __init__(self, *, drift: float, loss: float, jitter_s: float, reports: bool) -> None:
        self._rng = random.Random(7)
        self._drift, self._loss, self._jitter_s = drift, loss, jitter_s
        self._events: list[tuple[float, int, Callable[[float], None]]] = []
        self._ids = count()
        self._audio = AudioReceiver(decoder_for("PCMU"), RtcConfig())
        self._clock = MediaClock(self._audio.position_of)
        self._reports = reports
        self.beeps: list[int] = []
        self.pictures: list[int] = []
        self._silent = True

    def run(self, seconds: int) -> None:
        self._audio.start(0.0)
        quiet, beep = bytes([0xFF] * 160), bytes([0x80, 0x00] * 80)
        for number in range(seconds * 50):
            payload = beep if number % 50 == 25 else quiet
            self._send(number / 50, 0.03, self._voice(number, payload), lose=payload == quiet)
            if number % 50 == 25:
                self._send(number / 50, 0.12, self._picture(number / 50))
            if self._reports and number % 50 == 10:
                self._send(number / 50, 0.03, self._report(number / 50))
        while self._events:
            now, _, arrive = heapq.heappop(self._events)
            while (due := self._audio.next_timeout()) is not None and due <= now:
                self._audio.handle_timeout(due)
                self._hear()
            arrive(now)
            self._hear()

    def worst_s(self, since_s: float) -> float:
        """Tell the greatest distance between a picture and its beep from then on."""
        beeps = np.array(self.beeps)
        late = [at for at in self.pictures if at > since_s * RATE]
        assert len(late) > 0.9 * (max(self.pictures) / RATE - since_s)
        return max(float(np.abs(beeps - at).min()) for at in late) / RATE

    def _send(self, at: float, delay_s: float, arrive: Callable[[float], None], lose: bool = True) -> None:
        """`at` is the sender's clock, what arrives does so by ours."""
        if lose and self._rng.random() < self._loss:
            return
        arrival = at * (1 + self._drift) + delay_s + self._rng.random() * self._jitter_s
        heapq.heappush(self._events, (arrival, next(self._ids), arrive))

    def _voice(self, number: int, payload: bytes) -> Callable[[float], None]:
        timestamp = 4_294_900_000 + number * 160 & 0xFFFF_FFFF
        return lambda now: self._audio.receive_packet(1, number & 0xFFFF, timestamp, payload, now)

    def _picture(self, taken: float) -> Callable[[float], None]:
        timestamp = ticks(taken + 40_000)
        return lambda now: self.pictures.append(self._clock.place(timestamp, self._audio.position))

    def _report(self, sent: float) -> Callable[[float], None]:
        ntp = round((sent + 3_900_000_000) * 2**32)

        def arrive(_: float) -> None:
            self._clock.receive_report("audio", ntp, 4_294_900_000 + round(sent * 8_000) & 0xFFFF_FFFF)
            self._clock.receive_report("video", ntp, ticks(sent + 40_000))

        return arrive

    def _hear(self) -> None:
        while (block := self._audio.next_block()) is not None:
            loud = np.flatnonzero(np.abs(block.astype(int)) > 8_000)
            if len(loud) and self._silent:
                self.beeps.append(self._audio.position - BLOCK + int(loud[0]))
            self._silent = not len(loud)


@pytest.mark.parametrize(("drift", "seconds"), [(200e-6, 600), (-200e-6, 120)])
def test_pictures_stay_with_the_words_under_drift_loss_and_jitter(drift: float, seconds: int) -> None:
    call = Call(drift=drift, loss=0.05, jitter_s=0.05, reports=True)
    call.run(seconds)
    assert call.worst_s(since_s=10) < 0.08


def test_without_reports_they_stay_as_near_as_the_ways_of_both_differ() -> None:
    call = Call(drift=200e-6, loss=0.0, jitter_s=0.0, reports=False)
    call.run(60)
    assert call.worst_s(since_s=10) < 0.2
