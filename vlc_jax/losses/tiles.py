"""Tiles of a score matrix: chunks of images on one device, a ring of texts over devices.

A tile gives a result per row and one per column, which are merged over all tiles. The backward pass
visits the tiles again (`over_chunks`, `over_ring`): differentiated as it stands, a loop would keep
its carry of every turn, the columns of every chunk or the texts of every device, and memory would
grow with their number.
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


LOGSUMEXP = Merge(jnp.logaddexp, lambda one, merged: jnp.exp(one - merged))
SUM = Merge(jnp.add, lambda one, merged: jnp.ones_like(merged))


class Ring(NamedTuple):
    """Mesh axes whose devices form a ring, and the number of these."""

    axes: tuple[str, ...]
    devices: int


# (images, their masks, texts, numbers such as the logit scale) -> results of rows and of columns;
# None for columns that no loss reads
Tile = Callable[..., tuple[jax.Array, jax.Array | None]]


def scores(
    image: Float[Array, "images embed"], text: Float[Array, "texts embed"]
) -> Float[Array, "images texts"]:
    """Dot products in float32; accelerators would otherwise round to bfloat16 or TF32."""
    return jnp.einsum("ie,te->it", image, text, precision="highest")


def negative_scores(
    image: Float[Array, "images embed"], text: Float[Array, "texts negatives embed"]
) -> Float[Array, "images texts negatives"]:
    """Dot products of every image with the hard negatives of every example, in float32."""
    return jnp.einsum("ie,tne->itn", image, text, precision="highest")


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


def on_ring(
    local: Callable[..., jax.Array],
    mesh: Mesh | AbstractMesh,
    axes: tuple[str, ...],
    image: jax.Array,
    texts: Texts,
    numbers: Any,
) -> jax.Array:
    """`local(ring, image, texts, numbers)` on each device of the mesh `axes`, with its own rows and
    all numbers. Raises UsageError unless every device gets equally many examples."""
    check_divisible(len(image), mesh, axes)
    ring = Ring(axes, num_devices(mesh, axes))

    def share(image: jax.Array, texts: Texts, numbers: Any) -> jax.Array:
        # per device, since a custom derivative must say so of the slopes that it returns
        numbers = jax.tree.map(lambda x: jax.lax.pcast(x, axes, to="varying"), numbers)
        return local(ring, image, texts, numbers)

    split, whole = PartitionSpec(axes), PartitionSpec()
    mapped = jax.shard_map(share, mesh=mesh, in_specs=(split, split, whole), out_specs=split)
    return mapped(image, texts, numbers)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1, 2))
def over_chunks(
    tile: Tile, merge: Merge, chunk: int, image: jax.Array, texts: Texts, numbers: Any
) -> tuple[jax.Array, jax.Array]:
    """Results of all rows and all columns, from tiles of `chunk` images and all texts."""

    def body(columns: jax.Array, part: tuple) -> tuple[jax.Array, jax.Array]:
        rows, tile_columns = tile(*part, texts, numbers)
        return merge.merge(columns, tile_columns), rows

    parts = split((image, texts.pair_masks), chunk)
    rows, columns = tile(*jax.tree.map(lambda x: x[0], parts), texts, numbers)
    columns, others = jax.lax.scan(body, columns, jax.tree.map(lambda x: x[1:], parts))
    return jnp.concatenate([rows, others.reshape(-1)])[: len(image)], columns


def _chunks_forward(
    tile: Tile, merge: Merge, chunk: int, image: jax.Array, texts: Texts, numbers: Any
) -> tuple[Any, tuple]:
    merged = over_chunks(tile, merge, chunk, image, texts, numbers)
    return merged, (image, texts, numbers, merged)


def _chunks_backward(tile: Tile, merge: Merge, chunk: int, saved: tuple, slopes: tuple) -> tuple:
    image, texts, numbers, (rows, columns) = saved
    of_rows, of_columns = slopes

    def body(sums: tuple, part: tuple) -> tuple[tuple, jax.Array]:
        image, pair_masks, rows, of_rows = part
        merged = (rows, columns), (of_rows, of_columns)
        of_image, *others = _tile_slopes(tile, merge, image, pair_masks, texts, numbers, *merged)
        return jax.tree.map(jnp.add, sums, tuple(others)), of_image

    parts = split((image, texts.pair_masks, rows, of_rows), chunk)
    start = jax.tree.map(jnp.zeros_like, (texts[:2], numbers))
    (of_texts, of_numbers), of_image = jax.lax.scan(body, start, parts)
    of_image = of_image.reshape(-1, *image.shape[1:])[: len(image)]
    return of_image, Texts(*of_texts, None), of_numbers


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


def _ring_backward(tile: Tile, merge: Merge, ring: Ring, saved: tuple, slopes: tuple) -> tuple:
    image, texts, numbers, (rows, columns) = saved
    of_rows, of_columns = slopes

    def slopes_with(visitor: tuple) -> tuple:
        texts_, columns, of_columns = visitor
        merged = (rows, columns), (of_rows, of_columns)
        return _tile_slopes(tile, merge, image, texts.pair_masks, texts_, numbers, *merged)

    def hop(carry: tuple, _: None) -> tuple[tuple, None]:
        of_image, of_texts, of_numbers, visitor = carry
        visitor, of_texts = to_next_device((visitor, of_texts), ring)
        sums = jax.tree.map(jnp.add, (of_image, of_texts, of_numbers), slopes_with(visitor))
        return (*sums, visitor), None

    visitor = texts, columns, of_columns
    carry = (*slopes_with(visitor), visitor)
    carry, _ = jax.lax.scan(hop, carry, None, length=ring.devices - 1)
    of_image, of_texts, of_numbers, _ = carry
    return of_image, Texts(*to_next_device(of_texts, ring), None), of_numbers


over_ring.defvjp(_ring_forward, _ring_backward)


def _tile_slopes(
    tile: Tile,
    merge: Merge,
    image: jax.Array,
    pair_masks: masks.PairMasks,
    texts: Texts,
    numbers: Any,
    merged: tuple,
    slopes: tuple,
) -> tuple[jax.Array, tuple, Any]:
    """Slopes by images, embeddings of texts and numbers that one tile adds, from those by the
    `merged` results of its rows and columns."""

    def results(image: jax.Array, embeddings: tuple, numbers: Any) -> tuple:
        return tile(image, pair_masks, Texts(*embeddings, texts.pair_masks), numbers)

    found, pull_back = jax.vjp(results, image, texts[:2], numbers)
    shares = jax.tree.map(
        lambda one, merged, slope: slope * merge.share(one, merged), found, merged, slopes
    )
    return pull_back(shares)
