"""Every test sees eight simulated CPU devices, strict ranks, and warnings as errors."""

import jax
import pytest
from absl import flags

jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", 8)
jax.config.update("jax_numpy_rank_promotion", "raise")
if not flags.FLAGS.is_parsed():
    flags.FLAGS.mark_as_parsed()  # grain's worker processes read absl flags


@pytest.fixture
def workdir(tmp_path):
    """An empty folder for one run."""
    return tmp_path / "run"
