import random
from collections.abc import Iterable, Sequence
from itertools import pairwise

import av
import pytest

from films import TICKS, Codec, Packet, film, layered
from visavis.jitter import signed
from visavis.rtc.lean.assemble import (
    GIVE_UP_S,
    MAX_LOST,
    MAX_PACKETS,
    MAX_WAITING,
    NACK_INTERVAL_S,
    REORDER_S,
    Assembler,
    Picture,
)
from visavis.rtc.lean.depacketize import READERS

PACKET_S = 0.001


class Receiver:
    """Feeds an assembler at a packet a millisecond and keeps what comes out."""

    def __init__(self, codec: Codec = "VP8") -> None:
        self.assembler = Assembler()
        self.now = 100.0
        self.asked: list[int] = []
        self.pictures: list[Picture] = []
        self._read = READERS[codec]
        self._skipped: int | None = None

    @property
    def numbers(self) -> list[int]:
        """Which pictures of the film came out."""
        return [signed(picture.timestamp, 32) // TICKS + 3 for picture in self.pictures]

    def feed(self, packets: Iterable[Packet]) -> None:
        for packet in packets:
            self.now += PACKET_S
            due = self.assembler.next_timeout()
            if due is not None and due <= self.now:
                self.assembler.handle_timeout(self.now)
            piece = self._read(packet.payload) if packet.payload else None
            if packet.timestamp == self._skipped or (
                piece is not None and piece.begins and not self.assembler.needs(piece)
            ):
                self._skipped, piece = packet.timestamp, None
            self.assembler.receive(packet.sequence, packet.timestamp, packet.marker, piece, self.now)
            self.drain()

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.assembler.handle_timeout(self.now)
        self.drain()

    def drain(self) -> None:
        while (picture := self.assembler.next_picture()) is not None:
            self.pictures.append(picture)
        self.asked += self.assembler.lost_packets(self.now)


def without(packets: Sequence[Packet], *lost: tuple[int, int]) -> list[Packet]:
    """Take out packets, named by picture and place in it (negative: from its end)."""
    kept = list(packets)
    for number, place in lost:
        kept.remove([packet for packet in packets if packet.picture == number][place])
    return kept


def decodes(pictures: Sequence[Picture], codec: Codec) -> bool:
    context = av.CodecContext.create({"VP8": "vp8", "H264": "h264"}[codec], "r")
    return all(len(context.decode(av.Packet(picture.data))) == 1 for picture in pictures)


@pytest.mark.parametrize("codec", ["VP8", "H264"])
def test_pictures_come_whole_in_order_and_with_their_last_packet(codec: Codec) -> None:
    receiver, packets = Receiver(codec), film(codec, 12, (0, 6))
    for at, packet in enumerate(packets):
        receiver.feed([packet])
        ends = at + 1
        assert len(receiver.pictures) == sum(packet.marker for packet in packets[:ends])
    assert receiver.numbers == list(range(12))
    assert [picture.key for picture in receiver.pictures] == [number in (0, 6) for number in range(12)]
    assert decodes(receiver.pictures, codec)
    assert receiver.asked == []
    assert receiver.assembler.next_timeout() is None


@pytest.mark.parametrize("codec", ["VP8", "H264"])
@pytest.mark.parametrize("seed", range(4))
def test_packets_that_overtake_each_other_are_put_in_order(codec: Codec, seed: int) -> None:
    receiver, packets = Receiver(codec), list(film(codec, 12, (0, 6)))
    rng = random.Random(seed)
    for at in range(len(packets) - 2):
        if rng.random() < 0.3:
            packets[at], packets[at + 1] = packets[at + 1], packets[at]
    receiver.feed(packets)
    assert receiver.numbers == list(range(12))
    assert decodes(receiver.pictures, codec)
    assert receiver.asked == []


def test_repeated_packets_change_nothing() -> None:
    receiver = Receiver()
    receiver.feed(packet for packet in film("VP8") for _ in range(2))
    receiver.feed(film("VP8")[:3])
    assert receiver.numbers == list(range(12))


def test_a_missing_packet_is_asked_for_and_what_came_meanwhile_follows_it() -> None:
    receiver, packets = Receiver(), film("VP8", 30)
    (lost,) = set(packets) - set(without(packets, (1, 0)))
    receiver.feed(without(packets, (1, 0)))
    assert receiver.numbers == [0]
    assert receiver.asked == [lost.sequence]
    receiver.wait(NACK_INTERVAL_S)
    assert receiver.asked == [lost.sequence] * 2
    receiver.feed([lost])
    assert receiver.numbers == list(range(30))


def test_a_picture_that_cannot_come_any_more_is_given_up_with_those_that_depend_on_it() -> None:
    receiver, packets = Receiver(), film("VP8", 12, (0, 6))
    receiver.feed(packet for packet in without(packets, (2, 0)) if packet.picture < 6)
    assert receiver.numbers == [0, 1]
    assert not receiver.assembler.needs_key_frame
    receiver.wait(GIVE_UP_S)
    assert receiver.assembler.needs_key_frame
    assert receiver.assembler.next_timeout() is None
    receiver.feed(packet for packet in packets if packet.picture >= 6)
    assert receiver.numbers == [0, 1, *range(6, 12)]


def test_the_key_frame_that_waits_already_is_taken_when_the_one_before_is_given_up() -> None:
    receiver, packets = Receiver(), film("VP8", 12, (0, 6))
    receiver.feed(without(packets, (2, 0)))
    assert receiver.numbers == [0, 1]
    receiver.wait(GIVE_UP_S)
    assert receiver.numbers == [0, 1, *range(6, 12)]


def test_two_losses_one_behind_the_other_are_given_up_together() -> None:
    receiver, packets = Receiver(), film("VP8", 12, (0, 6))
    receiver.feed(without(packets, (2, 0), (6, 3)))
    receiver.wait(GIVE_UP_S)
    assert receiver.numbers == [0, 1]
    assert receiver.assembler.needs_key_frame


def test_a_loss_after_the_key_frame_that_is_gone_on_with_keeps_its_own_time() -> None:
    receiver, packets = Receiver(), film("VP8", 12, (0, 6))
    first = [packet for packet in without(packets, (2, 0)) if packet.picture < 6]
    second = [packet for packet in without(packets, (8, 0)) if packet.picture >= 6]
    receiver.feed(first)
    receiver.wait(GIVE_UP_S / 2)
    receiver.feed(second)
    receiver.wait(GIVE_UP_S / 2)
    assert receiver.numbers == [0, 1, 6, 7]
    assert not receiver.assembler.needs_key_frame
    receiver.wait(GIVE_UP_S / 2)
    assert receiver.assembler.needs_key_frame


def test_before_the_first_key_frame_nothing_comes_and_nothing_is_asked_for() -> None:
    receiver, packets = Receiver(), film("VP8", 12, (0, 6))
    receiver.feed(packet for packet in packets if packet.picture > 1)
    assert receiver.numbers == list(range(6, 12))
    assert receiver.asked == []


@pytest.mark.parametrize("codec", ["VP8", "H264"])
def test_a_key_frame_whose_beginning_comes_last_is_taken(codec: Codec) -> None:
    receiver, packets = Receiver(codec), film(codec, 12, (0, 6))
    first, *rest = [packet for packet in packets if packet.picture == 6]
    receiver.feed([*rest[:6], first, *rest[6:]])
    assert receiver.numbers == [6]
    assert decodes(receiver.pictures, codec)


def test_an_anchor_at_a_slice_moves_back_to_the_headers_of_its_picture() -> None:
    """Else the decoder would get an IDR picture without its parameters."""
    receiver, packets = Receiver("H264"), film("H264")
    headers, first, *rest = packets[:10]
    receiver.feed([first, headers, *rest])
    assert decodes(receiver.pictures, "H264")
    stranger = Receiver("H264")
    stranger.feed([first, Packet(headers.sequence, 7, False, headers.payload, 0), *rest])
    assert len(stranger.pictures) == 1


def test_without_markers_the_next_picture_ends_the_one_before() -> None:
    receiver = Receiver()
    receiver.feed(Packet(p.sequence, p.timestamp, False, p.payload, p.picture) for p in film("VP8"))
    assert receiver.numbers == list(range(11))
    assert decodes(receiver.pictures, "VP8")


def test_padding_between_pictures_is_passed_over() -> None:
    receiver, sequence = Receiver(), 0
    for packet in film("VP8"):
        receiver.feed([Packet(sequence, packet.timestamp, packet.marker, packet.payload, 0)])
        sequence += 1
        if packet.marker:
            receiver.feed([Packet(sequence + at, packet.timestamp, False, b"", 0) for at in range(3)])
            sequence += 3
    assert receiver.numbers == list(range(12))


def test_a_sender_that_starts_anew_is_followed() -> None:
    receiver = Receiver()
    receiver.feed(film("VP8"))
    receiver.feed(film("VP8", sequence=20_000))
    assert receiver.numbers == [*range(12), *range(12)]


def test_after_an_outage_nothing_is_asked_for_again() -> None:
    receiver, packets = Receiver(), film("VP8", 12, (0, 6))
    receiver.feed(packet for packet in packets if packet.picture < 2)
    late = [packet for packet in packets if packet.picture == 3]
    receiver.feed(
        Packet(p.sequence + MAX_LOST + 2 & 0xFFFF, p.timestamp, p.marker, p.payload, 3) for p in late
    )
    assert receiver.assembler.needs_key_frame
    assert receiver.asked == []


def test_what_is_held_is_bounded() -> None:
    receiver, key = Receiver(), film("VP8")[0]
    receiver.feed(
        Packet(at & 0xFFFF, 0, False, key.payload if at == 0 else b"\x80\x80\xff\xff" + b"x" * 999, 0)
        for at in range(MAX_PACKETS + 1)
    )
    assert receiver.assembler.needs_key_frame
    receiver.feed(Packet(2_000 + at, at, False, b"\x00xx", 0) for at in range(200))
    assert len(receiver.assembler._packets) <= MAX_WAITING + 1


def test_a_restart_waits_for_a_key_frame() -> None:
    receiver, packets = Receiver(), film("VP8", 12, (0, 6))
    receiver.feed(packet for packet in packets if packet.picture < 4)
    receiver.assembler.restart()
    assert receiver.assembler.needs_key_frame
    receiver.feed(packet for packet in packets if packet.picture >= 4)
    assert receiver.numbers == [0, 1, 2, 3, *range(6, 12)]


def test_key_frames_alone_are_given_whatever_is_lost_between() -> None:
    receiver, packets = Receiver(), film("VP8", 12, (0, 4, 8))
    receiver.assembler.restrict(keys_only=True)
    receiver.feed(without(packets, (2, 0), (5, -1), (9, 0)))
    receiver.wait(GIVE_UP_S)
    assert receiver.numbers == [0, 4, 8]
    assert receiver.asked == []
    assert receiver.assembler.next_timeout() is None


def test_a_loss_within_a_key_frame_is_asked_for_and_the_next_one_is_not_held_up() -> None:
    receiver, packets = Receiver(), film("VP8", 30, (0, 10, 20))
    receiver.assembler.restrict(keys_only=True)
    rest = without(packets, (0, 2))
    (lost,) = set(packets) - set(rest)
    receiver.feed(rest)
    assert receiver.asked[0] == lost.sequence
    receiver.feed([lost])
    assert receiver.numbers == [0, 10, 20]


PATTERN = (0, 2, 1, 2)
SYNCS = (1, 2)


def test_higher_layers_are_left_out_on_request() -> None:
    receiver, packets = Receiver(), layered(film("VP8"), PATTERN, SYNCS)
    receiver.assembler.restrict(keys_only=False, max_layer=0)
    receiver.feed(packets)
    assert receiver.numbers == [0, 4, 8]
    receiver = Receiver()
    receiver.assembler.restrict(keys_only=False, max_layer=1)
    receiver.feed(packets)
    assert receiver.numbers == [0, 2, 4, 6, 8, 10]


def test_higher_layers_come_back_where_they_depend_on_the_lowest_alone() -> None:
    receiver, packets = Receiver(), layered(film("VP8"), PATTERN, (5, 6))
    receiver.assembler.restrict(keys_only=False, max_layer=0)
    receiver.feed(packet for packet in packets if packet.picture < 2)
    receiver.assembler.restrict(keys_only=False)
    receiver.feed(packet for packet in packets if packet.picture >= 2)
    assert receiver.numbers == [0, *range(4, 12)]


@pytest.mark.parametrize("lost", [1, 2, 3])
def test_a_lost_picture_of_a_higher_layer_takes_no_key_frame_to_get_over(lost: int) -> None:
    receiver, packets = Receiver(), layered(film("VP8"), PATTERN, (1, 2, 5, 6))
    receiver.feed(without(packets, (lost, 0)))
    receiver.wait(GIVE_UP_S)
    assert receiver.numbers == [*range(lost), *range(4, 12)]
    assert not receiver.assembler.needs_key_frame


def test_a_lost_picture_of_the_lowest_layer_takes_a_key_frame() -> None:
    receiver, packets = Receiver(), layered(film("VP8"), PATTERN, SYNCS)
    receiver.feed(without(packets, (4, 0)))
    receiver.wait(GIVE_UP_S)
    assert receiver.numbers == [0, 1, 2, 3]
    assert receiver.assembler.needs_key_frame


@pytest.mark.parametrize("seed", range(6))
def test_no_loss_freezes_the_camera(seed: int) -> None:
    """Ten per cent are lost for good; a key frame comes half a second after one is needed."""
    rng = random.Random(seed)
    receiver, packets = Receiver(), film("VP8", 60, tuple(range(0, 60, 15)))
    shown_at = [receiver.now]
    for number in range(60):
        receiver.feed(p for p in packets if p.picture == number and (number % 15 == 0 or rng.random() > 0.1))
        receiver.wait(1 / 30)
        shown_at += [receiver.now] * (len(receiver.pictures) - len(shown_at) + 1)
    assert max(b - a for a, b in pairwise(shown_at)) < GIVE_UP_S + 0.6
    assert len(receiver.assembler._packets) < 200
    assert REORDER_S < NACK_INTERVAL_S < GIVE_UP_S
