"""What pictures and sound cost Qwen3-Omni, by the rules of its own processor. Sans-I/O.

Read from transformers 5.24 (`Qwen3OmniMoeProcessor`, `smart_resize`) and vLLM 0.32. Counted are the places
that media take in the prompt, without the two to four delimiters around each.
"""

import math

FPS = 2
"Pictures a second: what the model was trained on."

PICTURES_PER_GRID = 2
"Two pictures of a clip share one grid of tokens; an odd one out is repeated."

SOUND_RATE = 16_000
"What the model hears."

HOP = 160
"Samples at 16 kHz of one feature of sound; a shorter rest is filled up."

SMALLEST_CLIP = (64, 32)
"Enlarged by the processor to just the least that a picture of a clip can cost, 128 tokens for two."

_CELL = 32
"Pixels on each side of what becomes one token."
_LEAST_VIDEO, _MOST_VIDEO = 128 * _CELL**2, 768 * _CELL**2
"Pixels to which a clip's pictures are enlarged or shrunk."
_LEAST_IMAGE, _MOST_IMAGE = 3_136, 12_845_056
"The same for pictures by themselves, as the published checkpoints have it."
_CHUNK, _CHUNK_TOKENS = 100, 13
"Features that the ear encodes at a time (a second), and the tokens that they give."


def picture_tokens(width: int, height: int) -> int:
    """Count the tokens of a picture by itself."""
    return _cells(width, height, _LEAST_IMAGE, _MOST_IMAGE)


def video_tokens(pictures: int, width: int, height: int) -> int:
    """Count the tokens of a clip's or a sequence's pictures, all of one size."""
    grids = -(-pictures // PICTURES_PER_GRID)
    return grids * _cells(width, height, _LEAST_VIDEO, _MOST_VIDEO)


def sound_tokens(samples: int) -> int:
    """Count the tokens of so many samples at 16 kHz."""
    whole, rest = divmod(-(-samples // HOP), _CHUNK)
    for _ in range(3):  # three convolutions of stride two
        rest = -(-rest // 2)
    return whole * _CHUNK_TOKENS + rest


def _cells(width: int, height: int, least: int, most: int) -> int:
    """Count the cells of a picture once the processor has given it a size that it likes."""
    across, down = round(width / _CELL), round(height / _CELL)
    pixels = across * down * _CELL**2
    if pixels > most:
        shrink = math.sqrt(width * height / most)
        across = max(1, math.floor(width / shrink / _CELL))
        down = max(1, math.floor(height / shrink / _CELL))
    elif pixels < least:
        grow = math.sqrt(least / (width * height))
        across, down = math.ceil(width * grow / _CELL), math.ceil(height * grow / _CELL)
    return across * down
