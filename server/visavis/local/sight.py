"""What the engine can tell of the camera: brightness, main colours and the words in view.

No more: it has no model of pictures, so what it does not measure here it must not claim to see.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from threading import Event
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ModelError

Image = NDArray[np.uint8]
"Height, width, blue-green-red."

MAX_WORDS_CHARACTERS = 200
MAX_LINES = 12
_MIN_SCORE = 0.6
"OCR confidence below which a line is noise."
_MAX_SIDE = 1024
"Of the pictures that a call keeps."
_CANDIDATES = 6
"Frames of a turn that are looked at to find the sharpest."
_DARK, _DIM, _GLARING = 30, 80, 215
"Limits on the mean of the brightest channel, 0 … 255."
_MAIN_SHARE = 0.12
"Part of the picture a colour must cover to be named."

_LOOKING = {
    "en": r"see|look|looks|looking|read|camera|picture|show(?:ing|s|n)?|hold(?:ing)?|signs?|written|label|"
    r"colou?rs?|bright|dark|wear(?:ing)?|screen|poster|in view|visible|behind me|fingers?",
    "de": r"seh(?:en|t|e)|siehst|sieht|schau\w*|les(?:en|e)|liest|lies|kamera|bild|zeig\w*|halte|schild|"
    r"geschrieben|farben?|hell|dunkel|trage|bildschirm|hinter mir|finger",
    "fr": r"voi[st]|voir|voyez|regard\w*|li[ts]|lire|caméra|image|montr\w*|panneau|écrit|couleurs?|sombre|"
    r"porte|écran|derrière moi|doigts?",
    "es": r"ves|veo|ver|mir[ae]s?|lee[rs]?|cámara|imagen|muestr\w*|cartel|letrero|escrito|color(?:es)?|"
    r"oscuro|llevo|pantalla|detrás de mí|dedos?",
    "it": r"ved\w*|guard\w*|legg\w*|fotocamera|telecamera|immagine|mostr\w*|cartello|scritto|colori?|"
    r"scuro|indosso|schermo|dietro di me|dit[ao]",
}
_POINTING = {
    "en": r"this|these|those|here|(?:what|who|is|are)(?:'s| is| are)? that|text|words?|letters?|says?|page|"
    r"book|note|card|door|room|watch",
    "de": r"das|dies\w*|hier|text|steht|wort|wörter|seite|buch|zettel|karte|tür|raum|uhr",
    "fr": r"ça|ceci|cela|cette?|ces|ici|texte|mots?|dit|page|livre|carte|pièce|montre",
    "es": r"est[aeo]s?|es[aeo]s?|aquí|texto|palabras?|dice|página|libro|nota|tarjeta|puerta|reloj",
    "it": r"quest\w*|quell\w*|qui|testo|parol\w*|dice|pagina|libro|biglietto|porta|orologio",
}


def _patterns(words: dict[str, str]) -> dict[str, re.Pattern[str]]:
    return {code: re.compile(rf"\b(?:{choice})\b", re.IGNORECASE) for code, choice in words.items()}


_ASKS, _POINTS = _patterns(_LOOKING), _patterns(_POINTING)


class About(Enum):
    """Whether words are about what the camera shows."""

    NO = auto()
    MAYBE = auto()
    "Worth a look where there is a camera: that costs half a second, not looking an answer."
    YES = auto()


def asks_about_sight(text: str, language: str) -> About:
    """Judge by the words; in languages without a list nothing can be told, so MAYBE."""
    if language not in _ASKS:
        return About.MAYBE
    if _ASKS[language].search(text):
        return About.YES
    return About.MAYBE if _POINTS[language].search(text) else About.NO


@dataclass(frozen=True, slots=True)
class View:
    """What was measured in one frame."""

    brightness: str
    colours: tuple[str, ...]
    "One at least, largest area first."
    words: tuple[str, ...]
    "Lines of text as read; untrusted."

    def describe(self) -> str:
        """Write it as one line for the language model, the words quoted and bounded."""
        facts = [f"on, only colours and words known: {self.brightness}"]
        facts.append("mostly " + " and ".join(self.colours[:2]))
        facts += [f"also {colour}" for colour in self.colours[2:3]]
        quoted = ", ".join(f'"{words}"' for words in bounded(self.words))
        facts.append(f"words: {quoted}" if quoted else "no words")
        return ", ".join(facts)


class Sight:
    """Loaded once; `look` is for one thread at a time. Raises ModelError when OCR cannot be loaded."""

    def __init__(self, *, threads: int) -> None:
        try:
            import cv2
            from rapidocr import RapidOCR

            self._cv2: Any = cv2
            self._ocr: Any = RapidOCR(
                params={
                    "Global.log_level": "error",
                    # Pictures as they come: enlarged, as is the default, they cost three times as much.
                    "Det.limit_type": "max",
                    "Det.limit_side_len": _MAX_SIDE,
                    "EngineConfig.onnxruntime.intra_op_num_threads": threads,
                    "EngineConfig.onnxruntime.inter_op_num_threads": 1,
                }
            )
        except (ImportError, RuntimeError, ValueError, OSError) as error:
            raise ModelError(f"cannot load OCR: {error}; pip install 'visavis[local]'") from error
        self._ocr(np.full((360, 640, 3), 128, np.uint8), use_cls=False)

    def look(self, jpegs: Sequence[bytes], stop: Event) -> View | None:
        """Measure the sharpest frame; None when none can be decoded or `stop` is set in between."""
        image = self._sharpest(jpegs, stop)
        if image is None or stop.is_set():
            return None
        small = self._cv2.resize(image, (64, 48), interpolation=self._cv2.INTER_AREA)
        hsv = self._cv2.cvtColor(small, self._cv2.COLOR_BGR2HSV)
        if stop.is_set():
            return None
        return View(brightness(hsv), colours(hsv), self._read(image))

    def _sharpest(self, jpegs: Sequence[bytes], stop: Event) -> Image | None:
        cv2 = self._cv2
        chosen = np.unique(np.linspace(0, len(jpegs) - 1, min(len(jpegs), _CANDIDATES)).astype(int))
        best: tuple[float, bytes] | None = None
        for jpeg in (jpegs[int(i)] for i in chosen[::-1]):  # the newest wins a tie
            if stop.is_set():
                return None
            grey = self._decode(jpeg, cv2.IMREAD_REDUCED_GRAYSCALE_2)
            if grey is None:
                continue
            sharpness = float(cv2.Laplacian(grey, cv2.CV_32F).var())
            if best is None or sharpness > best[0]:
                best = sharpness, jpeg
        return None if best is None else self._decode(best[1], cv2.IMREAD_COLOR)

    def _decode(self, jpeg: bytes, how: int) -> Image | None:
        if not jpeg:
            return None
        try:
            image: Image | None = self._cv2.imdecode(np.frombuffer(jpeg, np.uint8), how)
        except self._cv2.error:
            return None
        return image

    def _read(self, image: Image) -> tuple[str, ...]:
        read = self._ocr(image, use_cls=False)
        found = zip(read.txts or (), read.scores or (), strict=True)
        return tuple(str(text) for text, score in found if score >= _MIN_SCORE and is_text(text))


def brightness(hsv: Image) -> str:
    """Name the brightness of a small picture in OpenCV's HSV (hue 0 … 179)."""
    mean = float(hsv[..., 2].mean())
    if mean < _DARK:
        return "very dark"
    if mean < _DIM:
        return "dim"
    return "very bright" if mean > _GLARING else "bright"


_HUES = ((8, "red"), (20, "orange"), (33, "yellow"), (80, "green"), (96, "turquoise"), (130, "blue"),
         (150, "purple"), (170, "pink"), (180, "red"))  # fmt: skip


def colours(hsv: Image) -> tuple[str, ...]:
    """Name up to three colours that cover most of a small HSV picture, the largest first."""
    hue, saturation, value = (hsv[..., i].ravel() for i in range(3))
    names = np.empty(len(hue), dtype="<U9")
    low = 0
    for high, name in _HUES:
        names[(hue >= low) & (hue < high)] = name
        low = high
    names[(hue >= 5) & (hue < 25) & (value < 170)] = "brown"
    names[saturation < 45] = "grey"
    names[(saturation < 45) & (value > 190)] = "white"
    names[value < 45] = "black"
    found, counts = np.unique(names, return_counts=True)
    order = np.argsort(-counts, kind="stable")[:3]
    return tuple(str(found[i]) for i in order if i == order[0] or counts[i] >= _MAIN_SHARE * len(names))


def is_text(text: str) -> bool:
    """Tell whether a line has enough letters or digits to be words rather than texture."""
    return sum(character.isalnum() for character in text) >= 2


def bounded(lines: Sequence[str]) -> list[str]:
    """Make lines of read text safe to quote: no quotation marks, brackets or controls, bounded length."""
    kept: list[str] = []
    left = MAX_WORDS_CHARACTERS
    for line in lines[:MAX_LINES]:
        printable = "".join(c if c.isprintable() and c not in '"“”„[]{}<>|' else " " for c in line)
        clean = " ".join(printable.split())[:left]
        left -= len(clean)
        if clean and kept and clean[0].islower():  # a sentence that goes on
            kept[-1] += f" {clean}"
        elif clean:
            kept.append(clean)
    return kept
