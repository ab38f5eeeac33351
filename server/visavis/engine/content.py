"""What a message shows and says, as the parts of vLLM's chat completions. Sans-I/O."""

import base64
from collections.abc import Iterator
from typing import Any

from ..audio import RATE, encode_wav, resample
from . import AudioPart, FramesPart, Message, TextPart

INPUT_RATE = 16_000
"What the model hears; another rate makes the server resample, for which it may lack the library."

VIDEO_FPS = 2
"The one rate that a sequence of pictures is given; frames carry no time of their own."

Json = dict[str, Any]  # Any: values of foreign JSON, looked at before use


def message_body(message: Message) -> Json:
    """Write one message as the contract has it: text alone, or a list of parts."""
    if message.role != "user" or all(isinstance(part, TextPart) for part in message.parts):
        return {"role": message.role, "content": message.text}
    content: list[Json] = []
    for part in message.parts:
        match part:
            case TextPart(text):
                content.append({"type": "text", "text": text})
            case AudioPart(pcm, uuid):
                wav = encode_wav(resample(pcm, RATE, INPUT_RATE), INPUT_RATE)
                sound = {"data": _base64(wav), "format": "wav"}
                content.append({"type": "input_audio", "input_audio": sound, "uuid": uuid})
            case FramesPart():
                content.extend(_frames(part))
    return {"role": "user", "content": content}


def _frames(part: FramesPart) -> Iterator[Json]:
    """Give one clip, half the tokens of as many pictures, or pictures where a clip cannot be."""
    sizes = {(frame.width, frame.height) for frame in part.frames}
    if len(part.frames) >= 2 and len(sizes) == 1:
        url = "data:video/jpeg;base64," + ",".join(_base64(frame.jpeg) for frame in part.frames)
        yield {"type": "video_url", "video_url": {"url": url}, "uuid": part.uuid}
        return
    for number, frame in enumerate(part.frames):
        url = "data:image/jpeg;base64," + _base64(frame.jpeg)
        yield {"type": "image_url", "image_url": {"url": url}, "uuid": f"{part.uuid}-{number}"}


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
