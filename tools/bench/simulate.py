"""The scenes of a call in virtual time: the real ear and conversation, an engine of a few lines. Sans-I/O.

The way to and from the server takes what it takes over loopback WebRTC.
"""

import heapq
import itertools
from collections import deque
from collections.abc import Callable, Sequence

import numpy as np
from caller import ScenePlayer, Take
from corpus import Call, Scene
from measure import Asked, Drafts, Speculation, Verdict, judge

from visavis.actions import CancelResponse, Notify, StartResponse
from visavis.audio import BLOCK, RATE, Pcm
from visavis.config import Config
from visavis.conversation import Conversation
from visavis.ear import caller_ear
from visavis.engine import AudioDelta, AudioPart, Delta, Done, Request, TextDelta
from visavis.protocol.realtime import RealtimeProtocol
from visavis.vad import SileroPool

TICK = BLOCK / RATE
UP_BLOCKS, DOWN_BLOCKS = 1, 1
"Blocks on their way: Opus, packets and the buffers of both ends."
ENGINE_S = 0.006
"To write a request and to read the first of its answer."
FIRST_CHUNK_S, CHUNK_S = 0.3, 2.0
"Sound of the engine's deltas: the cadence of Qwen3-Omni's Talker."


def play_in_virtual_time(
    call: Call, answer: Pcm, first_audio_s: float, config: Config | None = None
) -> tuple[list[Verdict], Speculation]:
    """Play a call and judge it. The engine's first sound comes `first_audio_s` after the request."""
    one = SimulatedCall(config or Config(), SileroPool(), call.scenes, answer, first_audio_s)
    pairs = zip(call.scenes, one.run(), strict=True)
    return [judge(scene, call.voice, take, one.asked) for scene, take in pairs], one.drafts.speculation


class SimulatedCall:
    """One caller, one conversation, one clock."""

    def __init__(
        self, config: Config, pool: SileroPool, scenes: Sequence[Scene], answer: Pcm, first_audio_s: float
    ) -> None:
        self.now = 0.0
        self.asked: list[Asked] = []
        self.drafts = Drafts()
        self._conversation = Conversation(config.conversation, caller_ear(config.conversation, pool), "bench")
        self._protocol = RealtimeProtocol("bench", config.engine.model)
        self._answer = answer
        self._answer_s = 1.0
        self._first_audio_s = first_audio_s
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._live: set[int] = set()
        self._player = ScenePlayer(scenes, lambda: self.now, self._set_answer)
        silence = np.zeros(BLOCK, np.int16)
        self._up, self._down = deque([silence] * UP_BLOCKS), deque([silence] * DOWN_BLOCKS)

    def run(self, longest_s: float = 900.0) -> list[Take]:
        """Play all scenes. Raises RuntimeError when they take longer than that, in virtual seconds."""
        while not self._player.over:
            self.now += TICK
            if self.now > longest_s:
                raise RuntimeError(f"after {longest_s:.0f} s the scenes are not over")
            self._tick()
        return self._player.takes

    def _tick(self) -> None:
        while self._due and self._due[0][0] <= self.now:
            heapq.heappop(self._due)[2]()
        self._up.append(self._player.pull_audio())
        self._conversation.receive_audio(self._up.popleft(), self.now)
        self._drain()
        self._down.append(self._conversation.pull_audio(BLOCK, self.now))
        self._player.receive_audio(self._down.popleft())
        due = self._conversation.next_timeout()
        if due is not None and due <= self.now:
            self._conversation.handle_timeout(self.now)
        self._drain()

    def _set_answer(self, seconds: float) -> None:
        self._answer_s = seconds

    def _drain(self) -> None:
        while (action := self._conversation.next_action()) is not None:
            self.drafts.receive(action)
            match action:
                case StartResponse(response_id, request):
                    self._live.add(response_id)
                    self.asked.append(Asked(self.now, newest_sound(request)))
                    at = self.now + ENGINE_S + self._first_audio_s
                    for delta in self._deltas():
                        self._at(at, response_id, delta)
                case CancelResponse(response_id):
                    self._live.discard(response_id)
                case Notify(event):
                    for text in self._protocol.encode(event):
                        self._player.receive_message(text)
                case _:
                    pass

    def _at(self, at: float, response_id: int, delta: Delta) -> None:
        def receive() -> None:
            if response_id in self._live:
                self._conversation.receive_delta(response_id, delta, self.now)
                self._drain()

        heapq.heappush(self._due, (at, next(self._order), receive))

    def _deltas(self) -> list[Delta]:
        """The whole answer at once: the instant engine."""
        sound = self._answer[: round(self._answer_s * RATE)]
        cut = round(FIRST_CHUNK_S * RATE)
        pieces = [sound[:cut]]
        pieces += [
            sound[at : at + round(CHUNK_S * RATE)] for at in range(cut, len(sound), round(CHUNK_S * RATE))
        ]
        return [TextDelta("word " * 60), *(AudioDelta(piece) for piece in pieces), Done()]


def newest_sound(request: Request) -> Pcm:
    """Join the sound of the request's last message from the user."""
    for message in reversed(request.messages):
        if message.role == "user":
            parts = [part.pcm for part in message.parts if isinstance(part, AudioPart)]
            return np.concatenate(parts) if parts else np.zeros(0, np.int16)
    return np.zeros(0, np.int16)
