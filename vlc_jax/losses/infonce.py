"""InfoNCE, the loss of CLIP (Oord et al. 2018; Radford et al. 2021, figure 3), and of NegCLIP.

    loss_i = 1/2 [logsumexp_j(s_ij) - s_ii] + 1/2 [logsumexp_j(s_ji) - s_ii],   s = scale * cosine

NegCLIP (Yuksekgonul et al. 2023, section 4.1; vinid/neg_clip) also compares every image with the
hard negatives of all examples: with them the first logsumexp runs over j and over all n_jk. The
second one, over images, is that of CLIP. Their training on several devices pairs images with the
wrong captions; here it is the loss of the global batch on any number of them.

Three ways to the same numbers and gradients: `dense` takes the whole score matrix, `chunked`
makes a few rows of it at a time, `ring` keeps a block of it per device and passes texts around.
Examples whose mask is False are padding: no row, no column, value 0.
"""

import functools

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Array, Float

from vlc_jax.losses import masks, tiles

NOTHING = -1e30  # a logit that no sum of exponentials notices; finite, for the sake of gradients


def dense(
    scores: Float[Array, "batch batch"],
    logit_scale: Float[Array, ""],
    members: masks.Members,
    negative_scores: Float[Array, "batch batch negatives"] | None = None,
) -> Float[Array, "batch"]:
    """InfoNCE per example from all scores; under jit over sharded arrays it is the global loss."""
    logits = logit_scale * scores.astype(jnp.float32)
    rows, columns = _sums(logits, masks.captions(members, members))
    if negative_scores is not None:
        more = logit_scale * negative_scores.astype(jnp.float32)
        rows = jnp.logaddexp(rows, _negatives(more, masks.negatives(members, members)))
    return jnp.where(members.mask, (rows + columns) / 2 - jnp.diag(logits), 0.0)


def chunked(
    image: Float[Array, "batch embed"],
    text: Float[Array, "batch embed"],
    logit_scale: Float[Array, ""],
    members: masks.Members,
    negative_text: Float[Array, "batch negatives embed"] | None = None,
    *,
    chunk: int,
) -> Float[Array, "batch"]:
    """InfoNCE per example from unit-length embeddings, `chunk` images at a time.

    Memory is chunk x batch instead of batch x batch; the backward pass makes the logits again.
    """
    texts = tiles.Texts(text, negative_text, members)

    @jax.checkpoint
    def body(columns: jax.Array, part: tuple) -> tuple[jax.Array, jax.Array]:
        rows, more = _block(*part, texts, logit_scale)
        return jnp.logaddexp(columns, more), rows

    start = jnp.full(len(text), NOTHING)
    parts = tiles.split((image, members), chunk)
    columns, rows = jax.lax.scan(body, start, parts)
    rows = rows.reshape(-1)[: len(image)]
    return jnp.where(members.mask, (rows + columns) / 2 - _own(image, text, logit_scale), 0.0)


def ring(
    image: Float[Array, "batch embed"],
    text: Float[Array, "batch embed"],
    logit_scale: Float[Array, ""],
    members: masks.Members,
    negative_text: Float[Array, "batch negatives embed"] | None = None,
    *,
    mesh: Mesh,
    axes: tuple[str, ...],
) -> Float[Array, "batch"]:
    """InfoNCE per example of a batch sharded over the mesh `axes`, with no all-gather.

    Each device keeps its images and the logsumexp of their rows; texts visit the devices in turn,
    with their hard negatives and the logsumexp of their column, which is complete when they are
    home again.
    """
    tiles.check_divisible(len(image), mesh, axes)
    pass_on = functools.partial(tiles.pass_on, axes=axes, devices=tiles.count(mesh, axes))
    block = jax.checkpoint(_block)

    def local(image: jax.Array, texts: tiles.Texts, scale: jax.Array) -> jax.Array:
        def hop(carry: tuple, _: None) -> tuple[tuple, None]:
            rows, visitor, columns = carry
            visitor, columns = pass_on((visitor, columns))
            more_rows, more_columns = block(image, members, visitor, scale)
            rows, columns = jnp.logaddexp(rows, more_rows), jnp.logaddexp(columns, more_columns)
            return (rows, visitor, columns), None

        members = texts.members
        rows, columns = block(image, members, texts, scale)
        hops = tiles.count(mesh, axes) - 1
        (rows, _, columns), _ = jax.lax.scan(hop, (rows, texts, columns), None, length=hops)
        columns = pass_on(columns)
        return jnp.where(members.mask, (rows + columns) / 2 - _own(image, texts.text, scale), 0.0)

    split, whole = PartitionSpec(axes), PartitionSpec()
    mapped = jax.shard_map(local, mesh=mesh, in_specs=(split, split, whole), out_specs=split)
    return mapped(image, tiles.Texts(text, negative_text, members), logit_scale)


def _block(
    image: Float[Array, "images embed"],
    members: masks.Members,
    texts: tiles.Texts,
    logit_scale: Float[Array, ""],
) -> tuple[Float[Array, "images"], Float[Array, "texts"]]:
    """The logsumexp of the rows and of the columns of one block of logits."""
    logits = logit_scale * tiles.scores(image, texts.text)
    rows, columns = _sums(logits, masks.captions(members, texts.members))
    if texts.negative_text is not None:
        more = logit_scale * tiles.negative_scores(image, texts.negative_text)
        rows = jnp.logaddexp(rows, _negatives(more, masks.negatives(members, texts.members)))
    return rows, columns


def _sums(logits: jax.Array, counts: jax.Array) -> tuple[jax.Array, jax.Array]:
    real = jnp.where(counts, logits, NOTHING)
    return jax.nn.logsumexp(real, axis=1), jax.nn.logsumexp(real, axis=0)


def _negatives(logits: jax.Array, counts: jax.Array) -> jax.Array:
    return jax.nn.logsumexp(jnp.where(counts, logits, NOTHING), axis=(1, 2))


def _own(
    image: Float[Array, "batch embed"],
    text: Float[Array, "batch embed"],
    logit_scale: Float[Array, ""],
) -> Float[Array, "batch"]:
    return logit_scale * jnp.sum(image * text, axis=1)
