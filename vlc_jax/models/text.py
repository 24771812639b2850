"""The text tower: the transformer of CLIP (causal) or SigLIP (bidirectional)."""

from typing import Literal

import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Bool, Float, Int

from vlc_jax import errors, types
from vlc_jax.models import layers


def end_of_text(text: Int[Array, "batch length"], eos_id: int) -> Int[Array, "batch"]:
    """Position of the first `eos_id` of each row; the last position where a row has none.

    For CLIP's vocabulary, whose end token has the largest id, this is OpenAI's `argmax(ids)`.
    """
    is_end = text == eos_id
    return jnp.where(is_end.any(axis=1), jnp.argmax(is_end, axis=1), text.shape[1] - 1)


def real_tokens(text: Int[Array, "batch length"], eos_id: int) -> Bool[Array, "batch length"]:
    """True up to and including the first `eos_id`: what follows is padding."""
    return jnp.arange(text.shape[1])[None] <= end_of_text(text, eos_id)[:, None]


class TextTower(layers.Tower, kw_only=True):
    """Token ids to text features.

    context_length: most tokens per text.   eos_id: the token that ends a text.
    is_causal: each token sees only those before it (CLIP); else all, padding too (SigLIP).
    pooling: eos (the features of the end token) | last (of the last position, SigLIP).
    short_length: where all texts of a batch end within so many tokens, no more are computed.
      Exact for causal towers with eos pooling, where nothing behind the end is ever read; captions
      have some 12 tokens, CLIP's context has 77.
    """

    vocab_size: int
    context_length: int
    eos_id: int
    is_causal: bool = True
    pooling: Literal["eos", "last"] = "eos"
    short_length: int | None = None

    @nn.compact
    def __call__(
        self, text: Int[Array, "batch length"], *, tokens: bool = False
    ) -> types.TextFeatures:
        """Pooled (batch, embed) of unit length; with `tokens` also all tokens, likewise projected
        and of unit length (batch, length, embed). `mask` is True on real tokens."""
        length, short = text.shape[1], self.short_length
        takes_shorter = self.is_causal and self.pooling == "eos"
        if length > self.context_length or (length < self.context_length and not takes_shorter):
            raise errors.UsageError(
                f"this text tower takes {self.context_length} tokens per text, got {length}; "
                f"tokenize to that length or set the model's context_length"
            )
        mask = real_tokens(text, self.eos_id)
        if tokens:
            positions = self._pooled_positions(text)
            x = self._features(text, None)
            pooled = layers.at(x, positions)
            return types.TextFeatures(layers.unit_length(pooled[:, 0]), layers.unit_length(x), mask)
        if short is None or short >= length or not takes_shorter or self.is_initializing():
            return types.TextFeatures(self._pooled(text), None, mask)
        pooled = nn.cond(
            mask[:, short].any(),
            lambda tower, text: tower._pooled(text),
            lambda tower, text: tower._pooled(text[:, :short]),
            self,
            text,
        )
        return types.TextFeatures(pooled, None, mask)

    def _pooled(self, text: Int[Array, "batch length"]) -> Float[Array, "batch embed"]:
        """Computes no more of the last block than is read."""
        return layers.unit_length(self._features(text, self._pooled_positions(text))[:, 0])

    def _pooled_positions(self, text: Int[Array, "batch length"]) -> Int[Array, "batch"]:
        if self.pooling == "eos":
            return end_of_text(text, self.eos_id)
        return jnp.full(len(text), text.shape[1] - 1)

    def _features(
        self, text: Int[Array, "batch length"], positions: Int[Array, "batch"] | None
    ) -> Float[Array, "batch queries embed"]:
        """Projected features of all tokens, or of one per text."""
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
        x = x + embedding[: text.shape[1]].astype(x.dtype)[None]
        x = self._blocks(types.pin_batch(x), is_causal=self.is_causal, positions=positions)
        return self._projection()(self._norm("norm")(x))
