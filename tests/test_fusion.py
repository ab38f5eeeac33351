import base64
import io
import json
import threading
from collections.abc import Iterable, Sequence
from typing import Any

import av
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from visavis.audio import RATE, Pcm, decode_wav, resample
from visavis.clip import (
    Container,
    blank_jpeg,
    decode_jpeg,
    encode_jpeg,
    jpeg_size,
    resize_jpeg,
    thumbnail,
    write_clip,
)
from visavis.config import EngineConfig, FusionConfig
from visavis.engine import AudioPart, FramesPart, Message, Part, TextPart
from visavis.engine.content import message_bodies
from visavis.errors import EngineRefused
from visavis.frames import Frame
from visavis.fusion import Fuser, Media, Mode, fuser_for
from visavis.tokens import picture_tokens, sound_tokens, video_tokens

EARS = 16_000
AT = 40 * RATE
"Where the speech of most turns here begins."


def picture(level: int, width: int = 320, height: int = 256, mark: tuple[int, int] | None = None) -> bytes:
    """A picture of one brightness, with a mark of another at some place."""
    frame = av.VideoFrame(width, height, "yuvj420p")
    for number, plane in enumerate(frame.planes):
        values = np.full((plane.height, plane.line_size), level if not number else 128, np.uint8)
        if mark is not None and not number:
            values[mark[1] : mark[1] + 16, mark[0] : mark[0] + 16] = 255 - level
        plane.update(values.tobytes())
    return encode_jpeg(frame)


GREY = picture(100)
LEVELS = [picture(level) for level in range(20, 240, 20)]


def frame(at_s: float, jpeg: bytes = GREY, width: int = 320, height: int = 256) -> Frame:
    return Frame(jpeg, width, height, AT + round(at_s * RATE))


def seen(*frames: Frame, name: str = "c-1") -> FramesPart:
    return FramesPart(frames, f"{name}-frames")


def heard(seconds: float = 2.0, name: str = "c-1", at: int = AT, clicks: Iterable[float] = ()) -> AudioPart:
    pcm = np.zeros(round(seconds * RATE), np.int16)
    for click in clicks:
        pcm[round(click * RATE) : round(click * RATE) + 24] = 20_000
    return AudioPart(pcm, f"{name}-audio", at)


def fuse(*parts: Part, mode: Mode = "interleaved", **config: Any) -> list[Media]:
    (content,) = Fuser(FusionConfig(**config), mode).fuse([Message("user", parts)])
    return [part for part in content if isinstance(part, Media)]


def watch(clip: Media) -> tuple[list[float], list[NDArray[np.uint8]]]:
    """Read a clip's pictures as vLLM does: times by its one rate, and brightness."""
    with av.open(io.BytesIO(base64.b64decode(clip.data))) as container:
        stream = container.streams.video[0]
        assert stream.average_rate == 2
        pictures = list(container.decode(stream))
    assert [float(shown.time or 0) for shown in pictures] == [k / 2 for k in range(len(pictures))]
    return [k / 2 for k in range(len(pictures))], [shown.to_ndarray(format="gray8") for shown in pictures]


def listen(clip: Media) -> NDArray[np.float64]:
    """Read a clip's sound as vLLM does: all that is decoded, one block after the other."""
    with av.open(io.BytesIO(base64.b64decode(clip.data))) as container:
        stream = container.streams.audio[0]
        assert stream.rate == EARS
        blocks = [block.to_ndarray() for block in container.decode(stream)]
    sound = np.concatenate(blocks, axis=-1)
    return sound[0] / (32_768 if sound.dtype == np.int16 else 1.0)


def brightness(clip: Media) -> list[int]:
    return [round(float(shown.mean())) for shown in watch(clip)[1]]


def clicks_in(sound: NDArray[np.float64]) -> list[float]:
    """Find when clicks begin, in seconds."""
    loud = np.flatnonzero(np.abs(sound) > 0.25)
    return [int(k) / EARS for k in loud[np.diff(loud, prepend=-EARS) > EARS // 100]]


# One time line.


def test_a_flash_and_a_beep_at_one_instant_are_at_one_instant_of_the_clip() -> None:
    frames = [frame(k / 2 - 1, LEVELS[-1] if k == 6 else LEVELS[0]) for k in range(11)]
    (clip,) = fuse(seen(*frames), heard(4.0, clicks=[2.0]))
    assert clip.kind == "clip"
    times, pictures = watch(clip)
    flashes = [time for time, shown in zip(times, pictures, strict=True) if shown.mean() > 128]
    assert flashes == [3.0]
    assert clicks_in(listen(clip)) == pytest.approx([3.0], abs=0.001)


@pytest.mark.parametrize(("container", "end"), [("exact", 0), ("common", 1_024)])
def test_sound_comes_back_when_it_was_and_as_long_as_it_was(container: Container, end: int) -> None:
    clicks = [0.1, 1.0, 2.345, 4.9]
    pcm: Pcm = resample(heard(5.0, clicks=clicks).pcm, RATE, EARS)
    data = write_clip([GREY] * 4, (320, 256), 2, pcm, container)
    sound = listen(Media("clip", "", base64.b64encode(data).decode(), 0))
    assert clicks_in(sound) == pytest.approx(clicks, abs=0.004)
    assert len(pcm) <= len(sound) <= len(pcm) + end
    if container == "exact":
        assert np.array_equal(np.rint(sound * 32_768).astype(np.int16), pcm)


def test_the_cameras_pictures_reach_the_model_as_they_were() -> None:
    (clip,) = fuse(seen(frame(0, LEVELS[0]), frame(0.5, LEVELS[5])), heard(1.0))
    _, pictures = watch(clip)
    assert all(
        np.array_equal(shown, decode_jpeg(jpeg).to_ndarray(format="gray8"))
        for shown, jpeg in zip(pictures, (LEVELS[0], LEVELS[5]), strict=True)
    )


def test_pictures_from_before_the_speech_are_seen_in_silence() -> None:
    (clip,) = fuse(seen(frame(-1.0, LEVELS[0]), frame(0.0, LEVELS[5])), heard(1.0, clicks=[0.0]))
    assert brightness(clip) == pytest.approx([20, 20, 120, 120], abs=2)
    assert clicks_in(listen(clip)) == pytest.approx([1.0], abs=0.001)
    assert len(listen(clip)) == 2 * EARS


def test_a_picture_stands_where_it_is_nearest_to_its_time_and_until_the_next() -> None:
    frames = [frame(at, LEVELS[k]) for k, at in enumerate((0.0, 0.7, 1.1, 2.8))]
    (clip,) = fuse(seen(*frames), heard(3.5))
    assert brightness(clip) == pytest.approx([20, 40, 60, 60, 60, 60, 80, 80], abs=2)


def test_a_camera_switched_on_during_the_speech_does_not_move_it() -> None:
    (clip,) = fuse(seen(frame(1.0, LEVELS[0]), frame(2.0, LEVELS[5])), heard(3.0, clicks=[2.0]))
    assert brightness(clip) == pytest.approx([20, 20, 20, 20, 120, 120], abs=2)
    assert clicks_in(listen(clip)) == pytest.approx([2.0], abs=0.001)


def test_the_order_of_frames_is_that_of_time() -> None:
    frames = [frame(at, LEVELS[k]) for at, k in ((1.0, 2), (0.0, 0), (0.5, 1), (1.5, 3))]
    (clip,) = fuse(seen(*frames), heard(2.0))
    assert brightness(clip) == pytest.approx([20, 40, 60, 80], abs=2)


def begins(first: float) -> float:
    """When a turn's clip begins, in seconds of the speech: on the half seconds of its first picture."""
    samples = round(first * RATE)
    return first if samples <= 0 else -(-samples % (RATE // 2)) / RATE


@pytest.mark.parametrize("at_s", [-600.0, -4.0, 0.0, 0.9, 30.0])
def test_one_picture_from_whenever_is_seen(at_s: float) -> None:
    (clip,) = fuse(seen(frame(at_s)), heard(1.0, clicks=[0.5]))
    assert brightness(clip) == pytest.approx([100, 100], abs=2)
    (click,) = clicks_in(listen(clip))
    assert click == pytest.approx(0.5 - max(-5.0, begins(at_s)), abs=0.001)


# What it costs.


def test_a_scene_that_stands_still_costs_one_pair_of_pictures_and_all_of_its_sound() -> None:
    still = [frame(k / 2, picture(104 if k == 19 else 100)) for k in range(20)]
    (clip,) = fuse(seen(*still), heard(10.0, clicks=[9.0]))
    assert brightness(clip) == pytest.approx([104, 104], abs=1)  # the newest, which may be the sharpest
    assert clicks_in(listen(clip)) == pytest.approx([9.0], abs=0.001)
    assert clip.tokens == video_tokens(2, 320, 256) + 130


def test_pictures_end_with_the_last_change_however_small_the_thing_that_moved() -> None:
    frames = [frame(k / 2, picture(100, mark=(160, 96) if k >= 7 else None)) for k in range(20)]
    (clip,) = fuse(seen(*frames), heard(10.0))
    pictures = watch(clip)[1]
    assert len(pictures) == 8
    assert [bool(shown[104, 168] > 128) for shown in pictures] == [False] * 7 + [True]


@pytest.mark.parametrize("mode", ["interleaved", "separate", "frames"])
def test_pictures_are_never_larger_than_allowed(mode: Mode) -> None:
    big = picture(50, 1600, 1200)
    frames = seen(*(frame(k / 2, big, 1600, 1200) for k in range(2)))
    for media in fuse(frames, heard(1.0), mode=mode):
        if media.kind == "clip":
            assert watch(media)[1][0].shape == (768, 1024)
        elif media.kind != "sound":
            assert {jpeg_size(base64.b64decode(one)) for one in media.data.split(",")} == {(1024, 768)}
    first = fuse(frames, mode=mode, max_pixels=100_000)[0]
    width, height = jpeg_size(base64.b64decode(first.data.split(",")[0])) or (0, 0)
    assert 90_000 < width * height <= 100_000
    assert width / height == pytest.approx(4 / 3, abs=0.02)


@pytest.mark.parametrize("mode", ["interleaved", "separate"])
def test_pictures_of_other_sizes_take_that_of_the_newest(mode: Mode) -> None:
    frames = [frame(0, picture(20, 640, 480), 640, 480), frame(0.5, LEVELS[5])]
    clip = fuse(seen(*frames), heard(1.0), mode=mode)[0]
    if mode == "interleaved":
        assert [shown.shape for shown in watch(clip)[1]] == [(256, 320)] * 2
        assert brightness(clip) == pytest.approx([20, 120], abs=2)
    else:
        assert clip.kind == "sequence"
        assert [jpeg_size(base64.b64decode(one)) for one in clip.data.split(",")] == [(320, 256)] * 2


def test_a_long_turn_is_cut_at_whole_chunks_in_order_and_nothing_of_it_is_lost() -> None:
    frames = [frame(k / 2, LEVELS[k % 10]) for k in range(45)]
    clicks = [k + 0.25 for k in range(22)]
    clips = fuse(seen(*frames), heard(22.5, clicks=clicks), segment_s=9.0)
    assert [clip.uuid for clip in clips] == ["c-1-clip-0", "c-1-clip-1", "c-1-clip-2"]
    sounds = [listen(clip) for clip in clips]
    assert [len(sound) / EARS for sound in sounds] == [8.0, 8.0, 6.5]
    assert clicks_in(np.concatenate(sounds)) == pytest.approx(clicks, abs=0.001)
    shown = [level for clip in clips for level in brightness(clip)]
    assert shown[:45] == pytest.approx([20 + 20 * (k % 10) for k in range(45)], abs=2)


def test_a_rest_of_a_long_turn_too_short_to_hear_is_filled_up() -> None:
    clips = fuse(seen(frame(0), frame(3.5, LEVELS[0])), heard(4.001), segment_s=4.0)
    assert [len(listen(clip)) for clip in clips] == [4 * EARS, EARS // 10]
    assert brightness(clips[1]) == pytest.approx([20, 20], abs=2)


def test_over_the_bound_pictures_get_smaller_and_the_last_ones_stay() -> None:
    frames = [frame(k / 2, picture(20 + 4 * k, 640, 480), 640, 480) for k in range(40)]
    (clip,) = fuse(seen(*frames), heard(20.0), max_tokens=3_400)
    pictures = watch(clip)[1]
    assert len(pictures) == 40
    assert pictures[-1].mean() == pytest.approx(20 + 4 * 39, abs=3)
    assert pictures[0].shape[0] < 480
    assert 3_000 < clip.tokens <= 3_400


def test_where_small_pictures_do_not_suffice_there_are_fewer_at_their_true_times() -> None:
    frames = [frame(k / 2, picture(20 + 4 * k, 640, 480), 640, 480) for k in range(40)]
    clips = fuse(seen(*frames), heard(20.0, clicks=[19.0]), max_tokens=1_000)
    assert sum(clip.tokens for clip in clips) <= 1_000
    sounds = [listen(clip) for clip in clips]
    assert clicks_in(np.concatenate(sounds)) == pytest.approx([19.0], abs=0.001)
    begin = 0.0
    for clip, sound in zip(clips, sounds, strict=True):
        assert brightness(clip) == pytest.approx([20 + 8 * begin, 24 + 8 * begin], abs=3)
        begin += len(sound) / EARS
    assert len(clips) > 2


@pytest.mark.parametrize("mode", ["separate", "frames"])
def test_apart_from_sound_pictures_get_fewer_before_they_get_smaller(mode: Mode) -> None:
    frames = [frame(k / 2, picture(20 + 8 * k, 640, 480), 640, 480) for k in range(24)]

    def shown(max_tokens: int) -> tuple[int, int, float]:
        media = fuse(seen(*frames), mode=mode, max_tokens=max_tokens)
        assert sum(one.tokens for one in media) <= max_tokens
        jpegs = [base64.b64decode(data) for one in media for data in one.data.split(",")]
        height = {(jpeg_size(jpeg) or (0, 0))[1] for jpeg in jpegs}
        return len(jpegs), height.pop(), float(thumbnail(jpegs[-1]).mean())

    number, height, newest = shown(2_000)
    assert (4 < number < 24, height) == (True, 480)
    assert newest == pytest.approx(20 + 8 * 23, abs=2)
    number, height, newest = shown(400)
    assert (number, height < 480) == (4, True)
    assert newest == pytest.approx(20 + 8 * 23, abs=2)
    number, _, newest = shown(10)
    assert number == 1
    assert newest == pytest.approx(20 + 8 * 23, abs=2)


def test_costs_are_those_of_the_processor() -> None:
    # As transformers 5.24 counts them.
    assert [sound_tokens(round(s * EARS)) for s in (0.0, 0.01, 0.1, 0.5, 1.0, 2.5, 30.0)] == [
        0, 1, 2, 7, 13, 33, 390,
    ]  # fmt: skip
    assert video_tokens(2, 640, 480) == 300
    assert video_tokens(3, 640, 480) == 600
    assert video_tokens(10, 1024, 768) == 5 * 768
    assert video_tokens(2, 1024, 1024) == 27 * 27
    assert video_tokens(2, 64, 32) == 128
    assert video_tokens(2, 320, 240) == 14 * 10
    assert picture_tokens(640, 480) == 300
    assert picture_tokens(64, 64) == 4


texts = st.builds(TextPart, st.sampled_from(["Hi.", "And this?"]))
jpegs = st.sampled_from([*LEVELS, picture(90, 640, 480), picture(60, 200, 1000), b"", b"junk", GREY[:300]])
whens = st.one_of(st.floats(-12, 40), st.just(-5e5))
looks = st.lists(st.builds(frame, whens, jpegs), min_size=1, max_size=8).map(tuple)
sounds = st.floats(0, 30)


@given(
    mode=st.sampled_from(["interleaved", "separate", "frames"]),
    frames=looks,
    seconds=sounds,
    max_tokens=st.integers(600, 8_000),
    segment_s=st.floats(0.1, 70),
)
def test_whatever_a_turn_holds_it_is_within_its_bound_and_whole(
    mode: Mode, frames: tuple[Frame, ...], seconds: float, max_tokens: int, segment_s: float
) -> None:
    media = fuse(seen(*frames), heard(seconds), mode=mode, max_tokens=max_tokens, segment_s=segment_s)
    assert len({one.uuid for one in media}) == len(media)
    assert sum(one.tokens for one in media) <= max_tokens or mode == "interleaved"
    clips = [one for one in media if one.kind == "clip"]
    if not clips:
        (sound,) = (one for one in media if one.kind == "sound")
        assert len(decode_wav(base64.b64decode(sound.data))[0]) >= seconds * EARS - 1
        return
    # The silence before the speech is sound as well, which is never cut.
    least = sum(sound_tokens(len(listen(clip))) for clip in clips) + 170
    assert sum(clip.tokens for clip in clips) <= max(max_tokens, least)
    length = sum(len(listen(clip)) for clip in clips)
    first = min(frame.at for frame in frames if jpeg_size(frame.jpeg))
    begin = max(begins((first - AT) / RATE), -5.0)
    assert length / EARS == pytest.approx(seconds - begin, abs=0.11)
    for number, clip in enumerate(clips):
        pictures = watch(clip)[1]
        assert len(pictures) % 2 == 0
        assert len({shown.shape for shown in pictures}) == 1
        if number < len(clips) - 1:
            assert len(listen(clip)) % (2 * EARS) == 0
        assert len(pictures) / 2 <= -(-len(listen(clip)) // EARS)


@given(
    gaps=st.lists(st.floats(0.3, 2.5), min_size=1, max_size=9),
    first=st.floats(-3, 1),
    segment_s=st.sampled_from([4.0, 60.0]),
)
def test_every_picture_stands_within_a_quarter_second_of_its_time(
    gaps: Sequence[float], first: float, segment_s: float
) -> None:
    times = np.cumsum([first, *gaps])
    shown = [frame(at, LEVELS[k]) for k, at in enumerate(times)]
    seconds = float(max(times[-1], 0)) + 1.0
    clips = fuse(seen(*shown), heard(seconds, clicks=[0.5]), segment_s=segment_s)
    begin = begins(first)
    (click,) = clicks_in(np.concatenate([listen(clip) for clip in clips]))
    assert click + begin == pytest.approx(0.5, abs=0.001)
    found: dict[int, float] = {}
    for clip in clips:
        for k, level in enumerate(brightness(clip)):
            found.setdefault(round(level / 20) - 1, begin + k / 2)
        begin += len(listen(clip)) / EARS
    begin = begins(first)
    places = [int((at - begin + 0.25) // 0.5) for at in times]
    for k, at in enumerate(times):
        if k + 1 < len(times) and places[k + 1] == places[k]:
            continue  # the next one is as near to that place, and newer
        assert found[k] == pytest.approx(at, abs=0.251) or (k == 0 and found[k] <= at)


# What goes beside what.


def body(*messages: Message, mode: Mode = "interleaved") -> tuple[Any, Any]:
    bodies, fields = message_bodies(messages, Fuser(FusionConfig(), mode))
    return json.loads(json.dumps(bodies)), fields


def kinds(content: Any) -> list[str]:
    """Each part by its type, with the media type of data URLs."""

    def kind(part: Any) -> str:
        url = part.get(part["type"], "")
        return url["url"].partition(";")[0] if "url" in url else part["type"]

    return [kind(part) for part in content]


CLIP_FIELDS = {
    "media_io_kwargs": {"video": {"fps": 2, "num_frames": -1}},
    "mm_processor_kwargs": {"use_audio_in_video": True, "videos_kwargs": {"fps": 2}},
}


def test_a_turn_of_pictures_and_speech_is_one_clip_that_is_asked_to_be_read_in_time() -> None:
    bodies, fields = body(Message("user", (seen(frame(0)), heard(), TextPart("Well?"))))
    clip, text = bodies[0]["content"]
    assert clip["type"] == "video_url"
    assert clip["uuid"] == "c-1-clip"
    assert clip["video_url"]["url"].startswith("data:video/mp4;base64,")
    assert text == {"type": "text", "text": "Well?"}
    assert fields == CLIP_FIELDS


def test_beside_a_clip_every_turn_is_one_so_that_sounds_are_as_many_as_videos() -> None:
    bodies, fields = body(
        Message("user", (heard(name="c-1"),)),
        Message("assistant", (TextPart("Yes."),)),
        Message("user", (seen(frame(0), name="c-2"), heard(name="c-2"), heard(name="c-3"))),
    )
    assert [kinds(bodies[k]["content"]) for k in (0, 2)] == [["data:video/mp4"], ["data:video/mp4"] * 2]
    assert [part["uuid"] for k in (0, 2) for part in bodies[k]["content"]] == [
        "c-1-heard", "c-2-clip", "c-3-heard",
    ]  # fmt: skip
    assert bodies[1] == {"role": "assistant", "content": "Yes."}
    assert fields == CLIP_FIELDS


def test_a_turn_without_pictures_costs_little_more_as_a_clip() -> None:
    clips = fuse(heard(30.0, name="c-0"), seen(frame(0)), heard())
    assert clips[0].tokens == 390 + 128


def test_a_shared_screen_is_a_picture_beside_the_clip() -> None:
    screen = seen(frame(1.0, picture(30)), name="c-1-screen")
    part = FramesPart(screen.frames, "c-1-screen")
    for mode, filmed in [("interleaved", "clip"), ("separate", "sequence"), ("frames", "picture")]:
        parts = (seen(frame(0.0), frame(0.5, picture(200))), heard(), part)
        media = fuse(*parts, mode=mode)
        assert media[0].kind == filmed
        assert media[-1].kind == "picture"
        assert media[-1].uuid.startswith("c-1-screen")
    assert [media.kind for media in fuse(heard(), part)] == ["sound", "picture"]


def test_without_any_picture_speech_is_speech() -> None:
    bodies, fields = body(Message("user", (heard(),)))
    assert kinds(bodies[0]["content"]) == ["input_audio"]
    assert bodies[0]["content"][0]["uuid"] == "c-1-audio"
    assert fields == {}


def test_what_was_written_is_shown_with_pictures_and_only_with_those_that_differ() -> None:
    typed = (seen(frame(0), frame(0.5), frame(1.0, LEVELS[9])), TextPart("What is this?"))
    bodies, fields = body(Message("user", typed))
    assert kinds(bodies[0]["content"]) == ["data:image/jpeg", "data:image/jpeg", "text"]
    assert [part.get("uuid") for part in bodies[0]["content"]] == ["c-1-frames-0", "c-1-frames-2", None]
    assert fields == {}
    bodies, fields = body(Message("user", (*typed, seen(frame(2), name="c-2"), heard(name="c-2"))))
    assert kinds(bodies[0]["content"]) == [*["data:image/jpeg"] * 2, "text", "data:video/mp4"]
    assert fields == CLIP_FIELDS


def test_pictures_of_one_turn_are_not_joined_with_the_speech_of_another() -> None:
    bodies, fields = body(Message("user", (seen(frame(0), name="c-1"), heard(name="c-2"))))
    assert kinds(bodies[0]["content"]) == ["data:image/jpeg", "input_audio"]
    assert fields == {}


def test_apart_pictures_are_a_sequence_and_need_no_trust() -> None:
    parts = (seen(frame(0), frame(0.5, LEVELS[3])), heard())
    bodies, fields = body(Message("user", parts), mode="separate")
    assert kinds(bodies[0]["content"]) == ["data:video/jpeg", "input_audio"]
    assert [part["uuid"] for part in bodies[0]["content"]] == ["c-1-frames", "c-1-audio"]
    assert fields == {"media_io_kwargs": {"video": {"fps": 2, "num_frames": -1}}}


def test_as_frames_a_picture_is_not_sent_again_while_the_scene_stays() -> None:
    still = (seen(frame(0), frame(0.5), name="c-1"), heard(name="c-1"))
    again = (seen(frame(9), frame(9.5, LEVELS[0]), name="c-2"), heard(name="c-2"))
    bodies, fields = body(
        Message("user", still),
        Message("assistant", (TextPart("Yes."),)),
        Message("user", again),
        mode="frames",
    )
    assert kinds(bodies[0]["content"]) == ["data:image/jpeg", "input_audio"]
    assert bodies[2]["content"][0]["uuid"] == "c-2-frames-1"
    assert kinds(bodies[2]["content"]) == ["data:image/jpeg", "input_audio"]
    assert fields == {}
    (alone, _) = body(Message("user", again), mode="frames")
    assert [part["uuid"] for part in alone[0]["content"]] == ["c-2-frames-0", "c-2-frames-1", "c-2-audio"]


@pytest.mark.parametrize("mode", ["interleaved", "separate", "frames"])
def test_a_turn_without_frames_after_all_is_one_of_speech(mode: Mode) -> None:
    assert [media.kind for media in fuse(seen(), heard(), mode=mode)] == ["sound"]


@pytest.mark.parametrize("mode", ["interleaved", "frames"])
def test_pictures_that_are_none_are_left_out(mode: Mode) -> None:
    bad = seen(frame(0, b"junk"), frame(0.5, GREY[:-40]), frame(1, picture(10, 1600, 8)), frame(1.5, b""))
    assert [media.kind for media in fuse(bad, heard(), mode=mode)] == ["sound"]
    bodies, fields = body(Message("user", (bad, TextPart("Hm?"))), mode=mode)
    assert (bodies, fields) == ([{"role": "user", "content": "Hm?"}], {})


@pytest.mark.parametrize("container", ["exact", "common"])
def test_a_picture_that_turns_out_to_be_broken_is_replaced_by_the_one_before(container: Container) -> None:
    noise = np.random.default_rng(1).integers(0, 255, 320 * 256).astype(np.uint8)
    whole = av.VideoFrame(320, 256, "yuvj420p")
    for plane in whole.planes:
        plane.update(np.resize(noise, plane.buffer_size).tobytes())
    jpeg = encode_jpeg(whole)
    broken = jpeg[: len(jpeg) // 2] + bytes(300) + jpeg[-300:]
    assert jpeg_size(broken) == (320, 256)
    last = (200, 160, 128) if container == "exact" else (200, 320, 256)
    frames = (frame(0, broken), frame(0.5, LEVELS[5]), frame(1, broken), frame(1.5, picture(*last)))
    parts = (seen(*frames), heard(2.0))
    ((clip, *_),) = Fuser(FusionConfig(), "interleaved", container).fuse([Message("user", parts)])
    assert isinstance(clip, Media)
    assert brightness(clip) == pytest.approx([128, 120, 120, 200], abs=4)


def test_a_turn_without_a_single_sample_is_a_moment_of_silence() -> None:
    (sound,) = fuse(heard(0.0))
    assert len(decode_wav(base64.b64decode(sound.data))[0]) == EARS // 10
    (clip,) = fuse(seen(frame(0)), heard(0.0))
    assert len(listen(clip)) == EARS // 10


def test_what_the_library_cannot_do_is_an_engines_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> bytes:
        raise av.InvalidDataError(1, "no room")

    monkeypatch.setattr("visavis.fusion.write_clip", fail)
    with pytest.raises(EngineRefused, match="cannot be encoded"):
        fuse(seen(frame(0)), heard())


# Again.


def test_the_same_turn_is_the_same_bytes_under_the_same_name_in_every_request() -> None:
    parts = (seen(frame(0), frame(0.5, LEVELS[3])), heard(clicks=[1.0]))
    fuser = Fuser(FusionConfig(), "interleaved")
    first = fuser.fuse([Message("user", parts)])
    later = fuser.fuse([Message("user", parts), Message("user", (heard(name="c-2"),))])
    assert later[0] == first[0]
    assert Fuser(FusionConfig(), "interleaved").fuse([Message("user", parts)]) == first


def encodings(fuser: Fuser, *messages: Message) -> list[int]:
    return [id(part) for content in fuser.fuse(messages) for part in content]


def test_what_was_encoded_is_kept_within_its_bound_and_the_oldest_goes() -> None:
    fuser = Fuser(FusionConfig(cache_mb=1), "interleaved")
    turns = [Message("user", (heard(10.0, name=f"c-{k}"),)) for k in range(3)]  # 427 kB each
    one, two, three = turns
    first = encodings(fuser, one)
    assert encodings(fuser, one) == first
    kept = fuser.fuse([two])
    assert encodings(fuser, one) == first
    encodings(fuser, three)
    assert encodings(fuser, one) == first
    assert fuser.fuse([two])[0][0] is not kept[0][0]
    nothing = Fuser(FusionConfig(cache_mb=0), "interleaved")
    held = nothing.fuse([one])
    assert nothing.fuse([one])[0][0] is not held[0][0]


def test_other_content_under_a_name_used_before_is_not_mistaken_for_it() -> None:
    fuser = Fuser(FusionConfig(), "separate")
    assert fuser.tokens([heard(1.0)]) == 13
    assert fuser.tokens([heard(2.0)]) == 26


def test_threads_share_one_fuser() -> None:
    fuser = Fuser(FusionConfig(), "interleaved")
    messages = [Message("user", (seen(frame(0), name=f"c-{k}"), heard(name=f"c-{k}"))) for k in range(4)]
    results: list[Any] = []
    threads = [threading.Thread(target=lambda: results.append(fuser.fuse(messages))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 4
    assert all(result == results[0] for result in results)


# Which way.


@pytest.mark.parametrize(
    ("name", "media", "mode"),
    [
        ("vllm", "auto", "interleaved"),
        ("local", "auto", "separate"),
        ("scripted", "auto", "separate"),
        ("vllm", "separate", "separate"),
        ("vllm", "frames", "frames"),
        ("local", "interleaved", "interleaved"),
    ],
)
def test_the_configuration_chooses_and_auto_is_what_the_engine_does_best(
    name: Any, media: Any, mode: Mode
) -> None:
    assert fuser_for(EngineConfig(name=name, media=media), FusionConfig()).mode == mode


# Small things.


def test_a_jpeg_tells_its_size_and_what_is_none_tells_none() -> None:
    assert jpeg_size(picture(1, 200, 1000)) == (200, 1000)
    assert jpeg_size(blank_jpeg((64, 32))) == (64, 32)
    assert jpeg_size(resize_jpeg(GREY, (100, 80))) == (100, 80)
    junk = [b"", b"\xff\xd8", GREY[:500], b"\xff\xd8\xff\xd9", b"\xff\xd8" + b"a" * 20 + b"\xff\xd9"]
    assert [jpeg_size(data) for data in junk] == [None] * 5
    nothing = b"\xff\xd8\xff\xc0\x00\x0b\x08\x00\x00\x00\x00\x01\x01\x11\x00\xff\xd9"
    assert jpeg_size(nothing) is None


@given(st.binary(max_size=200))
def test_reading_a_size_never_fails_and_always_ends(data: bytes) -> None:
    for jpeg in (data, b"\xff\xd8" + data + b"\xff\xd9"):
        size = jpeg_size(jpeg)
        assert size is None or min(size) > 0


def test_a_turn_that_was_cut_is_sent_in_pieces_with_names_of_their_own() -> None:
    frames = [frame(k / 2, LEVELS[k % 10]) for k in range(-1, 10)]
    turn = AudioPart(heard(5.0).pcm, "c-1-audio", AT, (AT + 2 * RATE, AT + 4 * RATE))
    clips = fuse(seen(*frames), turn)
    assert [clip.uuid for clip in clips] == ["c-1-ahead-0", "c-1-ahead-1", "c-1-rest-24000"]
    assert [len(listen(clip)) / EARS for clip in clips] == [2.5, 2.0, 1.0]
    assert [len(brightness(clip)) for clip in clips] == [6, 4, 2]


@pytest.mark.parametrize("clips", [True, False])
def test_a_turn_that_was_cut_and_shows_nothing_has_a_name_for_each_length(clips: bool) -> None:
    fuser = Fuser(FusionConfig(), "interleaved")
    earlier = Message("user", (seen(frame(0)), heard())) if clips else Message("user", (TextPart("Hi."),))
    broken, pcm, cuts = frame(0, b"none"), heard(6.0).pcm, (AT + 2 * RATE, AT + 4 * RATE)
    names = []
    for length, sent in ((2, cuts[:1]), (4, cuts), (6, cuts)):
        turn = AudioPart(pcm[: length * RATE], "c-2-audio", AT, sent)
        fused = fuser.fuse([earlier, Message("user", (seen(broken, name="c-2"), turn))])[1]
        names += [media.uuid for media in fused if isinstance(media, Media)]
    assert len(set(names)) == 3


def test_a_picture_that_had_to_be_smaller_has_a_name_for_each_size() -> None:
    fuser = Fuser(FusionConfig(max_tokens=400), "frames")
    pictures = [frame(k, picture(60 * k, 640, 480), 640, 480) for k in (1, 2, 3)]
    turn = Message("user", (seen(*pictures[1:]),))
    before = Message("user", (seen(pictures[1], name="c-0"),))
    (alone,), (_, beside) = fuser.fuse([turn]), fuser.fuse([before, turn])
    sent = {(media.uuid, media.data) for media in (*alone, *beside) if isinstance(media, Media)}
    assert len({name for name, _ in sent}) == len(sent) == 3


def test_a_piece_takes_half_of_what_is_left_at_most_whatever_comes_after_it() -> None:
    frames = [frame(k / 2, picture(20 + 10 * k, 640, 480), 640, 480) for k in range(20)]
    cuts = (AT + 4 * RATE, AT + 8 * RATE)
    clips = fuse(seen(*frames), AudioPart(heard(10.0).pcm, "c-1-audio", AT, cuts), max_tokens=2_000)
    ahead = fuse(seen(*frames[:8]), AudioPart(heard(4.0).pcm, "c-1-audio", AT, cuts[:1]), max_tokens=2_000)
    assert [clips[0]] == ahead
    assert clips[0].tokens <= 1_000
    assert clips[1].tokens <= (2_000 - clips[0].tokens) // 2
    assert sum(clip.tokens for clip in clips) <= 2_000
