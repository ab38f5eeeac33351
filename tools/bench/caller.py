"""A caller who plays scenes and notes what is heard: it knows nothing of the server but its sound. Sans-I/O.

`ScenePlayer` is a `visavis.rtc.PeerHandler`, asked for a block of 20 ms and given one in turn, and reads the
time from `clock` (monotonic seconds). It serves a simulated call and a real one; `place_call` makes the real
one with any server that takes an offer, whatever its signalling: give it a function from offer to answer SDP.
What comes on a data channel is noted if it is a JSON object with a type, for those figures that need it.
`measure.judge` makes a verdict of each take, and `measure.summary` figures of the verdicts:

    takes = await place_call(call.scenes, signal, set_answer)
    verdicts = [judge(scene, call.voice, take) for scene, take in zip(call.scenes, takes, strict=True)]
    print(last_line(summary(verdicts, None)))
"""

import asyncio
import json
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

import numpy as np
from corpus import Echo, Insertion, Scene
from noises import room

from visavis.audio import BLOCK, RATE, Pcm, from_float, level_dbfs, to_float
from visavis.config import RtcConfig
from visavis.frames import Frame
from visavis.rtc import Media

AUDIBLE_DBFS = -50.0
MISSED_S = 3.0
"An answer that is not heard so long after the end does not come."
PATIENCE_S = 0.3
"How much longer it is waited for what must come sooner."
STOPPED_S = 0.2
"Silence of the assistant after which it has stopped."
LEAD_S = 0.4
"Silence before a scene's first word, and after the last sound of the assistant before it."
SETTLE_S = 0.6
"Silence of the assistant after which its answer is over; held answers go on sooner."
SETTLE_INSERTION_S = 1.2
"The same after something that happened meanwhile: a wrong answer to that comes within it."
LONGEST_ANSWER_S = 12.0
"Nothing is waited for any longer."
SHORT_ANSWER_S = 0.8
"Of the answer to an interruption."
HISS_DBFS = -70.0
"No microphone is silent."


@dataclass
class Take:
    """One scene as it was: what `measure.judge` judges. All times are seconds of the player's clock."""

    scene: str
    said_at: list[float] = field(default_factory=list)
    "When each block of 20 ms of the scene was sent."
    utterance_at: int = 0
    "Where the utterance begins, in samples of the scene."
    insertion_at: int | None = None
    "Where the insertion begins; None: there was no answer to put it into."
    heard: list[tuple[float, float]] = field(default_factory=list)
    "When each block came, and its level in dBFS."
    events: list[tuple[float, dict[str, Any]]] = field(default_factory=list)
    "When each event came on the data channel."

    def said(self, at: int) -> float:
        """Tell when the block with this sample of the scene was sent."""
        return self.said_at[min(at // BLOCK, len(self.said_at) - 1)]


class Phase(Enum):
    LEAD = auto()
    SAYING = auto()
    WAITING = auto()
    HEARING = auto()
    INSERTING = auto()
    SETTLING = auto()


class ScenePlayer:
    """Plays scenes in order; `takes` has those that are over, and `over` says that all are.

    `set_answer` is told how many seconds the engine's next answers shall last.
    """

    def __init__(
        self, scenes: Sequence[Scene], clock: Callable[[], float], set_answer: Callable[[float], None]
    ) -> None:
        self.takes: list[Take] = []
        self._scenes = list(scenes)
        self._clock = clock
        self._set_answer = set_answer
        self._hiss = _hiss()
        self._position = 0
        "Samples of the microphone sent since the beginning."
        self._quiet_since = self._sound_since = -math.inf
        "When the assistant was last audible, and when it began to be after `STOPPED_S` of silence."
        self._echo: EchoPath | None = None
        self._begin()

    @property
    def over(self) -> bool:
        return not self._scenes

    # What a peer calls.

    def pull_audio(self) -> Pcm:
        """Return the next block of the microphone."""
        now = self._clock()
        block = self._hiss.next()
        if not self.over:
            self._step(now)
        if not self.over:
            block = block + self._next_block().astype(np.int32)
            self._take.said_at.append(now)
        self._position += BLOCK
        clipped: Pcm = np.clip(block, -32_768, 32_767).astype(np.int16)
        return clipped

    def receive_audio(self, pcm: Pcm) -> None:
        now, level = self._clock(), level_dbfs(pcm)
        if level > AUDIBLE_DBFS:
            if now - self._quiet_since >= STOPPED_S:
                self._sound_since = now
            self._quiet_since = now
        if self._echo is not None:
            self._echo.receive(pcm)
        if not self.over:
            self._take.heard.append((now, round(level, 1)))

    def receive_message(self, text: str) -> None:
        if self.over:
            return
        try:
            event = json.loads(text)
        except ValueError:
            return
        if isinstance(event, dict) and isinstance(event.get("type"), str):
            self._take.events.append((self._clock(), event))

    def wants_frame(self, at: int, source: str = "camera") -> bool:
        return False

    def receive_frame(self, frame: Frame) -> None: ...

    def channel_opened(self) -> None: ...

    def connected(self) -> None: ...

    def closed(self, reason: str) -> None: ...

    # A scene's course.

    def _begin(self) -> None:
        if self.over:
            return
        self._scene = scene = self._scenes[0]
        self._take = Take(scene.name)
        self._phase = Phase.LEAD
        self._phase_since = self._clock()
        self._at = 0
        "Samples of the scene so far."
        self._speech: Pcm = np.zeros(0, np.int16)
        "Yet to be said."
        self._background = Loop(scene.background) if scene.background is not None else None
        self._echo = EchoPath(scene.echo) if scene.echo is not None else None
        self._insertion: Insertion | None = scene.insertion
        self._set_answer(scene.answer_s)

    def _enter(self, phase: Phase, now: float) -> None:
        self._phase, self._phase_since = phase, now

    def _step(self, now: float) -> None:
        """Decide what the next block is part of."""
        spent, quiet = now - self._phase_since, now - self._quiet_since
        audible = self._quiet_since > self._phase_since
        match self._phase:
            case Phase.LEAD if (spent >= LEAD_S and quiet >= LEAD_S) or spent > LONGEST_ANSWER_S:
                self._take.utterance_at = self._at
                self._speech = self._scene.utterance.pcm
                self._enter(Phase.SAYING, now)
            case Phase.SAYING if not len(self._speech):
                self._enter(Phase.WAITING, now)
            case Phase.WAITING if audible:
                self._enter(Phase.HEARING, now)
            case Phase.WAITING if (
                spent >= (MISSED_S if self._scene.answered else SETTLE_INSERTION_S) + PATIENCE_S
            ):
                self._end()
            case Phase.HEARING if quiet >= SETTLE_S or spent > LONGEST_ANSWER_S:
                self._end()
            case Phase.HEARING if self._insertion is not None and spent >= self._insertion.after_s:
                self._take.insertion_at = self._at
                self._speech = self._insertion.utterance.pcm
                if self._insertion.yields:
                    self._set_answer(SHORT_ANSWER_S)
                self._enter(Phase.INSERTING, now)
            case Phase.INSERTING if not len(self._speech):
                self._enter(Phase.SETTLING, now)
            case Phase.SETTLING if min(spent, quiet) >= self._settling() or spent > LONGEST_ANSWER_S:
                self._end()
            case _:
                pass

    def _settling(self) -> float:
        """How long it must be quiet after an insertion: until its answer is over, or can no more come."""
        assert self._insertion is not None
        if not self._insertion.yields:
            return SETTLE_INSERTION_S
        return SETTLE_S if self._sound_since > self._phase_since else MISSED_S + PATIENCE_S

    def _end(self) -> None:
        self.takes.append(self._take)
        self._scenes.pop(0)
        self._begin()

    def _next_block(self) -> Pcm:
        """Give the next 20 ms of the scene's sounds together."""
        block = np.zeros(BLOCK, np.int32)
        speech, self._speech = self._speech[:BLOCK], self._speech[BLOCK:]
        block[: len(speech)] += speech
        if self._background is not None:
            block += self._background.next()
        if self._echo is not None:
            block += self._echo.next()
        self._at += BLOCK
        summed: Pcm = np.clip(block, -32_768, 32_767).astype(np.int16)
        return summed


class Loop:
    """A sound without an end."""

    def __init__(self, pcm: Pcm) -> None:
        self._pcm = pcm
        self._at = 0

    def next(self) -> Pcm:
        block = np.take(self._pcm, range(self._at, self._at + BLOCK), mode="wrap")
        self._at += BLOCK
        return block


class EchoPath:
    """What comes back of what is heard, through a room: level, delay and reflections as `Echo` says."""

    def __init__(self, echo: Echo) -> None:
        response = room(np.random.default_rng(echo.seed))
        response *= 10 ** (echo.gain_db / 20) / np.sqrt(np.square(response).sum())
        late = np.zeros(round(echo.delay_ms * RATE / 1000))
        self._response = np.concatenate([late, response])
        self._size = 1 << (len(self._response) + BLOCK).bit_length()
        self._spectrum = np.fft.rfft(self._response, self._size)
        self._played = np.zeros(0)
        self._ahead = np.zeros(len(self._response) + BLOCK)
        "What will come back of what was played."

    def receive(self, pcm: Pcm) -> None:
        """Note what is played now."""
        self._played = np.concatenate([self._played, to_float(pcm)])[-10 * BLOCK :]

    def next(self) -> Pcm:
        """Give the next 20 ms of the microphone."""
        played, self._played = self._played[:BLOCK], self._played[BLOCK:]
        if played.any():
            back = np.fft.irfft(np.fft.rfft(played, self._size) * self._spectrum, self._size)
            self._ahead += back[: len(self._ahead)]
        block = from_float(self._ahead[:BLOCK])
        self._ahead = np.concatenate([self._ahead[BLOCK:], np.zeros(BLOCK)])
        return block


def _hiss() -> Loop:
    noise = np.random.default_rng(0).normal(size=10 * RATE) * 10 ** (HISS_DBFS / 20)
    return Loop(from_float(noise))


async def place_call(
    scenes: Sequence[Scene],
    signal: Callable[[str], Awaitable[str]],
    set_answer: Callable[[float], None] = lambda seconds: None,
    patience_s: float = 600.0,
) -> list[Take]:
    """Call over WebRTC, play the scenes, hang up, and tell how they went.

    `signal` takes the offer to the server and brings its answer, both SDP. `set_answer` is told how many
    seconds the engine's next answers shall last; where it does nothing, answers are to last 8 s or more.
    Raises CallError for an answer that is none, TimeoutError after `patience_s`.
    """
    player = ScenePlayer(scenes, asyncio.get_running_loop().time, set_answer)
    media = Media(RtcConfig())
    await media.open()
    peer = media.caller(player)
    try:
        await peer.accept(await signal(await peer.offer()))
        async with asyncio.timeout(patience_s):
            while not player.over:  # noqa: ASYNC110 - the player is asked from outside, block by block
                await asyncio.sleep(0.05)
        return player.takes
    finally:
        await peer.aclose()
        await media.aclose()
