"""The microphone's tape."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from visavis.audio import BLOCK
from visavis.tape import Tape


def recorded(blocks: int) -> Tape:
    tape = Tape()
    for index in range(blocks):
        tape.append(np.arange(index * BLOCK, (index + 1) * BLOCK, dtype=np.int64).astype(np.int16))
    return tape


@given(blocks=st.integers(0, 12), start=st.integers(-500, 6500), length=st.integers(0, 3000))
def test_a_cut_is_what_lies_between_two_positions(blocks, start, length):
    tape = recorded(blocks)
    expected = np.arange(blocks * BLOCK)[max(0, start) : max(0, start + length)]
    assert tape.end == blocks * BLOCK
    assert np.array_equal(tape.cut(start, start + length), expected)


@given(blocks=st.integers(0, 12), before=st.integers(-500, 6500))
def test_forgetting_keeps_all_from_the_position_on(blocks, before):
    tape = recorded(blocks)
    tape.forget_before(before)
    kept = max(0, min(before, tape.end))
    assert kept - BLOCK < tape.start <= kept
    assert np.array_equal(tape.cut(kept, tape.end), np.arange(kept, blocks * BLOCK))


def test_a_cut_is_a_copy():
    tape = recorded(1)
    tape.cut(0, BLOCK)[:] = 7
    assert tape.cut(0, 1)[0] == 0
