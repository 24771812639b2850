"""Checkpoints: seconds that a save blocks training, until it is complete, and of a restore.

  python speed/checkpoint.py --model B/16
  python speed/checkpoint.py --model mini --store gs://BUCKET/speed

Ours (run/checkpoint.py: Orbax, with a sha256 of every file that a restore verifies) and plain Orbax
as in its documentation (CheckpointManager, asynchronous) save and restore the state of a run with
AdamW, interleaved by round. Nothing computes between two saves, so a writing thread has the machine
to itself. The page cache is not dropped: restores read from memory where it suffices.
"""

import itertools
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import orbax.checkpoint as ocp

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # run as a file, from any folder

from speed import harness
from vlc_jax import models, setup
from vlc_jax.configs import default
from vlc_jax.input_pipeline.stores import any_path
from vlc_jax.run.checkpoint import Checkpoints
from vlc_jax.run.store.step_folders import LocalSteps, StoreSteps
from vlc_jax.setup.state import init_state, state_shapes

Save, Wait = Callable[[int, Any], Any], Callable[[], Any]
MEASURED = ("held up, s", "until it counts, s", "restore, s")


def main() -> None:
    parser = harness.parser(__doc__, rounds=3)
    parser.add_argument("--model", default="B/16", help="a variant of vlc_jax/models/variants.py")
    parser.add_argument("--folder", type=Path, help="on the disk to measure; default: /tmp")
    parser.add_argument("--store", help="URL of a further folder to measure")
    args = parser.parse_args()
    state, shapes = make_state(args.model)
    size = sum(leaf.nbytes for leaf in jax.tree.leaves(state))
    harness.print_machine(f"jax {jax.__version__}", f"orbax {ocp.__version__}")
    print(f"{args.model}, a state of {size / 1e6:,.0f} MB")
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
    measured = harness.interleave(
        {name: cycle(*side, state) for name, side in sides.items()}, rounds
    )
    columns = {name: list(zip(*rows, strict=True)) for name, rows in measured.items()}
    print(f"\n{title:32}" + "".join(f"{name:>22}" for name in MEASURED))
    for name, values in columns.items():
        print(f"{name:32}" + "".join(f"{statistics.median(each):22.2f}" for each in values))
    ratios = map(harness.ratio, columns["ours"], columns["orbax"])
    spans = "".join(f"{f'{each.median:.2f} ({each.span})':>22}" for each in ratios)
    print(f"{'ours / orbax':32}{spans}")


def cycle(
    save: Save, wait: Wait, restore: Wait, state: Any
) -> Callable[[], tuple[float, float, float]]:
    """A function that saves and restores once, and returns the seconds of MEASURED."""
    # a manager refuses to save a step that it has
    numbers = itertools.count(1)

    def run() -> tuple[float, float, float]:
        start = time.perf_counter()
        save(next(numbers), state)
        saved = time.perf_counter()
        wait()
        complete = time.perf_counter()
        # the arrays of a restore may arrive after it has returned
        jax.block_until_ready(restore())
        return saved - start, complete - start, time.perf_counter() - complete

    return run


def ours(where: str, shapes: Any) -> tuple[Save, Wait, Wait]:
    path = any_path.of(where)
    folders = LocalSteps(path) if isinstance(path, Path) else StoreSteps(path)
    checkpoints = Checkpoints(folders, keep_last=1)
    return checkpoints.save, checkpoints.wait, lambda: checkpoints.restore(shapes)


def plain(where: str, shapes: Any) -> tuple[Save, Wait, Wait]:
    options = ocp.CheckpointManagerOptions(max_to_keep=1, enable_async_checkpointing=True)
    manager = ocp.CheckpointManager(where, options=options)

    def restore() -> Any:
        return manager.restore(manager.latest_step(), args=ocp.args.StandardRestore(shapes))

    def save(step: int, state: Any) -> None:
        manager.save(step, args=ocp.args.StandardSave(state))

    return save, manager.wait_until_finished, restore


if __name__ == "__main__":
    main()
