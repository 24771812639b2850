"""BERT and RoBERTa: a post-norm transformer over token ids, which may also attend to images.

Sources: BERT (Devlin et al. 2019, arXiv:1810.04805), RoBERTa (Liu et al. 2019, arXiv:1907.11692),
and the cross attention of BLIP (Li et al. 2022, arXiv:2201.12086, figure 2).
"""

from typing import Any

import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float, Int

from vlc_jax import errors, types
from vlc_jax.models import layers

# BERT's initializer_range, for all matrices and embeddings
_NORMAL = nn.initializers.normal(0.02)
INITIAL = layers.Initialisers(*[_NORMAL] * 5, mlp_bias=nn.initializers.zeros)


class Block(nn.Module):
    """A post-norm block: norm(x + attention(x)), norm(x + cross attention), norm(x + mlp(x)).

    has_cross: whether the block has a cross attention; a call without images skips it.
    """

    heads: int
    mlp_width: int
    activation: str
    epsilon: float
    has_cross: bool = False
    dtype: Any = jnp.float32

    def setup(self) -> None:
        def attention() -> layers.Attention:
            return layers.Attention(self.heads, INITIAL, self.dtype)

        def norm() -> nn.LayerNorm:
            return layers.layer_norm(self.epsilon, self.dtype)

        self.attention, self.attention_norm = attention(), norm()
        if self.has_cross:
            self.cross, self.cross_norm = attention(), norm()
        self.mlp = layers.MLP(self.mlp_width, self.activation, INITIAL, self.dtype)
        self.mlp_norm = norm()

    def __call__(
        self,
        x: Float[Array, "texts length embed"],
        ends: Int[Array, " texts"] | None = None,
        images: Float[Array, "images patches width"] | None = None,
    ) -> Float[Array, "texts length embed"]:
        """ends: position of the last real token of each text; no token attends to the padding after
        it.   images: see `Encoder.blocks`."""
        x = self.attention_norm(x + self.attention(x, x, positions=ends))
        if images is not None and self.has_cross:
            # all texts of an image as one row of queries: keys and values of an image, most of the
            # work, are computed once
            queries = x.reshape(len(images), -1, x.shape[-1])
            x = self.cross_norm(x + self.cross(queries, images).reshape(x.shape))
        return types.shard_batch(self.mlp_norm(x + self.mlp(x)))


class Encoder(nn.Module, kw_only=True):
    """Embeddings of token ids and a stack of post-norm blocks; the sizes are those of BERT-base.

    vocab_size: rows of the embedding.   positions: rows of the position embedding.
    first_position: position of the first token; RoBERTa's is 2, after the id of padding.
    token_types: rows of the embedding of token types, of which row 0 is used; 0: no such embedding
      (BLIP).
    cross: indices of the blocks with a cross attention.
    activation, epsilon, dtype, remat: as in `tower.Tower`.
    """

    vocab_size: int = 30_522
    positions: int = 512
    first_position: int = 0
    token_types: int = 2
    width: int = 768
    depth: int = 12
    heads: int = 12
    mlp_width: int = 3072
    cross: tuple[int, ...] = ()
    activation: str = "gelu"
    epsilon: float = 1e-12
    dtype: Any = jnp.float32
    remat: str = "none"

    def setup(self) -> None:
        def table(rows: int) -> nn.Embed:
            return nn.Embed(rows, self.width, dtype=self.dtype, embedding_init=_NORMAL)

        self.token_embedding = table(self.vocab_size)
        self.position_embedding = table(self.positions)
        if self.token_types:
            self.type_embedding = table(self.token_types)
        self.embedding_norm = layers.layer_norm(self.epsilon, self.dtype)
        make = layers.rematerialised(Block, self.remat)
        sizes = (self.heads, self.mlp_width, self.activation, self.epsilon)
        self.block = [make(*sizes, i in self.cross, self.dtype) for i in range(self.depth)]

    def __call__(
        self,
        ids: Int[Array, "texts length"],
        ends: Int[Array, " texts"] | None = None,
        images: Float[Array, "images patches width"] | None = None,
    ) -> Float[Array, "texts length embed"]:
        """Features of every token after the last block; arguments as in `Block` and `blocks`."""
        return self.blocks(self.embed(ids), ends, images)

    def embed(self, ids: Int[Array, "texts length"]) -> Float[Array, "texts length embed"]:
        """Normed sums of the embeddings of tokens, positions and token type 0.

        Raises UsageError for more tokens than the position embedding has rows.
        """
        length, longest = ids.shape[1], self.positions - self.first_position
        if length > longest:
            raise errors.UsageError(
                f"this encoder has positions for {longest} tokens, got {length}; set "
                f"config.text.context_length to at most {longest}"
            )
        places = jnp.arange(self.first_position, self.first_position + length)
        x = self.token_embedding(ids) + self.position_embedding(places)[None]
        if self.token_types:
            x = x + self.type_embedding(jnp.zeros((1, 1), jnp.int32))
        return self.embedding_norm(x)

    def blocks(
        self,
        x: Float[Array, "texts length embed"],
        ends: Int[Array, " texts"] | None = None,
        images: Float[Array, "images patches width"] | None = None,
        start: int = 0,
        stop: int | None = None,
    ) -> Float[Array, "texts length embed"]:
        """Features after the blocks from `start` to before `stop`.

        images: tokens of images that the blocks in `cross` attend to. Text j belongs to image
          j // (texts / images); None: no block attends to images.
        """
        for block in self.block[start:stop]:
            x = block(x, ends, images)
        return x
