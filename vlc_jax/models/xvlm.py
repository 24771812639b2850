"""X-VLM (Zeng et al. 2022, arXiv:2111.08276): BLIP's two scores, with a BERT in two halves.

The first half reads texts alone, the second attends to the image; the text's embedding is that of
the first half. The image tower is a Swin Transformer, whose mean token stands before the others.
"""

import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float

from vlc_jax.models import blip, layers
from vlc_jax.types import ImageFeatures


class Match(nn.Module):
    """The two logits, no match and match: dense layer, layer norm, GELU, dense layer."""

    @nn.compact
    def __call__(self, x: Float[Array, "pairs width"]) -> Float[Array, "pairs 2"]:
        x = layers.Dense(2 * x.shape[-1], name="up")(x)
        x = layers.layer_norm(1e-5, jnp.float32, "norm")(x)
        return layers.Dense(2, name="down")(layers.exact_gelu(x))


class XVLM(blip.BLIP):
    """The head of X-VLM; fields as in BLIP, of which it has no [ENC].

    encoder: fields of bert.Encoder that differ from BERT-base with cross attention in the second
      half of its blocks.
    has_class_token: copied from the image tower; without one the tokens' mean is their first.
    """

    match_id: int | None = None
    has_class_token: bool = False

    token_types = 2
    alone = 0.5
    floor = 1e-5  # of the authors' get_matching_loss

    def _matcher(self, **parent: None) -> nn.Module:
        return Match(**parent)

    def image(self, features: ImageFeatures, *, is_training: bool = False) -> ImageFeatures:
        """`pooled`: the embedding of ITC, from the mean token, which `tokens` begin with."""
        if features.tokens is not None and not self.has_class_token:
            tokens = jnp.concatenate([features.pooled[:, None], features.tokens], axis=1)
            features = features._replace(tokens=tokens)
        return super().image(features, is_training=is_training)
