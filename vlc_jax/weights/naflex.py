"""SigLIP 2 NaFlex in the names of Hugging Face and big_vision: a matrix embeds its patches, where
other SigLIPs have a convolution, and big_vision stores its positions as a grid."""

import math
from collections.abc import Mapping

import numpy as np

from vlc_jax.errors import WeightsError

HUGGING_FACE = "vision_model.embeddings.patch_embedding.weight"
BIG_VISION, _GRID = "params/img/embedding/kernel", "params/img/pos_embedding"
TIMM = "visual.trunk.embeds.proj.weight"  # of timm's NaFlexVit, which is not read
FORMATS = ("hf_siglip2_naflex", "big_vision_naflex", "big_vision_naflex_scan")


def check_names(arrays: Mapping[str, np.ndarray]) -> None:
    """Raises WeightsError for timm's NaFlexVit."""
    if TIMM in arrays:
        raise WeightsError(
            "weights of timm's NaFlexVit; SigLIP 2 NaFlex is read from Hugging Face's folder "
            "(google/siglip2-base-patch16-naflex) and from big_vision's .npz"
        )


def from_hugging_face(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Arrays with the names and shapes of a SiglipModel. Raises WeightsError for other patches."""
    matrix = arrays[HUGGING_FACE]
    side = _patch_size(matrix, HUGGING_FACE, axis=1)
    kernel = np.moveaxis(matrix.reshape(len(matrix), side, side, 3), 3, 1)
    return {**arrays, HUGGING_FACE: kernel}


def to_hugging_face(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The inverse of `from_hugging_face`."""
    kernel = arrays[HUGGING_FACE]
    matrix = np.ascontiguousarray(np.moveaxis(kernel, 1, 3).reshape(len(kernel), -1))
    return {**arrays, HUGGING_FACE: matrix}


def from_big_vision(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Arrays with the shapes of other SigLIPs. Raises WeightsError for others than NaFlex's."""
    matrix, grid = arrays[BIG_VISION], arrays.get(_GRID)
    side = _patch_size(matrix, BIG_VISION, axis=0)
    if grid is None or grid.ndim != 3 or grid.shape[0] != grid.shape[1]:
        found = None if grid is None else grid.shape
        raise WeightsError(f"{_GRID} of NaFlex is a square grid (side, side, width); got {found}")
    table = grid.reshape(1, -1, grid.shape[2])
    return {**arrays, BIG_VISION: matrix.reshape(side, side, 3, -1), _GRID: table}


def to_big_vision(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The inverse of `from_big_vision`."""
    kernel, table = arrays[BIG_VISION], arrays[_GRID]
    side = math.isqrt(table.shape[1])
    matrix = kernel.reshape(-1, kernel.shape[-1])
    return {**arrays, BIG_VISION: matrix, _GRID: table.reshape(side, side, -1)}


def _patch_size(matrix: np.ndarray, name: str, axis: int) -> int:
    values = matrix.shape[axis]
    side = math.isqrt(values // 3)
    if 3 * side**2 != values or not side:
        raise WeightsError(
            f"{name} has shape {matrix.shape}: {values} numbers are no square patch of 3 colours"
        )
    return side
