"""The image tower: a vision transformer (Dosovitskiy et al. 2021) as CLIP and SigLIP use it."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jaxtyping import Array, Float, Int

from vlc_jax import errors, types
from vlc_jax.models import layers, naflex, rope
from vlc_jax.models.tower import Tower, check_pixels, tokens_of
from vlc_jax.types import ImageFeatures


def sincos2d(grid: int, width: int) -> np.ndarray:
    """Sine-cosine positions of a grid x grid image, (grid * grid, width), as in MoCo v3.

    Four quarters of the width: sin and cos of the column, sin and cos of the row.
    """
    if width % 4:
        raise ValueError(f"sincos2d positions need a width divisible by 4, got {width}")
    frequency = 10_000.0 ** -np.linspace(0.0, 1.0, width // 4)
    row, column = np.mgrid[:grid, :grid].reshape(2, -1, 1) * frequency
    waves = [np.sin(column), np.cos(column), np.sin(row), np.cos(row)]
    return np.concatenate(waves, axis=1).astype(np.float32)


def _resampled(
    positions: Float[Array, "patches embed"], first: int, side: int
) -> Float[Array, "_ embed"]:
    """Positions of a grid of `side` patches, bicubic; those of the `first` tokens stay."""
    grid = math.isqrt(len(positions) - first)
    squares = positions[first:].reshape(grid, grid, -1)
    # not antialiased, as in DINO, whose cubic is a little sharper (-.75 where this one has -.5)
    resized = jax.image.resize(squares, (side, side, squares.shape[-1]), "bicubic", antialias=False)
    return jnp.concatenate([positions[:first], resized.reshape(side**2, -1)])


def patches(
    image: Float[Array, "batch height width channels"], size: int
) -> Float[Array, "batch patches pixels"]:
    """Non-overlapping size x size patches, row by row, each flattened as (row, column, channel).

    Pixels beyond the last whole patch are dropped, as a convolution without padding does.
    """
    batch, height, width, channels = image.shape
    rows, columns = height // size, width // size
    image = image[:, : rows * size, : columns * size]
    image = image.reshape(batch, rows, size, columns, size, channels).transpose(0, 1, 3, 2, 4, 5)
    return image.reshape(batch, rows * columns, size * size * channels)


class AttentionPool(nn.Module):
    """SigLIP's attention pooling (MAP): one learned probe attends to all tokens, then an MLP."""

    heads: int
    mlp_width: int
    activation: str
    epsilon: float
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(
        self, x: Float[Array, "batch patches embed"], ends: Int[Array, " batch"] | None = None
    ) -> Float[Array, "batch embed"]:
        """The pooled tokens; `ends`: position of the last real token of each image."""
        width = x.shape[-1]
        init = layers.initialisers("big_vision", width, 1)
        probe = self.param("probe", nn.initializers.xavier_uniform(), (1, width))
        attention = layers.Attention(self.heads, init, self.dtype, name="attention")
        mlp = layers.MLP(self.mlp_width, self.activation, init, self.dtype, name="mlp")
        y = attention(probe[None], x, positions=ends)
        return (y + mlp(layers.layer_norm(self.epsilon, self.dtype, "norm")(y)))[:, 0]


class _PixelTokens(Tower, kw_only=True):
    """From normalised pixels to the input of the blocks; fields as in ImageTower."""

    image_size: int
    patch_size: int | None = None
    patch_bias: bool = False
    stem: tuple[int, ...] = ()
    pooling: Literal["cls", "mean", "map"] = "cls"
    class_token: bool = False
    positions: Literal["learned", "sincos2d"] = "learned"
    amplitude: float = 1.0
    position_grid: int | None = None
    registers: int = 0

    @property
    def has_class_token(self) -> bool:
        """True if the first token is a class token."""
        return self.pooling == "cls" or self.class_token

    @property
    def grid(self) -> int:
        """Patches per side; of a mosaic, not of an image."""
        if self.stem:
            return self.image_size // 2 ** len(self.stem)
        return self.image_size // self.patch_size

    def _tokens(
        self,
        image: Float[Array, "batch height width channels"],
        grids: naflex.Grids | None,
        masked: tuple[Int[Array, "batch masked"], Float[Array, " embed"]] | None,
    ) -> Float[Array, "batch length embed"]:
        """Class token, registers and patches with their positions."""
        x = self._embed((image if grids is None else image[:, 1:]).astype(self.dtype))
        if masked is not None:
            places, token = masked
            is_masked = (places[:, :, None] == jnp.arange(x.shape[1])[None, None]).any(axis=1)
            x = jnp.where(is_masked[:, :, None], token.astype(x.dtype)[None, None], x)
        if self.has_class_token:
            token = self.param(
                "class_embedding", nn.initializers.normal(self.width**-0.5), (self.width,)
            )
            token = jnp.broadcast_to(token.astype(x.dtype), (x.shape[0], 1, self.width))
            x = jnp.concatenate([token, x], axis=1)
        x = x + self._positions(x.shape[1], grids).astype(x.dtype)
        first = int(self.has_class_token)
        if self.registers:
            init = nn.initializers.normal(self.width**-0.5)
            extra = self.param("register_tokens", init, (self.registers, self.width))
            extra = jnp.broadcast_to(extra.astype(x.dtype), (x.shape[0], *extra.shape))
            x = jnp.concatenate([x[:, :first], extra, x[:, first:]], axis=1)
        return x

    def _grids(
        self, mosaic: Float[Array, "batch height width channels"], request: types.FeatureRequest
    ) -> naflex.Grids:
        if request.has_tokens:
            raise errors.UsageError(
                "this image tower takes images of any aspect ratio (NaFlex), whose patches are no "
                "square grid: heads and maps that read patches need a SigLIP 2 of fixed resolution"
            )
        return naflex.grids(mosaic, self.grid**2)

    def _embed(
        self, image: Float[Array, "batch height width channels"]
    ) -> Float[Array, "batch patches embed"]:
        if not self.stem:
            return layers.Dense(
                self.width,
                use_bias=self.patch_bias,
                dtype=self.dtype,
                # uniform with std (3 fan_in)**-.5, the default of torch.nn.Conv2d
                kernel_init=nn.initializers.variance_scaling(1 / 3, "fan_in", "uniform")
                if self.initialisation == "clip"
                else nn.initializers.lecun_normal(),
                name="patch_embedding",
            )(patches(image, self.patch_size))
        x = image
        for index, channels in enumerate(self.stem):
            if index:
                x = layers.ACTIVATIONS[self.activation](x)
            x = nn.Conv(
                channels, (3, 3), strides=2, padding=1, dtype=self.dtype, name=f"stem_{index}"
            )(x)
        return x.reshape(x.shape[0], -1, self.width)

    def _positions(
        self, length: int, grids: naflex.Grids | None
    ) -> Float[Array, "images length embed"]:
        """Position embeddings of all tokens, (1, length, embed), resampled for a crop, or of each
        image's grid."""
        first = int(self.has_class_token)
        rows = first + self.grid**2 if grids is None else self.position_grid**2
        table = self.param("position_embedding", self._position_init, (rows, self.width))
        table = jnp.asarray(table)  # numpy's where parameters are constants of a program
        if grids is not None:
            return naflex.positions(table, grids, length)
        if length != rows:
            table = _resampled(table, first, math.isqrt(length - first))
        return table[None]

    def _position_init(self, key: jax.Array, shape: tuple[int, int]) -> jax.Array:
        if self.positions == "learned":
            return nn.initializers.normal(self.width**-0.5)(key, shape)
        waves = self.amplitude * sincos2d(self.grid, self.width)
        class_token = np.zeros((shape[0] - len(waves), self.width), np.float32)
        return jnp.concatenate([class_token, waves])


class ImageTower(_PixelTokens, kw_only=True):
    """Vision transformer over normalised pixels.

    image_size: side of the square input, pixels.
    patch_size: side of a patch; None with a `stem`.
    patch_bias: whether the patch embedding has a bias (SigLIP: yes, CLIP: no).
    stem: channels of 3x3 stride-2 convolutions that replace the patch embedding, the last one
      equal to `width`; each halves the image.
    pre_norm: a layer norm before the first block (CLIP's ln_pre).
    pooling: cls (a class token, prepended) | mean (over patches, after the last norm) | map.
    class_token: a class token with the other poolings, too. map reads it as any token (PE; Bolya et
      al. 2025, arXiv:2504.13181), mean does not (CLIPA; Li et al. 2023, arXiv:2305.07017).
    norm_after_pooling: the last norm is of the pooled features, not of the tokens before (CLIPA).
    pool_heads, pool_mlp_width: of pooling map; None: those of the blocks.
    positions: learned | sincos2d: initialisation of the trained position embedding; sincos2d is
      multiplied by `amplitude`.
    position_grid: NaFlex, for images of any aspect ratio: side of the grid of position embeddings,
      which are resampled to the grid of each image. Images are mosaics of up to
      (image_size / patch_size)^2 patches (models/naflex.py), those behind an image's last one are
      masked; only with pooling map, and without tokens in the results. None: squares.
    registers: further tokens behind the class token, without positions and in no result (DINOv2;
      Darcet et al. 2024, arXiv:2309.16588).
    rope: none | qk_1d | qk_2d: rotary embedding of the queries and keys of the patches in every
      block, by index in reading order or by row and column; the class token is not rotated.
    rope_span: for qk_2d, units from one side of the image to the other; None: one per patch.
    rope_base, rope_layout, rope_offset, rope_columns_first: see models/rope.py; interleaved |
      halves.
    """

    pre_norm: bool = False
    norm_after_pooling: bool = False
    pool_heads: int | None = None
    pool_mlp_width: int | None = None
    rope: Literal["none", "qk_1d", "qk_2d"] = "none"
    rope_span: int | None = None
    rope_base: float = 10_000.0
    rope_layout: Literal["interleaved", "halves"] = "interleaved"
    rope_offset: int = 0
    rope_columns_first: bool = False

    @nn.compact
    def __call__(
        self,
        image: Float[Array, "batch height width channels"],
        request: types.FeatureRequest = types.POOLED_ONLY,
        masked: tuple[Int[Array, "batch masked"], Float[Array, " embed"]] | None = None,
        *,
        is_crop: bool = False,
    ) -> ImageFeatures:
        """Pooled features (batch, embed) and, if requested, all tokens (batch, patches, embed), the
        class token first if there is one.

        With pooling `map`, a projected token is the pooling of that token alone: value, output
        matrix and MLP, since attention over one token returns its value (as in MaskCLIP for CLIP;
        Zhou et al. 2022, arXiv:2112.01071). This is our choice: SigLIP does not train such tokens.

        masked: indices of patches, and the vector that replaces their embeddings before positions
          are added (iBOT; Zhou et al. 2021, arXiv:2111.07832).
        is_crop: the squares may have fewer pixels than `image_size`; positions are resampled to
          their grid, as in DINO. Only without rope.
        """
        check_pixels(image, self, is_crop)
        grids = self._grids(image, request) if self.position_grid else None
        ends = None if grids is None else grids.rows * grids.columns - 1
        x, first = self._tokens(image, grids, masked), int(self.has_class_token)
        if self.pre_norm:
            x = self._norm("pre_norm")(x)
        only_class_token = self.pooling == "cls" and request.tokens == "none"
        queries = jnp.zeros(x.shape[0], jnp.int32) if only_class_token else None
        rotation = self._rotation(num_prefix_tokens=x.shape[1] - self.grid**2)
        x = types.shard_batch(x)
        raw = self._blocks(x, is_causal=False, positions=queries, rotation=rotation, ends=ends)
        if self.registers and not only_class_token:
            raw = jnp.concatenate([raw[:, :first], raw[:, first + self.registers :]], axis=1)
        norm = self._norm("norm")
        normed = norm(raw)
        project, pool = self._projection(request), self._pooling(ends)

        def project_each(tokens: jax.Array) -> jax.Array:
            if self.pooling == "map":
                tokens = pool(tokens.reshape(-1, 1, self.width)).reshape(tokens.shape)
            return project(tokens)

        tokens = tokens_of(request, raw, normed, project_each)
        pooled = norm(pool(raw)) if self.norm_after_pooling else pool(normed)
        return ImageFeatures(project(pooled), tokens)

    # no return annotation, rope.Rotation | None: the field `rope` hides the module here
    def _rotation(self, num_prefix_tokens: int):
        if self.rope == "none":
            return None
        pairs = self.width // self.heads // 2
        if self.rope == "qk_1d":
            angles = rope.line_angles(self.grid**2, pairs, self.rope_base)
        else:
            options = (self.rope_span, self.rope_base, self.rope_offset, self.rope_columns_first)
            angles = rope.grid_angles(self.grid, pairs, *options)
        return rope.table(angles, num_prefix_tokens, self.rope_layout)

    def _pooling(
        self, ends: Int[Array, " batch"] | None
    ) -> Callable[[Float[Array, "batch patches embed"]], Float[Array, "batch embed"]]:
        if self.pooling == "cls":
            return lambda x: x[:, 0]
        if self.pooling == "mean":
            return lambda x: x[:, int(self.has_class_token) :].mean(axis=1)
        pool = AttentionPool(
            self.pool_heads or self.heads,
            self.pool_mlp_width or self.mlp_width or 4 * self.width,
            self.activation,
            self.epsilon,
            self.dtype,
            name="pooling",
        )
        return partial(pool, ends=ends)
