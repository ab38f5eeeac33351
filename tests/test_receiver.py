import numpy as np

from visavis.audio import BLOCK, RATE, Pcm, level_dbfs
from visavis.codecs import OpusEncoder, decoder_for
from visavis.config import RtcConfig
from visavis.jitter import PATIENCE_S
from visavis.receiver import AudioReceiver

TICKS = 960


def tone(blocks: int) -> Pcm:
    return np.rint(8_000 * np.sin(2 * np.pi * 300 * np.arange(blocks * BLOCK) / RATE)).astype(np.int16)


def packets(blocks: int) -> list[bytes]:
    encoder = OpusEncoder(RtcConfig())
    return [encoder.encode(block) for block in np.split(tone(blocks), blocks)]


def drain(receiver: AudioReceiver) -> list[Pcm]:
    blocks = []
    while (block := receiver.next_block()) is not None:
        assert len(block) == BLOCK
        blocks.append(block)
    return blocks


def test_every_packet_gives_its_block_at_once() -> None:
    receiver = AudioReceiver(decoder_for("opus"), RtcConfig())
    for n, payload in enumerate(packets(20)):
        receiver.receive_packet(7, 65_530 + n & 0xFFFF, n * TICKS, payload, n * 0.02)
        (block,) = drain(receiver)
        assert n < 2 or level_dbfs(block) > -20
    assert receiver.position == 20 * BLOCK


def test_a_lost_packet_is_concealed_and_not_left_out() -> None:
    receiver = AudioReceiver(decoder_for("opus"), RtcConfig())
    blocks: list[Pcm] = []
    for n, payload in enumerate(packets(20)):
        if n != 10:
            receiver.receive_packet(7, n, n * TICKS, payload, n * 0.02)
        blocks += drain(receiver)
    assert len(blocks) == 20
    assert receiver.counts.lost == 1
    assert level_dbfs(blocks[10]) > -20


def test_a_packet_that_cannot_be_decoded_is_concealed() -> None:
    receiver = AudioReceiver(decoder_for("opus"), RtcConfig())
    uneven = b"\xfb\x02\x01"  # two frames of equal length in one byte
    for n, payload in enumerate([*packets(10), uneven]):
        receiver.receive_packet(7, n, n * TICKS, payload, n * 0.02)
    assert [level_dbfs(block) > -30 for block in drain(receiver)[2:]] == [True] * 10


def test_packets_of_other_lengths_are_cut_into_blocks() -> None:
    receiver = AudioReceiver(decoder_for("PCMU"), RtcConfig())
    for n in range(8):
        receiver.receive_packet(7, n, n * 80, b"\xff" * 80, n * 0.01)
    assert len(drain(receiver)) == 4


def test_another_sender_is_followed_at_once() -> None:
    receiver = AudioReceiver(decoder_for("opus"), RtcConfig())
    sent = packets(20)
    for n in range(10):
        receiver.receive_packet(7, n, n * TICKS, sent[n], n * 0.02)
    receiver.receive_packet(8, 5, 123_456_789, sent[10], 0.2)
    assert len(drain(receiver)) == 11
    assert receiver.counts.restarts == 1


def test_silence_passes_when_nothing_comes() -> None:
    receiver = AudioReceiver(decoder_for("opus"), RtcConfig())
    receiver.start(0.0)
    due = receiver.next_timeout()
    assert due == PATIENCE_S
    for _ in range(10):
        receiver.handle_timeout(due)
        assert [int(block.any()) for block in drain(receiver)] == [0]
        due = receiver.next_timeout()
        assert due is not None


def test_who_was_silent_for_long_is_heard_again() -> None:
    """A sender may send nothing while there is nothing to hear, not even a sign of life."""
    receiver = AudioReceiver(decoder_for("opus"), RtcConfig())
    sent = packets(20)
    for number, packet in enumerate(sent[:10]):
        receiver.receive_packet(1, number, number * 960, packet, number * 0.02)
    now = 0.18
    while now < 60:
        due = receiver.next_timeout()
        assert due is not None
        now = due
        receiver.handle_timeout(now)
        drain(receiver)
    later = round(now / 0.02)
    for number, packet in enumerate(sent[10:], 10):
        receiver.receive_packet(1, number, (later + number) * 960, packet, now + (number - 9) * 0.02)
    assert receiver.counts.excess == 0
    assert max(np.abs(block).max() for block in drain(receiver)) > 1_000


def test_who_comes_muted_is_heard_from_the_first_word() -> None:
    """The audio clock runs from the start of the call, long before the first packet."""
    receiver = AudioReceiver(decoder_for("opus"), RtcConfig())
    receiver.start(0.0)
    now = 0.0
    while now < 60:
        due = receiver.next_timeout()
        assert due is not None
        now = due
        receiver.handle_timeout(now)
        drain(receiver)
    for number, packet in enumerate(packets(10)):
        receiver.receive_packet(1, number, number * TICKS, packet, now + number * 0.02)
    assert receiver.counts.excess == 0
    assert max(np.abs(block).max() for block in drain(receiver)) > 1_000


def test_a_sender_may_catch_up_but_not_run_ahead_of_time() -> None:
    receiver = AudioReceiver(decoder_for("opus"), RtcConfig())
    (payload,) = packets(1)
    heard = 0
    for n in range(400):  # the eight seconds that a stall has held back come at once
        receiver.receive_packet(7, n, n * TICKS, payload, 8.0)
        heard += len(drain(receiver))
    assert heard == 400
    for n in range(400, 10_400):  # a thousand a second
        receiver.receive_packet(7, n & 0xFFFF, n * TICKS, payload, 8.0 + n / 1_000)
        heard += len(drain(receiver))
    assert heard * 0.02 < 10.4 * 1.2 + 10
    assert receiver.counts.excess > 9_000
    for n in range(10_400, 10_500):  # and then goes on as one should
        receiver.receive_packet(7, n, n * TICKS, payload, 100 + n * 0.02)
        heard += len(drain(receiver))
    assert receiver.counts.lost == 0


def test_leaps_of_the_senders_clock_do_not_make_time_run_ahead() -> None:
    receiver = AudioReceiver(decoder_for("opus"), RtcConfig())
    (payload,) = packets(1)
    for n in range(500):
        receiver.receive_packet(7, n, n * 90_000, payload, n * 0.02)
        drain(receiver)
    assert receiver.position / RATE < 10 * 1.2 + 12


def test_a_sender_whose_clock_is_a_little_fast_loses_nothing() -> None:
    receiver = AudioReceiver(decoder_for("opus"), RtcConfig())
    (payload,) = packets(1)
    for n in range(25_000):
        receiver.receive_packet(7, n & 0xFFFF, n * TICKS, payload, n * 0.0195)
        drain(receiver)
    assert receiver.counts.excess == 0
