"""Answer by rule, not by model, what asks for more than the engine can see. Sans-I/O.

A small language model that is asked what somebody holds invents something, whatever it was told. Such
questions are known by their words, and get what was measured and no more.
"""

import re
from dataclasses import dataclass

from .sight import View, bounded

_MAX_SPOKEN_LINES = 4


@dataclass(frozen=True, slots=True)
class _Phrases:
    """How one language asks for people and things in view, and how it is told what is known."""

    asks: re.Pattern[str]
    reads: re.Pattern[str]
    "Asks for words, colours or light, which are known: left to the language model."
    off: str
    view: str
    mostly: str
    conjunction: str
    says: str
    no_words: str
    names: dict[str, str]
    "Of brightness and colours; those left out are spoken as they are."


def _ask(*choices: str) -> re.Pattern[str]:
    return re.compile(rf"\b(?:{'|'.join(choices)})", re.IGNORECASE)


_PHRASES = {
    "en": _Phrases(
        asks=_ask(
            r"what (?:else )?(?:can|do|did|could) you (?:\w+ )?see\b",
            r"(?:can|could|do) you (?:\w+ )?see(?:\s*[?.!]*$| (?:me|my|us|him|her|it|this|these|anyone|"
            r"anybody|anything|something|a|an|any|the (?:man|woman|person|people|dog|cat|room|picture))\b)",
            r"describe (?:what you see|me\b|my\b|this\b|the (?:picture|image|room|scene|view)\b)",
            r"what (?:am i|i'm|i am) (?:holding|wearing|doing|showing|pointing)\b",
            r"how many (?:\w+ ){1,3}(?:am i|are (?:there )?(?:behind|here|in the (?:picture|image|room))|"
            r"(?:can|do) you see)\b",
            r"(?:how do i look|what do i look like|do i look)\b",
            r"(?:is|are) there .*\b(?:behind|in front|next to|beside|"
            r"in the (?:picture|image|room|background))\b",
            r"(?:who|what)(?:'s| is| are) .*\b(?:behind me|next to me|in front of me|in my hands?|"
            r"in the (?:picture|image|background))\b",
            r"what(?:'s| is| are) (?:this|these|that thing)(?: thing| object| here)?\s*[?.!]*$",
        ),
        reads=_ask(
            r"(?:reads?|says?|written|texts?|words?|letters?|signs?|labels?|numbers?|colou?rs?|bright|dark|light)\b"
        ),
        off="I can't see anything, because your camera is off.",
        view="I can't make out people or things, only colours and words.",
        mostly="It is {}, mostly {},",
        conjunction=" and ",
        says="and it says: {}.",
        no_words="and I find no words in it.",
        names={},
    ),
    "de": _Phrases(
        asks=_ask(
            r"was (?:siehst|sehen sie)\b",
            r"(?:siehst du|kannst du|können sie) (?:\w+ )?(?:mich|das|dies\w*|etwas|jemanden|ein\w*)\b.*",
            r"beschreib\w* (?:was|mich|mein\w*|das bild|den raum)\b",
            r"was (?:halte|trage|zeige|mache) ich\b",
            r"wie viele .*\b(?:siehst|halte|sind (?:hier|hinter|im bild))\b",
            r"wie sehe ich aus\b",
            r"(?:ist|sind|steht) .*\b(?:hinter mir|neben mir|vor mir|im bild|in meiner hand)\b",
            r"was ist (?:das|dies) hier\s*[?.!]*$",
        ),
        reads=_ask(r"(?:les\w*|liest|lies|geschrieben|wort|wörter|text|schild\w*|farbe\w*|hell|dunkel)\b"),
        off="Ich kann nichts sehen, weil deine Kamera aus ist.",
        view="Menschen und Dinge kann ich nicht erkennen, nur Farben und Wörter.",
        mostly="Es ist {}, vor allem {},",
        conjunction=" und ",
        says="und da steht: {}.",
        no_words="und ich finde keine Wörter darin.",
        names={
            "very dark": "sehr dunkel",
            "dim": "dämmrig",
            "bright": "hell",
            "very bright": "sehr hell",
            "red": "rot",
            "brown": "braun",
            "yellow": "gelb",
            "green": "grün",
            "turquoise": "türkis",
            "blue": "blau",
            "purple": "violett",
            "pink": "rosa",
            "white": "weiß",
            "grey": "grau",
            "black": "schwarz",
        },
    ),
    "fr": _Phrases(
        asks=_ask(
            r"(?:qu'est-ce que|que|qu’est-ce que) (?:tu vois|vois-tu|vous voyez|voyez-vous)\b",
            r"(?:tu me vois|tu peux me voir|peux-tu me voir|me vois-tu)\b",
            r"décri\w* (?:ce que|moi|l'image|la pièce)\b",
            r"qu(?:'|’)est-ce que je (?:tiens|porte|montre|fais)\b",
            r"combien .*\b(?:vois|voyez|dans l'image|derrière moi)\b",
            r"(?:y a-t-il|il y a|qui est) .*\b(?:derrière moi|devant moi|dans ma main|dans l'image)\b",
        ),
        reads=_ask(r"(?:li[ts]|lire|écrit\w*|mots?|texte|panneau|couleurs?|sombre|clair)\b"),
        off="Je ne vois rien, parce que ta caméra est éteinte.",
        view="Je ne reconnais ni les personnes ni les objets, seulement les couleurs et les mots.",
        mostly="C'est {}, surtout {},",
        conjunction=" et ",
        says="et c'est écrit : {}.",
        no_words="et je n'y trouve pas de mots.",
        names={
            "very dark": "très sombre",
            "dim": "sombre",
            "bright": "clair",
            "very bright": "très clair",
            "red": "rouge",
            "brown": "marron",
            "yellow": "jaune",
            "green": "vert",
            "blue": "bleu",
            "purple": "violet",
            "pink": "rose",
            "white": "blanc",
            "grey": "gris",
            "black": "noir",
        },
    ),
    "es": _Phrases(
        asks=_ask(
            r"qué (?:ves|puedes ver|ve usted)\b",
            r"(?:me ves|puedes verme|me puedes ver)\b",
            r"describe (?:lo que|la imagen|la habitación)\b|descríbeme\b",
            r"qué (?:tengo|llevo|estoy)\b",
            r"cuánt[ao]s .*\b(?:ves|hay|levanto)\b",
            r"(?:hay|quién está|qué hay) .*\b(?:detrás de mí|delante de mí|en mi mano|en la imagen)\b",
        ),
        reads=_ask(r"(?:le[eo]\w*|escrito|palabras?|texto|cartel|letrero|color\w*|oscuro|claro)\b"),
        off="No veo nada, porque tu cámara está apagada.",
        view="No distingo personas ni cosas, solo colores y palabras.",
        mostly="Está {}, sobre todo {},",
        conjunction=" y ",
        says="y dice: {}.",
        no_words="y no encuentro palabras.",
        names={
            "very dark": "muy oscuro",
            "dim": "oscuro",
            "bright": "claro",
            "very bright": "muy claro",
            "red": "rojo",
            "orange": "naranja",
            "brown": "marrón",
            "yellow": "amarillo",
            "green": "verde",
            "turquoise": "turquesa",
            "blue": "azul",
            "purple": "morado",
            "pink": "rosa",
            "white": "blanco",
            "grey": "gris",
            "black": "negro",
        },
    ),
}


def asks_for_things(words: str, language: str) -> bool:
    """Tell whether `words` ask for people or things in view. False for languages without phrases."""
    phrases = _PHRASES.get(language)
    return phrases is not None and bool(phrases.asks.search(words)) and not phrases.reads.search(words)


def honest_answer(language: str, view: View | None) -> str:
    """Tell what is known of the picture; `view` is None when the camera sends nothing."""
    phrases = _PHRASES[language]
    if view is None:
        return phrases.off
    brightness = phrases.names.get(view.brightness, view.brightness)
    colours = phrases.conjunction.join(phrases.names.get(name, name) for name in view.colours[:2])
    lines = [line.rstrip(".,;:!?") for line in bounded(view.words)[:_MAX_SPOKEN_LINES]]
    told = phrases.says.format(", ".join(lines)) if lines else phrases.no_words
    return f"{phrases.view} {phrases.mostly.format(brightness, colours)} {told}"
