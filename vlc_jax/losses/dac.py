"""The two losses of DAC for a bag of sentences per image (Doveh et al. 2023, section 3.3).

a_ijk is the logit scale times the cosine similarity of image i and sentence k of example j; the bag
of an example is its hard positives. Added to CLIP's loss and to `svlc.negative`, all with weight 1.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from vlc_jax.losses.masks import MASKED_LOGIT, or_ones
from vlc_jax.types import Scalar


def mil(
    scores: Float[Array, "batch batch positives"],
    logit_scale: Scalar,
    mask: Bool[Array, "batch batch positives"] | None = None,
) -> Float[Array, " batch"]:
    """MIL-NCE (Miech et al. 2020, equation 1) as DAC uses it: at least one sentence of a bag fits.

        loss_i = log(sum_jk exp(a_ijk) + sum_jk exp(a_jik)) - log(sum_k exp(a_iik))

    It is 0 for an example without a sentence. `mask` None: no sentence is missing.
    """
    mask = or_ones(mask, scores)
    logits = jnp.where(mask, logit_scale * scores.astype(jnp.float32), MASKED_LOGIT)
    # as in the authors' code, the bag of example i is in both sums, so that loss_i >= ln 2
    rows = jax.nn.logsumexp(logits, axis=(1, 2))
    columns = jax.nn.logsumexp(logits, axis=(0, 2))
    own_bag = jax.nn.logsumexp(jnp.diagonal(logits).T, axis=1)
    has_bag = jnp.diagonal(mask).any(axis=0)
    return jnp.where(has_bag, jnp.logaddexp(rows, columns) - own_bag, 0.0)


def negative_bag(
    own_scores: Float[Array, "batch positives"],
    own_negative_scores: Float[Array, "batch negatives"],
    logit_scale: Scalar,
    mask: Bool[Array, "batch positives"] | None = None,
    negative_mask: Bool[Array, "batch negatives"] | None = None,
) -> Float[Array, " batch"]:
    """Cross-entropy of an image's bag against its own hard negatives.

        loss_i = log(sum_k exp(a_iik) + sum_k exp(a-_ik)) - log(sum_k exp(a_iik))

    Missing texts are left out; the authors' code replaces the negative of a sentence without one by
    the embedding of an empty text. The loss is 0 for an example without a bag or without negatives.
    Masks None: no text is missing.
    """
    mask = or_ones(mask, own_scores)
    negative_mask = or_ones(negative_mask, own_negative_scores)

    def logsumexp(scores: jax.Array, mask: jax.Array) -> jax.Array:
        logits = jnp.where(mask, logit_scale * scores.astype(jnp.float32), MASKED_LOGIT)
        return jax.nn.logsumexp(logits, axis=1)

    bag = logsumexp(own_scores, mask)
    negative = logsumexp(own_negative_scores, negative_mask)
    has_both = mask.any(axis=1) & negative_mask.any(axis=1)
    return jnp.where(has_both, jax.nn.softplus(negative - bag), 0.0)
