"""Our voice from its blocks to the socket: Opus at 24 kHz, the RTP header by struct, on the common beat."""

import asyncio
import math
import secrets
import struct
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from aiortc import RTCDtlsTransport, RTCRtpSender

from ...audio import Pcm
from ...codecs import OpusEncoder
from ...config import RtcConfig
from .beat import Beat
from .rtp import HEADER
from .transport import Transport

BLOCK_TICKS = 960
"A block of 20 ms at Opus' RTP clock of 48 kHz (RFC 7587 section 4.1)."

SPOKEN_SILENCE = 10
"""Silent blocks that are sent: in 200 ms the listener's decoder sounds out. Then a packet without content
says that we fall silent (RFC 6716 section 2.1.9), and nothing is sent until there is sound."""

QUIETEST = 127
"The level of digital silence, in dB below overload."

_VERSION, _EXTENSION, _MARKER = 0x80, 0x10, 0x80
_ONE_BYTE_HEADER = 0xBEDE
_OVERLOAD_DB = 20 * math.log10(32_768)
_SINCE_1900_S = 2_208_988_800
"From the epoch of NTP to that of Unix."


class Voice:
    """Pulls a block on every beat and sends it, once aiortc's sender has been started."""

    def __init__(
        self,
        config: RtcConfig,
        sender: RTCRtpSender,
        pull: Callable[[], Pcm],
        transport_of: Callable[[RTCDtlsTransport], Transport],
    ) -> None:
        """`pull` gives 480 samples at 24 kHz."""
        self._sender = sender
        self._state = vars(sender)
        self._pull = pull
        self._transport_of = transport_of
        self._transport: Transport | None = None
        "None until there is a connection to send by."
        self._encoder = OpusEncoder(config)
        self._leave: Callable[[], None] | None = None
        self._payload_type = 0
        self._extension: _Extension | None = None
        # In the lower half: a wrap early in a call breaks the decryption of receivers that lose packets.
        self._sequence = secrets.randbelow(0x8000)
        self._timestamp = secrets.randbits(32)
        self._silent = 0
        "Blocks of silence in a row."
        self._talking = False
        "The packet before this block was sent."
        self.skipped = 0
        "Blocks whose time had passed: the listener hears silence for them."

    def start(self, beat: Beat, failed: Callable[[], None]) -> None:
        """Pull a block on every beat, whether or not it can be sent."""
        if self._leave is None:
            self._leave = beat.join(self._tick, failed)

    def close(self) -> None:
        if self._leave is not None:
            self._leave()
        self._transport = None

    async def run(self, codec: Any) -> None:
        """Stand in for the sender's task: lend it the beat until it is stopped."""
        self._payload_type = codec.payloadType
        self._extension = _Extension(
            self._state["_RTCRtpSender__mid"],
            vars(self._state["_RTCRtpSender__rtp_header_extensions_map"])["_HeaderExtensionsMap__ids"],
        )
        self._transport = self._transport_of(self._sender.transport)
        self._note()
        self._state["_RTCRtpSender__rtp_started"].set()
        try:
            await asyncio.Event().wait()
        finally:
            self._transport = None
            self._state["_RTCRtpSender__rtp_exited"].set()

    def _tick(self, beats: int) -> None:
        self.skipped += beats - 1
        self._timestamp = (self._timestamp + beats * BLOCK_TICKS) & 0xFFFF_FFFF
        pcm = self._pull()
        if self._transport is None or not self._sender._enabled:
            self._talking = False
            return
        self._note()
        below = below_overload(pcm)
        self._silent = self._silent + 1 if below == QUIETEST else 0
        if self._silent <= SPOKEN_SILENCE:
            self._send(self._transport, self._encoder.encode(pcm), below)
        elif self._talking:
            self._send(self._transport, self._encoder.nothing(), below)
            self._talking = False

    def _send(self, transport: Transport, payload: bytes, below: int) -> None:
        kind = self._payload_type if self._talking else self._payload_type | _MARKER
        extension = b"" if self._extension is None else self._extension.pack(below)
        flags = _VERSION | _EXTENSION if extension else _VERSION
        header = HEADER.pack(flags, kind, self._sequence, self._timestamp, self._sender._ssrc)
        transport.send_rtp(header + extension + payload)
        self._talking = True
        self._sequence = (self._sequence + 1) & 0xFFFF
        self._state["_RTCRtpSender__packet_count"] += 1
        self._state["_RTCRtpSender__octet_count"] += len(payload)

    def _note(self) -> None:
        """Note the time of this block for aiortc's sender reports."""
        self._state["_RTCRtpSender__ntp_timestamp"] = int((time.time() + _SINCE_1900_S) * (1 << 32))
        self._state["_RTCRtpSender__rtp_timestamp"] = self._timestamp


class _Extension:
    """The header extension of our packets: the MID and how loud it is, as far as negotiated (RFC 8285)."""

    def __init__(self, mid: str | None, ids: Any) -> None:
        name = (mid or "").encode()
        self._has_level = 0 < (ids.audio_level or 0) < 15
        self._head = bytes([ids.audio_level << 4]) if self._has_level else b""
        self._tail = b""
        if 0 < (ids.mid or 0) < 15 and 0 < len(name) <= 16:
            self._tail = bytes([ids.mid << 4 | len(name) - 1]) + name
        length = len(self._head) + self._has_level + len(self._tail)
        self._tail += bytes(-length % 4)
        self._head = struct.pack("!HH", _ONE_BYTE_HEADER, (length + 3) // 4) + self._head if length else b""

    def pack(self, below: int) -> bytes:
        """Pack it for a block so many dB `below_overload`."""
        if not self._has_level:
            return self._head + self._tail
        return self._head + bytes((below,)) + self._tail


def below_overload(pcm: Pcm) -> int:
    """Tell how far a block is below the loudest possible one, 0 to 127 dB: silence (RFC 6464 section 3)."""
    samples = pcm.astype(np.float32)
    energy = float(np.dot(samples, samples))
    if not energy:
        return QUIETEST
    below = round(_OVERLOAD_DB + 10 * math.log10(len(samples) / energy))
    return min(QUIETEST - 1, max(0, below))
