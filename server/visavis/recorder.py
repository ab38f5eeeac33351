"""The user's side of a call as it is kept: sound and pictures, and how a turn is cut from them. Sans-I/O.

Positions are samples at 24 kHz on the call's audio clock.
"""

from dataclasses import dataclass, replace

from .ahead import OpenTurn
from .audio import RATE, Pcm
from .config import ConversationConfig
from .engine import Message
from .frames import Frame, FrameSampler, Source
from .history import History
from .tape import Tape

SCREEN_FPS = 1.0
"Pictures of a shared screen: it shows text, and changes when somebody turns a page."

SCREENS = 2
"In a turn: the newest, and one from before it changed. Each costs as many tokens as a clip of the camera."

_TAIL = RATE // 10
"Sound kept after the last voiced sample: final consonants are softer than the threshold."


@dataclass(frozen=True, slots=True, eq=False)
class UserTurn:
    """What was said and seen in a turn, as engines and the history are given it."""

    start: int
    end: int
    "The last voiced sample; some sound after it is kept."
    pcm: Pcm
    "Mono, 24 kHz."
    at: int
    "Position of its first sample."
    frames: tuple[Frame, ...]
    cuts: tuple[int, ...] = ()
    "Where it was cut to be sent ahead."
    serial: int | None = None
    "Its number in the history, if something of it was sent."


class Recorder:
    """Records, and cuts the turn that goes on into clips that can be sent ahead."""

    def __init__(self, config: ConversationConfig, history: History) -> None:
        self.sampler = FrameSampler(config.camera)
        "Of the camera."
        self._screen = FrameSampler(replace(config.camera, fps=SCREEN_FPS, idle_fps=0, max_frames=SCREENS))
        self._ahead = config.ahead
        self._history = history
        self._tape = Tape()
        self._open = OpenTurn(config.ahead, 0)

    @property
    def position(self) -> int:
        """Samples received so far."""
        return self._tape.end

    @property
    def sent_ahead(self) -> bool:
        """Whether something of the turn that goes on has been fixed to be sent ahead."""
        return self._open.sent

    def sampler_of(self, source: Source) -> FrameSampler:
        return self._screen if source == "screen" else self.sampler

    def seen(self, start: int, end: int) -> tuple[Frame, ...]:
        """Return what camera and screen showed between two positions, and shortly before."""
        return self.sampler.take(start, end) + self._screen.take(start, end)

    def sound(self, start: int, end: int) -> Pcm:
        """Return what is still there between two positions."""
        return self._tape.cut(start, end)

    def append(self, pcm: Pcm) -> None:
        """Record the next block of the microphone."""
        self._tape.append(pcm)

    def forget_before(self, position: int) -> None:
        """Let go of sound that no turn will have."""
        self._tape.forget_before(position)

    def begin(self, start: int) -> None:
        """A turn begins; what was known of another is forgotten."""
        self._open = OpenTurn(self._ahead, start)

    def turn(self, start: int, end: int, *, goes_on: bool = False) -> UserTurn:
        """Return the turn as it is if it ends at `end`; if it `goes_on`, what comes then is another's."""
        stop, turn = end + (0 if goes_on else _TAIL), self._open
        if turn.cuts and turn.fixed > end:
            stop = turn.fixed  # the silence after the last word was sent ahead too
        if turn.cuts:
            frames = turn.frames_until(stop, self.sampler) + self._screen.take(start, stop)
        else:
            frames = self.seen(start, stop)
        at = max(start, self._tape.start)
        return UserTurn(start, end, self._tape.cut(start, stop), at, frames, turn.cuts, turn.serial)

    def draft(self, start: int, end: int) -> UserTurn:
        """Return the turn as `turn` does, to be sent before it is known that it ends at `end`.

        Whatever is sent has a name of its own in the engine's caches. The clips that were sent ahead keep
        theirs: they are the same for every end.
        """
        turn = self.turn(start, end)
        serial = self._history.reserve() if turn.serial is None else turn.serial
        return replace(turn, serial=serial)

    def messages(self, turn: UserTurn, instructions: str) -> tuple[Message, ...]:
        """Return what an engine is sent if this turn comes next."""
        assert turn.serial is not None
        return self._history.ahead(instructions, turn.pcm, turn.frames, turn.at, turn.cuts, turn.serial)

    def cut(self) -> UserTurn | None:
        """Fix another clip of the turn that goes on if it is long enough, and return all up to there."""
        turn = self._open
        if not turn.advance(self._tape.end, self.sampler, self._history.can_show):
            return None
        if turn.serial is None:
            turn.serial = self._history.reserve()
        pcm = self._tape.cut(turn.start, turn.fixed)
        return UserTurn(turn.start, turn.fixed, pcm, turn.start, turn.frames, turn.cuts, turn.serial)

    def words(self) -> UserTurn | None:
        """Return what was said so far in the turn that goes on, if that is much more than when last asked."""
        start, end = self._open.start, self._tape.end
        if not self._open.grow(end):
            return None
        return UserTurn(start, end, self._tape.cut(start, end), start, (), serial=self._history.reserve())
