"""Checkpoints: seconds that a save blocks training, until it is complete, and of a restore.

  python speed/checkpoint.py --model B/16
  python speed/checkpoint.py --model mini --store gs://BUCKET/speed

Ours (run/checkpoint.py: Orbax, with a sha256 of every file that a restore verifies) and plain Orbax
as in its documentation (CheckpointManager, asynchronous) save and restore the state of a run with
AdamW, interleaved by round. Nothing computes between two saves, so a writing thread has the machine
to itself. The page cache is not dropped: restores read from memory where it suffices.
"""

import argparse
import os
import platform
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # run as a file, from any folder

import jax  # noqa: E402
import orbax.checkpoint as ocp  # noqa: E402

from vlc_jax import models, setup  # noqa: E402
from vlc_jax.configs import default  # noqa: E402
from vlc_jax.input_pipeline import stores  # noqa: E402
from vlc_jax.run.checkpoint import Checkpoints  # noqa: E402
from vlc_jax.run.store.step_folders import LocalSteps, StoreSteps  # noqa: E402
from vlc_jax.setup.state import init_state, state_shapes  # noqa: E402

MEASURED = ("held up, s", "until it counts, s", "restore, s")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="B/16", help="a variant of vlc_jax/models/variants.py")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="on the disk to measure; default: /tmp")
    parser.add_argument("--store", help="URL of a further folder to measure")
    args = parser.parse_args()
    state, shapes = make_state(args.model)
    size = sum(leaf.nbytes for leaf in jax.tree.leaves(state))
    print(
        f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, jax "
        f"{jax.__version__}, orbax {ocp.__version__}; {args.model}, a state of {size / 1e6:,.0f} MB"
    )
    local = Path(tempfile.mkdtemp(dir=args.folder))
    try:
        measure("local disk", str(local), state, shapes, args.rounds)
    finally:
        shutil.rmtree(local)
    if args.store:
        measure(args.store, args.store, state, shapes, args.rounds)


def make_state(variant: str) -> tuple[Any, Any]:
    """The initial state of a run with the default config, and its shapes."""
    config = default.get_config()
    run = setup.of_model(config, models.build(variant=variant), config.steps)
    return jax.jit(partial(init_state, run))({})._asdict(), state_shapes(run, {})._asdict()


def measure(title: str, where: str, state: Any, shapes: Any, rounds: int) -> None:
    """Prints a row of seconds per side, and the ratios by round."""
    sides = {"ours": ours(f"{where}/ours", shapes), "orbax": plain(f"{where}/orbax", shapes)}
    seconds: dict[str, list[tuple[float, ...]]] = {name: [] for name in sides}
    for step in range(1, rounds + 2):
        for name, (save, wait, restore) in sides.items():
            times = [time.perf_counter()]
            for work in (lambda: save(step, state), wait, lambda: jax.block_until_ready(restore())):  # noqa: B023
                work()
                times.append(time.perf_counter())
            if step > 1:  # the first round allocates memory
                seconds[name].append(
                    (times[1] - times[0], times[2] - times[0], times[3] - times[2])
                )
    print(f"\n{title:32}" + "".join(f"{name:>22}" for name in MEASURED))
    for name, rows in seconds.items():
        columns = [statistics.median(column) for column in zip(*rows, strict=True)]
        print(f"{name:32}" + "".join(f"{value:22.2f}" for value in columns))
    ratios = [
        [mine / theirs for mine, theirs in zip(a, b, strict=True)]
        for a, b in zip(seconds["ours"], seconds["orbax"], strict=True)
    ]
    spans = [(statistics.median(r), min(r), max(r)) for r in zip(*ratios, strict=True)]
    print(
        f"{'ours / orbax':32}"
        + "".join(f"{f'{m:.2f} ({lo:.2f} to {hi:.2f})':>22}" for m, lo, hi in spans)
    )


Side = tuple[Callable[[int, Any], Any], Callable[[], Any], Callable[[], Any]]


def ours(where: str, shapes: Any) -> Side:
    is_store = stores.is_url(where)
    folders = StoreSteps(stores.folder(where)) if is_store else LocalSteps(Path(where))
    checkpoints = Checkpoints(folders, keep_last=1)
    return checkpoints.save, checkpoints.wait, lambda: checkpoints.restore(shapes)


def plain(where: str, shapes: Any) -> Side:
    options = ocp.CheckpointManagerOptions(max_to_keep=1, enable_async_checkpointing=True)
    manager = ocp.CheckpointManager(where, options=options)

    def restore() -> Any:
        return manager.restore(manager.latest_step(), args=ocp.args.StandardRestore(shapes))

    def save(step: int, state: Any) -> None:
        manager.save(step, args=ocp.args.StandardSave(state))

    return save, manager.wait_until_finished, restore


if __name__ == "__main__":
    main()
