"""A caller's voice over a network that loses packets: understood nearly as well as over one that does not."""

import ctypes
import os
import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from dictation import SENTENCES, errors, once, words

import speech
from visavis.audio import RATE, Pcm, decode_wav, resample
from visavis.codecs import OpusDecoder, libopus
from visavis.config import RtcConfig
from visavis.jitter import DTX_BYTES, PACKET_S
from visavis.receiver import AudioReceiver

pytestmark = pytest.mark.models

Hear = Callable[[Pcm], str]
Packet = tuple[int, bytes]
"When it is sent, in blocks of 20 ms, and what is in it."

VOICES = ("hibari", "american")
LOSS = 0.05
BURST = 3
ALLOWED = 0.02
"So many more of the words may be wrong than without loss."
DRAWS = int(os.environ.get("VISAVIS_LOSS_DRAWS", "1"))
"How often each kind of loss is drawn; the more, the closer to what it does on average."

OPUS_RATE = 48_000
OPUS_BLOCK = 960
VOIP = 2048
LIBWEBRTC = {
    4002: 32_000,  # bits per second, for mono
    4010: 9,  # complexity, on a desktop
    4012: 1,  # in-band error correction and
    4016: 1,  # nothing sent in silence, as our answer asks for
    4014: round(100 * LOSS),  # the percentage of loss that our receiver reports tell
}


def packets_of(pcm: Pcm) -> list[Packet]:
    """Encode speech at 24 kHz as libwebrtc does once it knows of the loss."""
    library, error = libopus(), ctypes.c_int()
    assert library is not None
    state = library.opus_encoder_create(OPUS_RATE, 1, VOIP, ctypes.byref(error))
    assert not error.value
    for setting, value in LIBWEBRTC.items():
        assert library.opus_encoder_ctl(state, setting, ctypes.c_int32(value)) == 0
    out, packets, is_silent = ctypes.create_string_buffer(1_276), [], False
    sound = resample(pcm, RATE, OPUS_RATE)
    sound = np.concatenate([sound, np.zeros(-len(sound) % OPUS_BLOCK, np.int16)])
    for at, block in enumerate(sound.reshape(-1, OPUS_BLOCK)):
        size = library.opus_encode(state, block.tobytes(), OPUS_BLOCK, out, len(out))
        assert size > 0
        was_silent, is_silent = is_silent, size <= DTX_BYTES
        if not (was_silent and is_silent):  # the first tells that silence begins
            packets.append((at, ctypes.string_at(out, size)))
    library.opus_encoder_destroy(state)
    return packets


def single_losses(packets: int, dice: random.Random) -> list[bool]:
    return [dice.random() < LOSS for _ in range(packets)]


def burst_losses(packets: int, dice: random.Random) -> list[bool]:
    begins = 1 / (1 + BURST * (1 - LOSS) / LOSS)
    lost: list[bool] = []
    while len(lost) < packets:
        lost += [True] * BURST if dice.random() < begins else [False]
    return lost[:packets]


LOSSES = {"single": single_losses, "burst": burst_losses}


def received(packets: list[Packet], lost: list[bool]) -> Pcm:
    """Give what the conversation hears of packets that come 20 ms apart, 24 kHz."""
    receiver = AudioReceiver(OpusDecoder(), RtcConfig())
    receiver.start(0.0)
    blocks: list[Pcm] = []

    def pass_time(until: float) -> None:
        while (due := receiver.next_timeout()) is not None and due <= until:
            receiver.handle_timeout(due)
            drain()

    def drain() -> None:
        while (block := receiver.next_block()) is not None:
            blocks.append(block)

    for sequence, ((at, payload), is_lost) in enumerate(zip(packets, lost, strict=True)):
        if not is_lost:
            pass_time(at * PACKET_S)
            receiver.receive_packet(1, sequence, at * OPUS_BLOCK, payload, at * PACKET_S)
            drain()
    pass_time((packets[-1][0] + 10) * PACKET_S)
    return np.concatenate(blocks)


def spoken(recordings: dict[Path, str]) -> Iterator[tuple[str, Pcm]]:
    """Give what is said and how it sounds, 24 kHz."""
    for voice in VOICES:
        for sentence in SENTENCES:
            yield sentence, speech.speak(sentence, voice)
    for path, said in recordings.items():
        pcm, rate = decode_wav(path.read_bytes())
        yield said, resample(pcm, rate, RATE)


def test_speech_is_understood_over_a_network_that_loses_packets(
    hear: Hear, recordings: dict[Path, str]
) -> None:
    """Of eight draws, 560 words each: single losses cost 0.0 points (-0.4 to 0.4), bursts 1.3 (0.2 to 2.7).

    With the holes closed up instead of filled it is 2.3 and 3.9 in the first draw.
    """
    for voice in VOICES:
        if (reason := speech.lacks(voice)) is not None:
            pytest.skip(reason)
    wrong: Counter[str] = Counter()
    total = 0
    for number, (text, pcm) in enumerate(spoken(recordings)):
        said, packets = words(text), packets_of(pcm)
        total += len(said)
        wrong["no"] += errors(said, once(words(hear(received(packets, [False] * len(packets))))))
        for draw in range(DRAWS):
            for kind, losses in LOSSES.items():
                lost = losses(len(packets), random.Random(f"{kind} {number} {draw}"))
                wrong[kind] += errors(said, once(words(hear(received(packets, lost)))))
    assert wrong["no"] < 0.06 * total, "the recogniser is no judge"
    for kind in LOSSES:
        more = wrong[kind] / DRAWS - wrong["no"]
        assert more <= ALLOWED * total, f"{kind} losses: {wrong} of {total} words in {DRAWS} draws"
