"""The pairwise sigmoid loss of SigLIP (Zhai et al. 2023, equation 1), also with hard negatives.

    loss_i = sum_j softplus(-z_ij (scale * c_ij + bias)),   z_ii = 1, z_ij = -1 otherwise

per image i, with c_ij its cosine similarity with caption j; the paper divides the sum over i by the
number of images, as the mean of these values does. The hard negatives of all examples, if there are
any, are further columns of every image with z = -1. `dense`, `chunked` and `ring` give the same
values and gradients. Examples whose mask is False are padding: no row, no column, value 0.
"""

import jax
import jax.numpy as jnp
from jax.sharding import AbstractMesh, Mesh
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
    pair_masks = masks.of_scores(pair_masks, scores, negative_scores)

    def logits(scores: jax.Array) -> jax.Array:
        # float32: logits reach 100, where bfloat16 has steps of 0.5
        return logit_scale * scores.astype(jnp.float32) + logit_bias

    negative_logits = None if negative_scores is None else logits(negative_scores)
    return _row_sums(logits(scores), negative_logits, pair_masks, pair_masks)


def chunked(
    image: Float[Array, "batch embed"],
    texts: tiles.Texts,
    logit_scale: Scalar,
    logit_bias: Scalar,
    *,
    chunk: int,
) -> Float[Array, " batch"]:
    """Sigmoid loss per image from unit-length embeddings, `chunk` images at a time.

    Memory is chunk x batch instead of batch x batch; the backward pass computes the logits again.
    """

    # else the backward pass keeps the logits of every chunk, the whole matrix
    @jax.checkpoint
    def body(part: tuple[jax.Array, masks.PairMasks]) -> jax.Array:
        return _tile(*part, texts, (logit_scale, logit_bias))[0]

    rows = jax.lax.map(body, tiles.split((image, texts.pair_masks), chunk))
    return rows.reshape(-1)[: len(image)]


def ring(
    image: Float[Array, "batch embed"],
    texts: tiles.Texts,
    logit_scale: Scalar,
    logit_bias: Scalar,
    *,
    mesh: Mesh | AbstractMesh,
    axes: tuple[str, ...],
) -> Float[Array, " batch"]:
    """Sigmoid loss per image of a batch sharded over the mesh `axes`, with no all-gather.

    Each device keeps its images; texts visit the devices in turn (section 3.3 of the paper), with
    their hard negatives. The backward pass is a ring, too.
    """

    def local(ring: tiles.Ring, image: jax.Array, texts: tiles.Texts, numbers: tuple) -> jax.Array:
        return tiles.over_ring(_tile, tiles.SUM, ring, image, texts, numbers)[0]

    return tiles.on_ring(local, mesh, axes, image, texts, (logit_scale, logit_bias))


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
