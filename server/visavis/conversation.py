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
from enum import Enum, auto
from typing import Literal, assert_never

from . import events as ev
from .actions import Action, CancelResponse, Mark, Notify, SendAhead, StartResponse, StopAhead
from .ahead import OpenTurn
from .audio import RATE, Pcm
from .config import ConversationConfig
from .ear import Ear, Sound
from .engine import (
    AudioDelta,
    Delta,
    Done,
    Request,
    Routed,
    Sent,
    TextDelta,
    ThinkingDelta,
    ToolCall,
    TranscriptDelta,
    Usage,
)
from .errors import ClientEventError, EngineError, EngineLost, EngineRefused
from .frames import Frame, FrameSampler
from .history import History, Item
from .playout import Playout
from .response import Apology, Response, Stage
from .tape import Tape
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

logger = logging.getLogger(__name__)

_TAIL = RATE // 10
"Sound kept after the last voiced sample: final consonants are softer than the threshold."
_SHORTEST_COMMIT = RATE // 10
"OpenAI's own bound for a manual commit: 100 ms."


class Floor(Enum):
    """Whether the assistant is busy, and how far it is."""

    IDLE = auto()
    THINKING = auto()
    SPEAKING = auto()


class Conversation:
    """One call's talk.

    `ear` tells what there is in a block of sound; `apology` is what the caller hears when a spoken
    answer fails, nothing by default. Client events that cannot be obeyed raise ClientEventError and change
    nothing; nothing else raises.
    """

    def __init__(
        self, config: ConversationConfig, ear: Ear, call_id: str, apology: Apology | None = None
    ) -> None:
        self.session = config.session
        self.history = History(config.history, call_id)
        self.floor = Floor.IDLE
        self._config = config
        self._call_id = call_id
        self._ear = ear
        self._apology = apology
        self._turns = TurnDetector(config.turns, config.session.turn_detection)
        self._playout = Playout(config.playout)
        self._sampler = FrameSampler(config.camera)
        self._tape = Tape()
        self._actions: deque[Action] = deque()
        self._response: Response | None = None
        self._wanted: ev.CreateResponse | None = None
        "A response asked for while another was live."
        self._responses = 0
        self._items = 0
        self._speech_item: str | None = None
        "The id that the client was told for the speech now going on: its item will have it."
        self._min_voiced = config.turns.min_voiced_ms * RATE // 1000
        self._unconfirmed = False
        "The speech now going on may still turn out to be a cough."
        self._owed = False
        "The user has had no answer yet to what was committed: it was broken off unheard, or never asked for."
        self._last_user_item: str | None = None
        self._open = OpenTurn(config.ahead, 0)
        "The turn that goes on while somebody speaks."
        self._transcripts = Transcripts(self.history, config.watchdog.transcript_s)
        self._audio_at = 0.0

    # What comes in.

    def receive_audio(self, pcm: Pcm, now: float) -> None:
        """Take the next block of the microphone, in order and without gaps."""
        position = self._tape.end
        self._tape.append(pcm)
        self._audio_at = now
        sound = Sound(0.0) if self.session.turn_detection is None else self._ear.receive(pcm)
        for event in self._turns.receive(position, len(pcm), sound.speech, sound.finality):
            self._receive_turn_event(event, now)
        evidence = self._turns.evidence if self._unconfirmed else None
        if evidence is not None and evidence.voiced >= self._min_voiced:
            self._barge_in(now)
        if self._turns.state is Speech.SPEAKING:
            self._cut_turn()
        self._tape.forget_before(self._turns.oldest)

    def wants_frame(self, at: int) -> bool:
        """Tell whether the camera's picture at this position should be converted and given."""
        return self._sampler.wants(at)

    def receive_frame(self, frame: Frame, now: float) -> None:
        self._sampler.receive(frame)

    def receive_delta(self, response_id: int, delta: Delta, now: float) -> None:
        """Take what the engine streamed; anything of a response that is not being generated is dropped."""
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
        go without what was seen and heard so far.
        """
        response = self._response
        if response is None or response.id != response_id or not response.generating:
            return
        if isinstance(error, EngineRefused):
            self.history.release_media()
        self._end_generation("failed", now, error=error)

    def receive_client(self, event: ev.ClientEvent, now: float) -> None:
        """Obey the client, or raise ClientEventError and change nothing."""
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

    def pull_audio(self, samples: int, now: float) -> Pcm:
        """Return the next block for the caller, always full; what is handed out counts as heard."""
        was_started = self._playout.started
        pcm = self._playout.read(samples, now)
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
        self._notify_transcripts(self._transcripts.handle_timeout(now))
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
        if self._turns.state is Speech.SPEAKING:
            due.append(self._audio_at + self._config.turns.stall_s)
        if self._response is not None:
            due.append(self._response.deadline(self._config.watchdog))
        return min(due, default=None)

    def next_action(self) -> Action | None:
        return self._actions.popleft() if self._actions else None

    @property
    def position(self) -> int:
        """Samples of the microphone received so far."""
        return self._tape.end

    # The user's side.

    def _receive_turn_event(self, event: TurnEvent, now: float) -> None:
        match event:
            case SpeechStarted():
                self._open = OpenTurn(self._config.ahead, event.at)
                self._speech_item = self._new_item_id()
                self._notify(ev.SpeechBegan(self._speech_item, _ms(event.at)))
                self._unconfirmed = True
            case SpeechPaused() | SpeechResumed():
                pass
            case SpeechStopped():
                if self._unconfirmed:
                    self._barge_in(now)
                detection = self.session.turn_detection
                item_id = self._end_speech(event.end) or self._new_item_id()
                self._commit_turn(item_id, event.start, event.end, now)
                self._owed = event.reason == "too_long"  # the speech goes on, and then all of it is answered
                if detection is not None and detection.create_response and not self._owed:
                    spoken_until = now - (self._tape.end - event.end) / RATE
                    self._respond(ev.CreateResponse(), now, spoken_until)
            case SpeechDropped():
                self._stop_ahead()
                self._unconfirmed = False
                self._end_speech(event.end)
                self._notify(ev.InputCleared())
                if self._owed:
                    self._respond(ev.CreateResponse(), now)
            case _:  # pragma: no cover
                assert_never(event)

    def _end_speech(self, end: int) -> str | None:
        """Tell the end of speech whose beginning was told, and return its id; a commit may come without."""
        item_id, self._speech_item = self._speech_item, None
        if item_id is not None:
            self._notify(ev.SpeechEnded(item_id, _ms(end)))
        return item_id

    def _barge_in(self, now: float) -> None:
        """Confirmed speech takes the floor: the one rule that couples the two machines."""
        self._unconfirmed = False
        detection = self.session.turn_detection
        if self._response is None or detection is None or not detection.interrupt_response:
            return
        self._owed |= self.floor is Floor.THINKING
        self._wanted = None
        self._mark(self._response, "barge_in", now)
        self._interrupt(now, "turn_detected")

    def _commit_turn(self, item_id: str, start: int, end: int, now: float) -> None:
        """Make a user item of the sound between two positions and of the frames seen meanwhile."""
        stop, turn = end + _TAIL, self._stop_ahead()
        frames = turn.frames_until(end, self._sampler) if turn.cuts else self._sampler.take(start, end)
        if turn.cuts and turn.fixed > stop - _SHORTEST_COMMIT:
            stop = turn.fixed  # the silence after the last word was sent ahead too
        previous = self.history.append_user_turn(
            item_id,
            self._tape.cut(start, stop),
            frames,
            at=max(start, self._tape.start),
            cuts=turn.cuts,
            serial=turn.serial,
        )
        self._last_user_item = item_id
        self._transcripts.expect(item_id, now)
        self._notify(ev.TurnCommitted(item_id, previous))
        self._notify_item(item_id, previous)

    def _cut_turn(self) -> None:
        """Fix a clip of a turn that has become long enough, and send ahead what there is."""
        turn = self._open
        if not turn.advance(self._tape.end, self._sampler, self.history.can_show):
            return
        if turn.serial is None:
            turn.serial = self.history.reserve()
        if self._response is not None:
            return  # what is being answered comes before this turn, and is not all there yet
        messages = self.history.ahead(
            self.session.instructions,
            self._tape.cut(turn.start, turn.fixed),
            turn.frames,
            turn.start,
            turn.cuts,
            turn.serial,
        )
        request = Request(self._call_id, messages, speak=False, max_tokens=1, ahead=True)
        self._actions.append(SendAhead(request))

    def _stop_ahead(self) -> OpenTurn:
        """End the open turn and return it."""
        turn, self._open = self._open, OpenTurn(self._config.ahead, self._tape.end)
        if turn.cuts:
            self._actions.append(StopAhead())
        return turn

    def _commit_audio(self, now: float) -> None:
        buffered = self._tape.end - self._turns.oldest
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
            frames = self._sampler.take(self._tape.end, self._tape.end)
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

    def _respond(self, create: ev.CreateResponse, now: float, spoken_until: float | None = None) -> None:
        """Ask the engine for a response, or remember to once the floor is free."""
        if self._response is not None:
            self._wanted = create
            return
        self._responses += 1
        modalities = create.output_modalities or self.session.output_modalities
        response = Response(self._responses, self._last_user_item, modalities, now, now)
        if spoken_until is not None:
            response.marks["speech_end"] = spoken_until
        self._response = response
        self._owed = False
        self._playout.begin()
        self._mark(response, "turn_end", now)
        self._set_floor(Floor.THINKING)
        self._notify(ev.ResponseCreated(response.id, modalities))
        request = Request(
            call_id=self._call_id,
            messages=self.history.messages(create.instructions or self.session.instructions),
            voice=self.session.voice,
            speak="audio" in modalities,
            temperature=self.session.temperature if create.temperature is None else create.temperature,
            max_tokens=create.max_output_tokens or self.session.max_output_tokens,
        )
        self._actions.append(StartResponse(response.id, request))

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
        apology = self._apology
        if apology is None or "audio" not in response.modalities:
            return
        self._mark(response, "apology", now)
        response.audio_seen = True
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


def _ms(samples: int) -> int:
    return samples * 1000 // RATE
