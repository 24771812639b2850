"""Stand-ins for the text tower: of models whose head, a decoder, reads token ids itself, and of
image towers without texts (DINOv2)."""

from typing import ClassVar

import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Int

from vlc_jax import errors, types
from vlc_jax.models.text import real_tokens
from vlc_jax.types import TextFeatures


class TokenIds(nn.Module, kw_only=True):
    """A text tower without parameters, for heads that read token ids (models/captioner.py).

    vocab_size, context_length, eos_id: as in TextTower.
    """

    vocab_size: int
    context_length: int
    eos_id: int

    # width of `pooled`, which no score reads
    embed: ClassVar[int] = 1
    takes_shorter: ClassVar[bool] = False

    def __call__(
        self, text: Int[Array, "batch length"], request: types.FeatureRequest = types.POOLED_ONLY
    ) -> TextFeatures:
        """The padding mask, with zeros as pooled features. Raises UsageError if features are
        requested."""
        if request.tokens != "ids":
            raise errors.UsageError(
                "this model has no text tower, and its head needs text features: set "
                "config.model.name='captioner' or 'vlm2vec', or config.model.text_tower=True"
            )
        return TextFeatures(jnp.zeros((len(text), 1)), mask=real_tokens(text, self.eos_id))


class NoTexts(nn.Module, kw_only=True):
    """The text tower of a model that embeds images only.

    embed: width of the image embeddings.
    """

    embed: int

    # of no tokenizer: any one fits
    vocab_size: ClassVar[int] = 2**31 - 1
    context_length: ClassVar[int] = 1
    eos_id: ClassVar[int] = 0
    takes_shorter: ClassVar[bool] = False

    def __call__(
        self, text: Int[Array, "batch length"], request: types.FeatureRequest = types.POOLED_ONLY
    ) -> TextFeatures:
        """Raises UsageError; zeros while parameters are initialised, which take the whole model."""
        if not self.is_initializing():
            raise errors.UsageError(
                "this model has no texts (DINOv2): it embeds images (vlc-jax embed --images), and "
                "scores them with text vectors alone (config.text.tokenizer='vectors')"
            )
        del request
        return TextFeatures(jnp.zeros((len(text), self.embed)))
