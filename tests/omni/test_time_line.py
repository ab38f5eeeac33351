"""What was seen and heard at one instant has one position in the model, by its own processor and TM-RoPE."""

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from numpy.typing import NDArray
from torch import Tensor

from loopback.kit import Caller, Ear, until
from omni.chain import Model, running_chain
from omni.media import jpeg, picture
from omni.prepare import HEARD_RATE, Prepared, pictures_of_clip, prepare, sound_of_clip
from omni.stream import TinyOmni, positions_of
from visavis.audio import BLOCK, RATE, Pcm
from visavis.config import FusionConfig
from visavis.engine import AudioPart, FramesPart, Message, TextPart
from visavis.engine.content import message_bodies
from visavis.frames import Frame
from visavis.fusion import Fuser, Media, Mode

POSITIONS_PER_S = 13
"One step is 77 ms; the model's authors speak of 80."
START = 7 * RATE
"Where the turns lie on the conversation's clock."


@pytest.fixture(scope="module")
def omni(checkpoints: dict[str, Path]) -> TinyOmni:
    return TinyOmni(checkpoints["random"])


def message(frames: list[Frame], pcm: Pcm, name: str = "call-1") -> Message:
    sight = (FramesPart(tuple(frames), f"{name}-frames"),) if frames else ()
    return Message("user", (*sight, AudioPart(pcm, f"{name}-audio", START), TextPart("What is it?")))


def prepared_by(omni: TinyOmni, fuser: Fuser, *messages: Message) -> Prepared:
    bodies, fields = message_bodies(messages, fuser)
    return prepare(omni.processor, {"messages": bodies, **fields})


# Tokens.


def random_turn(random: np.random.Generator) -> Message:
    """Make a turn of 0.3 to 9 s with pictures at the camera's pace, before and during the speech."""
    seconds = random.uniform(0.3, 9.0)
    width, height = random.integers(48, 1400, 2)
    if max(width, height) > 3 * min(width, height):
        width = height = min(width, height)
    count = int(random.integers(0, 2 * seconds + 3))
    first = START - round(random.uniform(0, 1.0) * RATE)
    frames = []
    for number in range(count):
        pixels = picture(int(width), int(height), int(random.integers(20, 230)))
        at = first + round((number * 0.5 + random.uniform(0, 0.04)) * RATE)
        frames.append(Frame(jpeg(pixels), int(width), int(height), at))
    noise = random.normal(0, 1_000, round(seconds * RATE)).astype(np.int16)
    return message(frames, noise, f"call-{random.integers(1 << 30)}")


@pytest.mark.parametrize("mode", ["interleaved", "separate", "frames"])
def test_predicted_tokens_are_the_processors(omni: TinyOmni, mode: Mode):
    """Of 20 random clips in each mode."""
    random = np.random.default_rng(20)
    fuser = Fuser(FusionConfig(), mode)
    config = omni.model.config.thinker_config
    media = (config.audio_token_id, config.video_token_id, config.image_token_id)
    wrong = []
    for number in range(20):
        turn = random_turn(random)
        (fused,) = fuser.fuse([turn])
        predicted = sum(part.tokens for part in fused if isinstance(part, Media))
        ids = prepared_by(omni, fuser, turn).inputs["input_ids"]
        counted = sum(int((ids == token).sum()) for token in media)
        assert counted > 0
        if predicted != counted:
            wrong.append((number, predicted, counted))
    assert wrong == []


def test_predicted_tokens_of_a_conversation_in_segments_are_the_processors(omni: TinyOmni):
    """Two turns in one request: one longer than a clip may be, one without pictures."""
    random = np.random.default_rng(5)
    pixels = [jpeg(picture(96, 64, 20 + 10 * (number % 20))) for number in range(130)]
    frames = [Frame(data, 96, 64, START + number * RATE // 2) for number, data in enumerate(pixels)]
    long = message(frames, random.normal(0, 1_000, 65 * RATE).astype(np.int16), "call-1")
    heard = message([], random.normal(0, 1_000, 2 * RATE).astype(np.int16), "call-2")
    fuser = Fuser(FusionConfig(), "interleaved")
    fused = fuser.fuse([long, heard])
    clips = [part for parts in fused for part in parts if isinstance(part, Media)]
    inputs = prepared_by(omni, fuser, long, heard).inputs
    config = omni.model.config.thinker_config
    counted = sum(
        int((inputs["input_ids"] == token).sum()) for token in (config.audio_token_id, config.video_token_id)
    )
    assert [clip.kind for clip in clips] == ["clip"] * 3
    assert sum(clip.tokens for clip in clips) == counted


# Positions.


@dataclass(frozen=True)
class Line:
    """Where the model places what it sees and hears of a request's only clip, in positions from its start."""

    sight: NDArray[np.float64]
    "Of each grid, that is two pictures."
    sound: NDArray[np.float64]
    "Of each token of sound."


def line_of(omni: TinyOmni, prepared: Prepared) -> Line:
    positions, _ = positions_of(omni.model.thinker, prepared.inputs, interleaved=prepared.interleaved)
    config = omni.model.config.thinker_config
    ids = prepared.inputs["input_ids"][0]
    times = positions[0, 0].numpy().astype(float)
    sight = times[(ids == config.video_token_id).numpy()]
    sound = times[(ids == config.audio_token_id).numpy()]
    grids = int(prepared.inputs["video_grid_thw"][0, 0])
    start = min(sight[0], sound[0])
    return Line(sight.reshape(grids, -1)[:, 0] - start, sound - start)


def brightest_grid(inputs: Any) -> int:
    """Find the pair of pictures with the flash in what the eye is given."""
    grids = int(inputs["video_grid_thw"][0, 0])
    brightness: Tensor = inputs["pixel_values_videos"].reshape(grids, -1).mean(1)
    return int(brightness.argmax())


def beep(inputs: Any) -> tuple[int, float]:
    """Find the beep in what the ear is given: its token, and the share of the token's time before it.

    A feature is 10 ms, eight are a token, and a second makes 13 of them.
    """
    loudness = inputs["input_features"][0].max(0).values.numpy()
    first = int(np.argmax(loudness > (np.median(loudness) + loudness.max()) / 2))
    token, rest = divmod(first % 100, 8)
    return first // 100 * 13 + token, rest / 8


@pytest.mark.parametrize("at", [1, 2, 5])
@pytest.mark.parametrize("before", [0, 1])
@pytest.mark.parametrize("container", ["exact", "common"])
def test_a_flash_and_a_beep_at_one_instant_are_one_step_apart_at_most(
    omni: TinyOmni, at: int, before: int, container: Any
):
    """The pictures begin `before` seconds before the speech; flash and beep come `at` seconds into it."""
    random = np.random.default_rng(1)
    pcm = random.normal(0, 60, 8 * RATE)
    times = np.arange(RATE // 4)
    pcm[at * RATE : at * RATE + len(times)] += 12_000 * np.sin(times * 2 * np.pi * 1_000 / RATE)
    frames = []
    for number in range(2 * (8 + before)):
        place = number * RATE // 2 - before * RATE
        flash = at * RATE <= place < (at + 1) * RATE
        pixels = jpeg(picture(160, 128, 235 if flash else 30))
        frames.append(Frame(pixels, 160, 128, START + place))
    fuser = Fuser(FusionConfig(), "interleaved", container)
    prepared = prepared_by(omni, fuser, message(frames, pcm.astype(np.int16)))
    line = line_of(omni, prepared)
    seen = line.sight[brightest_grid(prepared.inputs)]
    token, rest = beep(prepared.inputs)
    heard = line.sound[token] + rest
    assert abs(seen - heard) <= 1
    assert heard == pytest.approx((before + at) * POSITIONS_PER_S, abs=1)


# Through WebRTC.

TURN_S = 6.0
SWEEP_HZ, SWEEP_HZ_PER_S, SWEEP_S = 500.0, 400.0, 8.0
"A tone that rises and begins again: which instant is heard can be told from its pitch."
WIDTH, HEIGHT = 640, 160


class Instrument(Ear):
    """A caller whose microphone and camera both tell the time, in seconds of one clock."""

    def __init__(self) -> None:
        super().__init__()
        self.pulled = 0
        self._phase = 0.0
        self._pulled_at = 0.0
        self._loop = asyncio.get_running_loop()

    def pull_audio(self) -> Pcm:
        """Give the 20 ms that end now."""
        times = (self.pulled + np.arange(BLOCK)) / RATE % SWEEP_S
        phases = self._phase + np.cumsum(2 * np.pi * (SWEEP_HZ + SWEEP_HZ_PER_S * times) / RATE)
        self._phase = float(phases[-1])
        self.pulled += BLOCK
        self._pulled_at = self._loop.time()
        block: Pcm = (8_000 * np.sin(phases)).astype(np.int16)
        return block

    async def next_picture(self) -> av.VideoFrame:
        """Show a bar that has come as far as the time has."""
        now = self.pulled / RATE + self._loop.time() - self._pulled_at
        pixels = np.full((HEIGHT, WIDTH, 3), 40, np.uint8)
        pixels[:, : round(now % SWEEP_S / SWEEP_S * WIDTH)] = 220
        return av.VideoFrame.from_ndarray(pixels, format="rgb24")


def time_seen(pixels: NDArray[np.uint8]) -> float:
    """Read the bar."""
    return float((pixels[:, :, 1] > 130).mean() * SWEEP_S)


def time_heard(sound: NDArray[np.float32], at: int) -> float | None:
    """Read the pitch around a sample; None where there is too little sound, or the tone begins again."""
    piece = sound[max(0, at - 320) : at + 320]
    if len(piece) < 640 or np.sqrt(np.mean(piece**2)) < 0.03:
        return None
    spectrum = np.abs(np.fft.rfft(piece * np.hanning(len(piece)), 1 << 15))
    hertz = float(spectrum.argmax()) * HEARD_RATE / (1 << 15)
    seconds = (hertz - SWEEP_HZ) / SWEEP_HZ_PER_S
    return seconds if 0.1 < seconds < SWEEP_S - 0.1 else None


@pytest.mark.loopback
async def test_what_a_camera_and_a_microphone_show_at_once_is_one_step_apart_at_most(
    omni: TinyOmni, model: Model, http, capsys
):
    """The request that reached the engine is read as the model reads it."""
    async with running_chain(model, model="short", max_tokens=4) as chain:
        ear = Instrument()
        async with Caller(chain.server.url, http, ear, ear.next_picture, fps=30.0) as caller:
            by_hand = {"type": "realtime", "audio": {"input": {"turn_detection": None}}}
            caller.send({"type": "session.update", "session": by_hand})
            await until(lambda: ear.kinds()["session.updated"] == 1, "pushing to talk")
            await until(lambda: ear.pulled > 2 * RATE, "a camera that has been on")
            caller.send({"type": "input_audio_buffer.clear"})
            end = ear.pulled + TURN_S * RATE
            await until(lambda: ear.pulled > end, "the turn")
            caller.send({"type": "input_audio_buffer.commit"})
            caller.send({"type": "response.create"})
            answer = await model.until_answer(caller.call_id, 0, "complete")
    body = await model.request(answer)
    prepared = prepare(omni.processor, body)
    line = line_of(omni, prepared)
    [url] = [
        part["video_url"]["url"] for part in body["messages"][-1]["content"] if part["type"] == "video_url"
    ]
    pictures, sound = pictures_of_clip(url)[0], sound_of_clip(url)
    differences = []
    for grid, position in enumerate(line.sight):
        token = int(np.argmin(np.abs(line.sound - position)))
        heard = time_heard(sound, token * HEARD_RATE // POSITIONS_PER_S)
        if heard is not None:
            late = (time_seen(pictures[2 * grid]) - heard + SWEEP_S / 2) % SWEEP_S - SWEEP_S / 2
            differences.append(late * 1000)
    with capsys.disabled():
        print(f" [sight after sound: {', '.join(f'{late:+.0f}' for late in differences)} ms]", end="")
    assert len(differences) >= 3
    # The median, since a picture that a busy machine drops is replaced by one of up to half a second later.
    assert np.median(np.abs(differences)) <= 1000 / POSITIONS_PER_S
