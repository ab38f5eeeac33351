import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from visavis.errors import SignallingError
from visavis.rtc.sdp import (
    MAX_CANDIDATES,
    MAX_KEPT,
    Offer,
    clean_answer,
    direction,
    read_candidate,
    read_offer,
    write_answer,
)

CHROMIUM = (Path(__file__).parent / "golden" / "offer_chromium.sdp").read_text()
AUDIO, VIDEO, CHANNEL = (f"m={rest}" for rest in CHROMIUM.split("\nm=")[1:])
SESSION = CHROMIUM.split("\nm=")[0]


def offer_of(*sections: str, session: str = SESSION) -> str:
    return "\n".join([session, *(section.strip("\n") for section in sections)]) + "\n"


def kinds(sdp: str) -> list[str]:
    return re.findall(r"^m=(\w+ \d+)", sdp, re.MULTILINE)


def refusal(text: str) -> SignallingError:
    with pytest.raises(SignallingError) as caught:
        read_offer(text)
    # What is well-formed and cannot be met is told apart (RFC 9725, 4.4).
    assert caught.value.status == (406 if caught.value.code == "no_audio" else 400)
    return caught.value


def test_a_browsers_offer_is_taken_whole() -> None:
    offer = read_offer(CHROMIUM)
    assert kinds(offer.sdp) == ["audio 9", "video 9", "application 9"]
    assert offer.audio_codec == "opus"
    assert offer.ice == ("Uf4g", "aPasswordOfTwentyFour+/x")
    assert offer.declined == ()


def test_only_candidates_that_can_be_used_are_left() -> None:
    found = re.findall(r"^a=candidate:(.*)$", read_offer(CHROMIUM).sdp, re.MULTILINE)
    assert [line.split()[4] for line in found] == ["203.0.113.7"]


@pytest.mark.parametrize(
    "candidate",
    [
        "1 0 udp 1 192.0.2.1 9 typ host",
        "1 1 udp 1 [2001:db8::1] 9 typ host",
        "1 1 udp one 192.0.2.1 9 typ host",
        "1 1 udp 1 192.0.2.1 port typ host",
        "1 1 udp 1 192.0.2.1 65536 typ host",
        "1 1 udp 1 192.0.2.1 0 typ host",
        "1 1 udp 1 192.0.2.1 9 typ srflx raddr 0.0.0.0 rport none",
        "1 1 udp 1 192.0.2.1 9 host typ",
        "1 1 udp 1",
        "",
    ],
)
def test_a_malformed_candidate_is_left_out_and_not_fatal(candidate: str) -> None:
    offer = read_offer(offer_of(f"{AUDIO}\na=candidate:{candidate}"))
    assert len(re.findall("a=candidate", offer.sdp)) == 1


@pytest.mark.parametrize("form", ["{}", "candidate:{}", "a=candidate:{}\r\n"])
def test_a_candidate_that_comes_later_is_read_in_any_form(form: str) -> None:
    late = read_candidate(form.format("1 1 udp 2113937151 192.0.2.1 9 typ host generation 0"), "0")
    assert (late.ip, late.port, late.type, late.sdpMid) == ("192.0.2.1", 9, "host", "0")


@pytest.mark.parametrize(
    "text", ["", "candidate:1 1 udp 1 a.local 9 typ host", "candidate:1 1 tcp 1 192.0.2.1 9 typ host"]
)
def test_a_candidate_that_comes_later_and_cannot_be_used_is_passed_over(text: str) -> None:
    assert read_candidate(text, "0") is None


def test_candidates_of_both_kinds_of_addresses_are_left() -> None:
    offer = read_offer(offer_of(f"{AUDIO}\na=candidate:1 1 udp 1 2001:db8::1 9 typ host"))
    assert "2001:db8::1 9 typ host" in offer.sdp


def test_the_end_of_candidates_is_left_out() -> None:
    assert "end-of-candidates" not in read_offer(offer_of(AUDIO + "\na=end-of-candidates")).sdp


def test_a_flood_of_candidates_is_cut() -> None:
    flood = "".join(f"\na=candidate:1 1 udp 1 192.0.2.1 {port} typ host" for port in range(1_000))
    assert len(re.findall("a=candidate", read_offer(offer_of(AUDIO + flood)).sdp)) <= MAX_CANDIDATES


def test_what_is_not_taken_is_declined_in_its_place() -> None:
    second = AUDIO.replace("a=mid:0", "a=mid:7")
    strange = "m=text 9 UDP/TLS/RTP/SAVPF 100\nc=IN IP4 0.0.0.0\na=mid:8\na=rtpmap:100 t140/1000"
    modern = re.sub("VP8|H264", "H265", VIDEO)
    off = VIDEO.replace("m=video 9", "m=video 0")
    offer = read_offer(offer_of(AUDIO, second, strange, modern, off, CHANNEL))
    assert kinds(offer.sdp) == ["audio 9", "application 9"]
    assert "a=group:BUNDLE 0 2" in offer.sdp
    answer = write_answer(offer_of(AUDIO, CHANNEL), offer)
    assert kinds(answer) == ["audio 9", "audio 0", "text 0", "video 0", "video 0", "application 9"]
    assert re.findall(r"a=mid:(\w+)", answer) == ["0", "7", "8", "1", "1", "2"]


def video(mid: int, way: str = "sendonly", port: int = 9) -> str:
    section = VIDEO.replace("a=mid:1", f"a=mid:{mid}").replace("a=sendonly", f"a={way}")
    return section.replace("m=video 9", f"m=video {port}")


def bundled(*mids: int) -> str:
    return SESSION.replace("BUNDLE 0 1 2", "BUNDLE " + " ".join(map(str, mids)))


def mids_of(sdp: str) -> list[str]:
    return re.findall(r"^a=mid:(\w+)", sdp, re.MULTILINE)


def echoed(offer: Offer) -> str:
    """Answer like aiortc: each section of what it was given, in that order."""
    return write_answer(offer.sdp, offer)


def test_a_camera_and_a_screen_are_taken_and_a_third_video_is_declined() -> None:
    offer = read_offer(offer_of(AUDIO, video(1), CHANNEL, video(3), video(4), session=bundled(0, 1, 2, 3, 4)))
    assert mids_of(offer.sdp) == ["0", "1", "2", "3"]
    assert offer.screen == "3"
    assert kinds(echoed(offer)) == ["audio 9", "video 9", "application 9", "video 9", "video 0"]
    assert "a=group:BUNDLE 0 1 2 3\r\n" in offer.sdp


def test_of_many_videos_those_that_send_are_taken() -> None:
    offer = read_offer(offer_of(AUDIO, video(1, "inactive"), video(3), video(4, "recvonly"), video(5)))
    assert mids_of(offer.sdp) == ["0", "3", "5"]


def test_one_video_shows_a_camera_unless_it_says_that_it_is_a_screen() -> None:
    assert read_offer(CHROMIUM).screen is None
    assert read_offer(offer_of(AUDIO, VIDEO.strip("\n") + "\na=content:main,slides\n")).screen == "1"
    assert read_offer(offer_of(AUDIO, VIDEO.strip("\n") + "\na=content:slides\n", video(3))).screen == "1"
    assert read_offer(offer_of(AUDIO, VIDEO.strip("\n") + "\na=content:speaker\n", video(3))).screen == "3"


def test_a_screen_that_is_shared_later_goes_behind_what_aiortc_knows() -> None:
    first = read_offer(CHROMIUM)
    shared = read_offer(offer_of(AUDIO, VIDEO, CHANNEL, video(3), session=bundled(0, 1, 2, 3)), first)
    assert mids_of(shared.sdp) == ["0", "1", "2", "3"]
    assert shared.screen == "3"


def test_a_screen_remains_one_when_the_camera_goes() -> None:
    first = read_offer(offer_of(AUDIO, VIDEO, CHANNEL, video(3)))
    paused = read_offer(offer_of(AUDIO, video(1, "inactive"), CHANNEL, video(3)), first)
    assert paused.screen == "3"
    gone = read_offer(offer_of(AUDIO, video(1, "inactive", port=0), CHANNEL, video(3)), paused)
    assert gone.screen == "3"
    again = read_offer(offer_of(AUDIO, video(9), CHANNEL, video(3)), gone)
    assert again.screen == "3"
    ended = read_offer(offer_of(AUDIO, video(9), CHANNEL, video(3, port=0)), again)
    assert ended.screen is None


def test_a_screen_shared_anew_takes_over_from_those_before() -> None:
    offer = read_offer(offer_of(AUDIO, VIDEO, CHANNEL, video(3)))
    offer = read_offer(offer_of(AUDIO, VIDEO, CHANNEL, video(3, "inactive")), offer)
    assert offer.screen == "3"
    offer = read_offer(offer_of(AUDIO, VIDEO, CHANNEL, video(3, "inactive"), video(4)), offer)
    assert offer.screen == "4"
    inactive = [video(3, "inactive"), video(4, "inactive")]
    assert read_offer(offer_of(AUDIO, VIDEO, CHANNEL, *inactive), offer).screen == "4"
    assert read_offer(offer_of(AUDIO, VIDEO, CHANNEL, *inactive, video(5)), offer).screen == "5"
    assert read_offer(offer_of(AUDIO, VIDEO, CHANNEL, video(3), inactive[1]), offer).screen == "3"


def test_a_section_given_up_stays_inactive_for_aiortc_and_is_declined_to_the_caller() -> None:
    first = read_offer(offer_of(AUDIO, VIDEO, video(3), CHANNEL, session=bundled(0, 1, 3, 2)))
    sections = offer_of(AUDIO, VIDEO, video(3, port=0), CHANNEL, session=bundled(0, 1, 2))
    stopped = read_offer(sections, first)
    assert mids_of(stopped.sdp) == ["0", "1", "3", "2"]
    assert stopped.sdp.count("a=inactive") == 1
    answer = echoed(stopped)
    assert kinds(answer) == ["audio 9", "video 9", "video 0", "application 9"]
    assert "a=group:BUNDLE 0 1 2\r\n" in answer
    # The place is used again, with another name: for aiortc a new section, at the end.
    recycled = read_offer(offer_of(AUDIO, VIDEO, video(4), CHANNEL, session=bundled(0, 1, 4, 2)), stopped)
    assert mids_of(recycled.sdp) == ["0", "1", "3", "2", "4"]
    assert mids_of(echoed(recycled)) == ["0", "1", "4", "2"]
    assert "a=group:BUNDLE 0 1 4 2\r\n" in echoed(recycled)


def test_a_section_that_was_declined_first_moves_nothing_when_it_comes() -> None:
    first = read_offer(offer_of(AUDIO, video(1, port=0), CHANNEL))
    assert mids_of(first.sdp) == ["0", "2"]
    later = read_offer(offer_of(AUDIO, VIDEO, CHANNEL), first)
    assert mids_of(later.sdp) == ["0", "2", "1"]
    assert mids_of(echoed(later)) == ["0", "1", "2"]


def test_a_paused_camera_takes_no_room_from_two_others() -> None:
    first = read_offer(CHROMIUM)
    offer = read_offer(offer_of(AUDIO, video(1, "inactive"), CHANNEL, video(3), video(4), video(5)), first)
    assert mids_of(offer.sdp) == ["0", "1", "2", "3", "4"]


def test_a_data_channel_that_ends_is_declined() -> None:
    first = read_offer(CHROMIUM)
    ended = read_offer(offer_of(AUDIO, VIDEO, CHANNEL.replace("n 9", "n 0")), first)
    assert mids_of(ended.sdp) == ["0", "1", "2"]
    assert kinds(echoed(ended)) == ["audio 9", "video 9", "application 0"]
    assert "a=inactive" not in ended.sdp


def test_new_screens_without_end_are_declined() -> None:
    offer = read_offer(CHROMIUM)
    for mid in range(3, MAX_KEPT):
        offer = read_offer(offer_of(AUDIO, VIDEO, CHANNEL, video(mid)), offer)
        assert offer.screen == str(mid)
    offer = read_offer(offer_of(AUDIO, VIDEO, CHANNEL, video(99)), offer)
    assert offer.sdp.count("m=") == MAX_KEPT
    assert [place for place, _ in offer.declined] == [3]


def test_a_name_that_changes_its_kind_is_refused() -> None:
    first = read_offer(offer_of(AUDIO, CHANNEL))
    with pytest.raises(SignallingError, match=r"section 2 \(video\) has the a=mid .* another kind"):
        read_offer(offer_of(AUDIO, video(2)), first)


def test_a_section_that_is_only_bundled_is_taken_though_its_port_is_zero() -> None:
    bundled = CHANNEL.replace("m=application 9", "m=application 0").strip("\n") + "\na=bundle-only"
    assert kinds(read_offer(offer_of(AUDIO, bundled)).sdp) == ["audio 9", "application 0"]


@pytest.mark.parametrize(
    ("codecs", "chosen"),
    [("0 PCMU/8000", "PCMU"), ("8 PCMA/8000", "PCMA"), ("111 opus/48000/2", "opus")],
)
def test_the_best_codec_offered_is_chosen(codecs: str, chosen: str) -> None:
    lines = [line for line in AUDIO.split("\n") if not line.startswith(("a=rtpmap", "a=rtcp-fb", "a=fmtp"))]
    assert read_offer(offer_of("\n".join([*lines, f"a=rtpmap:{codecs}"]))).audio_codec == chosen


def test_the_answer_asks_for_error_correction_no_packets_in_silence_and_a_sharp_picture() -> None:
    section = AUDIO.replace("a=fmtp:111 minptime=10;useinbandfec=1\n", "")
    answer = write_answer(offer_of(section, VIDEO, CHANNEL), read_offer(CHROMIUM))
    assert "a=rtpmap:111 opus/48000/2\r\na=fmtp:111 minptime=10;useinbandfec=1;usedtx=1\r\n" in answer
    assert "a=rtpmap:96 VP8/90000\r\na=fmtp:96 x-google-start-bitrate=1500\r\n" in answer


@pytest.mark.parametrize(
    ("text", "problem", "code"),
    [
        ("", "does not begin with v=0", "invalid_sdp"),
        ("{}", "does not begin with v=0", "invalid_sdp"),
        ("v=0\nhello", "malformed line .*'hello'", "invalid_sdp"),
        (SESSION, "no media section", "no_audio"),
        (offer_of(CHANNEL), "no audio section", "no_audio"),
        (offer_of(AUDIO.replace("m=audio 9", "m=audio 0")), "no audio section", "no_audio"),
        (offer_of(re.sub("opus|PCMU|PCMA", "speex", AUDIO)), "no audio section", "no_audio"),
        (offer_of(AUDIO.replace("m=audio 9", "m=audio nine")), r"section 1 \(audio\)", "invalid_sdp"),
        (offer_of(AUDIO.replace("a=fmtp:111 ", "a=fmtp:99 ")), r"section 1 \(audio\)", "invalid_sdp"),
        (offer_of(AUDIO.replace("a=ice-pwd", "a=x-pwd")), "ICE credentials", "invalid_sdp"),
        (offer_of(AUDIO.replace("a=fingerprint", "a=x-print")), "DTLS", "invalid_sdp"),
        (offer_of(AUDIO.replace("a=setup:actpass", "")), "DTLS", "invalid_sdp"),
        (offer_of(AUDIO.replace("a=setup:actpass", "a=setup:maybe")), r"section 1 \(audio\)", "invalid_sdp"),
        (offer_of(AUDIO.replace("sha-256", "md5")), "fingerprint by sha-256", "invalid_sdp"),
        (offer_of(AUDIO.replace("a=rtcp-mux\n", "")), "rtcp-mux", "invalid_sdp"),
        (offer_of(AUDIO.replace("a=mid:0", "")), "no a=mid", "invalid_sdp"),
        (offer_of(AUDIO + "\na=mid:7"), "more than one a=mid", "invalid_sdp"),
        (offer_of(AUDIO, CHANNEL.replace("a=mid:2", "a=mid:0")), "same a=mid", "invalid_sdp"),
        (offer_of(*[AUDIO] * 17), "more than 16", "invalid_sdp"),
        (offer_of(AUDIO + "a=ssrc:1 cname:x\n" * 2_000), "more than 2000 lines", "invalid_sdp"),
        (offer_of(AUDIO, session=SESSION + "\na=x" * 2_000), "more than 2000 lines", "invalid_sdp"),
        (offer_of("m=audio", AUDIO), r"section 1 \(audio\)", "invalid_sdp"),
        (offer_of("m=text", AUDIO), "malformed line", "invalid_sdp"),
    ],
)
def test_a_bad_offer_is_refused_by_naming_what_is_wrong(text: str, problem: str, code: str) -> None:
    error = refusal(text)
    assert re.search(problem, str(error))
    assert error.code == code


lines = CHROMIUM.split("\n")


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["drop", "double", "cut", "swap", "junk"]),
            st.integers(0, len(lines) - 1),
            st.integers(0, len(lines) - 1),
            st.text(max_size=10),
        ),
        min_size=1,
        max_size=8,
    )
)
def test_a_damaged_offer_is_taken_or_refused_and_nothing_worse(
    damage: list[tuple[str, int, int, str]],
) -> None:
    damaged = list(lines)
    for way, here, there, junk in damage:
        match way:
            case "drop":
                damaged[here] = ""
            case "double":
                damaged[here] += "\n" + damaged[there]
            case "cut":
                damaged[here] = damaged[here][: there % 20 + 1]
            case "swap":
                damaged[here], damaged[there] = damaged[there], damaged[here]
            case "junk":
                damaged[here] += junk
    try:
        offer = read_offer("\n".join(damaged))
    except SignallingError:
        return
    assert "m=audio" in offer.sdp


def test_directions_are_read() -> None:
    assert direction(CHROMIUM, "audio") == "sendrecv"
    assert direction(CHROMIUM, "video") == "sendonly"
    assert direction(offer_of(AUDIO), "video") == "inactive"


def test_an_answer_is_cleaned_of_unusable_candidates() -> None:
    cleaned = clean_answer(CHROMIUM)
    assert ".local" not in cleaned
    assert "203.0.113.7" in cleaned
    assert kinds(cleaned) == kinds(CHROMIUM)
