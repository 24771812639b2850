"""The mesh, and the shardings of arrays on it.

Parameters and optimizer state follow one rule by path and shape (`state_shardings`); batches are
split over every mesh axis but "tensor" (`put_batch`). Arrays are global under jit, so that
`image @ text.T` is the similarity matrix of the global batch on any number of devices and hosts.
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

# Elements; smaller leaves are cheaper to replicate than to gather.
SHARD_FROM = 2**14


def make_mesh(
    data: int = -1,
    fsdp: int = 1,
    tensor: int = 1,
    batch_size: int | None = None,
    hardware: Sequence[Any] | None = None,
) -> Mesh:
    """A mesh over all devices, (data, fsdp) or (data, fsdp, tensor); -1: all remaining devices.

    tensor: size of tensor parallelism: these devices hold the same rows of a batch and split the
      matrices of a language model (LANGUAGE_MODEL). 1: the mesh has no such axis.
    hardware: the devices; None: all attached devices.
    Devices of several slices (TPU) or nodes (GPU) are ordered by `over_slices`.
    Raises UsageError if the product of the sizes is not the device count, if they do not fit the
    slices, or if the devices do not divide `batch_size`.
    """
    hardware = jax.devices() if hardware is None else hardware
    devices = len(hardware)
    sizes = {"data": data, "fsdp": fsdp, "tensor": tensor}
    fixed = math.prod(size for size in sizes.values() if size != -1)
    if list(sizes.values()).count(-1) > 1 or min(sizes.values()) == 0 or fixed < 1:
        raise UsageError(f"mesh sizes are positive, at most one of them -1; got {sizes}")
    if -1 in sizes.values() and devices % fixed:
        raise UsageError(f"mesh {sizes} needs a multiple of {fixed} devices, found {devices}")
    sizes = {axis: devices // fixed if size == -1 else size for axis, size in sizes.items()}
    if (needed := math.prod(sizes.values())) != devices:
        raise UsageError(
            f"mesh {sizes} needs {needed} devices, found {devices}; "
            "set config.mesh.data=-1 to use all of them"
        )
    if sizes["tensor"] == 1:
        del sizes["tensor"]
    _check_batch_size(batch_size, devices // sizes.get("tensor", 1))
    names, shape = tuple(sizes), tuple(sizes.values())
    axis_types = (AxisType.Auto,) * len(names)
    if len({getattr(device, "slice_index", 0) for device in hardware}) > 1:
        # jax.make_mesh refuses devices of several slices
        return Mesh(over_slices(hardware, *shape[1:]), names, axis_types=axis_types)
    mesh = jax.make_mesh(shape, names, axis_types=axis_types, devices=hardware)
    if "tensor" in names:
        _check_processes(mesh)
    return mesh


def _check_batch_size(batch_size: int | None, devices: int) -> None:
    if batch_size is None or batch_size % devices == 0:
        return
    near = sorted({max(1, batch_size // devices) * devices, -(-batch_size // devices) * devices})
    raise UsageError(
        f"batch_size {batch_size} is not divisible by {devices} devices; "
        f"use {' or '.join(map(str, near))}"
    )


def _check_processes(mesh: Mesh) -> None:
    """Raises UsageError if an axis "tensor" spans processes, which would read the same rows."""
    for row in mesh.devices.reshape(-1, mesh.shape["tensor"]):
        if len({device.process_index for device in row}) > 1:
            raise UsageError(
                f"config.mesh.tensor={mesh.shape['tensor']} spans devices of several processes, "
                "which would read the same rows: use at most the devices of one process"
            )


def over_slices(devices: Sequence[Any], fsdp: int, tensor: int = 1) -> np.ndarray:
    """Devices of several slices as an array (data, fsdp), or (data, fsdp, tensor) if tensor > 1.

    devices: all with a slice_index.
    The fsdp axis, which gathers parameters in every block, stays inside a slice, and so does the
    tensor axis; the data axis, which adds gradients once a step, spans slices. If a slice has fewer
    than `fsdp` devices, the fsdp axis spans whole slices.
    Raises UsageError for slices of different sizes, and for `fsdp` or `tensor` that do not fit.
    """
    counts = Counter(device.slice_index for device in devices)
    slices, size = len(counts), min(counts.values())
    if size != max(counts.values()):
        raise UsageError(f"slices hold {sorted(counts.values())} devices; a mesh needs equal ones")
    if size % tensor:
        raise UsageError(
            f"config.mesh.tensor={tensor} does not fit slices of {size} devices: take a divisor"
        )
    size //= tensor
    inside = min(fsdp, size)
    outside = fsdp // inside
    if size % inside or fsdp % inside or slices % outside:
        raise UsageError(
            f"config.mesh.fsdp={fsdp} does not fit {slices} slices of {size} devices: take a "
            f"divisor of {size}, or {size} times a divisor of {slices}"
        )
    last = (tensor,) if tensor > 1 else ()
    return mesh_utils.create_hybrid_device_mesh(
        (size // inside, inside, *last),
        (slices // outside, outside, *(1 for _ in last)),
        devices,
        # otherwise some shapes of a slice are refused
        allow_split_physical_axes=True,
    )


def one_device(mesh: Mesh) -> Any:
    """The first device of the mesh; all its devices are of one kind."""
    return mesh.devices.flat[0]


def replicated(mesh: Mesh) -> NamedSharding:
    """Sharding of an array that is replicated on every device."""
    return NamedSharding(mesh, PartitionSpec())


def batch_sharding(mesh: Mesh) -> NamedSharding:
    """Sharding of axis 0 over all mesh axes but "tensor", whose devices hold the same rows."""
    return NamedSharding(mesh, PartitionSpec(BATCH_AXES))


# Paths of a language model's parameters (models/lm.py), below "lm" with layers on axis 0, and of
# its adapters (models/lora.py) -> sharding. Along "tensor" matrices are split by heads and hidden
# features, so that only the outputs of out and down are summed over devices (Megatron-LM).
_IN = r"(.*/)?lm/(blocks|cross)/(query|key|value|gate|up)/kernel"
_OUT = r"(.*/)?lm/(blocks|cross)/(out|down)/kernel"
LANGUAGE_MODEL: tuple[tuple[str, PartitionSpec], ...] = (
    (_IN, PartitionSpec(None, "fsdp", "tensor")),
    (_OUT, PartitionSpec(None, "tensor", "fsdp")),
    (r"(.*/)?lm/token_embedding/embedding", PartitionSpec("tensor", "fsdp")),
    (r"(.*/)?lm/head", PartitionSpec("fsdp", "tensor")),
    # a (inputs, rank) and b (rank, outputs) are split over tensor on the same axis as the matrix
    (f"{_IN}/a", PartitionSpec(None, "fsdp", None)),
    (f"{_IN}/b", PartitionSpec(None, "fsdp", "tensor")),
    (f"{_IN}/magnitude", PartitionSpec(None, "tensor")),
    (f"{_OUT}/a", PartitionSpec(None, "tensor", "fsdp")),
    (f"{_OUT}/b", PartitionSpec(None, None, "fsdp")),
    (f"{_OUT}/magnitude", PartitionSpec(None, "fsdp")),
)


def state_shardings(mesh: Mesh, shapes: Any) -> Any:
    """A tree of NamedSharding for a tree of shapes.

    Language models follow LANGUAGE_MODEL; of all other leaves large ones split their longest axis
    over fsdp. A mesh axis that is missing, or does not divide the leaf's axis, is not used. The
    rule depends on the end of a path and on shapes, so that an optimizer moment is sharded like its
    parameter.
    """

    def rule(path: Any, leaf: Any) -> NamedSharding:
        name = "/".join(str(getattr(key, "key", "")) for key in path)
        table = (spec for regex, spec in LANGUAGE_MODEL if re.fullmatch(regex, name))
        return NamedSharding(mesh, _fitting(mesh, next(table, None), leaf.shape))

    return jax.tree.map_with_path(rule, shapes)


def _fitting(mesh: Mesh, spec: PartitionSpec | None, shape: Sequence[int]) -> PartitionSpec:
    """`spec` without axes that do not fit the shape; None: the longest axis that fsdp divides."""

    def fits(axis: str | None, size: int) -> bool:
        return axis in mesh.shape and size % mesh.shape[axis] == 0

    if spec is not None:
        pairs = zip(spec, shape, strict=True)
        return PartitionSpec(*(axis if fits(axis, size) else None for axis, size in pairs))
    axis_names: list[str | None] = [None] * len(shape)
    if mesh.shape["fsdp"] > 1 and math.prod(shape) >= SHARD_FROM:
        axes = sorted(range(len(shape)), key=lambda axis: -shape[axis])
        fitting = [axis for axis in axes if fits("fsdp", shape[axis])]
        if fitting:
            axis_names[fitting[0]] = "fsdp"
    return PartitionSpec(*axis_names)


def row_groups(mesh: Mesh) -> int:
    """Number of batch shards (product of the batch axes)."""
    return math.prod(mesh.shape[axis] for axis in BATCH_AXES)


def place_shapes(mesh: Mesh, shapes: Any) -> Any:
    """A tree of shapes and dtypes with the shardings of `state_shardings`; allocates nothing."""
    return jax.tree.map(
        lambda leaf, sharding: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding),
        shapes,
        state_shardings(mesh, shapes),
    )


def shard_bytes(arrays: Any) -> int:
    """Bytes per device of a tree of arrays, or of shapes with shardings."""
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


def on_host() -> Any:
    """A context in which JAX computes on the CPU, if JAX_PLATFORMS leaves it one."""
    has_cpu = "cpu" in (jax.config.jax_platforms or "cpu")
    return jax.default_device(jax.local_devices(backend="cpu")[0] if has_cpu else None)


def put_like(arrays: Any, like: Any) -> Any:
    """Puts a tree of numpy arrays, equal on every process, on devices.

    Shardings and dtypes are those of `like`. Arrays that are on devices already stay unchanged.
    """

    def put(x: np.ndarray | jax.Array, leaf: Any) -> jax.Array:
        if isinstance(x, jax.Array):
            return x
        return jax.make_array_from_callback(
            leaf.shape, leaf.sharding, lambda index: x[index].astype(leaf.dtype, copy=False)
        )

    return jax.tree.map(put, arrays, like)


def to_host(arrays: Any) -> Any:
    """Replicated arrays as numpy; waits until they are computed."""
    return jax.device_get(arrays)


def is_on_cpu_here(array: jax.Array) -> bool:
    """True if this process holds the whole array on its CPU."""
    is_cpu = all(device.platform == "cpu" for device in array.sharding.device_set)
    return array.is_fully_addressable and is_cpu


def any_process(flag: bool) -> bool:
    """Logical or of `flag` over processes (all-gather)."""
    return bool(largest(int(flag)))


def largest(number: int) -> int:
    """Maximum of `number` over processes (all-gather)."""
    if jax.process_count() == 1:
        return number
    return int(np.max(multihost_utils.process_allgather(np.asarray(number))))


def same_everywhere(digest: bytes) -> bool:
    """True if all processes have the same `digest` (all-gather), whose length must be equal."""
    if jax.process_count() == 1:
        return True
    digests = multihost_utils.process_allgather(np.frombuffer(digest, np.uint8))
    return bool((digests == digests[:1]).all())
