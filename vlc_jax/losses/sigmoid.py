"""The pairwise sigmoid loss of SigLIP (Zhai et al. 2023, equation 1), also with hard negatives.

    loss_i = sum_j softplus(-z_ij (scale * cosine_ij + bias)),   z_ii = 1, z_ij = -1 otherwise

per image i; the paper divides the sum over i by the number of images, as the mean of these
values does. The hard negatives of all examples, if there are any, are further columns of every
image with z = -1. `dense`, `chunked` and `ring` give the same numbers and gradients. Examples
whose mask is False are padding: no row, no column, value 0.
"""

import functools

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Array, Float

from vlc_jax.losses import masks, tiles


def dense(
    scores: Float[Array, "batch batch"],
    logit_scale: Float[Array, ""],
    logit_bias: Float[Array, ""],
    members: masks.Members,
    negative_scores: Float[Array, "batch batch negatives"] | None = None,
) -> Float[Array, "batch"]:
    """Sigmoid loss per image from all scores; under jit over sharded arrays the global loss."""

    def logits(scores: jax.Array) -> jax.Array:
        return logit_scale * scores.astype(jnp.float32) + logit_bias

    more = None if negative_scores is None else logits(negative_scores)
    return _rows(logits(scores), more, members, members)


def chunked(
    image: Float[Array, "batch embed"],
    text: Float[Array, "batch embed"],
    logit_scale: Float[Array, ""],
    logit_bias: Float[Array, ""],
    members: masks.Members,
    negative_text: Float[Array, "batch negatives embed"] | None = None,
    *,
    chunk: int,
) -> Float[Array, "batch"]:
    """Sigmoid loss per image from unit-length embeddings, `chunk` images at a time.

    Memory is chunk x batch instead of batch x batch; the backward pass makes the logits again.
    """
    texts = tiles.Texts(text, negative_text, members)

    @jax.checkpoint
    def body(part: tuple[jax.Array, masks.Members]) -> jax.Array:
        return _block(*part, texts, logit_scale, logit_bias)

    rows = jax.lax.map(body, tiles.split((image, members), chunk))
    return rows.reshape(-1)[: len(image)]


def ring(
    image: Float[Array, "batch embed"],
    text: Float[Array, "batch embed"],
    logit_scale: Float[Array, ""],
    logit_bias: Float[Array, ""],
    members: masks.Members,
    negative_text: Float[Array, "batch negatives embed"] | None = None,
    *,
    mesh: Mesh,
    axes: tuple[str, ...],
) -> Float[Array, "batch"]:
    """Sigmoid loss per image of a batch sharded over the mesh `axes`, with no all-gather.

    Each device keeps its images; texts visit the devices in turn (section 3.3 of the paper), with
    their hard negatives.
    """
    tiles.check_divisible(len(image), mesh, axes)
    pass_on = functools.partial(tiles.pass_on, axes=axes, devices=tiles.count(mesh, axes))
    block = jax.checkpoint(_block)

    def local(image: jax.Array, texts: tiles.Texts, scale: jax.Array, bias: jax.Array) -> jax.Array:
        def hop(carry: tuple, _: None) -> tuple[tuple, None]:
            rows, visitor = carry
            visitor = pass_on(visitor)
            return (rows + block(image, texts.members, visitor, scale, bias), visitor), None

        rows = block(image, texts.members, texts, scale, bias)
        hops = tiles.count(mesh, axes) - 1
        (rows, _), _ = jax.lax.scan(hop, (rows, texts), None, length=hops)
        return rows

    split, whole = PartitionSpec(axes), PartitionSpec()
    mapped = jax.shard_map(local, mesh=mesh, in_specs=(split, split, whole, whole), out_specs=split)
    return mapped(image, tiles.Texts(text, negative_text, members), logit_scale, logit_bias)


def _block(
    image: Float[Array, "images embed"],
    members: masks.Members,
    texts: tiles.Texts,
    logit_scale: Float[Array, ""],
    logit_bias: Float[Array, ""],
) -> Float[Array, "images"]:
    """The loss of some images, summed over the texts of one block."""
    logits = logit_scale * tiles.scores(image, texts.text) + logit_bias
    more = None
    if texts.negative_text is not None:
        more = logit_scale * tiles.negative_scores(image, texts.negative_text) + logit_bias
    return _rows(logits, more, members, texts.members)


def _rows(
    logits: Float[Array, "images texts"],
    negative_logits: Float[Array, "images texts negatives"] | None,
    rows: masks.Members,
    columns: masks.Members,
) -> Float[Array, "images"]:
    """The loss summed over the texts that count, for each image."""
    loss = jax.nn.softplus(jnp.where(masks.is_own(rows, columns), -logits, logits))
    value = jnp.sum(jnp.where(masks.captions(rows, columns), loss, 0.0), axis=1)
    if negative_logits is not None:
        loss = jax.nn.softplus(negative_logits)
        counts = masks.negatives(rows, columns)
        value += jnp.sum(jnp.where(counts, loss, 0.0), axis=(1, 2))
    return value
