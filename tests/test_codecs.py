import ctypes
from collections.abc import Iterator

import av
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from visavis import codecs
from visavis.audio import BLOCK, RATE, Pcm, level_dbfs, resample
from visavis.codecs import (
    AvOpusDecoder,
    Decoder,
    G711Decoder,
    OpusDecoder,
    OpusEncoder,
    decoder_for,
    libopus,
    opus_duration,
)
from visavis.config import RtcConfig


def speech(blocks: int) -> Pcm:
    t = np.arange(blocks * BLOCK) / RATE
    swell = 0.6 + 0.4 * np.sin(2 * np.pi * 4 * t)
    return np.rint(sum(4_000 / k * swell * np.sin(2 * np.pi * 160 * k * t) for k in range(1, 12))).astype(
        np.int16
    )


def packets(pcm: Pcm) -> list[bytes]:
    encoder = OpusEncoder(RtcConfig())
    return [encoder.encode(block) for block in np.split(pcm, len(pcm) // BLOCK)]


def packets_that_repeat(pcm: Pcm) -> list[bytes]:
    """As a browser sends: each packet also holds a copy of the one before."""
    encoder = av.CodecContext.create("libopus", "w")
    assert isinstance(encoder, av.AudioCodecContext)
    encoder.sample_rate, encoder.layout, encoder.format, encoder.bit_rate = RATE, "mono", "s16", 32_000
    encoder.options = {"application": "voip", "fec": "1", "packet_loss": "20"}
    frame = av.AudioFrame.from_ndarray(pcm.reshape(1, -1), format="s16", layout="mono")
    frame.sample_rate = RATE
    blocks = av.AudioResampler(format="s16", layout="mono", rate=RATE, frame_size=BLOCK).resample(frame)
    return [bytes(packet) for block in blocks for packet in encoder.encode(block)]


def likeness(got: Pcm, wanted: Pcm) -> float:
    """Best correlation within 20 ms of delay: 1 is the same wave."""
    got, wanted = got.astype(float), wanted[: len(got) - BLOCK].astype(float)
    alike = np.correlate(got, wanted, "valid")
    power = np.convolve(got**2, np.ones(len(wanted)), "valid")
    return float((alike / np.sqrt(power * np.sum(wanted**2))).max())


@pytest.mark.parametrize("make", [OpusDecoder, AvOpusDecoder])
def test_speech_survives_opus(make: type[OpusDecoder] | type[AvOpusDecoder]) -> None:
    pcm = speech(40)
    decoder = make()
    pieces = [decoder.decode(packet) for packet in packets(pcm)]
    assert [len(piece) for piece in pieces] == [BLOCK] * 40
    assert likeness(np.concatenate(pieces), pcm) > 0.95


def test_the_packet_after_a_loss_mends_it_better_than_a_guess() -> None:
    sent = packets_that_repeat(speech(40))

    def error(following: bytes | None) -> float:
        whole, lossy = OpusDecoder(), OpusDecoder()
        wanted = [whole.decode(packet) for packet in sent[:31]][30]
        for packet in sent[:30]:
            lossy.decode(packet)
        return level_dbfs((lossy.conceal(BLOCK, following) - wanted).astype(np.int16))

    assert error(sent[31]) < error(None) - 3


@pytest.mark.parametrize("samples", [0, 1, 60, 479, 480, 1_440, 2_880, 5_000])
@pytest.mark.parametrize("decoder", [OpusDecoder(), AvOpusDecoder(), G711Decoder("pcmu")])
def test_concealment_makes_exactly_what_is_missing(decoder: Decoder, samples: int) -> None:
    assert len(decoder.conceal(samples, None)) == samples
    assert len(decoder.conceal(samples, packets(speech(1))[0])) == samples


def test_concealment_with_a_malformed_packet_is_silence() -> None:
    assert not OpusDecoder().conceal(BLOCK, b"\xff").any()


@pytest.mark.parametrize("decoder", [OpusDecoder(), AvOpusDecoder()])
def test_a_malformed_opus_packet_is_refused_and_the_next_one_decoded(decoder: Decoder) -> None:
    with pytest.raises(ValueError, match="malformed Opus packet of 2 bytes"):
        decoder.decode(b"\xff\xff")
    assert len(decoder.decode(packets(speech(1))[0])) == BLOCK


@pytest.mark.parametrize(
    ("payload", "ticks"),
    [
        (b"", 0),
        (bytes([0 << 3]), 480),
        (bytes([3 << 3]), 2_880),
        (bytes([13 << 3]), 960),
        (bytes([16 << 3]), 120),
        (bytes([31 << 3]), 960),
        (bytes([31 << 3 | 1]), 1_920),
        (bytes([31 << 3 | 2]), 1_920),
        (bytes([31 << 3 | 3]), 0),
        (bytes([31 << 3 | 3, 6]), 5_760),
        (bytes([31 << 3 | 3, 7]), 0),
    ],
)
def test_the_length_of_an_opus_packet_is_read_from_its_header(payload: bytes, ticks: int) -> None:
    assert opus_duration(payload) == ticks


@given(st.binary(max_size=60))
def test_a_packet_is_as_long_as_its_header_says_or_refused(payload: bytes) -> None:
    decoder = OpusDecoder()
    try:
        pcm = decoder.decode(payload) if payload else np.zeros(0, np.int16)
    except ValueError:
        return
    assert len(pcm) * 2 == decoder.duration(payload)


@pytest.mark.parametrize(("law", "name"), [("pcmu", "pcm_mulaw"), ("pcma", "pcm_alaw")])
def test_g711_is_decoded_as_ffmpeg_does(law: str, name: str) -> None:
    codec = av.CodecContext.create(name, "r")
    assert isinstance(codec, av.AudioCodecContext)
    codec.sample_rate, codec.layout = 8_000, "mono"
    (frame,) = codec.decode(av.Packet(bytes(range(256))))
    wanted = frame.to_ndarray()[0]
    assert np.array_equal(codecs._ulaw_table() if law == "pcmu" else codecs._alaw_table(), wanted)


def test_g711_comes_out_at_our_rate() -> None:
    decoder = decoder_for("PCMU")
    tone = resample(speech(20), RATE, 8_000)
    table = codecs._ulaw_table().astype(int)
    payload = bytes(int(np.abs(table - sample).argmin()) for sample in tone)
    pcm = np.concatenate([decoder.decode(payload[at : at + 160]) for at in range(0, len(payload), 160)])
    assert decoder.duration(payload) == len(payload) == len(pcm) / 3
    assert likeness(pcm, speech(20)) > 0.95


def test_an_unknown_codec_is_refused() -> None:
    with pytest.raises(ValueError, match="G722"):
        decoder_for("G722")


def test_a_block_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match="480 samples, not 479"):
        OpusEncoder(RtcConfig()).encode(np.zeros(479, np.int16))


@pytest.fixture
def no_libopus(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def refuse(name: str) -> None:
        raise OSError(f"{name}: cannot be loaded")

    monkeypatch.setattr(ctypes, "PyDLL", refuse)
    monkeypatch.setattr(ctypes.util, "find_library", lambda name: None)
    libopus.cache_clear()
    yield
    libopus.cache_clear()


@pytest.mark.usefixtures("no_libopus")
def test_without_libopus_pyav_decodes() -> None:
    assert libopus() is None
    assert isinstance(decoder_for("opus"), AvOpusDecoder)
    with pytest.raises(RuntimeError, match="libopus"):
        OpusEncoder(RtcConfig())


def test_with_libopus_it_decodes() -> None:
    assert isinstance(decoder_for("opus"), OpusDecoder)
