"""Synthetic speech, pictures and clips for the model's eyes and ears."""

import base64
import io

import av
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from visavis.audio import Pcm, encode_wav

HEARD_RATE = 16_000


def tone(seconds: float, hertz: float, rate: int = HEARD_RATE) -> Pcm:
    """Make an even tone at -12 dBFS."""
    samples: Pcm = (8_000 * np.sin(np.arange(round(seconds * rate)) * 2 * np.pi * hertz / rate)).astype(
        np.int16
    )
    return samples


def picture(width: int, height: int, level: int) -> NDArray[np.uint8]:
    """Make an even grey picture with a coarse pattern that encoders cannot leave out."""
    rows = (np.arange(height) // 16 % 2)[:, None, None] * 8
    return np.clip(np.full((height, width, 3), level) + rows, 0, 255).astype(np.uint8)


def jpeg(pixels: NDArray[np.uint8]) -> bytes:
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "JPEG", quality=85)
    return out.getvalue()


def base64_of(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def wav_part(pcm: Pcm) -> dict[str, object]:
    return {
        "type": "input_audio",
        "input_audio": {"data": base64_of(encode_wav(pcm, HEARD_RATE)), "format": "wav"},
    }


def image_part(pixels: NDArray[np.uint8]) -> dict[str, object]:
    return {"type": "image_url", "image_url": {"url": f"data:image/jpeg;base64,{base64_of(jpeg(pixels))}"}}


def sequence_part(pictures: list[NDArray[np.uint8]]) -> dict[str, object]:
    url = "data:video/jpeg;base64," + ",".join(base64_of(jpeg(pixels)) for pixels in pictures)
    return {"type": "video_url", "video_url": {"url": url}}


def mp4_part(pictures: list[NDArray[np.uint8]], pcm: Pcm | None, fps: int = 2) -> dict[str, object]:
    """Mux pictures at an even rate and sound, starting together, without the help of what is tested."""
    out = io.BytesIO()
    with av.open(out, "w", format="mp4") as container:
        video = container.add_stream("mpeg4", rate=fps)
        video.height, video.width = pictures[0].shape[:2]
        video.pix_fmt = "yuv420p"
        audio = None if pcm is None else container.add_stream("aac", rate=HEARD_RATE, layout="mono")
        for pixels in pictures:
            container.mux(video.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
        container.mux(video.encode(None))
        if audio is not None and pcm is not None:
            frame = av.AudioFrame.from_ndarray(pcm[None], format="s16", layout="mono")
            frame.sample_rate = HEARD_RATE
            container.mux(audio.encode(frame))
            container.mux(audio.encode(None))
    return {"type": "video_url", "video_url": {"url": f"data:video/mp4;base64,{base64_of(out.getvalue())}"}}
