"""Messages and the sound between them: order, blocks, what is left over."""

import numpy as np
import pytest

from visavis.audio import BLOCK, Pcm
from visavis.inbox import MAX_WAITING, Inbox


def ramp(samples: int, start: int = 0) -> Pcm:
    return np.arange(start, start + samples).astype(np.int16)


def drained(inbox: Inbox) -> list[object]:
    taken: list[object] = []
    while (what := inbox.take()) is not None:
        taken.append(what if isinstance(what, str) else what.tolist())
    return taken


def test_sound_comes_before_what_was_sent_after_it():
    inbox = Inbox()
    for message in ("sound", "commit"):
        assert inbox.put(message)
    assert inbox.take() == "sound"
    inbox.hear(ramp(2 * BLOCK))
    assert inbox
    assert drained(inbox) == [ramp(BLOCK).tolist(), ramp(BLOCK, BLOCK).tolist(), "commit"]
    assert not inbox


@pytest.mark.parametrize("size", [1, 7, 240, BLOCK, BLOCK + 1, 1_111])
def test_blocks_do_not_depend_on_how_sound_was_cut(size: int):
    inbox, whole = Inbox(), ramp(3 * BLOCK)
    heard: list[int] = []
    for at in range(0, len(whole), size):
        inbox.hear(whole[at : at + size])
        while (block := inbox.take()) is not None:
            assert isinstance(block, np.ndarray)
            assert len(block) == BLOCK
            heard += block.tolist()
    assert heard == whole.tolist()


def test_the_rest_is_filled_up_with_silence():
    inbox = Inbox()
    inbox.hear(ramp(10, 1))
    assert inbox.take() is None
    rest = inbox.rest()
    assert rest is not None
    assert rest.tolist() == [*range(1, 11), *[0] * (BLOCK - 10)]
    assert inbox.rest() is None


def test_a_rest_that_is_not_wanted_is_forgotten():
    inbox = Inbox()
    inbox.hear(ramp(10))
    inbox.hear(ramp(0))
    inbox.forget_rest()
    inbox.hear(ramp(BLOCK, 50))
    assert drained(inbox) == [ramp(BLOCK, 50).tolist()]


def test_no_more_messages_wait_than_there_is_room_for():
    inbox = Inbox()
    assert all(inbox.put("x") for _ in range(MAX_WAITING))
    assert not inbox.put("x")
    assert len(drained(inbox)) == MAX_WAITING
