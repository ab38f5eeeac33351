"""Which words of a spoken reply were heard: its text beside its audio. Sans-I/O."""

import unicodedata
from itertools import pairwise

from .audio import RATE

_SECONDS = 1 / 15
"Speech takes so long per letter, about 180 words a minute."

_SECONDS_WIDE = 1 / 4.5
"Per syllable of the scripts with a sign for each (East Asian wide)."

_TOO_FAST = 2.0
"Nobody speaks so many times faster than that: such text ran ahead of its audio."

_UNSPACED = ("CJK", "HIRAGANA", "KATAKANA", "IDEOGRAPHIC", "THAI", "LAO", "KHMER", "MYANMAR", "TIBETAN")
"First words of Unicode names of the scripts that put no spaces between words."

_JOINER = "\u200d"
_EXTENDING = (_JOINER, "\u0e33", "\u0eb3")
"Belong to the character before them without being marks: the joiner, and the AM of Thai and of Lao."


class SpokenText:
    """The text of a reply and how much audio came with each stretch of it.

    An engine that speaks clause by clause sends each text before its audio: a text that comes after audio
    begins a stretch, and stretches are placed exactly. In one that speaks as it writes (Qwen3-Omni) the
    text runs ahead; that shows as more text than anybody could speak in the audio of a stretch, and then
    the reply is one stretch. Within a stretch text is taken to be spoken evenly.
    """

    def __init__(self) -> None:
        self.text = ""
        self.samples = 0
        self._marks = [(0, 0)]
        "Where stretches begin: characters of text, samples of audio."

    def extend(self, text: str, samples: int) -> None:
        """Add text and the audio (samples at 24 kHz) that came after it; either may be nothing."""
        if text and self.samples > self._marks[-1][1]:
            self._marks.append((len(self.text), self.samples))
        self.text += text
        self.samples += samples

    def heard(self, samples: int, *, whole: bool) -> str:
        """Return the words spoken within the first `samples` of audio.

        Of a reply that is not `whole` the audio to come for the last stretch is estimated from its text.
        """
        if samples <= 0:
            return ""
        marks = [*self._marks, (len(self.text), self.samples)]
        closed = pairwise(marks if whole else marks[:-1])
        if any(_TOO_FAST * (b - a) < _duration(self.text[i:j]) for (i, a), (j, b) in closed):
            marks = [marks[0], marks[-1]]
        if not whole:
            i, a = marks[-2]
            marks[-1] = (len(self.text), max(self.samples, a + _duration(self.text[i:])))
        for (i, a), (j, b) in pairwise(marks):
            if samples < b:
                return until_word(self.text, i + (j - i) * (samples - a) // (b - a))
        return self.text


def until_word(text: str, length: int) -> str:
    """Cut text to at most `length` characters, back to the end of a word.

    Where a script puts no spaces between words, to the end of a character with its combining marks.
    """
    if length >= len(text):
        return text
    while length > 0 and not _parts_words(text[length - 1], text[length]):
        length -= 1
    return text[:length].rstrip()


def _parts_words(before: str, after: str) -> bool:
    if before.isspace() or after.isspace():
        return True
    if before == _JOINER or after in _EXTENDING or unicodedata.category(after).startswith("M"):
        return False
    return _is_unspaced(before) or _is_unspaced(after)


def _is_unspaced(character: str) -> bool:
    return unicodedata.name(character, "").startswith(_UNSPACED)


def _duration(text: str) -> int:
    """Estimate how long a text takes to speak, in samples at 24 kHz."""
    wide = sum(unicodedata.east_asian_width(character) in "WF" for character in text)
    return round((wide * _SECONDS_WIDE + (len(text) - wide) * _SECONDS) * RATE)
