"""Whether the microphone hears the caller or our own voice coming back from their loudspeaker. Sans-I/O.

Nothing is subtracted: networks, codecs and jitter buffers lie between the two sounds, so that only their
powers in bands can be compared. What is louder, in many bands, than the echo can be, is somebody else.
"""

from collections import deque

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from .audio import BLOCK, Pcm

Rows = NDArray[np.float64]
"Levels in dB, of one band in each column and of one frame of 10 ms in each row; the newest is the last."

_FRAME = BLOCK // 2
_WINDOW = np.hanning(BLOCK)
"A spectrum of 20 ms every 10 ms: bins of 50 Hz."

_EDGES = np.array([4, 6, 8, 10, 12, 14, 17, 20, 24, 28, 33, 39, 46, 54, 63, 74, 86, 100, 117, 137, 160])
"Bins that bound the bands: 200 Hz, below which small loudspeakers are mute, to 8 kHz."
_BANDS = len(_EDGES) - 1

_SCALE = float(BLOCK * np.square(_WINDOW).sum())
_QUIET = 0.0
"Level of a band below which nothing is told apart: about -90 dBFS."

_LAGS = 70
"Frames that an echo may be late, ours and the caller's buffers included."
_SPAN = 150
"Frames over which delay and gains are found."
_BRIEF = 40
"Frames that are enough when delay or loudness have changed."
_SLACK = 5
"Blocks by which the two streams may be ahead of one another by jitter alone."
_STALL = 25
"Blocks that the microphone may be behind: after a stall of the network, those that are late come at once."
_LOST = 100
"Blocks after which those of the microphone that have not come will not come."
_AWAKE = 75
"Blocks after the last sound of ours in which something of it may come back."
_BEFORE = 50
"Blocks of the microphone from before our first sound: their quietest quarter shows the noise of the room."

_DECAY_DB = 1.5
"By which the sound in a room falls in a frame: 60 dB in 0.4 s."
_NOISE_FALL, _NOISE_RISE_DB = 0.2, 0.06
"In a block: the noise floor follows what is quieter fast, and rises by 3 dB in a second."
_FLOOR_DB, _QUIETEST_DB = 2.0, 6.0
"By which the mean of noise is above that floor, and above the mean of its quietest quarter."

_LEARN_EVERY = 5
"Blocks between two looks for delay and gains."
_LEAST_FRAMES = 20
"Frames with sound of ours from which delay and gains can be told: 200 ms."
_SURPRISED_FRAMES = 80
"Frames that it takes where no echo was to be expected any more."
_ALIKE_AT_FIRST, _ALIKE = 0.55, 0.35
"Correlation that makes an echo, over the least and over all frames: other speech has .6 and .3 at most."
_FOREIGN_AT_MOST = 0.1
"Share of all that was heard that an echo, once found, may leave unexplained."

_RANGE_DB = 40.0
"How far below its loudest our voice still matters."
_NEAR_PEAK_DB = 15.0
"The gain of a band is told by our sound in it that is so near to its loudest."
_GAIN_QUANTILE = 0.6
"Of the ratios heard to played: half of the echoes are louder than the median, a caller is louder than most."

_EXCESS_DB = 4.0
"By how much an echo varies around what it should be: 19 of 20 bands are below."
_CERTAIN_DB = 8.0
"No echo is so far above."
_AUDIBLE_DB = 4.0, 12.0
"Above the noise, where a band begins to count and counts fully."
_MASKED, _MASK_DB = 50, 20.0
"Over so many frames, and so far below the echo's loudest, a band is as good as silent."
_MEMORY = 4
"Blocks that are judged together."
_OURS, _FOREIGN = 0.05, 0.2
"Share of the bands' excess: echoes alone mostly have less than the one, a caller more than the other."
_ANSWER = 50
"Blocks of ours without any sound after which there is no echo to be expected: 1 s."
_NEPER = float(np.log(10)) / 10
_SILENCE: Pcm = np.zeros(BLOCK, np.int16)

_DOUBT = 12
"Blocks of sound, after our first, that are taken for its echo while none is known yet: 240 ms."
_LEAST_SOUND = 3.0
"Bands that are heard at least where there is any sound."


def suppress(speech: float, share: float) -> float:
    """Lower a probability of speech by the share of the sound that is our own voice."""
    return speech * (1.0 - share)


class EchoJudge:
    """Give `play` every block that goes out, silence too, and `receive` every block of the microphone.

    Both come at the same pace, a block each 20 ms, but in any order: delays are counted in blocks. Where
    silence is not played, a hole of over 100 ms is taken for silence, and the delay may have to be found
    anew. While nothing is played almost nothing is done.

    An echo is found within 300 ms of its beginning. Until the first is, sound that begins after our own, and
    before we were heard by nobody for a second, is taken for echo for its first 240 ms: a caller who speaks
    just then is heard up to 320 ms later. Where none was to be expected any more, one is found within 1 s.
    When its delay or its loudness change, it is found anew in about 0.4 s; until then it is the caller.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget the room, as at the end of a call."""
        self._path = _Path()
        self._noise = _Noise()
        self._ahead = 0
        "Blocks played more than received, but for those that were lost."
        self._least_ahead = _STALL
        "In the blocks since it was looked at last."
        self._until_look = _LOST
        self._asleep_in = 0
        "Blocks to be received until nothing can come back any more."
        self._early: deque[Pcm] = deque(maxlen=_BEFORE)
        "The newest blocks of the microphone while nothing was played."
        self._unanswered = 0
        "Blocks of our voice without any sound from the microphone, in all."
        self._begin()

    def play(self, pcm: Pcm) -> None:
        """Note one block of 480 samples that goes out to the caller now."""
        self._ahead = min(self._ahead + 1, _STALL)
        if pcm.any():
            if not self._asleep_in:
                self._begin()
            self._asleep_in = _AWAKE
        if self._asleep_in:
            self._note(pcm)

    def receive(self, pcm: Pcm) -> float:
        """Take one block of 480 samples; return the share of it, 0 to 1, that is our own voice."""
        late = self._advance()
        if not self._asleep_in:
            self._early.append(pcm)
            return 0.0
        if late:
            self._note(_SILENCE)
        self._asleep_in -= 1
        self._received += 1
        self._hear(pcm)
        if self._worth_learning():
            self._learn()
        return self._judge()

    def _advance(self) -> bool:
        """Count a block of the microphone; tell whether one of ours is missing before it."""
        self._ahead = self._ahead - 1 if self._ahead < _STALL else 0
        late = self._ahead < -_SLACK
        self._ahead += late
        self._least_ahead = min(self._least_ahead, self._ahead)
        self._until_look -= 1
        if not self._until_look:
            self._ahead -= max(0, self._least_ahead)
            self._least_ahead, self._until_look = _STALL, _LOST
        return late

    def _worth_learning(self) -> bool:
        due = self._received % _LEARN_EVERY == 0
        if self._path.lag is not None:
            return due
        sound = bool(_audible(self._mic[-2:], self._noise.floor).sum() >= 2 * _LEAST_SOUND)
        return sound and (due or self._doubt > 0)

    def _learn(self) -> None:
        surprising = self._path.lag is None and self._unanswered >= _ANSWER
        for frames in (_SPAN, _BRIEF):
            span = min(frames, 2 * self._received)
            if span < (_SURPRISED_FRAMES if surprising else _LEAST_FRAMES):
                return
            if self._path.learn(self._played(_LAGS + span), self._mic[-span:], self._noise.floor):
                return

    def _begin(self) -> None:
        """We begin to speak after a silence."""
        self._our_spectra, self._mic_spectra = _Spectra(), _Spectra()
        self._ours = np.full((_SPAN + _LAGS + 2 * (_STALL + 1), _BANDS), _QUIET)
        "What was played, with the decay of a room."
        self._received = 0
        "Blocks since we began."
        self._recent: deque[tuple[float, float]] = deque(maxlen=_MEMORY)
        "Of the newest blocks, the bands that are foreign and those that are heard."
        self._share = 0.0
        "It stays in silence, since detectors of speech lag behind the sound."
        early = self._mic_spectra.receive(np.concatenate((_SILENCE, *self._early)))[2:]
        self._early.clear()
        self._noise.begin(early)
        self._mic = np.concatenate((np.full((_SPAN, _BANDS), _QUIET), early))[-_SPAN:]
        sounds = _audible(early[-_BRIEF:], self._noise.floor).sum(axis=1)
        self._doubt = _DOUBT if sounds.max(initial=0.0) < _LEAST_SOUND else 0
        "Blocks of sound that are taken for echo although none is known."

    def _note(self, pcm: Pcm) -> None:
        rows = self._our_spectra.receive(pcm)
        rows[0] = np.maximum(rows[0], self._ours[-1] - _DECAY_DB)
        rows[1] = np.maximum(rows[1], rows[0] - _DECAY_DB)
        _append(self._ours, rows)

    def _hear(self, pcm: Pcm) -> None:
        rows = self._mic_spectra.receive(pcm)
        self._noise.receive(rows)
        _append(self._mic, rows)

    def _played(self, frames: int, lag: int = 0) -> Rows:
        """What was played until `lag` before what was heard; what is not known yet stays the same."""
        end = len(self._ours) - 2 * self._ahead - lag
        rows = self._ours[end - frames : end]
        missing = max(0, end - len(self._ours))
        return np.pad(rows, ((0, missing), (0, 0)), "edge") if missing else rows

    def _judge(self) -> float:
        mic, floor = self._mic[-2:], self._noise.floor
        if self._path.lag is None:
            return self._doubtful(_audible(mic, floor))
        rows = self._played(4, self._path.lag - 1)
        near = np.maximum(np.maximum(rows[:-2], rows[1:-1]), rows[2:])
        heard = _audible(mic, floor)
        loudest = self._played(_MASKED, self._path.lag).max(axis=0)
        floor = np.maximum(floor, loudest + self._path.gain - _MASK_DB)
        foreign = _audible(mic, floor) * _excess(mic, near + self._path.gain, floor)
        self._recent.append((float(foreign.sum()), float(heard.sum())))
        unexplained, in_all = map(sum, zip(*self._recent, strict=True))
        if in_all >= 2 * _LEAST_SOUND:
            rest = unexplained / (in_all + 2 * _MEMORY * _LEAST_SOUND)
            self._share = float(np.interp(rest, (_OURS, _FOREIGN), (1.0, 0.0)))
        return self._share

    def _doubtful(self, heard: Rows) -> float:
        """While no echo is known, the first sound after ours may be one."""
        if heard.sum() < 2 * _LEAST_SOUND:
            self._unanswered += 1
            return self._share
        doubtful = self._doubt > 0 and self._unanswered < _ANSWER
        self._doubt -= doubtful
        self._share = 1.0 if doubtful else 0.0
        return self._share


class _Path:
    """How our voice comes back: after how long, and how loud in each band."""

    def __init__(self) -> None:
        self.lag: int | None = None
        "In frames; None until an echo was found."
        self.gain: Rows = np.zeros(_BANDS)
        self._frames = 0
        "With sound of ours, from which these are known."

    def learn(self, ours: Rows, mic: Rows, noise: Rows) -> bool:
        """Compare what was heard with what was played, from `_LAGS` frames before it on to its end.

        Tell whether there is no need to look at less of it.
        """
        span = len(mic)
        peak = ours.max(axis=0)
        ours = np.maximum(ours, peak - _RANGE_DB)
        sounding = int(np.count_nonzero((ours > peak - _NEAR_PEAK_DB).any(axis=1)))
        if sounding < _LEAST_FRAMES:
            return True
        likeness = _likeness(ours, np.maximum(mic, noise + 3))
        best = int(likeness.argmax())
        begun = max(0.0, 1 - (min(sounding, span) - _LEAST_FRAMES) / (_SPAN - _LEAST_FRAMES))
        least = _ALIKE + begun * (_ALIKE_AT_FIRST - _ALIKE)
        if self.lag is not None:
            played = ours[_LAGS - self.lag :][:span]
            explained = _explains(played + self.gain, mic, noise)
            if explained or (span > _BRIEF and likeness[self.lag] >= likeness[best] - 0.05):
                self._adjust(_gains(played, mic), bool(likeness[self.lag] >= least))
                return explained
        played = ours[_LAGS - best :][:span]
        gain = _gains(played, mic)
        found = bool(likeness[best] >= least and _explains(played + gain, mic, noise))
        if found:
            self.lag, self.gain, self._frames = best, gain, sounding
        return found

    def _adjust(self, gain: Rows, alike: bool) -> None:
        """An echo is never louder than what is heard, and as loud where nothing else is."""
        self._frames += 2 * _LEARN_EVERY
        change = gain - self.gain
        self.gain = self.gain + (0.2 if self._frames > _SPAN else 0.5) * (
            change if alike else np.minimum(change, 0)
        )


class _Noise:
    """The level in each band that is there when nobody speaks."""

    def __init__(self) -> None:
        self.floor: Rows = np.full(_BANDS, _QUIET)
        self._begun = False
        self._power = np.zeros(_BANDS)
        "Smoothed over 50 ms."

    def begin(self, rows: Rows) -> None:
        """Take what was heard while nothing was played, of which the quietest is taken for noise."""
        if not len(rows):
            return
        floor = np.sort(rows, axis=0)[: 1 + len(rows) // 4].mean(axis=0) + _QUIETEST_DB
        self._power = 10 ** (floor / 10)
        self.floor = np.minimum(floor, self.floor) if self._begun else floor
        self._begun = True

    def receive(self, rows: Rows) -> None:
        """Take the rows of one block."""
        self._power += 0.5 * ((10 ** (rows / 10)).mean(axis=0) - self._power)
        over = 10 * np.log10(self._power) + _FLOOR_DB - self.floor
        self.floor = self.floor + np.where(over < 0, _NOISE_FALL * over, np.minimum(over, _NOISE_RISE_DB))


def _append(rows: Rows, new: Rows) -> None:
    rows[: -len(new)] = rows[len(new) :]
    rows[-len(new) :] = new


def _audible(rows: Rows, noise: Rows) -> Rows:
    """How surely each level, 0 to 1, is more than noise."""
    least, surely = _AUDIBLE_DB
    return np.asarray(np.clip((rows - noise - least) / (surely - least), 0, 1))


def _explains(echo: Rows, mic: Rows, noise: Rows) -> bool:
    """Whether an echo leaves little of all that was heard, which must be enough to tell."""
    heard = _audible(mic, noise)
    foreign = heard * _excess(mic, echo, noise)
    return bool(
        heard.sum() >= _LEAST_FRAMES * _LEAST_SOUND and foreign.sum() <= _FOREIGN_AT_MOST * heard.sum()
    )


def _excess(mic: Rows, echo: Rows, noise: Rows) -> Rows:
    """How surely each level, 0 to 1, is more than the echo and the noise."""
    expected = np.logaddexp(echo * _NEPER, (noise + 2) * _NEPER) / _NEPER
    return np.asarray(np.clip((mic - expected - _EXCESS_DB) / (_CERTAIN_DB - _EXCESS_DB), 0, 1))


def _gains(played: Rows, mic: Rows) -> Rows:
    """The ratio of heard to played in each band, where that is played near its loudest."""
    near = played >= played.max(axis=0) - _NEAR_PEAK_DB
    ratios = np.sort(np.where(near, mic - played, np.inf), axis=0)
    middle = (near.sum(axis=0) * _GAIN_QUANTILE).astype(int)
    return np.asarray(np.take_along_axis(ratios, middle[None], axis=0)[0])


def _likeness(ours: Rows, mic: Rows) -> Rows:
    """Correlate what was heard with what was played, for each lag, levels of bands being put aside."""
    span = len(mic)
    mic = mic - mic.mean(axis=0)
    ours = ours - ours.mean(axis=0)
    flat, heard = ours.ravel(), mic.ravel()
    # The last rows of `ours` are the newest: lag 0 begins `_LAGS` rows later than the longest.
    products = np.array(
        [np.dot(flat[n * _BANDS : n * _BANDS + len(heard)], heard) for n in range(_LAGS, -1, -1)]
    )
    sums = np.cumsum(np.vstack((np.zeros(_BANDS), ours)), axis=0)
    squares = np.cumsum(np.append(0.0, np.square(ours).sum(axis=1)))
    first = np.arange(_LAGS, -1, -1)
    means = np.square(sums[first + span] - sums[first]).sum(axis=1) / span
    energy = squares[first + span] - squares[first] - means
    return np.asarray(products / np.sqrt(np.maximum(1.0, energy * np.dot(heard, heard))))


class _Spectra:
    """Levels in bands of a stream."""

    def __init__(self) -> None:
        self._before: Pcm = np.zeros(_FRAME, np.int16)

    def receive(self, pcm: Pcm) -> Rows:
        """Return the two rows of each block."""
        sound: Pcm = np.concatenate((self._before, pcm))
        self._before = sound[-_FRAME:]
        spectra = np.fft.rfft(sliding_window_view(sound, BLOCK)[::_FRAME] * _WINDOW)
        power = spectra.real**2 + spectra.imag**2
        bands = np.add.reduceat(power, _EDGES, axis=1)[:, :_BANDS] / _SCALE
        return np.asarray(np.maximum(_QUIET, 10 * np.log10(bands + 1e-3)))
