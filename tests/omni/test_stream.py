"""The streaming loop gives what transformers' own `generate` gives, in pieces, and stops when closed."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from omni.media import image_part, mp4_part, picture, sequence_part, tone, wav_part
from omni.prepare import Prepared, prepare
from omni.stream import FRAME_SAMPLES, Codes, End, Sound, Text, TinyOmni, Vocoder
from omni.tiny import ANSWER, build

FRAMES = 10
CLIP = [picture(160, 96, level) for level in (20, 60, 120, 240)]
TURNS: dict[str, list[dict[str, object]]] = {
    "text": [{"type": "text", "text": "Hello there"}],
    "sound and picture": [wav_part(tone(1.1, 440)), image_part(CLIP[0]), {"type": "text", "text": "what"}],
    "pictures in sequence": [sequence_part(CLIP), wav_part(tone(2.0, 440))],
    "clip with its sound": [mp4_part(CLIP, tone(2.0, 440)), {"type": "text", "text": "what"}],
}


@pytest.fixture(scope="module")
def random(checkpoints: dict[str, Path]) -> TinyOmni:
    return TinyOmni(checkpoints["random"])


@pytest.fixture(scope="module")
def short(checkpoints: dict[str, Path]) -> TinyOmni:
    return TinyOmni(checkpoints["short"])


def ask(omni: TinyOmni, content: Any) -> Prepared:
    clip = any("data:video/mp4" in str(part)[:200] for part in content)
    return prepare(
        omni.processor,
        {
            "messages": [{"role": "system", "content": "You see."}, {"role": "user", "content": content}],
            "media_io_kwargs": {"video": {"fps": 2, "num_frames": -1}},
            "mm_processor_kwargs": {"use_audio_in_video": clip, "videos_kwargs": {"fps": 2.0}},
        },
    )


@pytest.mark.parametrize("turn", TURNS)
def test_tokens_and_codes_are_those_of_generate(random: TinyOmni, turn: str, monkeypatch: pytest.MonkeyPatch):
    prepared = ask(random, TURNS[turn])
    spoken: list[torch.Tensor] = []
    decode = random.model.code2wav.chunked_decode

    def listen(codes: torch.Tensor, **options: Any) -> torch.Tensor:
        spoken.append(codes)
        return decode(codes, **options)

    monkeypatch.setattr(random.model.code2wav, "chunked_decode", listen)
    sequence, _ = random.model.generate(
        **prepared.inputs,
        speaker="Ethan",
        use_audio_in_video=prepared.interleaved,
        talker_use_audio_in_video=prepared.interleaved,  # which generate() itself forgets to pass on
        thinker_max_new_tokens=8,
        talker_max_new_tokens=FRAMES + 1,
        talker_do_sample=False,
        thinker_eos_token_id=random.model.config.im_end_token_id,
    )
    sequence = getattr(sequence, "sequences", sequence)
    pieces = list(
        random.answer(prepared.inputs, interleaved=prepared.interleaved, max_tokens=8, max_frames=FRAMES)
    )
    tokens = next(piece.tokens for piece in pieces if isinstance(piece, End))
    codes = torch.stack([piece.codes for piece in pieces if isinstance(piece, Codes)], -1)
    assert list(tokens) == sequence[0, prepared.inputs["input_ids"].shape[1] :].tolist()
    assert codes.shape == (16, FRAMES)
    assert torch.equal(codes, spoken[0][0, :, :FRAMES])


def test_sound_in_chunks_is_that_of_one_decode_without_a_gap(random: TinyOmni):
    frames = list(torch.randint(0, 2048, (60, 16), generator=torch.Generator().manual_seed(1)))
    whole = random.model.code2wav(torch.stack(frames, -1)[None])[0, 0].detach().numpy()
    vocoder = Vocoder(random.model.code2wav, 4, 25, context=len(frames))
    chunks = [chunk for frame in frames if (chunk := vocoder.push(frame)) is not None]
    chunks.append(vocoder.flush())
    assert vocoder.lost == 555
    assert [len(chunk) for chunk in chunks] == [4 * FRAME_SAMPLES - 555, *[25 * FRAME_SAMPLES] * 2, 6 * 1920]
    assert np.abs(np.concatenate(chunks) - whole).max() < 1 / 32_768
    # With a bounded context, as served, it is nearly the same and as long.
    vocoder = Vocoder(random.model.code2wav, 4, 25)
    chunks = [chunk for frame in frames if (chunk := vocoder.push(frame)) is not None]
    chunks.append(vocoder.flush())
    error = np.concatenate(chunks) - whole
    assert np.sqrt(np.mean(error**2)) < 0.1 * np.sqrt(np.mean(whole**2))


def test_sound_begins_before_the_text_ends(short: TinyOmni):
    pieces = list(short.answer(ask(short, TURNS["text"]).inputs, seed=3))
    kinds = [type(piece).__name__ for piece in pieces]
    assert kinds.index("Sound") < kinds.index("End") < len(kinds) - 1
    assert "".join(piece.text for piece in pieces if isinstance(piece, Text)) == ANSWER
    sound = np.concatenate([piece.samples for piece in pieces if isinstance(piece, Sound)])
    assert len(sound) == FRAME_SAMPLES * kinds.count("Codes") - 555
    assert 0.05 < np.sqrt(np.mean(sound**2)) < 0.5


def test_closing_stops_the_work(short: TinyOmni):
    answer = short.answer(ask(short, TURNS["text"]).inputs, seed=3)
    first = next(piece for piece in answer if isinstance(piece, Sound))
    answer.close()
    assert len(first.samples) == 4 * FRAME_SAMPLES - 555
    assert next(answer, None) is None


def test_without_a_voice_there_is_text_alone(short: TinyOmni):
    pieces = list(short.answer(ask(short, TURNS["text"]).inputs, voice=None))
    assert {type(piece) for piece in pieces} == {Text, End}


def test_a_scripted_text_with_a_token_twice_is_refused(tmp_path: Path):
    with pytest.raises(ValueError, match="twice"):
        build(tmp_path, answers="I see what I see")
