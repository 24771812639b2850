"""The captioning loss: cross-entropy of each token of the own caption given the image and the
tokens before it."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int


def caption(
    own_scores: Float[Array, "batch"],
    lengths: Int[Array, "batch"],
    mask: Bool[Array, "batch"],
) -> Float[Array, "batch"]:
    """The part of each caption in the mean over all tokens of the batch, times the batch.

        loss_i = - (n_i / n) 1/n_i sum_t log p(y_it | v_i, y_i<t),   n = mean of n_i over examples

    own_scores: mean log probability of the n_i tokens of caption i (models/captioner.py).
    lengths: n_i, the tokens that count: with scores=answer those of answers.
    mask: False on padding rows.
    """
    counts = jnp.where(mask, lengths, 0)
    mean = counts.sum() / jnp.maximum(mask.sum(), 1)
    return -own_scores * lengths / jnp.maximum(mean, 1)
