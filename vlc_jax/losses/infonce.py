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
`chunked` computes a few rows of it at a time, `ring` one tile per device at a time, with the texts
sent around. Examples whose mask is False are padding: no row, no column, value 0.
"""

import functools

import jax
import jax.numpy as jnp
from jax.sharding import AbstractMesh, Mesh
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
    rows, columns = _logsumexps(logits, masks.captions(images, pair_masks))
    if negative_scores is not None:
        negative_logits = logit_scale * negative_scores.astype(jnp.float32)
        is_negative = masks.negatives(images, pair_masks)
        rows = jnp.logaddexp(rows, _negative_logsumexp(negative_logits, is_negative))
    sums = _directed(rows, columns, direction)
    return jnp.where(pair_masks.mask, sums - jnp.diag(logits), 0.0)


def chunked(
    image: Float[Array, "batch embed"],
    texts: tiles.Texts,
    logit_scale: Scalar,
    *,
    chunk: int,
    direction: str = "both",
    all_images: bool = False,
) -> Float[Array, " batch"]:
    """InfoNCE per example from unit-length embeddings, `chunk` images at a time.

    Memory is chunk x batch instead of batch x batch; the backward pass computes the logits again.
    """
    tile = functools.partial(_tile, all_images)
    sums = tiles.over_chunks(tile, tiles.LOGSUMEXP, chunk, image, texts, logit_scale)
    return _from_sums(sums, image, texts, logit_scale, direction)


def ring(
    image: Float[Array, "batch embed"],
    texts: tiles.Texts,
    logit_scale: Scalar,
    *,
    mesh: Mesh | AbstractMesh,
    axes: tuple[str, ...],
    direction: str = "both",
    all_images: bool = False,
) -> Float[Array, " batch"]:
    """InfoNCE per example of a batch sharded over the mesh `axes`, with no all-gather.

    Each device keeps its images and the logsumexp of their rows; texts visit the devices in turn,
    with their hard negatives and the logsumexp of their columns, which is complete when they are
    back on their own device. The backward pass is a ring, too.
    """

    def local(
        ring: tiles.Ring, image: jax.Array, texts: tiles.Texts, scale: jax.Array
    ) -> jax.Array:
        tile = functools.partial(_tile, all_images)
        sums = tiles.over_ring(tile, tiles.LOGSUMEXP, ring, image, texts, scale)
        return _from_sums(sums, image, texts, scale, direction)

    return tiles.on_ring(local, mesh, axes, image, texts, logit_scale)


def _tile(
    all_images: bool,
    image: Float[Array, "images embed"],
    pair_masks: masks.PairMasks,
    texts: tiles.Texts,
    logit_scale: Scalar,
) -> tuple[Float[Array, " images"], Float[Array, " texts"]]:
    """The logsumexp of the rows and of the columns of one tile of logits."""
    pair_masks = masks.all_images(pair_masks) if all_images else pair_masks
    logits = logit_scale * tiles.scores(image, texts.text)
    rows, columns = _logsumexps(logits, masks.captions(pair_masks, texts.pair_masks))
    if texts.negative_text is not None:
        negative_logits = logit_scale * tiles.negative_scores(image, texts.negative_text)
        is_negative = masks.negatives(pair_masks, texts.pair_masks)
        rows = jnp.logaddexp(rows, _negative_logsumexp(negative_logits, is_negative))
    return rows, columns


def _logsumexps(logits: jax.Array, mask: jax.Array) -> tuple[jax.Array, jax.Array]:
    masked = jnp.where(mask, logits, MASKED_LOGIT)
    return jax.nn.logsumexp(masked, axis=1), jax.nn.logsumexp(masked, axis=0)


def _negative_logsumexp(logits: jax.Array, mask: jax.Array) -> jax.Array:
    return jax.nn.logsumexp(jnp.where(mask, logits, MASKED_LOGIT), axis=(1, 2))


def _directed(rows: jax.Array, columns: jax.Array, direction: str) -> jax.Array:
    errors.known("direction of a contrastive loss", direction, DIRECTIONS)
    return rows if direction == "image_to_text" else (rows + columns) / 2


def _from_sums(
    sums: tuple[jax.Array, jax.Array],
    image: Float[Array, "batch embed"],
    texts: tiles.Texts,
    logit_scale: Scalar,
    direction: str,
) -> Float[Array, " batch"]:
    """The loss, from the logsumexp of all rows and of all columns."""
    # no einsum: accelerators would round its operands, and s_ii would differ from the tile's s_ii
    own_logits = logit_scale * jnp.sum(image * texts.text, axis=1)
    return jnp.where(texts.pair_masks.mask, _directed(*sums, direction) - own_logits, 0.0)
