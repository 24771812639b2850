"""Tiles of a score matrix: chunks of images on one device, a ring of texts over devices."""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import AbstractMesh, Mesh
from jaxtyping import Array, Float

from vlc_jax import errors
from vlc_jax.losses import masks


class Texts(NamedTuple):
    """Embeddings of captions, and of their hard negatives if they have any."""

    text: Float[Array, "texts embed"]
    negative_text: Float[Array, "texts negatives embed"] | None
    pair_masks: masks.PairMasks


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


def to_next_device(arrays: Any, *, axes: tuple[str, ...], devices: int) -> Any:
    """Sends each device's arrays to the next one of the ring; inside shard_map."""
    to_next = [(i, (i + 1) % devices) for i in range(devices)]
    return jax.tree.map(lambda x: jax.lax.ppermute(x, axes, to_next), arrays)
