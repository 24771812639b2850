"""SigLIP 2 NaFlex in the names of Hugging Face and big_vision: a matrix embeds its patches, where
other SigLIPs have a convolution, and big_vision stores its positions as a grid."""

import math
from collections.abc import Mapping

import numpy as np

from vlc_jax.errors import WeightsError
from vlc_jax.weights.rename import Codec

HUGGING_FACE = "vision_model.embeddings.patch_embedding.weight"
BIG_VISION = "params/img/embedding/kernel"
TIMM = "visual.trunk.embeds.proj.weight"  # of timm's NaFlexVit, which is not read
FORMATS = ("hf_siglip2_naflex", "big_vision_naflex", "big_vision_naflex_scan")


def check_names(arrays: Mapping[str, np.ndarray]) -> None:
    """Raises WeightsError for timm's NaFlexVit."""
    if TIMM in arrays:
        raise WeightsError(
            "weights of timm's NaFlexVit; SigLIP 2 NaFlex is read from Hugging Face's folder "
            "(google/siglip2-base-patch16-naflex) and from big_vision's .npz"
        )


def _channels_last(matrix: np.ndarray) -> tuple[np.ndarray]:
    numbers = len(matrix)
    side = math.isqrt(numbers // 3)
    if 3 * side**2 != numbers or not side:
        raise ValueError(f"{numbers} numbers are no square patch of 3 colours")
    return (matrix,)


def _table(grid: np.ndarray) -> tuple[np.ndarray]:
    if grid.ndim != 3 or grid.shape[0] != grid.shape[1]:
        raise ValueError("positions of NaFlex are a square grid (side, side, width)")
    return (grid.reshape(-1, grid.shape[2]),)


def _grid(table: np.ndarray) -> tuple[np.ndarray]:
    side = math.isqrt(len(table))
    return (table.reshape(side, side, -1),)


# A torch Linear and a flax kernel over the numbers of a patch (row, column, channel), as ours.
TORCH_PATCHES = Codec(lambda x: _channels_last(x.T), lambda x: (x.T,))
FLAX_PATCHES = Codec(_channels_last, lambda x: (x,))
POSITIONS = Codec(_table, _grid)
