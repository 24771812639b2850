"""InfoNCE, the contrastive loss of CLIP (Oord et al. 2018; Radford et al. 2021, figure 3), and of
NegCLIP.

    loss_i = 1/2 [logsumexp_j(s_ij) - s_ii] + 1/2 [logsumexp_j(s_ji) - s_ii]

where s_ij is the logit scale times the cosine similarity of image i and caption j.

NegCLIP (Yuksekgonul et al. 2023, section 4.1; vinid/neg_clip) also contrasts every image with the
hard negatives n_jk of all examples: the first logsumexp then runs over all j and all n_jk. The
second one, over images, is CLIP's. On several devices the authors' code pairs images with the wrong
captions; ours is the loss of the global batch on any number of devices.

direction=image_to_text: only the first term, without the factor 1/2, as query embedders are trained
(VLM2Vec): loss_i = logsumexp_j(s_ij) - s_ii.

all_images: the logsumexp over images runs over those of all rows, hard images included, also where
`rows` takes only some rows of the batch (CoN-CLIP, whose distractors are candidates of a caption).

Three implementations with the same values and gradients: `dense` takes the whole score matrix,
`TILED.chunked` a few rows of it at a time, `TILED.ring` one tile per device at a time, with the
texts sent around. Examples whose mask is False are padding: no row, no column, value 0.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from vlc_jax import errors
from vlc_jax.losses import masks, tiles
from vlc_jax.losses.masks import MASKED_LOGIT
from vlc_jax.types import Scalar

DIRECTIONS = ("both", "image_to_text")


def check(direction: str, all_images: bool) -> None:
    """Raises UsageError unless `direction` is one of DIRECTIONS, and sums over images if the images
    are to be all."""
    errors.known("direction of a contrastive loss", direction, DIRECTIONS)
    if all_images and direction != "both":
        raise errors.UsageError(
            f"all_images is about the sum over images, which direction {direction!r} lacks: leave "
            "all_images out, or take direction 'both'"
        )


def dense(
    scores: Float[Array, "batch batch"],
    logit_scale: Scalar,
    pair_masks: masks.PairMasks | None = None,
    negative_scores: Float[Array, "batch batch negatives"] | None = None,
    *,
    direction: str = "both",
    all_images: bool = False,
) -> Float[Array, " batch"]:
    """InfoNCE per example from all scores; under jit over sharded arrays it is the global loss.

    Without pair masks every row is an example.
    """
    # float32: logits reach 100, where bfloat16 has steps of 0.5
    pair_masks = masks.for_scores(pair_masks, scores, negative_scores)
    logits = logit_scale * scores.astype(jnp.float32)
    images = masks.all_images(pair_masks) if all_images else pair_masks
    negative_logits = None
    if negative_scores is not None:
        negative_logits = logit_scale * negative_scores.astype(jnp.float32)
    sums = _logsumexps(logits, negative_logits, images, pair_masks)
    return jnp.where(pair_masks.mask, _directed(sums, direction) - jnp.diag(logits), 0.0)


def _tile(
    image: Float[Array, "images embed"],
    pair_masks: masks.PairMasks,
    texts: tiles.Texts,
    numbers: tuple[Scalar],
    *,
    all_images: bool = False,
    **_: Any,
) -> tuple[Float[Array, " images"], Float[Array, " texts"]]:
    """The logsumexp of the rows and of the columns of one tile of logits."""
    (logit_scale,) = numbers
    pair_masks = masks.all_images(pair_masks) if all_images else pair_masks
    logits, negative_logits = logit_scale * tiles.scores(image, texts.text), None
    if texts.negative_text is not None:
        negative_logits = logit_scale * tiles.negative_scores(image, texts.negative_text)
    return _logsumexps(logits, negative_logits, pair_masks, texts.pair_masks)


def _logsumexps(
    logits: Float[Array, "images texts"],
    negative_logits: Float[Array, "images texts negatives"] | None,
    images: masks.PairMasks,
    texts: masks.PairMasks,
) -> tuple[jax.Array, jax.Array]:
    """The logsumexp of rows, over captions and hard negatives, and of columns."""
    masked = jnp.where(masks.captions(images, texts), logits, MASKED_LOGIT)
    rows, columns = (jax.nn.logsumexp(masked, axis=axis) for axis in (1, 0))
    if negative_logits is not None:
        masked = jnp.where(masks.negatives(images, texts), negative_logits, MASKED_LOGIT)
        rows = jnp.logaddexp(rows, jax.nn.logsumexp(masked, axis=(1, 2)))
    return rows, columns


def _directed(sums: tuple[jax.Array, jax.Array], direction: str) -> jax.Array:
    errors.known("direction of a contrastive loss", direction, DIRECTIONS)
    rows, columns = sums
    return rows if direction == "image_to_text" else (rows + columns) / 2


def _finish(
    sums: tuple[jax.Array, jax.Array],
    image: Float[Array, "batch embed"],
    texts: tiles.Texts,
    numbers: tuple[Scalar],
    *,
    direction: str = "both",
    **_: Any,
) -> Float[Array, " batch"]:
    """The loss, from the logsumexp of all rows and of all columns."""
    # no einsum: accelerators would round its operands, and s_ii would differ from the tile's s_ii
    own_logits = numbers[0] * jnp.sum(image * texts.text, axis=1)
    return jnp.where(texts.pair_masks.mask, _directed(sums, direction) - own_logits, 0.0)


TILED = tiles.Tiled(_tile, tiles.LOGSUMEXP, _finish)
