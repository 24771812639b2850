"""JAX's persistent compilation cache (JAX_COMPILATION_CACHE_DIR), and where it is wrong."""

import pytest

from tests.support import helpers

PROGRAM = """
import sys
import jax
from vlc_jax.devices import runtime
jax.config.update("jax_compilation_cache_dir", sys.argv[1])  # as the variable does
runtime.connect(None)
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)  # as fast as this one compiles
jax.block_until_ready(jax.jit(lambda x: x + 1)(1.0))
"""


@pytest.mark.parametrize("devices", [1, 2])
def test_programs_are_cached_but_for_several_devices_of_a_cpu(tmp_path, devices):
    done = helpers.interpreter("-c", PROGRAM, str(tmp_path), devices=devices)
    assert done.returncode == 0, done.stderr
    assert bool([*tmp_path.glob("*-cache")]) == (devices == 1)
