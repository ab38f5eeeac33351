"""The assistant's side of the talk: what the engine is asked, and what of its answer is heard. Sans-I/O.

One response at a time has the floor, from its request until the last of it was heard. A draft is a request
for what may become the next one; it has no floor, and nobody hears of it until it does.
"""

import logging
from collections import deque
from dataclasses import replace
from enum import Enum, auto
from typing import Literal, assert_never

from . import events as ev
from .actions import CancelResponse, Mark, StartResponse
from .audio import EMPTY, RATE, Pcm
from .config import ConversationConfig
from .draft import Budget, Draft
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
    Tool,
    ToolCall,
    ToolChoice,
    TranscriptDelta,
    Usage,
)
from .errors import EngineError, EngineLost, EngineRefused
from .functions import MAX_CALLS, FollowUp, Functions
from .history import AudioContent, History, Item
from .lines import Line, Lines
from .outbox import Outbox
from .playout import Playout
from .recorder import UserTurn
from .response import Response, Stage
from .transcripts import Transcripts
from .unsaid import Unsaid
from .waiting import Waiting

logger = logging.getLogger(__name__)

MAX_OUTSIDE = 8
"Responses outside of the conversation at once: each is work for the engine, and no caller asks for it."

_ALMOST_OVER = RATE
"An answer of which no more than this is left may be replied to already: one second."


class Floor(Enum):
    """Whether the assistant is busy, and how far it is."""

    IDLE = auto()
    THINKING = auto()
    SPEAKING = auto()


class Speaker:
    """Asks the engine and says what it answers. `now` is monotonic seconds."""

    def __init__(
        self,
        config: ConversationConfig,
        call_id: str,
        history: History,
        transcripts: Transcripts,
        outbox: Outbox,
        lines: Lines,
        server_tools: tuple[Tool, ...] = (),
        *,
        tells_audio: bool = False,
    ) -> None:
        self.session = config.session
        self.floor = Floor.IDLE
        self.response: Response | None = None
        "Who has the floor."
        self.draft: Draft | None = None
        "What was asked for already, since the turn may be over."
        self.newest_item: str | None = None
        "The user's, which is what the next response answers."
        self.owed = False
        "The user has had no answer yet to what was committed: it was broken off unheard, or never asked for."
        self._config = config
        self._call_id = call_id
        self._history = history
        self._transcripts = transcripts
        self._outbox = outbox
        self._lines = lines
        self._playout = Playout(config.playout)
        self._tells_audio = tells_audio
        "The client plays what it is told; what is pulled tells how far it should be."
        self._waiting = Waiting(config.waiting, EMPTY if lines.waiting is None else lines.waiting.pcm)
        self._budget = Budget(config.speculation)
        self._functions = Functions(config.functions, server_tools, history, outbox)
        self._wanted: ev.CreateResponse | None = None
        "A response asked for while another was live."
        self._asides: dict[int, Response] = {}
        "Written responses outside of the conversation, beside whatever has the floor."
        self._outside: deque[ev.CreateResponse] = deque()
        "Spoken ones, which wait for it."
        self._responses = 0
        self._has_answered = False

    # What the rest of the conversation asks.

    @property
    def audible(self) -> bool:
        """Whether some of the response was heard: to speak now is to speak over it."""
        return self.response is not None and self._playout.started

    @property
    def heard(self) -> int:
        """Samples of the response that were."""
        return self._playout.heard

    @property
    def almost_over(self) -> bool:
        """Whether so little is left of the response that it may be replied to."""
        response = self.response
        ends = response is None or not response.generating
        return ends and self._playout.buffered < _ALMOST_OVER

    @property
    def yielding(self) -> bool:
        """Whether the response is heard softly or waits."""
        return self._playout.stance != "open"

    @property
    def busy(self) -> bool:
        """Whether the user is being answered, or a function is run for it: lines of our own are no answer."""
        return (self.response is not None and not self.response.own) or self._functions.running

    @property
    def has_answered(self) -> bool:
        """Whether anybody was ever answered, or greeted."""
        return self._has_answered

    @property
    def outside(self) -> int:
        """How many responses outside of the conversation there are, or are to be."""
        spoken = self.response is not None and self.response.outside
        return len(self._asides) + len(self._outside) + spoken

    def says(self, item_id: str) -> bool:
        """Tell whether an item is of the response that has the floor."""
        return self.response is not None and self.response.item_id == item_id

    def generated(self, response_id: int | None) -> Response | None:
        """Return a response that is being generated: any by its id, that which has the floor by None."""
        if response_id is not None:
            return self._generating(response_id)
        return self.response if self.response is not None and self.response.generating else None

    @property
    def tools(self) -> tuple[Tool, ...]:
        """What functions the engine is told of with the next turn."""
        return self._functions.offered(self.session.tools)

    @property
    def tool_choice(self) -> ToolChoice:
        return self._functions.choice(ev.CreateResponse(), self.session, 0)

    # Asking.

    def respond(
        self,
        create: ev.CreateResponse,
        now: float,
        *,
        spoken_until: float | None = None,
        prompt: str = "",
        recite: str = "",
        rounds: int = 0,
    ) -> None:
        """Ask the engine for a response, or remember to once the floor is free.

        `prompt` is for the engine alone, after what was said. `spoken_until` is when the user fell silent,
        for the timings. `recite` is the text that is wanted, if it is known. `rounds` is how many there were
        before it that called functions.
        """
        if self.response is not None:
            self._wanted = create
            return
        self._functions.due = None
        response = self._next_response(create, now, self.newest_item, spoken_until, rounds=rounds)
        messages = self._messages(create)
        if prompt:
            messages = _prompted(messages, prompt)
        request = self._request(create, messages, rounds=rounds)
        self._outbox.put(StartResponse(response.id, replace(request, recite=recite)))

    def say_unsaid(self, unsaid: Unsaid, now: float) -> None:
        """Say what the end of another call kept from being said."""
        modalities: ev.Modalities | None = None if unsaid.spoken else ("text",)
        create = ev.CreateResponse(output_modalities=modalities)
        newest = self._history.items[-1]
        if newest.role == "user" and any(
            isinstance(content, AudioContent) and content.transcript is None for content in newest.content
        ):
            self.newest_item = newest.id  # its words will come with the answer
            self._transcripts.expect(newest.id, now)
        self.respond(create, now, prompt=unsaid.prompt, recite=unsaid.text if unsaid.whole else "")

    def respond_outside(self, create: ev.CreateResponse, now: float) -> None:
        """Ask for a response outside of the conversation: a written one now, a spoken one by `follow_up`."""
        if "audio" in (create.output_modalities or self.session.output_modalities):
            self._outside.append(create)
            return
        # What it answers is the newest item, unless it was given others.
        answers = self.newest_item if create.input is None else None
        response = self._make_response(create, now, answers)
        self._asides[response.id] = response
        self._tell_created(response)
        self._outbox.put(StartResponse(response.id, self._request(create, self._messages(create))))

    def close_outside(self, now: float) -> None:
        """Have nothing more of the responses outside of the conversation."""
        self._outside.clear()
        for response in tuple(self._asides.values()):
            self.cancel_generation(response, now)

    def follow_up(self, now: float) -> None:
        """Ask for what has waited for the floor: an answer to results of our own functions, or what is to be
        said outside of the conversation. The user must not be speaking."""
        due = self._functions.due
        if self.response is not None:
            return
        if due is not None:
            self.respond(due.create, now, rounds=due.rounds)
        elif self._outside:
            create = self._outside.popleft()
            response = self._next_response(create, now)
            self._outbox.put(StartResponse(response.id, self._request(create, self._messages(create))))

    def answer_results(self, create: ev.CreateResponse) -> None:
        """Have `follow_up` ask for the answer to what a client's functions gave."""
        self._functions.due = FollowUp(create, rounds=1)

    def heed_user(self) -> None:
        """The user has said something: results that nobody has asked about will be in the answer to that."""
        self._functions.due = None

    def receive_result(self, call_id: str, output: str, now: float) -> bool:
        """Take what a function of the server's gave; False if the call is none that is running."""
        if not self._functions.receive_result(call_id, output):
            return False
        self.drop_draft(now)  # whatever is said next is said knowing it
        return True

    def ask_in_advance(self, turn: UserTurn, messages: tuple[Message, ...], now: float) -> None:
        """Ask for the answer to a turn that may be over. Only if `may_ask_in_advance`."""
        self._responses += 1
        request = self._request(ev.CreateResponse(), messages, speculative=True)
        self.draft = Draft(self._responses, turn)
        self._outbox.put(Mark("draft_asked", self._responses, now))
        self._outbox.put(StartResponse(self._responses, request))

    def may_ask_in_advance(self, now: float) -> bool:
        """Tell whether an answer may be asked for that may not be wanted."""
        free = self.response is None and self.draft is None
        return free and self._config.speculation.enabled and self._budget.allows(now)

    def adopt(self, draft: Draft, now: float, spoken_until: float) -> None:
        """Give the floor to what was asked for in advance; what came of it so far is said now."""
        create = ev.CreateResponse()
        self._functions.due = None
        response = self._next_response(create, now, self.newest_item, spoken_until, draft.response_id)
        self._messages(create)  # makes room in the history, as was made for the draft
        self._outbox.mark(response, "draft_used", now)
        for at, delta in draft.held:
            self.receive_delta(response.id, delta, at)

    def take_draft(self, start: int, end: int, now: float) -> Draft | None:
        """Return the draft if it is of the turn between these positions; one of another is dropped."""
        draft = self.draft
        if draft is not None and (draft.turn.start, draft.turn.end) == (start, end):
            self.draft = None
            return draft
        self.drop_draft(now)
        return None

    def drop_draft(self, now: float) -> None:
        """The user goes on, or wants something else: what was asked for in advance is of no use."""
        draft, self.draft = self.draft, None
        if draft is not None:
            self._budget.note_waste()
            self._outbox.put(CancelResponse(draft.response_id))
            self._outbox.put(Mark("draft_wasted", draft.response_id, now))

    def say(self, line: Line, now: float, *, interruptible: bool = True) -> None:
        """Say one of our own lines, as an answer that no engine is asked for. The floor must be free."""
        self.drop_draft(now)
        spoken = len(line.pcm) > 0 and "audio" in self.session.output_modalities
        create = ev.CreateResponse(output_modalities=("audio",) if spoken else ("text",))
        response = self._next_response(create, now)
        response.own, response.interruptible = True, interruptible
        item = self._begin_reply(response)
        response.audio_seen = spoken
        samples = self._play(response.id, item, line.pcm, now, learn=False) if spoken else 0
        response.book.extend_reply(item, line.text, samples)
        self._outbox.notify(ev.ReplyText(response.id, item, line.text))
        self._end_generation(response, "completed", now)

    # What the engine says.

    def receive_delta(self, response_id: int, delta: Delta, now: float) -> None:
        """Take what the engine streamed; anything of a response that is not being generated is dropped."""
        if self.draft is not None and self.draft.response_id == response_id:
            self.draft.receive(delta, now)
            return
        response = self._generating(response_id)
        if response is None:
            return
        if not isinstance(delta, TranscriptDelta):  # which may be other ears' and tells nothing of the engine
            response.last_delta_at = now
            response.delta_seen = True
        match delta:
            case TranscriptDelta():
                if self._transcripts.receive(response, delta):
                    self._outbox.mark(response, "transcript", now)
            case TextDelta():
                self._outbox.mark(response, "first_text", now)
                self._end_thinking(response)
                item = self._begin_reply(response)
                response.book.extend_reply(item, delta.text, 0)
                self._outbox.notify(ev.ReplyText(response.id, item, delta.text))
            case AudioDelta():
                if len(delta.pcm) and "audio" in response.modalities:
                    self._outbox.mark(response, "first_audio", now)
                    self._end_thinking(response)
                    response.audio_seen = True
                    item = self._begin_reply(response)
                    response.book.extend_reply(item, "", self._play(response.id, item, delta.pcm, now))
            case ThinkingDelta():
                self._outbox.mark(response, "first_thought", now)
                self._think(response, now)
            case Routed():
                response.route = delta
            case Sent(at):
                self._outbox.mark(response, "request_sent", at)
            case Usage():
                response.usage = delta
            case Done("length"):
                self._end_generation(response, "incomplete", now, reason="max_output_tokens")
            case Done("content_filter"):
                self._end_generation(response, "incomplete", now, reason="content_filter")
            case Done():
                self._end_generation(response, "completed", now)
            case ToolCall() if response.may_call and len(response.calls) < MAX_CALLS:
                self._end_thinking(response)
                response.calls.append(delta)
            case ToolCall(_, name):
                logger.warning("%s: dropped a call of %r: not so many were asked for", self._call_id, name)
            case _:  # pragma: no cover
                assert_never(delta)

    def receive_failure(self, response_id: int, error: EngineError, now: float) -> bool:
        """End a response that the engine broke off; tell whether it was awaited.

        What is buffered of it still plays, then the apology.

        A request that was refused would be refused again, if it is its media or its length: the next ones
        go without what was seen and heard so far. What was asked for in advance is asked for again.
        """
        if self.draft is not None and self.draft.response_id == response_id:
            self.draft.failed = True
            return False
        response = self._generating(response_id)
        if response is None:
            return False
        if isinstance(error, EngineRefused):
            response.book.release_media()
        self._end_generation(response, "failed", now, error=error)
        return True

    # What is heard.

    def pull_audio(self, samples: int, now: float, *, hushed: bool) -> Pcm:
        """Return the next block for the caller; `hushed` is that nothing shall fill the wait."""
        response, playout = self.response, self._playout
        if response is None:
            return self._waiting.mix(playout.read(samples, now), now, wanted=False)
        was_started, holes = playout.started, playout.underruns
        pcm = playout.read(samples, now)
        started = playout.started
        if playout.underruns > holes:
            self._outbox.put(Mark("underrun", response.id, now))
        awaited = "audio" in response.modalities and not started
        pcm = self._waiting.mix(pcm, now, wanted=awaited and not hushed)
        if started and not was_started:
            self._outbox.mark(response, "first_sent", now)
            self._set_floor(Floor.SPEAKING)
            self._outbox.notify(ev.PlayoutStarted(response.id))
            self._outbox.notify(response.timings(final=False))
        if response.stage is Stage.DRAINING and playout.finished:
            self._outbox.notify(ev.PlayoutStopped(response.id))
            self._release_floor(now)
        return pcm

    @property
    def reply(self) -> tuple[str | None, int]:
        """The item of the answer that is being given, and how many samples of it were sent."""
        response = self.response
        return (None, 0) if response is None or response.own else (response.item_id, self._playout.heard)

    def unsaid(self, lost: int = 0) -> Unsaid | None:
        """Return what the caller would miss if the call ended now, the last `lost` samples unheard."""
        response = self.response
        owed = Unsaid() if self._functions.running or self._functions.due or self._wanted else None
        if response is None or response.own or response.outside:
            return owed
        spoken = "audio" in response.modalities
        again = Unsaid(spoken=spoken)
        if response.item_id is None:
            return again
        heard = max(0, self._playout.heard - lost)
        text, whole = self._history.unheard(response.item_id, heard)
        if whole:
            return Unsaid(True, text, whole, spoken) if text else owed
        return again if spoken and not heard else Unsaid(True, text, whole, spoken)

    def set_stance(self, stance: ev.Stance) -> None:
        """Let the response be heard as it is, softer, or not: then it waits."""
        if self.response is not None and stance != self._playout.stance:
            self._playout.stance = stance
            self._outbox.notify(ev.StanceChanged(self.response.id, stance))

    def cancel_generation(self, response: Response, now: float) -> None:
        """Have no more of the response generated; what is buffered still plays."""
        self._outbox.put(CancelResponse(response.id))
        self._end_generation(response, "cancelled", now, reason="client_cancelled")

    def interrupt(
        self,
        now: float,
        reason: Literal["turn_detected", "client_cancelled"],
        lost: int = 0,
        *,
        heard: int | None = None,
    ) -> None:
        """Silence the assistant and cut the history to what was heard: not the last `lost` samples sent.

        `heard` is how many that is, if somebody knows better than we, who count what was sent.
        """
        response = self.response
        if response is None:
            return
        sent = self._silence(response, now, reason)
        if response.audio_seen and response.item_id is not None and not response.outside:
            self.truncate(response.item_id, max(0, sent - lost) if heard is None else heard)
        self._release(response, now)

    def truncate(self, item_id: str, heard: int) -> None:
        """Cut a spoken reply to its first `heard` samples, or fewer if it was cut before, and tell."""
        text = self._history.truncate(item_id, heard)
        length = self._history.heard_length(item_id)
        self._outbox.notify(ev.ItemTruncated(item_id, length * 1000 // RATE, text))

    def barge_in(self, response: Response, now: float) -> None:
        """The user has taken the floor: the answer, and what was to come after it, are not wanted."""
        self.owed |= self.floor is Floor.THINKING and not response.outside
        self._wanted = None
        self._outbox.mark(response, "barge_in", now)
        self.interrupt(now, "turn_detected")

    def take_back(self, response: Response, now: float) -> None:
        """The user goes on with what is being answered: the half answer leaves the history."""
        self._wanted = None
        self._outbox.mark(response, "reopened", now)
        self._silence(response, now, "turn_detected")
        if response.item_id is not None and response.book.delete(response.item_id):
            self._outbox.notify(ev.ItemDeleted(response.item_id))
        self._release(response, now)

    # Time.

    def handle_timeout(self, now: float) -> None:
        """Give up a response that takes too long."""
        for aside in tuple(self._asides.values()):
            if now >= aside.deadline(self._config.watchdog):
                self._give_up(aside, now)
        response = self.response
        if response is None or now < response.deadline(self._config.watchdog):
            return
        if response.generating:
            self._give_up(response, now)
        if self.response is response and now >= response.expires_at(self._config.watchdog):
            self.interrupt(now, "client_cancelled")

    def next_timeout(self) -> float | None:
        """Return when `handle_timeout` is next due, None if nothing is waited for."""
        live = [*self._asides.values()] if self.response is None else [self.response, *self._asides.values()]
        return min((response.deadline(self._config.watchdog) for response in live), default=None)

    def _give_up(self, response: Response, now: float) -> None:
        self._outbox.put(CancelResponse(response.id))
        error = EngineLost(f"The engine was silent for {now - response.last_delta_at:.0f} s.")
        self._end_generation(response, "failed", now, error=error)

    # The life of a response.

    def _next_response(
        self,
        create: ev.CreateResponse,
        now: float,
        answers: str | None = None,
        spoken_until: float | None = None,
        response_id: int | None = None,
        rounds: int = 0,
    ) -> Response:
        """Give the floor to a new response."""
        response = self.response = self._make_response(create, now, answers, response_id, rounds)
        if spoken_until is not None:
            response.marks["speech_end"] = spoken_until
        self.owed = False
        self._has_answered = True
        self._playout.begin()
        self._waiting.begin(now)
        self._outbox.mark(response, "turn_end", now)
        self._set_floor(Floor.THINKING)
        self._tell_created(response)
        return response

    def _make_response(
        self,
        create: ev.CreateResponse,
        now: float,
        answers: str | None,
        response_id: int | None = None,
        rounds: int = 0,
    ) -> Response:
        if response_id is None:
            self._responses += 1
            response_id = self._responses
        modalities = create.output_modalities or self.session.output_modalities
        book = self._history.apart() if create.outside else self._history
        response = Response(response_id, answers, modalities, now, now, book, create, rounds)
        client = self.session.tools if create.tools is None else create.tools
        response.client_tools = frozenset(tool.name for tool in client)
        choice = self._functions.choice(create, self.session, rounds)
        offered = self._functions.offered(client, outside=create.outside)
        response.may_call = choice.mode != "none" and bool(offered)
        return response

    def _tell_created(self, response: Response) -> None:
        create = response.create
        self._outbox.notify(
            ev.ResponseCreated(
                response.id,
                response.modalities,
                create.outside,
                create.metadata,
                create.max_output_tokens or self.session.max_output_tokens,
                create.voice or self.session.voice,
            )
        )

    def _messages(self, create: ev.CreateResponse) -> tuple[Message, ...]:
        instructions = create.instructions or self.session.instructions
        if create.input is not None:
            return self._history.messages_of(instructions, create.input)
        return self._history.messages(instructions)

    def _request(
        self,
        create: ev.CreateResponse,
        messages: tuple[Message, ...],
        *,
        speculative: bool = False,
        rounds: int = 0,
    ) -> Request:
        modalities = create.output_modalities or self.session.output_modalities
        client = self.session.tools if create.tools is None else create.tools
        return Request(
            call_id=self._call_id,
            messages=messages,
            voice=create.voice or self.session.voice,
            speak="audio" in modalities,
            temperature=self.session.temperature if create.temperature is None else create.temperature,
            max_tokens=create.max_output_tokens or self.session.max_output_tokens,
            speculative=speculative,
            tools=self._functions.offered(client, outside=create.outside),
            tool_choice=self._functions.choice(create, self.session, rounds),
        )

    def _generating(self, response_id: int) -> Response | None:
        response = self._asides.get(response_id, self.response)
        live = response is not None and response.id == response_id and response.generating
        return response if live else None

    def _think(self, response: Response, now: float) -> None:
        response.thought_until = now
        if not response.thinking:
            response.thinking = True
            self._outbox.notify(ev.ThinkingBegan(response.id))

    def _end_thinking(self, response: Response) -> None:
        if response.thinking:
            response.thinking = False
            self._outbox.notify(ev.ThinkingEnded(response.id))

    def _begin_reply(self, response: Response) -> str:
        if response.item_id is None:
            response.item_id = self._history.new_item_id()
            previous = response.book.begin_reply(response.item_id, "audio" in response.modalities)
            item = response.book.item(response.item_id)
            self._outbox.notify(ev.ReplyBegan(response.id, item, previous))
        return response.item_id

    def _play(self, response_id: int, item_id: str, pcm: Pcm, now: float, *, learn: bool = True) -> int:
        """Have sound of a reply heard; return how much of it there was room for."""
        samples = self._playout.write(pcm, now, learn=learn)
        if self._tells_audio and samples:
            self._outbox.notify(ev.ReplyAudio(response_id, item_id, pcm[:samples]))
        return samples

    def _apologise(self, response: Response, now: float) -> None:
        """Say that there is no answer, or no more of it. It is the caller who hears this, not the engine."""
        apology = self._lines.apology
        if apology is None or "audio" not in response.modalities:
            return
        self._outbox.mark(response, "apology", now)
        response.audio_seen |= len(apology.pcm) > 0
        item = self._begin_reply(response)
        samples = self._play(response.id, item, apology.pcm, now, learn=False)
        said = response.book.apologise(item, apology.text, samples)
        self._outbox.notify(ev.ReplyText(response.id, item, said))

    def _end_generation(
        self,
        response: Response,
        status: ev.ResponseStatus,
        now: float,
        *,
        reason: ev.ResponseReason | None = None,
        error: EngineError | None = None,
    ) -> None:
        """Close the live response's books: exactly one `ResponseDone`. The playout may go on."""
        self._end_thinking(response)
        if status == "failed" or (status == "incomplete" and response.item_id is None):
            self._apologise(response, now)
        response.stage = Stage.DRAINING
        item: Item | None = None
        if response.item_id is not None:
            response.book.end_reply(response.item_id, completed=status == "completed")
            item = response.book.item(response.item_id)
            previous = response.book.previous_id(response.item_id)
            self._outbox.notify(ev.ReplyEnded(response.id, item, previous))
        if status in ("completed", "incomplete"):
            self._transcripts.miss(response.answers)
        calls = self._functions.begin(response, now) if status == "completed" else ()
        self._outbox.mark(response, "done", now)
        self._outbox.notify(response.done(status, reason, error, item, calls))
        self._functions.run(response, calls)
        if self._asides.pop(response.id, None) is not None:
            self._outbox.notify(response.timings(final=True))
            return
        self._playout.end()
        if not response.audio_seen:
            self._release_floor(now)

    def _silence(self, response: Response, now: float, reason: ev.ResponseReason) -> int:
        """Stop the engine and the playout; return how much was heard."""
        started = self._playout.started
        heard = self._playout.flush()
        if response.generating:
            self._outbox.put(CancelResponse(response.id))
            self._end_generation(response, "cancelled", now, reason=reason)
        if started:
            self._outbox.notify(ev.PlayoutCleared(response.id))
        return heard

    def _release(self, response: Response, now: float) -> None:
        """Release the floor, unless the end of the generation did."""
        if self.response is response:
            self._release_floor(now)

    def _release_floor(self, now: float) -> None:
        response, self.response = self.response, None
        assert response is not None
        self._playout.stance = "open"
        self._set_floor(Floor.IDLE)
        self._outbox.notify(response.timings(final=True))
        if self._wanted is not None:
            wanted, self._wanted = self._wanted, None
            self.respond(wanted, now)

    def _set_floor(self, floor: Floor) -> None:
        logger.debug("%s: floor %s -> %s", self._call_id, self.floor.name, floor.name)
        self.floor = floor


def _prompted(messages: tuple[Message, ...], prompt: str) -> tuple[Message, ...]:
    """Add a word to the engine to what the user said, or after what the assistant did."""
    last = messages[-1]
    if last.role != "user":
        return (*messages, Message("user", (TextPart(prompt),)))
    return (*messages[:-1], replace(last, parts=(*last.parts, TextPart(prompt))))
