"""Heads: what makes scores of the features of two towers. `Cosine` is that of CLIP and SigLIP.

A head is a Linen module with the methods of `Cosine`; models.HEADS lists them by name. Its
parameters lie below "head". Its scores are those before logit_scale and logit_bias.

is_training: what differs between training and evaluation, such as dropout, whose random numbers
(the stream "dropout") the train step gives.
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

    def image(
        self, features: types.ImageFeatures, *, is_training: bool = False
    ) -> types.ImageFeatures:
        """Features of a tower -> what is scored; all work that needs no text."""
        del is_training
        return features

    def text(
        self, features: types.TextFeatures, *, is_training: bool = False
    ) -> types.TextFeatures:
        """Features of a tower -> what is scored; all work that needs no image."""
        del is_training
        return features

    def of_pairs(self, image: types.ImageFeatures, text: types.TextFeatures) -> types.ImageFeatures:
        """In training: the images as all texts of the batch see them; row i of both is a pair."""
        del text
        return image

    def score(
        self, image: types.ImageFeatures, text: types.TextFeatures, *, is_training: bool = False
    ) -> Float[Array, "images texts"]:
        """The score of every image with every text."""
        del is_training
        return dot(image.pooled, text.pooled)

    def score_options(
        self, image: types.ImageFeatures, text: types.TextFeatures, *, is_training: bool = False
    ) -> Float[Array, "images options"]:
        """The score of image i with its own k texts, rows i*k to i*k + k - 1 of `text`."""
        del is_training
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
