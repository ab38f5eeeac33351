"""What Linux tells of processes is read, descriptions are changed, and packets are as libwebrtc's."""

import os
import struct
from pathlib import Path

import pytest
from aiortc.codecs.vpx import VpxPayloadDescriptor
from aiortc.rtp import RtcpPacket, RtcpPsfbPacket, RtcpSrPacket, RtpPacket
from load import sdp
from load.packets import DTX_BLOCKS, SILENT_BLOCKS, Sender, Voice, asks_for_key_picture, sound, vp8
from load.proc import (
    Meter,
    Usage,
    children,
    family,
    is_engine,
    measure,
    parse_schedstat,
    parse_stat,
    parse_status,
)
from load.relay import is_rtp

TICKS = os.sysconf("SC_CLK_TCK")


# Processes


def process(proc: Path, pid: int, parent: int, ticks: int, command: str = "python", sockets: int = 0) -> None:
    folder = proc / str(pid)
    (folder / "task" / str(pid)).mkdir(parents=True)
    (folder / "fd").mkdir()
    text = f"{pid} (a) S 1 (b) S {parent} 1 1 0 -1 0 0 0 0 0 {ticks} {TICKS} 0 0 20 0 1 0 5 0 0\n"
    (folder / "stat").write_text(text)
    (folder / "status").write_text("Name:\tpython\nVmRSS:\t  20480 kB\nThreads:\t3\n")
    (folder / "cmdline").write_bytes(command.replace(" ", "\0").encode())
    (folder / "task" / str(pid) / "schedstat").write_text("5 2500000000 7\n")
    for number in range(sockets):
        (folder / "fd" / str(number)).symlink_to(f"socket:[{number}]")
    (folder / "fd" / "9").symlink_to("/dev/null")


def test_a_server_is_all_that_it_started_but_its_engine(tmp_path: Path) -> None:
    process(tmp_path, 10, 1, ticks=2 * TICKS, sockets=2)
    process(tmp_path, 11, 10, ticks=3 * TICKS, sockets=1)
    process(tmp_path, 12, 10, ticks=50 * TICKS, command="python -m visavis.local")
    process(tmp_path, 13, 12, ticks=50 * TICKS)
    process(tmp_path, 14, 1, ticks=50 * TICKS)
    assert measure(10, tmp_path) == Usage(cpu_s=7.0, waited_s=5.0, rss_mb=40.0, threads=6, sockets=3)


def test_workers_are_what_the_process_in_front_started_but_its_engine(tmp_path: Path) -> None:
    process(tmp_path, 10, 1, ticks=TICKS)
    process(tmp_path, 13, 10, ticks=TICKS)
    process(tmp_path, 11, 10, ticks=TICKS)
    process(tmp_path, 12, 10, ticks=TICKS, command="python -m visavis.local")
    process(tmp_path, 14, 11, ticks=TICKS)
    assert children(10, tmp_path) == [11, 13]


def test_a_process_that_is_gone_takes_nothing(tmp_path: Path) -> None:
    assert measure(10, tmp_path) == Usage()
    assert Meter().server() == Meter().front() == Meter().engine() == Usage()


def test_what_linux_tells_of_this_process_can_be_read() -> None:
    told = Meter(server_pid=os.getpid()).server()
    assert told.cpu_s > 0
    assert told.rss_mb > 1
    assert told.threads >= 1


def test_a_name_with_brackets_does_not_move_the_fields() -> None:
    assert parse_stat(f"7 (x) R 9 (y) S 5 1 1 0 -1 0 0 0 0 0 {TICKS} 0 0 {TICKS} 20 0 1") == (5, 2.0)


def test_a_process_that_is_ending_has_no_memory() -> None:
    assert parse_status("Name:\tx\nState:\tZ (zombie)\n") == (0.0, 0)


def test_a_kernel_that_does_not_tell_of_waiting_is_no_error() -> None:
    assert parse_schedstat("") == 0
    assert parse_schedstat("1 1500000000 3") == 1.5


def test_a_family_is_found_whatever_the_order() -> None:
    assert family({3: 2, 2: 1, 4: 9, 1: 0}, 1, lambda child: False) == {1, 2, 3}
    assert is_engine("/venv/bin/python -m visavis.local socket")
    assert not is_engine("/venv/bin/python -m visavis serve --engine local")


# Descriptions

OFFER = "v=0\r\nm=audio 9 RTP 111\r\na=mid:0\r\na=sendrecv\r\nm=video 9 RTP 96\r\na=mid:1\r\n"
CANDIDATE = "candidate:1 1 udp 2122 {} {} typ host"


def test_candidates_are_put_where_they_belong() -> None:
    told = sdp.with_candidates(OFFER, [("1", "candidate:b"), ("0", "candidate:a")])
    lines = told.split("\r\n")
    assert lines[lines.index("a=mid:0") + 1 :][:2] == ["a=candidate:a", "a=end-of-candidates"]
    assert lines[lines.index("a=mid:1") + 1 :][:2] == ["a=candidate:b", "a=end-of-candidates"]


def test_the_first_address_is_one_over_ipv4() -> None:
    known = [("0", CANDIDATE.format("fd00::2", 7)), ("0", CANDIDATE.format("192.0.2.1", 8))]
    assert sdp.first_candidate(sdp.with_candidates(OFFER, known)) == ("192.0.2.1", 8)
    with pytest.raises(ValueError, match="no UDP candidate"):
        sdp.first_candidate(OFFER)


def test_through_a_relay_no_other_address_is_left() -> None:
    known = [("0", CANDIDATE.format("192.0.2.1", 8)), ("1", CANDIDATE.format("fd00::2", 7))]
    told = sdp.through(sdp.with_candidates(OFFER, known), "127.0.0.1", 5_000)
    assert "192.0.2.1" not in told
    assert "fd00" not in told
    assert told.count("127.0.0.1 5000 typ host") == 2
    assert sdp.first_candidate(told) == ("127.0.0.1", 5_000)


def test_only_media_is_lost_on_the_way() -> None:
    rtp, rtcp, stun, dtls = (
        bytes([first, second, *bytes(20)]) for first, second in [(128, 111), (128, 200), (0, 1), (22, 254)]
    )
    assert [is_rtp(one) for one in (rtp, rtcp, stun, dtls)] == [True, False, False, False]
    assert is_rtp(bytes([0x90, 0x80 | 96, *bytes(20)]))


# Packets


def test_a_packet_is_read_by_others_as_it_was_meant() -> None:
    sender = Sender("audio", 111, 0xDEADBEEF, sequence=0xFFFF)
    read = RtpPacket.parse(sender.packet(2**32 + 5, b"opus", marker=True))
    assert (read.payload_type, read.ssrc, read.sequence_number) == (111, 0xDEADBEEF, 0xFFFF)
    assert (read.timestamp, read.marker, read.payload) == (5, 1, b"opus")
    assert RtpPacket.parse(sender.packet(0, b"", marker=False)).sequence_number == 0


def test_a_sender_report_is_read_by_others_as_it_was_meant() -> None:
    sender = Sender("video", 96, 7)
    sender.packet(0, b"12345", marker=False)
    (read,) = RtcpPacket.parse(sender.report(1_000.5, 90_000))
    assert isinstance(read, RtcpSrPacket)
    assert read.sender_info.ntp_timestamp == (2_208_988_800 + 1_000) << 32 | 1 << 31
    assert (read.sender_info.rtp_timestamp, read.sender_info.packet_count) == (90_000, 1)
    assert read.sender_info.octet_count == 5


def voice(*, dtx: bool) -> Voice:
    return Voice(Sender("audio", 111, 1), {b"word": b"encoded"}, b"no", dtx=dtx)


def test_silence_is_left_out_after_a_while_and_its_time_goes_on() -> None:
    talking = voice(dtx=True)
    sent = [talking.next(b"word"), *(talking.next(None) for _ in range(SILENT_BLOCKS + 2 * DTX_BLOCKS))]
    read = [RtpPacket.parse(one) for one in sent if one is not None]
    assert len(read) == 1 + SILENT_BLOCKS + 2
    assert read[-1].timestamp == 960 * (SILENT_BLOCKS + 2 * DTX_BLOCKS)
    again = talking.next(b"word")
    assert again is not None
    after = RtpPacket.parse(again)
    assert after.payload == b"encoded"
    assert after.marker  # a talk spurt begins
    assert after.sequence_number == read[-1].sequence_number + 1


def test_without_dtx_every_20_ms_is_sent() -> None:
    talking = voice(dtx=False)
    assert all(talking.next(None) is not None for _ in range(100))


def test_a_picture_is_cut_into_packets_that_say_where_it_begins_and_ends() -> None:
    sender = Sender("video", 96, 1)
    packets = [RtpPacket.parse(one) for one in vp8(sender, bytes(range(250)) * 10, 0x8123, 90_000)]
    assert [one.marker for one in packets] == [0, 0, 1]
    read = [VpxPayloadDescriptor.parse(one.payload) for one in packets]
    assert [head.partition_start for head, _ in read] == [1, 0, 0]
    assert {head.picture_id for head, _ in read} == {0x0123}
    assert b"".join(rest for _, rest in read) == bytes(range(250)) * 10


def test_a_key_picture_is_asked_for_by_pli_and_fir_among_others() -> None:
    report = Sender("audio", 111, 1).report(0.0, 0)
    pli, fir, remb = (bytes(RtcpPsfbPacket(fmt=fmt, ssrc=1, media_ssrc=2)) for fmt in (1, 4, 15))
    assert asks_for_key_picture(report + pli)
    assert asks_for_key_picture(fir)
    assert not asks_for_key_picture(report + remb)
    assert not asks_for_key_picture(b"")


def test_the_sound_of_a_packet_is_what_is_behind_its_header() -> None:
    plain = struct.pack("!BBHII", 0x80, 111, 1, 4_711, 9) + b"opus"
    assert sound(plain) == (4_711, 4)
    extended = (
        struct.pack("!BBHII", 0x91, 111, 1, 4_711, 9) + bytes(4) + b"\xbe\xde\0\2" + bytes(8) + b"opus!"
    )
    assert sound(extended) == (4_711, 5)
