"""Speech to text: Whisper on CTranslate2, with its own log-mel front end and without its inventions."""

import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..audio import FloatPcm, Pcm, level_dbfs, to_float
from ..errors import EngineLost, ModelError
from . import tongues

RATE = 16_000

_FFT = 400
_HOP = 160
_STRIDE = 320
"Samples behind one position of the encoder."
_MIN_WINDOW_S = 8.0
"Shorter windows make the decoder loop."
_MARGIN_S = 2.0
_MAX_WINDOW_S = 30.0
_MAX_CHUNK_S = 28.0
"Longer speech is cut at its quietest place before this."
_CUT_SEARCH_S = 6.0
_NO_SPEECH = 0.6
_INVENTED_SCORE = -1.0
"Mean log-probability below which a text over probable silence is an invention (Whisper's own limits)."
_SURE_LANGUAGE = 0.5
"A language less probable than this is overruled by what the caller spoke before."
_SILENT_DBFS = -65.0
"No microphone hears speech this faint; the model is not asked."
_TOKENS_PER_S = 8
"Faster than anyone talks: bounds a decoder that loops."

Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Heard:
    text: str
    "Empty where nobody spoke."
    language: str
    "Whisper's code, two letters mostly."


class Recogniser:
    """Loaded once; `recognise` is for one thread at a time.

    Raises ModelError when the folder holds no usable model.
    """

    def __init__(self, folder: Path, *, threads: int, language: str | None = None) -> None:
        import ctranslate2  # kept out of the parent process, which shares this package

        self._from_array = ctranslate2.StorageView.from_array
        self._language = language
        try:
            self._model: Any = ctranslate2.models.Whisper(  # untyped extension module
                str(folder), device="cpu", compute_type="int8", intra_threads=threads, inter_threads=1
            )
        except (RuntimeError, ValueError, OSError) as error:
            raise ModelError(f"cannot load the Whisper model in {folder}: {error}") from error
        self._filters = _mel_filters(int(getattr(self._model, "n_mels", 80)))
        self._multilingual = bool(self._model.is_multilingual)

    def recognise(self, pcm: Pcm, *, hint: str | None = None, stop: Event | None = None) -> Heard:
        """Write down `pcm` (16 kHz), looking at `stop` between steps of at most one chunk.

        `hint` is the language to assume when it cannot be told. A stopped call returns what it has.
        """
        language = self._language or (None if self._multilingual else tongues.ENGLISH)
        texts: list[str] = []
        for chunk in split_speech(pcm):
            if stop is not None and stop.is_set():
                break
            if level_dbfs(chunk) < _SILENT_DBFS:
                continue
            seconds = len(chunk) / RATE
            window = int(min(_MAX_WINDOW_S, max(_MIN_WINDOW_S, seconds + _MARGIN_S)) * RATE)
            mel = log_mel(to_float(chunk), window // _STRIDE * _STRIDE, self._filters)
            try:
                encoded = self._model.encode(self._from_array(np.ascontiguousarray(mel[None])))
                if stop is not None and stop.is_set():
                    break
                language = language or self._detect(encoded, hint)
                text = self._decode(encoded, language, seconds)
            except (RuntimeError, ValueError) as error:
                raise EngineLost(f"the recogniser failed: {error}") from error
            if text:
                texts.append(text)
        return Heard(" ".join(texts), language or hint or tongues.ENGLISH)

    def _detect(self, encoded: Any, hint: str | None) -> str:
        guesses = ((str(token)[2:-2], float(p)) for token, p in self._model.detect_language(encoded)[0])
        # Latin, Hawaiian and the like come up for mumbled words rather than for their speakers.
        code, probability = next(guess for guess in guesses if guess[0] in tongues.NAMES)
        return code if probability >= _SURE_LANGUAGE or hint is None else hint

    def _decode(self, encoded: Any, language: str, seconds: float) -> str:
        prompt = ["<|startoftranscript|>"]
        if self._multilingual:
            prompt += [f"<|{language}|>", "<|transcribe|>"]
        result = self._model.generate(
            encoded,
            [[*prompt, "<|notimestamps|>"]],
            beam_size=1,
            max_length=24 + int(seconds * _TOKENS_PER_S),
            return_scores=True,
            return_no_speech_prob=True,
            suppress_blank=True,
        )[0]
        if result.no_speech_prob > _NO_SPEECH and result.scores[0] < _INVENTED_SCORE:
            return ""
        return tidy(_from_tokens(result.sequences[0]))


def split_speech(pcm: Pcm) -> list[Pcm]:
    """Cut 16 kHz audio at its quietest places into chunks that fit the model's window."""
    longest, search, hop = int(_MAX_CHUNK_S * RATE), int(_CUT_SEARCH_S * RATE), RATE // 10
    chunks = []
    while len(pcm) > longest:
        tail = pcm[longest - search : longest].astype(np.float32).reshape(-1, hop)
        cut = longest - search + int(np.argmin(np.square(tail).mean(axis=1))) * hop + hop // 2
        chunks.append(pcm[:cut])
        pcm = pcm[cut:]
    return [*chunks, pcm] if len(pcm) else chunks


_LOOP = re.compile(r"(?P<unit>\b\S.{0,80}?)(?:[\s,.!?]+(?P=unit)\b){5,}", re.IGNORECASE)
_NOTE = re.compile(r"^\s*(?:[\[(*♪][^\])*♪]*[\])*♪]\s*)+$")


def tidy(text: str) -> str:
    """Cut what the decoder says six times or more in a row to once; drop mere notes such as "[Music]"."""
    text = " ".join(text.split())
    if _NOTE.match(text):
        return ""
    return _LOOP.sub(lambda match: match["unit"], text)


@lru_cache(maxsize=4)
def _mel_filters(bands: int) -> Floats:
    """Triangular filters on Slaney's mel scale, each of unit area; shape (bands, 201)."""

    def to_mel(hz: NDArray[np.float64]) -> NDArray[np.float64]:
        # Linear below 1 kHz, logarithmic above.
        high = 15 + np.log(np.maximum(hz, 1e-9) / 1000) / (np.log(6.4) / 27)
        return np.where(hz < 1000, hz * 3 / 200, high)

    def to_hz(mel: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.where(mel < 15, mel * 200 / 3, 1000 * np.exp(np.log(6.4) / 27 * (mel - 15)))

    low, high = to_mel(np.array([0.0, RATE / 2]))
    edges = to_hz(np.linspace(low, high, bands + 2))
    bins = np.fft.rfftfreq(_FFT, 1 / RATE)
    rising = (bins[None] - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
    falling = (edges[2:, None] - bins[None]) / (edges[2:] - edges[1:-1])[:, None]
    height = 2 / (edges[2:] - edges[:-2])[:, None]
    return (np.maximum(0, np.minimum(rising, falling)) * height).astype(np.float32)


def log_mel(samples: FloatPcm, length: int, filters: Floats) -> Floats:
    """Compute Whisper's features of 16 kHz audio, padded with silence to `length` samples.

    Returns shape (bands, length / 160), as in Radford et al. 2022, section 2.2.
    """
    padded = np.zeros(length, np.float32)
    padded[: len(samples)] = samples[:length]
    padded = np.pad(padded, _FFT // 2, mode="reflect")
    window = np.hanning(_FFT + 1)[:-1].astype(np.float32)
    frames = np.lib.stride_tricks.sliding_window_view(padded, _FFT)[::_HOP][:-1]
    power = np.abs(np.fft.rfft(frames * window, axis=1)).astype(np.float32) ** 2
    loudness = np.log10(np.maximum(power @ filters.T, 1e-10)).T
    loudness = np.maximum(loudness, loudness.max() - 8)
    features: Floats = ((loudness + 4) / 4).astype(np.float32)
    return features


@lru_cache(maxsize=1)
def _byte_of_character() -> dict[str, int]:
    """Invert GPT-2's spelling of bytes as printable characters."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    return {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(others)}


def _from_tokens(tokens: list[str]) -> str:
    table = _byte_of_character()
    text = "".join(token for token in tokens if not (token.startswith("<|") and token.endswith("|>")))
    return bytes(table.get(character, 32) for character in text).decode("utf-8", "replace").strip()
