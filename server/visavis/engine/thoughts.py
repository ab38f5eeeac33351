"""What a Thinking model thinks told apart from what it says, however its stream is cut. Sans-I/O.

Thoughts stand between `<think>` and `</think>`. The chat template of Qwen3's Thinking models writes the
opening tag into the prompt, so that an answer begins within a thought. A server with a reasoning parser
takes the tags off and sends thoughts in a field of their own.
"""

import re

from . import TextDelta, ThinkingDelta

_OPENING = "<think>"
_CLOSING = "</think>"
_TAG = re.compile(f"{_OPENING}|{_CLOSING}")

Told = TextDelta | ThinkingDelta


class ThoughtSplitter:
    """Sorts the text of one answer. The tags, and the blank lines after a thought, belong to neither."""

    def __init__(self, *, thinking: bool) -> None:
        """`thinking`: the text begins within a thought, whether or not a tag says so."""
        self.thinking = thinking
        "What comes next is a thought."
        self._held = ""
        "May be the beginning of a tag."
        self._trimming = thinking

    def receive(self, text: str) -> list[Told]:
        """Take more of the text."""
        text = self._held + text
        told: list[Told] = []
        while tag := _TAG.search(text):
            told += self._told(text[: tag.start()])
            self.thinking = tag[0] == _OPENING
            self._trimming = True
            text = text[tag.end() :]
        free = len(text) - _begun(text)
        self._held = text[free:]
        return told + self._told(text[:free])

    def receive_thought(self, text: str) -> list[Told]:
        """Take what the server itself calls a thought; then it is the server that takes the tags off."""
        told = self.finish()
        self.thinking = False
        self._trimming = True
        return [*told, ThinkingDelta(text)]

    def finish(self) -> list[Told]:
        """Take the end of the text: what was held back is no tag."""
        held, self._held = self._held, ""
        return self._told(held)

    def _told(self, text: str) -> list[Told]:
        if self.thinking:
            return [ThinkingDelta(text)] if text else []
        if self._trimming:
            text = text.lstrip()
            self._trimming = not text
        return [TextDelta(text)] if text else []


def _begun(text: str) -> int:
    """Return how many characters at the end of a text may be the beginning of a tag."""
    lengths = range(min(len(text), len(_CLOSING) - 1), 0, -1)
    return next((n for n in lengths if any(tag.startswith(text[-n:]) for tag in (_OPENING, _CLOSING))), 0)
