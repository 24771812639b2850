"""The losses that CE-CLIP adds to NegCLIP's (Zhang et al. 2024, arXiv:2306.08832;
lezhang7/Enhance-FineGrained, src/open_clip/loss.py), with weights 0.2 and 0.3.

s is the logit scale, x_i an image, t_i its caption, n_ik its hard negatives, all of unit length.

Options as_released repeat the released code. It masks missing negatives in the rank loss alone: in
NegCLIP's loss and in the intra-modal loss they are negatives, which missing="keep" of config.losses
adds. The text of a missing negative is "###" there and empty here. Left out: thresholds restart
from 0 in every epoch there, and become NaN where no example has a negative of a kind.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from vlc_jax import errors
from vlc_jax.losses import svlc
from vlc_jax.losses.masks import MASKED_LOGIT, or_ones
from vlc_jax.types import Scalar


def check(upper_bound: float, **options: Any) -> None:
    """Raises UsageError unless the largest threshold is a number from 0 on. options: others of
    `cross_modal_rank`."""
    if not 0 <= upper_bound < float("inf"):
        raise errors.UsageError(
            f"upper_bound of cross_modal_rank is a number from 0 on; got {upper_bound}"
        )


def cross_modal_rank(
    own_scores: Float[Array, " batch"],
    own_negative_scores: Float[Array, "batch negatives"],
    logit_scale: Scalar,
    thresholds: Float[Array, " negatives"],
    mask: Bool[Array, "batch negatives"] | None = None,
    *,
    upper_bound: float = 10.0,
    as_released: bool = False,
) -> Float[Array, " batch"]:
    """The cross-modal rank loss: a hinge on the gap between the caption and each hard negative.

        loss_i = 1/K sum_k max(0, th_k + s x_i.n_ik - s x_i.t_i),   th_k = clip(gap_k, 0, u)

    thresholds: gap_k, the mean gap of negative k in the step before (`gaps`); 0 at the first step.
      One per place k, so that a place should hold one kind of negatives (`fallback="one_each"`).
    mask: False on missing hard negatives, which cost nothing and stay in K, as in the authors'
      code; None: none is missing.
    upper_bound: u, the largest threshold, in logits.
    as_released: of the thresholds of the next step (`gaps`), to which the training step passes it.

    Raises UsageError as `check` does.
    """
    del as_released
    check(upper_bound)
    own, negative = _logits(own_scores, own_negative_scores, logit_scale)
    margin = jnp.clip(jax.lax.stop_gradient(thresholds), 0.0, upper_bound)[None]
    mask = or_ones(mask, negative)
    return jnp.where(mask, jax.nn.relu(margin + negative - own), 0.0).mean(axis=1)


def gaps(
    own_scores: Float[Array, " batch"],
    own_negative_scores: Float[Array, "batch negatives"],
    logit_scale: Scalar,
    before: Float[Array, " negatives"],
    mask: Bool[Array, "batch negatives"] | None = None,
    is_example: Bool[Array, " batch"] | None = None,
    *,
    as_released: bool = False,
) -> Float[Array, " negatives"]:
    """Thresholds for the next step, before they are clipped, without gradient.

        gap_k = mean_i (s x_i.t_i - s x_i.n_ik)    over the i that have negative k

    before: those of this step, which stay where no example has negative k.
    is_example: False on padding; None: every row is an example. Only as_released reads it.
    as_released: the captions without a negative k count, too, and a logit of 0 counts as missing:

        gap_k = mean_i (s x_i.t_i) over all i - mean_i (s x_i.n_ik) over those with s x_i.n_ik != 0
    """
    own, negative = _logits(own_scores, own_negative_scores, logit_scale)
    mask = or_ones(mask, negative)
    if as_released:
        mask &= negative != 0
        is_caption = or_ones(is_example, own_scores)[:, None]
        gap = _mean(own, is_caption) - _mean(negative, mask)
    else:
        gap = _mean(own - negative, mask)
    return jax.lax.stop_gradient(jnp.where(mask.any(axis=0), gap, before))


def intra_modal(
    text: Float[Array, "batch embed"],
    negative_text: Float[Array, "batch negatives embed"],
    own_scores: Float[Array, " batch"],
    logit_scale: Scalar,
    mask: Bool[Array, "batch negatives"] | None = None,
    *,
    as_released: bool = False,
) -> Float[Array, " batch"]:
    """The intra-modal contrastive loss: a caption is nearer to its image than to its negatives.

        loss_i = log(exp(s x_i.t_i) + sum_k exp(s t_i.n_ik)) - s x_i.t_i

    This is the loss that the authors' code describes. as_released: what it computes, with no image
    and for all captions the same target, the first negative of the first example (issue 15 there):

        loss_i = log sum_jk exp(s t_i.n_jk) - s t_i.n_00

    mask: False on missing hard negatives; None: none is missing. A caption without any costs 0, and
      stays in the mean. The authors' code has no mask here: as_released goes with missing="keep" in
      config.losses. With a mask its sum has the negatives of the mask, and the target in any case.
    """
    mask = or_ones(mask, negative_text[:, :, 0])
    if not as_released:
        scores = jnp.einsum("ie,ine->in", text, negative_text, precision="highest")
        return svlc.negative(own_scores, scores, logit_scale, mask)
    scores = jnp.einsum("ie,jne->ijn", text, negative_text, precision="highest")
    logits = logit_scale * scores.astype(jnp.float32)
    target = logits[:, 0, 0]
    is_class = mask.at[0, 0].set(True)[None]
    return jax.nn.logsumexp(jnp.where(is_class, logits, MASKED_LOGIT), axis=(1, 2)) - target


def _mean(x: jax.Array, mask: jax.Array) -> jax.Array:
    """Mean of x[i, k] over the i of the mask; 0 without any."""
    return jnp.where(mask, x, 0.0).sum(axis=0) / jnp.maximum(mask.sum(axis=0), 1)


def _logits(
    own_scores: jax.Array, own_negative_scores: jax.Array, logit_scale: Scalar
) -> tuple[jax.Array, jax.Array]:
    """(batch, 1) of captions and (batch, negatives), float32."""
    caption, negative = (x.astype(jnp.float32) for x in (own_scores[:, None], own_negative_scores))
    return logit_scale * caption, logit_scale * negative
