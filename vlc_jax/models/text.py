"""The text tower: the transformer of CLIP (causal) or SigLIP (bidirectional)."""

from typing import Literal

import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Bool, Int

from vlc_jax import errors, types
from vlc_jax.models import layers
from vlc_jax.models.tower import Tower, tokens_of
from vlc_jax.types import TextFeatures


def end_of_text(text: Int[Array, "batch length"], eos_id: int) -> Int[Array, " batch"]:
    """Position of the first `eos_id` of each row; the last position where a row has none.

    For CLIP's vocabulary, whose end token has the largest id, this is OpenAI's `argmax(ids)`.
    """
    is_end = text == eos_id
    return jnp.where(is_end.any(axis=1), jnp.argmax(is_end, axis=1), text.shape[1] - 1)


def real_tokens(text: Int[Array, "batch length"], eos_id: int) -> Bool[Array, "batch length"]:
    """Padding mask: True up to and including the first `eos_id`."""
    return jnp.arange(text.shape[1])[None] <= end_of_text(text, eos_id)[:, None]


class TextTower(Tower, kw_only=True):
    """Transformer over token ids.

    context_length: maximum number of tokens per text.   eos_id: the token that ends a text.
    is_causal: tokens attend to earlier tokens only (CLIP); False: to all, also padding (SigLIP).
    pooling: eos (features of the end-of-text token) | last (of the last position, SigLIP).
    padding_mask: True: no token attends to padding, as in transformers with its attention mask;
      False: padding tokens see earlier padding (OpenAI's code). In a causal tower this changes only
      the features of padding tokens, which DCSM reads; in a bidirectional tower, all features.
    """

    vocab_size: int
    context_length: int
    eos_id: int
    is_causal: bool = True
    pooling: Literal["eos", "last"] = "eos"
    padding_mask: bool = False

    @property
    def takes_shorter(self) -> bool:
        """True if texts may be shorter than context_length: with causal attention the pooled
        features, those of the end token, do not depend on the padding after it."""
        return self.is_causal and self.pooling == "eos"

    @nn.compact
    def __call__(
        self, text: Int[Array, "batch length"], request: types.FeatureRequest = types.POOLED_ONLY
    ) -> TextFeatures:
        """Pooled features (batch, embed) and, if requested, all tokens (batch, length, embed);
        `mask` is True on real tokens.

        Projected tokens use the projection trained on the pooled token only.
        """
        length = text.shape[1]
        is_shorter = length < self.context_length
        if length > self.context_length or (is_shorter and not self.takes_shorter):
            raise errors.UsageError(
                f"this text tower takes {self.context_length} tokens per text, got {length}; "
                f"tokenize to that length or set the model's context_length"
            )
        is_clip = self.initialisation == "clip"
        x = nn.Embed(
            self.vocab_size,
            self.width,
            dtype=self.dtype,
            embedding_init=nn.initializers.normal(0.02 if is_clip else self.width**-0.5),
            name="token_embedding",
        )(text)
        embedding = self.param(
            "position_embedding",
            nn.initializers.normal(0.01 if is_clip else self.width**-0.5),
            (self.context_length, self.width),
        )
        # positions from 0: padding is on the right, and a shorter text lacks only padding
        x = x + embedding[:length].astype(x.dtype)[None]
        if self.pooling == "eos":
            positions = end_of_text(text, self.eos_id)
        else:
            # usually a padding token, which SigLIP attends to: so texts must have the full length
            positions = jnp.full(text.shape[0], length - 1)
        is_pooled_only = not request.has_tokens
        raw = self._blocks(
            types.shard_batch(x),
            is_causal=self.is_causal,
            positions=positions if is_pooled_only else None,
            ends=end_of_text(text, self.eos_id) if self.padding_mask else None,
        )
        normed = self._norm("norm")(raw)
        project = self._projection(request)
        # the last block has computed one position if `positions` was given to it
        pooled = project(normed if is_pooled_only else layers.at(normed, positions))[:, 0]
        tokens = tokens_of(request, raw, normed, project)
        return TextFeatures(pooled, tokens, real_tokens(text, self.eos_id))
