"""The losses that DeGLA adds to NegCLIP's and to `svlc.negative` (Hu et al. 2025, arXiv:2504.16801;
xiaoxing2001/DeGLA, src/open_clip/loss.py), with a teacher that is a moving average of the model.

x_i, t_i, n_ik are the image, caption and hard negatives of an example, x'_i, t'_i, n'_ik the same
by the teacher, all of unit length. No gradient flows into the teacher.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from vlc_jax import errors
from vlc_jax.losses import svlc
from vlc_jax.losses.masks import or_ones


def check(decay: float) -> None:
    """Raises UsageError unless the decay is a share in [0, 1]."""
    if not 0 <= decay <= 1:
        raise errors.UsageError(f"decay of distill is a share in [0, 1]; got {decay}")


def text_grounded(
    text: Float[Array, "batch embed"],
    teacher_text: Float[Array, "batch embed"],
    negative_text: Float[Array, "batch negatives embed"],
    mask: Bool[Array, "batch negatives"] | None = None,
    *,
    logit_scale: float = 10.0,
    as_released: bool = False,
) -> Float[Array, " batch"]:
    """Text-grounded contrast (TGC): a caption and the teacher's, against its hard negatives.

        loss_i = log(exp(s t_i.t'_i) + sum_k exp(s t_i.n_ik)) - s t_i.t'_i

    logit_scale: s, a constant.
    mask: False on missing hard negatives; None: none is missing.
    as_released: caption i is contrasted with the negatives at i + B m of the list of all negatives
      in the order of their captions (B captions, m = 0 .. K - 1), which are mostly other captions':
      so chooses the mask of the authors' code.
    """
    mask = or_ones(mask, negative_text[:, :, 0])
    if as_released:
        negative_text, mask = (
            jnp.swapaxes(x.reshape(x.shape[1], x.shape[0], *x.shape[2:]), 0, 1)
            for x in (negative_text, mask)
        )
    own = jnp.einsum("ie,ie->i", text, jax.lax.stop_gradient(teacher_text), precision="highest")
    scores = jnp.einsum("ie,ine->in", text, negative_text, precision="highest")
    return svlc.negative(own, scores, logit_scale, mask)


def distill(
    image: Float[Array, "batch embed"],
    text: Float[Array, "batch embed"],
    teacher_image: Float[Array, "batch embed"],
    teacher_text: Float[Array, "batch embed"],
    negative_text: Float[Array, "batch negatives embed"] | None = None,
    teacher_negative_text: Float[Array, "batch negatives embed"] | None = None,
    mask: Bool[Array, "batch negatives"] | None = None,
    *,
    decay: float = 0.9996,
) -> Float[Array, " batch"]:
    """Self-distillation: squared distances between features and the teacher's.

        loss_i = batch (|x_i - x'_i|^2 + |t_i - t'_i|^2 + sum_k |n_ik - n'_ik|^2)

    Times the batch size, so that the mean is the sum over the batch, which the authors take.

    mask: False on missing hard negatives; None: none is missing.
    decay: of the teacher (`average`), which the training step reads.

    Raises UsageError as `check` does.
    """
    check(decay)
    loss = _distance(image, teacher_image) + _distance(text, teacher_text)
    if negative_text is not None and teacher_negative_text is not None:
        distance = _distance(negative_text, teacher_negative_text)
        loss += jnp.where(or_ones(mask, distance), distance, 0.0).sum(axis=1)
    return len(image) * loss


def average(
    teacher: PyTree[Float[Array, "..."]], params: PyTree[Float[Array, "..."]], decay: float
) -> PyTree[Float[Array, "..."]]:
    """The teacher after a step: decay * teacher + (1 - decay) * params, of each parameter."""
    return jax.tree.map(lambda old, new: old + (1 - decay) * (new - old), teacher, params)


def _distance(x: jax.Array, teacher: jax.Array) -> jax.Array:
    return jnp.square((x - jax.lax.stop_gradient(teacher)).astype(jnp.float32)).sum(axis=-1)
