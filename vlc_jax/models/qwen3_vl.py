"""Qwen3-VL (arXiv:2511.21631) as an embedder: Qwen3-VL-Embedding (Li et al. 2026), the authors'
image tower and decoder.

A picture keeps its aspect ratio: it is a grid of patches of 16 x 16 pixels in a mosaic
(input_pipeline/images/naflex.py). The tower adds positions interpolated to the grid and rotates by
row and column. 2 x 2 patches are one token of the decoder; features of some inner blocks are added
behind the first blocks of the decoder (DeepStack). The decoder reads a conversation

    <system> instruction <user> picture or text <assistant>

and the embedding is the hidden state at its last token, after the last norm, of unit length.
"""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jaxtyping import Array, Float, Int

from vlc_jax import errors, types
from vlc_jax.models import layers, lm, naflex, rope, vit, vlm2vec
from vlc_jax.types import ImageFeatures, TextFeatures

MERGE = 2  # patches of a side of an image token
EPSILON = 1e-6  # of the layer norms


class Merger(nn.Module):
    """2 x 2 neighbouring patches -> a token in the width of the decoder: layer norm, two matrices.

    norms_square: the norm is of the four patches together (DeepStack), not of each.
    """

    width: int
    norms_square: bool
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(
        self, x: Float[Array, "images patches features"]
    ) -> Float[Array, "images _ embed"]:
        images, patches, features = x.shape
        norm, square = layers.layer_norm(EPSILON, self.dtype, "norm"), MERGE**2 * features
        x = x if self.norms_square else norm(x)
        x = x.reshape(images, patches // MERGE**2, square)
        x = norm(x) if self.norms_square else x
        x = layers.exact_gelu(layers.Dense(square, dtype=self.dtype, name="up")(x))
        return layers.Dense(self.width, dtype=self.dtype, name="down")(x)


class Qwen3VLTower(nn.Module, kw_only=True):
    """The image tower.

    image_size: side of a mosaic, whose patches are the most that an image has.
    out_width: width of the decoder.   position_grid: side of the square table of positions.
    deepstack: indices of the blocks whose features are added behind the decoder's first blocks.
    remat: see models.layers.REMAT.
    """

    image_size: int
    width: int
    depth: int
    heads: int
    mlp_width: int
    out_width: int
    deepstack: tuple[int, ...]
    position_grid: int = 48
    patch_size: int = 16
    dtype: Any = jnp.float32
    remat: str = "none"

    has_class_token: ClassVar[bool] = False

    @property
    def embed(self) -> int:
        """Width of the tokens of the last block."""
        return self.out_width

    @property
    def grid(self) -> int:
        """Patches of a side of a mosaic."""
        return self.image_size // self.patch_size

    @nn.compact
    def __call__(
        self,
        image: Float[Array, "batch height width channels"],
        request: types.FeatureRequest = types.POOLED_ONLY,
    ) -> ImageFeatures:
        """`tokens`: of the decoder, and behind them on the last axis those of each block of
        `deepstack`, (batch, patches / 4, (1 + number of blocks) x out_width). `grid`: rows and
        columns of patches. Tokens behind rows x columns / 4 are padding. `pooled`: zeros.

        image: mosaics, or their first rows down to the last patch of each. Raises UsageError for
        other arrays, and if no tokens are requested.
        """
        side, rows = self.image_size, image.shape[1] - 1
        if image.shape[2:] != (side, 3) or rows > side or rows % self.patch_size:
            raise errors.UsageError(
                f"Qwen3-VL takes mosaics of shape {(side + 1, side, 3)}, got {image.shape[1:]}: "
                "set config.input.crop='native', and config.input.image_size"
            )
        if not request.has_tokens:
            raise errors.UsageError(
                "the image tower of Qwen3-VL has no embedding of its own: set "
                "config.model.name='qwen3_vl'"
            )
        patches = vit.patches(image[:, 1:].astype(self.dtype), self.patch_size)
        grid = jnp.stack(naflex.grids(image, patches.shape[1]), axis=1)
        row, column = rows_and_columns(grid, patches.shape[1] // MERGE**2 * MERGE**2)
        # from reading order to that of squares of 2 x 2
        order = types.auto_sharded(
            lambda x, at: jnp.take_along_axis(x, at[..., None], axis=1), splits_rows=True
        )
        patches = order(patches, row * grid[:, 1:] + column)
        embedding = layers.Dense(self.width, dtype=self.dtype, name="patch_embedding")
        init = nn.initializers.normal(0.02)
        table = self.param("position_embedding", init, (self.position_grid**2, self.width))
        x = embedding(patches) + interpolated(table, row, column, grid).astype(self.dtype)
        x, tokens = types.shard_batch(x), []
        pairs = self.width // self.heads // 2
        rotation = axial_rotation(row, column, pairs)
        block = layers.rematerialised(layers.Block, self.remat)
        initial = layers.initialisers("big_vision", self.width, self.depth)
        ends = grid.prod(axis=1) - 1
        for index in range(self.depth):
            x = block(
                self.heads,
                self.mlp_width,
                is_causal=False,
                activation="gelu_tanh",
                epsilon=EPSILON,
                initial=initial,
                dtype=self.dtype,
                name=f"block_{index}",
            )(x, None, rotation, ends)
            if index in self.deepstack:
                name = f"deep_merger_{len(tokens)}"
                tokens.append(Merger(self.out_width, True, self.dtype, name=name)(x))
        tokens.insert(0, Merger(self.out_width, False, self.dtype, name="merger")(x))
        pooled = jnp.zeros((len(x), 1), jnp.float32)
        return ImageFeatures(pooled, jnp.concatenate(tokens, axis=-1), grid=grid)


def rows_and_columns(
    grid: Int[Array, "batch 2"], patches: int
) -> tuple[Int[Array, "batch patches"], Int[Array, "batch patches"]]:
    """Row and column of each patch, in the order of squares of 2 x 2; 0 of padding."""
    square, inner = jnp.divmod(jnp.arange(patches)[None], MERGE**2)
    down, right = jnp.divmod(square, jnp.maximum(grid[:, 1:] // MERGE, 1))
    is_patch = jnp.arange(patches)[None] < grid.prod(axis=1, keepdims=True)
    row, column = MERGE * down + inner // MERGE, MERGE * right + inner % MERGE
    return jnp.where(is_patch, row, 0), jnp.where(is_patch, column, 0)


def interpolated(
    table: Float[Array, "_ embed"],
    row: Int[Array, "batch patches"],
    column: Int[Array, "batch patches"],
    grid: Int[Array, "batch 2"],
) -> Float[Array, "batch patches embed"]:
    """Positions of patches, bilinear between those of a square table whose corners are the corners
    of each image."""
    side = round(table.shape[0] ** 0.5)

    def taps(index: jax.Array, size: jax.Array) -> list[tuple[jax.Array, jax.Array]]:
        at = index * (side - 1) / jnp.maximum(size - 1, 1)[:, None]
        low = jnp.floor(at).astype(jnp.int32)
        share = at - low
        return [(low, 1 - share), (jnp.minimum(low + 1, side - 1), share)]

    lookup = types.auto_sharded(lambda at, x: jnp.take(x, at, axis=0), splits_rows=True)
    return sum(
        lookup(r * side + c, table) * (row_share * column_share)[..., None]
        for r, row_share in taps(row, grid[:, 0])
        for c, column_share in taps(column, grid[:, 1])
    )


def axial_rotation(
    row: Int[Array, "batch patches"], column: Int[Array, "batch patches"], pairs: int
) -> rope.Rotation:
    """Rotation by row in the first half of the pairs of features, by column in the second."""
    axis = jnp.stack([row, column], axis=-1)[..., np.arange(pairs) // (pairs // 2)]
    frequency = np.tile(rope.frequencies(pairs // 2)[0], 2)
    return rope.rotation_at(axis, frequency)


class Qwen3VL(vlm2vec.VLM2Vec):
    """A head that embeds images, and texts, in the conversation of Qwen3-VL-Embedding.

    prefix, suffix: token ids before and after the picture or text; in a config also texts.
    marks: ids before and after a picture.
    A question about an image (`ImageFeatures.question`) is the text behind the picture; a row
    without an image (`ImageFeatures.has_image`) has only its question.
    """

    suffix: tuple[int, ...] = ()
    marks: tuple[int, int] = (0, 0)

    def image(self, features: ImageFeatures, *, is_training: bool = False) -> ImageFeatures:
        """`pooled`: the embedding of each image with its question, float32, of unit length."""
        del is_training
        (images, count), width = features.tokens.shape[:2], self.lm.width
        deep = features.tokens[..., width:].reshape(images, count, -1, width)
        grid = features.grid.astype(jnp.int32) // MERGE  # features in files are float32
        has_image = features.has_image
        if has_image is None:
            # sharded like the tokens, also on a mesh of explicit axes
            has_image = jnp.ones_like(features.tokens[:, 0, 0], bool)
        has = has_image[:, None]
        start, end = ((mark,) for mark in self.marks)
        is_token = (jnp.arange(count)[None] < grid.prod(axis=1, keepdims=True)) & has
        parts = [
            self._words(self.prefix, features.tokens),
            (self._words(start, features.tokens)[0], has),
            (features.tokens[..., :width], is_token),
            (self._words(end, features.tokens)[0], has),
        ]
        if (question := features.question) is not None:
            is_asked = question != types.NOT_ASKED
            asked = self.lm.embed(jnp.where(is_asked, question, 0))
            parts.append((asked.astype(features.tokens.dtype), is_asked))
        parts.append(self._words(self.suffix, features.tokens))
        embeds, valid = (jnp.concatenate(part, axis=1) for part in zip(*parts, strict=True))
        first = len(self.prefix) + 1
        behind = valid.shape[1] - first - count
        deep = jnp.pad(jnp.moveaxis(deep, 2, 1), ((0, 0), (0, 0), (first, behind), (0, 0)))
        places = positions(valid, grid, first, count, has_image)
        picture = lm.Picture(places, deep if deep.shape[1] else None)
        return ImageFeatures(self._embedding(embeds, valid, picture))

    def text(self, features: TextFeatures, *, is_training: bool = False) -> TextFeatures:
        """`pooled`: the embedding of each text, float32, of unit length."""
        del is_training
        words = self.lm.embed(features.ids)
        # without the end token, which no conversation has
        is_text = jnp.pad(features.mask[:, 1:], ((0, 0), (0, 1)))
        around = (self._words(ids, words) for ids in (self.prefix, self.suffix))
        parts = zip(next(around), (words, is_text), next(around), strict=True)
        embeds, valid = (jnp.concatenate(part, axis=1) for part in parts)
        return TextFeatures(self._embedding(embeds, valid))

    def _words(
        self, ids: tuple[int, ...], like: Float[Array, "batch _ features"]
    ) -> tuple[Float[Array, "batch _ embed"], Any]:
        """Embeddings of the same tokens in each row of `like`, and their mask, all True."""
        # from `like`: on a mesh of explicit axes all parts of a concatenation are sharded alike
        zero = jnp.zeros_like(like[:, :1, 0], jnp.int32)
        rows = zero + np.asarray(ids, np.int32).reshape(1, -1)
        return self.lm.embed(rows).astype(like.dtype), jnp.ones_like(rows, bool)


def positions(
    valid: jax.Array, grid: Int[Array, "batch 2"], first: int, count: int, has_image: jax.Array
) -> Int[Array, "batch length 3"]:
    """Time, row and column of each token of a conversation with an image (M-RoPE).

    A word has three equal numbers. The image, in `count` slots from `first` on, has one time, and
    its rows and columns count on from it; the next word follows its longer side. valid: real
    tokens.   grid: rows and columns of the image tokens.   has_image: False: no image.
    """
    plain = lm.positions_of(valid)
    index = jnp.arange(valid.shape[1]) - first
    is_behind = (index >= count)[None] & has_image[:, None]
    shorter = grid.max(axis=1, keepdims=True) - grid.prod(axis=1, keepdims=True)
    words = plain + jnp.where(is_behind, shorter, 0)
    row, column = jnp.divmod(index[None], jnp.maximum(grid[:, 1:], 1))
    begin = plain[:, first : first + 1]
    image = jnp.stack(jnp.broadcast_arrays(begin, begin + row, begin + column), axis=-1)
    is_image = ((index >= 0) & (index < count))[None, :, None] & has_image[:, None, None]
    return jnp.where(is_image, image, words[..., None])
