"""Sound within Realtime events: PCM and G.711, in pieces of any size, both ways."""

import base64

import numpy as np
import pytest

from visavis.audio import RATE, Pcm, resample
from visavis.codecs import encode_g711, g711_table
from visavis.config import SoundFormat
from visavis.errors import ClientEventError
from visavis.protocol import realtime_sound
from visavis.protocol.realtime_sound import SoundReader, SoundWriter

SPEECHLIKE: Pcm = (9_000 * np.sin(np.arange(RATE) * 2 * np.pi * 440 / RATE)).astype(np.int16)
FORMATS: list[SoundFormat] = ["audio/pcm", "audio/pcmu", "audio/pcma"]


def base64_of(data: bytes) -> str:
    return base64.b64encode(data).decode()


def written(kind: SoundFormat, size: int) -> bytes:
    writer = SoundWriter(kind)
    pieces = [writer.write(SPEECHLIKE[at : at + size]) for at in range(0, RATE, size)]
    return b"".join(base64.b64decode(piece) for piece in [*pieces, writer.finish()])


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("size", [480, 777, RATE])
def test_what_is_written_is_read(kind: SoundFormat, size: int):
    data = written(kind, size)
    reader = SoundReader()
    pieces = [reader.read(base64_of(data[at : at + 333]), "audio", kind) for at in range(0, len(data), 333)]
    heard = np.concatenate(pieces)
    lag = round(2 * 24 * RATE / 8_000) if kind != "audio/pcm" else 0  # the filters' own, there and back
    both = min(len(heard) - lag, RATE - lag)
    apart = heard[lag : lag + both].astype(float) - SPEECHLIKE[:both]
    assert len(heard) >= RATE - lag
    assert np.sqrt(np.mean(np.square(apart[1_000:-1_000]))) < (1 if kind == "audio/pcm" else 300)


@pytest.mark.parametrize("law", ["pcmu", "pcma"])
def test_every_byte_of_g711_comes_back(law: str):
    table = g711_table(law)
    assert np.array_equal(table[np.frombuffer(encode_g711(table, law), np.uint8)], table)


@pytest.mark.parametrize("law", ["pcmu", "pcma"])
def test_g711_is_the_nearest_there_is(law: str):
    samples = np.arange(-32_768, 32_768, 7).astype(np.int16)
    table = g711_table(law).astype(int)
    coded = table[np.frombuffer(encode_g711(samples, law), np.uint8)]
    nearest = np.abs(table[None, :] - samples.astype(int)[:, None]).min(axis=1)
    assert np.array_equal(np.abs(coded - samples), nearest)


def test_a_telephone_hears_at_its_own_rate():
    assert len(written("audio/pcmu", 480)) == pytest.approx(8_000, abs=30)
    assert len(resample(SPEECHLIKE, RATE, 8_000)) == 8_000


def test_half_a_sample_waits_for_its_other_half():
    reader = SoundReader()
    assert not len(reader.read(base64_of(b"\x01"), "audio", "audio/pcm"))
    assert reader.read(base64_of(b"\x02\x03"), "audio", "audio/pcm").tolist() == [0x0201]
    reader.clear()
    assert reader.read(base64_of(b"\x05\x06"), "audio", "audio/pcm").tolist() == [0x0605]


def test_another_format_begins_anew():
    reader = SoundReader()
    reader.read(base64_of(b"\x01"), "audio", "audio/pcm")
    assert len(reader.read(base64_of(b"\xff" * 80), "audio", "audio/pcmu")) == 240
    assert reader.read(base64_of(b"\x05\x06"), "audio", "audio/pcm").tolist() == [0x0605]


@pytest.mark.parametrize("wrong", [7, None, "no base64!", "AAA"])
def test_what_is_no_sound_is_refused(wrong: object):
    with pytest.raises(ClientEventError) as refused:
        SoundReader().read(wrong, "audio", "audio/pcm")
    assert refused.value.param == "audio"


def test_more_than_anybody_says_at_once_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(realtime_sound, "MAX_SECONDS", 1)
    with pytest.raises(ClientEventError):
        SoundReader().read(base64_of(bytes(2 * RATE + 2)), "audio", "audio/pcm")


@pytest.mark.parametrize("kind", FORMATS)
def test_the_bound_of_a_message_is_in_seconds_of_its_format(kind: SoundFormat, monkeypatch):
    monkeypatch.setattr(realtime_sound, "MAX_SECONDS", 2)
    bytes_per_s = 2 * RATE if kind == "audio/pcm" else 8_000
    assert len(SoundReader().read(base64_of(bytes(2 * bytes_per_s)), "audio", kind)) == 2 * RATE
    with pytest.raises(ClientEventError, match="at most 2 s"):
        SoundReader().read(base64_of(bytes(2 * bytes_per_s + 1)), "audio", kind)


def test_seconds_of_g711_at_once_are_as_in_pieces():
    data = encode_g711(np.tile(SPEECHLIKE, 3), "pcmu")
    pieces = SoundReader()
    apart = [
        pieces.read(base64_of(data[at : at + 160]), "a", "audio/pcmu") for at in range(0, len(data), 160)
    ]
    whole = SoundReader().read(base64_of(data), "a", "audio/pcmu")
    assert np.array_equal(whole, np.concatenate(apart))
