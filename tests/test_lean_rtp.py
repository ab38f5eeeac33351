import pytest
from aiortc.rtp import HeaderExtensionsMap, RtpPacket
from hypothesis import given
from hypothesis import strategies as st

from visavis.rtc.lean.rtp import HEADER, is_srtp, payload_of, peek_ssrc


@given(
    payload=st.binary(max_size=40),
    sources=st.lists(st.integers(0, 2**32 - 1), max_size=15),
    padding=st.integers(0, 255),
    extension=st.binary(max_size=20) | st.none(),
    ssrc=st.integers(0, 2**32 - 1),
    sequence=st.integers(0, 65_535),
)
def test_what_another_library_packs_is_read(
    payload: bytes, sources: list[int], padding: int, extension: bytes | None, ssrc: int, sequence: int
) -> None:
    packet = RtpPacket(payload_type=111, marker=1, sequence_number=sequence, timestamp=77)
    packet.ssrc, packet.csrc, packet.payload, packet.padding_size = ssrc, sources, payload, padding
    data = packet.serialize(HeaderExtensionsMap())
    if extension is not None:  # of any kind, known or not
        words = extension + bytes(-len(extension) % 4)
        head, rest = data[: 12 + 4 * len(sources)], data[12 + 4 * len(sources) :]
        header = (0x1234).to_bytes(2, "big") + (len(words) // 4).to_bytes(2, "big")
        data = bytes([head[0] | 0x10]) + head[1:] + header + words + rest
    assert is_srtp(data)
    assert peek_ssrc(data) == ssrc
    assert HEADER.unpack_from(data)[1:] == (0x80 | 111, sequence, 77, ssrc)
    assert payload_of(data) == payload


@given(st.binary(min_size=12, max_size=60))
def test_any_bytes_give_a_payload_or_none(data: bytes) -> None:
    packet = bytes([data[0] & 0x3F | 0x80]) + data[1:]
    payload = payload_of(packet)
    assert payload is None or packet.find(payload) >= 0


@pytest.mark.parametrize(
    ("flags", "rest"),
    [
        (0x8F, b""),  # fifteen sources, none there
        (0x90, b""),  # an extension, none there
        (0x90, b"\0\0\xff\xff"),  # one that is longer than the packet
        (0xA0, b"abc\0"),  # padding of no bytes
        (0xA0, b"abc\xff"),  # of more than there are
    ],
)
def test_a_malformed_packet_has_no_payload(flags: int, rest: bytes) -> None:
    assert payload_of(bytes([flags]) + bytes(11) + rest) is None


@pytest.mark.parametrize(
    "datagram",
    [
        b"",
        b"\x80",
        bytes([128, 111]) + bytes(9),  # short
        bytes([128, 200]) + bytes(20),  # RTCP
        bytes([22]) + bytes(20),  # DTLS
        bytes([0, 1]) + bytes(20),  # STUN
        bytes([192, 111]) + bytes(20),
    ],
)
def test_other_datagrams_are_no_media(datagram: bytes) -> None:
    assert not is_srtp(datagram)
