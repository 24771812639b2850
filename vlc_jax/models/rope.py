"""Rotary position embedding (RoPE; Su et al. 2021, arXiv:2104.09864) of tokens on a grid.

Features are turned in neighbouring pairs (2i, 2i + 1) by angles in proportion to the position of
their token, so the product of two turned vectors knows only the difference of their positions.
The tables are constants made with numpy; nothing is learned.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int


class Rotation(NamedTuple):
    """Cosine and sine of the angle by which each pair of features of each token is turned.

    Float32, (batch, length, pairs); batch is 1 where all examples have the same positions.
    """

    cos: Float[Array, "batch length pairs"]
    sin: Float[Array, "batch length pairs"]


def grid_angles(
    grid: int, pairs: int, span: int | None = None, temperature: float = 10_000.0
) -> np.ndarray:
    """Angles in radians of a grid x grid image, (grid * grid, pairs), row by row.

    The first half of the pairs turns with the row, the second with the column: pair i of a half by
    temperature**(-2i / pairs) per unit. The grid is `span` units long, by default one per patch:
    with the span of the pretraining grid, angles stay in the range seen there at any resolution
    (EVA-02; Fang et al. 2023, arXiv:2303.11331).
    """
    if pairs % 2:
        raise ValueError(f"rotary positions on a grid need an even number of pairs, got {pairs}")
    frequency = temperature ** (-2 * np.arange(pairs // 2) / pairs)
    unit = 1.0 if span is None else span / grid
    row, column = np.mgrid[:grid, :grid].reshape(2, -1, 1) * unit * frequency
    return np.concatenate([row, column], axis=1)


def table(angles: np.ndarray, unturned: int = 0) -> Rotation:
    """The rotation by `angles` (tokens, pairs), after `unturned` tokens (class token) that stay."""
    angles = np.concatenate([np.zeros((unturned, angles.shape[1])), angles])[None]
    return Rotation(*(jnp.asarray(wave(angles), jnp.float32) for wave in (np.cos, np.sin)))


def at(rotation: Rotation, positions: Int[Array, "batch"]) -> Rotation:
    """The rows of a table at one position of each example, (batch, 1, pairs)."""
    return jax.tree.map(lambda wave: wave[0, positions][:, None], rotation)


def rotate(
    x: Float[Array, "batch length *heads features"], rotation: Rotation
) -> Float[Array, "batch length *heads features"]:
    """`x` with its pairs of features turned, all heads alike; in float32 whatever its dtype."""
    even, odd = jnp.moveaxis(x.astype(jnp.float32).reshape(*x.shape[:-1], -1, 2), -1, 0)
    heads = tuple(range(2, x.ndim - 1))
    cos, sin = (jnp.expand_dims(wave, heads) for wave in rotation)
    turned = jnp.stack([even * cos - odd * sin, even * sin + odd * cos], axis=-1)
    return turned.reshape(x.shape).astype(x.dtype)


def turn_features(
    x: Float[Array, "batch length features"], layout: str, temperature: float = 10_000.0
) -> Float[Array, "batch length features"]:
    """Features of a whole tower, turned by the place of their token; no class token among them.

    feature_1d: all pairs by the number of the token in reading order, pair k by
      temperature**(-2k / features) each; afterwards first all first halves of the pairs, then all
      second ones, as lst627/CLIP-Embeds applies it to patch features.
    feature_2d: as `grid_angles`, half of the pairs by the row and half by the column.
    """
    length, pairs = x.shape[1], x.shape[2] // 2
    if layout == "feature_2d":
        grid = math.isqrt(length)
        if grid**2 != length:
            raise ValueError(f"feature_2d turns a square grid of tokens; got {length} of them")
        return rotate(x, table(grid_angles(grid, pairs, temperature=temperature)))
    frequency = temperature ** (-np.arange(pairs) / pairs)
    rotation = table(np.arange(length)[:, None] * frequency)
    even, odd = jnp.moveaxis(x.astype(jnp.float32).reshape(*x.shape[:-1], -1, 2), -1, 0)
    cos, sin = rotation
    halves = [even * cos - odd * sin, even * sin + odd * cos]
    return jnp.concatenate(halves, axis=-1).astype(x.dtype)
