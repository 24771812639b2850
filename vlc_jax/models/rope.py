"""Rotary position embedding (RoPE; Su et al. 2021, arXiv:2104.09864) of tokens on a grid.

Pairs of features are rotated by angles proportional to the position of their token, so that the dot
product of two rotated vectors depends only on the difference of their positions. The tables are
numpy constants; nothing is learned.
"""

import dataclasses
import math

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

BASE = 10_000.0  # of the angles' geometric series
LAYOUTS = ("interleaved", "halves", "split")


@flax.struct.dataclass
class Rotation:
    """Cosine and sine of the rotation angle of each pair of features of each token.

    Float32, (batch, length, pairs); batch is 1 if all examples have the same positions.

    layout: features of pair i. interleaved: 2i and 2i + 1; halves: i and i + pairs; split: inputs
      2i and 2i + 1, results stored at i and i + pairs.
    """

    cos: Float[Array, "batch length pairs"]
    sin: Float[Array, "batch length pairs"]
    layout: str = flax.struct.field(pytree_node=False, default="interleaved")


@dataclasses.dataclass(frozen=True)
class Scaling:
    """RoPE scaling of a language model for texts longer than its training texts.

    kind: linear | llama3 | longrope.   original_length: context length before the extension; unused
      by linear.
    linear (Chen et al. 2023, arXiv:2306.15595): all frequencies are divided by `factor`.
    llama3 (Llama 3.1; arXiv:2407.21783): frequencies whose wave is longer than original_length /
      low_factor are divided by `factor`, frequencies whose wave is shorter than original_length /
      high_factor stay, and frequencies in between are interpolated.
    longrope (Ding et al. 2024, arXiv:2402.13753): frequency i is divided by short[i], or by long[i]
      for texts of more than original_length tokens; cosine and sine are multiplied by
      sqrt(1 + ln(factor) / ln(original_length)), factor being the ratio of the lengths.
    """

    kind: str
    original_length: int
    factor: float
    low_factor: float = 1.0
    high_factor: float = 4.0
    short: tuple[float, ...] = ()
    long: tuple[float, ...] = ()


def frequencies(
    pairs: int, base: float = BASE, scaling: Scaling | None = None, length: int = 0
) -> tuple[np.ndarray, float]:
    """Radians per token of each pair of features, base**(-i / pairs) unless scaled, (pairs,); and
    the factor of cosine and sine.

    length: tokens of the longest text; longrope chooses its divisors by it.
    """
    plain = base ** (-np.arange(pairs) / pairs)
    if scaling is None:
        return plain, 1.0
    if scaling.kind == "linear":
        return plain / scaling.factor, 1.0
    if scaling.kind == "llama3":
        waves = scaling.original_length * plain / (2 * np.pi)  # in a text of the original length
        unscaled = (waves - scaling.low_factor) / (scaling.high_factor - scaling.low_factor)
        # share of the frequency that is not divided
        unscaled = np.clip(unscaled, 0, 1)
        return plain * (unscaled + (1 - unscaled) / scaling.factor), 1.0
    if scaling.kind != "longrope":
        raise ValueError(f"a rope scaling is linear, llama3 or longrope, got {scaling.kind!r}")
    divisors = scaling.long if length > scaling.original_length else scaling.short
    if len(divisors) != pairs:
        raise ValueError(f"longrope needs {pairs} divisors, one per pair; got {len(divisors)}")
    if scaling.factor <= 1:
        return plain / np.array(divisors), 1.0
    wave = math.sqrt(1 + math.log(scaling.factor) / math.log(scaling.original_length))
    return plain / np.array(divisors), wave


def rotation_at(
    positions: Int[Array, "batch length"] | Int[Array, "batch length pairs"],
    frequency: np.ndarray,
    factor: float = 1.0,
) -> Rotation:
    """The rotation of tokens at integer positions, one per token or per pair of features, in the
    layout of language models (halves)."""
    positions = positions if positions.ndim == 3 else positions[..., None]
    # float32: bfloat16 has all integers only up to 256
    angles = positions.astype(jnp.float32) * jnp.asarray(frequency, jnp.float32)[None, None]
    return Rotation(factor * jnp.cos(angles), factor * jnp.sin(angles), "halves")


def axes(sections: tuple[int, int, int], pairs: int) -> np.ndarray:
    """Axis by which each pair of features rotates: 0 time, 1 row, 2 column; (pairs,).

    The axes take turns (interleaved M-RoPE of Qwen3-VL, arXiv:2511.21631): pair i rotates by row if
    i modulo 3 is 1 and by column if it is 2, while i < 3 times the section of that axis.
    """
    pair = np.arange(pairs)
    axis = pair % 3
    return np.where(pair < 3 * np.array(sections)[axis], axis, 0)


def grid_angles(
    grid: int,
    pairs: int,
    span: int | None = None,
    base: float = BASE,
    offset: int = 0,
    columns_first: bool = False,
) -> np.ndarray:
    """Angles in radians of a grid x grid image, (grid * grid, pairs), row by row.

    Angles are proportional to the row in the first half of the pairs, to the column in the second
    half: base**(-2i / pairs) per unit for pair i of a half. The grid is `span` units long, by
    default one per patch. With the span of the pretraining grid, angles stay in the range of
    pretraining at any resolution (EVA-02; Fang et al. 2023, arXiv:2303.11331).

    offset: number of the first row and column; 1 tells them from a class token, which is not
      rotated (PE; Bolya et al. 2025, arXiv:2504.13181).   columns_first: the halves exchanged (PE).
    """
    if pairs % 2:
        raise ValueError(f"rotary positions on a grid need an even number of pairs, got {pairs}")
    frequency = base ** (-2 * np.arange(pairs // 2) / pairs)
    unit = 1.0 if span is None else span / grid
    row, column = (np.mgrid[:grid, :grid].reshape(2, -1, 1) + offset) * unit * frequency
    return np.concatenate([column, row] if columns_first else [row, column], axis=1)


def line_angles(tokens: int, pairs: int, base: float = BASE) -> np.ndarray:
    """Angles in radians of tokens in reading order, (tokens, pairs): p base**(-i / pairs) for pair
    i of token p."""
    return np.arange(tokens)[:, None] * base ** (-np.arange(pairs) / pairs)


def table(angles: np.ndarray, num_prefix_tokens: int = 0, layout: str = "interleaved") -> Rotation:
    """The rotation by `angles` (tokens, pairs), after prefix tokens (the class token) that are not
    rotated."""
    if layout not in LAYOUTS:
        raise ValueError(f"the layout of rotary positions is one of {LAYOUTS}, got {layout!r}")
    angles = np.concatenate([np.zeros((num_prefix_tokens, angles.shape[1])), angles])[None]
    cos, sin = (jnp.asarray(wave(angles), jnp.float32) for wave in (np.cos, np.sin))
    return Rotation(cos, sin, layout)


def at(rotation: Rotation, positions: Int[Array, " batch"]) -> Rotation:
    """Rows of a rotation table, one position per example, (batch, 1, pairs)."""
    return jax.tree.map(lambda wave: wave[0, positions][:, None], rotation)


def rotate(
    x: Float[Array, "batch length *heads features"], rotation: Rotation
) -> Float[Array, "batch length *heads features"]:
    """`x` with its pairs of features rotated, all heads alike; computed in float32."""
    is_halves, is_split = rotation.layout == "halves", rotation.layout == "split"
    parts = (2, -1) if is_halves else (-1, 2)
    axis = -2 if is_halves else -1
    first, second = jnp.moveaxis(x.astype(jnp.float32).reshape(*x.shape[:-1], *parts), axis, 0)
    heads = tuple(range(2, x.ndim - 1))
    cos, sin = (jnp.expand_dims(wave, heads) for wave in (rotation.cos, rotation.sin))
    rotated = first * cos - second * sin, first * sin + second * cos
    rotated = jnp.stack(rotated, axis=-2 if is_halves or is_split else -1)
    return rotated.reshape(x.shape).astype(x.dtype)


def rotate_features(
    x: Float[Array, "batch length features"],
    positions: str,
    base: float = BASE,
    layout: str = "split",
) -> Float[Array, "batch length features"]:
    """Patch features at the full width of a tower, rotated by the position of their patch; without
    a class token.

    positions: feature_1d (`line_angles`) | feature_2d (`grid_angles`).
    layout: see Rotation. feature_1d with base 10,000 and split reproduces lst627/CLIP-Embeds on the
      patch features of CLIP; split permutes the features even at the first patch, where angles are
      0.
    """
    length, pairs = x.shape[1], x.shape[2] // 2
    if positions == "feature_1d":
        return rotate(x, table(line_angles(length, pairs, base), layout=layout))
    if positions != "feature_2d":
        raise ValueError(f"positions of features are feature_1d or feature_2d, got {positions!r}")
    grid = math.isqrt(length)
    if grid**2 != length:
        raise ValueError(f"feature_2d needs a square grid of tokens; got {length} tokens")
    return rotate(x, table(grid_angles(grid, pairs, base=base), layout=layout))


def alibi_slopes(heads: int, largest: float) -> np.ndarray:
    """Slopes of ALiBi, (heads,), float32: 2**(-largest i / n) for i from 1 to n, the next power of
    two; of these the even i, then the odd ones, if `heads` is none (as MPT, unlike BLOOM)."""
    count = 2 ** math.ceil(math.log2(heads))
    slopes = 2.0 ** (-largest * np.arange(1, count + 1) / count)
    if count != heads:
        slopes = np.concatenate([slopes[1::2], slopes[::2]])[:heads]
    return slopes.astype(np.float32)
