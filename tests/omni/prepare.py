"""From the messages of a request to the model's inputs, as vLLM does it: data URLs decoded, sound at 16 kHz.

The decoded media go through `process_mm_info` of qwen-omni-utils and the real processor.
"""

import base64
import binascii
import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import av
import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from omni.torchvision_ops import declare_missing_ops

declare_missing_ops()

from qwen_omni_utils import process_mm_info  # noqa: E402 - after the declaration
from qwen_omni_utils.v2_5 import vision_process  # noqa: E402

HEARD_RATE = 16_000
"Hertz of the model's ears."

_DEFAULT_FRAMES = 32
"vLLM's `num_frames`: of more pictures the rest is dropped without a word, unless -1 is sent."

_DEFAULT_FPS = 1.0
"What the processor believes of a clip that nothing is said about."

Json = dict[str, Any]  # of foreign requests, looked at before use


class BadRequest(ValueError):
    """The request cannot be served; the message says why."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """What `TinyOmni.answer` takes."""

    inputs: Mapping[str, torch.Tensor]
    interleaved: bool


def prepare(processor: Any, body: Json) -> Prepared:
    """Make the inputs of a request. Raises BadRequest."""
    options: Json = body.get("mm_processor_kwargs") or {}
    interleaved = bool(options.get("use_audio_in_video"))
    clip_options: Json = (body.get("media_io_kwargs") or {}).get("video") or {}
    try:
        conversation = [
            {"role": message["role"], "content": _content(message["content"], clip_options)}
            for message in body["messages"]
        ]
        prompt = processor.apply_chat_template(conversation, add_generation_prompt=True, tokenize=False)
        sounds, clips_of_sounds = _with_sound_of_clips(conversation, interleaved=interleaved)
        audio, images, videos = process_mm_info(sounds, use_audio_in_video=False, image_patch_size=16)
        inputs = processor(
            text=prompt,
            audio=audio,
            images=images,
            videos=videos,
            return_tensors="pt",
            padding=True,
            videos_kwargs={"fps": (options.get("videos_kwargs") or {}).get("fps", _DEFAULT_FPS)},
            **(
                {"load_audio_from_video": True, "audio_from_video_indices": clips_of_sounds}
                if interleaved
                else {}
            ),
        )
    except BadRequest:
        raise
    except (KeyError, TypeError, ValueError, RuntimeError, OSError, binascii.Error) as error:
        raise BadRequest(f"The messages cannot be read: {error!r}") from error
    return Prepared(
        {name: value for name, value in inputs.items() if name != "num_audio_tokens"}, interleaved
    )


def _content(content: str | list[Json], clip_options: Json) -> list[Json]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [_part(part, clip_options) for part in content]


def _part(part: Json, clip_options: Json) -> Json:
    """Name a part as qwen-omni-utils does."""
    match part["type"]:
        case "text":
            return {"type": "text", "text": part["text"]}
        case "input_audio":
            if part["input_audio"]["format"] != "wav":
                raise BadRequest(f"Sound as {part['input_audio']['format']} cannot be read.")
            return {"type": "audio", "audio": f"data:audio/wav;base64,{part['input_audio']['data']}"}
        case "image_url":
            return {"type": "image", "image": part["image_url"]["url"]}
        case "video_url":
            return {"type": "video", "video": part["video_url"]["url"], **clip_options}
        case other:
            raise BadRequest(f"Unknown part {other!r}.")


def _with_sound_of_clips(
    conversation: list[Json], *, interleaved: bool
) -> tuple[list[Json], list[int | None]]:
    """Put the sound of each clip behind it, and say of each sound which clip it is of."""
    clips_of_sounds: list[int | None] = []
    clips = 0
    messages = []
    for message in conversation:
        parts = []
        for part in message["content"]:
            parts.append(part)
            if part["type"] == "audio":
                clips_of_sounds.append(None)
            elif part["type"] == "video":
                if interleaved:
                    clips_of_sounds.append(clips)
                    parts.append({"type": "audio", "audio": sound_of_clip(part["video"])})
                clips += 1
        messages.append({"role": message["role"], "content": parts})
    return messages, clips_of_sounds


def sound_of_clip(url: str) -> NDArray[np.float32]:
    """Decode the sound of an MP4 in a data URL: mono float32 at 16 kHz. Raises BadRequest if it has none."""
    if not url.startswith("data:video/mp4"):
        raise BadRequest("`use_audio_in_video` cannot be used with a sequence of pictures.")
    with av.open(io.BytesIO(_data(url))) as container:
        if not container.streams.audio:
            raise BadRequest("Video doesn't have audio track with `audio_in_video=True`.")
        resampler = av.AudioResampler(format="flt", layout="mono", rate=HEARD_RATE)
        blocks = [
            block.to_ndarray()[0]
            for frame in [*container.decode(audio=0), None]
            for block in resampler.resample(frame)
        ]
    return np.concatenate(blocks)


def pictures_of_clip(url: str) -> tuple[list[NDArray[np.uint8]], float]:
    """Decode all pictures, (height, width, 3), of an MP4 or a JPEG sequence in a data URL, and their rate."""
    if url.startswith("data:video/jpeg"):
        encoded = url.partition("base64,")[2].split(",")
        opened = [Image.open(io.BytesIO(base64.b64decode(data))) for data in encoded]
        return [np.asarray(picture.convert("RGB")) for picture in opened], 0.0
    with av.open(io.BytesIO(_data(url))) as container:
        stream = container.streams.video[0]
        rate = stream.average_rate or stream.guessed_rate
        pictures = [frame.to_ndarray(format="rgb24") for frame in container.decode(stream)]
    return pictures, float(rate or 0.0)


def _data(url: str) -> bytes:
    return base64.b64decode(url.partition("base64,")[2], validate=True)


def _read_clip(element: Json) -> tuple[torch.Tensor, Json, float]:
    """Read a clip for qwen-omni-utils, whose own readers need libraries that are not here.

    Which pictures are taken is vLLM's rule: the first `num_frames` of a sequence; of an MP4 `fps` a second,
    spread over all of it.
    """
    pictures, rate = pictures_of_clip(element["video"])
    most = element.get("num_frames", _DEFAULT_FRAMES)
    count = len(pictures) if most < 0 else min(most, len(pictures))
    if rate:
        if (fps := element.get("fps", -1)) > 0:
            count = max(1, min(count, int(len(pictures) / rate * fps)))
        pictures = [pictures[at] for at in np.linspace(0, len(pictures) - 1, count, dtype=int)]
    else:
        pictures = pictures[:count]
    clip = torch.from_numpy(np.stack(pictures)).permute(0, 3, 1, 2)
    metadata = {"fps": rate, "frames_indices": list(range(count)), "total_num_frames": count}
    return clip, metadata, element.get("fps", _DEFAULT_FPS)


vision_process.VIDEO_READER_BACKENDS["torchvision"] = _read_clip
