"""Items that a client sends, in OpenAI's Realtime words: messages with their parts, calls, results. Sans-I/O.

Images are decoded later, away from the event loop: what is read here says how.
"""

import base64
import binascii
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from .. import events as ev
from ..audio import RATE
from ..config import SoundFormat
from ..frames import Frame
from ..history import (
    AudioContent,
    CallContent,
    Content,
    FramesContent,
    Item,
    ResultContent,
    SpokenContent,
    TextContent,
)
from ..pictures import MAX_BYTES, read_picture
from .fields import Check, Fields, array, one_of, optional, refuse, refuse_type, shown, text
from .realtime_sound import SoundReader
from .realtime_tools import MAX_ID, MAX_TEXT, read_call, read_result

T = TypeVar("T")

_MAX_PARTS = 64
_MAX_IMAGES = 8
"Of one message: an engine is shown all of them at once."
_MAX_SOUND_S = 120
"Of one message: twice as long as a turn can be."
_MAX_INPUT = 256
"Items that a response is given in place of the conversation."

_DATA_URL = re.compile(r"data:image/(?:jpeg|jpg|png);base64,", re.IGNORECASE)

Later = Callable[[], T]
"Makes it, in milliseconds that the event loop must not wait for. Raises ClientEventError."


@dataclass(frozen=True, slots=True)
class _Picture:
    """An image as it came."""

    data: str
    "Base64."
    param: str

    def decode(self) -> Frame:
        """Return it as a picture. Raises ClientEventError."""
        try:
            return read_picture(base64.b64decode(self.data, validate=True))
        except binascii.Error:
            return refuse(f"{self.param} must be base64 of an image.", self.param, "invalid_image")
        except ValueError as error:
            return refuse(f"The image of {self.param} cannot be read: {error}.", self.param, "invalid_image")


@dataclass(frozen=True, slots=True)
class _Message:
    """What is in a message."""

    role: Literal["user", "assistant", "system"]
    text: str
    spoken: bool
    sound: AudioContent | None
    pictures: tuple[_Picture, ...]

    def media(self) -> tuple[AudioContent | FramesContent, ...]:
        """Return all but the text; its pictures are decoded. Raises ClientEventError."""
        sound = () if self.sound is None else (self.sound,)
        frames = tuple(picture.decode() for picture in self.pictures)
        return (*sound, FramesContent(frames)) if frames else sound

    def item(self) -> Item:
        """Return it as an item without a name."""
        words: Content = SpokenContent(self.text) if self.spoken else TextContent(self.text)
        return Item("", self.role, (*((words,) if self.text else ()), *self.media()))


def read_create(fields: Fields, sound: SoundFormat) -> ev.ClientEvent | Later[ev.ClientEvent]:
    """Read `conversation.item.create`; `sound` is the format of what is said in it."""
    item = fields.require("item", Fields)
    match item.read("type", text(MAX_ID), "message"):
        case "function_call":
            return read_call(fields, item)
        case "function_call_output":
            return read_result(fields, item)
        case "message":
            message = _read_message(item, sound)
        case kind:
            refuse(f"Items of type {shown(kind)} are not supported.", item.param("type"), "unsupported_item")
    item_id = item.read("id", optional(text(MAX_ID, 1)), None)
    previous = fields.read("previous_item_id", optional(text(MAX_ID, 1)), None)

    def make() -> ev.CreateItem:
        media = message.media()
        return ev.CreateItem(message.role, message.text, item_id, previous, media, message.spoken)

    return make if message.pictures else make()


@dataclass(frozen=True, slots=True)
class Input:
    """What a response is given in place of the conversation."""

    _parts: tuple[_Message | Item | str, ...]

    @property
    def has_pictures(self) -> bool:
        """Whether `items` takes its time."""
        return any(isinstance(part, _Message) and part.pictures for part in self._parts)

    def items(self) -> tuple[Item | str, ...]:
        """Return items, and ids of items in the conversation. Raises ClientEventError."""
        return tuple(part.item() if isinstance(part, _Message) else part for part in self._parts)


def read_input(value: Any, param: str, sound: SoundFormat) -> Input:
    """Read the items that a response is given; `sound` is the format of what is said in them."""
    parts = enumerate(array(_MAX_INPUT)(value, param))
    return Input(tuple(_read_given(Fields(each, f"{param}[{n}]"), n, sound) for n, each in parts))


def _read_given(item: Fields, index: int, sound: SoundFormat) -> _Message | Item | str:
    match item.read("type", text(MAX_ID), "message"):
        case "item_reference":
            return item.require("id", text(MAX_ID, 1))
        case "function_call":
            name, arguments = item.require("name", text(64, 1)), item.require("arguments", text(MAX_TEXT))
            call_id = item.read("call_id", optional(text(MAX_ID, 1)), None)
            return Item("", "assistant", (CallContent(call_id or f"call_input_{index}", name, arguments),))
        case "function_call_output":
            call_id, output = item.require("call_id", text(MAX_ID, 1)), item.require("output", text(MAX_TEXT))
            return Item("", "tool", (ResultContent(call_id, output),))
        case "message":
            return _read_message(item, sound)
        case kind:
            return refuse(
                f"Items of type {shown(kind)} are not supported.", item.param("type"), "unsupported_item"
            )


def _read_message(item: Fields, sound: SoundFormat) -> _Message:
    role: Literal["user", "assistant", "system"] = item.require("role", _role)
    parts = item.require("content", array(_MAX_PARTS, 1))
    texts: list[str] = []
    sounds: list[AudioContent] = []
    pictures: list[_Picture] = []
    spoken = False
    for index, value in enumerate(parts):
        part = Fields(value, f"{item.param('content')}[{index}]")
        kind = part.require("type", text(MAX_ID))
        match kind, role:
            case (("input_text" | "output_text" | "text"), _):
                texts.append(part.require("text", text(MAX_TEXT)))
            case (("output_audio" | "audio"), "assistant"):
                spoken = True
                texts.append(part.read("transcript", optional(text(MAX_TEXT)), None) or "")
            case (("input_audio" | "audio"), "user"):
                if sounds:
                    refuse("A message has sound once at most.", part.param("type"), "unsupported_content")
                sounds.append(_read_sound(part, sound))
            case "input_image", "user":
                if len(pictures) == _MAX_IMAGES:
                    refuse(f"A message has {_MAX_IMAGES} images at most.", part.param("type"), "too_many")
                pictures.append(part.require("image_url", _picture))
            case _:
                refuse(
                    f"Content of type {shown(kind)} is not supported in messages of the {role}.",
                    part.param("type"),
                    "unsupported_content",
                )
    whole = text(MAX_TEXT)("\n".join(texts), item.param("content"))
    heard = next(iter(sounds), None)
    if not (whole.strip() or pictures or heard is not None or spoken):
        refuse("The message has no text.", item.param("content"))
    return _Message(role, whole, spoken, heard, tuple(pictures))


def _read_sound(part: Fields, kind: SoundFormat) -> AudioContent:
    """Read what the user said; a transcript that comes with it stands for it once it is an older turn."""

    def sound(value: Any, param: str) -> Any:
        pcm = SoundReader().read(value, param, kind)
        if len(pcm) > _MAX_SOUND_S * RATE:
            refuse(f"{param} must be at most {_MAX_SOUND_S} s of sound.", param, "invalid_audio")
        return pcm

    pcm = part.read("audio", optional(sound), None)
    transcript = part.read("transcript", optional(text(MAX_TEXT)), None)
    if (pcm is None or not len(pcm)) and transcript is None:
        refuse(f"{part.param('audio')} is missing.", part.param("audio"), "missing_required_parameter")
    return AudioContent(pcm if pcm is not None and len(pcm) else None, transcript)


def _picture(value: Any, param: str) -> _Picture:
    if not isinstance(value, str):
        refuse_type(value, param, "a string")
    found = _DATA_URL.match(value)
    if found is None:
        refuse(
            f"{param} must be the image itself, data:image/jpeg;base64,… or png: this server fetches none.",
            param,
            "unsupported_image_url",
        )
    data = value[found.end() :]
    if len(data) > MAX_BYTES * 4 // 3 + 4:
        refuse(f"{param} must be an image of at most {MAX_BYTES >> 20} MiB.", param, "invalid_image")
    return _Picture(data, param)


_role: Check[Any] = one_of("user", "assistant", "system")
