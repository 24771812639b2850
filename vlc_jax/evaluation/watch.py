"""Evaluates a run while it trains: `--mode eval --watch RUN` evaluates each new checkpoint."""

import time
from functools import partial
from pathlib import Path

import jax

from vlc_jax.errors import UsageError
from vlc_jax.evaluation.benchmarks import Evaluation
from vlc_jax.evaluation.mode import claim
from vlc_jax.input_pipeline.stores import fetch
from vlc_jax.run.checkpoint import CheckpointError
from vlc_jax.run.processes.preemption import StopSignal
from vlc_jax.run.store.step_folders import steps_of
from vlc_jax.run.workdir import EVAL_FIELDS, Workdir, differing_fields, is_workdir, read_object
from vlc_jax.setup import addresses, config_of_run, init_from
from vlc_jax.types.setup import Setup

# Shorter than an evaluation, and rare enough for a shared disk.
POLL_SECONDS = 15.0
END_FILES = ("DONE", "FAILED")


def watch(setup: Setup, workdir: Workdir, stop: StopSignal, address: Path | str) -> None:
    """Evaluates each new checkpoint of the run at `address` in `workdir`, until the run has ended.

    Only the newest checkpoint is evaluated; checkpoints that were deleted meanwhile are skipped.
    address: a local folder, or one of an object store, which is only read. Results are filed under
      the run's steps.

    Raises UsageError if it is not a run, or has another model than the config.
    """
    run = addresses.copy_of("--watch", address)
    _check(setup, workdir, run)
    evaluation = Evaluation(setup, workdir, stop)
    stop.interrupt(evaluation.read)
    while True:
        stop.interrupt(partial(fetch.refresh, address))
        # before the checkpoints: these files are written after the last one
        has_ended = any((run / name).exists() for name in END_FILES)
        step = newest_step(run)
        if step is not None and not evaluation.is_complete(step):
            latest = stop.interrupt(partial(_load, setup, workdir, run, has_ended))
            if latest is not None and not evaluation.is_complete(latest.step):
                claim(setup, workdir, latest.params)
                # results of an earlier run in the same folder
                evaluation.forget_after(latest.step)
                evaluation.run(latest.variables, latest.step)
                evaluation.publish(latest.step)
                continue
        if has_ended:
            return
        wait(stop)


def newest_step(run: Path) -> int | None:
    """Step of the newest checkpoint of a run; None if it has none."""
    return max(steps_of(run).steps(), default=None)


def wait(stop: StopSignal) -> None:
    """Waits POLL_SECONDS; raises PreemptedError on a signal."""
    until = time.monotonic() + POLL_SECONDS
    while time.monotonic() < until:
        stop.check()
        # short, since a sleep continues after a signal's handler
        time.sleep(0.2)


def _load(setup: Setup, workdir: Workdir, run: Path, has_ended: bool) -> init_from.Latest | None:
    try:
        return init_from.load_latest(setup, run, workdir.event)
    except CheckpointError:
        if has_ended:
            raise
        # deleted while it was read: a newer one follows soon
        return None


def _check(setup: Setup, workdir: Workdir, run: Path) -> None:
    if jax.process_count() > 1:
        raise UsageError("--watch is for one process, with any number of devices")
    if setup.evaluation.interpolation.other:
        raise UsageError("--watch evaluates a run alone: leave config.interpolate out")
    if not is_workdir(run) or not (run / "config.json").exists():
        raise UsageError(f"--watch needs the workdir of a run; {run} is not one")
    if is_workdir(workdir.path) and steps_of(workdir.path).exists():
        raise UsageError(
            f"--workdir {workdir.name} holds another run: name another folder for the results of "
            f"--watch {run}"
        )
    saved = read_object(run / "config.json")
    config_of_run.check(saved, run / "config.json")
    fields = differing_fields(saved, setup.config, EVAL_FIELDS)
    if fields:
        raise UsageError(f"the run in {run} has another config:\n  " + "\n  ".join(fields))
