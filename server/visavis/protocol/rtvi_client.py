"""What a client's RTVI messages ask of the conversation. Sans-I/O."""

from dataclasses import dataclass
from typing import Any

from .. import events as ev
from ..config import SessionConfig
from ..frames import Source
from .fields import Check, Fields, boolean, integer, one_of, optional, refuse, shown, text
from .realtime_session import MAX_TEXT, instructions, merge_session, session_object

Events = tuple[ev.ClientEvent, ...]

_RECEIVERS: dict[int, Source] = {1: "camera", 2: "screen"}
"What the client shows by its second and third transceiver; the first is the microphone."

_SAY = "Say the following to the user, word for word and nothing else: "

_words = text(MAX_TEXT, 1)
_role: Check[Any] = one_of("user", "assistant", "system")


@dataclass(frozen=True, slots=True)
class Request:
    """A `client-message`, which has an answer."""

    kind: str
    events: Events = ()
    answer: Any = None


def read_shown(message: Fields) -> tuple[tuple[Source, bool], ...]:
    """Read a message of the transport's own: whether a camera or a screen is shown."""
    if message.read("type", text(128), "") != "trackStatus":
        return ()
    source = _RECEIVERS.get(message.require("receiver_index", integer(0, 1_000)))
    enabled = message.require("enabled", boolean)
    return () if source is None else ((source, enabled),)


def read_message(kind: str, data: Fields) -> Events:
    """Return what a message asks for. Raises ClientEventError, naming what is wrong."""
    match kind:
        case "send-text":
            options = data.within("options")
            events: Events = (ev.CreateItem("user", data.require("content", _words)),)
            if not options.read("run_immediately", boolean, True):
                return events
            spoken = options.read("audio_response", boolean, True)
            response = ev.CreateResponse(output_modalities=None if spoken else ("text",))
            return ev.ClearOutput(), *events, response
        case "append-to-context":
            events = (ev.CreateItem(data.require("role", _role), data.require("content", _words)),)
            at_once = data.read("run_immediately", optional(boolean), False)
            return (ev.ClearOutput(), *events, ev.CreateResponse()) if at_once else events
        case _:
            return refuse(f"Messages of type {shown(kind)} are of no use here.", "type", "unknown_event")


def read_request(data: Fields, session: SessionConfig, model: str, key: str) -> Request:
    """Return what a `client-message` asks for: `t` says what, `d` how. Raises ClientEventError.

    `session.get` and `session.update` have the settings of OpenAI's session object; `respond` asks for an
    answer to what was said, by other `instructions` if there are any; `say` has a `text` said; `interrupt`
    stops the bot.
    """
    kind = data.require("t", text(128))
    how = data.within("d")
    match kind:
        case "session.get":
            return Request(kind, (), _session_object(session, model, key))
        case "session.update":
            changed = merge_session(session, data.require("d", _any), data.param("d"))
            return Request(kind, (ev.UpdateSession(changed),), _session_object(changed, model, key))
        case "respond":
            by = how.read("instructions", optional(instructions), None)
            return Request(kind, (ev.CreateResponse(instructions=by),))
        case "say":
            words = how.require("text", _words)
            return Request(kind, (ev.ClearOutput(), ev.CreateResponse(instructions=_SAY + words)))
        case "interrupt":
            return Request(kind, (ev.ClearOutput(),))
        case _:
            return refuse(f"There is no client message {shown(kind)}.", data.param("t"), "unknown_event")


def _session_object(session: SessionConfig, model: str, key: str) -> dict[str, Any]:
    return session_object(session, session_id=f"sess_{key}", model=model)


def _any(value: Any, param: str) -> Any:
    return value
