"""Losses with a teacher, a moving average of the model into which no gradient flows.

`text_grounded` and `distill` are those that DeGLA adds to NegCLIP's and to `svlc.negative` (Hu et
al. 2025, arXiv:2504.16801; xiaoxing2001/DeGLA, src/open_clip/loss.py): x_i, t_i, n_ik are the
image, caption and hard negatives of an example, x'_i, t'_i, n'_ik the same by the teacher, all of
unit length.

`self_distill` (SILC; Naeem et al. 2023, arXiv:2310.13355) and `masked_patches` (TIPS; Maninis et
al. 2024, arXiv:2410.16512, after iBOT, arXiv:2111.07832) are the losses that SigLIP 2 (Tschannen et
al. 2025, arXiv:2502.14786, section 2.3) adds for dense features. Both are DINO's cross entropy
between distributions over prototypes (Caron et al. 2021, arXiv:2104.14294): with K logits v_k of
the student, w_k of the teacher and a centre c_k,

    loss = - sum_k softmax((w - c) / T_teacher)_k log softmax(v / T_student)_k

None of the three published its training code. Temperatures, momentum of the centre and decay are
DINO's and iBOT's first values, without their schedules: SILC keeps its decay constant, too.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from vlc_jax import errors
from vlc_jax.input_pipeline import lookup
from vlc_jax.losses import svlc
from vlc_jax.losses.masks import or_ones


class Features(NamedTuple):
    """Embeddings of examples, by the student or by the teacher."""

    image: Float[Array, "batch embed"]
    text: Float[Array, "batch embed"]
    negative_text: Float[Array, "batch negatives embed"] | None = None


class Centred(NamedTuple):
    """Options that `self_distill` and `masked_patches` share.

    centre_momentum: of the centre (`next_centre`).   decay: of the teacher (`average`).   The
      training step reads both.
    """

    student_temperature: float = 0.1
    teacher_temperature: float = 0.04
    centre_momentum: float = 0.9
    decay: float = 0.996


def check(decay: float, **options: Any) -> None:
    """Raises UsageError for shares outside [0, 1] and for temperatures, crops and areas of crops
    that cannot be. options: of `self_distill` or `masked_patches`."""
    shares = {"decay": decay} | {
        name: options[name] for name in ("centre_momentum", "ratio") if name in options
    }
    for name, value in shares.items():
        if not 0 <= value <= 1:
            raise errors.UsageError(f"{name} of a teacher's loss is a share in [0, 1]; got {value}")
    for name in ("student_temperature", "teacher_temperature"):
        if not 0 < options.get(name, 1.0) < math.inf:
            raise errors.UsageError(f"{name} is a positive number; got {options[name]}")
    if options.get("ratio") == 0:
        raise errors.UsageError("ratio of masked_patches is above 0: without a mask, drop the loss")
    for name, least in (("crops", 1), ("size", 0)):
        if not options.get(name, least) >= least:
            raise errors.UsageError(
                f"{name} of self_distill is from {least} on; got {options[name]}"
            )
    scale = tuple(options.get("scale", (1.0, 1.0)))
    if len(scale) != 2 or not 0 < scale[0] <= scale[1] <= 1:
        raise errors.UsageError(
            f"scale of crops has shares of the area, 0 < low <= high <= 1; got {scale}"
        )


def check_scale(logit_scale: float, **options: Any) -> None:
    """Raises UsageError for a logit scale of `text_grounded` that inverts the loss or is none."""
    if not 0 < logit_scale < math.inf:
        raise errors.UsageError(
            f"logit_scale of text_grounded is a positive number; got {logit_scale}"
        )


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
    student: Features,
    teacher: Features,
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
    loss = _distance(student.image, teacher.image) + _distance(student.text, teacher.text)
    if student.negative_text is not None and teacher.negative_text is not None:
        distance = _distance(student.negative_text, teacher.negative_text)
        loss += jnp.where(or_ones(mask, distance), distance, 0.0).sum(axis=1)
    # training takes the mean over examples, and DeGLA's distance is a sum over the batch
    return len(loss) * loss


@lookup.options_of(Centred)
def self_distill(
    views: Float[Array, "batch views prototypes"],
    teacher: Float[Array, "batch prototypes"],
    centre: Float[Array, " prototypes"],
    *,
    crops: int = 8,
    scale: tuple[float, float] = (0.05, 0.4),
    size: int = 0,
    **centred: float,
) -> Float[Array, " batch"]:
    """Local-to-global self-distillation: the student sees crops of an image, the teacher all of it;
    the mean over the crops of the cross entropy above.

    crops, scale, size: number of crops per image, range of their share of its area, and side in
      pixels (0: that of the image), which the input pipeline reads. SILC and SigLIP 2 have 8 crops
      of .05 to .4, DINO's have 96 pixels.
    centred: fields of Centred.

    Raises UsageError as `check` does.
    """
    options = Centred(**centred)
    check(**options._asdict(), crops=crops, scale=scale, size=size)
    return _cross_entropy(views, teacher[:, None], centre, options)


@lookup.options_of(Centred)
def masked_patches(
    masked: Float[Array, "batch masked prototypes"],
    teacher: Float[Array, "batch masked prototypes"],
    centre: Float[Array, " prototypes"],
    *,
    ratio: float = 0.5,
    **centred: float,
) -> Float[Array, " batch"]:
    """Masked prediction: the student sees an image some of whose patches are masked, the teacher
    all of it; the mean over the masked patches of the cross entropy above.

    ratio: masked share of the patches, which the input pipeline reads; SigLIP 2 masks half.
    centred: fields of Centred.

    Raises UsageError as `check` does.
    """
    options = Centred(**centred)
    check(**options._asdict(), ratio=ratio)
    return _cross_entropy(masked, teacher, centre, options)


def next_centre(
    centre: Float[Array, " prototypes"],
    teacher: Float[Array, "batch prototypes"],
    mask: Bool[Array, " batch"],
    momentum: float,
) -> Float[Array, " prototypes"]:
    """The centre after a step: momentum * centre + (1 - momentum) * mean of the teacher's logits.

    mask: True on examples that count; without any the centre stays.
    """
    logits, count = jax.lax.stop_gradient(teacher), mask.sum()
    total = jnp.where(mask[:, None], logits, 0.0).sum(axis=0)
    return jnp.where(
        count > 0, momentum * centre + (1 - momentum) * total / jnp.maximum(count, 1), centre
    )


def average(
    teacher: PyTree[Float[Array, "..."]], params: PyTree[Float[Array, "..."]], decay: float
) -> PyTree[Float[Array, "..."]]:
    """The teacher after a step: decay * teacher + (1 - decay) * params, of each parameter."""
    return jax.tree.map(lambda old, new: old + (1 - decay) * (new - old), teacher, params)


def _distance(x: jax.Array, teacher: jax.Array) -> jax.Array:
    return jnp.square((x - jax.lax.stop_gradient(teacher)).astype(jnp.float32)).sum(axis=-1)


def _cross_entropy(
    student: jax.Array, teacher: jax.Array, centre: jax.Array, options: Centred
) -> jax.Array:
    teacher = jax.lax.stop_gradient(teacher - centre[None, None]) / options.teacher_temperature
    log_shares = jax.nn.log_softmax(student / options.student_temperature, axis=-1)
    return -(jax.nn.softmax(teacher, axis=-1) * log_shares).sum(axis=-1).mean(axis=1)
