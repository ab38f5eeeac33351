"""The user's side of the talk: turns, what they are sent as, and who has the floor when both speak. Sans-I/O.

Whoever speaks while the assistant does gets the floor by degrees: as the evidence grows the answer is heard
softer, waits, and is cut. Speech that follows a turn at once belongs to that turn.
"""

from dataclasses import dataclass
from typing import assert_never

from . import events as ev
from .actions import HearAside, JudgeTurn, SendAhead, StopAhead, WantVideo
from .attention import Attention
from .audio import RATE, Pcm
from .config import ConversationConfig, TurnDetection
from .draft import Draft
from .ear import Ear, Sound
from .endpoint import endpointer_for
from .engine import Request
from .frames import Frame, Source
from .history import History
from .loudness import Loudness, Nearness
from .outbox import Outbox
from .overlap import Overlap, OverlapJudge, is_assent
from .recorder import Recorder, UserTurn
from .speaker import Speaker
from .transcripts import Transcripts
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

_BREATH_MS = 40
"Silence after which the turn may be over: time enough for a picture before the engine is asked."


@dataclass(frozen=True, slots=True)
class _Submitted:
    """A turn that was submitted, or a word that was put aside, a moment ago."""

    item_id: str | None
    "None of what was put aside."
    turn: UserTurn
    decided: int
    "Position of the microphone when it was taken for over."


class Listener:
    """Hears the user, submits turns, and lets the assistant give way. `now` is monotonic seconds.

    Positions are samples of the microphone at 24 kHz.
    """

    def __init__(
        self,
        config: ConversationConfig,
        call_id: str,
        ear: Ear,
        history: History,
        transcripts: Transcripts,
        outbox: Outbox,
        speaker: Speaker,
    ) -> None:
        self.speech_item: str | None = None
        "The id that the client was told for the speech now going on: its item will have it."
        self.user_spoke = False
        "Speech was confirmed since this was last set to False."
        self._call_id = call_id
        self._ear = ear
        self._history = history
        self._transcripts = transcripts
        self._outbox = outbox
        self._speaker = speaker
        usual = Loudness()
        self._turns = TurnDetector(
            config.turns, config.session.turn_detection, endpointer_for, Nearness(config.nearness, usual)
        )
        self._recorder = Recorder(config, history)
        self._attention = Attention(config.camera)
        self._overlap = OverlapJudge(config.overlap, usual)
        self._unconfirmed = False
        "The speech now going on may still turn out to be a cough."
        self._submitted: _Submitted | None = None
        "The last turn or aside, as long as the user may turn out to go on with it."
        self._taken_back: UserTurn | None = None
        "The beginning of the turn that goes on, which had been submitted already."
        self._aside: UserTurn | None = None
        "A word said while the assistant spoke, until it is known that it asked for nothing."
        self._judge_at: tuple[int, ...] = ()
        "Silences at which a model is asked whether the turn is finished."
        if config.turns.smart_turn is not None:
            self._judge_at = tuple(map(_samples, config.turns.smart_turn_at_ms))
        self._judged = 0
        "How often it was asked in the silence that goes on."
        self._audio_at = 0.0
        self._stall_s = config.turns.stall_s
        self._min_voiced = _samples(config.turns.min_voiced_ms)
        self._reopen = _samples(config.turns.reopen_ms)
        self._reopen_heard = _samples(config.turns.reopen_heard_ms)
        self._onset_window = _samples(max(config.turns.onset_window_ms, config.turns.min_speech_ms))
        self._longest_reopened = _samples(config.turns.max_turn_ms) // 2
        self._held_until = 0
        "Until when the answer waits for more after an aside."
        self._duck = _samples(config.overlap.duck_ms)
        self._let_go = _samples(config.overlap.let_go_ms)

    @property
    def position(self) -> int:
        """Samples received so far."""
        return self._recorder.position

    @property
    def speaking(self) -> bool:
        """Whether a turn goes on."""
        return self._turns.state is Speech.SPEAKING

    @property
    def probably_speaking(self) -> bool:
        """Whether there is enough voice to give way to."""
        return self._turns.onset >= self._duck

    # What comes in.

    def receive_audio(self, pcm: Pcm, now: float, *, keep_from: int | None) -> None:
        """Take the next block of the microphone. Sound from `keep_from` on is kept for `record`."""
        position = self.position
        self._recorder.append(pcm)
        self._audio_at = now
        detection = self._detection
        sound = Sound(0.0) if detection is None else self._ear.receive(pcm)
        doubts = detection is not None and detection.type == "semantic_vad"
        level = sound.level if doubts else None
        for event in self._turns.receive(position, len(pcm), sound.speech, sound.finality, level):
            self._receive_turn_event(event, now)
        self._weigh(sound, now)
        self._look_up(len(pcm))
        if self.speaking:
            self._have_judged()
            self._send_ahead()
        oldest = self._oldest()
        self._recorder.forget_before(oldest if keep_from is None else min(oldest, keep_from))

    def wants_frame(self, at: int, source: Source) -> bool:
        """Tell whether the picture at this position should be converted and given."""
        return self._recorder.sampler_of(source).wants(at)

    def _look_up(self, samples: int) -> None:
        """Want pictures as they are worth having: around speech, and at once where the turn may be over."""
        speaking = self._detection is None or self.speaking or self._turns.onset > 0
        if self._attention.receive(self.position, speaking=speaking):
            self._recorder.sampler.set_rate(self._attention.fps)
            self._outbox.put(WantVideo(self._attention.fps))
        silence, breath = self._turns.silence, _samples(_BREATH_MS)
        if silence - samples < breath <= silence:
            self._recorder.sampler.hurry()

    def receive_frame(self, frame: Frame) -> None:
        self._recorder.sampler_of(frame.source).receive(frame)

    def play(self, pcm: Pcm) -> None:
        """Note what goes out to the caller: some of it may come back."""
        self._ear.play(pcm)

    def receive_draft(self, draft: Draft) -> None:
        """Take what the engine heard of a turn that may be over."""
        if draft.transcript:
            self._turns.receive_text(draft.turn.end, draft.transcript)

    def receive_text(self, end: int, text: str, now: float) -> None:
        """Take what a recogniser made of what `HearAside` asked for."""
        if self._least_interruption is not None or not text.strip() or is_assent(text):
            return
        evidence, aside = self._turns.evidence, self._aside
        if self._unconfirmed and evidence is not None and evidence.position - evidence.silence == end:
            self._turns.believe()
            self._take_floor(now)
        elif aside is not None and aside.end == end:
            self._aside = None
            self._bring_back(aside, now)

    def _bring_back(self, aside: UserTurn, now: float) -> None:
        """Have a remark answered after all: at once, or with what the user is saying now."""
        self._submitted = None
        if self._interruptible and self._speaker.response is not None:
            self._speaker.barge_in(self._speaker.response, now)
        self._speaker.drop_draft(now)
        self._speaker.owed = self.speaking and self._answers
        self._submit(self._history.new_item_id(), aside, None, now)

    def receive_verdict(self, end: int, verdict: float) -> None:
        """Take what a model said of what `JudgeTurn` asked for: the probability that the turn is finished."""
        self._turns.receive_verdict(end, verdict)

    def limit_camera(self, fps: float | None) -> None:
        """Look at no more than so many pictures a second; None is no limit of the client's."""
        self._attention.limit(fps)

    def reconfigure(self, detection: TurnDetection | None) -> None:
        """Take new settings, from the next block on."""
        self._turns.reconfigure(detection)
        self._ear.reset()

    def commit(self, now: float) -> bool:
        """End the turn here because the client says so; False if there is none."""
        stopped = self._turns.commit()
        if stopped is not None:
            self._receive_turn_event(stopped, now)
        return stopped is not None

    @property
    def buffered(self) -> int:
        """Samples that a commit would submit at most."""
        return self.position - self._turns.oldest

    def clear(self, now: float) -> None:
        """Forget what was said since the last turn, because the client says so."""
        self._submitted = None  # what comes next does not go on where that ended
        dropped = self._turns.clear()
        if dropped is not None:
            self._receive_turn_event(dropped, now)
        else:
            self._outbox.notify(ev.InputCleared())

    def look(self) -> tuple[Frame, ...]:
        """Return what is seen now."""
        return self._recorder.seen(self.position, self.position)

    def record(self, item_id: str, start: int, now: float) -> None:
        """Make a user item of what was heard from `start` to now, though nobody spoke."""
        self._commit(item_id, self._recorder.turn(start, self.position), now)

    # Time.

    def handle_timeout(self, now: float) -> None:
        """Let no turn wait for a microphone that has fallen silent."""
        if now < self._audio_at + self._stall_s:
            return
        ended = self._turns.end("stalled")
        if ended is not None:
            self._receive_turn_event(ended, now)
        self._speaker.set_stance("open")

    def next_timeout(self) -> float | None:
        """Return when `handle_timeout` is next due, None if nothing is waited for."""
        waits = self.speaking or self._speaker.yielding
        return self._audio_at + self._stall_s if waits else None

    # Turns.

    @property
    def _detection(self) -> TurnDetection | None:
        return self._speaker.session.turn_detection

    @property
    def _answers(self) -> bool:
        """Whether turns are answered without the client's asking."""
        return self._detection is not None and self._detection.create_response

    def _receive_turn_event(self, event: TurnEvent, now: float) -> None:
        match event:
            case SpeechStarted():
                self._recorder.begin(event.at)
                self.speech_item = self._history.new_item_id()
                self._outbox.notify(ev.SpeechBegan(self.speech_item, ms(event.at)))
                self._unconfirmed = True
            case SpeechPaused():
                self._ask_in_advance(event, now)
            case SpeechResumed():
                self._speaker.drop_draft(now)
                response = self._speaker.response
                if response is not None and self._interruptible and not self._unconfirmed:
                    self._speaker.barge_in(response, now)  # asked for by the client in the pause
            case SpeechStopped():
                self._end_turn(event, now)
            case SpeechDropped():
                self._speaker.drop_draft(now)
                self._stop_ahead()
                self._unconfirmed = False
                self._clear_input(event.end)
                taken_back, self._taken_back = self._taken_back, None
                if taken_back is not None:
                    self._speaker.owed = False
                    self._submit(self._history.new_item_id(), taken_back, None, now)
                elif self._speaker.owed:
                    self._speaker.respond(ev.CreateResponse(), now)
            case _:  # pragma: no cover
                assert_never(event)

    def _end_turn(self, event: SpeechStopped, now: float) -> None:
        """Submit what was said, unless it was but a word of assent; a short interruption is known here."""
        start = event.start
        if self._unconfirmed:
            if event.reason == "silence" and self._is_aside:
                self._put_aside(event, now)
                return
            reopened = self._confirm(now)
            start = event.start if reopened is None else reopened
        too_long = event.reason == "too_long"
        if too_long:
            self._speaker.drop_draft(now)
        draft = self._speaker.take_draft(start, event.end, now)
        turn = self._recorder.turn(start, event.end, goes_on=too_long) if draft is None else draft.turn
        self._stop_ahead()
        self._speaker.owed = too_long and self._answers  # it goes on, and then all of it is answered
        item_id = self._end_speech(event.end) or self._history.new_item_id()
        self._submit(item_id, turn, draft, now)
        self._taken_back = None
        silent = event.reason == "silence"
        self._submitted = _Submitted(item_id, turn, self.position) if silent else None

    def _submit(self, item_id: str, turn: UserTurn, draft: Draft | None, now: float) -> None:
        """Make a user item of a turn, and ask for the answer if it is not being made already."""
        self._commit(item_id, turn, now)
        if not self._answers or self._speaker.owed:
            return
        spoken_until = now - (self.position - turn.end) / RATE
        if draft is not None and not draft.failed:
            self._speaker.adopt(draft, now, spoken_until)
        else:
            self._speaker.respond(ev.CreateResponse(), now, spoken_until=spoken_until)

    def _commit(self, item_id: str, turn: UserTurn, now: float) -> None:
        previous = self._history.append_user_turn(
            item_id, turn.pcm, turn.frames, at=turn.at, cuts=turn.cuts, serial=turn.serial
        )
        self._speaker.newest_item = item_id
        self._speaker.heed_user()
        self._transcripts.expect(item_id, now)
        self._outbox.notify(ev.TurnCommitted(item_id, previous))
        self._outbox.notify_item(self._history.item(item_id), previous)

    def _clear_input(self, end: int) -> None:
        self._end_speech(end)
        self._outbox.notify(ev.InputCleared())

    def _end_speech(self, end: int) -> str | None:
        """Tell the end of speech whose beginning was told, and return its id; a commit may come without."""
        item_id, self.speech_item = self.speech_item, None
        if item_id is not None:
            self._outbox.notify(ev.SpeechEnded(item_id, ms(end)))
        return item_id

    # Speech that may be an interruption.

    def _weigh(self, sound: Sound, now: float) -> None:
        """Let the answer give way to speech as the evidence for it grows."""
        turns, confirmed = self._turns, self.speaking and not self._unconfirmed
        if turns.voiced and turns.onset:
            self._overlap.note(sound.level, turn=confirmed)
        elif not turns.onset:
            self._overlap.begin()
        if confirmed or not self._overlapping:
            self._speaker.set_stance("open")
            if self._unconfirmed and turns.onset >= self._min_voiced:
                self._take_floor(now)
            return
        match self._overlap.judge(turns.onset, self._least_interruption):
            case Overlap.CONFIRMED if self._unconfirmed:
                self._take_floor(now)
            case Overlap.NONE | Overlap.LIKELY if turns.position < self._held_until:
                pass
            case Overlap.NONE:
                self._speaker.set_stance("open")
            case Overlap.LIKELY:
                self._speaker.set_stance("ducked")
            case _ if turns.silence >= self._let_go and self._is_aside:
                self._speaker.set_stance("open")
            case _:
                self._speaker.set_stance("held")

    @property
    def _interruptible(self) -> bool:
        detection, response = self._detection, self._speaker.response
        if response is None or detection is None:
            return False
        return detection.interrupt_response and response.interruptible

    @property
    def _least_interruption(self) -> int | None:
        """Samples of speech that alone cut an answer off, if the client has set a number."""
        least_ms = None if self._detection is None else self._detection.min_interruption_ms
        return None if least_ms is None else _samples(least_ms)

    @property
    def _overlapping(self) -> bool:
        """Whether speech now would be over an answer that can be interrupted."""
        return self._interruptible and self._speaker.audible

    @property
    def _is_aside(self) -> bool:
        """Whether speech that is over and was not confirmed asks for nothing."""
        return self._overlapping and not self._speaker.almost_over

    def _put_aside(self, event: SpeechStopped, now: float) -> None:
        """Let the answer go on after a word of assent."""
        assert self._speaker.response is not None
        self._aside = self._recorder.turn(event.start, event.end)
        self._unconfirmed = False
        self._stop_ahead()
        self._outbox.mark(self._speaker.response, "aside", now)
        self._held_until = event.end + self._let_go
        if self._submitted is None:
            self._submitted = _Submitted(None, self._aside, self.position)
        self._clear_input(event.end)

    def _take_floor(self, now: float) -> None:
        """Speech that goes on is confirmed."""
        start = self._confirm(now)
        if start is not None:
            self._turns.reopen(start)

    def _confirm(self, now: float) -> int | None:
        """Confirmed speech takes the floor: the one rule that couples the two sides.

        If it goes on with the turn that is being answered, or with a word that was put aside, return where
        that began.
        """
        self._unconfirmed = False
        self.user_spoke = True
        submitted, self._submitted = self._submitted, None
        response = self._speaker.response
        if response is None or not self._interruptible:
            return None
        if (
            submitted is not None
            and submitted.item_id is not None
            and response.answers == submitted.item_id
            and self._history.get(submitted.item_id) is not None
            and self.position - submitted.turn.start < self._longest_reopened
            and self._speaker.heard <= self._reopen_heard
        ):
            self._speaker.take_back(response, now)
            self._transcripts.forget(submitted.item_id)
            self._history.delete(submitted.item_id)
            self._outbox.notify(ev.ItemDeleted(submitted.item_id))
            self._recorder.begin(submitted.turn.start)
            self._taken_back = submitted.turn
            if self._aside is not None and self._aside.start >= submitted.turn.start:
                self._aside = None  # it is within what is said now
            return submitted.turn.start
        self._speaker.barge_in(response, now)
        if submitted is None or submitted.item_id is not None:
            return None
        self._aside = None
        self._recorder.begin(submitted.turn.start)
        return submitted.turn.start

    # What is sent before the turn is known to be over.

    def _ask_in_advance(self, pause: SpeechPaused, now: float) -> None:
        """Ask for the answer to a turn that may be over; or what it was that was said over an answer."""
        if self._overlapping:
            self._outbox.put(HearAside(pause.end, self._recorder.turn(pause.start, pause.end).pcm))
            return
        enough = self._turns.onset >= self._min_voiced
        if not self._answers or not enough or not self._speaker.may_ask_in_advance(now):
            return
        turn = self._recorder.draft(pause.start, pause.end)
        if self._recorder.sent_ahead:
            self._outbox.put(StopAhead())
        messages = self._recorder.messages(turn, self._speaker.session.instructions)
        self._speaker.ask_in_advance(turn, messages, now)

    def _have_judged(self) -> None:
        """Ask a model whether the turn is finished, again and again as the silence grows."""
        silence = self._turns.silence
        if not silence:
            self._judged = 0
        elif self._judged < len(self._judge_at) and silence >= self._judge_at[self._judged]:
            self._judged += 1
            evidence = self._turns.evidence
            assert evidence is not None
            pcm = self._recorder.sound(evidence.start, evidence.position)
            self._outbox.put(JudgeTurn(evidence.position - evidence.silence, pcm))

    def _send_ahead(self) -> None:
        """Send what there is of a turn that is long enough: a clip that is fixed now, or the words."""
        if self._speaker.draft is not None:
            return
        turn = clip = self._recorder.cut()
        if self._speaker.response is not None:
            return  # what is being answered comes before this turn, and is not all there yet
        if clip is None and self._turns.voiced:
            turn = self._recorder.words()
        if turn is None:
            return
        messages = self._recorder.messages(turn, self._speaker.session.instructions)
        request = Request(
            self._call_id,
            messages,
            speak=False,
            max_tokens=1,
            ahead=True,
            tools=self._speaker.tools,
            tool_choice=self._speaker.tool_choice,
        )
        self._outbox.put(SendAhead(request, replaces=clip is not None))

    def _stop_ahead(self) -> None:
        """The turn is over, and with it what is being sent ahead."""
        if self._recorder.sent_ahead:
            self._outbox.put(StopAhead())
        self._recorder.begin(self.position)

    def _oldest(self) -> int:
        """Return the oldest sample that a turn can still have."""
        submitted = self._submitted
        if submitted is None:
            return self._turns.oldest
        latest = self._reopen + (self._onset_window if self._turns.onset else 0)
        if not self.speaking and self.position - submitted.decided > latest:
            self._submitted = None
        return min(self._turns.oldest, submitted.turn.start)


def ms(samples: int) -> int:
    """Return milliseconds of so many samples at 24 kHz."""
    return samples * 1000 // RATE


def _samples(milliseconds: int) -> int:
    return milliseconds * RATE // 1000
