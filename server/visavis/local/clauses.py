"""Cut a stream of text into clauses worth speaking. Sans-I/O.

The first clause is short, so that a voice is heard early; the rest are sentences, so that it sounds
natural. Clauses put together again are the text, to the character.
"""

import re

FIRST_CHARACTERS = 12
"A first clause is at least so long: shorter ones sound clipped."
FIRST_WORDS = 10
"A first clause that no punctuation ends is cut after so many words."
FIRST_WIDE_CHARACTERS = 6
"The same for scripts without spaces, whose characters say more."
MAX_CHARACTERS = 240
"A sentence this long is spoken up to its last pause, or word."

_QUOTES = "\"'”’»)\\]"
_SENTENCE = re.compile(rf"[.!?…][{_QUOTES}]*\s+|[。！？]+[」』”]*\s*")
_PAUSE = re.compile(rf"[.!?…,;:—–][{_QUOTES}]*\s+|[。！？，、；：]+\s*")
_WORDS = re.compile(rf"\s*(?:\S+\s+){{{FIRST_WORDS}}}")
_LAST_WORD = re.compile(r"(\S+)\.\s*$")
_ABBREVIATION = re.compile(
    r"mr|mrs|ms|dr|prof|sr|jr|st|mt|vs|etc|e\.g|i\.e|approx|vol|inc|ltd|u\.s|u\.k|a\.m|p\.m|"
    r"z\.b|bzw|usw|ca|nr|hr|fr|mme|sra|[^\W\d_]",
    re.IGNORECASE,
)
"Single letters are initials."


class ClauseSplitter:
    """Feed it text as it comes; each call returns the clauses that are now whole."""

    def __init__(self) -> None:
        self._buffer = ""
        self._first = True

    def feed(self, text: str) -> list[str]:
        self._buffer += text
        clauses = []
        while end := self._end():
            clauses.append(self._buffer[:end])
            self._buffer = self._buffer[end:]
            self._first = False
        return clauses

    def flush(self) -> str:
        """Return what is left, which may be empty."""
        rest, self._buffer = self._buffer, ""
        return rest

    def _end(self) -> int:
        """Find where the next clause ends; 0 while it does not."""
        if self._first:
            for match in _PAUSE.finditer(self._buffer):
                said = self._buffer[: match.end()].strip()
                least = FIRST_WIDE_CHARACTERS if said[-1] in "。！？，、；：" else FIRST_CHARACTERS
                if len(said) >= least and not _abbreviated(said):
                    return match.end()
            if words := _WORDS.match(self._buffer):
                return words.end()
        else:
            for match in _SENTENCE.finditer(self._buffer):
                if not _abbreviated(self._buffer[: match.end()]):
                    return match.end()
        return self._forced_end() if len(self._buffer) > MAX_CHARACTERS else 0

    def _forced_end(self) -> int:
        start = self._buffer[:MAX_CHARACTERS]
        pauses = [match.end() for match in _PAUSE.finditer(start)]
        words = [match.end() for match in re.finditer(r"\s+", start)]
        return max(pauses, default=0) or max(words, default=0) or len(start)


def _abbreviated(said: str) -> bool:
    """Tell whether the full stop at the end belongs to an abbreviation or an initial."""
    match = _LAST_WORD.search(said)
    if match is None:
        return False
    word = match[1].lstrip("(\"'“‘«")
    return word != "I" and _ABBREVIATION.fullmatch(word) is not None
