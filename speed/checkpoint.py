"""Checkpoints: seconds that a save holds up training, until it counts, and of a restore.

  python speed/checkpoint.py --model B/16
  python speed/checkpoint.py --model mini --store gs://BUCKET/speed

Ours (run/checkpoint.py: Orbax, with a sha256 of every file that a restore verifies) and plain Orbax
as in its documentation (CheckpointManager, asynchronous) save and restore the state of a run with
AdamW, in turn, in --folder (default: /tmp) and in a store. Nothing computes between two saves, so a
writing thread has the machine to itself. The page cache is not dropped: restores read from memory
where it suffices.
"""

import itertools
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

Manager = tuple[Callable[[int, Any], Any], Callable[[], Any], Callable[[], Any]]


def main(model: str = "B/16", folder: str = "", store: str = "", rounds: int = 3) -> None:
    config = default.get_config()
    run = setup.step_setup(config, models.build(variant=model), config.steps)
    state = jax.jit(partial(init_state, run))({})._asdict()
    shapes = state_shapes(run, {})._asdict()
    size = sum(leaf.nbytes for leaf in jax.tree.leaves(state))
    with tempfile.TemporaryDirectory(dir=folder or None) as local:
        for title, where in (("local disk", local), (store, store)):
            sides = {"ours": ours, "orbax": plain}
            made = {
                name: cycle(side(f"{where}/{name}", shapes), state)
                for name, side in sides.items()
                if where
            }
            if made:
                title = f"{title}, {model}, {size / 1e6:,.0f} MB"
                harness.compare(title, made, rounds, "orbax")


def cycle(manager: Manager, state: Any) -> harness.Side:
    """A function that saves and restores once, and returns the seconds."""
    save, wait, restore = manager
    # a manager refuses to save a step that it has
    numbers = itertools.count(1)

    def run() -> dict[str, float]:
        start = time.perf_counter()
        save(next(numbers), state)
        saved = time.perf_counter()
        wait()
        complete = time.perf_counter()
        # the arrays of a restore may arrive after it has returned
        jax.block_until_ready(restore())
        restored = time.perf_counter()
        return {
            "held up, s": saved - start,
            "it counts, s": complete - start,
            "restore, s": restored - complete,
        }

    return run


def ours(where: str, shapes: Any) -> Manager:
    path = any_path.of(where)
    folders = LocalSteps(path) if isinstance(path, Path) else StoreSteps(path)
    checkpoints = Checkpoints(folders, keep_last=1)
    return checkpoints.save, checkpoints.wait, lambda: checkpoints.restore(shapes)


def plain(where: str, shapes: Any) -> Manager:
    options = ocp.CheckpointManagerOptions(max_to_keep=1, enable_async_checkpointing=True)
    manager = ocp.CheckpointManager(where, options=options)

    def restore() -> Any:
        return manager.restore(manager.latest_step(), args=ocp.args.StandardRestore(shapes))

    def save(step: int, state: Any) -> None:
        manager.save(step, args=ocp.args.StandardSave(state))

    return save, manager.wait_until_finished, restore


if __name__ == "__main__":
    harness.command(main)
