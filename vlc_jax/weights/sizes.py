"""Shapes of our parameters in the arrays of a file, and the sizes of both towers."""

import math
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from vlc_jax.errors import WeightsError
from vlc_jax.weights import rename

FLOAT32 = np.dtype(np.float32)


def placeholder(shape: Sequence[int], dtype: np.dtype = FLOAT32) -> np.ndarray:
    """An array of this shape without memory of its own: all elements are the same zero.

    Raises ValueError for a shape that no array can have.
    """
    try:
        return np.broadcast_to(np.zeros((), dtype), tuple(shape))
    except OverflowError as error:
        raise ValueError(f"no array has the shape {shape}") from error


class Shapes:
    """Shapes of our parameters in arrays, or in their placeholders, by the rules of a format."""

    def __init__(self, arrays: Mapping[str, np.ndarray], rules: Sequence[rename.Rule]) -> None:
        self._arrays, found = arrays, rename.expand(rules, arrays, "theirs")
        self._paths = [path for rule in found for path in rule.ours]
        self._rules = {rule.ours[0]: rule for rule in found if len(rule.ours) == 1}

    def __contains__(self, path: str) -> bool:
        return path in self._rules

    def __call__(self, path: str, axes: int = 2) -> tuple[int, ...]:
        """Shape of a parameter of so many axes that is one array in the file.

        Raises WeightsError for another shape and a missing array.
        """
        if path not in self._rules:
            raise WeightsError(f"the weights have no array of {path}")
        name, codec = self._rules[path].theirs[0], self._rules[path].codec
        (part,) = rename.convert(codec.load, name, [self._arrays[name]])
        if part.ndim != axes or 0 in part.shape:
            raise WeightsError(f"{name} has shape {self._arrays[name].shape}")
        return part.shape

    def indices(self, pattern: str) -> list[int]:
        """The numbers in a group of `pattern`, at the beginning of a path."""
        matches = (re.match(pattern, path) for path in self._paths)
        return sorted({int(match[1]) for match in matches if match})

    def patches(self) -> tuple[int, int]:
        """Width of the image tower and size of its patches."""
        rows, width = self("image/patch_embedding/kernel")
        return width, math.isqrt(rows // 3)


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


def read(shapes: Shapes) -> Sizes:
    """The sizes of weights with a text tower, or of DINOv2. Raises WeightsError for others."""
    if "image/stem_0/kernel" in shapes:  # of a ResNet, whose first convolution has half the width
        width, patch_size = 2 * shapes("image/stem_0/kernel", 4)[-1], 32
        stages = [shapes.indices(rf"image/stage_{i}_block_(\d+)/") for i in range(1, 5)]
        depth = sum(map(len, stages))
    else:
        width, patch_size = shapes.patches()
        depth = len(shapes.indices(r"image/block_(\d+)/"))
    positions = "image/position_embedding"
    # a class token does not change the integer root
    grid = math.isqrt(shapes(positions)[0]) if positions in shapes else 0
    image = (width, depth)
    if "image/register_tokens" in shapes or "image/block_0/mlp_scale" in shapes:  # DINOv2
        return Sizes(image, (), patch_size, grid, 0, 0)
    is_roberta = "text/encoder/token_embedding/embedding" in shapes
    text, table = ("text/encoder", "/embedding") if is_roberta else ("text", "")
    vocab_size, text_width = shapes(f"{text}/token_embedding/embedding")
    context_length = shapes(f"{text}/position_embedding{table}")[0]
    depth = len(shapes.indices(rf"{text}/block_(\d+)/"))
    return Sizes(image, (text_width, depth), patch_size, grid, vocab_size, context_length)
