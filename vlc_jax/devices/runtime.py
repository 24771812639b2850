"""Hardware: processes joined, devices found, their peak speed and memory.

With sharding.py the only file that says "device".
"""

import ctypes
import importlib.util
import logging
import os
import platform
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import psutil

from vlc_jax.devices import chips
from vlc_jax.errors import UsageError
from vlc_jax.input_pipeline import stores

_NO_TPU = {
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-1",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_WORKER_ID": "0",
    "TPU_STDERR_LOG_LEVEL": "3",
    "TPU_MIN_LOG_LEVEL": "3",
}


def connect(
    coordinator: str | None,
    processes: int | None = None,
    index: int | None = None,
    seconds: float = 300.0,
) -> None:
    """Joins the processes of one run and finds the devices; call it before anything else of JAX.

    coordinator: host:port of process 0, "auto" where the cluster says it itself (TPU pods, Slurm),
      None for a run of one process.   seconds: how long to wait for the others; JAX then aborts.
    Raises UsageError when there are no such processes or devices.
    """
    # Among several processes JAX would take SIGTERM for itself; `preemption` handles it.
    jax.config.update("jax_enable_preemption_service", False)
    try:
        if coordinator == "auto":
            jax.distributed.initialize(initialization_timeout=int(seconds))
        elif coordinator:
            jax.distributed.initialize(
                coordinator, processes, index, initialization_timeout=int(seconds)
            )
        devices = jax.device_count()
    except (RuntimeError, ValueError) as error:
        wanted = f"--coordinator={coordinator}: " if coordinator else ""
        raise UsageError(f"cannot start JAX: {wanted}{error}") from error
    if jax.default_backend() == "cpu" and devices > 1:
        # jax 0.10.2 reads a CPU program with ppermute wrongly from its persistent cache: the ring
        # loss hangs or computes garbage, where a freshly compiled one is right.
        jax.config.update("jax_enable_compilation_cache", False)
    _keep_freed_memory()


def keep_compiled(folder: str | None) -> None:
    """Keeps compiled programs in `folder`, and takes from it what is there; call it after `connect`
    and before anything is compiled.

    folder: a path or an address; None: as the environment of JAX says. Programs that compile in
      less than a second are not kept (JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS).

    Raises UsageError for a folder that cannot be made.
    """
    if folder is None:
        return
    if not stores.is_url(folder):
        try:
            os.makedirs(folder, exist_ok=True)
        except OSError as error:
            raise UsageError(f"config.compilation_cache={folder}: {error}") from error
        folder = os.path.abspath(folder)
    if not jax.config.jax_enable_compilation_cache:  # see `connect`
        logging.warning("config.compilation_cache is not used on several devices of a CPU")
    jax.config.update("jax_compilation_cache_dir", folder)


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
    libc.mallopt(arena_max, 1)  # one arena, so that threads reuse each other's freed memory


def require_platform(wanted: str) -> None:
    """Raises UsageError unless JAX runs on `wanted` ("any" accepts all)."""
    found = jax.default_backend()
    if wanted not in ("any", found):
        raise UsageError(
            f"config.platform asks for {wanted!r} but JAX found {found!r} ({jax.devices()[0]}); "
            f"install the {wanted} build of jaxlib or set config.platform={found}"
        )


def matrix_dtype(platform: str) -> str:
    """The dtype of matrix products unless a config says otherwise: bfloat16 where there are
    units for it, float32 on a CPU, where it is several times faster."""
    return "float32" if platform == "cpu" else "bfloat16"


def platform_name(device: Any = None) -> str:
    """Platform of a device, None for JAX's backend: cpu | gpu | tpu."""
    return jax.default_backend() if device is None else device.platform


def is_cpu() -> bool:
    """True if JAX computes on the CPU, simulated devices included."""
    return jax.default_backend() == "cpu"


def process() -> tuple[int, int]:
    """Index of this process, and number of all."""
    return jax.process_index(), jax.process_count()


def count() -> int:
    """Number of devices of all processes."""
    return jax.device_count()


def there() -> list[Any]:
    """All devices of all processes."""
    return list(jax.devices())


def of_topology(name: str) -> list[Any]:
    """The devices of a TPU slice such as v5e:16x16, to compile for; none has to be there.

    Raises UsageError without libtpu, and for a slice that it does not know.
    """
    if not (importlib.util.find_spec("libtpu") or os.environ.get("TPU_LIBRARY_PATH")):
        raise UsageError(
            f"config.plan.topology={name} needs the compiler of TPUs: pip install 'vlc_jax[plan]'"
        )
    # a host of no cloud has no metadata server to ask, and no part of a slice
    for key, value in _NO_TPU.items():
        os.environ.setdefault(key, value)
    # libtpu is for one process at a time, which holds the chips; a compiler holds none
    os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")
    from jax.experimental import topologies

    # JAX's cache would keep programs that no process can read without these devices
    jax.config.update("jax_enable_compilation_cache", False)

    try:
        # as JAX has them on such hosts: the two cores of a v4 are one device
        options = {"chip_config_name": "megacore"} if name.startswith("v4") else {}
        found = topologies.get_topology_desc(topology_name=name, platform="tpu", **options)
        return list(found.devices)
    except Exception as error:  # of the compiler, each version another one
        reason = str(error).strip().splitlines()[0]
        raise UsageError(
            f"config.plan.topology={name} is no slice of TPUs, such as v5e:4x4, v6e:16x16 or "
            f"v5p:4x4x4: {reason}"
        ) from error


def has_pinned_host(device: Any) -> bool:
    """True if programs of the device may keep arrays in pinned memory of its host."""
    return any(memory.kind == "pinned_host" for memory in device.addressable_memories())


def require_pinned_host(device: Any) -> None:
    """Raises UsageError unless `has_pinned_host`."""
    if not has_pinned_host(device):
        raise UsageError(
            "config.model.remat=offload keeps activations in pinned memory of the host, which "
            f"{kind(device)} has not: take config.model.remat=dots or block"
        )


def kind(device: Any) -> str:
    """Its name, such as "TPU v5 lite"."""
    return device.device_kind


def chip(device: Any) -> chips.Chip | None:
    """Published figures of a device; None for an unknown one."""
    found = chips.find(kind(device))
    return found[1] if found else None


def shares_host_memory(device: Any) -> bool:
    """True if the limit of a device's memory is the host's: a CPU, simulated or not."""
    return device.platform == "cpu"


def memory_limit(device: Any) -> float:
    """Bytes that programs may use of a device: as it says, else as its maker does, else the host's
    memory, shared among the simulated devices."""
    if jax.default_backend() == device.platform:
        try:
            found = device.memory_stats()
        except jax.errors.JaxRuntimeError:  # a device of a topology
            found = None
        if found and "bytes_limit" in found:
            return float(found["bytes_limit"])
    if published := chip(device):
        return published.memory
    return psutil.virtual_memory().total / jax.local_device_count()


def hardware() -> dict[str, Any]:
    """Devices, processes and host of this run, for env.json."""
    return {
        "platform": jax.default_backend(),
        "devices": sorted({kind(device) for device in jax.devices()}),
        "device_count": jax.device_count(),
        "process_count": jax.process_count(),
        "cpu": f"{platform.machine()}, {os.cpu_count()} cores",
        "host": platform.node(),
    }


def peak_flops() -> tuple[float, str]:
    """Peak FLOP/s of one device, and where the figure comes from.

    Accelerators: the published dense bfloat16 peak. Unknown ones and the CPU: the best of a few
    float32 matrix products measured now (a tenth of a second), shared among the simulated devices.
    """
    if found := chips.find(kind(jax.devices()[0])):
        return found[1].flops, f"published bfloat16 peak of {found[0]}"
    size = 1024  # reaches what larger ones reach
    a = jax.device_put(np.ones((size, size), np.float32), jax.local_devices()[0])
    product = jax.jit(jnp.matmul)
    product(a, a).block_until_ready()
    seconds = []
    while len(seconds) < 2 or (len(seconds) < 6 and sum(seconds) < 0.05):
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
