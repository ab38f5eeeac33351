"""A turn's pictures and speech as the model takes them: one clip on one time line, or a sequence and a sound.

`interleaved` makes an MP4 of what was seen and heard in a turn, which Qwen3-Omni reads token by token in the
order of time (`use_audio_in_video`). What its processors allow decides how:

- One rate holds for all clips of a request: the k-th pair of pictures lies at k * 2 / rate seconds, whatever
  the file says (transformers' `video_second_per_grid`, vLLM's `second_per_grid_ts`). So pictures stand on a
  grid of 0.5 s from the first picture or the first sample, whichever is earlier, each at the place
  nearest to its time and held until the next; before the first picture there is that picture.
- A clip's rate can therefore not be lowered without moving its pictures. What does save tokens: pictures end
  where the scene stops changing, while the sound goes on. When that is too much, pictures get smaller, and
  if they cannot, the turn is cut into more clips that show only how each begins: a lower rate, in time.
- Sound begins with the first picture, in silence until the speech, and has a whole number of 10 ms, for which
  alone all processors count the same tokens.
- A request with clips has as many sounds as videos, so there a turn without pictures comes with a grey one.

`separate` sends pictures as a sequence and sound as WAV; `frames` pictures one by one, and none that
looks like the last one that was sent in the same request.

Sound is never cut or left out: pictures get what it leaves of a turn's tokens, but never less than one.
"""

import base64
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import av
import numpy as np

from .ahead import PLACE, pieces
from .audio import RATE, Pcm, encode_wav, resample
from .clip import Container, Size, blank_jpeg, jpeg_size, resize_jpeg, thumbnail, write_clip
from .config import EngineConfig, FusionConfig
from .engine import AudioPart, FramesPart, Message, Part, TextPart
from .errors import EngineRefused
from .frames import Frame
from .look import Seen, at_any_time, on_time
from .tokens import FPS, HOP, SMALLEST_CLIP, SOUND_RATE, picture_tokens, sound_tokens, video_tokens

Mode = Literal["interleaved", "separate", "frames"]

_LEAD = 5 * RATE
"The most that a picture may be older than the speech; an older one is moved up to there."

_MOST_ASPECT = 100
"Longer and thinner pictures are none: the processor refuses them from 200."

_SHORTEST = SOUND_RATE // 10
"Samples of the shortest sound sent: fewer can be too few for a single token."


@dataclass(frozen=True, slots=True)
class Media:
    """One thing to see or hear, encoded."""

    kind: Literal["clip", "sequence", "picture", "sound"]
    "An MP4, JPEGs, a JPEG, a WAV."
    uuid: str
    "Names these very bytes in the engine's caches."
    data: str
    "Base64; a sequence's pictures with commas between."
    tokens: int
    "What it costs, as the model's processor counts."


class Fuser:
    """Turns the media of messages into what an engine is sent; equal parts give equal bytes and names.

    One serves all calls of an engine, from any thread: what was encoded is kept to be sent again as
    history, `cache_mb` of it.
    """

    def __init__(self, config: FusionConfig, mode: Mode, container: Container = "exact") -> None:
        self.mode = mode
        self._config = config
        self._container = container
        self._lock = threading.Lock()
        self._cache: OrderedDict[Hashable, tuple[Media, ...]] = OrderedDict()
        self._cached = 0
        "Bytes of it."

    def fuse(self, messages: Iterable[Message]) -> list[list[TextPart | Media]]:
        """Encode the parts of each message of one request, in order.

        A FramesPart directly before an AudioPart is of the same turn if the two are named alike but for
        `-frames` and `-audio`. Raises EngineRefused if the libraries fail at what seemed well formed.
        """
        turns = [list(_turns(message.parts)) for message in messages]
        clips = self.mode == "interleaved" and any(
            isinstance(turn, tuple)
            and turn[0] is not None
            and turn[1] is not None
            and _usable(turn[0].frames)
            for message in turns
            for turn in message
        )
        seen = Seen()
        fused: list[list[TextPart | Media]] = []
        try:
            for message in turns:
                content: list[TextPart | Media] = []
                for turn in message:
                    if isinstance(turn, TextPart):
                        content.append(turn)
                    else:
                        content.extend(self._fuse_turn(*turn, clips=clips, seen=seen))
                fused.append(content)
        except av.FFmpegError as error:
            raise EngineRefused(f"The turn's pictures and sound cannot be encoded: {error}") from error
        return fused

    def tokens(self, parts: Sequence[Part]) -> int:
        """Count what one message's media cost."""
        (fused,) = self.fuse([Message("user", tuple(parts))])
        return sum(media.tokens for media in fused if isinstance(media, Media))

    def _fuse_turn(
        self, frames: FramesPart | None, audio: AudioPart | None, *, clips: bool, seen: Seen
    ) -> tuple[Media, ...]:
        if clips and audio is not None:
            pictures = _usable(frames.frames) if frames is not None else ()
            room = self._config.max_tokens
            if pictures and audio.cuts:
                return self._pieces(pictures, audio)
            if pictures:
                name = _stem(audio.uuid) + "-clip"
                return self._kept(
                    (frames, audio),
                    lambda: self._clips(name, pictures, audio, room, _origin(pictures, audio.at)),
                )
            name = _whole(audio, _stem(audio.uuid) + "-heard")
            return self._kept(
                (audio, "heard"), lambda: self._clips(name, _blank(audio.at), audio, room, audio.at)
            )
        sound = () if audio is None else self._kept((audio,), lambda: (_sound(audio),))
        if frames is None:
            return sound
        room = self._config.max_tokens - sum(media.tokens for media in sound)
        if self.mode == "separate":
            return self._kept(("sequence", frames, room), lambda: self._sequence(frames, room)) + sound
        return self._pictures(frames, room, seen if self.mode == "frames" else Seen()) + sound

    def _kept(self, key: tuple[object, ...], make: Callable[[], tuple[Media, ...]]) -> tuple[Media, ...]:
        """Return what was made before, or make it. Two threads may make the same at once: it is equal."""
        name = tuple(map(_name, key))
        with self._lock:
            if name in self._cache:
                self._cache.move_to_end(name)
                return self._cache[name]
        made = make()
        with self._lock:
            if name not in self._cache:
                self._cache[name] = made
                self._cached += _size(made)
            while self._cached > self._config.cache_mb << 20:
                self._cached -= _size(self._cache.popitem(last=False)[1])
        return made

    # Pictures and sound on one time line.

    def _pieces(self, frames: Sequence[Frame], heard: AudioPart) -> tuple[Media, ...]:
        """Give a turn that was cut while it went on: no piece depends on what came after it.

        Each may have half of the tokens that the ones before have left, and the rest all of them.
        """
        stem = _stem(heard.uuid)
        clips: tuple[Media, ...] = ()
        for number, piece in enumerate(pieces(heard.pcm, heard.at, frames, heard.cuts)):
            ahead = number < len(heard.cuts)
            name = f"{stem}-ahead-{number}" if ahead else f"{stem}-rest-{len(piece.pcm)}"
            room = self._config.max_tokens - sum(clip.tokens for clip in clips)
            room = room // 2 if ahead else room
            seen, sound = FramesPart(piece.frames, name), AudioPart(piece.pcm, name, piece.at)
            origin = _origin(piece.frames, piece.at) if number == 0 else piece.at
            make = partial(self._clips, name, piece.frames, sound, room, origin)
            clips += self._kept((seen, sound, room), make)
        return clips

    def _clips(
        self, name: str, frames: Sequence[Frame], heard: AudioPart, room: int, origin: int
    ) -> tuple[Media, ...]:
        """Make the clips of what is seen and heard from `origin` on; before the sound there is silence."""
        sound = _for_ears(heard.pcm, silence=heard.at - origin)
        places = -(-len(sound) * FPS // SOUND_RATE)
        most = len(sound) + _SHORTEST  # the last clip's may be filled up
        look = on_time(frames, origin, places, room - sound_tokens(most), self._config)
        jpegs = _resized(frames, look.size, checked=self._container == "common")
        segments = look.clips()
        length = look.segment * SOUND_RATE // FPS
        clips = []
        for number, shown in enumerate(segments):
            part = _filled_up(sound[number * length : (number + 1) * length])
            data = write_clip([jpegs[k] for k in shown], look.size, FPS, part, self._container)
            tokens = video_tokens(len(shown), *look.size) + sound_tokens(len(part))
            uuid = name if len(segments) == 1 else f"{name}-{number}"
            clips.append(Media("clip", uuid, _base64(data), tokens))
        return tuple(clips)

    # Pictures and sound apart.

    def _sequence(self, part: FramesPart, room: int) -> tuple[Media, ...]:
        """Give one sequence, half the tokens of as many pictures, or a picture if there is only one."""

        def cost(pictures: int, width: int, height: int) -> int:
            alone = pictures == 1
            return picture_tokens(width, height) if alone else video_tokens(pictures, width, height)

        trusted = _usable(part.frames, trusting=True)
        if not trusted:
            return ()
        frames, size = at_any_time(trusted, room, self._config, cost)
        data = ",".join(map(_base64, _resized(frames, size)))
        tokens = cost(len(frames), *size)
        if len(frames) == 1:
            return (Media("picture", f"{part.uuid}-0", data, tokens),)
        return (Media("sequence", part.uuid, data, tokens),)

    def _pictures(self, part: FramesPart, room: int, seen: Seen) -> tuple[Media, ...]:
        """Give those pictures one by one that show something new."""

        def cost(pictures: int, width: int, height: int) -> int:
            return pictures * picture_tokens(width, height)

        usable = _usable(part.frames)
        numbered = {id(frame): number for number, frame in enumerate(usable)}
        new = [frame for frame in usable if seen.is_new(frame)]
        if not new:
            return ()
        frames, size = at_any_time(new, room, self._config, cost)
        # How large a picture can be depends on what else is new in this request.
        suffixes = [
            "" if (frame.width, frame.height) == size else f"-{size[0]}x{size[1]}" for frame in frames
        ]
        names = [f"{part.uuid}-{numbered[id(frame)]}" for frame in frames]
        return tuple(
            Media("picture", name + suffix, _base64(jpeg), picture_tokens(*size))
            for name, suffix, jpeg in zip(names, suffixes, _resized(frames, size), strict=True)
        )


def _origin(frames: Sequence[Frame], start: int) -> int:
    """Say when a turn's clip begins: with a picture, or by whole half seconds before the first.

    Pictures lie on a grid of half seconds: shifted by a part of one, each would be seen at a wrong time.
    """
    late = frames[0].at - start
    if late > 0:
        return frames[0].at - -(-late // PLACE) * PLACE
    return max(frames[0].at, start - _LEAD)


def fuser_for(engine: EngineConfig, fusion: FusionConfig) -> Fuser:
    """Make the fuser that an engine's configuration asks for."""
    match engine.media:
        case "auto":
            return Fuser(fusion, "interleaved" if engine.name == "vllm" else "separate")
        case mode:
            return Fuser(fusion, mode)


def _turns(parts: Sequence[Part]) -> Iterator[TextPart | tuple[FramesPart | None, AudioPart | None]]:
    """Put together what belongs to one turn."""
    waiting: FramesPart | None = None
    for part in parts:
        if (
            waiting is not None
            and isinstance(part, AudioPart)
            and part.uuid == _stem(waiting.uuid) + "-audio"
        ):
            yield waiting, part
            waiting = None
            continue
        if waiting is not None:
            yield waiting, None
            waiting = None
        match part:
            case TextPart():
                yield part
            case AudioPart():
                yield None, part
            case FramesPart():
                waiting = part
    if waiting is not None:
        yield waiting, None


def _stem(uuid: str) -> str:
    return uuid.removesuffix("-frames").removesuffix("-audio")


def _usable(frames: Iterable[Frame], *, trusting: bool = False) -> tuple[Frame, ...]:
    """Return the frames that are whole JPEGs, with their true sizes, in order of time.

    `trusting` keeps those of which one cannot tell: a sequence has no need of it.
    """
    usable = []
    for frame in frames:
        size = jpeg_size(frame.jpeg) or ((frame.width, frame.height) if trusting else (0, 0))
        if 0 < max(size) <= _MOST_ASPECT * min(size):
            usable.append(Frame(frame.jpeg, *size, frame.at))
    return tuple(sorted(usable, key=lambda frame: frame.at))


def _blank(at: int) -> tuple[Frame, ...]:
    return (Frame(blank_jpeg(SMALLEST_CLIP), *SMALLEST_CLIP, at),)


def _resized(frames: Sequence[Frame], size: Size, *, checked: bool = False) -> list[bytes]:
    """Give the pictures in one size. In place of one that turns out to be broken comes the one before it.

    Those that have the size are only looked at if they must be `checked`.
    """
    jpegs: list[bytes] = []
    for frame in frames:
        jpeg = frame.jpeg
        try:
            if (frame.width, frame.height) != size:
                jpeg = resize_jpeg(jpeg, size)
            elif checked:
                thumbnail(jpeg)
        except av.FFmpegError:
            jpeg = jpegs[-1] if jpegs else blank_jpeg(size)
        jpegs.append(jpeg)
    return jpegs


def _sound(part: AudioPart) -> Media:
    pcm = _for_ears(part.pcm)
    uuid = _whole(part, part.uuid)
    return Media("sound", uuid, _base64(encode_wav(pcm, SOUND_RATE)), sound_tokens(len(pcm)))


def _whole(part: AudioPart, name: str) -> str:
    """Name sound that is not sent in pieces: of a turn that is cut it may be just what there is so far."""
    return f"{name}-{len(part.pcm)}" if part.cuts else name


def _for_ears(pcm: Pcm, silence: int = 0) -> Pcm:
    """Resample to 16 kHz, after `silence` samples (at 24 kHz) of it, filled up to what can be heard."""
    lead = np.zeros(silence * SOUND_RATE // RATE, np.int16)
    return _filled_up(np.concatenate((lead, resample(pcm, RATE, SOUND_RATE))))


def _filled_up(pcm: Pcm) -> Pcm:
    """Append silence up to a whole number of features, ten at least."""
    length = max(_SHORTEST, -(-len(pcm) // HOP) * HOP)
    return np.concatenate((pcm, np.zeros(length - len(pcm), np.int16)))


def _name(part: object) -> object:
    """Tell parts of equal names apart all the same, as far as that is cheap."""
    match part:
        case AudioPart(pcm, uuid, at):
            return uuid, len(pcm), at
        case FramesPart(frames, uuid):
            return uuid, *((frame.at, len(frame.jpeg)) for frame in frames)
    return part


def _size(made: Iterable[Media]) -> int:
    return sum(len(media.data) for media in made)


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
