"""One call: feeds the conversation, drains it, and turns its actions into I/O."""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from contextlib import aclosing
from dataclasses import asdict, replace
from functools import partial

import numpy as np

from . import events as ev
from .actions import (
    CancelResponse,
    HangUp,
    HearAside,
    JudgeTurn,
    Mark,
    Notify,
    RunTool,
    SendAhead,
    StartResponse,
    StopAhead,
    WantVideo,
)
from .audio import BLOCK, Pcm
from .carrier import Carrier
from .config import Config, SessionConfig
from .conversation import Conversation
from .display import Audience, Display
from .ear import Ear
from .engine import Done, Engine, Request
from .engine.hearing import Ears
from .errors import ClientEventError, EngineError, EngineLost
from .frames import Frame, Source
from .history import History
from .inbox import Inbox
from .lines import NO_LINES, Lines
from .protocol.realtime import RealtimeProtocol
from .resume import Kept
from .tools.of_call import CallTools
from .tools.toolbox import Toolbox
from .trace import CallTrace
from .watch import CallWatch
from .wire import MakeWire

logger = logging.getLogger(__name__)

Judge = Callable[[Pcm], float]
"Tells the probability, 0 to 1, that a turn (24 kHz) is finished; blocks."

_KEPT = (
    ev.ItemDone,
    ev.ItemTruncated,
    ev.ItemDeleted,
    ev.ReplyEnded,
    ev.CallEnded,
    ev.CallAnswered,
    ev.PlayoutStopped,
    ev.TranscriptDone,
    ev.SessionUpdated,
)
"What changes the conversation that another call can go on from."

_LEFT = ("the client hung up", "nobody spoke")
"Ends that a caller does not come back from."

_ELSEWHERE = ("the caller comes back", "the caller went on in another call")
"Ends of a call that the caller does not take for an end."

_AT_ONCE = 10
"Blocks of sound from a message that are heard in one go: about a millisecond's work,"
_REST_S = 0.002
"after which other calls have their turn: a minute is heard in a second."

_SILENCE: Pcm = np.zeros(BLOCK, np.int16)


class Session:
    """One caller. `answer` once, then `run` until the call is over; `hang_up` ends it from outside.

    It is its peer's handler: the peer calls it on the event loop with sound, pictures and messages. A fault
    in here or in the engine ends this call and no other.
    """

    def __init__(
        self,
        call_id: str,
        config: Config,
        settings: SessionConfig,
        engine: Engine,
        ear: Ear,
        trace: CallTrace,
        lines: Lines = NO_LINES,
        ears: Ears | None = None,
        judge: Judge | None = None,
        *,
        media: Carrier,
        watch: CallWatch | None = None,
        kept: Kept | None = None,
        wire: MakeWire | None = None,
        max_message: int | None = None,
        toolbox: Toolbox | None = None,
    ) -> None:
        """`wire` is OpenAI's by default; `max_message` comes in place of the setting for data channels."""
        self.call_id = call_id
        self._config = config
        self._engine = engine
        self._ears = ears
        self._judge = judge
        self._judging: asyncio.Task[None] | None = None
        "A model is being asked whether the turn is finished."
        self._trace = trace
        self._watch = watch or CallWatch()
        conversation = config.conversation_with(settings)
        past = () if kept is None else kept.past
        unsaid = None if kept is None else kept.unsaid
        self._ear = ear
        self._wire = RealtimeProtocol(call_id, config.engine.model) if wire is None else wire(call_id)
        told = self._wire.tells_audio
        tools = () if toolbox is None else toolbox.tools()
        trace.start(
            call_id=call_id,
            config=conversation,
            lines=lines,
            past=past,
            unsaid=unsaid,
            server_tools=tools,
            tells_audio=told,
        )
        self._conversation = Conversation(
            conversation, trace.listen_to(ear), call_id, lines, past, tools, unsaid=unsaid, tells_audio=told
        )
        self._tools = None if toolbox is None else CallTools(toolbox, self)
        self._fps = conversation.camera.fps
        "Pictures a second that the conversation wants."
        self._past = past
        self._keeping = None if kept is None else kept.keeping
        self._claim = None if kept is None else kept.claim
        if self._keeping is not None:
            self._keeping.follow(self._conversation.snapshot)
        self._media = media
        self._peer = media.peer(self, self._wire.label)
        self._audience = Audience(config.server.max_displays)
        self._loop = asyncio.get_running_loop()
        self._tasks: asyncio.TaskGroup | None = None
        self._responses: dict[int, asyncio.Task[None]] = {}
        self._ahead: asyncio.Task[None] | None = None
        "What of the running turn is being sent ahead."
        self._hearing: asyncio.Task[None] | None = None
        "What was said while the assistant spoke is being written down."
        self._timer: asyncio.TimerHandle | None = None
        self._outbox: deque[str | ev.ServerEvent] = deque()
        self._posting: asyncio.Handle | None = None
        self._guarding = _Guard(self._fail)
        self._feeding = _Feeding(self._fail, self._loop.time, self._drain)
        self._max_message = max_message or config.server.max_message
        self._inbox = Inbox()
        self._reading: asyncio.TimerHandle | None = None
        "The rest of the inbox is dealt with then."
        self._preparing: asyncio.Task[None] | None = None
        "What a message shows is being decoded; the inbox waits."
        self._read_all = asyncio.Event()
        self._read_all.set()
        self._inserted = 0
        "Samples heard that no microphone sent, by which what it sends is later for us than for the peer."
        self._hidden: set[Source] = set()
        "What the client says that it does not show, though pictures come."
        self._over = asyncio.Event()
        self._reason = ""
        self._lost_s = 0.0
        "Of our voice, what was sent last and not heard: nothing came from the caller any more."
        self._allowance = config.server.max_events_per_s
        self._allowance_at = self._loop.time()

    @property
    def history(self) -> History:
        """What was said and heard so far."""
        return self._conversation.history

    # From outside.

    async def answer(self, offer_sdp: str) -> str:
        """Take the caller's offer and return the answer.

        Raises SignallingError if the offer is no use; nothing of the call is left then.
        """
        try:
            return await self._peer.answer(offer_sdp)
        except BaseException:
            await self._peer.aclose()
            raise

    async def renegotiate(self, offer_sdp: str) -> str:
        """Return the answer to a further offer. Raises SignallingError, and the call goes on as it was."""
        return await self._peer.answer(offer_sdp)

    async def add_candidates(self, candidates: Iterable[tuple[str, str]], ufrag: str | None = None) -> None:
        """Take ICE candidates that came after the offer: each with the name (a=mid) of its section.

        `ufrag` is the user name fragment that they belong to, if the caller says. Raises SignallingError.
        """
        await self._peer.add_candidates(candidates, ufrag)

    def display(self) -> Display | None:
        """Make a call that hears what the assistant says in this one, and ends with it; None if none can."""
        listener = self._media.listener
        return None if listener is None else Display(listener, self._audience)

    async def run(self) -> None:
        """Live until the caller or the server hangs up; nothing of the call remains afterwards."""
        self._watch.begin()
        try:
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                recording = tasks.create_task(self._trace.run())
                keeping = tasks.create_task(self._keep())
                watching = tasks.create_task(self._watch.run(self._peer.stats))
                self._drain()
                try:
                    async with asyncio.timeout(self._config.server.max_call_s):
                        await self._over.wait()
                except TimeoutError:
                    self._send(ev.CallEnding("The call has reached its greatest length.", 0, "too_long"))
                    self._reason = "greatest length reached"
                self._tasks = None  # nothing new begins
                self._post()
                if self._reason not in _ELSEWHERE:
                    self._say_goodbye()
                recording.cancel()
                keeping.cancel()
                watching.cancel()
                for response in self._responses.values():
                    response.cancel()
                self._stop_ahead()
                self._stop_hearing()
                for task in (self._judging, self._preparing):
                    if task is not None:
                        task.cancel()
                if self._tools is not None:
                    self._tools.cancel()
                await self._peer.aclose()  # the caller need not wait for the engine to let go
        finally:
            self._tasks = None
            if self._timer is not None:
                self._timer.cancel()
            if self._posting is not None:
                self._posting.cancel()
            if self._reading is not None:
                self._reading.cancel()
            self._read_all.set()
            self._audience.dismiss("the call is over")
            await self._peer.aclose()
            self._ear.reset()  # gives back what it borrowed
            await self._leave()
            await self._trace.aclose()
            stats = self._peer.stats()
            self._watch.end(self._reason, stats)
            counts = " ".join(f"{name}={count}" for name, count in asdict(stats).items() if count)
            logger.info("%s: call over: %s; %s", self.call_id, self._reason or "cancelled", counts)

    def _say_goodbye(self) -> None:
        for text in self._wire.farewell():
            self._peer.send_message(text)

    async def _keep(self) -> None:
        """Keep the conversation for a caller who comes back; once they have, this call is nobody's."""
        if self._keeping is not None:
            await self._keeping.run()
            self.hang_up("the caller went on in another call")

    async def _go_on(self, claim: Callable[[], Awaitable[bool]]) -> None:
        """Be the one call that goes on from the former."""
        if not await claim():
            self.hang_up("the caller went on in another call")

    async def _leave(self) -> None:
        """Leave the conversation as the caller heard it, or nothing if the caller has left it."""
        with self._guarding:
            self._conversation.end(self._loop.time(), self._lost_s)
        if self._keeping is not None:
            await self._keeping.aclose(forget=self._reason in _LEFT)

    def hang_up(self, reason: str) -> None:
        """End the call soon; `run` returns."""
        if not self._over.is_set():
            self._reason = reason
            self._lost_s = self._peer.stats().said_since_ms / 1000
            self._over.set()

    def _fail(self) -> None:
        logger.exception("%s: internal error, the call is closed", self.call_id)
        self.hang_up("internal error")

    def announce_end(self, seconds: float) -> None:
        """Tell the caller that the server is going away."""
        self._send(ev.CallEnding("The server is shutting down.", round(seconds), "shutting_down"))

    # What the server's functions ask for.

    def obey(self, event: ev.ClientEvent) -> None:
        """Do as if the client had asked for it. Raises ClientEventError."""
        refusal: ClientEventError | None = None
        with self._feeding as now:
            self._trace.client(event, now)
            try:
                self._conversation.receive_client(event, now)
            except ClientEventError as error:
                refusal = error
        if refusal is not None:
            raise refusal

    def want_video(self, fps: float | None) -> None:
        """Ask the caller for so many pictures a second; None: for as many as the conversation wants."""
        fps = self._fps if fps is None else fps
        self._peer.want_video(fps)
        self._send(ev.CameraWanted(fps))

    # What the peer calls.

    def receive_audio(self, pcm: Pcm) -> None:
        with self._feeding as now:
            self._conversation.receive_audio(pcm, now)
            self._trace.audio(len(pcm), now)

    def wants_frame(self, at: int, source: Source = "camera") -> bool:
        wanted = False
        if source in self._hidden:
            return wanted
        with self._feeding as now:
            at += self._inserted
            wanted = self._conversation.wants_frame(at, source)
            self._trace.frame_offered(at, wanted, now)
        return wanted or (self._tools is not None and self._tools.wants_frame)

    def receive_frame(self, frame: Frame) -> None:
        with self._feeding as now:
            if self._inserted:
                frame = replace(frame, at=frame.at + self._inserted)
            self._trace.frame(frame, now)
            self._conversation.receive_frame(frame, now)
            if self._tools is not None:
                self._tools.note_frame()

    def pull_audio(self) -> Pcm:
        block = _SILENCE
        with self._feeding as now:
            self._trace.pull(BLOCK, now)
            block = self._conversation.pull_audio(BLOCK, now)
        self._audience.hear(block)
        return block

    def receive_message(self, text: str) -> None:
        """Deal with a message: at once, unless sound that was sent before it is still to be heard."""
        if not self._inbox.put(text):
            full = ClientEventError("Sound was sent faster than it can be heard.", code="rate_limit_exceeded")
            self._send(self._wire.encode_error(full, echo=False))
        elif self._reading is None:
            self._read()

    async def caught_up(self) -> None:
        """Wait until all that was received is dealt with, or nobody will."""
        await self._read_all.wait()

    def _read(self) -> None:
        self._reading = None
        blocks = 0
        while self._preparing is None and (what := self._inbox.take()) is not None:
            if isinstance(what, str):
                self._receive(what)
                continue
            self._hear(what)
            blocks += 1
            if blocks == _AT_ONCE and self._inbox:
                self._read_all.clear()
                self._reading = self._loop.call_later(_REST_S, self._read)
                return
        if self._preparing is None:
            self._read_all.set()

    def _hear(self, pcm: Pcm) -> None:
        """Hear a block that no microphone has sent."""
        self.receive_audio(pcm)
        self._inserted += len(pcm)

    def _receive(self, text: str) -> None:
        with self._feeding as now:
            if (refusal := self._refusal(text, now)) is not None:
                # Before it is read, so there is no event id to echo.
                self._send(self._wire.encode_error(refusal, echo=False))
                return
            try:
                asked = self._wire.decode(text, self._conversation.session)
                if len(asked.sound):
                    self._allowance += 1  # its length is what bounds it
                    self._inbox.hear(asked.sound)
                if asked.later is not None and self._tasks is not None:
                    self._read_all.clear()
                    self._preparing = self._tasks.create_task(self._prepare(asked.later))
                for event in asked.events:
                    self._complete_sound(event)
                    self._trace.client(event, now)
                    self._conversation.receive_client(event, now)
            except ClientEventError as error:
                self._send(self._wire.encode_error(error))
                return
            for reply in asked.replies:
                self._send(reply)
            self._hidden |= {source for source, shown in asked.shown if not shown}
            self._hidden -= {source for source, shown in asked.shown if shown}
            if asked.hangs_up:
                self.hang_up("the client hung up")

    async def _prepare(self, make: Callable[[], ev.ClientEvent]) -> None:
        """Have an event made in a thread, obey it, and go on reading what was sent after it."""
        made: ev.ClientEvent | ClientEventError
        try:
            made = await asyncio.to_thread(make)
        except ClientEventError as error:
            made = error
        self._preparing = None
        with self._feeding as now:
            try:
                if isinstance(made, ClientEventError):
                    raise made
                self._trace.client(made, now)
                self._conversation.receive_client(made, now)
            except ClientEventError as error:
                self._send(self._wire.encode_error(error))
        self._read()

    def _complete_sound(self, event: ev.ClientEvent) -> None:
        """Hear the last of what a commit is about, which is less than a block; or forget it."""
        if isinstance(event, ev.CommitAudio) and (rest := self._inbox.rest()) is not None:
            self._hear(rest)
        elif isinstance(event, ev.ClearAudio):
            self._inbox.forget_rest()

    def channel_opened(self) -> None:
        with self._guarding:
            # At once: what waits for the channel, such as the greeting, comes after it.
            opening: list[ev.ServerEvent] = [ev.SessionCreated(self._conversation.session)]
            if self._past:
                opening.append(ev.Resumed(tuple(item.id for item in self._past)))
            for event in opening:
                for text in self._wire.encode(event):
                    self._peer.send_message(text)

    def connected(self) -> None:
        logger.info("%s: media connected", self.call_id)
        with self._feeding as now:
            self._trace.begin(now)
            self._conversation.begin(now)
            if self._claim is not None and self._tasks is not None:
                self._tasks.create_task(self._go_on(self._claim))

    def closed(self, reason: str) -> None:
        self.hang_up(reason)

    # Actions into I/O.

    def _drain(self) -> None:
        if self._tasks is None:
            return
        while (action := self._conversation.next_action()) is not None:
            self._trace.action(action)
            self._watch.action(action)
            match action:
                case StartResponse(response_id):
                    task = self._tasks.create_task(self._respond(action))
                    self._responses[response_id] = task
                    task.add_done_callback(partial(self._forget, response_id))
                case CancelResponse(response_id):
                    if (running := self._responses.get(response_id)) is not None:
                        running.cancel()
                case SendAhead(request, replaces):
                    if replaces:
                        self._stop_ahead()
                    if self._ahead is None or self._ahead.done():
                        self._ahead = self._tasks.create_task(self._send_ahead(request))
                case StopAhead():
                    self._stop_ahead()
                case HearAside():
                    if self._ears is not None:
                        self._stop_hearing()
                        self._hearing = self._tasks.create_task(self._hear_aside(self._ears, action))
                case JudgeTurn():
                    # One at a time: the next silence is longer, and its verdict the better one.
                    if self._judge is not None and (self._judging is None or self._judging.done()):
                        self._judging = self._tasks.create_task(self._have_judged(self._judge, action))
                case RunTool():
                    if self._tools is not None:
                        self._tools.start(action, self._tasks)
                case WantVideo(fps):
                    self._fps = fps
                    self.want_video(None)
                case HangUp(reason):
                    self.hang_up(reason)
                case Notify(event):
                    self._send(event)
                    if isinstance(event, ev.ResponseCreated):
                        self._send(self._rate_limits())
                    if self._tools is not None:
                        self._tools.receive_event(event)
                    if self._keeping is not None and isinstance(event, _KEPT):
                        self._keeping.note_change()
                case Mark():
                    pass  # for the trace and the watch
        self._arm()

    async def _respond(self, start: StartResponse) -> None:
        """Stream one response into the conversation. Cancelled, it closes the engine's stream at once."""
        try:
            async with aclosing(self._engine.respond(start.request)) as deltas:
                async for delta in deltas:
                    now = self._loop.time()
                    self._trace.delta(start.response_id, delta, now)
                    self._conversation.receive_delta(start.response_id, delta, now)
                    self._drain()
                    if isinstance(delta, Done):
                        break
                else:
                    raise EngineLost("The engine stopped in the middle of an answer.")
        except EngineError as error:
            now = self._loop.time()
            self._trace.failure(start.response_id, error, now)
            if self._conversation.receive_failure(start.response_id, error, now):
                logger.warning("%s: response %d failed: %s", self.call_id, start.response_id, error)
                self._send(self._wire.encode_error(error))
            else:
                logger.debug("%s: request %d was in vain: %s", self.call_id, start.response_id, error)
            self._drain()

    async def _send_ahead(self, request: Request) -> None:
        """Let the engine take in what there is of a turn. That it cannot is no fault: nobody waits for it."""
        try:
            async with aclosing(self._engine.respond(request)) as deltas:
                async for _ in deltas:
                    pass
        except EngineError as error:
            logger.debug("%s: nothing sent ahead: %s", self.call_id, error)

    def _stop_ahead(self) -> None:
        if self._ahead is not None:
            self._ahead.cancel()
            self._ahead = None

    async def _hear_aside(self, ears: Ears, aside: HearAside) -> None:
        """Have a word written down. Without it, its length and loudness decide."""
        try:
            text = await ears.hear(self.call_id, aside.pcm)
        except EngineError as error:
            logger.debug("%s: an aside was not understood: %s", self.call_id, error)
            return
        with self._feeding as now:
            self._trace.text(aside.end, text, now)
            self._conversation.receive_text(aside.end, text, now)

    async def _have_judged(self, judge: Judge, turn: JudgeTurn) -> None:
        """Ask the model, in a thread: it computes for some 50 ms."""
        verdict = await asyncio.to_thread(judge, turn.pcm)
        with self._feeding as now:
            self._trace.verdict(turn.end, verdict, now)
            self._conversation.receive_verdict(turn.end, verdict, now)

    def _stop_hearing(self) -> None:
        if self._hearing is not None:
            self._hearing.cancel()
            self._hearing = None

    def _forget(self, response_id: int, _: asyncio.Task[None]) -> None:
        self._responses.pop(response_id, None)

    def _send(self, message: str | ev.ServerEvent) -> None:
        """Send soon: the request of a response that begins now goes out before the news of it."""
        self._outbox.append(message)
        if self._posting is None:
            self._posting = self._loop.call_soon(self._post)

    def _post(self) -> None:
        self._posting = None
        with self._guarding:
            while self._outbox:
                message = self._outbox.popleft()
                for text in [message] if isinstance(message, str) else self._wire.encode(message):
                    self._peer.send_message(text)

    def _arm(self) -> None:
        """Wake for the conversation's next timeout; an earlier wake-up than needed is let go on."""
        due = self._conversation.next_timeout()
        if due is None or (self._timer is not None and self._timer.when() <= due):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(due, self._wake)

    def _wake(self) -> None:
        self._timer = None
        with self._feeding as now:
            due = self._conversation.next_timeout()
            if due is not None and due <= now:
                self._trace.timeout(now)
                self._conversation.handle_timeout(now)

    def _allowed(self, now: float) -> float:
        """Return how many messages the client may send at once."""
        most = self._config.server.max_events_per_s
        return min(most, self._allowance + (now - self._allowance_at) * most)

    def _rate_limits(self) -> ev.RateLimits:
        most, allowed = self._config.server.max_events_per_s, self._allowed(self._loop.time())
        return ev.RateLimits(int(most), max(0, int(allowed)), (most - allowed) / most)

    def _refusal(self, text: str, now: float) -> ClientEventError | None:
        """Tell why a message is not even read: it is too long, or one too many within a second."""
        server = self._config.server
        if len(text) > self._max_message:
            return ClientEventError(
                f"The message has more than {self._max_message} bytes.", code="message_too_large"
            )
        most = server.max_events_per_s
        self._allowance, self._allowance_at = self._allowed(now), now
        if self._allowance < 1:
            return ClientEventError(
                f"More than {most:.0f} events a second; this one was dropped.", code="rate_limit_exceeded"
            )
        self._allowance -= 1
        return None


class _Guard:
    """Lets a fault in what is done `with` it end this call and no other. It is used again and again."""

    def __init__(self, fail: Callable[[], None]) -> None:
        self._fail = fail

    def __enter__(self) -> None: ...

    def __exit__(self, _: type[BaseException] | None, error: BaseException | None, __: object) -> bool:
        if not isinstance(error, Exception):
            return False
        self._fail()
        return True


class _Feeding:
    """Gives the time for one input, then has done what the conversation wants; guards both."""

    def __init__(
        self, fail: Callable[[], None], clock: Callable[[], float], drain: Callable[[], None]
    ) -> None:
        self._fail = fail
        self._clock = clock
        self._drain = drain

    def __enter__(self) -> float:
        return self._clock()

    def __exit__(self, _: type[BaseException] | None, error: BaseException | None, __: object) -> bool:
        if error is None:
            try:
                self._drain()
            except Exception:
                self._fail()
        elif isinstance(error, Exception):
            self._fail()
            return True
        return False
