"""Losses of ALBEF, BLIP and X-VLM: image-text contrast (ITC) and image-text matching (ITM).

ITC is InfoNCE with targets that are shared equally by the captions of an image, where a batch has
several (X-VLM's finetuning, Zeng et al. 2022):

    loss_i = -1/2 sum_j q_ij [log softmax_j(s_ij) + log softmax_j(s_ji)],   q_ij = [j shows i] / n_i

ITM is the cross entropy of "match" and "no match" over three pairs of an example: its own, its
image with the text of another image, its text with another image. With the log odds d of a match:

    loss_i = 1/3 [softplus(-d_own) + softplus(d_text) + softplus(d_image)]

The model draws the other text and image (models.blip). Both losses are of the global batch: the
authors draw among the pairs of one GPU (BLIP for COCO among all). On N GPUs X-VLM's gradient of ITC
is that of one, divided by N: its all-gather returns the gradient of a GPU's own rows, and the mean
over GPUs divides it once more.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from vlc_jax.losses import masks
from vlc_jax.losses.masks import MASKED_LOGIT
from vlc_jax.types import Scalar


def itc(
    scores: Float[Array, "batch batch"],
    logit_scale: Scalar,
    pair_masks: masks.PairMasks | None = None,
) -> Float[Array, " batch"]:
    """ITC per example; without pair masks every row is an example with an image of its own.

    duplicates="mask" leaves out equal captions of other images; captions of the same image share
    the target under both values.
    """
    pair_masks = masks.for_scores(pair_masks, scores, None)
    is_same = masks.same_image(pair_masks)
    is_compared = is_same | masks.captions(pair_masks, pair_masks)
    logits = jnp.where(is_compared, logit_scale * scores.astype(jnp.float32), MASKED_LOGIT)
    # symmetric, so that it is the target of captions, too; at least 1 for rows of padding
    target = is_same / jnp.maximum(is_same.sum(axis=1, keepdims=True), 1)
    log_shares = jax.nn.log_softmax(logits, axis=1) + jax.nn.log_softmax(logits, axis=0).T
    return -jnp.sum(target * log_shares, axis=1) / 2


def itm(
    log_odds: Float[Array, "batch 3"], is_pair: Bool[Array, "batch 3"] | None = None
) -> Float[Array, " batch"]:
    """ITM per example, from the log odds of a match of own, text and image (`types.Matching`).

    is_pair: False on padding, and on a drawn text or image that is none of another image: a batch
      of one image has no other. Without it every pair counts.
    """
    is_pair = masks.or_ones(is_pair, log_odds)
    signs = jnp.array([[-1.0, 1.0, 1.0]])
    values = jnp.where(is_pair, jax.nn.softplus(signs * log_odds.astype(jnp.float32)), 0.0)
    return values.sum(axis=1) / jnp.maximum(is_pair.sum(axis=1), 1)
