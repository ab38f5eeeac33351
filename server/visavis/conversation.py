"""The conversation: who has the floor, what was said, what was heard. Sans-I/O.

Feed it with the `receive_*` methods and `pull_audio`, call `handle_timeout` when `next_timeout` is due, and
after every call drain `next_action` until it returns None. It reads no clock and awaits nothing: `now` is
monotonic seconds, positions are samples at 24 kHz.

Two sides and one rule: the listener says whether the user is talking, the speaker whether the assistant is;
confirmed speech while the assistant has the floor takes it. Everything late is dropped by its response id.
"""

from collections.abc import Sequence
from typing import assert_never

from . import events as ev
from .actions import Action, HangUp
from .audio import RATE, Pcm
from .config import ConversationConfig, SessionConfig
from .ear import Ear
from .engine import Delta, Tool
from .errors import ClientEventError, EngineError
from .frames import Frame, Source
from .history import History, Item
from .items import Items
from .lines import NO_LINES, Lines
from .listener import Listener, ms
from .outbox import Outbox
from .quiet import Idleness, Lull, Verdict
from .snapshot import Snapshot
from .speaker import MAX_OUTSIDE, Floor, Speaker
from .transcripts import Transcripts
from .unsaid import Unsaid

__all__ = ["Conversation", "Floor"]

_IDLE = "Nobody has said anything for a long time."
_SHORTEST_COMMIT = RATE // 10
"OpenAI's own bound for a manual commit: 100 ms."


class Conversation:
    """One call's talk.

    `ear` tells what there is in a block of sound; `lines` is what the assistant has to say of itself, nothing
    by default; `past` is what was said in a call that this one goes on from, `unsaid` what its end kept from
    being said, if that is to be said; `server_tools` are functions
    that whoever drives it runs (`actions.RunTool`), of which engines are told besides the client's. With
    `tells_audio` sound is also told as it comes (`ev.ReplyAudio`). Client
    events that cannot be obeyed raise ClientEventError and change nothing; nothing else raises.
    """

    def __init__(
        self,
        config: ConversationConfig,
        ear: Ear,
        call_id: str,
        lines: Lines = NO_LINES,
        past: Sequence[Item] = (),
        server_tools: tuple[Tool, ...] = (),
        *,
        unsaid: Unsaid | None = None,
        tells_audio: bool = False,
    ) -> None:
        self.history = History(config.history, call_id)
        for item in past:
            self.history.add(item)
        self._config = config
        self._lines = lines
        self._outbox = Outbox()
        self._transcripts = Transcripts(self.history, self._outbox, config.watchdog.transcript_s)
        self._speaker = Speaker(
            config,
            call_id,
            self.history,
            self._transcripts,
            self._outbox,
            lines,
            server_tools,
            tells_audio=tells_audio,
        )
        self._listener = Listener(
            config, call_id, ear, self.history, self._transcripts, self._outbox, self._speaker
        )
        self._follow(config.session)
        self._items = Items(self.history, self._listener, self._speaker, self._transcripts, self._outbox)
        self._lull = Lull(config.idle)
        self._idle = Idleness(config.idle)
        self._answering = False
        self._unsaid = unsaid
        "By the call before, until it is said; by this one, once it is over."

    @property
    def session(self) -> SessionConfig:
        """What the client has set."""
        return self._speaker.session

    @property
    def floor(self) -> Floor:
        return self._speaker.floor

    @property
    def position(self) -> int:
        """Samples of the microphone received so far."""
        return self._listener.position

    def begin(self, now: float) -> None:
        """The caller is there, and can hear: greet, or say to who comes back what they have not heard."""
        self._idle.begin(now)
        if self.history.items:
            unsaid, self._unsaid = self._unsaid, None
            if unsaid is not None and self._speaker.response is None:
                self._speaker.say_unsaid(unsaid, now)
            return
        greeting = self._lines.greeting
        if greeting is not None and self._speaker.response is None:
            self._speaker.say(greeting, now, interruptible=self._config.greeting.interruptible)

    def end(self, now: float, lost_s: float = 0.0) -> None:
        """The caller is gone: of an answer, what was heard is all there is, and not what was sent last."""
        lost = round(lost_s * RATE)
        self._unsaid = self._unsaid or self._speaker.unsaid(lost)
        self._speaker.drop_draft(now)
        self._speaker.close_outside(now)
        self._speaker.interrupt(now, "client_cancelled", lost)

    def snapshot(self) -> Snapshot:
        """Return what another call can go on from, now or, after `end`, as it was then."""
        unsaid = self._unsaid or self._speaker.unsaid()
        return Snapshot(self.history.remembered(*self._speaker.reply), self.session, unsaid)

    # What comes in.

    def receive_audio(self, pcm: Pcm, now: float) -> None:
        """Take the next block of the microphone, in order and without gaps."""
        self._listener.receive_audio(pcm, now, keep_from=self._lull.start)
        self._mind_silence(len(pcm), now)
        self._settle(now)

    def wants_frame(self, at: int, source: Source = "camera") -> bool:
        """Tell whether the picture at this position should be converted and given."""
        return self._listener.wants_frame(at, source)

    def receive_frame(self, frame: Frame, now: float) -> None:
        self._listener.receive_frame(frame)

    def receive_delta(self, response_id: int, delta: Delta, now: float) -> None:
        """Take what the engine streamed; anything of a response that is not being generated is dropped."""
        self._speaker.receive_delta(response_id, delta, now)
        if self._speaker.draft is not None:
            self._listener.receive_draft(self._speaker.draft)
        self._settle(now)

    def receive_failure(self, response_id: int, error: EngineError, now: float) -> bool:
        """End a response that the engine broke off; tell whether it was awaited.

        What is buffered of it still plays, then the apology.
        """
        awaited = self._speaker.receive_failure(response_id, error, now)
        self._settle(now)
        return awaited

    def receive_text(self, end: int, text: str, now: float) -> None:
        """Take what a recogniser made of what `HearAside` asked for."""
        self._listener.receive_text(end, text, now)
        self._settle(now)

    def receive_verdict(self, end: int, verdict: float, now: float) -> None:
        """Take what a model said of what `JudgeTurn` asked for, 0 to 1."""
        self._listener.receive_verdict(end, verdict)

    def receive_client(self, event: ev.ClientEvent, now: float) -> None:
        """Obey the client, or raise ClientEventError and change nothing."""
        match event:
            case ev.UpdateSession():
                self._speaker.drop_draft(now)  # another answer is wanted now
                self._update_session(event)
            case (
                ev.CreateItem()
                | ev.CreateCall()
                | ev.CreateResult()
                | ev.RetrieveItem()
                | ev.DeleteItem()
                | ev.TruncateItem()
            ):
                self._items.receive(event, now)
            case ev.CommitAudio():
                self._commit_audio(now)
            case ev.ClearAudio():
                self._listener.clear(now)
            case ev.CreateResponse():
                self._create_response(event, now)
            case ev.CancelGeneration():
                self._cancel_generation(event, now)
            case ev.ClearOutput():
                self._speaker.interrupt(now, "client_cancelled")
            case _:  # pragma: no cover
                assert_never(event)
        self._user_acts(now)
        self._settle(now)

    def pull_audio(self, samples: int, now: float) -> Pcm:
        """Return the next block for the caller, always full; what is handed out counts as heard."""
        pcm = self._speaker.pull_audio(samples, now, hushed=self._listener.probably_speaking)
        self._listener.play(pcm)
        self._settle(now)
        return pcm

    def handle_timeout(self, now: float) -> None:
        """Do what is due: no state lasts for ever."""
        self._listener.handle_timeout(now)
        self._transcripts.handle_timeout(now)
        self._mind_idleness(now)
        self._speaker.handle_timeout(now)
        self._settle(now)

    def next_timeout(self) -> float | None:
        """Return when `handle_timeout` is next due, or None if nothing is waited for."""
        parts = (self._listener.next_timeout(), self._speaker.next_timeout(), self._idle.next_timeout())
        due = [at for at in parts if at is not None]
        due += self._transcripts.deadlines
        return min(due, default=None)

    def next_action(self) -> Action | None:
        return self._outbox.next_action()

    # What the client asks for.

    def _follow(self, session: SessionConfig) -> None:
        """Have done what the client has set."""
        self._transcripts.told = session.transcribe
        self._listener.limit_camera(session.camera_fps)
        self.history.truncation = session.truncation

    def _update_session(self, event: ev.UpdateSession) -> None:
        if event.session.turn_detection != self.session.turn_detection:
            self._listener.reconfigure(event.session.turn_detection)
        self._speaker.session = event.session
        self._follow(event.session)
        self._outbox.notify(ev.SessionUpdated(self.session))

    def _commit_audio(self, now: float) -> None:
        buffered = self._listener.buffered
        if self.session.turn_detection is None and buffered < _SHORTEST_COMMIT:
            raise ClientEventError(
                f"The buffer has {ms(buffered)} ms of sound; at least 100 ms are needed.",
                code="input_audio_buffer_commit_empty",
            )
        if not self._listener.commit(now):
            raise ClientEventError("Nobody was speaking.", code="input_audio_buffer_commit_empty")

    def _create_response(self, event: ev.CreateResponse, now: float) -> None:
        for index, item in enumerate(event.input or ()):
            if isinstance(item, str):
                self._items.known(item, f"response.input[{index}].id")
        if event.outside:
            if self._speaker.outside >= MAX_OUTSIDE:
                raise ClientEventError(
                    f"There are {MAX_OUTSIDE} responses outside of the conversation already.",
                    code="too_many_responses",
                )
            self._speaker.respond_outside(event, now)
            return
        if event.patient:
            self._speaker.answer_results(event)
            return
        if self._speaker.response is not None and self._speaker.response.generating:
            raise ClientEventError(
                "A response is being generated; cancel it or wait for its response.done.",
                code="conversation_already_has_active_response",
            )
        self._speaker.drop_draft(now)
        self._speaker.respond(event, now)

    def _cancel_generation(self, event: ev.CancelGeneration, now: float) -> None:
        response = self._speaker.generated(event.response_id)
        if response is None and self._speaker.generated(None) is not None:
            raise ClientEventError(
                "That response is not being generated.",
                code="response_cancel_not_active",
                param="response_id",
            )
        if response is None:
            raise ClientEventError("No response is being generated.", code="response_cancel_not_active")
        self._speaker.cancel_generation(response, now)

    # Silence.

    def _user_acts(self, now: float) -> None:
        """Somebody is there, and says or does something."""
        self._lull.answer()
        self._idle.act(now)

    def _settle(self, now: float) -> None:
        """Follow from what has just come: results are answered, and the call is no longer idle."""
        if not self._listener.speaking:
            self._speaker.follow_up(now)
        self._note_acts(now)

    def _note_acts(self, now: float) -> None:
        """Count the call's idle time from speech that was confirmed, and from the end of an answer."""
        if self._listener.user_spoke:
            self._listener.user_spoke = False
            self._user_acts(now)
        answering = self._speaker.busy
        if self._answering and not answering:
            self._idle.act(now)
        self._answering = answering

    def _mind_silence(self, samples: int, now: float) -> None:
        """Ask the engine to go on if nobody has spoken for as long as the client says."""
        speaker, position = self._speaker, self.position
        detection = speaker.session.turn_detection
        timeout_ms = None
        if detection is not None and detection.create_response:
            timeout_ms = detection.idle_timeout_ms
        free = speaker.has_answered and speaker.floor is Floor.IDLE and not speaker.busy
        free = free and not self._listener.speaking
        start = self._lull.receive(position - samples, position, free=free, timeout_ms=timeout_ms)
        if start is None:
            return
        item_id = self.history.new_item_id()
        self._outbox.notify(ev.TimeoutTriggered(item_id, ms(start), ms(self.position)))
        self._listener.record(item_id, self._lull.kept(start), now)
        self._speaker.respond(ev.CreateResponse(), now, prompt=self._config.idle.nudge)

    def _mind_idleness(self, now: float) -> None:
        """Warn of the end of a call in which nothing happens, and then end it."""
        busy = self._listener.speaking or self._speaker.busy
        match self._idle.handle_timeout(now, busy=busy):
            case Verdict.WARN:
                self._outbox.notify(ev.CallEnding(_IDLE, round(self._config.idle.warn_s), "idle"))
                if self._lines.warning is not None and self._speaker.response is None:
                    self._speaker.say(self._lines.warning, now)
            case Verdict.END:
                self._outbox.notify(ev.CallEnding(_IDLE, 0, "idle"))
                self._outbox.put(HangUp("nobody spoke"))
