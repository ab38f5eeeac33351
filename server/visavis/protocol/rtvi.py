"""RTVI 2, which Pipecat's client SDKs speak on a data channel, to and from the conversation's own. Sans-I/O.

A client says first that it is ready, and which version of the protocol it speaks; what happens until then is
told after the answer to that. What RTVI has no word for is a `server-message` of a type `visavis.…`.
"""

import json
from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from .. import __version__
from .. import events as ev
from ..config import SessionConfig
from ..errors import ClientEventError, VisavisError
from ..wire import Asked
from .fields import Check, Fields, optional, parse, text
from .rtvi_client import read_message, read_request, read_shown
from .rtvi_output import BotOutput
from .rtvi_tools import ToolCalls

Body = dict[str, Any]

LABEL = "rtvi-ai"
"Of every message of the protocol."

VERSION = "2.1.0"
"What we speak, and tell clients of any version but 1, who are told their own."

_USER = "user"
_MAX_HELD = 256
"Events kept for a client that does not say that it is ready; then the oldest are dropped."
_MAX_TURNS = 64
"Turns whose words are remembered until all are known."

_id: Check[str | None] = optional(text(128))


class RtviProtocol:
    """The wire of one call. `began_s` is when it began, in Unix seconds: transcripts are dated by it.

    With `resumed` the client was ready in a call that this one goes on from, and will not say so again.
    """

    label = "chat"
    tells_audio = False

    def __init__(self, call_id: str, model: str, began_s: float, *, resumed: bool = False) -> None:
        self._key = call_id.removeprefix("rtc_")
        self._model = model
        self._began_s = began_s
        self._ready = resumed
        self._held: deque[ev.ServerEvent] = deque(maxlen=_MAX_HELD)
        "What happened before the client was ready."
        self._messages = 0
        self._answering: str | None = None
        "Id of the client's message at hand."
        self._output = BotOutput()
        self._tools = ToolCalls()
        self._turns: dict[str, tuple[int, str]] = {}
        "When each began (milliseconds on the input audio's clock), and what is known of its words."

    # To the client.

    def encode(self, event: ev.ServerEvent) -> list[str]:
        """Return the messages that tell one event, in the order to send them."""
        if not self._ready:
            self._held.append(event)
            return []
        return [self._message(kind, data) for kind, data in self._expand(event)]

    def encode_error(self, error: VisavisError, *, echo: bool = True) -> str:
        """Return the message that tells an error: the answer to the message decoded last if it is its."""
        answering, self._answering = self._answering, None
        if answering is not None and echo and isinstance(error, ClientEventError):
            return self._message("error-response", {"error": str(error)}, answering)
        return self._message("error", {"error": str(error), "fatal": False})

    def farewell(self) -> list[str]:
        """Return what keeps the client from connecting again."""
        return [_written({"type": "signalling", "message": {"type": "peerLeft"}})]

    def _message(self, kind: str, data: Body | None = None, message_id: str | None = None) -> str:
        if message_id is None:
            self._messages += 1
            message_id = f"{self._key}-{self._messages}"
        body: Body = {"label": LABEL, "type": kind, "id": message_id}
        return _written(body if data is None else body | {"data": data})

    def _expand(self, event: ev.ServerEvent) -> Iterator[tuple[str, Body | None]]:
        match event:
            case ev.SpeechBegan(item_id, at_ms):
                self._remember(item_id, at_ms, "")
                yield "user-started-speaking", None
            case ev.SpeechEnded():
                yield "user-stopped-speaking", None
            case ev.TranscriptPart(item_id, more):
                began_ms, known = self._turns.get(item_id, (0, ""))
                self._remember(item_id, began_ms, known + more)
                yield "user-transcription", self._transcript(began_ms, known + more, final=False)
            case ev.TranscriptDone(item_id, whole):
                began_ms, _ = self._turns.pop(item_id, (0, ""))
                yield "user-transcription", self._transcript(began_ms, whole, final=True)
            case ev.CallBegan() | ev.CallEnded() | ev.CallAnswered() | ev.ItemDone():
                yield from self._tools.tell(event)
            case ev.TurnTimings(final=True):
                yield "metrics", _metrics(event)
            case ev.ThinkingBegan():
                yield _own("thinking_started")
            case ev.ThinkingEnded():
                yield _own("thinking_stopped")
            case ev.CameraWanted(fps):
                yield _own("camera.wanted", fps=fps)
            case ev.Resumed(item_ids):
                yield _own("resumed", item_ids=list(item_ids))
            case ev.CallEnding(reason, seconds, code):
                yield _own("call_ending", reason=reason, seconds=seconds, code=code)
            case _:
                yield from self._output.tell(event)

    def _remember(self, item_id: str, began_ms: int, words: str) -> None:
        self._turns[item_id] = (began_ms, words)
        if len(self._turns) > _MAX_TURNS:
            del self._turns[next(iter(self._turns))]

    def _transcript(self, began_ms: int, words: str, *, final: bool) -> Body:
        at = datetime.fromtimestamp(self._began_s + began_ms / 1000, UTC)
        return {
            "text": words,
            "user_id": _USER,
            "timestamp": at.isoformat(timespec="milliseconds"),
            "final": final,
        }

    # From the client.

    def decode(self, message: str | bytes, session: SessionConfig) -> Asked:
        """Return what a client's message asks for; `session` is what its changes are laid over.

        Raises ClientEventError for whatever is wrong with it, and nothing else.
        """
        self._answering = None
        if message[:4] in ("ping", b"ping"):
            return Asked()  # a sign of life, once a second
        fields = Fields(parse(message))
        kind = fields.read("type", text(128), "")
        if kind == "signalling":
            return Asked(shown=read_shown(fields.within("message")))
        if fields.read("label", optional(text(128)), None) != LABEL:
            return Asked()  # an application's own, on the same channel
        self._answering = fields.read("id", _id, None)
        data = fields.within("data")
        match kind:
            case "client-ready":
                return Asked(replies=self._begin(data))
            case "client-message":
                request = read_request(data, session, self._model, self._key)
                body = {"t": request.kind, "d": request.answer}
                return Asked(
                    request.events, replies=(self._message("server-response", body, self._answering),)
                )
            case "disconnect-bot":
                return Asked(hangs_up=True)
            case "llm-function-call-result":
                return Asked(self._tools.read_result(data))
            case _:
                return Asked(read_message(kind, data))

    def _begin(self, data: Fields) -> tuple[str, ...]:
        """Answer that the client is ready, with what it has missed."""
        version = data.read("version", _id, None) or VERSION
        major = version.partition(".")[0]
        self._output.legacy = major == "1"
        self._tools.legacy = version.startswith(("1.0.", "1.1."))
        about = {"library": "visavis", "library_version": __version__}
        ready = {"version": version if major == "1" else VERSION, "about": about}
        replies = [self._message("bot-ready", ready, self._answering)]
        if major not in ("1", VERSION.partition(".")[0]):
            error = f"This server speaks version {VERSION} of RTVI, not {version}: not all may work."
            replies.append(self._message("error", {"error": error, "fatal": False}))
        self._ready = True
        while self._held:
            replies += self.encode(self._held.popleft())
        return tuple(replies)


def _own(kind: str, **members: Any) -> tuple[str, Body]:
    return "server-message", {"type": f"visavis.{kind}", **members}


def _metrics(event: ev.TurnTimings) -> Body:
    """Return the stages of a turn, in seconds after the end of speech."""
    seconds = {name: ms / 1000 for name, ms in event.marks_ms.items()}
    heard = [seconds["first_sent"]] if "first_sent" in seconds else []
    return {
        "ttfb": [{"processor": "visavis", "value": value} for value in heard],
        "processing": [{"processor": name, "value": value} for name, value in seconds.items()],
    }


def _written(body: Body) -> str:
    message = json.dumps(body, ensure_ascii=False, separators=(",", ":"))
    # An engine may cut its text inside a surrogate pair; half a pair cannot be sent as UTF-8.
    return message.encode("utf-8", "replace").decode("utf-8")
