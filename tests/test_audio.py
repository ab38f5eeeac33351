import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from visavis.audio import (
    EMPTY,
    SILENCE_DBFS,
    Pcm,
    Resampler,
    decode_wav,
    encode_wav,
    from_float,
    level_dbfs,
    resample,
    to_float,
)

RATES = (8_000, 16_000, 22_050, 24_000, 44_100, 48_000)
pcm_of = arrays(np.int16, st.integers(0, 700))


def tone(hertz: float, rate: int, seconds: float, amplitude: float = 12_000) -> Pcm:
    return np.rint(amplitude * np.sin(2 * np.pi * hertz * np.arange(int(rate * seconds)) / rate)).astype(
        np.int16
    )


def noise(samples: int, seed: int = 1) -> Pcm:
    return np.random.default_rng(seed).integers(-32_768, 32_767, samples, np.int16)


@pytest.mark.parametrize("to_rate", RATES)
@pytest.mark.parametrize("from_rate", RATES)
def test_a_tone_keeps_its_shape_and_its_place_in_time(from_rate: int, to_rate: int) -> None:
    got = resample(tone(1_000, from_rate, 0.2), from_rate, to_rate)
    assert len(got) == -(-len(tone(1_000, from_rate, 0.2)) * to_rate // from_rate)
    middle = slice(to_rate // 50, -to_rate // 50)
    assert np.abs(got.astype(int) - tone(1_000, to_rate, 0.2)[: len(got)])[middle].max() <= 30


@pytest.mark.parametrize(
    ("from_rate", "to_rate", "hertz"), [(48_000, 24_000, 13_500), (24_000, 16_000, 9_000)]
)
def test_what_the_lower_rate_cannot_carry_is_removed_and_not_folded_back(
    from_rate: int, to_rate: int, hertz: int
) -> None:
    got = resample(tone(hertz, from_rate, 0.3), from_rate, to_rate)[1_000:-1_000]
    assert level_dbfs(got) < level_dbfs(tone(hertz, from_rate, 0.3)) - 60


@pytest.mark.parametrize(
    ("from_rate", "to_rate", "hertz"), [(48_000, 24_000, 9_500), (24_000, 16_000, 6_400)]
)
def test_what_the_lower_rate_can_carry_stays(from_rate: int, to_rate: int, hertz: int) -> None:
    got = resample(tone(hertz, from_rate, 0.3), from_rate, to_rate)[1_000:-1_000]
    assert level_dbfs(got) == pytest.approx(level_dbfs(tone(hertz, from_rate, 0.3)), abs=0.5)


@given(
    pcm=pcm_of,
    cuts=st.lists(st.integers(0, 700), max_size=12),
    from_rate=st.sampled_from(RATES),
    to_rate=st.sampled_from(RATES),
)
def test_a_stream_gives_the_same_samples_however_it_is_cut(
    pcm: Pcm, cuts: list[int], from_rate: int, to_rate: int
) -> None:
    whole = Resampler(from_rate, to_rate).process(pcm)
    stream = Resampler(from_rate, to_rate)
    pieces = [stream.process(piece) for piece in np.split(pcm, sorted(min(cut, len(pcm)) for cut in cuts))]
    assert np.array_equal(np.concatenate(pieces), whole)
    assert len(whole) == -(-len(pcm) * to_rate // from_rate)


@pytest.mark.parametrize(("from_rate", "to_rate"), [(48_000, 24_000), (24_000, 16_000), (24_000, 48_000)])
def test_a_stream_is_the_whole_signal_delayed(from_rate: int, to_rate: int) -> None:
    stream = Resampler(from_rate, to_rate)
    delay = round(stream.delay_s * to_rate)
    assert delay == stream.delay_s * to_rate
    pcm = noise(4_800)
    got = np.concatenate([stream.process(block) for block in np.split(pcm, 10)])
    assert np.array_equal(got[delay:], resample(pcm, from_rate, to_rate)[: len(got) - delay])


def test_twenty_milliseconds_in_are_twenty_milliseconds_out() -> None:
    down, up = Resampler(24_000, 16_000), Resampler(24_000, 48_000)
    for _ in range(5):
        assert (len(down.process(noise(480))), len(up.process(noise(480)))) == (320, 960)


def test_full_scale_is_clipped_rather_than_wrapped() -> None:
    square = np.where(np.arange(4_800) // 12 % 2, 32_767, -32_768).astype(np.int16)
    got = resample(square, 24_000, 48_000)
    assert np.array_equal(np.sign(got[6 + 24 : -48 : 24]), np.sign(square[3 + 12 : -24 : 12]))


@pytest.mark.parametrize("rates", [(0, 24_000), (24_000, -1), (24_001, 48_000)])
def test_rates_that_cannot_be_resampled_are_refused(rates: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match=r"rate|ratio"):
        resample(noise(10), *rates)


def test_nothing_in_is_nothing_out() -> None:
    assert len(resample(EMPTY, 48_000, 24_000)) == 0
    assert len(Resampler(48_000, 24_000).process(EMPTY)) == 0


def test_a_block_too_short_for_an_output_gives_none_yet() -> None:
    stream = Resampler(48_000, 8_000)
    assert [len(stream.process(noise(1))) for _ in range(7)] == [1, 0, 0, 0, 0, 0, 1]


@given(pcm_of)
def test_float_and_back_changes_nothing(pcm: Pcm) -> None:
    assert np.array_equal(from_float(to_float(pcm)), pcm)


def test_floats_beyond_full_scale_are_clipped_and_nan_is_silent() -> None:
    assert from_float(np.array([2.0, -2.0, np.nan, np.inf])).tolist() == [32_767, -32_768, 0, 32_767]


def test_levels() -> None:
    assert level_dbfs(np.full(480, -32_768, np.int16)) == 0
    assert level_dbfs(tone(1_000, 24_000, 0.1, 32_767)) == pytest.approx(-3.01, abs=0.01)
    assert level_dbfs(np.zeros(480, np.int16)) == level_dbfs(EMPTY) == SILENCE_DBFS
    assert level_dbfs(np.array([1] + [0] * 99_999, np.int16)) == SILENCE_DBFS


@given(pcm=pcm_of, rate=st.sampled_from(RATES))
def test_a_wav_file_holds_what_was_written(pcm: Pcm, rate: int) -> None:
    got, got_rate = decode_wav(encode_wav(pcm, rate))
    assert np.array_equal(got, pcm)
    assert got_rate == rate


def wav(*chunks: tuple[bytes, bytes]) -> bytes:
    body = b"".join(
        name + struct.pack("<I", len(data)) + data + b"\0" * (len(data) % 2) for name, data in chunks
    )
    return b"RIFF" + struct.pack("<I", 4 + len(body)) + b"WAVE" + body


def fmt(tag: int = 1, channels: int = 1, rate: int = 16_000, bits: int = 16, extra: bytes = b"") -> bytes:
    width = channels * bits // 8
    return struct.pack("<HHIIHH", tag, channels, rate, rate * width, width, bits) + extra


def test_channels_are_mixed_down() -> None:
    samples = np.array([[100, 300], [-32_768, -32_768], [32_767, 32_767]], "<i2").tobytes()
    assert decode_wav(wav((b"fmt ", fmt(channels=2)), (b"data", samples)))[0].tolist() == [
        200,
        -32_768,
        32_767,
    ]


def test_float_files_are_read() -> None:
    samples = np.array([0.5, -1.0], "<f4").tobytes()
    assert decode_wav(wav((b"fmt ", fmt(3, bits=32)), (b"data", samples)))[0].tolist() == [16_384, -32_768]


def test_extensible_files_and_unknown_chunks_are_read() -> None:
    extra = struct.pack("<HHIH", 22, 16, 4, 1) + b"\0" * 14
    data = wav((b"LIST", b"odd"), (b"fmt ", fmt(0xFFFE, extra=extra)), (b"data", b"\1\0"))
    assert decode_wav(data)[0].tolist() == [1]


def test_samples_written_to_a_pipe_reach_to_the_end() -> None:
    data = bytearray(encode_wav(np.array([1, 2, 3], np.int16), 8_000))
    data[40:44] = b"\xff" * 4
    assert decode_wav(bytes(data))[0].tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "no RIFF"),
        (b"RIFF1234AVI " + b"\0" * 40, "no RIFF"),
        (wav((b"data", b"\0\0")), "before their format"),
        (wav((b"fmt ", b"\1\0")), "cut short"),
        (wav((b"fmt ", fmt())), "no samples"),
        (wav((b"fmt ", fmt(bits=8)), (b"data", b"")), "8 bits"),
        (wav((b"fmt ", fmt(0xFFFE)), (b"data", b"")), "format 65534"),
        (wav((b"fmt ", fmt(channels=0)), (b"data", b"")), "no channels"),
        (wav((b"fmt ", fmt(rate=0)), (b"data", b"")), "0 Hz"),
        (wav((b"fmt ", fmt()), (b"data", b"\0" * 9))[:-4], "9 bytes of samples promised, 6 there"),
        (wav((b"fmt ", fmt(3, bits=32)), (b"data", np.array([np.nan], "<f4").tobytes())), "not a number"),
    ],
)
def test_a_bad_file_is_refused_by_naming_the_problem(data: bytes, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        decode_wav(data)


@given(st.binary(max_size=120).map(lambda junk: b"RIFF\0\0\0\0WAVE" + junk))
def test_junk_is_refused_and_nothing_worse(data: bytes) -> None:
    try:
        pcm, rate = decode_wav(data)
    except ValueError:
        return
    assert pcm.dtype == np.int16
    assert rate > 0
