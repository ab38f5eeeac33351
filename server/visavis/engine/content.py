"""What messages show and say, as the parts of vLLM's chat completions."""

from collections.abc import Sequence
from typing import Any

from ..fusion import Fuser, Media
from ..tokens import FPS
from . import Message, TextPart

Json = dict[str, Any]  # Any: values of foreign JSON, looked at before use


def message_bodies(messages: Sequence[Message], fuser: Fuser) -> tuple[list[Json], Json]:
    """Write the messages of a request as the contract has them, and the fields that their media need beside.

    Raises EngineRefused if what they hold cannot be encoded.
    """
    bodies: list[Json] = []
    kinds: set[str] = set()
    for message, parts in zip(messages, fuser.fuse(messages), strict=True):
        media = [part for part in parts if isinstance(part, Media)]
        kinds.update(part.kind for part in media)
        plain = message.role != "user" or not media
        content = message.text if plain else [_part(part) for part in parts]
        bodies.append({"role": message.role, "content": content})
    return bodies, _fields(kinds)


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
