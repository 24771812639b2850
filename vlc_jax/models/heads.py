"""Heads: what makes scores of the features of two towers. `Cosine` is that of CLIP and SigLIP.

A head is a Linen module with the methods of `Cosine`; models.HEADS lists them by name. Its
parameters lie below "head". What it says of scores holds before logit_scale and logit_bias.
"""

import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float

from vlc_jax import types


class Cosine(nn.Module):
    """The dot product of pooled features, which have unit length. No parameters."""

    @property
    def wanted(self) -> tuple[types.Wanted, types.Wanted]:
        """What it takes of the image tower and of the text tower."""
        return types.POOLED, types.POOLED

    def image(self, features: types.ImageFeatures) -> types.ImageFeatures:
        """Features of a tower -> what is scored; all work that needs no text."""
        return features

    def text(self, features: types.TextFeatures) -> types.TextFeatures:
        """Features of a tower -> what is scored; all work that needs no image."""
        return features

    def of_pairs(self, image: types.ImageFeatures, text: types.TextFeatures) -> types.ImageFeatures:
        """In training: the images as all texts of the batch see them; row i of both is a pair."""
        del text
        return image

    def score(
        self, image: types.ImageFeatures, text: types.TextFeatures
    ) -> Float[Array, "images texts"]:
        """The score of every image with every text."""
        return dot(image.pooled, text.pooled)

    def score_options(
        self, image: types.ImageFeatures, text: types.TextFeatures
    ) -> Float[Array, "images options"]:
        """The score of image i with its own k texts, rows i*k to i*k + k - 1 of `text`."""
        return dot_options(image.pooled, text.pooled)


def dot(
    image: Float[Array, "images embed"], text: Float[Array, "texts embed"]
) -> Float[Array, "images texts"]:
    """Dot product of every image with every text."""
    # HIGHEST: accelerators would round float32 operands to bfloat16 or TF32
    return jnp.einsum("ie,te->it", image, text, precision="highest")


def dot_options(
    image: Float[Array, "images embed"], text: Float[Array, "texts embed"]
) -> Float[Array, "images options"]:
    """Dot product of image i with its own k texts, rows i*k to i*k + k - 1 of `text`."""
    images, embed = image.shape
    options = text.reshape(images, -1, embed)
    return jnp.einsum("ie,ioe->io", image, options, precision="highest")
