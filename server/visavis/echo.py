"""Whether the microphone hears the caller or our own voice coming back from their loudspeaker. Sans-I/O.

Nothing is subtracted: networks, codecs and jitter buffers lie between the two sounds, so that only their
powers in bands can be compared. What is louder, in many bands, than the echo can be, is somebody else.
"""

from collections import deque
from itertools import pairwise

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from .audio import BLOCK, Pcm

Rows = NDArray[np.float64]
"Levels in dB, of one band in each column and of one frame of 10 ms in each row; the newest is the last."

_FRAME = BLOCK // 2
_HANN = np.hanning(BLOCK)
_WINDOW = _HANN / np.sqrt(BLOCK * np.square(_HANN).sum())
"A spectrum of 20 ms every 10 ms: bins of 50 Hz. Powers are those of samples."

_EDGES = np.array([4, 6, 8, 10, 12, 14, 17, 20, 24, 28, 33, 39, 46, 54, 63, 74, 86, 100, 117, 137, 160])
"Bins that bound the bands: 200 Hz, below which small loudspeakers are mute, to 8 kHz."
_BANDS = len(_EDGES) - 1
_FIRST_PARTS, _PARTS = 2 * _EDGES[:-1], 2 * int(_EDGES[-1])
"Each bin has two parts, real and imaginary: the first of each band, and how many matter in all."

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
_WAITING = 8
"Blocks of ours that are kept until one of the microphone comes: spectra are cheaper together."
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
        self._ours = _History(_SPAN + _LAGS + 2 * (_STALL + 1))
        "What was played, with the decay of a room."
        self._mic = _History(_SPAN)
        self._frames: Pcm = np.zeros((2 * (1 + _WAITING), BLOCK), np.int16)
        "Of the microphone's block, and of those of ours whose spectra are not known yet."
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
        if np.count_nonzero(pcm):
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
        heard = float(_audible(self._mic.until(0, 2), self._noise.floor).sum())
        if self._worth_learning(heard):
            self._learn()
        return self._doubtful(heard) if self._path.lag is None else self._judge(heard, self._path.lag)

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

    def _worth_learning(self, heard: float) -> bool:
        due = self._received % _LEARN_EVERY == 0
        if self._path.lag is not None:
            return due
        return heard >= 2 * _LEAST_SOUND and (due or self._doubt > 0)

    def _learn(self) -> None:
        surprising = self._path.lag is None and self._unanswered >= _ANSWER
        for frames in (_SPAN, _BRIEF):
            span = min(frames, 2 * self._received)
            if span < (_SURPRISED_FRAMES if surprising else _LEAST_FRAMES):
                return
            if self._path.learn(self._played(_LAGS + span), self._mic.until(0, span), self._noise.floor):
                return

    def _begin(self) -> None:
        """We begin to speak after a silence."""
        self._our_cutter, self._mic_cutter = _Cutter(), _Cutter()
        self._waiting = 0
        "Blocks of ours whose spectra are not known yet."
        self._ours.clear()
        self._mic.clear()
        self._received = 0
        "Blocks since we began."
        self._recent: deque[tuple[float, float]] = deque(maxlen=_MEMORY)
        "Of the newest blocks, the bands that are foreign and those that are heard."
        self._share = 0.0
        "It stays in silence, since detectors of speech lag behind the sound."
        frames: Pcm = np.empty((2 * len(self._early), BLOCK), np.int16)
        for number, pcm in enumerate(self._early):
            self._mic_cutter.cut(pcm, frames[2 * number :])
        self._early.clear()
        early = _levels(_powers(frames))
        self._noise.begin(early)
        self._mic.append(early)
        sounds = _audible(early[-_BRIEF:], self._noise.floor).sum(axis=1)
        self._doubt = _DOUBT if sounds.max(initial=0.0) < _LEAST_SOUND else 0
        "Blocks of sound that are taken for echo although none is known."

    def _note(self, pcm: Pcm) -> None:
        if self._waiting == _WAITING:
            self._remember(_levels(_powers(self._frames[2:])))
        self._waiting += 1
        self._our_cutter.cut(pcm, self._frames[2 * self._waiting :])

    def _hear(self, pcm: Pcm) -> None:
        self._mic_cutter.cut(pcm, self._frames)
        powers = _powers(self._frames[: 2 * (1 + self._waiting)])
        levels = _levels(powers)
        self._remember(levels[2:])
        self._noise.receive(powers[:2])
        self._mic.append(levels[:2])

    def _remember(self, levels: Rows) -> None:
        """Note the levels of our blocks that waited."""
        for before, row in pairwise((self._ours.until(0, 1)[0], *levels)):
            np.maximum(row, before - _DECAY_DB, out=row)
        self._ours.append(levels)
        self._waiting = 0

    def _played(self, frames: int, lag: int = 0) -> Rows:
        """What was played until `lag` before what was heard; what is not known yet stays the same."""
        return self._ours.until(2 * self._ahead + lag, frames)

    def _judge(self, heard: float, lag: int) -> float:
        self._recent.append((self._foreign(lag) if heard else 0.0, heard))
        unexplained, in_all = map(sum, zip(*self._recent, strict=True))
        if in_all >= 2 * _LEAST_SOUND:
            rest = unexplained / (in_all + 2 * _MEMORY * _LEAST_SOUND)
            self._share = min(1.0, max(0.0, (_FOREIGN - rest) / (_FOREIGN - _OURS)))
        return self._share

    def _foreign(self, lag: int) -> float:
        """How many bands of the newest block are heard and are no echo."""
        mic, gain = self._mic.until(0, 2), self._path.gain
        rows = self._played(4, lag - 1)
        near = np.maximum(np.maximum(rows[:-2], rows[1:-1]), rows[2:])
        loudest = self._played(_MASKED, lag).max(axis=0)
        floor = np.maximum(self._noise.floor, loudest + gain - _MASK_DB)
        return float((_audible(mic, floor) * _excess(mic, near + gain, floor)).sum())

    def _doubtful(self, heard: float) -> float:
        """While no echo is known, the first sound after ours may be one."""
        if heard < 2 * _LEAST_SOUND:
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
        heard = _audible(mic, noise)
        enough = heard.sum() >= _LEAST_FRAMES * _LEAST_SOUND
        if not enough and (self.lag is None or span <= _BRIEF):
            return False
        begun = max(0.0, 1 - (min(sounding, span) - _LEAST_FRAMES) / (_SPAN - _LEAST_FRAMES))
        least = _ALIKE + begun * (_ALIKE_AT_FIRST - _ALIKE)
        sound = np.maximum(mic, noise + 3)
        if self.lag is not None:
            played = ours[_LAGS - self.lag :][:span]
            if enough and _explains(played + self.gain, mic, noise, heard):
                self._adjust(_gains(played, mic), _alike(played, sound) >= least)
                return True
        likeness = _likeness(ours, sound)
        best = int(likeness.argmax())
        if self.lag is not None and span > _BRIEF and likeness[self.lag] >= likeness[best] - 0.05:
            self._adjust(_gains(played, mic), bool(likeness[self.lag] >= least))
            return False
        if not enough or likeness[best] < least:
            return False
        played = ours[_LAGS - best :][:span]
        gain = _gains(played, mic)
        found = _explains(played + gain, mic, noise, heard)
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

    def receive(self, powers: Rows) -> None:
        """Take the powers of one block's two frames."""
        self._power = 0.5 * self._power + 0.25 * (powers[0] + powers[1])
        over = _levels(self._power) + (_FLOOR_DB - self.floor)
        self.floor = self.floor + np.minimum(np.maximum(over, _NOISE_FALL * over), _NOISE_RISE_DB)


class _History:
    """The newest rows of a stream. They move through twice the room that they need, and seldom back."""

    def __init__(self, frames: int) -> None:
        self._frames = frames
        self._rows: Rows = np.full((2 * frames, _BANDS), _QUIET)
        self._end = frames

    def clear(self) -> None:
        """It was quiet before what comes next."""
        self._end = self._frames
        self._rows[: self._end] = _QUIET

    def append(self, rows: Rows) -> None:
        """Add newer ones, fewer than are kept."""
        if self._end + len(rows) > len(self._rows):
            self._rows[: self._frames] = self._rows[self._end - self._frames : self._end]
            self._end = self._frames
        self._rows[self._end : self._end + len(rows)] = rows
        self._end += len(rows)

    def until(self, ago: int, frames: int) -> Rows:
        """`frames` rows, without the `ago` newest. What is still to come, if negative, stays the same."""
        end = self._end - ago
        if ago >= 0:
            return self._rows[end - frames : end]
        return self._rows[: self._end].take(np.arange(end - frames, end), axis=0, mode="clip")


def _audible(rows: Rows, noise: Rows) -> Rows:
    """How surely each level, 0 to 1, is more than noise."""
    least, surely = _AUDIBLE_DB
    sure: Rows = (rows - (noise + least)) / (surely - least)
    return sure.clip(0, 1, out=sure)


def _explains(echo: Rows, mic: Rows, noise: Rows, heard: Rows) -> bool:
    """Whether an echo leaves little of all that was heard: `heard` is how surely each level is."""
    foreign = heard * _excess(mic, echo, noise)
    return bool(foreign.sum() <= _FOREIGN_AT_MOST * heard.sum())


def _excess(mic: Rows, echo: Rows, noise: Rows) -> Rows:
    """How surely each level, 0 to 1, is more than the echo and the noise."""
    expected = np.log(np.exp(echo * _NEPER) + np.exp((noise + 2) * _NEPER)) / _NEPER
    sure: Rows = (mic - (expected + _EXCESS_DB)) / (_CERTAIN_DB - _EXCESS_DB)
    return sure.clip(0, 1, out=sure)


def _gains(played: Rows, mic: Rows) -> Rows:
    """The ratio of heard to played in each band, where that is played near its loudest."""
    near = played >= played.max(axis=0) - _NEAR_PEAK_DB
    ratios = np.sort(np.where(near, mic - played, np.inf), axis=0)
    middle = (near.sum(axis=0) * _GAIN_QUANTILE).astype(int)
    return np.asarray(ratios[middle, np.arange(_BANDS)])


def _alike(played: Rows, mic: Rows) -> float:
    """Correlate what was heard with what was played, levels of bands being put aside."""
    played = (played - played.mean(axis=0)).ravel()
    heard = (mic - mic.mean(axis=0)).ravel()
    energy = np.dot(played, played) * np.dot(heard, heard)
    return float(np.dot(played, heard) / np.sqrt(max(1.0, energy)))


def _likeness(ours: Rows, mic: Rows) -> Rows:
    """Tell for each lag how alike what was heard and what was played are.

    As many lags as there are more rows of `ours`: the first is 0, and its rows are the newest.
    """
    span = len(mic)
    mic = mic - mic.mean(axis=0)
    ours = ours - ours.mean(axis=0)
    heard = mic.ravel()
    played = sliding_window_view(ours.ravel(), len(heard))[::_BANDS]
    products = np.einsum("ij,j->i", played, heard)
    squares = np.convolve(np.einsum("ij,ij->i", ours, ours), np.ones(span), "valid")
    changes = ours[span:] - ours[:-span]
    sums = np.cumsum(np.concatenate((ours[:span].sum(axis=0, keepdims=True), changes)), axis=0)
    energy = squares - np.einsum("ij,ij->i", sums, sums) / span
    likeness = products / np.sqrt(np.maximum(1.0, energy * np.dot(heard, heard)))
    return np.asarray(likeness[::-1])


class _Cutter:
    """Cuts a stream into frames of 20 ms, one each 10 ms."""

    def __init__(self) -> None:
        self._before: Pcm = np.zeros(_FRAME, np.int16)

    def cut(self, pcm: Pcm, frames: Pcm) -> None:
        """Write into the first two of `frames` those that end with one of the block's halves."""
        frames[0, :_FRAME] = self._before
        frames[0, _FRAME:] = pcm[:_FRAME]
        frames[1] = pcm
        self._before[:] = pcm[_FRAME:]


def _powers(frames: Pcm) -> Rows:
    """The power in the bands of each frame, which is quiet at least."""
    parts = np.fft.rfft(frames * _WINDOW).view(np.float64)[:, :_PARTS]
    powers: Rows = np.add.reduceat(np.square(parts), _FIRST_PARTS, axis=1)
    return np.maximum(1.0, powers + 1e-3, out=powers)


def _levels(powers: Rows) -> Rows:
    levels: Rows = 10 * np.log10(powers)
    return levels
