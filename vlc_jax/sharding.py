"""The only room that says "device": the mesh, where arrays live on it, what the hardware can do.

Parameters and optimizer state follow one rule by shape (`state_shardings`), batches are split over
every mesh axis (`put_batch`). jit does the rest: arrays are global, so `image @ text.T` is the
similarity matrix of the global batch on any number of devices and hosts.
"""

import ctypes
import platform
import time
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import psutil
from jax.experimental import multihost_utils
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from vlc_jax.errors import UsageError
from vlc_jax.types import BATCH_AXES

SHARD_FROM = 2**14  # elements; smaller leaves are cheaper to replicate than to gather

# Dense bfloat16 peaks in FLOP/s as their makers publish them; the prefix of `device_kind` decides.
PEAK_FLOPS = {
    "NVIDIA A100": 312e12,
    "NVIDIA H100": 989e12,
    "NVIDIA H200": 989e12,
    "TPU v3": 123e12,
    "TPU v4": 275e12,
    "TPU v5 lite": 197e12,
    "TPU v5e": 197e12,
    "TPU v5p": 459e12,
    "TPU v5": 459e12,
    "TPU v6 lite": 918e12,
    "TPU v6e": 918e12,
}


def make_mesh(data: int = -1, fsdp: int = 1, batch_size: int | None = None) -> Mesh:
    """A (data, fsdp) mesh over all devices; -1 means: all that are left.

    Raises UsageError when the sizes do not multiply to the device count, or when the devices do
    not divide `batch_size`.
    """
    devices = jax.device_count()
    sizes = {"data": data, "fsdp": fsdp}
    fixed = int(np.prod([size for size in sizes.values() if size != -1]))
    if list(sizes.values()).count(-1) > 1 or min(sizes.values()) == 0 or fixed < 1:
        raise UsageError(f"mesh sizes are positive, at most one of them -1; got {sizes}")
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
    return jax.make_mesh(
        (sizes["data"], sizes["fsdp"]), BATCH_AXES, axis_types=(AxisType.Auto, AxisType.Auto)
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


def any_process(flag: bool) -> bool:
    """True everywhere when `flag` is True on any process; a collective if there are several."""
    if jax.process_count() == 1:
        return flag
    return bool(np.any(multihost_utils.process_allgather(np.asarray(flag))))


def broadcast(value: int) -> int:
    """The integer process 0 holds, on every process."""
    if jax.process_count() == 1:
        return value
    return int(multihost_utils.broadcast_one_to_all(np.asarray(value, np.int64)))


def connect(coordinator: str | None, processes: int | None, index: int | None) -> None:
    """Joins the processes of one run and finds the devices; call it before anything else of JAX.

    `coordinator` is host:port of process 0, "auto" where the cluster says it itself (TPU pods,
    Slurm), None for a run of one process. Raises UsageError when there are no such processes or
    devices.
    """
    # Among several processes JAX would take SIGTERM for itself; `preemption` handles it.
    jax.config.update("jax_enable_preemption_service", False)
    try:
        if coordinator == "auto":
            jax.distributed.initialize()
        elif coordinator:
            jax.distributed.initialize(coordinator, processes, index)
        devices = jax.device_count()
    except (RuntimeError, ValueError) as error:
        wanted = f"--coordinator={coordinator}: " if coordinator else ""
        raise UsageError(f"cannot start JAX: {wanted}{error}") from error
    if jax.default_backend() == "cpu" and devices > 1:
        # jax 0.10.2 reads a CPU program with ppermute wrongly from its persistent cache: the ring
        # loss hangs or computes garbage, where a freshly compiled one is right.
        jax.config.update("jax_enable_compilation_cache", False)
    _keep_freed_memory()


def _keep_freed_memory() -> None:
    """Makes the C library keep freed memory, where JAX runs on a CPU under glibc.

    XLA asks for its temporary buffers anew in every step. By default glibc maps large ones afresh
    each time, and touching fresh pages takes a third of a step of the default model
    (docs/scaling.md).
    """
    if jax.default_backend() != "cpu" or platform.libc_ver()[0] != "glibc":
        return
    libc = ctypes.CDLL("libc.so.6")
    trim_threshold, mmap_max, arena_max = -1, -4, -8  # of malloc.h
    libc.mallopt(mmap_max, 0)
    libc.mallopt(trim_threshold, -1)
    libc.mallopt(arena_max, 1)  # what is kept, all threads share


def require_platform(wanted: str) -> None:
    """Raises UsageError unless JAX runs on `wanted` ("any" accepts all)."""
    found = jax.default_backend()
    if wanted not in ("any", found):
        raise UsageError(
            f"config.platform asks for {wanted!r} but JAX found {found!r} ({jax.devices()[0]}); "
            f"install the {wanted} build of jaxlib or set config.platform={found}"
        )


def peak_flops() -> tuple[float, str]:
    """Peak FLOP/s of one device, and where the figure comes from.

    Accelerators: the published dense bfloat16 peak. Unknown ones and the CPU: the best of a few
    float32 matrix products measured now (half a second), shared among the simulated devices.
    """
    kind = jax.devices()[0].device_kind
    for prefix in sorted(PEAK_FLOPS, key=len, reverse=True):
        if kind.startswith(prefix):
            return PEAK_FLOPS[prefix], f"published bfloat16 peak of {prefix}"
    size = 1536
    a = jax.device_put(np.ones((size, size), np.float32), jax.local_devices()[0])
    product = jax.jit(jnp.matmul)
    product(a, a).block_until_ready()
    seconds = []
    for _ in range(6):
        start = time.perf_counter()
        product(a, a).block_until_ready()
        seconds.append(time.perf_counter() - start)
    sharing = jax.local_device_count() if jax.default_backend() == "cpu" else 1
    return 2 * size**3 / min(seconds) / sharing, "measured float32 matmul"


def memory_gb() -> float:
    """Peak memory of the fullest local device in GB; on the CPU the resident set of the process."""
    if jax.default_backend() == "cpu":
        return psutil.Process().memory_info().rss / 1e9
    return max(d.memory_stats()["peak_bytes_in_use"] for d in jax.local_devices()) / 1e9
