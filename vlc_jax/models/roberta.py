"""The text tower of open_clip's RoBERTa and XLM-RoBERTa models."""

from collections.abc import Callable
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float, Int

from vlc_jax import errors, types
from vlc_jax.models import bert, layers
from vlc_jax.models.text import end_of_text, real_tokens
from vlc_jax.models.tower import tokens_of
from vlc_jax.types import TextFeatures


class RobertaTower(nn.Module, kw_only=True):
    """RoBERTa (Liu et al. 2019) or XLM-RoBERTa, a pooling and a projection.

    vocab_size, eos_id: as in `text.TextTower`; no token attends to padding.
    context_length: tokens per text, at most; the weights have positions for 512.
    pooling: mean (over a text's tokens, start and end token included) | cls (the start token
      through a dense layer and tanh, BERT's pooler).
    projection: width of the shared embedding.
    projection_kind: linear (one matrix) | mlp (two with GELU between, the inner width the mean of
      both outer ones), as `hf_proj_type` of open_clip. No biases.
    dtype, remat: as in `tower.Tower`.   scan_layers: has no effect here.
    """

    vocab_size: int
    context_length: int
    eos_id: int
    width: int
    depth: int
    heads: int
    projection: int
    mlp_width: int | None = None
    projection_kind: Literal["linear", "mlp"] = "mlp"
    pooling: Literal["mean", "cls"] = "mean"
    activation: str = "gelu"
    epsilon: float = 1e-5
    dtype: Any = jnp.float32
    remat: str = "none"
    scan_layers: bool = False
    is_causal: ClassVar[bool] = False
    padding_mask: ClassVar[bool] = True
    takes_shorter: ClassVar[bool] = True

    @property
    def embed(self) -> int:
        """Width of the embedding."""
        return self.projection

    @nn.compact
    def __call__(
        self, text: Int[Array, "batch length"], request: types.FeatureRequest = types.POOLED_ONLY
    ) -> TextFeatures:
        """Pooled features (batch, embed) and, if requested, all tokens (batch, length, embed);
        `mask` is True on real tokens.

        A projected token is the pooling of that token alone, projected. Raw and normed tokens are
        the same: a block ends with a norm.
        """
        if text.shape[1] > self.context_length:
            raise errors.UsageError(
                f"this text tower takes {self.context_length} tokens per text, got "
                f"{text.shape[1]}; tokenize to that length or set the model's context_length"
            )
        encoder = bert.Encoder(
            vocab_size=self.vocab_size,
            positions=514,
            first_position=2,  # the id of padding, 1, is before the first position
            token_types=1,
            width=self.width,
            depth=self.depth,
            heads=self.heads,
            mlp_width=self.mlp_width or 4 * self.width,
            activation=self.activation,
            epsilon=self.epsilon,
            dtype=self.dtype,
            remat=self.remat,
            name="encoder",
        )
        x = encoder(text, end_of_text(text, self.eos_id))
        mask, pooler, projection = real_tokens(text, self.eos_id), self._pooler(), self._project()

        def project(x: Float[Array, "*axes width"]) -> Float[Array, "*axes embed"]:
            projected = projection(pooler(x))
            if request.is_unit:
                return layers.l2_normalize(projected)
            return projected.astype(jnp.float32)

        if self.pooling == "cls":
            pooled = x[:, 0]
        else:
            # float32: a sum of 77 terms
            shares = mask / mask.sum(axis=1, keepdims=True)
            pooled = jnp.einsum("bl,ble->be", shares, x.astype(jnp.float32)).astype(x.dtype)
        return TextFeatures(project(pooled), tokens_of(request, x, x, project), mask)

    def _dense(self, features: int, name: str, *, use_bias: bool = False) -> layers.Dense:
        normal = nn.initializers.normal(0.02)
        return layers.Dense(
            features, use_bias=use_bias, dtype=self.dtype, kernel_init=normal, name=name
        )

    def _pooler(self) -> Callable[[Array], Array]:
        if self.pooling == "mean":
            return lambda x: x
        dense = self._dense(self.width, "pooler", use_bias=True)
        return lambda x: jnp.tanh(dense(x))

    def _project(self) -> Callable[[Array], Array]:
        if self.projection_kind == "linear":
            return self._dense(self.projection, "projection")
        up = self._dense((self.width + self.projection) // 2, "projection_up")
        down = self._dense(self.projection, "projection_down")
        return lambda x: down(jax.nn.gelu(up(x), approximate=False))
