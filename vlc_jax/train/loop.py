"""The train loop: steps, metrics read one step late, checkpoints and evaluations."""

import contextlib
import sys
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from vlc_jax.devices import runtime, sharding
from vlc_jax.errors import ExitCode, PreemptedError, UsageError
from vlc_jax.evaluation.benchmarks import Evaluation
from vlc_jax.run.checkpoint import Checkpoints
from vlc_jax.run.processes.preemption import StopSignal
from vlc_jax.run.processes.watchdog import Watchdog
from vlc_jax.run.workdir import Workdir, is_workdir
from vlc_jax.setup import config_of_run, init_from
from vlc_jax.train import compiled_step
from vlc_jax.train.batches import BatchIterator
from vlc_jax.train.first_state import load_frozen_for_step, restore_or_init
from vlc_jax.train.metrics_log import MetricsLog
from vlc_jax.train.step import Batch
from vlc_jax.types import State
from vlc_jax.types.setup import Setup, TrainingSetup


def train(
    setup: Setup,
    workdir: Workdir,
    stop: StopSignal,
    allow_change: bool,
    pretraining: Setup | None = None,
) -> None:
    """Trains to the last step, from the latest checkpoint of `workdir` or from the start.

    pretraining: a run to train or resume first in WORKDIR/pretrain; its parameters initialise this
    one. Raises UsageError, DataError, DivergedError, CheckpointError, and PreemptedError after
    SIGTERM or SIGINT once the state is saved.
    """
    # before pretraining, which may take hours: missing weights are refused now
    init_from.check_exists(setup, workdir.path)
    if pretraining is not None:
        # before pretraining: bad data is refused now
        stop.interrupt(setup.training.data.check_preview, has_begun=False)
        setup = run_pretraining(pretraining, setup, workdir, stop, allow_change)
    training = setup.training
    # after pretraining, which sets init_from in the config
    workdir.check_config(setup.config, allow_change, check=config_of_run.check)
    frozen, fingerprints = load_frozen_for_step(setup)
    workdir.check_data(fingerprints, allow_change)
    workdir.check_images(training.data.image_sizes, allow_change)
    workdir.check_modules()
    # before compiling, and before the workdir is claimed
    stop.interrupt(training.data.check_preview, has_begun=False)
    evaluation = Evaluation(setup, workdir, stop)
    stop.interrupt(evaluation.read, has_begun=False)

    # interruptible: it hashes a checkpoint and may read weights
    state, checkpoints = stop.interrupt(partial(restore_or_init, setup, workdir, frozen))
    start = int(state.step)
    if start > training.steps:
        raise UsageError(
            f"the state in {workdir.name} is at step {start}, beyond the {training.steps} steps of "
            "the config; set more steps or use another --workdir"
        )
    evaluation.forget_after(start)  # later steps are trained again
    # only now does the run write into the folder: errors above leave it unchanged
    workdir.claim(setup.config)
    counts = setup.parameters.count(frozen, state.params)
    facts = {"hardware": runtime.hardware(), "parameters": counts, "input": fingerprints}
    workdir.write_env(**facts, image_sizes=training.data.image_sizes)
    _note_start(workdir, start, training.steps)

    batches = BatchIterator(setup, workdir, start)
    log = MetricsLog(setup, workdir, start, batches.record_ids, checkpoints)
    run = Run(setup, frozen, batches, log, checkpoints, evaluation)
    watchdog = _watchdog(log, workdir, training)
    # callbacks run in reverse order: the watchdog closes last, since the wait for a save may hang
    with contextlib.ExitStack() as last:
        last.callback(watchdog.close)
        last.callback(run.write_time)
        last.callback(run.wait_for_save)
        last.callback(batches.close)
        last.callback(log.close)
        run.loop(state, stop)
    finish(workdir, evaluation, training.steps)


def _note_start(workdir: Workdir, start: int, steps: int) -> None:
    workdir.event("resume" if start else "start", step=start, steps=steps)
    if start and workdir.is_writer:
        print(f"resumed at step {start} of {steps} from {workdir.name}", file=sys.stderr)


def _watchdog(log: MetricsLog, workdir: Workdir, training: TrainingSetup) -> Watchdog:
    return Watchdog(
        log.clock,
        *training.watchdog,
        stacks=workdir.stacks,
        on_hang=partial(workdir.fail, ExitCode.HANG),
        lost=workdir.lost,
        announce=partial(workdir.announce, ExitCode.HANG),
    )


def finish(workdir: Workdir, evaluation: Evaluation, steps: int) -> None:
    """Marks the run as done, then prints and writes its results."""
    workdir.finish(step=steps)
    with workdir.after_done():
        workdir.event("done", step=steps)
    with workdir.after_done():
        evaluation.publish(steps)


class Run(NamedTuple):
    """The train loop of a run; the training state is passed to `loop`."""

    setup: Setup
    frozen: Any
    batches: BatchIterator
    log: MetricsLog
    checkpoints: Checkpoints
    evaluation: Evaluation

    def loop(self, state: State, stop: StopSignal) -> None:
        """Trains `state` to the last step, with checkpoints and evaluations.

        Raises PreemptedError once the state is saved, DivergedError after a non-finite step, whose
        update is not applied.
        """
        setup, log, batches = self.setup, self.log, self.batches
        steps, start = setup.training.steps, int(state.step)
        one_step = compiled_step.CompiledSteps(setup, self.frozen)
        step = start
        try:
            if step == 0 and setup.origin.path and not is_workdir(Path(setup.origin.path)):
                self.evaluate(0, state)  # published weights before the first step
            if step < steps:
                batch = batches.next(stop, log.clock)
                self.compile(one_step, state, batch, stop)
            while True:
                # saved before the evaluation: a kill during a long one must not lose steps
                if is_due(step, setup.training.checkpoint["every"], steps):
                    self.save(step, state)
                if is_due(step, setup.evaluation.every, steps):
                    self.evaluate(step, state)
                if step == steps:
                    return
                # texts of another length than any before (config.text.lengths)
                if not one_step.has(batch):
                    self.compile(one_step, state, batch, stop)
                # a step must cause no implicit transfer; log and batches transfer outside
                with jax.transfer_guard("disallow"):
                    state, metrics = one_step(state, batch)
                if len(setup.training.data.text_lengths) > 1:
                    metrics["text_length"] = np.float32(batch["text"].shape[1])
                step += 1
                # metrics of step n-1 are read after step n is dispatched: the device never waits
                # for the host
                log.append(step, metrics, one_step.flops(batch))
                log.raise_if_stopped(stop)
                if step < steps:  # read while the step runs
                    batch = batches.next(stop, log.clock)
        except PreemptedError as error:
            # otherwise the state is on disk already, or initial
            if step > start:
                self.save(step, state)
            # an error of the save, for which `train` waits, takes the place of this one
            saved = f"step {step} is saved" if step else "no step was taken yet"
            raise PreemptedError(*error.args, saved) from error

    def compile(
        self, one_step: compiled_step.CompiledSteps, state: State, batch: Batch, stop: StopSignal
    ) -> None:
        """Compiles the step for a batch, unless a signal arrives."""
        # a divergence of the previous step is reported before a long compilation
        self.log.flush()
        with self.log.clock.paused("compilation"):
            stop.interrupt(partial(one_step.compile, state, batch), has_begun=len(one_step) > 0)

    def save(self, step: int, state: State) -> None:
        """Saves the state, after checking that its step was finite."""
        self.log.flush()
        with self.log.clock.paused("checkpoints"):
            self.checkpoints.save(step, state)
        # here and not at the end alone: what is done after the last save is lost by a kill
        self.write_time()

    def wait_for_save(self) -> None:
        """Waits until the last state is saved."""
        with self.log.clock.paused("checkpoints", is_watched=True):
            self.checkpoints.wait()

    def write_time(self) -> None:
        """Writes an event with the seconds of this start so far, for the report."""
        # also called while an error ends the run, which a full disk must not replace
        with contextlib.suppress(OSError):
            self.log.workdir.event("time", seconds=self.log.clock.seconds())

    def evaluate(self, step: int, state: State) -> None:
        """Runs every benchmark on the state, unless all results exist.

        Before the last step, no benchmark starts after config.eval.seconds.
        """
        if self.evaluation.is_complete(step):
            return
        self.log.flush()
        with self.log.clock.paused("evaluation"):
            params, parameters = state.params, self.setup.parameters
            if parameters.has_frozen:
                frozen = self.frozen
                if self.setup.training.data.has_features:  # only evaluation needs the towers
                    frozen = init_from.load_frozen(self.setup)[0]
                params = jax.jit(parameters.merge)(frozen, params)
            variables = {"params": params, "batch_stats": state.batch_stats}
            is_last = step == self.setup.training.steps
            seconds = None if is_last else self.setup.evaluation.seconds
            self.log.evaluated(step, self.evaluation.run(variables, step, seconds))


def is_due(step: int, every: int | None, steps: int) -> bool:
    """True if something done every `every` steps and after the last step is due at `step`."""
    return step == steps or bool(every and step and step % every == 0)


def run_pretraining(
    first: Setup, setup: Setup, workdir: Workdir, stop: StopSignal, allow_change: bool
) -> Setup:
    """Trains or resumes the run `first` in WORKDIR/pretrain.

    Returns `setup` with config.init_from set to that folder.
    """
    folder = workdir.below("pretrain")
    try:
        folder.check_config(first.config, allow_change, check=config_of_run.check)
        if not (folder.path / "DONE").exists():
            train(first, folder, stop, allow_change)
    finally:
        folder.close()
    # barrier: process 0 has finished writing the last state
    sharding.any_process(False)
    origin = setup.origin._replace(path=str(folder.path))
    return setup._replace(config={**setup.config, "init_from": folder.name}, origin=origin)
