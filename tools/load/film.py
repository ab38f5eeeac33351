"""A camera's pictures, encoded once: somebody who moves before a room, with the noise of a sensor. VP8."""

import pickle
import tempfile
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np


@dataclass(frozen=True, slots=True)
class Film:
    """Played in a loop; the first picture is a key picture and the only one."""

    name: str
    width: int
    height: int
    fps: float
    pictures: tuple[tuple[bytes, bool], ...]
    "Encoded, and whether it is a key picture."


@dataclass(frozen=True, slots=True)
class Camera:
    width: int
    height: int
    fps: float
    bit_rate: int
    pictures: int
    "Of the loop."


CAMERAS = {
    "camera": Camera(640, 360, 2.0, 200_000, 60),
    "camera_720p30": Camera(1280, 720, 30.0, 1_800_000, 300),
}
"One that does as our server asks, and one that does not."


def film(name: str) -> Film:
    """Give the film of a camera; encoded before, it is taken from the folder for temporary files."""
    camera = CAMERAS[name]
    kept = Path(tempfile.gettempdir()) / "visavis-load" / f"{name}-{hash(camera):x}.pickle"
    if kept.exists():
        pictures = pickle.loads(kept.read_bytes())
    else:
        pictures = _encode(camera)
        kept.parent.mkdir(exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=kept.parent, delete=False) as new:
            pickle.dump(pictures, new)
        Path(new.name).rename(kept)
    return Film(name, camera.width, camera.height, camera.fps, pictures)


def _encode(camera: Camera) -> tuple[tuple[bytes, bool], ...]:
    import av  # of the load environment; what only plays films in tests does without

    encoder = av.CodecContext.create("libvpx", "w")
    rate = str(camera.bit_rate)
    # As browsers set it.
    encoder.options = {"cpu-used": "-6", "deadline": "realtime", "lag-in-frames": "0", "static-thresh": "1"}
    encoder.options |= {"minrate": rate, "maxrate": rate, "bufsize": rate, "noise-sensitivity": "4"}
    encoder.width, encoder.height, encoder.pix_fmt = camera.width, camera.height, "yuv420p"
    encoder.qmin, encoder.qmax = 2, 56
    encoder.bit_rate, encoder.gop_size, encoder.thread_count = camera.bit_rate, 100_000, 1
    encoder.framerate = Fraction(camera.fps)
    encoder.time_base = 1 / encoder.framerate
    packets = []
    for number in range(camera.pictures):
        picture = av.VideoFrame.from_ndarray(_picture(camera, number), "yuv420p")
        picture.pts, picture.time_base = number, encoder.time_base
        packets += encoder.encode(picture)
    packets += encoder.encode(None)
    return tuple((bytes(packet), bool(packet.is_keyframe)) for packet in packets)


def _picture(camera: Camera, number: int) -> np.ndarray:
    """Draw a picture as planes of YUV 4:2:0, one below the other."""
    width, height = camera.width, camera.height
    phase = 2 * np.pi * number / camera.pictures * max(1, round(camera.pictures / camera.fps / 4))
    down, across = np.mgrid[0:height, 0:width]
    room = 90 + 40 * np.sin(across / width * 40) * np.sin(down / height * 25)
    head_x = width * (0.5 + 0.04 * np.sin(phase))
    head_y = height * (0.5 + 0.03 * np.sin(2 * phase))
    head = np.square((across - head_x) / (0.16 * width)) + np.square((down - head_y) / (0.36 * height)) < 1
    mouth = (abs(across - head_x) < 0.05 * width) & (
        abs(down - head_y - 0.15 * height) < height * 0.02 * (1.2 + np.sin(9 * phase))
    )
    light = np.where(head, 170 + 15 * np.sin(down / height * 30), room)
    light = np.where(mouth, 60, light) + np.random.default_rng(number).normal(0, 1.5, (height, width))
    planes = np.full((height * 3 // 2, width), 128, np.uint8)
    planes[:height] = np.clip(light, 0, 255)
    planes[height : height * 5 // 4].reshape(height // 2, width // 2)[head[::2, ::2]] = 110
    planes[height * 5 // 4 :].reshape(height // 2, width // 2)[head[::2, ::2]] = 150
    return planes
