"""The mesh, and where arrays live on it.

Parameters and optimizer state follow one rule by shape (`state_shardings`), batches are split over
every mesh axis (`put_batch`). jit does the rest: arrays are global, so `image @ text.T` is the
similarity matrix of the global batch on any number of devices and hosts.
"""

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.experimental import mesh_utils, multihost_utils
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from vlc_jax.errors import UsageError
from vlc_jax.types import BATCH_AXES

SHARD_FROM = 2**14  # elements; smaller leaves are cheaper to replicate than to gather


def make_mesh(
    data: int = -1,
    fsdp: int = 1,
    batch_size: int | None = None,
    hardware: Sequence[Any] | None = None,
) -> Mesh:
    """A (data, fsdp) mesh over all devices; -1 means: all that are left.

    hardware: the devices, None for those there are.
    Devices of several slices (TPU) or nodes (GPU) lie as `over_slices` says.
    Raises UsageError when the sizes do not multiply to the device count, or do not fit the slices,
    or when the devices do not divide `batch_size`.
    """
    hardware = jax.devices() if hardware is None else hardware
    devices = len(hardware)
    sizes = {"data": data, "fsdp": fsdp}
    fixed = int(np.prod([size for size in sizes.values() if size != -1]))
    if list(sizes.values()).count(-1) > 1 or min(sizes.values()) == 0 or fixed < 1:
        raise UsageError(f"mesh sizes are positive, at most one of them -1; got {sizes}")
    if -1 in sizes.values() and devices % fixed:
        raise UsageError(f"mesh {sizes} needs a multiple of {fixed} devices, found {devices}")
    sizes = {axis: devices // fixed if size == -1 else size for axis, size in sizes.items()}
    if sizes["data"] * sizes["fsdp"] != devices:
        raise UsageError(
            f"mesh {sizes} needs {sizes['data'] * sizes['fsdp']} devices, found {devices}; "
            "set config.mesh.data=-1 to use all of them"
        )
    if batch_size is not None and batch_size % devices:
        near = sorted(
            {max(1, batch_size // devices) * devices, -(-batch_size // devices) * devices}
        )
        raise UsageError(
            f"batch_size {batch_size} is not divisible by {devices} devices; "
            f"use {' or '.join(map(str, near))}"
        )
    axis_types = (AxisType.Auto, AxisType.Auto)
    if len({getattr(device, "slice_index", 0) for device in hardware}) > 1:
        # which jax.make_mesh refuses
        return Mesh(over_slices(hardware, sizes["fsdp"]), BATCH_AXES, axis_types=axis_types)
    shape = (sizes["data"], sizes["fsdp"])
    return jax.make_mesh(shape, BATCH_AXES, axis_types=axis_types, devices=hardware)


def over_slices(devices: Sequence[Any], fsdp: int) -> np.ndarray:
    """The devices of several slices as an array (data, fsdp), each with its slice_index.

    The fsdp axis, which gathers parameters in every block, stays inside a slice, and the data axis,
    which adds gradients once a step, goes over them. Where a slice has fewer than `fsdp` devices,
    the fsdp axis takes whole slices.
    Raises UsageError for slices of different sizes, or that `fsdp` does not fit.
    """
    counts = Counter(device.slice_index for device in devices)
    slices, size = len(counts), min(counts.values())
    if size != max(counts.values()):
        raise UsageError(f"slices hold {sorted(counts.values())} devices; a mesh needs equal ones")
    inside = min(fsdp, size)
    outside = fsdp // inside
    if size % inside or fsdp % inside or slices % outside:
        raise UsageError(
            f"config.mesh.fsdp={fsdp} does not fit {slices} slices of {size} devices: take a "
            f"divisor of {size}, or {size} times a divisor of {slices}"
        )
    return mesh_utils.create_hybrid_device_mesh(
        (size // inside, inside),
        (slices // outside, outside),
        devices,
        allow_split_physical_axes=True,  # else some shapes of a slice are refused
    )


def replicated(mesh: Mesh) -> NamedSharding:
    """The same array on every device."""
    return NamedSharding(mesh, PartitionSpec())


def batch_sharding(mesh: Mesh) -> NamedSharding:
    """Axis 0 split over all devices."""
    return NamedSharding(mesh, PartitionSpec(BATCH_AXES))


def state_shardings(mesh: Mesh, shapes: Any) -> Any:
    """A tree of NamedSharding for a tree of shapes: big leaves split their longest axis over fsdp.

    The rule looks at shapes only, so a moment of the optimizer always lies like its parameter.
    """
    fsdp = mesh.shape["fsdp"]

    def rule(leaf: Any) -> NamedSharding:
        spec: list[str | None] = [None] * len(leaf.shape)
        if fsdp > 1 and np.prod(leaf.shape) >= SHARD_FROM:
            axes = sorted(range(len(leaf.shape)), key=lambda axis: -leaf.shape[axis])
            fitting = [axis for axis in axes if leaf.shape[axis] % fsdp == 0]
            if fitting:
                spec[fitting[0]] = "fsdp"
        return NamedSharding(mesh, PartitionSpec(*spec))

    return jax.tree.map(rule, shapes)


# Paths in a language model's parameters (models/lm.py), layers on axis 0 -> how they are split. A
# mesh may lack the axis "tensor", along which matrices are split by heads and hidden features, so
# that only the sums of out and down are communicated.
LANGUAGE_MODEL: tuple[tuple[str, PartitionSpec], ...] = (
    (r"(.*/)?blocks/(query|key|value|gate|up)/kernel", PartitionSpec(None, "fsdp", "tensor")),
    (r"(.*/)?blocks/(out|down)/kernel", PartitionSpec(None, "tensor", "fsdp")),
    (r"(.*/)?token_embedding/embedding", PartitionSpec("tensor", "fsdp")),
    (r"(.*/)?head", PartitionSpec("fsdp", "tensor")),
)


def language_model_shardings(mesh: Mesh, shapes: Any) -> Any:
    """A tree of NamedSharding by LANGUAGE_MODEL; leaves that no row names as in `state_shardings`.

    An axis that the mesh lacks, or whose size does not divide the leaf's, is not split.
    """

    def rule(path: Any, leaf: Any, otherwise: NamedSharding) -> NamedSharding:
        name = "/".join(str(key.key) for key in path)
        for regex, spec in LANGUAGE_MODEL:
            if re.fullmatch(regex, name):
                fits = (
                    axis if axis in mesh.shape and size % mesh.shape[axis] == 0 else None
                    for axis, size in zip(spec, leaf.shape, strict=True)
                )
                return NamedSharding(mesh, PartitionSpec(*fits))
        return otherwise

    return jax.tree.map_with_path(rule, shapes, state_shardings(mesh, shapes))


def place_shapes(mesh: Mesh, shapes: Any) -> Any:
    """A tree of shapes and dtypes with the shardings of `state_shardings`; nothing is allocated."""
    return jax.tree.map(
        lambda leaf, where: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=where),
        shapes,
        state_shardings(mesh, shapes),
    )


def shard_bytes(arrays: Any) -> int:
    """Bytes that one device holds of a tree of arrays, or of shapes with a sharding."""
    return sum(
        math.prod(leaf.sharding.shard_shape(leaf.shape)) * leaf.dtype.itemsize
        for leaf in jax.tree.leaves(arrays)
    )


def put_batch(mesh: Mesh, batch: Mapping[str, np.ndarray]) -> dict[str, jax.Array]:
    """Host-local rows -> global arrays; host h contributes rows [h*local, (h+1)*local)."""
    sharding = batch_sharding(mesh)
    return {
        key: jax.make_array_from_process_local_data(sharding, array) for key, array in batch.items()
    }


def put_like(arrays: Any, like: Any) -> Any:
    """The numpy arrays of a tree, the same on every process, where the leaves of `like` lie."""
    return jax.tree.map(
        lambda x, leaf: jax.make_array_from_callback(leaf.shape, leaf.sharding, lambda i: x[i]),
        arrays,
        like,
    )


def to_host(arrays: Any) -> Any:
    """The values of replicated arrays as numpy; waits until they are computed."""
    return jax.device_get(arrays)


def any_process(flag: bool) -> bool:
    """True everywhere when `flag` is True on any process; a collective if there are several."""
    if jax.process_count() == 1:
        return flag
    return bool(np.any(multihost_utils.process_allgather(np.asarray(flag))))


def same_everywhere(digest: bytes) -> bool:
    """True if every process calls it with the same bytes, of one length; a collective if there are
    several."""
    if jax.process_count() == 1:
        return True
    found = multihost_utils.process_allgather(np.frombuffer(digest, np.uint8))
    return bool((found == found[:1]).all())
