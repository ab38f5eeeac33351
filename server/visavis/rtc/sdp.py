"""Session descriptions: what aiortc must not see leaves the offer, what it cannot say enters the answer."""

import ipaddress
import re
from dataclasses import dataclass

from aiortc.codecs import CODECS
from aiortc.rtcpeerconnection import find_common_codecs
from aiortc.sdp import MediaDescription, SessionDescription

from ..errors import SignallingError

AUDIO_CODECS = ("opus", "PCMU", "PCMA")
"In order of preference. G.722 is left out: no client that speaks it lacks Opus."

MAX_LINES = 2_000
"Browsers send some 300. aiortc's parser is quadratic in some of them: 12,000 take a second of the loop."

MAX_SECTIONS = 16
MAX_CANDIDATES = 64

OPUS_PARAMETERS = "minptime=10;useinbandfec=1;usedtx=1"
"Asks for error correction, and for no packets in silence."

VP8_PARAMETERS = "x-google-start-bitrate=1500"
"""In kbit/s. Without it Chromium starts at 300 and scales a 720p camera down to 640×360, too little to read a
sign by (measured on Chromium 156); others ignore it."""

_KINDS = ("audio", "video", "application")
_DIGESTS = ("sha-256", "sha-384", "sha-512")


@dataclass(frozen=True, slots=True)
class Offer:
    """What remains of an offer for aiortc."""

    sdp: str
    audio_codec: str
    "One of AUDIO_CODECS."
    ice: tuple[str, str]
    "User name fragment and password of the audio section: they change with an ICE restart."
    declined: tuple[tuple[int, list[str]], ...]
    "Position and answer of each section that is not taken."


def read_offer(text: str) -> Offer:
    """Check and clean an offer.

    Taken are the first audio section, the first video section whose codecs are known, and the data channel's;
    everything else is declined in the answer. Candidates that aiortc would stumble over are taken out:
    `.local` names (a second each to resolve), TCP, malformed ones. Raises SignallingError.
    """
    session, sections = _split(text)
    kept: list[list[str]] = []
    declined: list[tuple[int, list[str]]] = []
    audio: MediaDescription | None = None
    ice = ("", "")
    taken: set[str] = set()
    for index, section in enumerate(sections):
        kind = section[0].removeprefix("m=").split(" ", 1)[0]
        media = None
        if kind in _KINDS and kind not in taken and not _is_switched_off(section):
            media = _parse(session, section, f"section {index + 1} ({kind})")
        if media is None or not _can_take(media):
            declined.append((index, _decline(section)))
            continue
        credentials = _check_transport(media, f"section {index + 1} ({kind})")
        taken.add(kind)
        kept.append(_clean(section))
        if kind == "audio":
            audio, ice = media, credentials
    if audio is None:
        raise _invalid(
            f"the offer has no audio section with one of the codecs {', '.join(AUDIO_CODECS)}",
            code="no_audio",
        )
    names = {codec.mimeType.split("/")[1].lower() for codec in audio.rtp.codecs}
    mids = {mid for section in kept for mid in _values(section, "mid")}
    if len(mids) < len(kept):
        raise _invalid("two sections of the session description have the same a=mid")
    lines = [_bundle(line, mids) for line in session if not line.startswith("a=candidate:")]
    cleaned = [line for line in lines if line] + [line for section in kept for line in section]
    return Offer(
        sdp="\r\n".join(cleaned) + "\r\n",
        audio_codec=next(codec for codec in AUDIO_CODECS if codec.lower() in names),
        ice=ice,
        declined=tuple(declined),
    )


def write_answer(answer: str, offer: Offer) -> str:
    """Put declined sections back to their places, and say what we wish of the codecs."""
    session, sections = _split(answer)
    for index, section in offer.declined:
        sections.insert(index, section)
    lines = list(session)
    for section in sections:
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
    _, sections = _split(sdp)
    for section in sections:
        if section[0].startswith(f"m={kind} "):
            return next(
                (way for way in ("sendonly", "recvonly", "inactive") if f"a={way}" in section), "sendrecv"
            )
    return "inactive"


def _split(text: str) -> tuple[list[str], list[list[str]]]:
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    if not lines or lines[0] != "v=0":
        raise _invalid("this is not a session description: it does not begin with v=0")
    if len(lines) > MAX_LINES:
        raise _invalid(f"the session description has more than {MAX_LINES} lines")
    for line in lines:
        if not re.match("[a-z]=", line):
            raise _invalid(f"malformed line in the session description: {line[:80]!r}")
    starts = [number for number, line in enumerate(lines) if line.startswith("m=")]
    if not starts:
        raise _invalid("the session description has no media section", code="no_audio")
    if len(starts) > MAX_SECTIONS:
        raise _invalid(f"the session description has more than {MAX_SECTIONS} media sections")
    ends = [*starts[1:], len(lines)]
    return lines[: starts[0]], [lines[start:end] for start, end in zip(starts, ends, strict=True)]


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


def _bundle(line: str, mids: set[str]) -> str:
    """Leave only sections that are there in a BUNDLE group."""
    if not line.startswith("a=group:BUNDLE"):
        return line
    left = [mid for mid in line.split()[1:] if mid in mids]
    return " ".join(["a=group:BUNDLE", *left]) if left else ""


def _values(section: list[str], attribute: str) -> list[str]:
    return [line.split(":", 1)[1] for line in section if line.startswith(f"a={attribute}:")]


def _invalid(message: str, code: str = "invalid_sdp") -> SignallingError:
    return SignallingError(400, message, code=code, param="sdp")
