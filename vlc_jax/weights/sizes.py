"""Sizes of both towers, from the names and shapes of their weights."""

import math
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from vlc_jax.errors import WeightsError

FLOAT32 = np.dtype(np.float32)

# Array that determines a size -> its names in the formats of `weights.FORMATS`.
_ARRAYS = {
    "patches": r"visual\.conv1\.weight|visual\.trunk\.patch_embed\.proj\.weight"
    r"|vision_model\.embeddings\.patch_embedding\.weight|params/img/embedding/kernel"
    r"|embeddings\.patch_embeddings\.projection\.weight",
    "grid": r"visual\.(attnpool\.)?positional_embedding|visual\.trunk\.pos_embed"
    r"|vision_model\.embeddings\.position_embedding\.weight|params/img/pos_embedding"
    r"|embeddings\.position_embeddings",
    "tokens": r"(text\.)?token_embedding\.weight"
    r"|text\.transformer\.embeddings\.word_embeddings\.weight"
    r"|text_model\.embeddings\.token_embedding\.weight|params/txt/Embed_0/embedding",
    "context": r"(text\.)?positional_embedding"
    r"|text\.transformer\.embeddings\.position_embeddings\.weight"
    r"|text_model\.embeddings\.position_embedding\.weight|params/txt/pos_embedding",
}
_AXES = {"patches": 4, "grid": 2, "tokens": 2, "context": 2}  # minimum number of axes
_BLOCKS = {
    "image": r"(visual\.(transformer\.resblocks|trunk\.blocks)|vision_model\.encoder\.layers)"
    r"\.(?P<index>\d+)\..*|params/img/Transformer/encoderblock_(?P<flax>\d+)/.*"
    r"|visual\.layer(?P<stage>\d\.\d+)\..*|encoder\.layer\.(?P<dinov2>\d+)\..*",
    "text": r"((text\.)?transformer\.(resblocks|encoder\.layer)|text_model\.encoder\.layers)"
    r"\.(?P<index>\d+)\..*"
    r"|params/txt/(Encoder_0|Transformer)/encoderblock_(?P<flax>\d+)/.*",
}


class Sizes(NamedTuple):
    """Sizes of both towers.

    image, text: (width, depth); of a ResNet, channels of the first stage and blocks of all.
      text: () without a text tower; vocab_size and context_length are then 0.
    patch_size: of a ResNet, its stride.   grid: patches per side; 0 if the weights have no
      positions of patches (OpenVision's JAX checkpoints).   vocab_size: rows of the
      embedding.   context_length: rows of the text's position embedding.
    """

    image: tuple[int, int]
    text: tuple[int, ...]
    patch_size: int
    grid: int
    vocab_size: int
    context_length: int


def placeholder(shape: Sequence[int], dtype: np.dtype = FLOAT32) -> np.ndarray:
    """An array of this shape without memory of its own: all elements are the same zero.

    Raises ValueError for a shape that no array can have.
    """
    try:
        return np.broadcast_to(np.zeros((), dtype), tuple(shape))
    except OverflowError as error:
        raise ValueError(f"no array has the shape {shape}") from error


def read(arrays: Mapping[str, np.ndarray]) -> Sizes:
    """The sizes of weights in a format of `weights.FORMATS`. Raises WeightsError for others."""
    shapes, has_text = {}, "embeddings.cls_token" not in arrays  # else DINOv2
    for key, pattern in _ARRAYS.items():
        if key in ("tokens", "context") and not has_text:
            shapes[key] = (0, 0)
            continue
        if key == "grid" and "params/img/cls" in arrays:
            shapes[key] = (0, 0)
            continue
        matches = [array.shape for name, array in arrays.items() if re.fullmatch(pattern, name)]
        if len(matches) != 1:
            raise WeightsError(f"the weights have {len(matches)} arrays named like {pattern}")
        if len(matches[0]) < _AXES[key] or 0 in matches[0]:
            raise WeightsError(f"the array named like {pattern} has shape {matches[0]}")
        shapes[key] = matches[0]
    patches, is_flax = shapes["patches"], any(name.startswith("params/") for name in arrays)
    width, patch_size = (patches[-1], patches[0]) if is_flax else (patches[0], patches[-1])
    if "visual.layer1.0.conv1.weight" in arrays:  # the first convolution has half the width
        width, patch_size = 2 * width, 32
    depths = {part: _depth(arrays, pattern) for part, pattern in _BLOCKS.items()}
    return Sizes(
        image=(width, depths["image"]),
        text=(shapes["tokens"][1], depths["text"]) if has_text else (),
        patch_size=patch_size,
        # a class token does not change the integer root
        grid=math.isqrt(shapes["grid"][-2]),
        vocab_size=shapes["tokens"][0],
        context_length=shapes["context"][-2],
    )


def _depth(arrays: Mapping[str, np.ndarray], pattern: str) -> int:
    matches = (re.fullmatch(pattern, name) for name in arrays)
    return len({next(filter(None, match.groupdict().values())) for match in matches if match})
