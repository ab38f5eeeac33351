"""What messages show, say and call, as vLLM's chat completions have it."""

from collections.abc import Iterator, Sequence

from ..fusion import Fuser, Media
from ..tokens import FPS
from . import CallPart, Message, ResultPart, TextPart
from .calling import Json, Manner, call_body, call_text, result_body, result_text


def message_bodies(
    messages: Sequence[Message], fuser: Fuser, manner: Manner = "server", description: str = ""
) -> tuple[list[Json], Json]:
    """Write the messages of a request as the contract has them, and the fields that their media need beside.

    `manner` is how calls and their results are written; `description`, of functions, ends the system message.
    Raises EngineRefused if what they hold cannot be encoded.
    """
    bodies: list[Json] = []
    kinds: set[str] = set()
    messages = described(messages, description)
    for message, parts in zip(messages, fuser.fuse(messages), strict=True):
        media = [part for part in parts if isinstance(part, Media)]
        kinds.update(part.kind for part in media)
        if message.role == "user" and media:
            bodies.append({"role": message.role, "content": [_part(part) for part in parts]})
        else:
            bodies += written_bodies(message, manner)
    return bodies, _fields(kinds)


def described(messages: Sequence[Message], description: str) -> Sequence[Message]:
    """Put a description, if it is not empty, behind the system message."""
    if not description:
        return messages
    rules = messages[0].text if messages and messages[0].role == "system" else ""
    system = Message("system", (TextPart(f"{rules}\n\n{description}" if rules else description),))
    return (system, *(messages[1:] if rules else messages))


def written_bodies(message: Message, manner: Manner) -> Iterator[Json]:
    """Write a message without media: text, calls, or results, of which each is a message of its own."""
    calls = [part for part in message.parts if isinstance(part, CallPart)]
    results = [part for part in message.parts if isinstance(part, ResultPart)]
    if manner == "text":
        if results:
            yield {"role": "user", "content": "\n".join(map(result_text, results))}
        else:
            texts = [message.text] if message.text else []
            yield {"role": message.role, "content": "\n".join([*texts, *map(call_text, calls)])}
    elif results:
        yield from map(result_body, results)
    elif calls:
        yield {
            "role": message.role,
            "content": message.text or None,
            "tool_calls": [call_body(call) for call in calls],
        }
    else:
        yield {"role": message.role, "content": message.text}


def _part(part: TextPart | Media) -> Json:
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text}
    match part.kind:
        case "clip":
            return _url("video_url", "video/mp4", part)
        case "sequence":
            return _url("video_url", "video/jpeg", part)
        case "picture":
            return _url("image_url", "image/jpeg", part)
        case "sound":
            sound = {"data": part.data, "format": "wav"}
            return {"type": "input_audio", "input_audio": sound, "uuid": part.uuid}


def _url(kind: str, media_type: str, media: Media) -> Json:
    return {"type": kind, kind: {"url": f"data:{media_type};base64,{media.data}"}, "uuid": media.uuid}


def _fields(kinds: set[str]) -> Json:
    fields: Json = {}
    if kinds & {"clip", "sequence"}:
        # Without num_frames the server keeps the first 32 frames and says nothing.
        fields["media_io_kwargs"] = {"video": {"fps": FPS, "num_frames": -1}}
    if "clip" in kinds:
        # vLLM itself takes a clip's rate from here alone, else as 1; vLLM-Omni from the file. In the scope of
        # videos the two agree, where a rate outside of it is an error ("passed two times") with the latter.
        fields["mm_processor_kwargs"] = {"use_audio_in_video": True, "videos_kwargs": {"fps": FPS}}
    return fields
