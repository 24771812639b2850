"""The captioning loss: cross-entropy of each token of the own caption given the image and the
tokens before it."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from vlc_jax import errors

# reduction -> exponent of the number of tokens in the weight of a caption
EXPONENTS = {"token": 1.0, "square": 0.5, "sample": 0.0}


def caption(
    own_scores: Float[Array, " batch"],
    lengths: Int[Array, " batch"],
    mask: Bool[Array, " batch"],
    *,
    reduction: str = "token",
) -> Float[Array, " batch"]:
    """The part of each caption in the weighted mean over those of the batch, times the batch.

        loss_i = - (w_i / w) 1/n_i sum_t log p(y_it | v_i, y_i<t),   w = mean of w_i over examples

    own_scores: mean log probability of the n_i tokens of caption i (models/captioner.py).
    lengths: n_i, the tokens that count: with scores=answer those of answers.
    mask: False on padding rows.
    reduction: w_i. token: n_i, so that all tokens of the batch count alike, as LLaVA's training
      has it; sample: 1, all texts alike, so that an answer of one word weighs as much as a
      caption; square: the root of n_i, between the two (InternVL 2.5, arXiv:2412.05271).
    """
    counts = jnp.where(mask, lengths, 0)
    weights = jnp.where(counts > 0, counts ** EXPONENTS[reduction], 0.0)
    mean = weights.sum() / jnp.maximum(mask.sum(), 1)
    return -own_scores * weights / jnp.where(mean > 0, mean, 1.0)


def check(reduction: str) -> None:
    """Raises UsageError for an unknown reduction."""
    errors.known("reduction of the loss caption", reduction, EXPONENTS)
