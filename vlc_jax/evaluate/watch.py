"""Evaluation beside training: `--mode eval --watch RUN` evaluates each new checkpoint of RUN."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax

from vlc_jax import models
from vlc_jax.devices import runtime
from vlc_jax.errors import UsageError
from vlc_jax.evaluate.benchmarks import Evaluation
from vlc_jax.input_pipeline.stores import fetch
from vlc_jax.run.checkpoint import CheckpointError
from vlc_jax.run.processes.preemption import StopSignal
from vlc_jax.run.store.step_folders import steps_of
from vlc_jax.run.workdir import EVAL_FIELDS, Workdir, differing_fields, is_workdir, read_object
from vlc_jax.setup import addresses, init_from
from vlc_jax.types.setup import Setup

POLL_SECONDS = 15.0  # an evaluation takes longer, and a listing costs a shared disk something
ENDS = ("DONE", "FAILED")


def watch(setup: Setup, workdir: Workdir, stop: StopSignal, address: Path | str) -> None:
    """Evaluates the newest checkpoint of the run at `address` in `workdir`, and again whenever
    there is a newer one, until the run has ended. Checkpoints that are gone before their turn are
    left out.

    address: a local folder, or one of an object store. It is only read, and may be trained
      meanwhile; results are filed under its steps.

    Raises UsageError if it is no run, or has another model than the config.
    """
    run = addresses.copy_of("--watch", address)
    _check(setup, workdir, run)
    evaluation = Evaluation(setup, workdir, stop)
    stop.interrupt(evaluation.read)
    while True:
        fetch.refresh(address)
        # looked at first: the last checkpoint is older than these files
        has_ended = any((run / name).exists() for name in ENDS)
        step = newest_step(run)
        if step is not None and not evaluation.is_complete(step):
            latest = _load(setup, workdir, run, has_ended)
            if latest is not None and not evaluation.is_complete(latest.step):
                _claim(setup, workdir, latest.params)
                evaluation.forget_after(latest.step)  # of a run that began anew in its folder
                evaluation.run(latest.variables, latest.step)
                evaluation.publish(latest.step)
                continue
        if has_ended:
            return
        wait(stop)


def newest_step(run: Path) -> int | None:
    """The step of the newest checkpoint of a run; None without any."""
    return max(steps_of(run).steps(), default=None)


def wait(stop: StopSignal) -> None:
    """Waits POLL_SECONDS; raises PreemptedError on a signal."""
    until = time.monotonic() + POLL_SECONDS
    while time.monotonic() < until:
        stop.check()
        time.sleep(0.2)  # resumes after a signal's handler


def _load(setup: Setup, workdir: Workdir, run: Path, has_ended: bool) -> init_from.Latest | None:
    try:
        return init_from.load_latest(setup, run, workdir.event)
    except CheckpointError:
        if has_ended:
            raise
        return None  # deleted while it was read: there is a newer one soon


def _check(setup: Setup, workdir: Workdir, run: Path) -> None:
    if jax.process_count() > 1:
        raise UsageError("--watch is for one process, with any number of devices")
    if setup.evaluation.interpolation.other:
        raise UsageError("--watch evaluates a run alone: leave config.interpolate out")
    if not is_workdir(run) or not (run / "config.json").exists():
        raise UsageError(f"--watch is the workdir of a run; {run} is none")
    if is_workdir(workdir.path) and steps_of(workdir.path).exists():
        raise UsageError(
            f"--workdir {workdir.name} holds a run of its own: results of --watch {run} go to "
            "another folder"
        )
    found = differing_fields(read_object(run / "config.json"), setup.config, EVAL_FIELDS)
    if found:
        raise UsageError(f"the run in {run} has another config:\n  " + "\n  ".join(found))


def _claim(setup: Setup, workdir: Workdir, params: Mapping[str, Any]) -> None:
    if not (workdir.path / "config.json").exists():
        workdir.claim(setup.config)
        counts = models.parameter_counts(params)
        workdir.write_env(hardware=runtime.hardware(), parameters=counts, input={})
