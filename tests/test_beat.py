import asyncio

import numpy as np
import pytest
from aiortc.mediastreams import MediaStreamError

from visavis.audio import BLOCK, RATE, Pcm
from visavis.rtc.audio import BEAT_S, MAX_LATE_S, AudioOutput

pytestmark = pytest.mark.slow


def silence() -> Pcm:
    return np.zeros(BLOCK, np.int16)


async def beats(output: AudioOutput, count: int) -> list[tuple[float, int]]:
    """When each block was pulled, and its position in samples."""
    loop = asyncio.get_running_loop()
    got = []
    for _ in range(count):
        block = await output.recv()
        assert block.pts is not None
        got.append((loop.time(), block.pts))
    return got


async def test_blocks_go_out_on_absolute_deadlines() -> None:
    output = AudioOutput(silence)
    start = asyncio.get_running_loop().time()
    _, *rest = await beats(output, 26)
    for number, (at, position) in enumerate(rest, 1):
        assert at >= start + number * BEAT_S - 1e-6, "never ahead of real time"
        assert position >= number * BLOCK
    assert rest[-1][1] == (25 + output.skipped) * BLOCK


@pytest.mark.parametrize(("stall_s", "skips"), [(MAX_LATE_S / 2, False), (MAX_LATE_S * 2, True)])
async def test_a_short_stall_is_made_up_and_a_long_one_skipped(
    stall_s: float, skips: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()
    now = loop.time()
    slept: list[float] = []

    async def sleep(delay: float) -> None:
        nonlocal now
        slept.append(delay)
        now += delay

    monkeypatch.setattr(loop, "time", lambda: now)
    monkeypatch.setattr(asyncio, "sleep", sleep)
    output = AudioOutput(silence)
    before = await beats(output, 5)
    now += stall_s
    after = await beats(output, 30)
    monkeypatch.undo()
    # Behind the stall, the clock of the packets is that of the wall again.
    assert after[-1][0] - before[0][0] == pytest.approx((after[-1][1] - before[0][1]) / RATE, abs=BEAT_S)
    assert bool(output.skipped) == skips
    burst = sum(delay == 0 for delay in slept[5:])
    assert burst <= (1 if skips else MAX_LATE_S / BEAT_S)


async def test_what_is_pulled_is_what_is_sent() -> None:
    pcm = np.arange(BLOCK, dtype=np.int16)
    frame = await AudioOutput(lambda: pcm).recv()
    assert (frame.samples, frame.sample_rate, frame.pts) == (BLOCK, RATE, 0)
    assert np.array_equal(frame.to_ndarray()[0], pcm)


async def test_a_stopped_track_ends() -> None:
    output = AudioOutput(silence)
    output.stop()
    with pytest.raises(MediaStreamError):
        await output.recv()
