"""The conversation: who has the floor, what was said, what was heard. Sans-I/O.

Feed it with the `receive_*` methods and `pull_audio`, call `handle_timeout` when `next_timeout` is due, and
after every call drain `next_action` until it returns None. It reads no clock and awaits nothing: `now` is
monotonic seconds, positions are samples at 24 kHz.

Two machines and one rule: `Speech` says whether the user is talking, `Floor` whether the assistant is;
confirmed speech while the floor is not idle is a barge-in. Everything late is dropped by its response id.
"""

import logging
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Literal, assert_never

from . import events as ev
from .actions import (
    Action,
    CancelResponse,
    HangUp,
    HearAside,
    Mark,
    Notify,
    SendAhead,
    StartResponse,
    StopAhead,
)
from .audio import EMPTY, RATE, Pcm
from .config import ConversationConfig
from .draft import Budget, Draft
from .ear import Ear, Sound
from .endpoint import endpointer_for
from .engine import (
    AudioDelta,
    Delta,
    Done,
    Message,
    Request,
    Routed,
    Sent,
    TextDelta,
    TextPart,
    ThinkingDelta,
    ToolCall,
    TranscriptDelta,
    Usage,
)
from .errors import ClientEventError, EngineError, EngineLost, EngineRefused
from .frames import Frame
from .history import History, Item
from .lines import NO_LINES, Line, Lines
from .overlap import Overlap, OverlapJudge, is_assent
from .playout import Playout
from .quiet import Idleness, Lull, Verdict
from .recorder import Recorder, UserTurn
from .response import Response, Stage
from .transcripts import TranscriptEvent, Transcripts
from .turns import (
    Speech,
    SpeechDropped,
    SpeechPaused,
    SpeechResumed,
    SpeechStarted,
    SpeechStopped,
    TurnDetector,
    TurnEvent,
)
from .waiting import Waiting

logger = logging.getLogger(__name__)

_ALMOST_OVER = RATE
"An answer of which no more than this is left may be replied to already: one second."
_IDLE = "Nobody has said anything for a long time."
_SHORTEST_COMMIT = RATE // 10
"OpenAI's own bound for a manual commit: 100 ms."


class Floor(Enum):
    """Whether the assistant is busy, and how far it is."""

    IDLE = auto()
    THINKING = auto()
    SPEAKING = auto()


class Conversation:
    """One call's talk.

    `ear` tells what there is in a block of sound; `lines` is what the assistant has to say of itself, nothing
    by default. Client events that cannot be obeyed raise ClientEventError and change nothing; nothing else
    raises.
    """

    def __init__(self, config: ConversationConfig, ear: Ear, call_id: str, lines: Lines = NO_LINES) -> None:
        self.session = config.session
        self.history = History(config.history, call_id)
        self.floor = Floor.IDLE
        self._config = config
        self._call_id = call_id
        self._ear = ear
        self._lines = lines
        self._turns = TurnDetector(config.turns, config.session.turn_detection, endpointer_for)
        self._playout = Playout(config.playout)
        self._recorder = Recorder(config, self.history)
        self._overlap = OverlapJudge(config.overlap)
        self._budget = Budget(config.speculation)
        self._draft: Draft | None = None
        "What was asked for already, since the turn may be over."
        self._closed: _ClosedTurn | None = None
        "The last turn, as long as the user may turn out to go on with it."
        self._taken_back: UserTurn | None = None
        "The beginning of the turn that goes on, which had been submitted already."
        self._aside: UserTurn | None = None
        "A word said while the assistant spoke, until it is known that it asked for nothing."
        self._actions: deque[Action] = deque()
        self._response: Response | None = None
        self._wanted: ev.CreateResponse | None = None
        "A response asked for while another was live."
        self._responses = 0
        self._items = 0
        self._speech_item: str | None = None
        "The id that the client was told for the speech now going on: its item will have it."
        self._min_voiced = _samples(config.turns.min_voiced_ms)
        self._let_go = _samples(config.overlap.let_go_ms)
        self._unconfirmed = False
        "The speech now going on may still turn out to be a cough."
        self._owed = False
        "The user has had no answer yet to what was committed: it was broken off unheard, or never asked for."
        self._last_user_item: str | None = None
        self._transcripts = Transcripts(self.history, config.watchdog.transcript_s)
        self._lull = Lull(config.idle)
        self._idle = Idleness(config.idle)
        self._waiting = Waiting(config.waiting, EMPTY if lines.waiting is None else lines.waiting.pcm)
        self._probable = _samples(config.overlap.duck_ms)
        self._audio_at = 0.0

    def begin(self, now: float) -> None:
        """The caller is there, and can hear: greet."""
        self._idle.begin(now)
        greeting = self._lines.greeting
        if greeting is not None and self._response is None:
            self._say(greeting, now, interruptible=self._config.greeting.interruptible)

    # What comes in.

    def receive_audio(self, pcm: Pcm, now: float) -> None:
        """Take the next block of the microphone, in order and without gaps."""
        position = self._recorder.position
        self._recorder.append(pcm)
        self._audio_at = now
        sound = Sound(0.0) if self.session.turn_detection is None else self._ear.receive(pcm)
        for event in self._turns.receive(position, len(pcm), sound.speech, sound.finality):
            self._receive_turn_event(event, now)
        self._weigh(sound, now)
        if self._turns.state is Speech.SPEAKING:
            self._cut_turn()
        self._mind_silence(position, now)
        self._recorder.forget_before(self._oldest)

    def wants_frame(self, at: int) -> bool:
        """Tell whether the camera's picture at this position should be converted and given."""
        return self._recorder.sampler.wants(at)

    def receive_frame(self, frame: Frame, now: float) -> None:
        self._recorder.sampler.receive(frame)

    def receive_delta(self, response_id: int, delta: Delta, now: float) -> None:
        """Take what the engine streamed; anything of a response that is not being generated is dropped."""
        draft = self._draft
        if draft is not None and draft.response_id == response_id:
            draft.receive(delta, now)
            if draft.transcript:
                self._turns.receive_text(draft.turn.end, draft.transcript)
            return
        response = self._response
        if response is None or response.id != response_id or not response.generating:
            return
        if not isinstance(delta, TranscriptDelta):  # which may be other ears' and tells nothing of the engine
            response.last_delta_at = now
            response.delta_seen = True
        match delta:
            case TranscriptDelta():
                told = self._transcripts.receive(response, delta)
                if told and delta.final:
                    self._mark(response, "transcript", now)
                self._notify_transcripts(told)
            case TextDelta():
                self._mark(response, "first_text", now)
                self._end_thinking(response)
                item = self._begin_reply(response)
                self.history.extend_reply(item, delta.text, 0)
                self._notify(ev.ReplyText(response.id, item, delta.text))
            case AudioDelta():
                if len(delta.pcm) and "audio" in response.modalities:
                    self._mark(response, "first_audio", now)
                    self._end_thinking(response)
                    response.audio_seen = True
                    item = self._begin_reply(response)
                    self.history.extend_reply(item, "", self._playout.write(delta.pcm, now))
            case ThinkingDelta():
                self._mark(response, "first_thought", now)
                self._think(response, now)
            case Routed():
                response.route = delta
            case Sent(at):
                self._mark(response, "request_sent", at)
            case Usage():
                response.usage = delta
            case Done("length"):
                self._end_generation("incomplete", now, reason="max_output_tokens")
            case Done("content_filter"):
                self._end_generation("incomplete", now, reason="content_filter")
            case Done():
                self._end_generation("completed", now)
            case ToolCall():
                logger.warning("%s: dropped a call of %r: no tools were offered", self._call_id, delta.name)
            case _:  # pragma: no cover
                assert_never(delta)

    def receive_failure(self, response_id: int, error: EngineError, now: float) -> None:
        """End a response that the engine broke off. What is buffered of it still plays, then the apology.

        A request that was refused would be refused again, if it is its media or its length: the next ones
        go without what was seen and heard so far. What was asked for in advance is asked for again.
        """
        if self._draft is not None and self._draft.response_id == response_id:
            self._draft.failed = True
            return
        response = self._response
        if response is None or response.id != response_id or not response.generating:
            return
        if isinstance(error, EngineRefused):
            self.history.release_media()
        self._end_generation("failed", now, error=error)

    def receive_text(self, end: int, text: str, now: float) -> None:
        """Take what a recogniser made of what `HearAside` asked for."""
        if not text.strip() or is_assent(text):
            return
        evidence, aside = self._turns.evidence, self._aside
        if self._unconfirmed and evidence is not None and evidence.position - evidence.silence == end:
            self._take_floor(now)
        elif aside is not None and aside.end == end:
            self._aside = None
            self._interrupt_if_speaking(now)
            self._submit(self._new_item_id(), aside, None, now)

    def receive_client(self, event: ev.ClientEvent, now: float) -> None:
        """Obey the client, or raise ClientEventError and change nothing."""
        if isinstance(event, ev.UpdateSession | ev.CreateItem | ev.CreateResponse):
            self._drop_draft(now)  # another answer is wanted now
        match event:
            case ev.UpdateSession():
                self._update_session(event)
            case ev.CreateItem():
                self._create_item(event)
            case ev.RetrieveItem():
                self._notify(ev.ItemRetrieved(self._known_item(event.item_id)))
            case ev.CommitAudio():
                self._commit_audio(now)
            case ev.ClearAudio():
                if (dropped := self._turns.clear()) is not None:
                    self._receive_turn_event(dropped, now)
                else:
                    self._notify(ev.InputCleared())
            case ev.CreateResponse():
                if self._response is not None and self._response.generating:
                    raise ClientEventError(
                        "A response is being generated; cancel it or wait for its response.done.",
                        code="conversation_already_has_active_response",
                    )
                self._respond(event, now)
            case ev.CancelGeneration():
                self._cancel_generation(event, now)
            case ev.ClearOutput():
                self._interrupt(now, "client_cancelled")
            case _:  # pragma: no cover
                assert_never(event)
        self._user_acts(now)

    def pull_audio(self, samples: int, now: float) -> Pcm:
        """Return the next block for the caller, always full; what is handed out counts as heard."""
        was_started = self._playout.started
        pcm = self._playout.read(samples, now)
        pcm = self._waiting.mix(pcm, now, wanted=self._awaited)
        self._ear.play(pcm)
        response = self._response
        if response is not None:
            if self._playout.started and not was_started:
                self._mark(response, "first_sent", now)
                self._set_floor(Floor.SPEAKING)
                self._notify(ev.PlayoutStarted(response.id))
                self._notify(response.timings(final=False))
            if response.stage is Stage.DRAINING and self._playout.finished:
                self._notify(ev.PlayoutStopped(response.id))
                self._release_floor(now)
        return pcm

    def handle_timeout(self, now: float) -> None:
        """Do what is due: no state lasts for ever."""
        if self._turns.state is Speech.SPEAKING and now >= self._audio_at + self._config.turns.stall_s:
            ended = self._turns.end("stalled")
            assert ended is not None
            self._receive_turn_event(ended, now)
        if self._playout.stance != "open" and now >= self._audio_at + self._config.turns.stall_s:
            self._set_stance("open")
        self._notify_transcripts(self._transcripts.handle_timeout(now))
        self._mind_idleness(now)
        response = self._response
        if response is None or now < response.deadline(self._config.watchdog):
            return
        if response.generating:
            waited = now - response.last_delta_at
            self._actions.append(CancelResponse(response.id))
            self._end_generation(
                "failed", now, error=EngineLost(f"The engine was silent for {waited:.0f} s.")
            )
        if self._response is response and now >= response.expires_at(self._config.watchdog):
            self._interrupt(now, "client_cancelled")

    def next_timeout(self) -> float | None:
        """Return when `handle_timeout` is next due, or None if nothing is waited for."""
        due = list(self._transcripts.deadlines)
        if self._turns.state is Speech.SPEAKING or self._playout.stance != "open":
            due.append(self._audio_at + self._config.turns.stall_s)
        if self._response is not None:
            due.append(self._response.deadline(self._config.watchdog))
        if (idle := self._idle.next_timeout()) is not None:
            due.append(idle)
        return min(due, default=None)

    def next_action(self) -> Action | None:
        return self._actions.popleft() if self._actions else None

    @property
    def position(self) -> int:
        """Samples of the microphone received so far."""
        return self._recorder.position

    # The user's side.

    def _receive_turn_event(self, event: TurnEvent, now: float) -> None:
        match event:
            case SpeechStarted():
                self._recorder.begin(event.at)
                self._speech_item = self._new_item_id()
                self._notify(ev.SpeechBegan(self._speech_item, _ms(event.at)))
                self._unconfirmed = True
            case SpeechPaused():
                self._ask_in_advance(event, now)
            case SpeechResumed():
                self._drop_draft(now)
            case SpeechStopped():
                self._end_turn(event, now)
            case SpeechDropped():
                self._drop_draft(now)
                self._stop_ahead()
                self._unconfirmed = False
                self._clear_input(event.end)
                if self._taken_back is not None:
                    self._submit(self._new_item_id(), self._taken_back, None, now)
                elif self._owed:
                    self._respond(ev.CreateResponse(), now)
            case _:  # pragma: no cover
                assert_never(event)

    def _end_turn(self, event: SpeechStopped, now: float) -> None:
        """Submit what was said, unless it was but a word of assent; a short interruption is known here."""
        start = event.start
        if self._unconfirmed:
            if event.reason == "silence" and self._is_aside():
                self._aside = self._recorder.turn(event.start, event.end)
                self._put_aside(event.end, now)
                return
            reopened = self._confirm(now)
            start = event.start if reopened is None else reopened
        draft = self._draft
        if draft is not None and (draft.turn.start, draft.turn.end) == (start, event.end):
            self._draft, turn = None, draft.turn
        else:
            self._drop_draft(now)
            draft, turn = None, self._recorder.turn(start, event.end)
        self._stop_ahead()
        self._owed = event.reason == "too_long"  # the speech goes on, and then all of it is answered
        item_id = self._end_speech(event.end) or self._new_item_id()
        self._submit(item_id, turn, draft, now)
        if event.reason == "silence":
            self._closed = _ClosedTurn(item_id, turn, self.position)

    def _submit(self, item_id: str, turn: UserTurn, draft: Draft | None, now: float) -> None:
        """Make a user item of a turn, and ask for the answer if it is not being made already."""
        self._commit(item_id, turn, now)
        detection = self.session.turn_detection
        if detection is not None and detection.create_response and not self._owed:
            spoken_until = now - (self._recorder.position - turn.end) / RATE
            self._respond(ev.CreateResponse(), now, spoken_until, draft)

    def _commit(self, item_id: str, turn: UserTurn, now: float) -> None:
        self._taken_back = None
        previous = self.history.append_user_turn(
            item_id, turn.pcm, turn.frames, at=turn.at, cuts=turn.cuts, serial=turn.serial
        )
        self._last_user_item = item_id
        self._transcripts.expect(item_id, now)
        self._notify(ev.TurnCommitted(item_id, previous))
        self._notify_item(item_id, previous)

    def _clear_input(self, end: int) -> None:
        self._end_speech(end)
        self._notify(ev.InputCleared())

    def _end_speech(self, end: int) -> str | None:
        """Tell the end of speech whose beginning was told, and return its id; a commit may come without."""
        item_id, self._speech_item = self._speech_item, None
        if item_id is not None:
            self._notify(ev.SpeechEnded(item_id, _ms(end)))
        return item_id

    # Speech that may be an interruption.

    def _weigh(self, sound: Sound, now: float) -> None:
        """Let the answer give way to speech as the evidence for it grows."""
        turns = self._turns
        if turns.voiced:
            self._overlap.note(sound.level, turn=turns.state is Speech.SPEAKING and not self._unconfirmed)
        elif not turns.onset:
            self._overlap.begin()
        if not self._overlapping or (turns.state is Speech.SPEAKING and not self._unconfirmed):
            self._set_stance("open")
            if self._unconfirmed and turns.onset >= self._min_voiced:
                self._take_floor(now)
            return
        evidence = turns.evidence
        silence = 0 if evidence is None else evidence.silence
        match self._overlap.judge(turns.onset, self._min_voiced):
            case Overlap.CONFIRMED if self._unconfirmed:
                self._take_floor(now)
            case Overlap.NONE:
                self._set_stance("open")
            case Overlap.LIKELY:
                self._set_stance("ducked")
            case _ if silence >= self._let_go and self._is_aside():
                self._set_stance("open")
            case _:
                self._set_stance("held")

    @property
    def _overlapping(self) -> bool:
        """Whether speech now would be over an answer that can be interrupted."""
        return self._interruptible and self._playout.started

    @property
    def _interruptible(self) -> bool:
        detection, response = self.session.turn_detection, self._response
        if response is None or detection is None:
            return False
        return detection.interrupt_response and response.interruptible

    def _is_aside(self) -> bool:
        """Tell whether speech that is over and was not confirmed asks for nothing.

        At the end of an answer it may be the reply.
        """
        response = self._response
        if response is None or not self._overlapping:
            return False
        return response.generating or self._playout.buffered >= _ALMOST_OVER

    def _put_aside(self, end: int, now: float) -> None:
        """Let the answer go on after a word of assent."""
        assert self._response is not None
        self._unconfirmed = False
        self._stop_ahead()
        self._mark(self._response, "aside", now)
        self._set_stance("open")
        self._clear_input(end)

    def _take_floor(self, now: float) -> None:
        """Speech that goes on is confirmed."""
        start = self._confirm(now)
        if start is not None:
            self._turns.reopen(start)

    def _confirm(self, now: float) -> int | None:
        """Confirmed speech takes the floor: the one rule that couples the two machines.

        If it goes on with the turn that is being answered, return where that began.
        """
        self._unconfirmed = False
        self._user_acts(now)
        closed, self._closed = self._closed, None
        if closed is not None and self._goes_on_with(closed):
            self._take_back(closed, now)
            return closed.turn.start
        self._interrupt_if_speaking(now)
        return None

    def _interrupt_if_speaking(self, now: float) -> None:
        if self._response is not None and self._interruptible:
            self._owed |= self.floor is Floor.THINKING
            self._wanted = None
            self._mark(self._response, "barge_in", now)
            self._interrupt(now, "turn_detected")

    def _goes_on_with(self, closed: "_ClosedTurn") -> bool:
        """Tell whether the speech belongs to the turn that is being answered."""
        response = self._response
        return (
            response is not None
            and self._interruptible
            and response.answers == closed.item_id
            and self.position - closed.turn.start < _samples(self._config.turns.max_turn_ms) // 2
            and self._playout.heard <= _samples(self._config.turns.reopen_heard_ms)
        )

    def _take_back(self, closed: "_ClosedTurn", now: float) -> None:
        """Undo the end of a turn: its item and the half answer leave the history, to be said as one."""
        response = self._response
        assert response is not None
        self._mark(response, "reopened", now)
        self._wanted = None
        started = self._playout.started
        self._playout.flush()
        if response.generating:
            self._actions.append(CancelResponse(response.id))
            self._end_generation("cancelled", now, reason="turn_detected")
        if started:
            self._notify(ev.PlayoutCleared(response.id))
        self._transcripts.forget(closed.item_id)
        for item_id in (response.item_id, closed.item_id):
            if item_id is not None and self.history.delete(item_id):
                self._notify(ev.ItemDeleted(item_id))
        if self._response is response:
            self._release_floor(now)
        self._recorder.begin(closed.turn.start)
        self._taken_back = closed.turn

    # What is sent before the turn is known to be over.

    def _ask_in_advance(self, pause: SpeechPaused, now: float) -> None:
        """Ask for the answer to a turn that may be over; or what it was that was said over an answer."""
        detection = self.session.turn_detection
        if self._overlapping:
            pcm = self._recorder.turn(pause.start, pause.end).pcm
            self._actions.append(HearAside(pause.end, pcm))
            return
        if (
            self._turns.onset < self._min_voiced
            or detection is None
            or not detection.create_response
            or self._response is not None
            or not self._config.speculation.enabled
            or not self._budget.allows(now)
        ):
            return
        turn = self._recorder.draft(pause.start, pause.end)
        if turn.cuts:
            self._actions.append(StopAhead())
        self._responses += 1
        messages = self._recorder.messages(turn, self.session.instructions)
        request = self._request(ev.CreateResponse(), messages, speculative=True)
        self._draft = Draft(self._responses, turn, request)
        self._actions.append(Mark("draft_asked", self._responses, now))
        self._actions.append(StartResponse(self._responses, request))

    def _drop_draft(self, now: float) -> None:
        """The user goes on, or wants something else: what was asked for in advance is of no use."""
        draft, self._draft = self._draft, None
        if draft is not None:
            self._budget.note_waste()
            self._actions.append(CancelResponse(draft.response_id))
            self._actions.append(Mark("draft_wasted", draft.response_id, now))

    def _cut_turn(self) -> None:
        """Fix a clip of a turn that has become long enough, and send ahead what there is."""
        if self._draft is not None:
            return
        turn = self._recorder.cut()
        if turn is None or self._response is not None:
            return  # what is being answered comes before this turn, and is not all there yet
        messages = self._recorder.messages(turn, self.session.instructions)
        request = Request(self._call_id, messages, speak=False, max_tokens=1, ahead=True)
        self._actions.append(SendAhead(request))

    def _stop_ahead(self) -> None:
        """The turn is over, and with it what is being sent ahead."""
        if self._recorder.sent_ahead:
            self._actions.append(StopAhead())
        self._recorder.begin(self._recorder.position)

    @property
    def _oldest(self) -> int:
        """The oldest sample that a turn can still have."""
        closed = self._closed
        quiet = self._turns.state is Speech.QUIET and not self._turns.onset
        window = _samples(self._config.turns.reopen_ms)
        if closed is not None and quiet and self.position - closed.decided > window:
            closed = self._closed = None
        starts = (self._turns.oldest, self._lull.start, None if closed is None else closed.turn.start)
        return min(start for start in starts if start is not None)

    # Silence.

    def _user_acts(self, now: float) -> None:
        """Somebody is there, and says or does something."""
        self._lull.answer()
        self._idle.act(now)

    def _mind_silence(self, position: int, now: float) -> None:
        """Ask the engine to go on if nobody has spoken for as long as the client says."""
        detection = self.session.turn_detection
        timeout_ms = None
        if detection is not None and detection.create_response:
            timeout_ms = detection.idle_timeout_ms
        answered = self._responses > 0 and self.floor is Floor.IDLE
        free = answered and self._turns.state is Speech.QUIET
        start = self._lull.receive(position, self.position, free=free, timeout_ms=timeout_ms)
        if start is None:
            return
        item_id = self._new_item_id()
        self._notify(ev.TimeoutTriggered(item_id, _ms(start), _ms(self.position)))
        self._commit(item_id, self._recorder.turn(self._lull.kept(start), self.position), now)
        self._respond(ev.CreateResponse(), now, prompt=self._config.idle.nudge)

    def _mind_idleness(self, now: float) -> None:
        """Warn of the end of a call in which nothing happens, and then end it."""
        response = self._response
        busy = self._turns.state is Speech.SPEAKING or (response is not None and not response.own)
        match self._idle.handle_timeout(now, busy=busy):
            case Verdict.WARN:
                self._notify(ev.CallEnding(_IDLE, round(self._config.idle.warn_s)))
                if self._lines.warning is not None and response is None:
                    self._say(self._lines.warning, now)
            case Verdict.END:
                self._notify(ev.CallEnding(_IDLE, 0))
                self._actions.append(HangUp("nobody spoke"))

    @property
    def _awaited(self) -> bool:
        """Whether the caller waits in silence for an answer that was to be spoken."""
        response = self._response
        return (
            response is not None
            and "audio" in response.modalities
            and not self._playout.started
            and self._turns.onset < self._probable
        )

    # What the client asks for.

    def _commit_audio(self, now: float) -> None:
        buffered = self._recorder.position - self._turns.oldest
        if self.session.turn_detection is None and buffered < _SHORTEST_COMMIT:
            raise ClientEventError(
                f"The buffer has {_ms(buffered)} ms of sound; at least 100 ms are needed.",
                code="input_audio_buffer_commit_empty",
            )
        stopped = self._turns.commit()
        if stopped is None:
            raise ClientEventError("Nobody was speaking.", code="input_audio_buffer_commit_empty")
        self._receive_turn_event(stopped, now)

    def _create_item(self, event: ev.CreateItem) -> None:
        item_id = event.item_id or self._new_item_id()
        if item_id == self._speech_item or self.history.get(item_id) is not None:
            raise ClientEventError(
                f"There is an item {item_id!r} already.", code="item_exists", param="item.id"
            )
        if event.previous_item_id not in (None, "root"):
            self._known_item(event.previous_item_id, "previous_item_id")
        frames: tuple[Frame, ...] = ()
        if event.role == "user":
            frames = self._recorder.sampler.take(self.position, self.position)
            self._last_user_item = item_id
        previous = self.history.append_text(item_id, event.role, event.text, frames, event.previous_item_id)
        self._notify_item(item_id, previous)

    def _update_session(self, event: ev.UpdateSession) -> None:
        if event.session.turn_detection != self.session.turn_detection:
            self._turns.reconfigure(event.session.turn_detection)
            self._ear.reset()
        self.session = event.session
        self._notify(ev.SessionUpdated(self.session))

    # The assistant's side.

    def _respond(
        self,
        create: ev.CreateResponse,
        now: float,
        spoken_until: float | None = None,
        draft: Draft | None = None,
        prompt: str = "",
    ) -> None:
        """Ask the engine for a response, or remember to once the floor is free.

        A draft has been asked for already: what came of it so far is taken as if it came now. `prompt` is
        for the engine alone, after what the user said.
        """
        if self._response is not None:
            self._wanted = create
            return
        asked = draft if draft is not None and not draft.failed else None
        if asked is None:
            self._responses += 1
        modalities = create.output_modalities or self.session.output_modalities
        response_id = self._responses if asked is None else asked.response_id
        response = Response(response_id, self._last_user_item, modalities, now, now)
        if spoken_until is not None:
            response.marks["speech_end"] = spoken_until
        self._owed = False
        self._take_up(response, now)
        # Makes room in the history for a draft too, as was made when it was sent.
        messages = self.history.messages(create.instructions or self.session.instructions)
        if prompt:
            messages = (*messages[:-1], replace(messages[-1], parts=(*messages[-1].parts, TextPart(prompt))))
        if asked is None:
            self._actions.append(StartResponse(response.id, self._request(create, messages)))
            return
        self._mark(response, "draft_used", now)
        for at, delta in asked.held:
            self.receive_delta(response.id, delta, at)

    def _take_up(self, response: Response, now: float) -> None:
        """The floor is the assistant's."""
        self._response = response
        self._playout.begin()
        self._waiting.begin(now)
        self._mark(response, "turn_end", now)
        self._set_floor(Floor.THINKING)
        self._notify(ev.ResponseCreated(response.id, response.modalities))

    def _say(self, line: Line, now: float, *, interruptible: bool = True) -> None:
        """Say one of our own lines, as an answer that no engine is asked for. The floor must be free."""
        self._drop_draft(now)
        spoken = len(line.pcm) > 0 and "audio" in self.session.output_modalities
        self._responses += 1
        modalities: ev.Modalities = ("audio",) if spoken else ("text",)
        response = Response(
            self._responses, None, modalities, now, now, own=True, interruptible=interruptible
        )
        self._take_up(response, now)
        item = self._begin_reply(response)
        samples = self._playout.write(line.pcm, now, learn=False) if spoken else 0
        response.audio_seen = spoken
        self.history.extend_reply(item, line.text, samples)
        self._notify(ev.ReplyText(response.id, item, line.text))
        self._end_generation("completed", now)

    def _request(
        self, create: ev.CreateResponse, messages: tuple[Message, ...], *, speculative: bool = False
    ) -> Request:
        modalities = create.output_modalities or self.session.output_modalities
        return Request(
            call_id=self._call_id,
            messages=messages,
            voice=self.session.voice,
            speak="audio" in modalities,
            temperature=self.session.temperature if create.temperature is None else create.temperature,
            max_tokens=create.max_output_tokens or self.session.max_output_tokens,
            speculative=speculative,
        )

    def _think(self, response: Response, now: float) -> None:
        response.thought_until = now
        if not response.thinking:
            response.thinking = True
            self._notify(ev.ThinkingBegan(response.id))

    def _end_thinking(self, response: Response) -> None:
        if response.thinking:
            response.thinking = False
            self._notify(ev.ThinkingEnded(response.id))

    def _apologise(self, response: Response, now: float) -> None:
        """Say that there is no answer, or no more of it. It is the caller who hears this, not the engine."""
        apology = self._lines.apology
        if apology is None or "audio" not in response.modalities:
            return
        self._mark(response, "apology", now)
        response.audio_seen |= len(apology.pcm) > 0
        item = self._begin_reply(response)
        samples = self._playout.write(apology.pcm, now, learn=False)
        self._notify(ev.ReplyText(response.id, item, self.history.apologise(item, apology.text, samples)))

    def _begin_reply(self, response: Response) -> str:
        if response.item_id is None:
            response.item_id = self._new_item_id()
            previous = self.history.begin_reply(response.item_id, "audio" in response.modalities)
            item = self._known_item(response.item_id)
            self._notify(ev.ReplyBegan(response.id, item, previous))
        return response.item_id

    def _end_generation(
        self,
        status: ev.ResponseStatus,
        now: float,
        *,
        reason: ev.ResponseReason | None = None,
        error: EngineError | None = None,
    ) -> None:
        """Close the live response's books: exactly one `ResponseDone`. The playout may go on."""
        response = self._response
        assert response is not None
        self._end_thinking(response)
        if status == "failed" or (status == "incomplete" and response.item_id is None):
            self._apologise(response, now)
        response.stage = Stage.DRAINING
        item: Item | None = None
        if response.item_id is not None:
            self.history.end_reply(response.item_id, completed=status == "completed")
            item = self._known_item(response.item_id)
            self._notify(ev.ReplyEnded(response.id, item, self.history.previous_id(response.item_id)))
        if status in ("completed", "incomplete"):
            self._notify_transcripts(self._transcripts.miss(response.answers))
        self._mark(response, "done", now)
        self._notify(response.done(status, reason, error, item))
        self._playout.end()
        if not response.audio_seen:
            self._release_floor(now)

    def _cancel_generation(self, event: ev.CancelGeneration, now: float) -> None:
        response = self._response
        if response is None or not response.generating:
            raise ClientEventError("No response is being generated.", code="response_cancel_not_active")
        if event.response_id not in (None, response.id):
            raise ClientEventError(
                "That response is not being generated.",
                code="response_cancel_not_active",
                param="response_id",
            )
        self._actions.append(CancelResponse(response.id))
        self._end_generation("cancelled", now, reason="client_cancelled")

    def _interrupt(self, now: float, reason: Literal["turn_detected", "client_cancelled"]) -> None:
        """Silence the assistant and cut the history to what was heard."""
        response = self._response
        if response is None:
            return
        started = self._playout.started
        heard = self._playout.flush()
        if response.generating:
            self._actions.append(CancelResponse(response.id))
            self._end_generation("cancelled", now, reason=reason)
        if started:
            self._notify(ev.PlayoutCleared(response.id))
        if response.audio_seen and response.item_id is not None:
            text = self.history.truncate(response.item_id, heard)
            self._notify(ev.ItemTruncated(response.item_id, _ms(heard), text))
        if self._response is response:
            self._release_floor(now)

    def _release_floor(self, now: float) -> None:
        response, self._response = self._response, None
        assert response is not None
        self._playout.stance = "open"
        if not response.own:
            self._idle.act(now)
        self._set_floor(Floor.IDLE)
        self._notify(response.timings(final=True))
        if self._wanted is not None:
            wanted, self._wanted = self._wanted, None
            self._respond(wanted, now)

    # Small things.

    def _new_item_id(self) -> str:
        while True:
            self._items += 1
            item_id = f"item_{self._call_id}_{self._items}"
            if self.history.get(item_id) is None:  # clients name items too
                return item_id

    def _known_item(self, item_id: str | None, param: str = "item_id") -> Item:
        item = self.history.get(item_id) if item_id is not None else None
        if item is None:
            raise ClientEventError(f"There is no item {item_id!r}.", code="item_not_found", param=param)
        return item

    def _set_floor(self, floor: Floor) -> None:
        logger.debug("%s: floor %s -> %s", self._call_id, self.floor.name, floor.name)
        self.floor = floor

    def _set_stance(self, stance: ev.Stance) -> None:
        if self._response is not None and stance != self._playout.stance:
            self._playout.stance = stance
            self._notify(ev.StanceChanged(self._response.id, stance))

    def _notify(self, event: ev.ServerEvent) -> None:
        self._actions.append(Notify(event))

    def _notify_item(self, item_id: str, previous: str | None) -> None:
        item = self._known_item(item_id)
        self._notify(ev.ItemAdded(item, previous))
        self._notify(ev.ItemDone(item, previous))

    def _notify_transcripts(self, told: Iterable[TranscriptEvent]) -> None:
        """Transcripts are always kept, since the history lives on them, but told only to who wants them."""
        if self.session.transcribe:
            for event in told:
                self._notify(event)

    def _mark(self, response: Response, name: str, now: float) -> None:
        """Note the first time that a stage is reached."""
        if response.mark(name, now):
            self._actions.append(Mark(name, response.id, now))


@dataclass(frozen=True, slots=True)
class _ClosedTurn:
    """A turn that was submitted a moment ago."""

    item_id: str
    turn: UserTurn
    decided: int
    "Position of the microphone when it was taken for over."


def _samples(ms: int) -> int:
    return ms * RATE // 1000


def _ms(samples: int) -> int:
    return samples * 1000 // RATE
