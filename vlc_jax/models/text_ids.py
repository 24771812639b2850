"""Texts without a tower: a decoder behind the image tower reads their token ids itself."""

from typing import ClassVar

import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Int

from vlc_jax import errors, types
from vlc_jax.models.text import real_tokens


class TokenIds(nn.Module, kw_only=True):
    """The stand-in for a text tower of a head that reads token ids (models/captioner.py).

    vocab_size, context_length, eos_id: as in TextTower.
    """

    vocab_size: int
    context_length: int
    eos_id: int

    embed: ClassVar[int] = 1  # of `pooled`, which no score reads
    takes_shorter: ClassVar[bool] = False

    def __call__(
        self, text: Int[Array, "batch length"], request: types.FeatureRequest = types.POOLED_ONLY
    ) -> types.TextFeatures:
        """The padding mask, and zeros as pooled features. Raises UsageError for a request of
        features."""
        if request.tokens != "ids":
            raise errors.UsageError(
                "this model has no text tower, and its head wants features of texts: take "
                "config.model.name='captioner' or 'vlm2vec', or config.model.text_tower=True"
            )
        return types.TextFeatures(jnp.zeros((len(text), 1)), mask=real_tokens(text, self.eos_id))
