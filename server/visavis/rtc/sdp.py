"""Session descriptions: what aiortc must not see leaves the offer, what it cannot say enters the answer."""

import ipaddress
import re
from collections.abc import Set
from dataclasses import dataclass

from aiortc import RTCIceCandidate
from aiortc.codecs import CODECS
from aiortc.rtcpeerconnection import find_common_codecs
from aiortc.sdp import MediaDescription, SessionDescription, candidate_from_sdp

from ..errors import SignallingError

AUDIO_CODECS = ("opus", "PCMU", "PCMA")
"In order of preference. G.722 is left out: no client that speaks it lacks Opus."

MAX_LINES = 2_000
"Browsers send some 300. aiortc's parser is quadratic in some of them: 12,000 take a second of the loop."

MAX_SECTIONS = 16

MAX_VIDEOS = 2
"A camera and a screen."

MAX_KEPT = 32
"Sections of a call that aiortc knows, those given up included: a new one beyond them is declined."

MAX_CANDIDATES = 64

OPUS_PARAMETERS = "minptime=10;useinbandfec=1;usedtx=1"
"Asks for error correction, and for no packets in silence."

VP8_PARAMETERS = "x-google-start-bitrate=1500"
"""In kbit/s. Without it Chromium starts at 300 and scales a 720p camera down to 640×360, too little to read a
sign by (measured on Chromium 156); others ignore it."""

_DIGESTS = ("sha-256", "sha-384", "sha-512")


@dataclass(frozen=True, slots=True)
class Offer:
    """What remains of an offer for aiortc."""

    sdp: str
    audio_codec: str
    "One of AUDIO_CODECS."
    ice: tuple[str, str]
    "User name fragment and password of the audio section: they change with an ICE restart."
    places: tuple[int | None, ...]
    "Of each section of `sdp`: its position in what the caller sent, None if it is there no more."
    declined: tuple[tuple[int, list[str]], ...]
    "Position and answer of each section that is not taken."
    screen: str | None
    "Name (a=mid) of the video section that shows a screen; any other shows a camera."

    @property
    def first_mid(self) -> str:
        """Name of the first section, by whose transport all go."""
        return _mid(_split_own(self.sdp.splitlines())[1][0])


@dataclass(frozen=True, slots=True)
class _Section:
    place: int
    lines: list[str]

    @property
    def kind(self) -> str:
        return _kind(self.lines)

    @property
    def mid(self) -> str:
        return _mid(self.lines)

    @property
    def sends(self) -> bool:
        return not {"a=inactive", "a=recvonly"} & set(self.lines)


@dataclass(frozen=True, slots=True)
class _Taken(_Section):
    media: MediaDescription
    ice: tuple[str, str]


def read_offer(text: str, before: Offer | None = None) -> Offer:
    """Check and clean an offer; `before` is the one that was answered last in the same call.

    Taken are the first audio section, the data channel's, and two video sections whose codecs are known,
    those that send first; everything else is declined in the answer. A section that was taken before keeps
    its place in `sdp`, inactive where the caller has given it up: aiortc knows sections by their position.
    Candidates that aiortc would stumble over are taken out: `.local` names (a second each to resolve), TCP,
    malformed ones. Raises SignallingError.
    """
    session, sections = _split(text)
    known = {} if before is None else {_mid(lines): lines for lines in _split_own(before.sdp.splitlines())[1]}
    taken = _take(session, sections, known)
    audio = next((section for section in taken.values() if section.kind == "audio"), None)
    if audio is None:
        raise _invalid(
            f"the offer has no audio section with one of the codecs {', '.join(AUDIO_CODECS)}",
            code="no_audio",
            status=406,
        )
    in_order = sorted(taken.values(), key=lambda section: section.place)
    kept: list[tuple[int | None, list[str]]] = [
        (taken[mid].place, taken[mid].lines) if mid in taken else (None, _inactive(lines))
        for mid, lines in known.items()
    ]
    kept += [(section.place, section.lines) for section in in_order if section.mid not in known]
    head = [_bundle(line, known.keys() | taken) for line in session if not line.startswith("a=candidate:")]
    names = {codec.mimeType.split("/")[1].lower() for codec in audio.media.rtp.codecs}
    places = tuple(place for place, _ in kept)
    return Offer(
        sdp="\r\n".join([*filter(None, head), *(line for _, lines in kept for line in lines)]) + "\r\n",
        audio_codec=next(codec for codec in AUDIO_CODECS if codec.lower() in names),
        ice=audio.ice,
        places=places,
        declined=tuple((i, _decline(lines)) for i, lines in enumerate(sections) if i not in places),
        screen=_find_screen([section for section in in_order if section.kind == "video"], before),
    )


def _take(session: list[str], sections: list[list[str]], known: dict[str, list[str]]) -> dict[str, _Taken]:
    """Choose sections and check them, by name (a=mid); `known` were taken before."""
    taken: dict[str, _Taken] = {}
    room = {"audio": 1, "application": 1, "video": MAX_VIDEOS}
    offered = [_Section(place, lines) for place, lines in enumerate(sections)]
    for section in sorted(offered, key=lambda each: (each.mid not in known, not each.sends)):
        kind, mid = section.kind, section.mid
        name = f"section {section.place + 1} ({kind})"
        rests = kind == "video" and mid in known and not section.sends
        if _is_switched_off(section.lines) or not (room.get(kind) or rests):
            continue
        media = _parse(session, section.lines, name)
        if not _can_take(media) or (mid not in known and len(known.keys() | taken) >= MAX_KEPT):
            continue
        credentials = _check_transport(media, name)
        if media.rtp.muxId != mid:
            raise _invalid(f"{name} has more than one a=mid")
        if mid in taken:
            raise _invalid("two sections of the session description have the same a=mid")
        if mid in known and _kind(known[mid]) != kind:
            raise _invalid(f"{name} has the a=mid that a section of another kind had before")
        taken[mid] = _Taken(section.place, _clean(section.lines), media, credentials)
        if not rests:
            room[kind] -= 1
    return taken


def write_answer(answer: str, offer: Offer) -> str:
    """Put sections to their places, declined ones too, and say what we wish of the codecs."""
    session, sections = _split_own(answer.splitlines())
    placed = dict(offer.declined)
    placed |= {
        place: section for place, section in zip(offer.places, sections, strict=True) if place is not None
    }
    mids = {mid for place in offer.places if place is not None for mid in _values(placed[place], "mid")}
    lines = [_bundle(line, mids) for line in session]
    for _, section in sorted(placed.items()):
        for line in section:
            lines.append(line)
            if found := re.fullmatch(r"a=rtpmap:(\d+) (opus/48000/2|VP8/90000)", line):
                parameters = VP8_PARAMETERS if found[2] == "VP8/90000" else OPUS_PARAMETERS
                lines.append(f"a=fmtp:{found[1]} {parameters}")
    return "\r\n".join(lines) + "\r\n"


def clean_answer(text: str) -> str:
    """Take out of an answer the candidates that aiortc would stumble over. Raises SignallingError."""
    session, sections = _split(text)
    return "\r\n".join(session + [line for section in sections for line in _clean(section)]) + "\r\n"


def direction(sdp: str, kind: str) -> str:
    """Tell the direction of the first section of a kind, `inactive` if there is none."""
    _, sections = _split_own(sdp.splitlines())
    for section in sections:
        if section[0].startswith(f"m={kind} "):
            return next(
                (way for way in ("sendonly", "recvonly", "inactive") if f"a={way}" in section), "sendrecv"
            )
    return "inactive"


def _split(text: str) -> tuple[list[str], list[list[str]]]:
    """Give the lines of the session and of each section. Raises SignallingError."""
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    if not lines or lines[0] != "v=0":
        raise _invalid("this is not a session description: it does not begin with v=0")
    if len(lines) > MAX_LINES:
        raise _invalid(f"the session description has more than {MAX_LINES} lines")
    for line in lines:
        if not re.match("[a-z]=", line):
            raise _invalid(f"malformed line in the session description: {line[:80]!r}")
    session, sections = _split_own(lines)
    if not sections:
        raise _invalid("the session description has no media section", code="no_audio", status=406)
    if len(sections) > MAX_SECTIONS:
        raise _invalid(f"the session description has more than {MAX_SECTIONS} media sections")
    return session, sections


def _split_own(lines: list[str]) -> tuple[list[str], list[list[str]]]:
    """Split what aiortc or we have written."""
    starts = [number for number, line in enumerate(lines) if line.startswith("m=")]
    ends = [*starts[1:], len(lines)]
    head = lines[: starts[0]] if starts else lines
    return head, [lines[start:end] for start, end in zip(starts, ends, strict=False)]


def _parse(session: list[str], section: list[str], name: str) -> MediaDescription:
    try:
        description = SessionDescription.parse("\r\n".join(session + _clean(section)) + "\r\n")
    except Exception as error:  # aiortc's parser raises whatever a malformed line makes it trip over
        raise _invalid(
            f"{name} of the session description is malformed: {str(error) or 'wrong form'}"
        ) from error
    return description.media[0]


def _can_take(media: MediaDescription) -> bool:
    if media.kind == "application":
        return "webrtc-datachannel" in media.fmt or media.profile == "DTLS/SCTP"
    common = find_common_codecs(CODECS[media.kind], media.rtp.codecs)
    names = {codec.mimeType.split("/")[1].lower() for codec in common}
    return bool(names if media.kind == "video" else names & {codec.lower() for codec in AUDIO_CODECS})


def _check_transport(media: MediaDescription, name: str) -> tuple[str, str]:
    """Give the ICE user name fragment and password of a section that a connection can be made for."""
    if media.ice is None or not media.ice.usernameFragment or not media.ice.password:
        raise _invalid(f"{name} has no ICE credentials (a=ice-ufrag, a=ice-pwd)")
    if media.dtls is None or not media.dtls.fingerprints:
        raise _invalid(f"{name} has no DTLS role or fingerprint (a=setup, a=fingerprint)")
    if not any(fingerprint.algorithm.lower() in _DIGESTS for fingerprint in media.dtls.fingerprints):
        raise _invalid(f"{name} has no fingerprint by {', '.join(_DIGESTS)}")
    if media.kind != "application" and not media.rtcp_mux:
        raise _invalid(f"{name} must multiplex RTP and RTCP (a=rtcp-mux)")
    if not media.rtp.muxId:
        raise _invalid(f"{name} has no a=mid")
    return media.ice.usernameFragment, media.ice.password


def _is_switched_off(section: list[str]) -> bool:
    parts = section[0].split(" ")
    return len(parts) > 1 and parts[1] == "0" and "a=bundle-only" not in section


def _inactive(section: list[str]) -> list[str]:
    """Keep a section that the caller has given up, with nothing in it."""
    ways = ("a=sendrecv", "a=sendonly", "a=recvonly", "a=inactive")
    left = [line for line in section if line not in ways and not line.startswith("a=candidate:")]
    return left if _kind(section) == "application" else [*left, "a=inactive"]


def _find_screen(videos: list[_Taken], before: Offer | None) -> str | None:
    """Tell which section shows a screen: the one that says so (RFC 4796), else the second.

    What was a screen remains one, unless another video takes over from it.
    """
    for section in videos:
        if any("slides" in value.split(",") for value in _values(section.lines, "content")):
            return section.mid
    former = [section for section in videos if before is not None and section.mid == before.screen]
    later = [section for section in videos[1:] if section not in former]
    sending = [section for section in former + later if section.sends]
    return next((section.mid for section in sending + former + later), None)


def _decline(section: list[str]) -> list[str]:
    """Answer a section with port 0 (RFC 3264 section 6)."""
    found = re.match(r"m=(\S+) \S+ (.*)", section[0])
    if found is None:
        raise _invalid(f"malformed line in the session description: {section[0][:80]!r}")
    lines = [f"m={found[1]} 0 {found[2]}", "c=IN IP4 0.0.0.0", "a=inactive"]
    return lines + [f"a=mid:{mid}" for mid in _values(section, "mid")]


def _clean(section: list[str]) -> list[str]:
    """Leave the usable candidates.

    The end of candidates goes too: with all of them taken out it would fail the call at once, where the
    caller's own checks may still reach us. `RtcConfig.connect_s` ends what does not connect.
    """
    cleaned = []
    candidates = 0
    for line in section:
        if line == "a=end-of-candidates":
            continue
        if line.startswith("a=candidate:"):
            candidates += 1
            if candidates > MAX_CANDIDATES or not _is_usable(line.removeprefix("a=candidate:")):
                continue
        cleaned.append(line)
    return cleaned


def read_candidate(text: str, mid: str) -> RTCIceCandidate | None:
    """Read a candidate that came after its offer, of the section of that name (a=mid).

    None for one that aiortc would stumble over, as in an offer, and for the end of candidates: see `_clean`.
    """
    value = text.strip().removeprefix("a=").removeprefix("candidate:")
    if not _is_usable(value):
        return None
    candidate = candidate_from_sdp(value)
    candidate.sdpMid = mid
    return candidate


def _is_usable(candidate: str) -> bool:
    parts = candidate.split()
    if len(parts) < 8 or parts[1] != "1" or parts[2].lower() != "udp" or parts[6] != "typ":
        return False
    numbers = [
        parts[3],
        parts[5],
        *(
            value
            for name, value in zip(parts[8::2], parts[9::2], strict=False)
            if name in ("rport", "generation")
        ),
    ]
    try:
        ipaddress.ip_address(parts[4])
    except ValueError:
        return False
    if not all(number.isascii() and number.isdigit() and len(number) <= 10 for number in numbers):
        return False
    return 0 < int(parts[5]) < 65_536  # another port would break the socket that sends to it


def _bundle(line: str, mids: Set[str]) -> str:
    """Leave only sections that are there in a BUNDLE group."""
    if not line.startswith("a=group:BUNDLE"):
        return line
    left = [mid for mid in line.split()[1:] if mid in mids]
    return " ".join(["a=group:BUNDLE", *left]) if left else ""


def _kind(section: list[str]) -> str:
    return section[0].removeprefix("m=").split(" ", 1)[0]


def _mid(section: list[str]) -> str:
    return next(iter(_values(section, "mid")), "")


def _values(section: list[str], attribute: str) -> list[str]:
    return [line.split(":", 1)[1] for line in section if line.startswith(f"a={attribute}:")]


def _invalid(message: str, code: str = "invalid_sdp", status: int = 400) -> SignallingError:
    """Make the refusal of an offer; 406 of one that is well-formed and cannot be met (RFC 9725, 4.4)."""
    return SignallingError(status, message, code=code, param="sdp")
