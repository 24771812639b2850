"""The two losses that SVLC (Doveh et al. 2023, section 3.2; SivanDoveh/TSVLC) adds to CLIP's.

In both, s is the logit scale, x_i an image, t_i its caption, n_ik and p_ik its hard negatives and
hard positives, all of unit length. Hard Positive Truth (Kamath et al. 2024, appendix D.1) trains
with the same two, one text of each kind per example.
"""

import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from vlc_jax.losses.masks import MASKED_LOGIT, or_ones
from vlc_jax.types import Scalar


def negative(
    own_scores: Float[Array, " batch"],
    own_negative_scores: Float[Array, "batch negatives"],
    logit_scale: Scalar,
    mask: Bool[Array, "batch negatives"] | None = None,
) -> Float[Array, " batch"]:
    """The negative loss: cross-entropy of an image's caption against its own hard negatives.

        loss_i = log(exp(s x_i.t_i) + sum_k exp(s x_i.n_ik)) - s x_i.t_i

    `mask` is False on missing hard negatives; None: none is missing. With one hard negative the
    loss is softplus(s (x_i.n_i - x_i.t_i)), without any it is 0.
    """
    mask = or_ones(mask, own_negative_scores)
    caption = logit_scale * own_scores.astype(jnp.float32)
    logits = jnp.where(mask, logit_scale * own_negative_scores.astype(jnp.float32), MASKED_LOGIT)
    return jax.nn.softplus(jax.nn.logsumexp(logits, axis=1) - caption)


def analogy(
    image_scores: Float[Array, "batch batch positives"],
    text_scores: Float[Array, "batch batch positives"],
    logit_scale: Scalar,
    mask: Bool[Array, "batch batch positives"] | None = None,
) -> Float[Array, " batch"]:
    """The analogy loss: each hard positive is retrieved by its image and by its caption.

        loss_i = 1/2 [logsumexp_j(s x_i.p_j) - s x_i.p_i] + 1/2 [logsumexp_j(s t_i.p_j) - s t_i.p_i]

    `image_scores[i, j, k]` is image i against hard positive k of example j, `text_scores[i, j, k]`
    caption i against it. With several hard positives per example, the formula is applied for each
    k, and loss_i is the mean over the hard positives of example i. `mask` None: none is missing.
    """
    mask = or_ones(mask, image_scores)
    losses = [_one_direction(scores, logit_scale, mask) for scores in (image_scores, text_scores)]
    return _mean((losses[0] + losses[1]) / 2, mask)


def analogy_symmetric(
    image_scores: Float[Array, "batch batch positives"],
    text_scores: Float[Array, "batch batch positives"],
    logit_scale: Scalar,
    mask: Bool[Array, "batch batch positives"] | None = None,
) -> Float[Array, " batch"]:
    """The analogy loss (`analogy`), each term averaged with the same term of the transposed scores.

    In the transposed term the rows are hard positives, without the missing ones; the columns are
    the images and captions of all examples.
    """
    mask, losses = or_ones(mask, image_scores), []
    for scores in (image_scores, text_scores):
        losses.append(_one_direction(scores, logit_scale, mask))
        transposed = jnp.swapaxes(scores, 0, 1)
        losses.append(_one_direction(transposed, logit_scale, jnp.swapaxes(mask, 0, 1)))
    return _mean(functools.reduce(jnp.add, losses) / 4, mask)


def _one_direction(scores: jax.Array, logit_scale: Scalar, mask: jax.Array) -> jax.Array:
    """logsumexp_j(s_ijk) - s_iik for each i and k; any finite number where s_iik is masked."""
    logits = logit_scale * scores.astype(jnp.float32)
    rows = jax.nn.logsumexp(jnp.where(mask, logits, MASKED_LOGIT), axis=1)
    return rows - _diagonal(logits)


def _diagonal(x: jax.Array) -> jax.Array:
    """x[i, i, k] as (i, k)."""
    # jnp.diagonal puts the axis of i last
    return jnp.diagonal(x).T


def _mean(losses: jax.Array, mask: jax.Array) -> jax.Array:
    own_mask = _diagonal(mask)
    total = jnp.sum(jnp.where(own_mask, losses, 0.0), axis=1)
    return total / jnp.maximum(jnp.sum(own_mask, axis=1), 1)
