"""What became of a call's media so far. Sans-I/O."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PeerStats:
    """Counts since the call began, and the newest estimates. What a backend cannot know stays 0 or None."""

    packets_received: int = 0
    "Of the caller's voice, as are the next eight."
    packets_lost: int = 0
    packets_late: int = 0
    "Came after they had been told as lost."
    packets_duplicate: int = 0
    packets_malformed: int = 0
    packets_overlapping: int = 0
    packets_excess: int = 0
    "Dropped unread: their sender ran ahead of time."
    restarts: int = 0
    "Of the stream: another SSRC, or another time line."
    concealed_ms: int = 0
    "Audio made up for lost packets."
    jitter_ms: float | None = None
    "Of their arrival (RFC 3550 section 6.4.1)."
    packets_sent: int = 0
    "Of our voice."
    blocks_skipped: int = 0
    "Blocks of our voice of 20 ms whose time had passed: silence to the caller."
    rtt_ms: float | None = None
    "There and back, by the caller's receiver reports, smoothed."
    remote_lost: int | None = None
    "Packets of our voice that did not reach the caller, by its receiver reports."
    remote_jitter_ms: float | None = None
    bytes_in: int = 0
    "Of media, RTCP and DTLS, as are the ones sent."
    bytes_out: int = 0
    undecryptable: int = 0
    "Media packets that were not authentic, or repeated."
    messages_dropped: int = 0
    "On the data channel, because nobody took them."
    frames_wanted: int = 0
    "Pictures that were converted."
    frames_decoded: int = 0
    frames_dropped: int = 0
    "Pictures that nobody had time to decode."
    silent_ms: int = 0
    "Since the last packet of any kind came from the caller."
    said_since_ms: int = 0
    "Of our voice, which the caller has not heard if the network was out."
