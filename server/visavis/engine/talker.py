"""Whether what a Talker says can be the speech of its text: derailed, cut off, repeating, silent. Sans-I/O.

Qwen3-Omni's Talker at times goes on after its text has ended, stops in the middle, says one stretch again
and again, or falls silent while the text is right (vllm-omni #6090, #2953, #7474). Text is worth more than
sound here: from the first fault on, the sound is cut and the rest of the text can be spoken otherwise.
"""

import re
import unicodedata
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from ..audio import EMPTY, RATE, Pcm
from ..config import TalkerConfig
from ..local.clauses import ClauseSplitter
from ..spoken import SpokenText

_WIDE = 3
"Letters that a sign of the East Asian scripts takes as long to say as."
_DIGIT = 4
"The same of a digit, which is read out as a word."
_ENOUGH = 0.75
"A clause of which so much was said is not said again."

_BLOCK = RATE // 50
"Samples of 20 ms: the step of all measures here."
_QUIET = 32_768 * 10 ** (-60 / 20)
"RMS below which a block is digital silence: no voice and no room is so quiet."

_TEXT_LOOP = re.compile(r"(\b\w.{0,80}?)(?:[\s,.!?…–—-]+\1\b){2,}", re.IGNORECASE)


class Fault(Enum):
    """What is wrong with speech. The values are names for counters and logs."""

    DERAILED = "derailed"
    "Much longer than its text."
    TRUNCATED = "truncated"
    "Over long before its text."
    REPEATED = "repeated"
    "One stretch of sound three times or more."
    SILENT = "silent"
    "Nothing for long, and not at its end."


class TalkerGuard:
    """Judges one answer: give it text and sound as they come, `finish` at the end.

    Speech of 4 to 40 letters a second with pauses shorter than `max_silence_s` is never cut. A fault is
    found within so much sound: silence in `max_silence_s`; a stretch of 0.5 to 2 s that is said again and
    again in three times its length, 4 s at least, and 0.2 s; sound without text `grace_s` after the longest
    that the text could take; an early end at `finish`.
    """

    def __init__(self, config: TalkerConfig) -> None:
        self.fault: Fault | None = None
        self._config = config
        self._spoken = SpokenText()
        self._slow = 0
        "What the text counts where speech is slow."
        self._received = 0
        self._bad_from = 0
        "Sample at which the fault begins, as far as can be told."
        self._silence = _Silence(round(config.max_silence_s * RATE))
        self._repetition = _Repetition()

    @property
    def text(self) -> str:
        """All text so far."""
        return self._spoken.text

    @property
    def samples(self) -> int:
        """Sound let through so far, 24 kHz."""
        return self._spoken.samples

    def receive_text(self, text: str) -> None:
        self._spoken.extend(text, 0)
        self._slow += sum(_weight(character) for character in text)

    def receive_audio(self, pcm: Pcm) -> Pcm:
        """Take the next sound (24 kHz); return what of it may be heard, nothing from a fault on."""
        if self.fault is not None or not self._config.guard:
            return EMPTY if self.fault is not None else self._let_through(pcm)
        before = self._received
        self._received += len(pcm)
        longest = round((self._slow / self._config.slowest_chars_per_s + self._config.grace_s) * RATE)
        silent_from, repeats_from = self._silence.receive(pcm), self._repetition.receive(pcm)
        if silent_from is not None:
            self._condemn(Fault.SILENT, silent_from)
        elif repeats_from is not None and not _TEXT_LOOP.search(self.text):
            self._condemn(Fault.REPEATED, repeats_from)
        elif self._received > longest:
            self._condemn(Fault.DERAILED, longest)
        return self._let_through(pcm if self.fault is None else pcm[: max(0, self._bad_from - before)])

    def finish(self) -> Fault | None:
        """Take the end of the answer and return the fault it has. No sound at all is not one of these."""
        least = _least_letters(self.text) / self._config.fastest_chars_per_s * RATE
        if self.fault is None and self._config.guard and 0 < self.samples < least:
            self._condemn(Fault.TRUNCATED, self.samples)
        return self.fault

    def unspoken(self) -> str:
        """Return the text from the clause on in which the speech went wrong; all of it if none was right.

        Where that is, is estimated from the sound before it, as for interruptions.
        """
        said = len(self._spoken.heard(self._bad_from, whole=False))
        splitter = ClauseSplitter()
        rest = [*splitter.feed(self.text), splitter.flush()]
        at = 0
        while rest and at + _ENOUGH * len(rest[0].rstrip()) <= said and said > 0:
            at += len(rest.pop(0))
        return "".join(rest)

    def _condemn(self, fault: Fault, bad_from: int) -> None:
        self.fault = fault
        self._bad_from = bad_from
        self._spoken.samples = min(self._spoken.samples, bad_from)  # what follows was no speech of the text

    def _let_through(self, pcm: Pcm) -> Pcm:
        self._spoken.extend("", len(pcm))
        return pcm


def _weight(character: str) -> int:
    if character.isnumeric():
        return _DIGIT
    return _WIDE if unicodedata.east_asian_width(character) in "WF" else 1


def _least_letters(text: str) -> int:
    """Count what must be heard of a text: letters alone, for signs and pictures are passed over."""
    letters = (character for character in text if character.isalnum())
    return sum(_WIDE if unicodedata.east_asian_width(character) in "WF" else 1 for character in letters)


class _Silence:
    """Finds silence of `longest` samples."""

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._rest = EMPTY
        self._at = 0
        self._quiet_from: int | None = None

    def receive(self, pcm: Pcm) -> int | None:
        """Return the first sample of a silence that is too long."""
        pcm = np.concatenate((self._rest, pcm))
        whole = len(pcm) // _BLOCK
        blocks = pcm[: whole * _BLOCK].reshape(whole, _BLOCK).astype(np.float32)
        self._rest = pcm[whole * _BLOCK :]
        for quiet in np.sqrt(np.square(blocks).mean(axis=1)) < _QUIET:
            if not quiet:
                self._quiet_from = None
            elif self._quiet_from is None:
                self._quiet_from = self._at
            self._at += _BLOCK
            if self._quiet_from is not None and self._at - self._quiet_from >= self._longest:
                return self._quiet_from
        return None


_Floats = NDArray[np.float32]

_SPAN = 2 * _BLOCK
"Samples that one step's spectrum covers."
_WINDOW = np.hanning(_SPAN).astype(np.float32)
_BANDS = 12
_FIRST_HZ, _LAST_HZ = 150.0, 6_000.0
_EDGES = np.unique((np.geomspace(_FIRST_HZ, _LAST_HZ, _BANDS + 1) * _SPAN / RATE).astype(int))
"Of the bands, in lines of the spectrum."
_FLOOR_DB = 20.0
"Of a band, relative to one unit of 16-bit sound: what is fainter does not count."
_ACTIVE_DB = 40.0
"The loudest band of a step in which somebody speaks."
_LAGS = np.arange(25, 101)
"In steps: stretches of 0.5 to 2 s; a shorter one repeats at a multiple of its length."
_LEAST = 200
"Steps, 4 s: a laugh or a word said four times is shorter."
_SPANS = np.maximum(2 * _LAGS, _LEAST - _LAGS)
"In steps, of each lag: the sound that is compared with the sound a lag before it."
_IN_SPAN = (np.arange(_SPANS.max())[:, None] < _SPANS).astype(np.float32)
"1 where a step, counted from the newest, is within the span of a lag."
_KEPT = 700
"Steps kept: beyond two windows, the beginning is not looked for."
_EVERY = 10
"Steps between judgements."
_NEAR_DB = 4.0
"Mean difference of the bands between a stretch and the one before it; of other speech it is 10 and more."
_FAR_DB = 8.0
"Median of that difference over all lags: a tone or a noise is near to itself at any of them."
_SPEECH_SHARE = 0.3
"Of a stretch that must be speech: pauses are all alike."


class _Repetition:
    """Finds a stretch of sound that comes three times in a row, by its spectrum."""

    def __init__(self) -> None:
        self._rest: Pcm = np.zeros(_BLOCK, np.int16)
        "Sound of which no spectrum has been made; the first one begins in the silence before it."
        self._first = 0
        "Number of the first step kept."
        self._steps: _Floats = np.zeros((0, len(_EDGES) - 1), np.float32)
        self._apart: _Floats = np.zeros((0, len(_LAGS)), np.float32)
        "Of each step from the one a lag before it; 0 where nobody speaks."
        self._voiced: _Floats = np.zeros((0, len(_LAGS)), np.float32)
        "1 where anybody does."
        self._unjudged = 0

    def receive(self, pcm: Pcm) -> int | None:
        """Return about the first sample that is a repetition."""
        pcm = np.concatenate((self._rest, pcm))
        count = (len(pcm) - _SPAN) // _BLOCK + 1
        if count <= 0:
            self._rest = pcm
            return None
        self._rest = pcm[count * _BLOCK :]
        self._add(self._spectra(pcm, count))
        end = len(self._steps)
        # Only now and then, but at the same places however the sound is cut.
        for last in range(end - self._unjudged + _EVERY, end + 1, _EVERY):
            self._unjudged -= _EVERY
            if (lag := self._lag(last)) is not None:
                return max(0, (self._first + self._beginning(last, lag)) * _BLOCK)
        self._forget()
        return None

    def _spectra(self, pcm: Pcm, count: int) -> _Floats:
        rows = np.lib.stride_tricks.sliding_window_view(pcm, _SPAN)[::_BLOCK][:count]
        power = np.abs(np.fft.rfft(rows * _WINDOW, axis=1)) ** 2 / _SPAN
        bands = np.add.reduceat(power, _EDGES, axis=1)[:, :-1]
        levels: _Floats = np.maximum(_FLOOR_DB, 10 * np.log10(bands + 1e-9)).astype(np.float32)
        return levels

    def _add(self, steps: _Floats) -> None:
        old = len(self._steps)
        self._steps = np.concatenate((self._steps, steps))
        self._unjudged += len(steps)
        loud = self._steps.max(axis=1) >= _ACTIVE_DB
        now = np.arange(old, len(self._steps))[:, None]
        then = now - _LAGS[None, :]
        apart = np.abs(self._steps[now] - self._steps[np.maximum(then, 0)]).mean(axis=2)
        voiced = (loud[now] | loud[np.maximum(then, 0)]) & (then >= 0)
        self._apart = np.concatenate((self._apart, (apart * voiced).astype(np.float32)))
        self._voiced = np.concatenate((self._voiced, voiced.astype(np.float32)))

    def _lag(self, end: int) -> int | None:
        """Return the index of the lag at which the sound before step `end` repeats itself."""
        if end < int((_SPANS + _LAGS).min()):
            return None
        recent = slice(max(0, end - len(_IN_SPAN)), end)
        apart, voiced = self._apart[recent][::-1], self._voiced[recent][::-1]
        counts = _IN_SPAN[: len(apart)]
        heard = (voiced * counts).sum(axis=0)
        mean = (apart * counts).sum(axis=0) / np.maximum(heard, 1)
        enough = (end >= _SPANS + _LAGS) & (heard / _SPANS >= _SPEECH_SHARE)
        near = np.where(enough, mean, np.inf)
        best = int(near.argmin())
        return best if near[best] < _NEAR_DB and np.median(mean) > _FAR_DB else None

    def _beginning(self, end: int, lag: int) -> int:
        """Return the step with which the first repetition begins."""
        smooth = np.convolve(self._apart[:end, lag], np.ones(_EVERY) / _EVERY, "same")
        strange = np.flatnonzero(smooth[: end - _EVERY] > 2 * _NEAR_DB)
        return max(int(strange[-1]) + 1 if len(strange) else 0, int(_LAGS[lag]))

    def _forget(self) -> None:
        """Drop what is not compared any more."""
        over = len(self._steps) - _KEPT
        if over > 0:
            self._first += over
            self._steps, self._apart = self._steps[over:], self._apart[over:]
            self._voiced = self._voiced[over:]
