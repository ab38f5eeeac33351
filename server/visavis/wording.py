"""How a text ends: on a word that nobody ends on, or as sentences do. Sans-I/O.

The lists are of several languages at once and wary: no word that ends sentences in another of them.
"""

from enum import Enum, auto


class Ending(Enum):
    UNKNOWN = auto()
    DANGLING = auto()
    "On a conjunction, an article or a sound of hesitation: more must come."
    OPEN = auto()
    "On a comma, a dash or dots, or on a word that few sentences end on."
    CLOSED = auto()
    QUESTION = auto()


_HESITATIONS = "uh um er erm hmm hm äh ähm euh ehm eh este pues"
_NEVER_LAST = (
    "and or but because if although unless until than whose whether the an my your our their every like i'm "
    "we're they're you're he's she's it's gonna wanna "
    "und oder aber weil dass sondern obwohl wenn damit dem ein eine einen einem einer mein meine meinen "
    "dein deine im am vom zum zur ohne "
    "et mais parce que puisque lorsque la les une de aux ma mes ta tes notre votre avec dans sur je il elle "
    "c'est très "
    "y pero porque aunque mientras el los las unos unas del al mis sus nuestro con para por muy "
    "ed gli dei delle della nel nella di "
    "mas os uma dos com sem em "
    "maar omdat terwijl een mijn jouw voor zonder naar bij heel"
)
_SELDOM_LAST = (
    "about as at by for from in into of on to with without i we they he she when which "
    "der das den des die denn für gegen ich wir er ihre "
    "qui donc quand un chez pour nous leur cuando perché quando il lo ik van"
)
_DANGLING = frozenset(f"{_HESITATIONS} {_NEVER_LAST} {_SELDOM_LAST}".split())
_STRANDED = frozenset(_SELDOM_LAST.split())
"What a question may end on (where are you from?), and now and then a sentence."

_QUESTION = "?？¿؟"
_CLOSED = ".!。！।"
_OPEN = ",;:-–—…，、；：،"
_QUOTES = "\"'”“’»«)]）」』 "


def ending_of(text: str) -> Ending:
    """Tell how a text ends. Its language need not be known; of an unknown one the signs alone count."""
    bare = text.rstrip(_QUOTES)
    if not bare:
        return Ending.UNKNOWN
    sign = Ending.UNKNOWN
    if bare[-1] in _QUESTION:
        sign = Ending.QUESTION
    elif bare[-1] in _OPEN or bare.endswith(".."):
        sign = Ending.OPEN
    elif bare[-1] in _CLOSED:
        sign = Ending.CLOSED
    words = bare.rstrip(_QUESTION + _CLOSED + _OPEN + _QUOTES).lower().split()
    if not words:
        return Ending.UNKNOWN
    last = words[-1].replace("’", "'").strip(_QUOTES + _OPEN + "¡¿")
    if last not in _DANGLING or (last in _STRANDED and sign is Ending.QUESTION):
        return sign
    return Ending.OPEN if last in _STRANDED and sign is Ending.CLOSED else Ending.DANGLING
