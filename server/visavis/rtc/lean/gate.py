"""What of a camera's stream is worth decrypting, and what its sender is asked for. Sans-I/O.

Pictures depend on those before them, so a sender that shows thirty a second where two are wanted makes all of
them be decoded. One that does not heed what it was asked is dealt with by policy: leave out temporal layers
that no other picture depends on, else ask for key frames, which depend on nothing, and take those alone.
"""

import enum

from ...config import CameraConfig
from .assemble import ALL_LAYERS

KEY_FRAME_S = 0.5
"A key frame is asked for no more often: it is ten times the size of another picture."

WATCHDOG_S = 1.0
WATCHDOG_PICTURES = 3
"Packets of so many pictures, for so long, and none could be decoded: begin anew with a key frame."

BITRATE_S = 1.0
"How often the sender is told its greatest bit rate; senders forget it after some seconds."

REVIEW_S = 2.0
"How long a sender is watched before the policy changes."

FAST = 4.0
"Times the wanted pictures: a sender that shows so many does not do as it was asked."

SLOW = 2.0
"Times the wanted pictures: a sender that shows no more does as it was asked."

MAX_IN_VAIN = 5
"Requests for a key frame that bring none: this sender does not heed them."

AUTHENTIC_EVERY = 128
"""Of packets that are not needed, one in so many is decrypted all the same: SRTP counts how often the
sequence number has wrapped, and loses count when it sees none for half a round (RFC 3711 section 3.3.1)."""


class Verdict(enum.Enum):
    """What to do with a packet."""

    DROP = "drop"
    "Nothing is wanted now."
    SKIP = "skip"
    "It is the rest of a picture that is not needed."
    TAKE = "take"


class Policy(enum.Enum):
    """Which pictures are decoded."""

    ALL = "all"
    BASE = "base"
    "Those of the lowest temporal layer."
    KEYS = "keys"
    "Key frames, which are asked for as often as pictures are wanted."


class Gate:
    """Ask `receive` for each packet before it is decrypted. `now` is monotonic seconds."""

    def __init__(self, config: CameraConfig) -> None:
        self.policy = Policy.ALL
        self._config = config
        self._fps = config.fps
        self._newest: int | None = None
        "Timestamp of the picture that packets come of."
        self._skipped: int | None = None
        self._layers = False
        "Whether the sender uses temporal layers."
        self._ignores_requests = False
        self._in_vain = 0
        "Requests since the last key frame."
        self._asked = -KEY_FRAME_S
        self._key_due = 0.0
        self._bitrate_due = 0.0
        self._since = 0.0
        "When the first packet came since the last decoded picture."
        self._begun = 0
        "Pictures that began since then."
        self._review_at: float | None = None
        self._shown = 0
        "Pictures that began since the last review."
        self._cost_s = 0.0
        "Processor time that decoding has taken since."
        self._strikes = 0
        "Reviews in a row that found it too much."

    @property
    def is_open(self) -> bool:
        return self._fps > 0

    @property
    def max_layer(self) -> int:
        return 0 if self.policy is Policy.BASE else ALL_LAYERS

    def want(self, fps: float, now: float) -> None:
        """Let so many pictures a second through from now on; 0 is none."""
        if not self._fps:
            self._newest = self._skipped = self._review_at = None
            self._begun = 0
            self._key_due = now
        self._fps = fps
        self._key_due = min(self._key_due, now + self._period_s)
        if self.policy is Policy.KEYS and fps > 1 / KEY_FRAME_S:
            self._set_policy(Policy.ALL)

    def receive(self, timestamp: int, now: float) -> Verdict:
        """Judge a packet by its RTP time."""
        if not self._fps:
            return Verdict.DROP
        if timestamp == self._skipped:
            return Verdict.SKIP
        if timestamp != self._newest:
            self._newest = timestamp
            if not self._begun:
                self._since = now
            self._begun += 1
            self._shown += 1
            if self._review_at is None:
                self._begin_review(now)
            elif now >= self._review_at:
                self._review(now)
        return Verdict.TAKE

    def skip(self, timestamp: int) -> None:
        """The picture of this time is not needed."""
        self._skipped = timestamp

    def is_skipped(self, timestamp: int) -> bool:
        return timestamp == self._skipped

    def saw_layer(self, layer: int) -> None:
        """A picture of a temporal layer came."""
        self._layers = self._layers or layer > 0

    def saw_key_frame(self) -> None:
        """A key frame was put together."""
        self._in_vain = 0

    def decoded(self, pictures: int, cost_s: float) -> None:
        """So many pictures were decoded, which has taken so much of the processor."""
        if pictures:
            self._begun = 0
        self._cost_s += cost_s

    def is_stuck(self, now: float) -> bool:
        """Tell, once, that packets come and no picture does."""
        if self.policy is Policy.KEYS or self._begun < WATCHDOG_PICTURES or now - self._since < WATCHDOG_S:
            return False
        self._begun = 0
        return True

    def ask_for_key_frame(self, needed: bool, now: float) -> bool:
        """Tell whether the sender is to be asked for a key frame now, which is then taken for done."""
        if self.policy is Policy.KEYS:
            needed = now >= self._key_due
        if not needed or now - self._asked < KEY_FRAME_S:
            return False
        self._asked = now
        self._in_vain += 1
        self._key_due = max(self._key_due + self._period_s, now)
        return True

    def max_bitrate(self, now: float) -> int | None:
        """Return what to tell the sender as its greatest bit rate, in bit/s, if that is due."""
        if now < self._bitrate_due:
            return None
        self._bitrate_due = now + BITRATE_S
        return self._config.max_bitrate

    @property
    def _period_s(self) -> float:
        return max(KEY_FRAME_S, 1 / self._fps) if self._fps else KEY_FRAME_S

    def _begin_review(self, now: float) -> None:
        self._review_at = now + REVIEW_S
        self._shown, self._cost_s = 1, 0.0

    def _review(self, now: float) -> None:
        assert self._review_at is not None
        took_s = now - self._review_at + REVIEW_S
        shown_fps = self._shown / took_s
        costly = shown_fps > FAST * self._fps and self._cost_s / took_s > self._config.max_decode_load
        self._strikes = self._strikes + 1 if costly else 0
        if self.policy is not Policy.ALL and shown_fps <= SLOW * self._fps:
            self._set_policy(Policy.ALL)
        elif self.policy is Policy.KEYS and self._in_vain >= MAX_IN_VAIN:
            self._ignores_requests = True
            self._set_policy(Policy.ALL)
        elif self._strikes >= 2 and self.policy is Policy.ALL and self._layers:
            self._set_policy(Policy.BASE)
        elif self._strikes >= 2 and self._fps <= 1 / KEY_FRAME_S and not self._ignores_requests:
            self._set_policy(Policy.KEYS)
        self._begin_review(now)

    def _set_policy(self, policy: Policy) -> None:
        self.policy = policy
        self._strikes = 0
        self._review_at = None
