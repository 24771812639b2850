"""Compiled programs: a cache on disk that all processes of tests share, and a count by test file.

The number of programs that a file asks for is the same on a busy machine, where seconds are not.
"""

import functools
import os
from pathlib import Path
from typing import Any

import jax
from flax import linen as nn

COUNTED = "VLC_COUNT_PROGRAMS"  # the variable that names the file of counts
_EVENTS = {
    "/jax/core/compile/backend_compile_duration": "asked",  # compiled, or taken from the cache
    "/jax/compilation_cache/cache_hits": "cached",
}


def cache_variables(root: Path) -> dict[str, str]:
    """Environment of a process that keeps what it compiles, however small it is."""
    return {
        "JAX_COMPILATION_CACHE_DIR": str(root / ".pytest_cache" / "jax"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }


def keep(root: Path) -> None:
    """Keeps what this process compiles."""
    for name, value in cache_variables(root).items():
        jax.config.update(name.lower(), value if "DIR" in name else float(value))


def count() -> None:
    """Appends a line per program to the file that VLC_COUNT_PROGRAMS names: asked or cached, tab,
    the running test.
    """
    if COUNTED not in os.environ:
        return
    # lines of several processes do not mix: each is one write at the end of the file
    file = os.open(os.environ[COUNTED], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def write(event: str, *_: float, **__: str) -> None:
        if event in _EVENTS:
            test = os.environ.get("PYTEST_CURRENT_TEST", "")  # processes of a test inherit it
            os.write(file, f"{_EVENTS[event]}\t{test}\n".encode())

    jax.monitoring.register_event_duration_secs_listener(write)
    jax.monitoring.register_event_listener(write)


def apply(module: nn.Module, variables: Any, *arguments: Any, method: Any = None) -> Any:
    """`module.apply` as one program, where it would compile each of its operations by itself."""
    return jax.jit(functools.partial(module.apply, method=method))(variables, *arguments)
