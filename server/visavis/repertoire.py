"""The assistant's own lines with their sounds: from a file, from the package, or by the embedded voice."""

import logging
from contextlib import aclosing
from dataclasses import dataclass, replace
from pathlib import Path

import av
import numpy as np

from .audio import EMPTY, RATE, Pcm
from .config import ApologyConfig, ConversationConfig, IdleConfig
from .engine.helper import Helper
from .errors import ConfigError, EngineError
from .lines import Line, Lines

logger = logging.getLogger(__name__)

_PACKAGED = {ApologyConfig().text: "apology.ogg", IdleConfig().text: "warning.ogg"}
"The default texts in the embedded voice (hibari-tts, Apache-2.0), for servers that lack it."


@dataclass(frozen=True, slots=True)
class _Setting:
    occasion: str
    "The field of `Lines`."
    section: str
    text: str
    sound: Path | None

    @property
    def name(self) -> str:
        return f"conversation.{self.section}.text"


class Repertoire:
    """What all calls of a server have to say; `lines` is the present state, for the next call."""

    def __init__(self, config: ConversationConfig) -> None:
        """Read the sounds there are. Raises ConfigError for a file that cannot be read."""
        settings = _settings(config)
        self.lines = Lines(
            **{setting.occasion: Line(setting.text, _recorded(setting)) for setting in settings}
        )
        self._unspoken = [s for s in settings if not len(getattr(self.lines, s.occasion).pcm)]

    @property
    def unspoken(self) -> tuple[str, ...]:
        """The names of the settings whose texts are still to be spoken."""
        return tuple(setting.name for setting in self._unspoken)

    async def speak(self, voice: Helper, language: str | None) -> None:
        """Have the texts without a sound spoken; a fault is logged, and the text is shown alone."""
        unspoken, self._unspoken = self._unspoken, []
        for setting in unspoken:
            try:
                async with aclosing(voice.say("", setting.text, language)) as sounds:
                    pcm = np.concatenate([EMPTY, *[piece async for piece in sounds]])
            except EngineError as error:
                logger.warning("%s is shown and not spoken: %s", setting.name, error)
                continue
            self.lines = replace(self.lines, **{setting.occasion: Line(setting.text, pcm)})

    def do_without(self) -> None:
        """There is no voice for the texts without a sound: tell which."""
        unspoken, self._unspoken = self._unspoken, []
        for setting in unspoken:
            logger.warning(
                "%s is shown and not spoken: there is no embedded voice here, and no file in its `sound`",
                setting.name,
            )


def _settings(config: ConversationConfig) -> list[_Setting]:
    """Return what is to be said at all."""
    apology, greeting, idle, waiting = config.apology, config.greeting, config.idle, config.waiting
    settings = [
        _Setting("apology", "apology", apology.text, apology.sound),
        _Setting("greeting", "greeting", greeting.text, greeting.sound),
    ]
    if idle.end_s is not None:
        settings.append(_Setting("warning", "idle", idle.text, idle.sound))
    if waiting.play == "sentence":
        settings.append(_Setting("waiting", "waiting", waiting.text, waiting.sound))
    return [setting for setting in settings if setting.text]


def _recorded(setting: _Setting) -> Pcm:
    """Return the text as it was recorded, mono at 24 kHz; empty if it was not."""
    path = setting.sound
    if path is None and setting.text in _PACKAGED:
        path = Path(__file__).parent / _PACKAGED[setting.text]
    if path is None:
        return EMPTY
    resampler = av.AudioResampler(format="s16", layout="mono", rate=RATE)
    pieces = [EMPTY]
    try:
        with av.open(str(path)) as container:
            for decoded in container.decode(audio=0):
                pieces += [frame.to_ndarray()[0] for frame in resampler.resample(decoded)]
        pieces += [frame.to_ndarray()[0] for frame in resampler.resample(None)]
    except (av.FFmpegError, IndexError) as error:
        raise ConfigError(f"conversation.{setting.section}.sound {path} cannot be read: {error}.") from error
    return np.concatenate(pieces).astype(np.int16)
