"""The size that a picture has for Qwen3-VL: near its own, at its own aspect ratio.

Both sides are multiples of 32 pixels: 2 x 2 patches of 16 pixels are one image token.
"""

import math

import numpy as np

from vlc_jax.input_pipeline.record import DataError

PATCH = 16  # pixels of a side of a patch
TOKEN = 2 * PATCH  # pixels of a side of an image token
# Image tokens of a picture, MIN_PIXELS and MAX_PIXELS of Qwen3-VL-Embedding's code.
LEAST, MOST = 4, 1800
LARGEST = 1360  # pixels: a square of whole patches with MOST tokens, and of the fewest
MAX_RATIO = 200  # of the longer to the shorter side
# Heights of cut mosaics, in patches: each compiles a program, and the next saves at least a fifth.
HEIGHTS = (4, 8, 12, 16, 24, 32, 48, 64)


def most_tokens(size: int) -> int:
    """The largest number of image tokens: of a square of `size` pixels, and at most MOST.

    Raises ValueError if it is below LEAST, and for a size that only fills memory.
    """
    if (most := min(size**2 // TOKEN**2, MOST)) < LEAST:
        raise ValueError(f"crop native needs an image size from {2 * TOKEN} on; got {size}")
    if size > LARGEST:
        raise ValueError(
            f"crop native has at most {MOST:,} image tokens, those of an image size of "
            f"{LARGEST:,} pixels; got {size}"
        )
    return most


def best_size(height: int, width: int, size: int) -> tuple[int, int]:
    """Height and width of a picture after its resize, with LEAST to `most_tokens` tokens.

    The authors' rule (smart_resize of qwen-vl-utils): each side is rounded to whole tokens; if they
    are then too many or too few, both sides are scaled by one factor, and rounded down or up.
    Raises DataError for a picture that is too narrow for this.
    """
    most = most_tokens(size)
    # Python's round, half to even, is theirs
    tall, wide = (max(1, round(side / TOKEN)) for side in (height, width))
    if tall * wide > most:
        scale = math.sqrt(height * width / (most * TOKEN**2))
        tall, wide = (max(1, math.floor(side / scale / TOKEN)) for side in (height, width))
    elif tall * wide < LEAST:
        scale = math.sqrt(LEAST * TOKEN**2 / (height * width))
        tall, wide = (math.ceil(side * scale / TOKEN) for side in (height, width))
    if tall * wide > most or max(height, width) > MAX_RATIO * min(height, width):
        raise DataError(
            f"an image of {width} x {height} pixels is too narrow: sides have a ratio of at most "
            f"{MAX_RATIO}, and less for fewer than {MOST} image tokens (here {most}): crop it, or "
            f"set a larger image_size, up to {LARGEST:,}"
        )
    return tall * TOKEN, wide * TOKEN


def heights(mosaics: np.ndarray) -> list[int]:
    """Pixel rows of each mosaic (naflex.mosaic), (batch, side + 1, side, 3), that its patches need,
    header included: the next of HEIGHTS, at most all. It depends on the picture alone."""
    across = mosaics.shape[2] // PATCH
    rows, columns = (mosaics[:, 0, i, :2].astype(int) @ [256, 1] for i in (2, 3))
    known = (*(height for height in HEIGHTS if height < across), across)
    return [1 + PATCH * known[i] for i in np.searchsorted(known, -(-rows * columns // across))]
