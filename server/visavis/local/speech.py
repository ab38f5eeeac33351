"""Text to speech: the packaged English voice, espeak-ng for the other languages where it is installed."""

import asyncio
import logging
import re
import shutil
import struct
from typing import Any, Protocol

import numpy as np

from ..audio import EMPTY, RATE, Pcm, from_float, resample
from ..errors import EngineLost, ModelError
from . import pauses, tongues
from .stage import Stage

logger = logging.getLogger(__name__)

_ESPEAK_S = 10.0
"A clause takes it some 20 ms."
_ESPEAK_WORDS_PER_MINUTE = "160"
_HEADER = 44
"Bytes of WAV header that espeak-ng writes; its lengths are unknown when writing to a pipe."
_ESPEAK_NAMES = {"zh": "cmn", "no": "nb", "jw": "jv"}
"Where it does not know Whisper's code."
_UNREAD = frozenset({"ja"})
"Languages whose writing espeak-ng cannot read."

_LINK = re.compile(r"(?:https?://|www\.)\S+")
_MARKUP = re.compile(r"[*_`#~|<>\\^{}\[\]]+")
_PICTURE_SIGN = re.compile(
    "[\u2190-\u21ff\u2300-\u27bf\u2900-\u2bff\ufe00-\ufe0f\u200d\U0001f000-\U0001faff\U000e0000-\U000e007f]"
)


def speakable(text: str) -> str:
    """Take out what a voice would stumble over: markup, emojis, addresses. May leave nothing."""
    text = _PICTURE_SIGN.sub(" ", _MARKUP.sub(" ", _LINK.sub("the link", text)))
    text = " ".join(text.split())
    return text if any(character.isalnum() for character in text) else ""


class Voice(Protocol):
    """`Speaker`, or a stand-in."""

    @property
    def languages(self) -> frozenset[str]: ...

    async def say(self, text: str, language: str, caller: str) -> Pcm: ...

    async def aclose(self) -> None: ...


class Speaker:
    """Speaks one clause at a time, 24 kHz."""

    def __init__(self, english: Any, other_languages: frozenset[str]) -> None:
        """`english` is a loaded Hibari (untyped package); `load` makes both."""
        self._english = english
        self._others = other_languages
        self._stage = Stage("speech")

    @property
    def languages(self) -> frozenset[str]:
        return self._others | {tongues.ENGLISH}

    async def say(self, text: str, language: str, caller: str) -> Pcm:
        """Speak a clause, its pauses as `pauses.fit` has them; a language without a voice is read by the
        English one.

        Cancelling returns at once; the English voice ends its clause, espeak-ng is killed. Raises
        EngineLost.
        """
        text = speakable(text)
        if not text:
            return EMPTY
        if language in self._others and not tongues.looks_english(text):
            pcm = await _espeak(text, language)
        else:
            pcm = await self._stage.run(caller, lambda _: self._speak_english(text))
        return pauses.fit(pcm, text)

    def _speak_english(self, text: str) -> Pcm:
        try:
            return from_float(np.asarray(self._english(text), np.float32))
        except Exception as error:  # any fault of the voice is one failed response, not a dead engine
            raise EngineLost(f"the voice failed on {text[:40]!r}: {error}") from error

    async def aclose(self) -> None:
        await self._stage.aclose()


async def load() -> Speaker:
    """Load the voices; takes half a second. Raises ModelError."""

    def load_english() -> Any:
        from hibari import Hibari  # kept out of the parent process, which shares this package

        voice = Hibari(threads=1)
        voice("Ready to talk.")
        return voice

    try:
        english = await asyncio.to_thread(load_english)
    except (ImportError, RuntimeError, ValueError, OSError) as error:
        raise ModelError(f"cannot load the English voice: {error}; pip install 'visavis[local]'") from error
    return Speaker(english, await _espeak_languages())


async def _espeak_languages() -> frozenset[str]:
    """Ask which of Whisper's languages espeak-ng speaks; none where it is not installed."""
    if shutil.which("espeak-ng") is None:
        return frozenset()
    output = await _run_espeak("--voices", text="")
    spoken = {line.split()[1] for line in output.decode(errors="replace").splitlines()[1:] if line.strip()}
    roots = spoken | {name.partition("-")[0] for name in spoken}
    return frozenset(
        code
        for code in tongues.NAMES
        if code not in _UNREAD and code != tongues.ENGLISH and _ESPEAK_NAMES.get(code, code) in roots
    )


async def _espeak(text: str, language: str) -> Pcm:
    voice = _ESPEAK_NAMES.get(language, language)
    arguments = ("-v", voice, "-s", _ESPEAK_WORDS_PER_MINUTE, "--stdin", "--stdout")
    wav = await _run_espeak(*arguments, text=text)
    if len(wav) < _HEADER or wav[:4] != b"RIFF":
        raise EngineLost(f"espeak-ng wrote no sound for {language!r}")
    (rate,) = struct.unpack_from("<I", wav, 24)
    samples = np.frombuffer(wav[_HEADER : len(wav) & ~1], "<i2").astype(np.int16)
    return resample(samples, rate, RATE)


async def _run_espeak(*arguments: str, text: str) -> bytes:
    """Run espeak-ng, the text on its standard input, for it must not be read as an option."""
    try:
        process = await asyncio.create_subprocess_exec(
            "espeak-ng",
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
    except OSError as error:
        raise EngineLost(f"espeak-ng cannot be started: {error}") from error
    try:
        async with asyncio.timeout(_ESPEAK_S):
            output, errors = await process.communicate(text.encode())
    except TimeoutError as error:
        raise EngineLost("espeak-ng took too long") from error
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise EngineLost(f"espeak-ng failed: {errors.decode(errors='replace')[:200]}")
    return output
