"""The hard-negative loss of FSC-CLIP: focal cross-entropy with smoothed labels (Oh et al. 2024,
"Preserving Multi-Modal Capabilities of Pre-trained VLMs for Improving Vision-Linguistic
Compositionality"; ytaek-oh/fsc-clip).

The paper's selective calibrated regularization. Beside CLIP's loss, on COCO, its weight is 0.5 on
cosines of pooled features, and 0.2 on scores of patches against tokens: `hn_focal_local` in
config.losses, which needs the rule fsc of the model `pooled` (models/pooling.py).
"""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from vlc_jax import errors
from vlc_jax.losses.masks import MASKED_LOGIT, or_ones
from vlc_jax.types import Scalar


def check(gamma: float, label_smoothing: float, **options: Any) -> None:
    """Raises UsageError unless gamma is 0 or at least 1, and 0 <= label_smoothing < 1. options:
    others of `hn_focal`."""
    # between 0 and 1 the slope of (1 - p)^gamma at p = 1 is infinite, and p does round to 1
    if not (gamma == 0 or 1 <= gamma < float("inf")):
        raise errors.UsageError(f"gamma of hn_focal is 0 or at least 1; got {gamma}")
    if not 0 <= label_smoothing < 1:
        raise errors.UsageError(
            f"label_smoothing of hn_focal is at least 0 and below 1; got {label_smoothing}"
        )


def hn_focal(
    own_scores: Float[Array, " batch"],
    own_negative_scores: Float[Array, "batch negatives"],
    logit_scale: Scalar,
    mask: Bool[Array, "batch negatives"] | None = None,
    *,
    gamma: float = 2.0,
    label_smoothing: float = 0.02,
    as_released: bool = False,
) -> Float[Array, " batch"]:
    """Focal loss of an image's caption (class 0) against its hard negatives (classes 1, ...).

        p = softmax(s x_i.t_i, s x_i.n_i1, ...)        y_c = (1 - e) [c = 0] + e / classes
        loss_i = - sum_c y_c (1 - p_c)^gamma log p_c

    with s the logit scale, e the label smoothing. `mask` is False on missing hard negatives
    (None: none is missing), which are no classes. Without hard negatives the loss is 0. With gamma
    = 0 and e = 0 it is `svlc.negative`.

    as_released: in the authors' code a missing negative has no label and is none of the classes in
    y, but adds a logit of 0 to the softmax. So the loss depends on how many are missing, and an
    example without negatives costs more than 0; `losses.total` counts none of those, as the code.
    The code's loss of a batch without any negative is NaN, and ours 0.

    Raises UsageError as `check` does.
    """
    check(gamma, label_smoothing)
    mask = or_ones(mask, own_negative_scores)
    caption = logit_scale * own_scores.astype(jnp.float32)
    negative = logit_scale * own_negative_scores.astype(jnp.float32)
    missing = 0.0 if as_released else MASKED_LOGIT
    logits = jnp.concatenate([caption[:, None], jnp.where(mask, negative, missing)], axis=1)
    is_class = jnp.concatenate([jnp.ones_like(mask[:, :1]), mask], axis=1)
    log_p = jax.nn.log_softmax(logits, axis=1)
    is_own = jnp.arange(logits.shape[1])[None] == 0
    target = label_smoothing / is_class.sum(axis=1, keepdims=True)
    target = target + jnp.where(is_own, 1 - label_smoothing, 0.0)
    # -expm1(log p) is 1 - p without the cancellation near p = 1; the gradient of 0 ** 0 is NaN
    weight = (-jnp.expm1(log_p)) ** gamma if gamma else 1.0
    loss = -target * weight * log_p
    # a masked class has log p = -1e30: its product with any rounding error would swamp the sum
    return jnp.sum(jnp.where(is_class, loss, 0.0), axis=1)
