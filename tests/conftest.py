"""Tests see one simulated CPU device, or eight if some of them need several; ranks are strict."""

import gc
import os
import signal
from pathlib import Path

from jaxlib import version

# Without LLVM's optimisations programs compile in half the time, and without the emitters of fused
# loops in half of that; jaxlib 0.11 has no others, and ends the interpreter at a flag it does not
# know, but compiles a twentieth faster what is not split over threads. XLA reads the variable once,
# when JAX starts; processes of tests inherit it, and of two values of a flag the later one counts.
os.environ["XLA_FLAGS"] = (
    "--xla_backend_optimization_level=0 --xla_cpu_parallel_codegen_split_count=1 "
    f"{'--xla_cpu_use_fusion_emitters=false' if version.__version_info__ < (0, 11) else ''} "
    f"{os.environ.get('XLA_FLAGS', '')}"
).strip()

import jax
import pytest

from tests.support import compilations
from tests.support.hub import hub  # noqa: F401 -- a fixture
from tests.support.store import _emulator, store  # noqa: F401 -- fixtures

jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_numpy_rank_promotion", "raise")

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    # As in a background job of a shell; processes would inherit it and wait for no interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)

ROOT = Path(__file__).parent
LONGEST = (  # files and folders whose tests start first, lest one of them is left over at the end
    *(f"end_to_end/test_{name}.py" for name in ("docs", "text_vectors", "heads", "devices")),
    *(
        "end_to_end",
        "studies",
        "train/test_train.py",
        "configs/test_config_training.py",
        "configs/test_configs.py",
        "train/test_microbatch.py",
        "models",
        "run/processes/test_peers.py",  # which waits more than it computes
    ),
)


def pytest_configure(config: pytest.Config) -> None:
    """Chooses the devices: `-m "... not devices"` leaves out the tests of several."""
    if "not devices" in config.option.markexpr:
        jax.config.update("jax_num_cpu_devices", 1)
        # Programs for several devices of a CPU come wrong out of the cache (jax 0.10.2).
        compilations.keep(ROOT.parent)
    else:
        jax.config.update("jax_num_cpu_devices", 8)
    compilations.count()
    gc.freeze()  # what is imported stays
    gc.set_threshold(100_000, 50, 50)  # tracing makes many objects, and few circles of them


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leaves out files without a test of several devices, where `-m` asks for such tests alone: to
    import all files takes ten seconds.
    """
    has_them_alone = "devices" in config.option.markexpr.replace("not devices", "")
    is_file = collection_path.match("test_*.py")
    if has_them_alone and is_file and "mark.devices" not in collection_path.read_text():
        return True
    return None  # pytest decides


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
