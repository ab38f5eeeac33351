"""A tiny Qwen3-Omni on disk: the real architecture, tokenizer and processor, random weights, in seconds.

`python -m omni.tiny FOLDER [--answers TEXT] [--endless]` writes 25 MB that transformers and vLLM load like
the real checkpoint. The sizes are small; what the media path depends on is not: 16 codebooks, 80 ms frames
of 1920 samples, 13 positions a second, patches of 16 pixels, two frames to a grid.
"""

import argparse
import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from omni.torchvision_ops import declare_missing_ops

declare_missing_ops()

from transformers import (  # noqa: E402 - after the declaration
    GenerationConfig,
    Qwen2TokenizerFast,
    Qwen2VLImageProcessor,
    Qwen2VLVideoProcessor,
    Qwen3OmniMoeConfig,
    Qwen3OmniMoeForConditionalGeneration,
    Qwen3OmniMoeProcessor,
    WhisperFeatureExtractor,
)

ANSWER = "Hello there, I can see you and hear what would like to talk about today?"
"A sentence in which no token comes twice, as an answer that is told by the last token alone must be."

_HIDDEN = 64
_ROLES = ("system", "user", "assistant")
_MARKS = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
    "<|audio_start|>",
    "<|audio_end|>",
    "<|audio_pad|>",
    "<tts_pad>",
    "<tts_text_bos>",
    "<tts_text_eod>",
    "<tts_text_bos_single>",
)
_CORPUS = (
    ANSWER,
    "You are a virtual friend who sees and hears, and answers in one or two short sentences.",
    "How many fingers am I holding up? I see a red cup on the table beside the window.",
    "Sure, it is sunny outside today, and what you say is what I hear.",
)
_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"How Qwen's tokenizers cut text into words."

_CHAT = """\
{%- macro body(content) %}{% if content is string %}{{ content }}{% else %}{% for part in content %}
{%- if part.type in ('image', 'image_url') %}<|vision_start|><|image_pad|><|vision_end|>
{%- elif part.type in ('audio', 'audio_url', 'input_audio') %}<|audio_start|><|audio_pad|><|audio_end|>
{%- elif part.type in ('video', 'video_url') %}<|vision_start|><|video_pad|><|vision_end|>
{%- else %}{{ part.text }}{% endif %}{% endfor %}{% endif %}{% endmacro %}
{%- for message in messages %}{{ '<|im_start|>' + message.role + '\\n' }}{{ body(message.content) }}
{{- '<|im_end|>\\n' }}{% endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""


def build(folder: Path, *, answers: str | None = None, endless: bool = False, seed: int = 0) -> Path:
    """Write the checkpoint to `folder` and return it.

    With `answers`, whatever is asked is answered with that text, and the Talker ends with it; with `endless`
    the text begins again and again until `max_tokens`. Without it the weights decide. Raises ValueError if a
    token of the text comes twice.
    """
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = _tokenizer(folder)
    _processor(tokenizer).save_pretrained(folder)
    config = _config(tokenizer)
    torch.manual_seed(seed)
    model = Qwen3OmniMoeForConditionalGeneration(config).eval().float()
    with torch.no_grad():
        _make_audible(model.code2wav)
        if answers is not None:
            script = _script(tokenizer, answers)
            _say_only(model.thinker, script, endless=endless)
            _speak_as_long_as_text(model, script)
    model.generation_config = GenerationConfig(
        eos_token_id=config.im_end_token_id,
        pad_token_id=tokenizer.convert_tokens_to_ids("<|endoftext|>"),
        do_sample=False,
    )
    model.save_pretrained(folder, max_shard_size="1GB")
    return folder


def _tokenizer(folder: Path) -> Qwen2TokenizerFast:
    """Train byte-level BPE on a few lines. Each role must be one token: the Talker finds turns by them."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_SPLIT), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=640, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    bpe.train_from_iterator([*_ROLES * 50, *_CORPUS * 20], trainer)
    learned = json.loads(bpe.to_str())["model"]
    merges = [tuple(pair) if isinstance(pair, list) else tuple(pair.split(" ")) for pair in learned["merges"]]
    # vLLM's loader asks for the two files of the slow tokenizer.
    (folder / "vocab.json").write_text(json.dumps(learned["vocab"], ensure_ascii=False), encoding="utf-8")
    lines = ["#version: 0.2", *(" ".join(pair) for pair in merges)]
    (folder / "merges.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    tokenizer = Qwen2TokenizerFast(
        vocab=learned["vocab"],
        merges=merges,
        unk_token=None,
        bos_token=None,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        extra_special_tokens={
            "image_token": "<|image_pad|>",
            "audio_token": "<|audio_pad|>",
            "video_token": "<|video_pad|>",
            "vision_bos_token": "<|vision_start|>",
            "vision_eos_token": "<|vision_end|>",
            "audio_bos_token": "<|audio_start|>",
            "audio_eos_token": "<|audio_end|>",
        },
    )
    marks = [AddedToken(mark, special=True, normalized=False) for mark in _MARKS]
    tokenizer.add_tokens(marks, special_tokens=True)
    for role in _ROLES:
        assert len(tokenizer(role, add_special_tokens=False).input_ids) == 1, role
    return tokenizer


def _processor(tokenizer: Qwen2TokenizerFast) -> Qwen3OmniMoeProcessor:
    """Give the real processor, set as the published checkpoints are."""
    vision: dict[str, Any] = {
        "patch_size": 16,
        "temporal_patch_size": 2,
        "merge_size": 2,
        "image_mean": [0.5] * 3,
        "image_std": [0.5] * 3,
        "size": {"shortest_edge": 3136, "longest_edge": 12_845_056},
    }
    return Qwen3OmniMoeProcessor(
        image_processor=Qwen2VLImageProcessor(**vision),
        video_processor=Qwen2VLVideoProcessor(**vision),
        feature_extractor=WhisperFeatureExtractor(
            feature_size=128,
            sampling_rate=16_000,
            hop_length=160,
            n_fft=400,
            chunk_length=300,
            return_attention_mask=True,
            padding_value=0.0,
            dither=0.0,
        ),
        tokenizer=tokenizer,
        chat_template=_CHAT,
    )


def _config(tokenizer: Qwen2TokenizerFast) -> Qwen3OmniMoeConfig:
    def ids(**names: str) -> dict[str, int]:
        return {f"{key}_token_id": tokenizer.convert_tokens_to_ids(name) for key, name in names.items()}

    layers = {"num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32}
    experts = {
        "moe_intermediate_size": 32,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "norm_topk_prob": True,
    }
    rope = {
        "rope_type": "default",
        "rope_theta": 1e6,
        "mrope_section": [6, 5, 5],
        "interleaved": True,
        "mrope_interleaved": True,
    }
    language = {
        "hidden_size": _HIDDEN,
        "intermediate_size": 64,
        "max_position_embeddings": 32_768,
        "rope_parameters": rope,
        **layers,
        **experts,
    }
    media = ids(
        audio="<|audio_pad|>",
        image="<|image_pad|>",
        video="<|video_pad|>",
        audio_start="<|audio_start|>",
        audio_end="<|audio_end|>",
        vision_start="<|vision_start|>",
        vision_end="<|vision_end|>",
    )
    thinker = {
        "text_config": {
            "vocab_size": -(-len(tokenizer) // 64) * 64,
            "tie_word_embeddings": False,
            **language,
        },
        "audio_config": {
            "num_mel_bins": 128,
            "encoder_layers": 1,
            "encoder_attention_heads": 2,
            "encoder_ffn_dim": 64,
            "d_model": 64,
            "n_window": 50,
            "n_window_infer": 800,
            "output_dim": _HIDDEN,
            "downsample_hidden_size": 8,
            "max_source_positions": 1500,
        },
        "vision_config": {
            "depth": 2,
            "hidden_size": 64,
            "intermediate_size": 64,
            "num_heads": 2,
            "patch_size": 16,
            "temporal_patch_size": 2,
            "spatial_merge_size": 2,
            "out_hidden_size": _HIDDEN,
            "num_position_embeddings": 2304,
            "image_size": 768,
            "apply_vit_abs_pos_embed": True,
            "tokens_per_second": 2,
            "deepstack_visual_indexes": [0, 1],
        },
        "position_id_per_seconds": 13,
        "seconds_per_chunk": 2,
        **ids(user="user"),
        **media,
    }
    talker = {
        "text_config": {"vocab_size": 3072, "shared_expert_intermediate_size": 32, **language},
        "code_predictor_config": {
            "vocab_size": 2048,
            "hidden_size": _HIDDEN,
            "intermediate_size": 64,
            "num_code_groups": 16,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e6},
            **layers,
            "num_hidden_layers": 1,
        },
        "num_code_groups": 16,
        "thinker_hidden_size": _HIDDEN,
        "accept_hidden_layer": 1,
        "spatial_merge_size": 2,
        "position_id_per_seconds": 13,
        # Within the codec's vocabulary as in the published checkpoints: after the 2048 codes.
        "codec_pad_id": 2148,
        "codec_bos_id": 2149,
        "codec_eos_token_id": 2150,
        "codec_nothink_id": 2155,
        "codec_think_bos_id": 2156,
        "codec_think_eos_id": 2157,
        "speaker_id": {"chelsie": 2301, "ethan": 2302, "aiden": 2303},
        **media,
    }
    code2wav = {
        "codebook_size": 2048,
        "hidden_size": 32,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "sliding_window": 72,
        "num_quantizers": 16,
        "decoder_dim": 64,
        "upsample_rates": [8, 5, 4, 3],
        "upsampling_ratios": [2, 2],
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e4},
    }
    config = Qwen3OmniMoeConfig(
        thinker_config=thinker,
        talker_config=talker,
        code2wav_config=code2wav,
        enable_audio_output=True,
        **ids(im_start="<|im_start|>", im_end="<|im_end|>", system="system", user="user"),
        **ids(assistant="assistant", tts_pad="<tts_pad>", tts_bos="<tts_text_bos>", tts_eos="<tts_text_eod>"),
    )
    config.architectures = ["Qwen3OmniMoeForConditionalGeneration"]
    return config


def _make_audible(code2wav: Any) -> None:
    """Give the vocoder unit gains, so that codes matter and the sound is at -16 dBFS without clipping."""
    for name, parameter in code2wav.named_parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=parameter[0].numel() ** -0.5)
        elif name.endswith("bias"):
            parameter.zero_()
    torch.nn.init.normal_(code2wav.code_embedding.weight, std=1.0)
    last = code2wav.decoder[-1].conv
    last.weight.mul_(1e-3)
    wave = code2wav(torch.randint(0, 2048, (1, 16, 60)))[0, 0, 4000:]
    gain = 0.15 / wave.std()
    last.bias.copy_(-wave.mean() * gain)
    last.weight.mul_(gain)


def _script(tokenizer: Qwen2TokenizerFast, answers: str) -> list[int]:
    """Give the tokens of an answer from the newline before it to the end mark."""
    text = tokenizer(answers, add_special_tokens=False).input_ids
    newline = tokenizer("\n", add_special_tokens=False).input_ids
    script = [*newline, *text, tokenizer.convert_tokens_to_ids("<|im_end|>")]
    if twice := {token for token in script if script.count(token) > 1}:
        raise ValueError(f"tokens come twice: {[tokenizer.decode([token]) for token in sorted(twice)]}")
    return script


def _cut_residuals(layers: Sequence[Any]) -> None:
    """Let every layer pass on what it gets: the last state is then the embedding of the last input."""
    for layer in layers:
        layer.self_attn.o_proj.weight.zero_()
        layer.mlp.experts.down_proj.zero_()
        if hasattr(layer.mlp, "shared_expert"):
            layer.mlp.shared_expert.down_proj.weight.zero_()


def _say_only(thinker: Any, script: list[int], *, endless: bool) -> None:
    """Make the head a table from each token of the script to the next."""
    language = thinker.model
    language = getattr(language, "language_model", language)  # nested since transformers 5.20
    _cut_residuals(language.layers)
    embedding = language.embed_tokens.weight
    torch.nn.init.normal_(embedding, std=1.0)
    thinker.lm_head.weight.mul_(0.01)
    pairs = list(pairwise(script))
    if endless:
        pairs[-1] = (script[-2], script[1])
    for token, following in pairs:
        thinker.lm_head.weight[following] += embedding[token] / embedding[token].norm() * 4


def _speak_as_long_as_text(model: Any, script: list[int]) -> None:
    """Make the end of speech likely just when the text is used up and padding comes in its place."""
    talker, config = model.talker, model.config
    _cut_residuals(talker.model.layers)
    torch.nn.init.normal_(talker.model.codec_embedding.weight, std=0.3)
    for name, parameter in talker.text_projection.named_parameters():
        if name.endswith("weight"):
            torch.nn.init.normal_(parameter, std=0.3)
    spoken = [*script, config.tts_bos_token_id, config.tts_eos_token_id, config.tts_pad_token_id]
    states = talker.text_projection(model.thinker.get_input_embeddings()(torch.tensor(spoken)))
    states = states / states.pow(2).mean(-1, keepdim=True).sqrt()
    wanted = torch.full((len(spoken), 1), -10.0)
    wanted[-1] = 20.0
    row = torch.linalg.lstsq(states, wanted, driver="gelsd").solution[:, 0]
    talker.codec_head.weight[config.talker_config.codec_eos_token_id] = row


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--answers", nargs="?", const=ANSWER, help="what every answer is; without it, chance")
    parser.add_argument("--endless", action="store_true", help="begin the answer again and again")
    options = parser.parse_args()
    print(build(options.folder, answers=options.answers, endless=options.endless))


if __name__ == "__main__":
    main()
