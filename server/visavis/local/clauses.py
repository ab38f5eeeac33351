"""Cut a stream of text into clauses worth speaking. Sans-I/O.

The first clause is short, so that a voice is heard early; the rest are sentences, so that it sounds
natural. For text that is written hardly faster than it is spoken, the first clause may be a mere phrase.
Clauses put together again are the text, to the character.
"""

import re

FIRST_CHARACTERS = 12
"A first clause is at least so long: shorter ones sound clipped."
FIRST_WORDS = 10
"A first clause that no punctuation ends is cut after so many words."
PHRASE_WORDS = 3
"A first phrase has at least so many: a second of sound, in which a small model writes the next one."
NEXT_PHRASE_WORDS = 8
"The clause after a first phrase may be a phrase too, from here on: it has to be there in time."
FIRST_WIDE_CHARACTERS = 6
"The same for scripts without spaces, whose characters say more."
MAX_CHARACTERS = 240
"A sentence this long is spoken up to its last pause, or word."

_SHORT_ENDS = ("!", "?")
"Where speech may begin within a sentence, a call such as Sure! is a clause however short."
_QUOTES = "\"'”’»)\\]"
_SENTENCE = re.compile(rf"[.!?…][{_QUOTES}]*\s+|[。！？]+[」』”]*\s*")
_PAUSE = re.compile(rf"[.!?…,;:—–][{_QUOTES}]*\s+|[。！？，、；：]+\s*")
_WORDS = re.compile(rf"\s*(?:\S+\s+){{{FIRST_WORDS}}}")
_FUNCTION = (
    "about|after|although|am|and|are|as|at|because|before|but|by|can|could|did|do|does|"
    "during|equals|for|from|had|has|have|he|his|how|i|if|in|into|is|its|may|might|must|"
    "my|nor|of|on|or|our|over|she|should|since|the|their|they|though|through|under|"
    "unless|until|was|we|were|what|when|where|which|while|who|why|will|with|without|would|"
    "your"
)
"English; and a verb that short answers are made with."
_CLINGING = "a|an|be|been|her|him|it|me|no|not|so|than|that|them|these|this|those|to|us|very|you"
"Function words before which nobody takes breath, or which may end a sentence."
_PHRASE = re.compile(rf"(?<=\w)\s+(?=(?:{_FUNCTION})(?:\s|$))", re.IGNORECASE)
_NO_CONTENT = re.compile(rf"(?:{_FUNCTION}|{_CLINGING})", re.IGNORECASE)
_PROVEN = re.compile(r"[^\W\d_]{2}\.$")
"A full stop after letters, which are no abbreviation; after a digit it may be a decimal point."
_LAST_WORD = re.compile(r"(\S+)\.\s*$")
_ABBREVIATION = re.compile(
    r"mr|mrs|ms|dr|prof|sr|jr|st|mt|vs|etc|e\.g|i\.e|approx|vol|inc|ltd|u\.s|u\.k|a\.m|p\.m|"
    r"z\.b|bzw|usw|ca|nr|hr|fr|mme|sra|[^\W\d_]",
    re.IGNORECASE,
)
"Single letters are initials."


class ClauseSplitter:
    """Feed it text as it comes; each call returns the clauses that are now whole."""

    def __init__(self, *, phrases: bool = False) -> None:
        """With `phrases` speech may begin within a sentence, which sounds a little less natural."""
        self._buffer = ""
        self._first = True
        self._phrases = phrases
        self._phrase_words = PHRASE_WORDS if phrases else 0
        "The next clause may be a phrase of so many words; 0: it may not."

    def feed(self, text: str) -> list[str]:
        self._buffer += text
        clauses = []
        while end := self._end():
            clauses.append(self._buffer[:end])
            self._buffer = self._buffer[end:]
            self._go_on(clauses[-1])
        return clauses

    def flush(self) -> str:
        """Return what is left, which may be empty."""
        rest, self._buffer = self._buffer, ""
        return rest

    def _go_on(self, clause: str) -> None:
        """Choose how the clause after this one may end."""
        said = clause.strip()
        if self._phrases and self._first and len(said) < FIRST_CHARACTERS and said[-1:] in _SHORT_ENDS:
            return  # what follows is needed as soon
        within = self._phrase_words == PHRASE_WORDS and not _PAUSE.search(f"{clause} ")
        self._first = False
        self._phrase_words = NEXT_PHRASE_WORDS if within else 0

    def _end(self) -> int:
        """Find where the next clause ends; 0 while it does not."""
        if self._first or self._phrase_words:
            for match in _PAUSE.finditer(self._buffer):
                said = self._buffer[: match.end()].strip()
                if self._phrases and said[-1] in _SHORT_ENDS:
                    return match.end()
                least = FIRST_WIDE_CHARACTERS if said[-1] in "。！？，、；：" else FIRST_CHARACTERS
                if len(said) >= least and not _abbreviated(said):
                    return match.end()
            if self._phrase_words and (end := self._phrase_end()):
                return end
            if self._phrases and self._is_whole():
                return len(self._buffer)
            if words := _WORDS.match(self._buffer):
                return words.end()
        else:
            for match in _SENTENCE.finditer(self._buffer):
                if not _abbreviated(self._buffer[: match.end()]):
                    return match.end()
        return self._forced_end() if len(self._buffer) > MAX_CHARACTERS else 0

    def _phrase_end(self) -> int:
        """Find a word of content before a function word, between which phrases of speech mostly end.

        Liberman & Church 1992, "Text analysis and word pronunciation in text-to-speech synthesis": chinks
        and chunks.
        """
        for match in _PHRASE.finditer(self._buffer):
            said = self._buffer[: match.start()].split()
            if len(said) >= self._phrase_words and not _NO_CONTENT.fullmatch(said[-1]):
                return match.end()
        return 0

    def _is_whole(self) -> bool:
        """Tell whether all there is is a sentence. A space behind it would prove it, but takes a token."""
        said = self._buffer.strip()
        if said[-1:] in _SHORT_ENDS:
            return True
        whole = len(said) >= FIRST_CHARACTERS and _PROVEN.search(said) is not None
        return whole and not _abbreviated(said)

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
