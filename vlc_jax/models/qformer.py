"""Q-Former: trained queries that read an image, and a text beside them.

Sources: BLIP-2 (Li et al. 2023, arXiv:2301.12597, section 3.1), and InstructBLIP (Dai et al. 2023,
arXiv:2305.06500, section 2.3), where the text is an instruction that decides what the queries read.
"""

from typing import Any

import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float, Int

from vlc_jax import errors, types
from vlc_jax.models import bert, layers


class Block(bert.Block):
    """BERT's block for queries and the text behind them: both attend to each other, only queries
    attend to the image, and queries have an MLP of their own.

    queries: number of queries, the first tokens.
    """

    queries: int = 32

    def setup(self) -> None:
        super().setup()
        self.query_mlp = layers.MLP(self.mlp_width, self.activation, bert.INITIAL, self.dtype)
        self.query_norm = layers.layer_norm(self.epsilon, self.dtype)

    def __call__(
        self,
        x: Float[Array, "images length embed"],
        ends: Int[Array, " images"] | None = None,
        images: Float[Array, "images patches width"] | None = None,
    ) -> Float[Array, "images length embed"]:
        """Arguments as in `bert.Block`, with one text per image."""
        x = self.attention_norm(x + self.attention(x, x, positions=ends))
        query, text = x[:, : self.queries], x[:, self.queries :]
        if self.has_cross:
            query = self.cross_norm(query + self.cross(query, images))
        query = self.query_norm(query + self.query_mlp(query))
        text = self.mlp_norm(text + self.mlp(text))
        return types.shard_batch(jnp.concatenate([query, text], axis=1))


class QFormer(nn.Module, kw_only=True):
    """Queries and token ids -> the features of the queries; the sizes are InstructBLIP's.

    cross_every: every n-th block, from the first on, attends to the image.
    vocab_size, positions, activation, epsilon, dtype, remat: as in `bert.Encoder`.
    """

    queries: int = 32
    vocab_size: int = 30_523
    positions: int = 512
    width: int = 768
    depth: int = 12
    heads: int = 12
    mlp_width: int = 3072
    cross_every: int = 2
    activation: str = "gelu"
    epsilon: float = 1e-12
    dtype: Any = jnp.float32
    remat: str = "none"

    @nn.compact
    def __call__(
        self,
        images: Float[Array, "images patches width"],
        ids: Int[Array, "images length"],
        lengths: Int[Array, " images"],
    ) -> Float[Array, "images queries embed"]:
        """Features of the queries after the last block.

        lengths: number of tokens of each text; padding follows them, and changes nothing.
        Raises UsageError for more ids than the position embedding has rows.
        """
        if ids.shape[1] > self.positions:
            raise errors.UsageError(
                f"this Q-Former has positions for {self.positions} tokens, got {ids.shape[1]}; set "
                f"config.text.context_length to at most {2 * self.positions}"
            )
        normal = nn.initializers.normal(0.02)
        shape = (self.queries, self.width)
        query = self.param("query", normal, shape).astype(self.dtype)
        query = jnp.broadcast_to(query[None], (len(ids), *shape))

        def table(rows: int, name: str) -> nn.Embed:
            return nn.Embed(rows, self.width, dtype=self.dtype, embedding_init=normal, name=name)

        places = jnp.arange(ids.shape[1])
        text = table(self.vocab_size, "token_embedding")(ids)
        text = text + table(self.positions, "position_embedding")(places)[None]
        # the norm is over queries, too, which have no positions
        x = jnp.concatenate([query, text], axis=1)
        x = layers.layer_norm(self.epsilon, self.dtype, "embedding_norm")(x)
        make = layers.rematerialised(Block, self.remat)
        for i in range(self.depth):
            has_cross = i % self.cross_every == 0
            sizes = (self.heads, self.mlp_width, self.activation, self.epsilon, has_cross)
            block = make(*sizes, self.dtype, self.queries, name=f"block_{i}")
            x = block(x, self.queries + lengths - 1, images)
        return x[:, : self.queries]
