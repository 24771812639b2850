"""The captioning loss: cross-entropy of each caption token given image and earlier tokens."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from vlc_jax import errors
from vlc_jax.losses.masks import or_ones

# reduction -> exponent of the number of tokens in the weight of a caption
EXPONENTS = {"token": 1.0, "square": 0.5, "sample": 0.0}


def caption(
    own_scores: Float[Array, " batch"],
    lengths: Int[Array, " batch"],
    mask: Bool[Array, " batch"] | None = None,
    *,
    reduction: str = "token",
) -> Float[Array, " batch"]:
    """Weighted captioning loss per caption; its mean is the weighted mean over the batch.

        loss_i = - (w_i / w) 1/n_i sum_t log p(y_it | v_i, y_i<t),   w = mean of w_i over examples

    own_scores: mean log probability of the n_i tokens of caption i (models/captioner.py).
    lengths: n_i, the number of scored tokens; with scores=answer, of answer tokens.
    mask: False on padding rows; None: there are none.
    reduction: the weight w_i. token: n_i, equal weight per token, as in LLaVA's training; sample:
      1, equal weight per text, for a one-word answer as for a long caption; square: sqrt(n_i),
      between the two (InternVL 2.5, arXiv:2412.05271).
    """
    mask = or_ones(mask, own_scores)
    counts = jnp.where(mask, lengths, 0)
    # with reduction=sample, 0 ** 0 would give a caption without scored tokens the weight 1
    weights = jnp.where(counts > 0, counts ** EXPONENTS[reduction], 0.0)
    mean = weights.sum() / jnp.maximum(mask.sum(), 1)
    # a batch without scored tokens has the loss 0, not 0 / 0
    return -own_scores * weights / jnp.where(mean > 0, mean, 1.0)


def check(reduction: str) -> None:
    """Raises UsageError for an unknown reduction."""
    errors.known("reduction of the loss caption", reduction, EXPONENTS)
