"""The pairwise sigmoid loss of SigLIP (Zhai et al. 2023, equation 1).

    loss_i = sum_j softplus(-z_ij (scale * cosine_ij + bias)),   z_ii = 1, z_ij = -1 otherwise

per image i; the paper divides the sum over i by the number of images, as the mean of these
values does. `dense`, `chunked` and `ring` give the same numbers and gradients. Examples whose
`mask` is False are padding: no row, no column, value 0.
"""

import functools

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Array, Bool, Float

from vlc_jax.losses import blocks


def dense(
    scores: Float[Array, "batch batch"],
    logit_scale: Float[Array, ""],
    logit_bias: Float[Array, ""],
    mask: Bool[Array, "batch"],
) -> Float[Array, "batch"]:
    """Sigmoid loss per image from all scores; under jit over sharded arrays the global loss."""
    logits = logit_scale * scores.astype(jnp.float32) + logit_bias
    is_pair = jnp.eye(len(scores), dtype=bool)
    return _rows(logits, is_pair, mask, mask)


def chunked(
    image: Float[Array, "batch embed"],
    text: Float[Array, "batch embed"],
    logit_scale: Float[Array, ""],
    logit_bias: Float[Array, ""],
    mask: Bool[Array, "batch"],
    *,
    chunk: int,
) -> Float[Array, "batch"]:
    """Sigmoid loss per image from unit-length embeddings, `chunk` images at a time.

    Memory is chunk x batch instead of batch x batch; the backward pass makes the logits again.
    """
    index = jnp.arange(len(text))

    @jax.checkpoint
    def body(part: tuple[jax.Array, jax.Array, jax.Array]) -> jax.Array:
        images, is_real, position = part
        logits = logit_scale * blocks.scores(images, text) + logit_bias
        return _rows(logits, position[:, None] == index[None], is_real, mask)

    rows = jax.lax.map(body, blocks.split((image, mask, index), chunk))
    return rows.reshape(-1)[: len(image)]


def ring(
    image: Float[Array, "batch embed"],
    text: Float[Array, "batch embed"],
    logit_scale: Float[Array, ""],
    logit_bias: Float[Array, ""],
    mask: Bool[Array, "batch"],
    *,
    mesh: Mesh,
    axes: tuple[str, ...],
) -> Float[Array, "batch"]:
    """Sigmoid loss per image of a batch sharded over the mesh `axes`, with no all-gather.

    Each device keeps its images; texts visit the devices in turn (section 3.3 of the paper).
    """
    blocks.check_divisible(len(image), mesh, axes)
    pass_on = functools.partial(blocks.pass_on, axes=axes, devices=blocks.count(mesh, axes))

    def local(
        image: jax.Array, text: jax.Array, scale: jax.Array, bias: jax.Array, mask: jax.Array
    ) -> jax.Array:
        @jax.checkpoint
        def block(text: jax.Array, text_mask: jax.Array, is_pair: jax.Array) -> jax.Array:
            return _rows(scale * blocks.scores(image, text) + bias, is_pair, mask, text_mask)

        def hop(carry: tuple, _: None) -> tuple[tuple, None]:
            rows, visitor = carry
            visitor = pass_on(visitor)
            return (rows + block(*visitor, jnp.zeros_like(at_home)), visitor), None

        at_home = jnp.eye(len(image), dtype=bool)  # only a text at home meets its image
        rows = block(text, mask, at_home)
        hops = blocks.count(mesh, axes) - 1
        (rows, _), _ = jax.lax.scan(hop, (rows, (text, mask)), None, length=hops)
        return rows

    split, whole = PartitionSpec(axes), PartitionSpec()
    mapped = jax.shard_map(
        local, mesh=mesh, in_specs=(split, split, whole, whole, split), out_specs=split
    )
    return mapped(image, text, logit_scale, logit_bias, mask)


def _rows(
    logits: Float[Array, "images texts"],
    is_pair: Bool[Array, "images texts"],
    image_mask: Bool[Array, "images"],
    text_mask: Bool[Array, "texts"],
) -> Float[Array, "images"]:
    """The loss summed over the real texts, for each real image."""
    loss = jax.nn.softplus(jnp.where(is_pair, -logits, logits))
    return jnp.sum(jnp.where(image_mask[:, None] & text_mask[None], loss, 0.0), axis=1)
