"""The tiny Qwen3-Omni's answer as a stream: text, codec frames and sound, each as soon as it can be had.

`transformers` itself gives an answer whole. Here the Thinker's tokens feed the Talker one by one, whose codec
frames (16 codebooks, 80 ms) feed Code2Wav in chunks, as vLLM-Omni's `async_chunk` does; tokens and frames are
those of `generate()`.
"""

from collections import deque
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from omni.torchvision_ops import declare_missing_ops

declare_missing_ops()

from transformers import (  # noqa: E402 - after the declaration
    DynamicCache,
    Qwen3OmniMoeForConditionalGeneration,
    Qwen3OmniMoeProcessor,
)
from transformers.generation.logits_process import (  # noqa: E402
    LogitsProcessorList,
    RepetitionPenaltyLogitsProcessor,
    SuppressTokensLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

FRAME_SAMPLES = 1920
"Of 24 kHz in a codec frame: 80 ms."

_SPECIAL_CODES = 1024
"The last ones of the Talker's vocabulary: marks, of which only the end may be spoken."

Inputs = Mapping[str, Tensor]
"What the processor makes of a conversation."


@dataclass(frozen=True, slots=True)
class Text:
    text: str


@dataclass(frozen=True, slots=True, eq=False)
class Codes:
    """One codec frame: a code of each codebook."""

    codes: Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Sound:
    """Mono float32 at 24 kHz, right after the chunk before it."""

    samples: NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class End:
    """Of the text; sound may follow."""

    reason: Literal["stop", "length"]
    tokens: tuple[int, ...]


Piece = Text | Codes | Sound | End


class TinyOmni:
    """A loaded checkpoint. Any number of answers may be under way: no state is kept in the modules."""

    def __init__(self, folder: Path) -> None:
        self.processor = Qwen3OmniMoeProcessor.from_pretrained(folder)
        self.model = Qwen3OmniMoeForConditionalGeneration.from_pretrained(folder, dtype=torch.float32).eval()
        talker = self.model.talker
        if not hasattr(talker.config, "audio_config"):  # its get_rope_index reads it and nobody sets it
            talker.config.audio_config = self.model.thinker.config.audio_config

    @property
    def voices(self) -> list[str]:
        return list(self.model.config.talker_config.speaker_id)

    def answer(
        self,
        inputs: Inputs,
        *,
        interleaved: bool = False,
        voice: str | None = "ethan",
        max_tokens: int = 128,
        max_frames: int = 400,
        chunk_frames: tuple[int, int] = (4, 25),
        seed: int | None = None,
    ) -> Generator[Piece, None, None]:
        """Yield the answer; closing the generator stops all work on it.

        `interleaved` says that each clip has its sound within. No `voice` leaves the Talker off.
        `chunk_frames` are the codec frames of the first and of later pieces of sound. Without `seed` the
        likeliest code is taken.
        """
        thinker = _Thinker(self.model, inputs, interleaved=interleaved)
        talker = None if voice is None else _Talker(self.model, thinker, voice, seed)
        vocoder = Vocoder(self.model.code2wav, *chunk_frames)
        tokens: list[int] = []
        printed = 0
        frames = 0
        end: End | None = None
        while True:
            if end is None:
                tokens.append(thinker.next_token())
                if tokens[-1] == self.model.config.im_end_token_id:
                    end = End("stop", tuple(tokens))
                elif len(tokens) == max_tokens:
                    end = End("length", tuple(tokens))
                # The last token never reaches the Talker, as in generate().
                if talker is not None:
                    talker.feed(None if end else tokens[-1])
                text: str = self.processor.tokenizer.decode(tokens, skip_special_tokens=True)
                if len(text) > printed and (end or not text.endswith("\ufffd")):  # no half of a character
                    yield Text(text[printed:])
                    printed = len(text)
                if end:
                    yield end
            if talker is not None:
                codes = talker.next_frame() if frames < max_frames else None
                if codes is not None:
                    frames += 1
                    yield Codes(codes)
                    if (sound := vocoder.push(codes)) is not None:
                        yield Sound(sound)
                    continue
                if (sound := vocoder.flush()) is not None:
                    yield Sound(sound)
                talker = None
            if end:
                return


class _Thinker:
    """The text, one token at a time, the likeliest each."""

    @torch.inference_mode()
    def __init__(self, model: Any, inputs: Inputs, *, interleaved: bool) -> None:
        self._model = model.thinker
        self.inputs = {name: value for name, value in inputs.items() if name != "num_audio_tokens"}
        self.interleaved = interleaved
        ids = self.inputs["input_ids"]
        positions, self._offset = positions_of(model.thinker, self.inputs, interleaved=interleaved)
        self._cache = DynamicCache(config=model.config.thinker_config.text_config)
        out = self._model(
            **self.inputs,
            position_ids=positions,
            use_cache=True,
            cache=self._cache,
            output_hidden_states=True,
            use_audio_in_video=interleaved,
        )
        self.embeddings = out.hidden_states[0]
        self.states = out.hidden_states[model.config.talker_config.accept_hidden_layer]
        self._logits = out.logits[:, -1]
        self._past = ids.shape[1]
        self._token: int | None = None

    @torch.inference_mode()
    def next_token(self) -> int:
        if self._token is not None:
            position = (self._past + self._offset).view(1, 1, 1).expand(3, 1, 1)
            self._past += 1
            out = self._model(
                input_ids=torch.tensor([[self._token]]),
                attention_mask=torch.ones(1, self._past, dtype=torch.long),
                position_ids=position,
                use_cache=True,
                cache=self._cache,
            )
            self._logits = out.logits[:, -1]
        self._token = int(self._logits.argmax(-1))
        return self._token


class _Talker:
    """The speech, a codec frame at a time: one for each token of text, then for padding until it ends."""

    def __init__(self, model: Any, thinker: _Thinker, voice: str, seed: int | None) -> None:
        self._model = model.talker
        self._config = model.config
        self._talker_config = model.config.talker_config
        self._embed_text = model.thinker.get_input_embeddings()
        self._embed_code = model.talker.get_input_embeddings()
        self._thinker = thinker
        self._voice = self._talker_config.speaker_id[voice.lower()]
        self._text: deque[Tensor] = deque()
        self._text_over = False
        self._cache: Any = None  # set by the prefill
        self._past = 0
        self._offset = torch.zeros(1, 1, dtype=torch.long)
        self._feedback: Tensor | None = None
        self._pick = _Picker(self._talker_config, seed)

    @torch.inference_mode()
    def feed(self, token: int | None) -> None:
        """Take the next token of the text, None at its end."""
        self._text_over = token is None
        self._text.append(self._project(self._config.tts_eos_token_id if token is None else token))

    @torch.inference_mode()
    def next_frame(self) -> Tensor | None:
        """Return the codes of the next frame, None at the end of speech."""
        if self._cache is None:
            if self._text_over and len(self._text) == 1:
                return None  # there was no text
            hidden = self._prefill(self._text.popleft())
        else:
            text = self._text.popleft() if self._text else self._project(self._config.tts_pad_token_id)
            hidden = self._step(text)
        code = self._pick.first(self._model.codec_head(hidden[:, -1]).float())
        if int(code) == self._talker_config.codec_eos_token_id:
            return None
        return self._predict_rest(hidden, code)

    def _project(self, *tokens: int) -> Tensor:
        states: Tensor = self._model.text_projection(self._embed_text(torch.tensor([tokens])))
        return states

    def _prefill(self, first_text: Tensor) -> Tensor:
        """Read what the user said and showed, and the beginning of the answer."""
        config, talker = self._config, self._talker_config
        user, ids, head = self._user_turns()
        padding = self._project(config.tts_pad_token_id).expand(1, 4, -1)
        text = torch.cat(
            [self._project(*head), padding, self._project(config.tts_bos_token_id), first_text], 1
        )
        marks = (talker.codec_nothink_id, talker.codec_think_bos_id, talker.codec_think_eos_id)
        codes = self._embed_code(
            torch.tensor([[*marks, self._voice, talker.codec_pad_id, talker.codec_bos_id]])
        )
        codes = torch.cat([torch.zeros(1, len(head), codes.shape[-1]), codes], 1)
        states = torch.cat([user, text + codes], 1)
        answer_ids = torch.full((1, text.shape[1]), config.tts_pad_token_id)
        self._past = states.shape[1]
        place = torch.arange(self._past).view(1, 1, -1)
        positions = place.expand(3, 1, -1)
        inputs = {**self._thinker.inputs, "input_ids": torch.cat([ids, answer_ids], 1)}
        inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
        if any(name in inputs for name in ("feature_attention_mask", "image_grid_thw", "video_grid_thw")):
            positions, self._offset = positions_of(self._model, inputs, interleaved=self._thinker.interleaved)
        self._cache = DynamicCache(config=talker.text_config)
        return self._forward(states, torch.cat([place, positions], 0))

    def _user_turns(self) -> tuple[Tensor, Tensor, list[int]]:
        """Give the user's turns as the Talker sees them, their ids, and those that begin the answer.

        Of media it sees what a deeper layer of the Thinker made of them, of text the mere words.
        """
        config, thinker = self._config.thinker_config, self._thinker
        ids = thinker.inputs["input_ids"]
        starts = (ids[0] == self._config.im_start_token_id).nonzero().flatten().tolist()
        states, kept = [], []
        for start, end in zip(starts, [*starts[1:], ids.shape[1]], strict=True):
            if ids[0, start + 1] != config.user_token_id:
                continue
            turn = ids[:, start:end]
            media = torch.zeros_like(turn, dtype=torch.bool)
            for token in (config.audio_token_id, config.image_token_id, config.video_token_id):
                media |= turn == token
            state = self._model.text_projection(thinker.embeddings[:, start:end])
            state[media] = self._model.hidden_projection(thinker.states[:, start:end][media])
            states.append(state)
            kept.append(turn)
        head: list[int] = ids[0, starts[-1] : starts[-1] + 3].tolist()
        return torch.cat(states, 1), torch.cat(kept, 1), head

    def _step(self, text: Tensor) -> Tensor:
        assert self._feedback is not None
        place = torch.tensor([[[self._past]]])
        self._past += 1
        positions = torch.cat([place, (place + self._offset).expand(3, 1, 1)], 0)
        return self._forward(self._feedback + text, positions)

    def _forward(self, states: Tensor, positions: Tensor) -> Tensor:
        out = self._model.model(
            inputs_embeds=states, position_ids=positions, use_cache=True, cache=self._cache
        )
        last: Tensor = out.last_hidden_state[:, -1:]
        return last

    def _predict_rest(self, hidden: Tensor, first: Tensor) -> Tensor:
        """Add the 15 residual codes. generate() would do it too, but its set-up costs more than the work."""
        predictor = self._model.code_predictor
        cache = DynamicCache(config=self._talker_config.code_predictor_config)
        states = torch.cat([hidden, self._embed_code(first[:, None])], 1)
        codes, total = [first], states[:, 1:2]
        for level in range(self._talker_config.num_code_groups - 1):
            out = predictor.model(inputs_embeds=states, use_cache=True, cache=cache)
            codes.append(self._pick.residual(predictor.lm_head[level](out.last_hidden_state[:, -1])))
            states = predictor.model.codec_embedding[level](codes[-1][:, None])
            total = total + states
        self._feedback = total
        return torch.cat(codes)


class _Picker:
    """Choose codes by generate()'s own rules: sampled with a seed, else the likeliest."""

    def __init__(self, config: Any, seed: int | None) -> None:
        self._random = None if seed is None else torch.Generator().manual_seed(seed)
        self._said: list[int] = []
        size = config.text_config.vocab_size
        end = config.codec_eos_token_id
        marks = [code for code in range(size - _SPECIAL_CODES, size) if code != end]
        self._first = LogitsProcessorList(
            [RepetitionPenaltyLogitsProcessor(1.05), SuppressTokensLogitsProcessor(marks)]
        )
        self._residual = LogitsProcessorList()
        if self._random is not None:
            self._first += [TemperatureLogitsWarper(0.9), TopKLogitsWarper(50)]
            self._residual += [TopKLogitsWarper(50), TopPLogitsWarper(0.8)]

    def first(self, logits: Tensor) -> Tensor:
        code = self._choose(self._first(torch.tensor([self._said], dtype=torch.long), logits))
        self._said.append(int(code))
        return code

    def residual(self, logits: Tensor) -> Tensor:
        return self._choose(self._residual(torch.zeros(1, 0, dtype=torch.long), logits))

    def _choose(self, logits: Tensor) -> Tensor:
        if self._random is None:
            return logits.argmax(-1)
        return torch.multinomial(torch.softmax(logits, -1), 1, generator=self._random)[:, 0]


class Vocoder:
    """Code2Wav in chunks without gaps.

    Decoding frames [s, e) gives the samples [1920 s, 1920 e - lost): each transposed convolution trims both
    of its sides, so 555 samples are missing at the right edge. They come with the next chunk, those of the
    last frame never. Each chunk is decoded with `context` frames before it.
    """

    def __init__(self, code2wav: Any, first: int = 4, later: int = 25, context: int = 25) -> None:
        self._code2wav = code2wav
        self._first, self._later, self._context = first, later, context
        self._frames: list[Tensor] = []
        self._decoded = 0
        self._emitted = 0
        self.lost = 0
        factor = 1
        for rate in reversed(code2wav.config.upsample_rates):
            factor *= rate
            self.lost += factor

    def push(self, frame: Tensor) -> NDArray[np.float32] | None:
        """Take a frame; return sound when there is a chunk of frames."""
        self._frames.append(frame)
        wanted = self._later if self._decoded else self._first
        return self._decode() if len(self._frames) - self._decoded >= wanted else None

    def flush(self) -> NDArray[np.float32] | None:
        """Return the sound of what is left, if anything is."""
        return self._decode() if len(self._frames) > self._decoded else None

    @torch.inference_mode()
    def _decode(self) -> NDArray[np.float32]:
        start = max(0, self._decoded - self._context)
        wave = self._code2wav(torch.stack(self._frames[start:], -1)[None])[0, 0]
        new: NDArray[np.float32] = wave[self._emitted - FRAME_SAMPLES * start :].float().numpy()
        self._decoded = len(self._frames)
        self._emitted = FRAME_SAMPLES * self._decoded - self.lost
        return new


def positions_of(module: Any, inputs: Inputs, *, interleaved: bool) -> tuple[Tensor, Tensor]:
    """Return the model's own TM-RoPE positions, (3, batch, tokens): time, height, width; and their offset."""
    mask = inputs.get("feature_attention_mask")
    positions: tuple[Tensor, Tensor] = module.get_rope_index(
        inputs["input_ids"],
        inputs.get("image_grid_thw"),
        inputs.get("video_grid_thw"),
        inputs["attention_mask"],
        interleaved,
        None if mask is None else mask.sum(-1),
        inputs.get("video_second_per_grid"),
    )
    return positions
