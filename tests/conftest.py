"""Every test sees eight simulated CPU devices, strict ranks, and warnings as errors."""

import os
import signal

# Without LLVM's optimisations programs compile in half the time, and without the emitters of fused
# loops in half of that: most of the time of these tests. XLA reads the variable once, when JAX
# starts; processes of tests inherit it, and of two values of a flag the later one counts.
os.environ["XLA_FLAGS"] = (
    "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false "
    f"{os.environ.get('XLA_FLAGS', '')}".strip()
)

import jax
import pytest

from tests.support.store import _emulator, store  # noqa: F401 -- fixtures

jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", 8)
jax.config.update("jax_numpy_rank_promotion", "raise")

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    # As in a background job of a shell; processes would inherit it and wait for no interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)

LONGEST = (  # files and folders whose tests start first, lest one of them is left over at the end
    *(f"end_to_end/test_{name}.py" for name in ("docs", "text_vectors", "heads", "devices")),
    *(
        "end_to_end",
        "studies",
        "test_train.py",
        "test_config_training.py",
        "test_configs.py",
        "test_microbatch.py",
        "models",
        "run/test_peers.py",  # which waits more than it computes
    ),
)


def pytest_collection_modifyitems(items):
    def rank(item):
        path = item.path.as_posix()
        ranks = (i for i, part in enumerate(LONGEST) if f"/tests/{part}" in path)
        return next(ranks, len(LONGEST))

    items.sort(key=rank)


@pytest.fixture
def workdir(tmp_path):
    """An empty folder for one run."""
    return tmp_path / "run"
