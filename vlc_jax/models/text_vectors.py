"""Connectors for precomputed text vectors of a sentence encoder, in place of a text tower.

The connectors come from three works on stronger text encoders. With x the vector of a text:

    linear       W x + b
    mlp2x_gelu   V gelu(W x + b) + c, the projector of LLaVA-1.5 (Liu et al. 2023,
                 arXiv:2310.03744), hidden width = embedding width; used for LLM2Vec's vectors in
                 "Exploring How Generative MLLMs Perceive More Than CLIP with the Same Vision
                 Encoder" (ACL 2025)
    llm2clip     x / |x|, then four times x + V gelu(W norm(x)), hidden width 2 |x|, then a norm and
                 a linear map: the text adapter of LLM2CLIP (Huang et al. 2024, arXiv:2411.04997) in
                 its released models; the training code, microsoft/LLM2CLIP, does not normalise x
    none         x itself, for example the output of LLM2CLIP's own adapter

GELU is the exact one, all matrices have a bias.
"""

from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float

from vlc_jax import errors, types
from vlc_jax.models import layers
from vlc_jax.types import TextFeatures

CONNECTORS = ("linear", "mlp2x_gelu", "llm2clip", "none")
# of layer norms, torch's default, as in the authors' code
EPSILON = 1e-5


class VectorTower(nn.Module, kw_only=True):
    """A connector: text vectors to text features.

    width: width of the vectors.   projection: width of the embedding; None: `width`.
    connector: see above.   blocks: of llm2clip only.   dtype: type of matrix products.
    """

    width: int
    projection: int | None
    connector: Literal["linear", "mlp2x_gelu", "llm2clip", "none"] = "linear"
    blocks: int = 4
    dtype: Any = jnp.float32

    # see TextTower; a vector has no padding
    takes_shorter: ClassVar[bool] = False

    @property
    def embed(self) -> int:
        """Width of the embedding."""
        return self.width if self.connector == "none" else self.projection or self.width

    @nn.compact
    def __call__(
        self, text: Float[Array, "batch width"], request: types.FeatureRequest = types.POOLED_ONLY
    ) -> TextFeatures:
        """Pooled features (batch, embed). Raises UsageError for vectors of another width, and if
        tokens are requested, which vectors do not have.
        """
        if text.shape[-1] != self.width or not jnp.issubdtype(text.dtype, jnp.floating):
            raise errors.UsageError(
                f"this text tower takes vectors of width {self.width}, got {text.dtype} "
                f"{text.shape}; set config.text.tokenizer='vectors' and the file it was trained on"
            )
        if request.tokens != "none":
            raise errors.UsageError(
                "the head requests text tokens, and text vectors have no tokens"
            )
        x = self._connected(text)
        return TextFeatures(layers.l2_normalize(x) if request.is_unit else x.astype(jnp.float32))

    def _connected(self, x: Float[Array, "batch width"]) -> Float[Array, "batch embed"]:
        if self.connector == "none":
            return x
        if self.connector == "mlp2x_gelu":
            x = layers.exact_gelu(self._dense(self.embed, "up")(x))
        if self.connector == "llm2clip":
            x = layers.l2_normalize(x)
            for index in range(self.blocks):
                x = x + self._residual(x, f"block_{index}")
            x = layers.layer_norm(EPSILON, self.dtype, "norm")(x)
        return self._dense(self.embed, "projection")(x)

    def _residual(self, x: Float[Array, "batch width"], name: str) -> Float[Array, "batch width"]:
        y = layers.layer_norm(EPSILON, self.dtype, f"{name}_norm")(x)
        y = layers.exact_gelu(self._dense(2 * self.width, f"{name}_up")(y))
        return self._dense(self.width, f"{name}_down")(y)

    def _dense(self, features: int, name: str) -> layers.Dense:
        return layers.Dense(features, dtype=self.dtype, name=name)


def is_vectors(text: jax.Array) -> bool:
    """True if texts are vectors, False if they are token ids."""
    return jnp.issubdtype(text.dtype, jnp.floating)
