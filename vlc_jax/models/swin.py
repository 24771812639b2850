"""Swin Transformer (Liu et al. 2021, arXiv:2103.14030), the image tower of X-VLM."""

import math
from collections.abc import Callable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jaxtyping import Array, Float, Int

from vlc_jax import types
from vlc_jax.models import layers
from vlc_jax.models.tower import check_pixels, scaled, tokens_of
from vlc_jax.models.vit import patches
from vlc_jax.types import ImageFeatures

# the authors' initialiser of all matrices and tables
_NORMAL = nn.initializers.truncated_normal(0.02)
INITIAL = layers.Initialisers(*[_NORMAL] * 5, mlp_bias=nn.initializers.zeros)
MASKED = -100.0  # added to scores of tokens that a cyclic shift made neighbours, as in their code


def relative_positions(side: int) -> Int[np.ndarray, "length length"]:
    """Row of the table of biases for each pair of tokens of a window, by the difference of their
    rows and columns, each from -(side - 1) to side - 1."""
    row, column = np.mgrid[:side, :side].reshape(2, -1)
    rows, columns = (x[:, None] - x[None] + side - 1 for x in (row, column))
    return rows * (2 * side - 1) + columns


def regions(grid: int, window: int, shift: int) -> Int[np.ndarray, "windows length"]:
    """Region of each token of each window after a cyclic shift: tokens attend inside a region."""
    places = np.arange(grid)
    band = (places >= grid - window).astype(int) + (places >= grid - shift)
    count = grid // window
    ids = (3 * band[:, None] + band[None]).reshape(count, window, count, window)
    return ids.transpose(0, 2, 1, 3).reshape(count**2, window**2)


class WindowAttention(nn.Module):
    """Attention inside windows, with a learned bias for each relative position and head."""

    heads: int
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(
        self,
        x: Float[Array, "batch windows length embed"],
        region: Int[np.ndarray, "windows length"] | None,
    ) -> Float[Array, "batch windows length embed"]:
        """region: of `regions`; None: all tokens of a window attend to each other."""
        *axes, length, width = x.shape

        def dense(features: int, name: str) -> layers.Dense:
            return layers.Dense(features, True, self.dtype, _NORMAL, name=name)

        def split(y: jax.Array) -> jax.Array:
            return y.reshape(*axes, length, self.heads, width // self.heads)

        query = split(dense(width, "query")(x))
        key_value = dense(2 * width, "key_value")(x)
        key, value = map(split, jnp.split(key_value, 2, axis=-1))
        side = math.isqrt(length)
        table = self.param("position_bias", _NORMAL, ((2 * side - 1) ** 2, self.heads))
        bias = table[relative_positions(side)].transpose(2, 0, 1)[None, None]
        if region is not None:
            is_other = region[:, :, None] != region[:, None]
            bias = bias + jnp.where(is_other, MASKED, 0.0)[None, :, None]
        # float32 as in layers.Attention
        scores = jnp.einsum("bwqhd,bwkhd->bwhqk", query, key, preferred_element_type=jnp.float32)
        shares = jax.nn.softmax(scores * (width // self.heads) ** -0.5 + bias)
        mixed = jnp.einsum("bwhqk,bwkhd->bwqhd", shares.astype(self.dtype), value)
        return dense(width, "out")(mixed.reshape(x.shape))


class Block(nn.Module):
    """A pre-norm block whose attention stays in windows.

    window: side of a window, tokens.   shift: rows and columns by which the windows are shifted,
      cyclically; 0: none.
    """

    heads: int
    window: int
    shift: int
    activation: str
    epsilon: float
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(self, x: Float[Array, "batch length embed"]) -> Float[Array, "batch length embed"]:
        batch, length, width = x.shape
        grid, window = math.isqrt(length), self.window
        count = grid // window

        def norm(name: str) -> nn.LayerNorm:
            return layers.layer_norm(self.epsilon, self.dtype, name)

        y = norm("attention_norm")(x).reshape(batch, grid, grid, width)
        if self.shift:
            y = jnp.roll(y, (-self.shift, -self.shift), axis=(1, 2))
        y = patches(y, window).reshape(batch, count**2, window**2, width)
        region = regions(grid, window, self.shift) if self.shift else None
        y = WindowAttention(self.heads, self.dtype, name="attention")(y, region)
        y = y.reshape(batch, count, count, window, window, width).transpose(0, 1, 3, 2, 4, 5)
        y = y.reshape(batch, grid, grid, width)
        if self.shift:
            y = jnp.roll(y, (self.shift, self.shift), axis=(1, 2))
        x = x + y.reshape(x.shape)
        mlp = layers.MLP(4 * width, self.activation, INITIAL, self.dtype, name="mlp")
        return types.shard_batch(x + mlp(norm("mlp_norm")(x)))


class Swin(nn.Module, kw_only=True):
    """Swin Transformer over normalised pixels: stages of blocks whose attention stays in windows,
    every second one in shifted windows; between stages 2 x 2 tokens become one of twice the width.

    image_size: side of the square input, pixels, a multiple of patch_size times window.
    width: of the first stage, doubled by each further one.   stages: blocks of each stage.
    heads: of the first stage, doubled by each further one.   window: side of a window, tokens.
    patch_size: side of a token of the last stage, pixels.
    projection: width of the shared embedding; None: that of the last stage.
    activation, epsilon, dtype, remat: as in `tower.Tower`, remat for each block.
    """

    image_size: int
    width: int
    stages: tuple[int, ...]
    heads: int
    window: int
    patch_size: int = 32
    projection: int | None = None
    activation: str = "gelu"
    epsilon: float = 1e-5
    dtype: Any = jnp.float32
    remat: str = "none"

    has_class_token: ClassVar[bool] = False

    @property
    def embed(self) -> int:
        """Width of the embedding."""
        return self.projection or self.width * 2 ** (len(self.stages) - 1)

    @property
    def depth(self) -> int:
        """Blocks of all stages."""
        return sum(self.stages)

    @property
    def grid(self) -> int:
        """Tokens per side after the last stage."""
        return self.image_size // self.patch_size

    @nn.compact
    def __call__(
        self,
        image: Float[Array, "batch height width channels"],
        request: types.FeatureRequest = types.POOLED_ONLY,
    ) -> ImageFeatures:
        """The mean of the tokens after the last norm (batch, embed) and, if requested, the tokens
        of the last stage row by row, (batch, patches, embed)."""
        check_pixels(image, self)
        last = len(self.stages) - 1
        dense = layers.Dense(self.width, True, self.dtype, _NORMAL, name="patch_embedding")
        x = dense(patches(image.astype(self.dtype), self.patch_size // 2**last))
        x = types.shard_batch(self._norm("patch_norm")(x))
        make = layers.rematerialised(Block, self.remat)
        for stage, blocks in enumerate(self.stages):
            if stage:
                x = self._merged(x, stage)
            # one window over the whole grid has no neighbours
            is_split = self.grid * 2 ** (last - stage) > self.window
            for index in range(blocks):
                x = make(
                    self.heads * 2**stage,
                    self.window,
                    self.window // 2 if index % 2 and is_split else 0,
                    self.activation,
                    self.epsilon,
                    self.dtype,
                    name=f"stage_{stage + 1}_block_{index}",
                )(x)
        normed, project = self._norm("norm")(x), self._projection(request)
        tokens = tokens_of(request, x, normed, project)
        return ImageFeatures(project(normed.mean(axis=1)), tokens)

    def _norm(self, name: str) -> nn.LayerNorm:
        return layers.layer_norm(self.epsilon, self.dtype, name)

    def _merged(
        self, x: Float[Array, "batch length embed"], stage: int
    ) -> Float[Array, "batch merged out"]:
        """Each 2 x 2 tokens as one, side by side column by column, normed and projected."""
        batch, length, width = x.shape
        half = math.isqrt(length) // 2
        x = x.reshape(batch, half, 2, half, 2, width).transpose(0, 1, 3, 4, 2, 5)
        x = self._norm(f"merge_{stage}_norm")(x.reshape(batch, half**2, 4 * width))
        return layers.Dense(2 * width, False, self.dtype, _NORMAL, name=f"merge_{stage}")(x)

    def _projection(self, request: types.FeatureRequest) -> Callable[[jax.Array], jax.Array]:
        if self.projection is None:
            return lambda x: scaled(x, request)
        dense = layers.Dense(self.projection, False, self.dtype, _NORMAL, name="projection")
        return lambda x: scaled(dense(x), request)
