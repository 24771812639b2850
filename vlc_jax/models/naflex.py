"""Images of any aspect ratio on the device (NaFlex of SigLIP 2, Tschannen et al. 2025,
arXiv:2502.14786, section 2.4.2): grids of mosaics (input_pipeline/images/naflex.py), positions
resampled to them."""

import math
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, Int


class Grids(NamedTuple):
    """Rows and columns of patches of each image."""

    rows: Int[Array, " batch"]
    columns: Int[Array, " batch"]


def grids(mosaic: Float[Array, "batch height width channels"], patches: int) -> Grids:
    """Rows and columns of patches of each image, from row 0 of its mosaic, normalised or not.

    patches: the number of patches in a mosaic. Both numbers are at least 1 and their product is at
    most `patches`, in mosaics without a grid too: rows that only fill a batch are zeros.
    """
    black, white = mosaic[:, :1, 0, :2], mosaic[:, :1, 1, :2]
    span = jnp.where(white > black, white - black, jnp.inf)
    levels = jnp.round(255 * (mosaic[:, 0, 2:4, :2] - black) / span).astype(jnp.int32)
    rows, columns = (256 * levels[:, i, 0] + levels[:, i, 1] for i in (0, 1))
    rows = jnp.clip(rows, 1, patches)
    return Grids(rows, jnp.clip(columns, 1, patches // rows))


def positions(
    table: Float[Array, "positions embed"], grids: Grids, length: int
) -> Float[Array, "batch length embed"]:
    """Positions of the patches of each image, in reading order: `table`, a square grid, resampled
    to its rows and columns, bilinear and antialiased.

    As torch's `interpolate(mode="bilinear", antialias=True)` and jax.image.scale_and_translate,
    which the authors use. Those behind the last patch of an image have no meaning.
    """
    side = math.isqrt(len(table))
    row, column = jnp.divmod(jnp.arange(length)[None], grids.columns[:, None])
    # at most the last row: beyond it the weights would be 0 / 0, and a masked NaN is still a NaN
    row_weights = _weights(jnp.minimum(row, grids.rows[:, None] - 1), grids.rows, side)
    column_weights = _weights(column, grids.columns, side)
    weights = (row_weights[..., None] * column_weights[..., None, :]).reshape(*row.shape, side**2)
    return jnp.matmul(weights, table, precision="highest")


def _weights(
    index: Int[Array, "batch length"], number: Int[Array, " batch"], side: int
) -> Float[Array, "batch length side"]:
    """Weights of old positions, 0 to side - 1, in the positions `index` of an axis of `number`."""
    scale = (side / number)[:, None, None]
    # centres lie at half integers (align_corners=False); the kernel is widened only when shrinking
    centre = (index[..., None] + 0.5) * scale
    old = (jnp.arange(side) + 0.5)[None, None]
    kernel = jnp.maximum(1 - jnp.abs(old - centre) / jnp.maximum(scale, 1), 0)
    return kernel / kernel.sum(axis=-1, keepdims=True)
