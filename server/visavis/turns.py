"""Endpointing: where a caller's turn begins and ends, from a stream of speech probabilities. Sans-I/O.

All positions are samples at `audio.RATE` on the call's audio clock; there is no other time in here.
"""

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Literal, Protocol

from .audio import BLOCK, RATE
from .config import NearnessConfig, TurnConfig, TurnDetection
from .errors import ConfigError
from .loudness import Loudness, Nearness

logger = logging.getLogger(__name__)

_PER_MS = RATE // 1000

_LEAST_PROBABILITY = 0.01
"No threshold goes below this: digital silence (0.0) is never speech."


_LONGEST_HELD = 3_000 * _PER_MS
"The most that is kept of a voice that is doubted: a second of speech with its pauses, after which it is not."


class Speech(Enum):
    QUIET = auto()
    SPEAKING = auto()


@dataclass(frozen=True, slots=True)
class SpeechStarted:
    """The caller speaks. Followed by exactly one `SpeechStopped` or `SpeechDropped` of the same start."""

    at: int
    "Where the audio of the turn begins: the onset less the prefix padding, never inside the stretch before."


@dataclass(frozen=True, slots=True)
class SpeechStopped:
    """A turn to be submitted: the samples `start` ≤ i < `end`.

    After ``too_long`` the caller is (still) speaking: a `SpeechStarted` at `end` follows at once, except in
    push-to-talk.
    """

    start: int
    "Padding included: the `at` of its `SpeechStarted`."
    end: int
    "The last voiced sample, not the moment of the decision; of ``committed`` all that was received."
    reason: Literal["silence", "too_long", "stalled", "committed"]


@dataclass(frozen=True, slots=True)
class SpeechDropped:
    """What had started was no turn (a cough, or cleared by the client): undo what its start caused."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class SpeechPaused:
    """The caller is silent and may be done: what will be asked can be asked for. Within a running turn."""

    start: int
    end: int
    "The last voiced sample: if the turn ends in this pause, its `SpeechStopped` has the same."


@dataclass(frozen=True, slots=True)
class SpeechResumed:
    """The caller goes on after a `SpeechPaused`: what was begun on its account was in vain."""

    start: int


TurnEvent = SpeechStarted | SpeechPaused | SpeechResumed | SpeechStopped | SpeechDropped


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known about a running turn, in samples."""

    position: int
    "Now."
    start: int
    voiced: int
    "Voiced time so far."
    silence: int
    "Time since the last voiced sample."
    probability: float
    "Of speech in the newest block."
    finality: float | None = None
    "Probability, by the sound of the last words, that they were the last; None: nothing is known."
    verdict: float | None = None
    "The same by a model that heard the whole turn up to this silence, once it has said so."
    text: str | None = None
    "What was said up to this silence, once a recogniser has said so."


class Endpointer(Protocol):
    """Decides whether a turn is finished. Asked after every unvoiced block of a running turn."""

    def may_be_finished(self, evidence: Evidence) -> bool:
        """Tell whether it is worth to ask the engine already."""
        ...

    def finished(self, evidence: Evidence) -> bool: ...

    def note_pause(self, samples: int) -> None:
        """Learn that the caller went on after so much silence within a turn."""
        ...


class FixedSilence:
    """The turn is finished after `silence_duration_ms` without voice."""

    def __init__(self, config: TurnConfig, detection: TurnDetection) -> None:
        self._silence = detection.silence_duration_ms * _PER_MS
        self._pause = config.pause_ms * _PER_MS

    def may_be_finished(self, evidence: Evidence) -> bool:
        return evidence.silence >= self._pause

    def finished(self, evidence: Evidence) -> bool:
        return evidence.silence >= self._silence

    def note_pause(self, samples: int) -> None:
        pass


class TurnDetector:
    """Feed every block in order with `receive`; it returns what happened.

    `vad` of None is push-to-talk: nothing happens by itself, `commit` says what a turn is.
    `endpointer` builds the decision for given settings and is called again by `reconfigure`.
    `near` tells the caller's voice from one that is far away; by default every voice is the caller's.
    Raises ConfigError when the maximum turn is shorter than its own onset.
    """

    def __init__(
        self,
        config: TurnConfig,
        vad: TurnDetection | None,
        endpointer: Callable[[TurnConfig, TurnDetection], Endpointer] = FixedSilence,
        near: Nearness | None = None,
    ) -> None:
        self._config = config
        self._hysteresis = config.hysteresis
        self._min_speech = config.min_speech_ms * _PER_MS
        self._min_voiced = config.min_voiced_ms * _PER_MS
        self._onset_window = max(config.onset_window_ms * _PER_MS, self._min_speech)
        self._max_turn = config.max_turn_ms * _PER_MS
        if self._max_turn < 2 * (self._onset_window + self._min_speech):
            raise ConfigError(f"max_turn_ms = {config.max_turn_ms} is shorter than twice what an onset takes")
        self._make_endpointer = endpointer
        self._near = near or Nearness(NearnessConfig(), Loudness())
        self._longest_held = min(_LONGEST_HELD, self._max_turn // 2)
        self._state = Speech.QUIET
        self._position = 0
        self._oldest = 0
        self._probability = 0.0
        self._above = False
        "The newest block was voiced."
        self._onset: deque[tuple[int, int]] = deque()
        "Voiced (start, end) within the onset window, while QUIET."
        self._held: int | None = None
        "Where a turn would begin, were its voice not doubted; while QUIET."
        self._doubted_until = 0
        "What is voiced before is no part of an onset."
        # Of the running turn, while SPEAKING:
        self._start = 0
        self._voiced = 0
        self._voiced_until = 0
        self._paused = False
        "A `SpeechPaused` was told of the silence that goes on."
        self._finality: float | None = None
        self._verdict: float | None = None
        self._text: str | None = None
        "What is known of the silence that goes on."
        self._surely = False
        "It is submitted however short: somebody knows better, or its beginning was, and became too long."
        self.reconfigure(vad)

    @property
    def state(self) -> Speech:
        return self._state

    @property
    def position(self) -> int:
        """End of the audio received so far."""
        return self._position

    @property
    def oldest(self) -> int:
        """The oldest sample that a later event can name; audio before it may be forgotten. Never falls."""
        return self._oldest

    @property
    def evidence(self) -> Evidence | None:
        """What is known about the running turn, None while QUIET."""
        return self._evidence() if self._state is Speech.SPEAKING else None

    @property
    def silence(self) -> int:
        """Samples since the last voiced one of the running turn; 0 while QUIET."""
        return self._position - self._voiced_until if self._state is Speech.SPEAKING else 0

    def reconfigure(self, vad: TurnDetection | None) -> None:
        """Take new settings, from the next block on.

        A turn that runs goes on under them. With None it stays open until `commit`, `end`, `clear` or the
        maximum length, and everything in it counts as voiced.
        """
        self._vad = vad
        self._near.reset()
        self._held = None
        if vad is None:
            self._endpointer = None
            self._padding = 0
            self._above = False
        else:
            self._endpointer = self._make_endpointer(self._config, vad)
            # A padding that fills the whole turn would end it where it begins.
            self._padding = min(vad.prefix_padding_ms * _PER_MS, self._max_turn // 2)

    @property
    def voiced(self) -> bool:
        """Whether the newest block was."""
        return self._above

    @property
    def onset(self) -> int:
        """Voiced time of what may become a turn or is one; 0 of a voice that is doubted."""
        if self._state is Speech.SPEAKING:
            return self._voiced
        return self._onset_voiced(self._doubted_until)

    def _onset_voiced(self, since: int = 0) -> int:
        return sum(end - start for start, end in self._onset if start >= since)

    def receive_verdict(self, end: int, verdict: float) -> None:
        """Take a model's word, 0 to 1, on the turn up to `end`; dropped if the caller went on since."""
        if self._state is Speech.SPEAKING and self._voiced_until == end:
            self._verdict = verdict

    def receive_text(self, end: int, text: str) -> None:
        """Take what a recogniser made of the turn up to `end`; dropped if the caller went on since."""
        if self._state is Speech.SPEAKING and self._voiced_until == end:
            self._text = text

    def reopen(self, start: int) -> None:
        """Let the running turn begin at `start`, with what was submitted just before. Only while SPEAKING."""
        self._start = self._oldest = start

    def believe(self) -> None:
        """Let the running turn be submitted however short: what was said is known. Only while SPEAKING."""
        self._surely = True

    def receive(
        self,
        position: int,
        length: int,
        probability: float,
        finality: float | None = None,
        level: float | None = None,
    ) -> tuple[TurnEvent, ...]:
        """Take one block of `length` samples at `position` with its probability of speech, 0 to 1.

        `finality` is of `Evidence`. `level` is in dBFS; None: the voice is not doubted for it.
        A gap before `position` counts as silence. Raises ValueError when the position goes back.
        """
        if position < self._position:
            raise ValueError(f"block at {position}, but {self._position} samples are already received")
        events: list[TurnEvent] = []
        self._finality = finality
        if position > self._position:
            self._advance(position, 0.0, None, events)
        end = position + length
        while self._position < end:  # in steps, so that decisions do not hang on how audio is cut up
            self._advance(min(end, self._position + BLOCK), probability, level, events)
        return tuple(events)

    def commit(self) -> SpeechStopped | None:
        """End the turn here because the client says so; None when there is nothing to submit.

        In push-to-talk the turn is everything since the last one (the newest `max_turn_ms` of it), otherwise
        what passes for speech so far, however short. Only here a `SpeechStopped` may come without its
        `SpeechStarted`.
        """
        if self._state is Speech.SPEAKING:
            start = self._start
        elif self._vad is None:
            start = self._oldest
        elif self._onset:
            start = self._padded_onset()
        else:
            return None
        if start == self._position:
            return None
        self._settle(self._position)
        return SpeechStopped(start, self._position, "committed")

    def end(self, reason: Literal["silence", "stalled"]) -> SpeechStopped | SpeechDropped | None:
        """End a running turn at its last voiced sample, as a silence would; None while QUIET."""
        return self._close(reason) if self._state is Speech.SPEAKING else None

    def clear(self) -> SpeechDropped | None:
        """Forget all audio received so far; the event tells of a turn that was running."""
        dropped = SpeechDropped(self._start, self._position) if self._state is Speech.SPEAKING else None
        self._settle(self._position)
        return dropped

    def _advance(self, end: int, probability: float, level: float | None, events: list[TurnEvent]) -> None:
        since, self._position = self._position, end
        self._probability = probability
        voiced = self._is_voiced()
        if self._state is Speech.SPEAKING:
            self._go_on(since, voiced, events)
        elif self._vad is not None:
            self._watch(since, voiced, level, events)
        if self._state is Speech.QUIET:
            kept = self._max_turn if self._vad is None else self._padding + self._onset_window
            needed = end - kept if self._held is None else min(self._held, end - kept)
            self._oldest = max(self._oldest, needed)

    def _is_voiced(self) -> bool:
        if self._vad is None:
            return True
        level = self._vad.threshold - (self._hysteresis if self._above else 0.0)
        self._above = self._probability >= max(level, _LEAST_PROBABILITY)
        return self._above

    def _watch(self, since: int, voiced: bool, level: float | None, events: list[TurnEvent]) -> None:
        """While QUIET: is this an onset?"""
        near = self._near
        if level is not None:
            near.receive(since, self._position, level, voiced=voiced)
        horizon = self._position - self._onset_window
        while self._onset and self._onset[0][0] < horizon:
            self._onset.popleft()
        if not voiced:
            if not near.doubtful:
                self._held = None
            return
        self._onset.append((since, self._position))
        if near.doubtful:
            self._doubted_until = self._position
            self._hold()
            return
        if near.voiced <= self._onset_window:
            self._doubted_until = 0  # it was but the soft beginning of this word
        start, voiced_time = self._padded_onset(), self.onset
        if self._held is not None and near.whole:
            start = self._held
        if near.believed:
            voiced_time = near.voiced
        if voiced_time >= self._min_speech:
            near.begin_turn()
            self._begin(start, events)
            self._voiced = voiced_time
            self._voiced_until = self._position

    def _hold(self) -> None:
        """Keep the beginning of what may turn out to be a turn."""
        if self._held is not None:
            self._held = max(self._held, self._position - self._longest_held)
        elif self._onset_voiced() >= self._min_speech:
            self._held = self._padded_onset()

    def _padded_onset(self) -> int:
        return max(self._onset[0][0] - self._padding, self._oldest)

    def _go_on(self, since: int, voiced: bool, events: list[TurnEvent]) -> None:
        """While SPEAKING: is the turn finished, or too long?"""
        if not voiced and self._endpointer is not None:
            evidence = self._evidence()
            if self._endpointer.finished(evidence):
                events.append(self._close("silence"))
                return
            if not self._paused and self._voiced and self._endpointer.may_be_finished(evidence):
                self._paused = True
                events.append(SpeechPaused(self._start, self._voiced_until))
        while self._position - self._start > self._max_turn:
            if voiced:
                cut = self._start + self._max_turn
                self._count(since, cut)
                since = cut
            event = self._close("too_long")
            events.append(event)
            if self._vad is None or isinstance(event, SpeechDropped):
                return
            self._begin(event.end, events)
            self._surely = True
        if voiced:
            if self._endpointer is not None and since > self._voiced_until:
                self._endpointer.note_pause(since - self._voiced_until)
            self._forget_pause(events)
            self._count(since, self._position)

    def _count(self, since: int, until: int) -> None:
        self._voiced += until - since
        self._voiced_until = until

    def _forget_pause(self, events: list[TurnEvent]) -> None:
        self._verdict = self._text = None
        if self._paused:
            self._paused = False
            events.append(SpeechResumed(self._start))

    def _begin(self, start: int, events: list[TurnEvent]) -> None:
        self._set_state(Speech.SPEAKING)
        self._start = self._oldest = self._voiced_until = start
        self._voiced = 0
        self._surely = False
        events.append(SpeechStarted(start))

    def _close(self, reason: Literal["silence", "too_long", "stalled"]) -> SpeechStopped | SpeechDropped:
        start, end = self._start, self._voiced_until
        enough = 1 if self._surely else self._min_voiced
        submitted = self._voiced >= enough
        self._settle(end)
        return SpeechStopped(start, end, reason) if submitted else SpeechDropped(start, end)

    def _settle(self, end: int) -> None:
        """Return to QUIET; what is before `end` belongs to no later turn."""
        self._set_state(Speech.QUIET)
        self._paused = False
        self._verdict = self._text = None
        self._onset.clear()
        self._held = None
        self._oldest = end

    def _evidence(self) -> Evidence:
        return Evidence(
            position=self._position,
            start=self._start,
            voiced=self._voiced,
            silence=self.silence,
            probability=self._probability,
            finality=self._finality,
            verdict=self._verdict,
            text=self._text,
        )

    def _set_state(self, state: Speech) -> None:
        if state is not self._state:
            logger.debug("%s -> %s at sample %d", self._state.name, state.name, self._position)
            self._state = state
