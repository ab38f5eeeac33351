"""What the microphone says about the caller, block by block: all that turn-taking knows of sound. Sans-I/O.

The conversation decides on these numbers alone: a recorded call can be decided again without its sound.
"""

from dataclasses import dataclass
from typing import Protocol

from .audio import Pcm, level_dbfs
from .config import ConversationConfig, EarConfig
from .echo import EchoJudge, suppress
from .hush import Hush, band_level
from .prosody import Prosody
from .vad import GatedVad, SileroPool, VoiceActivity


@dataclass(frozen=True, slots=True)
class Sound:
    """What was heard in one block of 20 ms."""

    speech: float
    "Probability, 0 to 1, that the caller speaks: our own voice coming back is no speech."
    level: float = -96.0
    "dBFS of the block."
    echo: float = 0.0
    "Share, 0 to 1, of the block that is our own voice coming back."
    finality: float | None = None
    "Probability that the last words end the turn, by the sound of them; None: nothing is known."


class Ear(Protocol):
    """Listens to one caller."""

    def receive(self, pcm: Pcm) -> Sound:
        """Take one 20 ms block of the microphone, 480 samples at 24 kHz."""
        ...

    def play(self, pcm: Pcm) -> None:
        """Note what goes out to the caller now, of which some may come back: blocks of 20 ms at 24 kHz."""
        ...

    def reset(self) -> None:
        """Forget what was heard, as when the detection of turns is switched on or off."""
        ...


_MOSTLY_OURS = 0.5
"Share of our own voice from which the level tells nothing of the caller or the room."


class CallerEar:
    """The ear of a call: Silero's judgement, taken back where the sound has ended and where it is our own."""

    def __init__(
        self, vad: VoiceActivity, config: EarConfig | None = None, echo: EchoJudge | None = None
    ) -> None:
        """`echo` is the call's own; None makes one."""
        self._config = config or EarConfig()
        self._vad = vad
        self._hush = Hush(self._config)
        self._prosody = Prosody()
        self._echo = echo or EchoJudge()
        self._voiced = False

    def receive(self, pcm: Pcm) -> Sound:
        """Take one 20 ms block, 480 samples at 24 kHz. Raises ValueError for a block of another length."""
        speech = self._vad.receive(pcm)
        echo = self._echo.receive(pcm)
        level = band_level(pcm)
        if echo < _MOSTLY_OURS and self._hush.receive(level, speech):
            speech = min(speech, self._config.silence)
        speech = suppress(speech, echo)
        limit = self._config.voiced_still if self._voiced else self._config.voiced
        self._voiced = speech >= limit
        finality = self._prosody.receive(pcm, level, voiced=self._voiced)
        return Sound(speech, level_dbfs(pcm), echo, finality)

    def play(self, pcm: Pcm) -> None:
        """Note what goes out to the caller now."""
        self._echo.play(pcm)

    def reset(self) -> None:
        """Forget what was heard, but not the room."""
        self._vad.reset()
        self._hush.reset()
        self._prosody.reset()
        self._voiced = False


def caller_ear(config: ConversationConfig, pool: SileroPool) -> CallerEar:
    """Make the ear of a call; what it needs of Silero it borrows."""
    return CallerEar(GatedVad(config.vad, pool), config.ear)
