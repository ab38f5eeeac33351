"""What the end of a call kept the assistant from saying, and how the next call says it. Sans-I/O."""

from dataclasses import dataclass

_REST = (
    '(The connection was lost while you spoke. The end of your answer was not heard; it was: "{text}" '
    "Say exactly that now, and nothing about the interruption.)"
)
_ON = (
    "(The connection was lost while you spoke, and your answer breaks off there. Go on with it from the "
    "next word, in the same language, and say nothing about the interruption.)"
)
_ON_WITH = (
    "(The connection was lost while you spoke, and your answer breaks off there. It was going on with: "
    '"{text}" Go on from there, in the same language, and say nothing about the interruption.)'
)


@dataclass(frozen=True, slots=True)
class Unsaid:
    """An answer that was owed, or broken off, when a call was lost."""

    begun: bool = False
    "Some of it is known: it is gone on with. If not, it is asked for again."
    text: str = ""
    "Its words from the first that was not heard, as far as the engine had written them."
    whole: bool = False
    "There were to be none after them."
    spoken: bool = True
    "To be heard; if not, to be read."

    @property
    def prompt(self) -> str:
        """What an engine that cannot say a given text is told, "" if there is nothing to go on with."""
        if not self.begun:
            return ""
        if not self.text:
            return _ON
        return (_REST if self.whole else _ON_WITH).format(text=self.text)
