"""InfoNCE, the loss of CLIP (Oord et al. 2018; Radford et al. 2021, figure 3).

    loss_i = 1/2 [logsumexp_j(s_ij) - s_ii] + 1/2 [logsumexp_j(s_ji) - s_ii],   s = scale * cosine

Three ways to the same numbers and gradients: `dense` takes the whole score matrix, `chunked`
makes a few rows of it at a time, `ring` keeps a block of it per device and passes texts around.
Examples whose `mask` is False are padding: no row, no column, value 0.
"""

import functools

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Array, Bool, Float

from vlc_jax.losses import blocks

NOTHING = -1e30  # a logit that no sum of exponentials notices; finite, for the sake of gradients


def dense(
    scores: Float[Array, "batch batch"],
    logit_scale: Float[Array, ""],
    mask: Bool[Array, "batch"],
) -> Float[Array, "batch"]:
    """InfoNCE per example from all scores; under jit over sharded arrays it is the global loss."""
    logits = logit_scale * scores.astype(jnp.float32)
    real = jnp.where(mask[:, None] & mask[None], logits, NOTHING)
    rows = jax.nn.logsumexp(real, axis=1)
    columns = jax.nn.logsumexp(real, axis=0)
    return jnp.where(mask, (rows + columns) / 2 - jnp.diag(logits), 0.0)


def chunked(
    image: Float[Array, "batch embed"],
    text: Float[Array, "batch embed"],
    logit_scale: Float[Array, ""],
    mask: Bool[Array, "batch"],
    *,
    chunk: int,
) -> Float[Array, "batch"]:
    """InfoNCE per example from unit-length embeddings, `chunk` images at a time.

    Memory is chunk x batch instead of batch x batch; the backward pass makes the logits again.
    """

    @jax.checkpoint
    def body(columns: jax.Array, part: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        images, is_real = part
        rows, more = _block(images, text, logit_scale, is_real, mask)
        return jnp.logaddexp(columns, more), rows

    start = jnp.full(len(text), NOTHING)
    columns, rows = jax.lax.scan(body, start, blocks.split((image, mask), chunk))
    rows = rows.reshape(-1)[: len(image)]
    return jnp.where(mask, (rows + columns) / 2 - _positives(image, text, logit_scale), 0.0)


def ring(
    image: Float[Array, "batch embed"],
    text: Float[Array, "batch embed"],
    logit_scale: Float[Array, ""],
    mask: Bool[Array, "batch"],
    *,
    mesh: Mesh,
    axes: tuple[str, ...],
) -> Float[Array, "batch"]:
    """InfoNCE per example of a batch sharded over the mesh `axes`, with no all-gather.

    Each device keeps its images and the logsumexp of their rows; texts visit the devices in turn,
    each carrying the logsumexp of its column, which is complete when the text is home again.
    """
    blocks.check_divisible(len(image), mesh, axes)
    pass_on = functools.partial(blocks.pass_on, axes=axes, devices=blocks.count(mesh, axes))

    @jax.checkpoint
    def block(image: jax.Array, visitor: tuple, scale: jax.Array, mask: jax.Array) -> tuple:
        return _block(image, visitor[0], scale, mask, visitor[1])

    def local(image: jax.Array, text: jax.Array, scale: jax.Array, mask: jax.Array) -> jax.Array:
        def hop(carry: tuple, _: None) -> tuple[tuple, None]:
            rows, visitor, columns = carry
            visitor, columns = pass_on((visitor, columns))
            more_rows, more_columns = block(image, visitor, scale, mask)
            rows, columns = jnp.logaddexp(rows, more_rows), jnp.logaddexp(columns, more_columns)
            return (rows, visitor, columns), None

        rows, columns = block(image, (text, mask), scale, mask)
        hops = blocks.count(mesh, axes) - 1
        (rows, _, columns), _ = jax.lax.scan(hop, (rows, (text, mask), columns), None, length=hops)
        columns = pass_on(columns)
        return jnp.where(mask, (rows + columns) / 2 - _positives(image, text, scale), 0.0)

    split, whole = PartitionSpec(axes), PartitionSpec()
    mapped = jax.shard_map(local, mesh=mesh, in_specs=(split, split, whole, split), out_specs=split)
    return mapped(image, text, logit_scale, mask)


def _block(
    image: Float[Array, "images embed"],
    text: Float[Array, "texts embed"],
    logit_scale: Float[Array, ""],
    image_mask: Bool[Array, "images"],
    text_mask: Bool[Array, "texts"],
) -> tuple[Float[Array, "images"], Float[Array, "texts"]]:
    """The logsumexp of the rows and of the columns of one block of logits."""
    logits = logit_scale * blocks.scores(image, text)
    real = jnp.where(image_mask[:, None] & text_mask[None], logits, NOTHING)
    return jax.nn.logsumexp(real, axis=1), jax.nn.logsumexp(real, axis=0)


def _positives(
    image: Float[Array, "batch embed"],
    text: Float[Array, "batch embed"],
    logit_scale: Float[Array, ""],
) -> Float[Array, "batch"]:
    return logit_scale * jnp.sum(image * text, axis=1)
