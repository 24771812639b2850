"""Tiles of a score matrix: chunks of images on one device, a ring of texts over devices.

A tile gives one result per row and one per column, which are merged over all tiles. The backward
pass computes the tiles again (`over_chunks`, `over_ring`): plain differentiation of the loop would
save its carry at every iteration, the columns of every chunk or the texts of every device, and
memory would grow with the number of tiles.
"""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import AbstractMesh, Mesh, PartitionSpec
from jaxtyping import Array, Float

from vlc_jax import errors
from vlc_jax.losses import masks


class Texts(NamedTuple):
    """Embeddings of captions, and of their hard negatives if they have any."""

    text: Float[Array, "texts embed"]
    negative_text: Float[Array, "texts negatives embed"] | None
    pair_masks: masks.PairMasks


class Merge(NamedTuple):
    """The merge of the results of two tiles, and its derivative by the result of one tile.

    merge: (one, other) -> merged.   share: (one, merged) -> d merged / d one.
    """

    merge: Callable[[jax.Array, jax.Array], jax.Array]
    share: Callable[[jax.Array, jax.Array], jax.Array]


# of tiles' products; speed/loss.py tries others, tests/losses/test_precision.py says why not TF32
PRECISION: jax.lax.PrecisionLike = "highest"
LOGSUMEXP = Merge(jnp.logaddexp, lambda one, merged: jnp.exp(one - merged))
SUM = Merge(jnp.add, lambda one, merged: jnp.ones_like(merged))


class Ring(NamedTuple):
    """Mesh axes whose devices form a ring, and the number of devices."""

    axes: tuple[str, ...]
    devices: int


# (images, their masks, texts, numbers such as the logit scale) -> results of rows and of columns;
# None for columns that no loss reads
Tile = Callable[..., tuple[jax.Array, jax.Array | None]]


def scores(
    image: Float[Array, "images embed"], text: Float[Array, "texts embed"]
) -> Float[Array, "images texts"]:
    """Dot products in float32; accelerators would otherwise round to bfloat16 or TF32."""
    return jnp.einsum("ie,te->it", image, text, precision=PRECISION)


def negative_scores(
    image: Float[Array, "images embed"], text: Float[Array, "texts negatives embed"]
) -> Float[Array, "images texts negatives"]:
    """Dot products of every image with the hard negatives of every example, in float32."""
    return jnp.einsum("ie,tne->itn", image, text, precision=PRECISION)


def split(arrays: Any, chunk: int) -> Any:
    """Each (batch, ...) array as (chunks, chunk, ...), the last chunk filled with zeros (False)."""

    def one(x: jax.Array) -> jax.Array:
        padding = -len(x) % chunk
        x = jnp.pad(x, [(0, padding)] + [(0, 0)] * (x.ndim - 1))
        return x.reshape(-1, chunk, *x.shape[1:])

    return jax.tree.map(one, arrays)


def num_devices(mesh: Mesh | AbstractMesh, axes: tuple[str, ...]) -> int:
    """Number of devices along `axes`."""
    return math.prod(mesh.shape[axis] for axis in axes)


def check_divisible(batch: int, mesh: Mesh | AbstractMesh, axes: tuple[str, ...]) -> None:
    """Raises UsageError unless every device gets equally many examples."""
    devices = num_devices(mesh, axes)
    if batch % devices:
        lower = batch // devices * devices
        raise errors.UsageError(
            f"a ring over {devices} devices needs a batch divisible by {devices}, got {batch}; "
            f"use {lower or devices} or {lower + devices}"
        )


def to_next_device(arrays: Any, ring: Ring) -> Any:
    """Sends each device's arrays to the next one of the ring; inside shard_map."""
    to_next = [(i, (i + 1) % ring.devices) for i in range(ring.devices)]
    return jax.tree.map(lambda x: jax.lax.ppermute(x, ring.axes, to_next), arrays)


class Tiled(NamedTuple):
    """A loss of unit-length embeddings, merged from tiles of their scores.

    tile: a Tile, with options of the loss as keywords.   merge: of the results of two tiles.
    finish: (results of all rows and columns, images, texts, numbers, options) -> the loss of each
      example.
    """

    tile: Tile
    merge: Merge
    finish: Callable[..., Float[Array, " batch"]]

    def chunked(
        self, image: Float[Array, "batch embed"], texts: Texts, *numbers: Any, chunk: int, **options
    ) -> Float[Array, " batch"]:
        """The loss of each example, from tiles of `chunk` images and all texts.

        Memory is chunk x batch instead of batch x batch; the backward pass computes the logits
        again.
        """
        tile = functools.partial(self.tile, **options)
        sums = over_chunks(tile, self.merge, chunk, image, texts, numbers)
        return self.finish(sums, image, texts, numbers, **options)

    def ring(
        self,
        image: Float[Array, "batch embed"],
        texts: Texts,
        *numbers: Any,
        mesh: Mesh | AbstractMesh,
        axes: tuple[str, ...],
        **options: Any,
    ) -> Float[Array, " batch"]:
        """The loss of each example of a batch sharded over the mesh `axes`, with no all-gather.

        Each device keeps its images; texts visit the devices in turn (section 3.3 of the paper of
        SigLIP), with their hard negatives. The backward pass is a ring, too. Raises UsageError
        unless every device gets equally many examples.
        """
        check_divisible(len(image), mesh, axes)
        ring, tile = Ring(axes, num_devices(mesh, axes)), functools.partial(self.tile, **options)

        def share(image: jax.Array, texts: Texts, numbers: tuple) -> jax.Array:
            # varying as the gradients: a custom VJP returns one per device, of its input's type
            numbers = jax.tree.map(lambda x: jax.lax.pcast(x, axes, to="varying"), numbers)
            sums = over_ring(tile, self.merge, ring, image, texts, numbers)
            return self.finish(sums, image, texts, numbers, **options)

        split, whole = PartitionSpec(axes), PartitionSpec()
        mapped = jax.shard_map(share, mesh=mesh, in_specs=(split, split, whole), out_specs=split)
        return mapped(image, texts, numbers)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1, 2))
def over_chunks(
    tile: Tile, merge: Merge, chunk: int, image: jax.Array, texts: Texts, numbers: Any
) -> tuple[jax.Array, jax.Array | None]:
    """Results of all rows and all columns, from tiles of `chunk` images and all texts."""

    def body(columns: jax.Array | None, part: tuple) -> tuple[jax.Array | None, jax.Array]:
        rows, tile_columns = tile(*part, texts, numbers)
        return jax.tree.map(merge.merge, columns, tile_columns), rows

    parts = split((image, texts.pair_masks), chunk)
    rows, columns = tile(*jax.tree.map(lambda x: x[0], parts), texts, numbers)
    columns, others = jax.lax.scan(body, columns, jax.tree.map(lambda x: x[1:], parts))
    return jnp.concatenate([rows, others.reshape(-1)])[: len(image)], columns


def _chunks_forward(
    tile: Tile, merge: Merge, chunk: int, image: jax.Array, texts: Texts, numbers: Any
) -> tuple[Any, tuple]:
    merged = over_chunks(tile, merge, chunk, image, texts, numbers)
    return merged, (image, texts, numbers, merged)


def _chunks_backward(
    tile: Tile, merge: Merge, chunk: int, saved: tuple, cotangents: tuple
) -> tuple:
    image, texts, numbers, (rows, columns) = saved
    d_rows, d_columns = cotangents

    def body(sums: tuple, part: tuple) -> tuple[tuple, jax.Array]:
        images, (rows, d_rows) = part[:2], part[2:]
        merged = (rows, columns), (d_rows, d_columns)
        d_image, *others = _tile_gradients(tile, merge, images, texts, numbers, *merged)
        return jax.tree.map(jnp.add, sums, tuple(others)), d_image

    parts = split((image, texts.pair_masks, rows, d_rows), chunk)
    start = jax.tree.map(jnp.zeros_like, (texts[:2], numbers))
    (d_texts, d_numbers), d_image = jax.lax.scan(body, start, parts)
    d_image = d_image.reshape(-1, *image.shape[1:])[: len(image)]
    return d_image, Texts(*d_texts, None), d_numbers


over_chunks.defvjp(_chunks_forward, _chunks_backward)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1, 2))
def over_ring(
    tile: Tile, merge: Merge, ring: Ring, image: jax.Array, texts: Texts, numbers: Any
) -> tuple[jax.Array, jax.Array | None]:
    """Results of this device's rows and columns, inside shard_map.

    Each device keeps its images and the results of their rows; texts visit the devices in turn,
    with the results of their columns, which are complete when they are back on their own device.
    """

    def hop(carry: tuple, _: None) -> tuple[tuple, None]:
        rows, visitor, columns = carry
        visitor, columns = to_next_device((visitor, columns), ring)
        tile_rows, tile_columns = tile(image, texts.pair_masks, visitor, numbers)
        columns = jax.tree.map(merge.merge, columns, tile_columns)
        return (merge.merge(rows, tile_rows), visitor, columns), None

    rows, columns = tile(image, texts.pair_masks, texts, numbers)
    carry, _ = jax.lax.scan(hop, (rows, texts, columns), None, length=ring.devices - 1)
    rows, _, columns = carry
    # after devices - 1 hops the columns are on the neighbour: one more takes them home
    return rows, to_next_device(columns, ring)


def _ring_forward(
    tile: Tile, merge: Merge, ring: Ring, image: jax.Array, texts: Texts, numbers: Any
) -> tuple[Any, tuple]:
    merged = over_ring(tile, merge, ring, image, texts, numbers)
    return merged, (image, texts, numbers, merged)


def _ring_backward(tile: Tile, merge: Merge, ring: Ring, saved: tuple, cotangents: tuple) -> tuple:
    image, texts, numbers, (rows, columns) = saved
    d_rows, d_columns = cotangents

    def gradients_with(visitor: tuple) -> tuple:
        texts_, columns, d_columns = visitor
        merged = (rows, columns), (d_rows, d_columns)
        images = image, texts.pair_masks
        return _tile_gradients(tile, merge, images, texts_, numbers, *merged)

    def hop(carry: tuple, _: None) -> tuple[tuple, None]:
        d_image, d_texts, d_numbers, visitor = carry
        visitor, d_texts = to_next_device((visitor, d_texts), ring)
        sums = jax.tree.map(jnp.add, (d_image, d_texts, d_numbers), gradients_with(visitor))
        return (*sums, visitor), None

    visitor = texts, columns, d_columns
    carry = (*gradients_with(visitor), visitor)
    carry, _ = jax.lax.scan(hop, carry, None, length=ring.devices - 1)
    d_image, d_texts, d_numbers, _ = carry
    # the gradients of texts are on the neighbour, as the columns in `over_ring`
    return d_image, Texts(*to_next_device(d_texts, ring), None), d_numbers


over_ring.defvjp(_ring_forward, _ring_backward)


def _tile_gradients(
    tile: Tile,
    merge: Merge,
    images: tuple[jax.Array, masks.PairMasks],
    texts: Texts,
    numbers: Any,
    merged: tuple,
    cotangents: tuple,
) -> tuple[jax.Array, tuple, Any]:
    """Gradients that one tile adds to images, embeddings of texts and numbers, from the cotangents
    of the `merged` results of its rows and columns."""
    image, pair_masks = images

    def results(image: jax.Array, embeddings: tuple, numbers: Any) -> tuple:
        return tile(image, pair_masks, Texts(*embeddings, texts.pair_masks), numbers)

    tile_results, pull_back = jax.vjp(results, image, texts[:2], numbers)
    shares = jax.tree.map(
        lambda one, merged, cotangent: cotangent * merge.share(one, merged),
        tile_results,
        merged,
        cotangents,
    )
    return pull_back(shares)
