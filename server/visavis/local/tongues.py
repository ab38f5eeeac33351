"""Human languages: their names, what a text without sound is probably written in. Sans-I/O."""

import re

ENGLISH = "en"

NAMES = {
    "ar": "Arabic", "bg": "Bulgarian", "bn": "Bengali", "ca": "Catalan", "cs": "Czech", "cy": "Welsh",
    "da": "Danish", "de": "German", "el": "Greek", "en": "English", "es": "Spanish", "et": "Estonian",
    "eu": "Basque", "fa": "Persian", "fi": "Finnish", "fr": "French", "gl": "Galician", "he": "Hebrew",
    "hi": "Hindi", "hr": "Croatian", "hu": "Hungarian", "hy": "Armenian", "id": "Indonesian",
    "is": "Icelandic", "it": "Italian", "ja": "Japanese", "ka": "Georgian", "kk": "Kazakh", "ko": "Korean",
    "lt": "Lithuanian", "lv": "Latvian", "mk": "Macedonian", "ms": "Malay", "nl": "Dutch",
    "no": "Norwegian", "pl": "Polish", "pt": "Portuguese", "ro": "Romanian", "ru": "Russian",
    "sk": "Slovak", "sl": "Slovenian", "sq": "Albanian", "sr": "Serbian", "sv": "Swedish",
    "sw": "Swahili", "ta": "Tamil", "te": "Telugu", "th": "Thai", "tr": "Turkish", "uk": "Ukrainian",
    "ur": "Urdu", "vi": "Vietnamese", "zh": "Chinese",
}  # fmt: skip
"Whisper's codes of the languages that the language model can be told to answer in."

_SCRIPTS = (
    (re.compile(r"[\u3040-\u30ff]"), "ja"),
    (re.compile(r"[\uac00-\ud7af]"), "ko"),
    (re.compile(r"[\u4e00-\u9fff]"), "zh"),
    (re.compile(r"[їієґЇІЄҐ]"), "uk"),
    (re.compile(r"[\u0400-\u04ff]"), "ru"),
    (re.compile(r"[\u0370-\u03ff]"), "el"),
    (re.compile(r"[\u0590-\u05ff]"), "he"),
    (re.compile(r"[\u0600-\u06ff]"), "ar"),
    (re.compile(r"[\u0900-\u097f]"), "hi"),
    (re.compile(r"[\u0e00-\u0e7f]"), "th"),
)
_COMMON_ENGLISH = re.compile(
    "the|a|an|is|are|am|was|be|to|of|and|in|on|at|it|i|you|he|she|we|they|that|this|have|has|do|does|can|"
    "not|no|yes|for|with|my|your|what|how|i'm|it's|don't|there|here|would|will|so|but|or|if|as"
)
_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")


def of_script(text: str) -> str | None:
    """Tell the language of a text by its script alone; None for Latin letters or none at all."""
    return next((code for script, code in _SCRIPTS if script.search(text)), None)


def looks_english(text: str) -> bool:
    """Tell whether enough of the words are English ones to be read by an English voice."""
    words = [word.lower().replace("’", "'") for word in _WORD.findall(text)]
    return bool(words) and 4 * sum(_COMMON_ENGLISH.fullmatch(word) is not None for word in words) >= len(
        words
    )
