"""Hardware of a run: connects its processes, lists devices, their peak FLOP/s and memory."""

import fcntl
import functools
import importlib.util
import os
import platform
import socket
import stat
import tempfile
import time
from pathlib import Path
from typing import Any, TextIO

import jax
import jax.numpy as jnp
import numpy as np
import psutil

from vlc_jax.devices import chips
from vlc_jax.errors import PeerError, UsageError

_NO_TPU = {
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-1",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_WORKER_ID": "0",
    "TPU_STDERR_LOG_LEVEL": "3",
    "TPU_MIN_LOG_LEVEL": "3",
}


_CLAIMED: list[TextIO] = []  # files that are open until the process ends


def connect(
    coordinator: str | None,
    processes: int | None = None,
    index: int | None = None,
    seconds: float = 300.0,
) -> None:
    """Connects the processes of a run and initialises JAX's devices; call it before any use of JAX.

    coordinator: host:port of process 0; "auto" on clusters that JAX detects (TPU pods, Slurm);
      None for a run of one process.   seconds: timeout for the other processes; JAX then aborts.
    Raises UsageError if processes or devices are missing.
    """
    keep_libtpu_quiet()
    # With several processes JAX would handle SIGTERM itself; `preemption` handles it.
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
        flag = f"--coordinator={coordinator}: " if coordinator else ""
        raise UsageError(f"cannot start JAX: {flag}{error}") from error
    if jax.default_backend() == "cpu" and devices > 1:
        # jax 0.10.2 loads a CPU program with ppermute wrongly from its persistent cache: the ring
        # loss hangs or computes garbage; freshly compiled it is right.
        jax.config.update("jax_enable_compilation_cache", False)


def keep_libtpu_quiet() -> None:
    """Tells libtpu, which is installed for plans, that this host has no TPU; else it looks for one
    and prints five lines of errors. Call it before any use of JAX's devices."""
    # JAX sets it at its import on a host without TPUs
    if os.environ.get("TPU_SKIP_MDS_QUERY") and "JAX_FORCE_TPU_INIT" not in os.environ:
        for key, value in _NO_TPU.items():
            os.environ.setdefault(key, value)


@functools.cache
def claim(seconds: float = 30.0) -> None:
    """Claims the accelerators of this process, before JAX is used; CPUs are shared.

    JAX takes most of an accelerator's memory, so a second process there would fail later.
    Raises UsageError if another process has claimed them and keeps them for `seconds`.
    """
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", os.environ.get("TPU_VISIBLE_CHIPS", "all"))
    path = Path(tempfile.gettempdir()) / f"vlc_jax-{os.getuid()}-{visible.replace('/', '_')}.lock"
    file, end = path.open("a"), time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            if time.monotonic() > end:
                file.close()
                raise UsageError(
                    f"another process of this machine computes on its accelerators ({visible}): "
                    "start one worker process per accelerator, each with its own "
                    "CUDA_VISIBLE_DEVICES"
                ) from None
            time.sleep(0.1)
    if is_cpu():
        file.close()
    else:
        # locked until the process ends
        _CLAIMED.append(file)


def check_cache() -> None:
    """Raises UsageError if every user of this host can write to JAX's compilation cache.

    JAX runs the programs that it reads there.
    """
    folder = jax.config.jax_compilation_cache_dir
    # of an object store: rights are its own
    if folder and os.path.isdir(folder) and os.stat(folder).st_mode & stat.S_IWOTH:
        raise UsageError(
            f"JAX_COMPILATION_CACHE_DIR={folder} can be written by every user of this host, and "
            f"JAX runs the programs in it: chmod o-w {folder}, or name another folder"
        )


def check_port(coordinator: str, seconds: float = 10.0) -> None:
    """Raises PeerError if another program listens on the port of `coordinator`, on this host.

    For process 0, which listens there; JAX would abort, once all processes have started.
    seconds: for an earlier run that is about to end.
    """
    port = coordinator.rpartition(":")[2]
    if not port.isdecimal() or not 0 < int(port) < 2**16:
        raise UsageError(f"--coordinator is host:port of process 0; got {coordinator!r}")
    until = time.monotonic() + seconds
    while (problem := _bind(int(port))) and time.monotonic() < until:
        time.sleep(0.2)
    if problem:
        raise PeerError(
            f"port {port} of --coordinator={coordinator} cannot be used on this host, "
            f"{socket.gethostname()} ({problem}): end the program that has it, or name another "
            "port to all processes"
        )


def _bind(port: int) -> str:
    """Why a port of this host cannot be listened on; "" if it can."""
    with socket.socket() as tried:
        # as JAX's server: connections of an earlier run that time out are no hindrance
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind(("", port))
        except OSError as error:
            return error.strerror or str(error)
    return ""


def matrix_dtype(platform: str) -> str:
    """Dtype of config.model.dtype=auto: bfloat16 on accelerators, float32 on a CPU, where it is
    several times faster."""
    return "float32" if platform == "cpu" else "bfloat16"


def platform_name(device: Any = None) -> str:
    """Platform of a device: cpu | gpu | tpu. None: of JAX's default backend."""
    return jax.default_backend() if device is None else device.platform


def is_cpu() -> bool:
    """True if JAX computes on the CPU, simulated devices included."""
    return jax.default_backend() == "cpu"


def process() -> tuple[int, int]:
    """(index of this process, number of processes)."""
    return jax.process_index(), jax.process_count()


def count() -> int:
    """Number of devices of all processes."""
    return jax.device_count()


def all_devices() -> list[Any]:
    """All devices of all processes."""
    return list(jax.devices())


def topology_devices(name: str) -> list[Any]:
    """Devices of a TPU slice such as v5e:16x16, to compile for; they need not be attached.

    Raises UsageError without libtpu, and for a slice that libtpu does not know.
    """
    if not (importlib.util.find_spec("libtpu") or os.environ.get("TPU_LIBRARY_PATH")):
        raise UsageError(
            f"--plan_topology={name} needs the compiler of TPUs: pip install 'vlc_jax[plan]'"
        )
    # outside the cloud libtpu must not query a metadata server for the host's part of a slice
    for key, value in _NO_TPU.items():
        os.environ.setdefault(key, value)
    # libtpu locks the chips for one process; compiling uses no chips
    os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")
    from jax.experimental import topologies

    # cached programs could not be loaded without these devices
    jax.config.update("jax_enable_compilation_cache", False)

    try:
        # as on real v4 hosts, where the two cores of a chip are one device
        options = {"chip_config_name": "megacore"} if name.startswith("v4") else {}
        topology = topologies.get_topology_desc(topology_name=name, platform="tpu", **options)
        return list(topology.devices)
    except Exception as error:  # the compiler's exception type differs between versions
        reason = str(error).strip().splitlines()[0]
        raise UsageError(
            f"--plan_topology={name} is not a TPU slice such as v5e:4x4, v6e:16x16 or "
            f"v5p:4x4x4: {reason}"
        ) from error


def has_pinned_host(device: Any) -> bool:
    """True if programs of the device can store arrays in pinned host memory; a CPU lists it, but
    cannot compile for it."""
    kinds = [memory.kind for memory in device.addressable_memories()]
    return device.platform != "cpu" and "pinned_host" in kinds


def require_pinned_host(device: Any) -> None:
    """Raises UsageError unless `has_pinned_host`."""
    if not has_pinned_host(device):
        raise UsageError(
            "config.model.remat=offload stores activations in pinned host memory, which "
            f"{kind(device)} lacks: set config.model.remat=dots or block"
        )


def kind(device: Any) -> str:
    """Device kind, such as "TPU v5 lite"."""
    return device.device_kind


def chip(device: Any) -> chips.Chip | None:
    """Published figures of a device; None for an unknown one."""
    match = chips.find(kind(device))
    return match[1] if match else None


def shares_host_memory(device: Any) -> bool:
    """True if a device's memory is the host's: a CPU device, simulated or not."""
    return device.platform == "cpu"


def memory_limit(device: Any) -> float:
    """Memory of a device for programs, in bytes.

    The device's own figure, else the published one, else the host's memory divided by the number of
    simulated devices.
    """
    if jax.default_backend() == device.platform:
        try:
            stats = device.memory_stats()
        except jax.errors.JaxRuntimeError:  # a device of `topology_devices`
            stats = None
        if stats and "bytes_limit" in stats:
            return float(stats["bytes_limit"])
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
    """(peak FLOP/s of one device, source of the figure).

    Accelerators: the published dense bfloat16 peak. Unknown ones and the CPU: the best of a few
    float32 matrix products measured now (a tenth of a second), divided by the number of simulated
    devices.
    """
    if match := chips.find(kind(jax.devices()[0])):
        return match[1].flops, f"published bfloat16 peak of {match[0]}"
    # larger matrices are no faster
    size = 1024
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
