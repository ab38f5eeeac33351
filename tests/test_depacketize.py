import av
import pytest

from films import Codec, film
from visavis.rtc.lean.depacketize import READERS, original_of, read_h264, read_vp8


@pytest.mark.parametrize(("codec", "decoder"), [("VP8", "vp8"), ("H264", "h264")])
def test_the_pieces_of_a_picture_joined_are_what_a_decoder_takes(codec: Codec, decoder: str) -> None:
    packets = film(codec, 6, (0, 4))
    context = av.CodecContext.create(decoder, "r")
    for number in range(6):
        pieces = [READERS[codec](packet.payload) for packet in packets if packet.picture == number]
        assert pieces[0].begins
        assert pieces[0].key == (number in (0, 4))
        if codec == "VP8":
            assert not any(piece.begins for piece in pieces[1:])
        assert len(context.decode(av.Packet(b"".join(piece.data for piece in pieces)))) == 1


@pytest.mark.parametrize(
    ("descriptor", "layer", "base", "sync"),
    [
        ("10", 0, None, False),
        ("9000", 0, None, False),
        ("908005", 0, None, False),  # 7-bit picture id
        ("90808005", 0, None, False),  # 15-bit picture id
        ("90407f", 0, 127, False),
        ("902040", 1, None, False),
        ("9020a0", 2, None, True),
        ("901011", 0, None, False),  # key index alone: its T bits say nothing
        ("90f0ffff0360", 1, 3, True),
    ],
)
def test_vp8_descriptors_of_every_form_are_read(
    descriptor: str, layer: int, base: int | None, sync: bool
) -> None:
    piece = read_vp8(bytes.fromhex(descriptor) + b"\x10key")
    assert piece == (b"\x10key", True, True, layer, base, sync)
    assert not read_vp8(bytes.fromhex(descriptor) + b"\x11delta").key


@pytest.mark.parametrize("first", ["00", "11", "02"])
def test_a_vp8_picture_begins_with_the_first_partition_alone(first: str) -> None:
    piece = read_vp8(bytes.fromhex(first) + b"\x10")
    assert not piece.begins
    assert not piece.key


@pytest.mark.parametrize("payload", ["", "90", "9080", "908080", "90f0ffff", "90f0ffff03", "10", "9020a0"])
def test_a_vp8_payload_that_is_cut_off_is_refused(payload: str) -> None:
    with pytest.raises(ValueError, match="cut off"):
        read_vp8(bytes.fromhex(payload))


@pytest.mark.parametrize(
    ("payload", "data", "begins", "key"),
    [
        ("6742", "000000016742", True, True),  # SPS
        ("68ce", "0000000168ce", False, False),  # PPS
        ("6588", "000000016588", True, True),  # IDR, first slice
        ("6548", "000000016548", False, False),  # IDR, another slice
        ("4188", "000000014188", True, False),
        ("0930", "000000010930", False, False),  # access unit delimiter
        ("7c8588aa", "000000016588aa", True, True),
        ("7c8548aa", "000000016548aa", False, False),
        ("7c0588aa", "88aa", False, False),  # a fragment from the middle
        ("5c8188", "000000014188", True, False),
        ("78000267420002 68ce", "00000001674200000001 68ce", True, True),
        ("780002093000024188", "00000001093000000001 4188", True, False),
        ("58000268ce", "0000000168ce", False, False),
    ],
)
def test_h264_units_are_told_apart(payload: str, data: str, begins: bool, key: bool) -> None:
    piece = read_h264(bytes.fromhex(payload))
    assert (piece.data.hex(), piece.begins, piece.key) == (data.replace(" ", ""), begins, key)


@pytest.mark.parametrize(
    ("payload", "fault"),
    [
        ("", "cut off"),
        ("67", "cut off"),
        ("7800056742", "cut off"),
        ("780000", "cut off"),
        ("7800", "cut off"),
        ("7967", "type 25"),
        ("6067", "type 0"),
    ],
)
def test_an_h264_payload_that_makes_no_sense_is_refused(payload: str, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        read_h264(bytes.fromhex(payload))


def test_a_retransmission_names_the_original() -> None:
    assert original_of(b"\x01\x02payload") == (258, b"payload")
    with pytest.raises(ValueError, match="cut off"):
        original_of(b"\x01")
