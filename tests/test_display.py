import asyncio
from collections.abc import Iterable

import numpy as np
import pytest

from visavis.audio import BLOCK, Pcm
from visavis.display import CUSHION, MOST, Audience, Display
from visavis.errors import SignallingError
from visavis.rtc import PeerHandler, PeerStats


class FakeLine:
    """The connection of a display."""

    def __init__(self) -> None:
        self.closed = False
        self.fault: Exception | None = None
        self.candidates: list[tuple[str, str]] = []

    async def answer(self, offer_sdp: str) -> str:
        if self.fault is not None:
            raise self.fault
        return f"answer to {offer_sdp}"

    async def add_candidates(self, candidates: Iterable[tuple[str, str]], ufrag: str | None = None) -> None:
        self.candidates += candidates

    def send_message(self, text: str) -> None:
        raise AssertionError("a display is told nothing")

    def want_video(self, fps: float) -> None:
        raise AssertionError("a display shows nothing")

    def stats(self) -> PeerStats:
        return PeerStats()

    async def aclose(self) -> None:
        self.closed = True


def display_of(audience: Audience) -> tuple[Display, FakeLine]:
    line = FakeLine()

    def make(handler: PeerHandler) -> FakeLine:
        return line

    return Display(make, audience), line


def block(level: int) -> Pcm:
    return np.full(BLOCK, level, np.int16)


def levels(display: Display, blocks: int) -> list[int]:
    return [int(display.pull_audio()[0]) for _ in range(blocks)]


async def test_a_display_hears_what_the_caller_hears_from_when_it_came() -> None:
    audience = Audience(2)
    first, _ = display_of(audience)
    assert await first.answer("offer") == "answer to offer"
    audience.hear(block(1))
    second, _ = display_of(audience)
    await second.answer("offer")
    for level in (2, 3):
        audience.hear(block(level))
    assert levels(first, 4) == [1, 2, 3, 0]
    assert levels(second, 3) == [2, 3, 0]


async def test_a_display_plays_when_there_is_a_cushion_and_again_after_it_ran_dry() -> None:
    audience = Audience(1)
    display, _ = display_of(audience)
    await display.answer("offer")
    heard = []
    for level in range(1, 6):
        audience.hear(block(level))
        heard += levels(display, 1)
    assert heard == [0] * (CUSHION - 1) + list(range(1, 7 - CUSHION))
    assert levels(display, 2) == [5, 0]
    audience.hear(block(6))
    assert levels(display, 1) == [0]


async def test_a_display_that_does_not_play_keeps_the_newest() -> None:
    audience = Audience(1)
    display, _ = display_of(audience)
    await display.answer("offer")
    for level in range(MOST + 5):
        audience.hear(block(level))
    assert levels(display, MOST) == list(range(5, MOST + 5))


async def test_a_call_has_so_many_displays_and_no_more() -> None:
    audience = Audience(1)
    first, _ = display_of(audience)
    await first.answer("offer")
    second, line = display_of(audience)
    with pytest.raises(SignallingError) as caught:
        await second.answer("offer")
    assert (caught.value.status, caught.value.code) == (409, "too_many_displays")
    assert line.closed
    first.hang_up("taken away")
    await first.run()
    third, _ = display_of(audience)
    await third.answer("offer")


async def test_an_offer_that_is_no_use_leaves_nothing() -> None:
    audience = Audience(1)
    display, line = display_of(audience)
    line.fault = SignallingError(400, "no", code="invalid_sdp")
    with pytest.raises(SignallingError):
        await display.answer("offer")
    assert line.closed
    other, _ = display_of(audience)
    await other.answer("offer")


@pytest.mark.parametrize("ending", ["dismissed", "closed", "cancelled"])
async def test_a_display_ends_and_leaves(ending: str) -> None:
    audience = Audience(1)
    display, line = display_of(audience)
    await display.answer("offer")
    running = asyncio.create_task(display.run())
    await asyncio.sleep(0)
    match ending:
        case "dismissed":
            audience.dismiss("the call is over")
        case "closed":
            display.closed("dead")
        case _:
            running.cancel()
    await asyncio.wait({running})
    assert line.closed
    audience.hear(block(1))
    assert levels(display, 1) == [0]


async def test_what_a_display_asks_of_its_connection() -> None:
    display, line = display_of(Audience(1))
    await display.answer("offer")
    assert await display.renegotiate("another") == "answer to another"
    await display.add_candidates([("0", "candidate")], "ufrag")
    assert line.candidates == [("0", "candidate")]
    assert display.display() is None
    assert not display.wants_frame(0)
