"""LABCLIP: a linear map of the text embedding, between two frozen towers.

Koishigarina et al. 2025 (arXiv:2502.03566; kdariina/CLIP-not-BoW-unimodally): with v and t the
embeddings of image and text, of unit length,

    score = cos(v, A t)

A has no bias and is initialised with the identity, so that initial scores equal the towers'. It is
the control for heads on frozen towers: it shows how much a mere change of the cosine gains.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from vlc_jax.models import heads, layers
from vlc_jax.types import TextFeatures


def _identity(key: jax.Array, shape: tuple[int, int], dtype: Any = jnp.float32) -> Array:
    del key
    return jnp.eye(*shape, dtype=dtype)


def identity(width: int) -> layers.Dense:
    """A square matrix without bias, initialised with the identity."""
    return layers.Dense(width, use_bias=False, kernel_init=_identity)


class LABCLIP(heads.Head):
    """The dot product of an image embedding and a linear map of a text embedding, of unit length.

    width: of the shared embedding.
    """

    width: int

    def setup(self) -> None:
        self.alignment = identity(self.width)

    def text(self, features: TextFeatures, *, is_training: bool = False) -> TextFeatures:
        """`pooled`: A t, of unit length."""
        del is_training
        pooled: Float[Array, "texts embed"] = self.alignment(features.pooled)
        return features._replace(pooled=layers.l2_normalize(pooled))
