"""From the tiny model's codec frames over SSE, bridge, playout and WebRTC to a caller."""

import numpy as np
import pytest

from loopback.kit import Caller, until
from omni.chain import (
    Model,
    ask,
    exact_part,
    place_of,
    running_chain,
    until_heard,
)
from omni.stream import FRAME_SAMPLES
from omni.tiny import ANSWER
from visavis.audio import RATE, Pcm

pytestmark = pytest.mark.loopback

FADE = 240
"Samples of the fade that follows a reply's last one."


async def test_the_voice_is_heard_before_the_text_ends(model: Model, http):
    async with (
        running_chain(model, model="smooth", max_tokens=60) as chain,
        Caller(chain.server.url, http) as caller,
    ):
        ask(caller)
        await until_heard(caller)
        kinds = [event["type"] for event in caller.ear.events]
        answer = await model.until_answer(caller.call_id, 0, "complete")
    last_text = len(kinds) - 1 - kinds[::-1].index("response.output_audio_transcript.delta")
    assert kinds.index("output_audio_buffer.started") < last_text
    assert answer["text"].startswith(ANSWER + ANSWER)
    assert answer["samples"] == answer["frames"] * FRAME_SAMPLES - 555


async def test_what_the_vocoder_made_is_handed_to_the_encoder_sample_by_sample(model: Model, http):
    # Made whole before it is given out, since a machine that is busy makes holes.
    async with (
        running_chain(model, model="at once", max_tokens=40) as chain,
        Caller(chain.server.url, http) as caller,
    ):
        session = chain.session(caller)
        ask(caller)
        await until_heard(caller)
        answer = await model.until_answer(caller.call_id, 0, "complete")
        made = await model.sound(answer)
        heard = len(session.given)
        await until(lambda: len(session.given) > heard + RATE, "silence after the reply")
        given = session.given
    at = place_of(made, given)
    assert len(made) == answer["frames"] * FRAME_SAMPLES - 555
    assert np.array_equal(given[at : at + len(made)], made)
    assert not given[:at].any()
    assert not given[at + len(made) + FADE :].any()


async def test_speech_over_the_answer_stops_the_model(model: Model, http, say):
    async with (
        running_chain(model, model="smooth", max_tokens=380) as chain,
        Caller(chain.server.url, http) as caller,
    ):
        session = chain.session(caller)
        ask(caller)
        await until(caller.ear.hears, "the answer is heard")
        assert (await model.answers(caller.call_id))[0]["state"] == "running"
        caller.ear.say(say("Stop, please, I have another question."))
        stopped = await model.until_answer(caller.call_id, 0, "aborted")
        await until(lambda: caller.ear.kinds()["output_audio_buffer.cleared"] == 1, "the answer is cleared")
        truncated = next(e for e in caller.ear.events if e["type"] == "conversation.item.truncated")
        made = await model.sound(stopped)
        given = session.given
        # The question is answered, and hanging up ends that answer too.
        await model.until_answer(caller.call_id, 1, "running")
    ended = await model.until_answer(caller.call_id, 1, "aborted")
    assert stopped["frames"] < 380
    assert ended["frames"] < 380
    assert 0 < truncated["audio_end_ms"] <= len(made) * 1000 // RATE
    assert exact_part(given, made) > 0.7


async def test_two_calls_at_once_interleave_and_hear_their_own(model: Model, http):
    async with (
        running_chain(model, model="smooth", max_tokens=60) as chain,
        Caller(chain.server.url, http) as one,
        Caller(chain.server.url, http) as two,
    ):
        ask(one)
        ask(two)
        overlapped = False
        while not overlapped:
            states = [(await model.answers(caller.call_id))[:1] for caller in (one, two)]
            overlapped = all(
                told and told[0]["frames"] > 4 and told[0]["state"] == "running" for told in states
            )
            assert not any(told and told[0]["state"] == "complete" for told in states), "one after the other"
        for caller in (one, two):
            await until_heard(caller)
        sounds = [
            await model.sound(await model.until_answer(caller.call_id, 0, "complete"))
            for caller in (one, two)
        ]
        given = [chain.session(caller).given for caller in (one, two)]
        heard = [np.concatenate(caller.ear.heard) for caller in (one, two)]
    for own, other in ((0, 1), (1, 0)):
        assert exact_part(given[own], sounds[own]) > 0.7
        assert exact_part(given[own], sounds[other]) == 0
        # After Opus, too.
        assert likeness(heard[own], sounds[own]) > likeness(heard[own], sounds[other]) + 0.25


def likeness(heard: Pcm, made: Pcm) -> float:
    """Return the greatest correlation of a fifth of a second of what was made with what was heard.

    Of the differences, since all that a vocoder with random weights makes is alike in its lowest tones.
    """
    piece = np.diff(made[1_200:6_000].astype(float))  # of one chunk: no hole is within
    sound = np.diff(heard.astype(float))
    size = 1 << (len(sound) + len(piece)).bit_length()
    product = np.fft.rfft(sound, size) * np.conj(np.fft.rfft(piece, size))
    found = np.fft.irfft(product, size)[: len(sound) - len(piece)]
    total = np.concatenate(([0.0], np.cumsum(sound**2)))
    energy = (total[len(piece) :] - total[: -len(piece)])[: len(found)]
    return float(np.max(found / np.sqrt(energy * (piece**2).sum() + 1e6)))


@pytest.mark.parametrize("rtf", ["0.22", "0.47"])
async def test_chunks_of_two_seconds_leave_no_hole_once_their_cadence_is_known(
    model: Model, http, rtf: str, capsys
):
    """Sound comes as vLLM-Omni sends it by default: 0.3 s, then 2 s at a time."""
    async with (
        running_chain(model, model=f"rtf {rtf}", max_tokens=40) as chain,
        Caller(chain.server.url, http) as caller,
    ):
        playout = chain.session(caller).playout
        holes: list[int] = []
        waits: list[float] = []
        # A stall of the machine is learnt like one of the engine; two whole replies in a row are enough.
        while len(holes) < 8 and holes[-2:] != [0, 0]:
            waits.append(playout.delay_s)
            ask(caller)
            await until_heard(caller, len(holes) + 1)
            holes.append(playout.underruns)
        frames = (await model.answers(caller.call_id))[0]["frames"]
    with capsys.disabled():
        told = ", ".join(f"{wait * 1000:.0f} ms: {count}" for wait, count in zip(waits, holes, strict=True))
        print(f" [rtf {rtf}, {frames} frames; wait: holes {told}]", end="")
    assert holes[-2:] == [0, 0]
    assert frames > 29, "the reply has chunks of both sizes"
