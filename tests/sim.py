"""A simulated call: caller, network, engine and one virtual clock around a real `Conversation`.

No asyncio and no waiting: ten minutes of talk run in about a second. A test gives a script of what the caller
says, an engine script with its timing, a network, and reads what happened from `Sim.log`.
"""

import heapq
import itertools
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from visavis import events as ev
from visavis.actions import CancelResponse, HearAside, JudgeTurn, Mark, Notify, RunTool, StartResponse
from visavis.audio import BLOCK, RATE, Pcm, level_dbfs
from visavis.config import ConversationConfig, SpeculationConfig
from visavis.conversation import Conversation
from visavis.ear import Sound
from visavis.engine import (
    AudioDelta,
    Delta,
    Done,
    Request,
    TextDelta,
    ThinkingDelta,
    Tool,
    ToolCall,
    TranscriptDelta,
)
from visavis.errors import EngineError, EngineLost
from visavis.frames import Frame
from visavis.history import AudioContent, Item
from visavis.jitter import Audio, JitterBuffer
from visavis.lines import NO_LINES, Lines
from visavis.unsaid import Unsaid

TICK = BLOCK / RATE
SILENCE: Pcm = np.zeros(BLOCK, np.int16)
VOICE: Pcm = np.full(BLOCK, 4000, np.int16)


UNHURRIED = ConversationConfig(speculation=SpeculationConfig(enabled=False))
"The engine is asked when the turn is over, so that what it is asked can be counted."


class LevelEar:
    """Loud is speech: the simulation's own ear."""

    def receive(self, pcm: Pcm) -> Sound:
        return Sound(0.9 if pcm[0] or pcm[-1] else 0.0, level_dbfs(pcm))

    def play(self, pcm: Pcm) -> None:
        pass

    def reset(self) -> None:
        pass


@dataclass(frozen=True)
class Reply:
    """One engine response with its timing. Speech of `text` lasts `seconds`."""

    text: str = "The weather is fine today, and so am I."
    seconds: float = 3.0
    first_delay: float = 0.4
    chunks: Sequence[float] = (0.3, 2.0)
    "Seconds of sound per audio delta; the last value repeats."
    rtf: float = 0.2
    "Seconds of work per second of sound."
    transcript: str | None = "hello there"
    fails_after: float | None = None
    "Seconds of sound after which the engine dies; 0 is before the first delta."
    error: EngineError = field(default_factory=lambda: EngineLost("The engine died."))
    hangs_after: float | None = None
    thinks: int = 0
    "Seconds of thinking before the answer, a thought each."
    calls: Sequence[ToolCall] = ()
    "Functions that are called after what is said."

    def deltas(self) -> Iterable[tuple[float, Delta | EngineError]]:
        """Yield (seconds after the request, delta)."""
        at = self.first_delay
        for _ in range(self.thinks):
            yield at, ThinkingDelta("Hm.")
            at += 1
        if self.fails_after == 0:
            yield at, self.error
            return
        if self.hangs_after == 0:
            return
        if self.transcript is not None:
            yield at / 2, TranscriptDelta(self.transcript)
        words = self.text.split(" ")
        sizes = itertools.chain(self.chunks, itertools.repeat(self.chunks[-1]))
        spoken = 0.0
        said = 0
        while spoken < self.seconds - 1e-9:
            size = min(next(sizes), self.seconds - spoken)
            if spoken:
                at += size * self.rtf
            spoken += size
            upto = round(len(words) * spoken / self.seconds)
            if upto > said:
                yield (
                    at,
                    TextDelta("".join(f" {w}" if i or said else w for i, w in enumerate(words[said:upto]))),
                )
                said = upto
            yield at, AudioDelta(np.full(round(size * RATE), 1000, np.int16))
            if self.fails_after is not None and spoken >= self.fails_after:
                yield at, self.error
                return
            if self.hangs_after is not None and spoken >= self.hangs_after:
                return
        for call in self.calls:
            yield at, call
        yield at, Done("tool_calls" if self.calls else "stop")


def calling(*names: str) -> Reply:
    """Make a reply that says nothing and calls these functions."""
    return Reply("", seconds=0.0, calls=[ToolCall(f"call_{name}", name, "{}") for name in names])


@dataclass(frozen=True)
class Network:
    """What happens to the caller's packets on their way."""

    loss: float = 0.0
    jitter_s: float = 0.0
    seed: int = 1


@dataclass
class Sim:
    """Run a conversation in virtual time.

    `speech` is a list of (start, end) in seconds; `replies` are used in order, the last one repeats.
    """

    speech: Sequence[tuple[float, float]] = ()
    replies: Sequence[Reply] = (Reply(),)
    network: Network | None = None
    config: ConversationConfig = field(default_factory=lambda: UNHURRIED)
    client: Sequence[tuple[float, ev.ClientEvent]] = ()
    camera_fps: float = 0.0
    pulls: bool = True
    "Whether the caller's media is alive on the way out."
    lines: Lines = NO_LINES
    past: Sequence[Item] = ()
    "What was said in a call before."
    unsaid: Unsaid | None = None
    "What its end kept from being said."
    connects_at: float | None = None
    "When the caller is there; None: only what the caller does is looked at."
    hears_until: float | None = None
    "When the last of the caller's sound arrives."
    louder_db: Sequence[float] = ()
    "How much louder than `VOICE` each stretch of speech is; 0 where none is said."
    recogniser: tuple[float, str] | None = None
    "How long it takes to write down a remark, and what it makes of it."

    gives: Mapping[str, tuple[float, str]] = field(default_factory=dict)
    "The server's own functions: how many seconds each takes, and what it gives."
    verdicts: Sequence[float | None] = ()
    "What a model says each time that it is asked whether the turn is finished; nothing further on."

    def __post_init__(self) -> None:
        self.now = 0.0
        self.conversation = Conversation(
            self.config,
            LevelEar(),
            "call",
            self.lines,
            self.past,
            tuple(map(Tool, self.gives)),
            unsaid=self.unsaid,
        )
        self.log: list[tuple[float, Any]] = []
        self.heard: list[tuple[float, bool]] = []
        "For each block that went out, whether there was sound in it."
        self.errors: list[tuple[float, Exception]] = []
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._verdicts = list(self.verdicts)
        self.deaf = False
        "Nothing of the caller arrives any more."
        self._live: set[int] = set()
        self._asked = 0
        self._random = random.Random(self.network.seed if self.network else 0)
        self._jitter = JitterBuffer(lambda payload: 960)
        self._ticks_left = 0
        self._ticks = 0
        if (connects_at := self.connects_at) is not None:
            self.at(connects_at, lambda: self.conversation.begin(connects_at))
        if self.hears_until is not None:
            self.at(self.hears_until, self._fall_silent)
        for at, event in self.client:
            self.at(at, lambda event=event: self._client(event))

    def at(self, when: float, what: Callable[[], None]) -> None:
        heapq.heappush(self._queue, (when, next(self._order), what))

    def run(self, seconds: float) -> "Sim":
        until = round((self.now + seconds) / TICK)
        while self._ticks < until:
            self._ticks += 1
            tick = self._ticks * TICK
            while self._queue and self._queue[0][0] <= tick:
                self.now, _, what = heapq.heappop(self._queue)
                what()
            self.now = tick
            self._speak()
            if self.pulls:
                pcm = self.conversation.pull_audio(BLOCK, tick)
                self.heard.append((tick, bool(pcm.any())))
            due = self.conversation.next_timeout()
            if due is not None and due <= tick:
                self.conversation.handle_timeout(tick)
            self._drain()
        return self

    # What a test asks.

    def events(self, *kinds: type) -> list[Any]:
        """All server events, or those of some kinds, in order."""
        found = [action.event for _, action in self.log if isinstance(action, Notify)]
        return [event for event in found if isinstance(event, kinds)] if kinds else found

    def requests(self) -> list[Request]:
        """What the engine was asked, in order."""
        return [action.request for _, action in self.log if isinstance(action, StartResponse)]

    def times(self, kind: type) -> list[float]:
        """When server events (or actions) of this kind came."""
        return [
            at
            for at, action in self.log
            if isinstance(action, kind) or (isinstance(action, Notify) and isinstance(action.event, kind))
        ]

    def marks(self, name: str) -> list[float]:
        return [action.at for _, action in self.log if isinstance(action, Mark) and action.name == name]

    def sound_between(self, start: float, end: float) -> float:
        """Seconds of audible sound that the caller was sent."""
        return sum(TICK for at, sound in self.heard if sound and start <= at < end)

    # The parts.

    def _fall_silent(self) -> None:
        self.deaf = True

    def _speak(self) -> None:
        stretches = [k for k, (start, end) in enumerate(self.speech) if start <= self.now < end]
        talking = bool(stretches)
        block = self._voice(stretches[0]) if talking else SILENCE
        if self.camera_fps and self._ticks % round(1 / self.camera_fps / TICK) == 0:
            self._look()
        if self.deaf:
            return
        if self.network is None:
            self.conversation.receive_audio(block, self.now)
            return
        if self._random.random() >= self.network.loss:
            arrival = self.now + self._random.random() * self.network.jitter_s
            self.at(arrival, lambda tick=self._ticks: self._arrive(tick, talking))
        self._jitter.handle_timeout(self.now)
        self._hear()

    def _voice(self, stretch: int) -> Pcm:
        louder_db = self.louder_db[stretch] if stretch < len(self.louder_db) else 0.0
        return np.rint(VOICE * 10 ** (louder_db / 20)).astype(np.int16)

    def _arrive(self, tick: int, talking: bool) -> None:
        self._jitter.receive(tick & 0xFFFF, (tick * 960) & 0xFFFFFFFF, bytes([talking]), self.now)
        self._hear()

    def _hear(self) -> None:
        while (piece := self._jitter.next_event()) is not None:
            loud = isinstance(piece, Audio) and piece.payload == b"\1"
            self._ticks_left += piece.ticks
            while self._ticks_left >= 960:
                self._ticks_left -= 960
                self.conversation.receive_audio(VOICE if loud else SILENCE, self.now)
        self._drain()

    def _look(self) -> None:
        at = self.conversation.position
        if self.conversation.wants_frame(at):
            self.conversation.receive_frame(Frame(b"jpeg%d" % self._ticks, 640, 360, at), self.now)

    def _client(self, event: ev.ClientEvent) -> None:
        try:
            self.conversation.receive_client(event, self.now)
        except Exception as error:
            self.errors.append((self.now, error))
        self._drain()

    def _drain(self) -> None:
        while (action := self.conversation.next_action()) is not None:
            self.log.append((self.now, action))
            match action:
                case StartResponse(response_id):
                    self._live.add(response_id)
                    reply = self.replies[min(self._asked, len(self.replies) - 1)]
                    self._asked += 1
                    for delay, delta in reply.deltas():
                        self.at(self.now + delay, lambda i=response_id, d=delta: self._answer(i, d))
                case CancelResponse(response_id):
                    self._live.discard(response_id)
                case HearAside(end) if self.recogniser is not None:
                    delay, text = self.recogniser
                    self.at(self.now + delay, lambda end=end, text=text: self._write_down(end, text))
                case JudgeTurn(end) if self._verdicts:
                    if (verdict := self._verdicts.pop(0)) is not None:
                        self.conversation.receive_verdict(end, verdict, self.now)
                case RunTool(_, call_id, name):
                    delay, output = self.gives[name]
                    result = ev.CreateResult(call_id, output)
                    self.at(self.now + delay, lambda result=result: self._client(result))
                case Mark("draft_wasted"):
                    self._asked -= 1  # what was asked for in vain is asked for again

    def _write_down(self, end: int, text: str) -> None:
        self.conversation.receive_text(end, text, self.now)
        self._drain()

    def _answer(self, response_id: int, delta: Delta | EngineError) -> None:
        if response_id not in self._live:
            return
        if isinstance(delta, EngineError):
            self.conversation.receive_failure(response_id, delta, self.now)
        else:
            self.conversation.receive_delta(response_id, delta, self.now)
        self._drain()


def user_turns(sim: Sim) -> list[float]:
    """Seconds of voice of each user item."""
    sounds = [
        content.pcm
        for item in sim.conversation.history.items
        for content in item.content
        if isinstance(content, AudioContent)
    ]
    return [np.count_nonzero(pcm) / RATE for pcm in sounds if pcm is not None]
