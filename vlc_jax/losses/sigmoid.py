"""The pairwise sigmoid loss of SigLIP (Zhai et al. 2023, equation 1), also with hard negatives.

    loss_i = sum_j softplus(-z_ij (scale * c_ij + bias)),   z_ii = 1, z_ij = -1 otherwise

per image i, with c_ij its cosine similarity with caption j; the paper divides the sum over i by the
number of images, as the mean of these values does. The hard negatives of all examples, if there are
any, are further columns of every image with z = -1. `dense`, `TILED.chunked` and `TILED.ring` give
the same values and gradients. Examples whose mask is False are padding: no row, no column, value 0.

`phrases`, `positives` and `own_positives` are losses of images with several right texts, the hard
positives of their examples. They are divided by the number of texts, as their authors do:

    loss_i = (images / texts) sum_t softplus(-z_it (scale * c_it + bias)),   z = 1 for right texts

where texts is the number of texts that an image is compared with, on average: the mean over images
is the sum over all pairs divided by it.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from vlc_jax.losses import masks, tiles
from vlc_jax.types import Scalar


def dense(
    scores: Float[Array, "batch batch"],
    logit_scale: Scalar,
    logit_bias: Scalar,
    pair_masks: masks.PairMasks | None = None,
    negative_scores: Float[Array, "batch batch negatives"] | None = None,
) -> Float[Array, " batch"]:
    """Sigmoid loss per image from all scores; under jit over sharded arrays the global loss.

    Without pair masks every row is an example.
    """
    pair_masks = masks.for_scores(pair_masks, scores, negative_scores)

    def logits(scores: jax.Array) -> jax.Array:
        # float32: logits reach 100, where bfloat16 has steps of 0.5
        return logit_scale * scores.astype(jnp.float32) + logit_bias

    negative_logits = None if negative_scores is None else logits(negative_scores)
    return _row_sums(logits(scores), negative_logits, pair_masks, pair_masks)


def phrases(
    scores: Float[Array, "batch batch positives"],
    logit_scale: Scalar,
    logit_bias: Scalar,
    pair_masks: masks.PairMasks | None = None,
) -> Float[Array, " batch"]:
    """Sigmoid loss per image over the hard positives of all examples, such as noun phrases: C2LIP's
    (Pham et al. 2026; SamsungLabs/concept_centric_clip).

    Without pair masks no text is missing. With those of duplicates="mask" a phrase that another
    example shares with the image is no negative; in the authors' code it is one.
    """
    if pair_masks is None:
        pair_masks = masks.complete(len(scores), positives=scores.shape[2])
    own = masks.is_own(pair_masks, pair_masks)[:, :, None]
    block = scores, own, masks.unshared_positives(pair_masks)
    return _over_texts(logit_scale, logit_bias, pair_masks, block)


def positives(
    scores: Float[Array, "batch batch"],
    positive_scores: Float[Array, "batch batch positives"],
    logit_scale: Scalar,
    logit_bias: Scalar,
    pair_masks: masks.PairMasks | None = None,
) -> Float[Array, " batch"]:
    """Sigmoid loss per image over the captions and hard positives of all examples: the
    multi-positive loss of FLAIR (Xiao et al. 2025, arXiv:2412.03561), whose sub-captions are the
    caption and its positives here. Masks as in `phrases`."""
    if pair_masks is None:
        pair_masks = masks.complete(len(scores), positives=positive_scores.shape[2])
    own = masks.is_own(pair_masks, pair_masks)
    captions = scores, own, masks.captions(pair_masks, pair_masks)
    hard = positive_scores, own[:, :, None], masks.unshared_positives(pair_masks)
    return _over_texts(logit_scale, logit_bias, pair_masks, captions, hard)


def own_positives(
    scores: Float[Array, "batch batch"],
    own_positive_scores: Float[Array, "batch positives"],
    logit_scale: Scalar,
    logit_bias: Scalar,
    pair_masks: masks.PairMasks | None = None,
) -> Float[Array, " batch"]:
    """Sigmoid loss per image over the captions of all examples and its own hard positives: with a
    head's scores of pooled patches FLAIR's text-conditioned loss, for which one sub-caption of each
    other image is drawn. Masks as in `phrases`."""
    if pair_masks is None:
        pair_masks = masks.complete(len(scores), positives=own_positive_scores.shape[1])
    is_own = masks.is_own(pair_masks, pair_masks)
    captions = scores, is_own, masks.captions(pair_masks, pair_masks)
    hard = own_positive_scores, jnp.ones((1, 1), bool), masks.own_positives(pair_masks)
    return _over_texts(logit_scale, logit_bias, pair_masks, captions, hard)


def _over_texts(
    logit_scale: Scalar,
    logit_bias: Scalar,
    pair_masks: masks.PairMasks,
    *blocks: tuple[Array, Array, Array],
) -> Float[Array, " batch"]:
    """The loss of each image over blocks of texts: scores, whether a pair is right, and counts."""
    loss, texts, images = 0.0, 0, pair_masks.mask.sum()
    for scores, is_right, is_pair in blocks:
        logits = logit_scale * scores.astype(jnp.float32) + logit_bias
        values = jax.nn.softplus(jnp.where(is_right, -logits, logits))
        axes = tuple(range(1, scores.ndim))
        loss += jnp.sum(jnp.where(is_pair, values, 0.0), axis=axes)
        texts += is_pair.sum() / jnp.maximum(images, 1)
    return loss * images / jnp.maximum(texts, 1)


def _tile(
    image: Float[Array, "images embed"],
    pair_masks: masks.PairMasks,
    texts: tiles.Texts,
    scale_and_bias: tuple[Scalar, Scalar],
) -> tuple[Float[Array, " images"], None]:
    """The loss of some images, summed over the texts of one tile; no columns."""
    logit_scale, logit_bias = scale_and_bias
    logits = logit_scale * tiles.scores(image, texts.text) + logit_bias
    negative_logits = None
    if texts.negative_text is not None:
        negative_scores = tiles.negative_scores(image, texts.negative_text)
        negative_logits = logit_scale * negative_scores + logit_bias
    return _row_sums(logits, negative_logits, pair_masks, texts.pair_masks), None


def _row_sums(
    logits: Float[Array, "images texts"],
    negative_logits: Float[Array, "images texts negatives"] | None,
    rows: masks.PairMasks,
    columns: masks.PairMasks,
) -> Float[Array, " images"]:
    """The loss of each image, summed over the texts that the masks include."""
    # softplus: log(sigmoid(x)) is -inf below about x = -100, where sigmoid is 0
    loss = jax.nn.softplus(jnp.where(masks.is_own(rows, columns), -logits, logits))
    value = jnp.sum(jnp.where(masks.captions(rows, columns), loss, 0.0), axis=1)
    if negative_logits is not None:
        loss = jax.nn.softplus(negative_logits)
        is_negative = masks.negatives(rows, columns)
        value += jnp.sum(jnp.where(is_negative, loss, 0.0), axis=(1, 2))
    return value


TILED = tiles.Tiled(_tile, tiles.SUM, lambda sums, *_: sums[0])
