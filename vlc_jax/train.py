"""The loop: one batch after another, metrics read one step late, saved and evaluated on the way."""

import math
from functools import partial
from typing import Any

import jax
import numpy as np
from ml_collections import ConfigDict

import input_pipeline
from input_pipeline import batch as batch_contract
from vlc_jax import build, evaluate, feed, pretrained, sharding, train_step
from vlc_jax.build import State, Task
from vlc_jax.errors import DivergedError, PreemptedError, UsageError
from vlc_jax.run.checkpoint import Checkpoints
from vlc_jax.run.metrics import MetricsWriter, ProgressLine, StepClock
from vlc_jax.run.preemption import StopSignal
from vlc_jax.run.workdir import Workdir

POLL_SECONDS = 0.5  # how long a wait for data lasts before signals are looked at


def train(config: ConfigDict, workdir: Workdir, stop: StopSignal, allow_change: bool) -> None:
    """Trains from the newest checkpoint of `workdir`, or from the start, to the end; the run that
    config.pretrain describes comes first.

    Raises UsageError, DataError, DivergedError, CheckpointError, and PreemptedError after SIGTERM
    or SIGINT once the state is saved.
    """
    if config.interpolate.get("other"):
        raise UsageError("config.interpolate belongs to --mode eval: train first, then evaluate")
    pretrained.check_exists(config, workdir.path)
    task = build.task(config)
    source = build.source(config, "train")
    steps = build.total_steps(config, len(source))
    texts, phrases = build.hard_texts(config), build.noun_phrases(config)
    build.learning_rate(config, steps)  # refuses a warmup that is too long
    if config.pretrain:
        feed.check(config, task, source, texts)  # before another run takes its time
    config = pretrain(config, workdir, stop, allow_change)
    workdir.check_config(config.to_dict(), allow_change)
    frozen, of_frozen = pretrained.frozen_params(config, task)
    if config.input.source == "features":
        build.check_features(source, build.feature_facts(config, task) | of_frozen)
        frozen = {}  # evaluation reads them again when it needs them
    fingerprints = {"train": source.fingerprint, **of_frozen}
    fingerprints |= input_pipeline.text_versions(texts)
    fingerprints |= {"noun_phrases": phrases.version} if phrases else {}
    if isinstance(task.tokenizer, input_pipeline.TextVectors):
        fingerprints["vectors"] = task.tokenizer.fingerprint
    workdir.check_data(fingerprints, allow_change)
    feed.check(config, task, source, texts)
    evaluation = evaluate.Evaluation(config, task, workdir, stop)
    evaluation.read()

    state, checkpoints = restore_or_init(config, task, workdir, steps, frozen)
    start = int(state.step)
    if start > steps:
        raise UsageError(
            f"the state in {workdir.path} is at step {start}, beyond the {steps} the config asks "
            "for; ask for more steps or use another --workdir"
        )
    evaluation.forget_after(start)
    workdir.claim(config.to_dict())
    workdir.write_env(parameters=build.count_parameters(config, frozen, state), input=fingerprints)
    workdir.event("resume" if start else "start", step=start, steps=steps)
    if build.records_per_step(config) > len(source):  # pairs become their own negatives
        workdir.event("batch_beyond_source", batch_size=config.batch_size, records=len(source))
    data = feed.make_loader(config, task, source, texts, workdir, start_step=start)
    log = StepLog(config, task, workdir, data, checkpoints, start=start, steps=steps)
    run = Run(config, task, steps, frozen, state, checkpoints, evaluation, log)
    try:
        run.to_the_end(stop)
    except PreemptedError:
        run.save()
        raise
    finally:
        log.close()
        data.close()
        checkpoints.wait()
    workdir.event("done", step=steps)
    workdir.finish(step=steps)
    evaluation.publish(steps)


def pretrain(
    config: ConfigDict, workdir: Workdir, stop: StopSignal, allow_change: bool
) -> ConfigDict:
    """The config of a run that starts from weights, those of config.pretrain having been trained in
    the folder `pretrain` of the workdir, or gone on with, where that is due.
    """
    if not config.pretrain or config.init_from:
        return config
    first = Workdir(workdir.path / "pretrain")
    try:
        first.check_config(config.pretrain.to_dict(), allow_change)
        if not (first.path / "DONE").exists():
            train(config.pretrain, first, stop, allow_change)
    finally:
        first.close()
    config = config.copy_and_resolve_references()
    with config.unlocked():
        config.init_from = str(first.path)
    return config.lock()


class Run:
    """A state on its way to the last step, saved and evaluated when due."""

    def __init__(
        self,
        config: ConfigDict,
        task: Task,
        steps: int,
        frozen: Any,
        state: State,
        checkpoints: Checkpoints,
        evaluation: evaluate.Evaluation,
        log: "StepLog",
    ):
        self.config, self.task, self.steps = config, task, steps
        self.frozen, self.state, self.step = frozen, state, int(state.step)
        self.checkpoints, self.evaluation, self.log = checkpoints, evaluation, log

    def to_the_end(self, stop: StopSignal) -> None:
        """Raises PreemptedError at a step where `state` can be saved, DivergedError after one whose
        update was not applied.
        """
        log = self.log
        if self.step < self.steps:
            batch = log.next_batch(stop)
            with log.clock.paused():
                one_step = compile_interruptibly(
                    self.config, self.task, self.steps, self.state, self.frozen, batch, stop
                )
        while True:
            if is_due(self.step, self.config.checkpoint.every, self.steps):
                self.save()
            if is_due(self.step, self.config.eval.every, self.steps):
                self.evaluate()
            if self.step == self.steps:
                break
            with jax.transfer_guard("disallow"):
                self.state, metrics = one_step(self.state, self.frozen, batch)
            self.step += 1
            log.append(self.step, metrics)  # reads the step before, while this one runs
            log.raise_if_stopped(stop)
            if self.step < self.steps:
                batch = log.next_batch(stop)

    def save(self) -> None:
        """Saves the state, once the step that made it is known to be finite."""
        self.log.flush()
        with self.log.clock.paused():
            self.checkpoints.save(self.step, self.state)

    def evaluate(self) -> None:
        """Judges the state by every benchmark, unless all results are there."""
        if self.evaluation.is_complete(self.step):
            return
        self.log.flush()
        with self.log.clock.paused():
            params = self.state.params
            if self.config.lora.targets or self.config.frozen:
                frozen = self.frozen or pretrained.frozen_params(self.config, self.task)[0]
                params = jax.jit(partial(build.merged, self.config))(frozen, params)
            results = self.evaluation.run(params, self.step)
            self.log.evaluated(self.step, results)


def is_due(step: int, every: int | None, steps: int) -> bool:
    """Whether something done every so many steps, and always after the last, is due now."""
    return step == steps or bool(every and step and step % every == 0)


def compile_interruptibly(
    config: ConfigDict,
    task: Task,
    steps: int,
    state: State,
    frozen: Any,
    batch: dict[str, jax.Array],
    stop: StopSignal,
) -> train_step.Step:
    """A compiled step; the compiler is left behind when a signal arrives, unless there are several
    processes, which stop at a step only.
    """
    compiled = partial(train_step.compile_step, config, task, steps, state, frozen, batch)
    return compiled() if jax.process_count() > 1 else stop.interrupt(compiled)


def restore_or_init(
    config: ConfigDict, task: Task, workdir: Workdir, steps: int, frozen: Any
) -> tuple[State, Checkpoints]:
    """The newest undamaged state of the workdir; if nothing was ever saved, a new one: an adapter
    of the frozen parameters, or all of them, those of config.init_from if that is set.
    """
    init = build.init_state(config, task.model, steps, frozen)
    shapes = build.state_shapes(task.mesh, init, frozen)
    checkpoints = Checkpoints(
        workdir.path / "checkpoints",
        config.checkpoint.keep_last,
        config.checkpoint.keep_every or 0,
        workdir.event,
    )
    state = checkpoints.restore(shapes)
    if state is None:
        given = {}
        if config.init_from and not config.lora.targets:  # read before anything is allocated
            given = pretrained.imported_state(config, task, shapes.params)
        state = jax.jit(init, out_shardings=jax.tree.map(lambda x: x.sharding, shapes))(frozen)
        state = state._replace(params={**state.params, **given})
        if config.init_from:
            workdir.event("weights", path=str(config.init_from), parts=sorted(frozen | given))
    return state, checkpoints


class StepLog:
    """What the loop sees of data and metrics: batches in, numbers out, one step late."""

    def __init__(
        self,
        config: ConfigDict,
        task: Task,
        workdir: Workdir,
        data: input_pipeline.Loader,
        checkpoints: Checkpoints,
        start: int,
        steps: int,
    ):
        self.config, self.task, self.workdir, self.data = config, task, workdir, data
        self.checkpoints, self.steps = checkpoints, steps
        per_example = float(build.flops_per_example(config, task.model))
        peak, self.peak_source = sharding.peak_flops()
        self.clock = StepClock(config.batch_size, jax.device_count(), per_example, peak)
        self.writer = MetricsWriter(workdir.path, start) if workdir.is_writer else None
        self.progress = ProgressLine(steps, is_shown=workdir.is_writer)
        self._pending: tuple[int, dict] | None = None
        self._is_stopped = False
        self._has_checked = False
        self._bad = set(data.bad)

    def next_batch(self, stop: StopSignal) -> dict[str, jax.Array]:
        """The next global batch, with `stop` saying on each row whether its process should stop."""
        with self.clock.waiting():
            while (batch := self.data.next(timeout=POLL_SECONDS)) is None:
                if jax.process_count() == 1:
                    stop.check()
        if not self._has_checked:
            batch_contract.check(batch)
            self._has_checked = True
        for record_id in self.data.bad.keys() - self._bad:
            self._bad.add(record_id)
            self.workdir.event("bad_record", id=record_id, reason=self.data.bad[record_id])
        rows = {**batch, "id": batch_contract.split_ids(batch["id"])}  # jax has no uint64 here
        rows["stop"] = np.full(len(batch["id"]), stop.is_set)
        return sharding.put_batch(self.task.mesh, rows)

    def append(self, step: int, metrics: dict[str, jax.Array]) -> None:
        """Takes the metrics of `step`, which may still be running, and reads those before."""
        self.flush()
        self._pending = (step, metrics)

    def flush(self) -> None:
        """Reads what is pending. Raises DivergedError if that step was not finite."""
        if self._pending is None:
            return
        (step, metrics), self._pending = self._pending, None
        values = {name: float(value) for name, value in jax.device_get(metrics).items()}
        self._is_stopped = bool(values.pop("stop"))
        if not values.pop("is_finite"):
            self._diverged(step, values)
        self.clock.tick()
        row = {f"train/{name}": value for name, value in values.items()}
        rows = self.config.batch_size // self.config.blocks  # that see each other
        row["train/loss_over_log_batch"] = values["loss"] / math.log(max(rows, 2))
        if step % self.config.log_every == 0 or step == self.steps:
            row |= self.clock.read() | {"perf/memory_gb": sharding.memory_gb()}
            if self.writer is not None:
                self.writer.write(step, row)
            self.progress.show(step, row, self.clock.eta(self.steps - step))

    def evaluated(self, step: int, results: list[dict[str, Any]]) -> None:
        """Headline numbers of an evaluation, to TensorBoard."""
        if self.writer is not None:
            for row in results:
                name = row["summary"][0]
                value = row["metrics"][name]["value"]
                self.writer.mirror(step, {f"eval/{row['benchmark']}/{name}": value})

    def raise_if_stopped(self, stop: StopSignal) -> None:
        """Raises PreemptedError at the same step on every process once any of them was asked to."""
        if jax.process_count() == 1:
            stop.check()
        elif self._is_stopped:
            raise PreemptedError(stop.name or "a signal to another process")

    def _diverged(self, step: int, values: dict[str, float]) -> None:
        ids = self.data.record_ids(step - 1)
        self.workdir.event("nonfinite", step=step, values=values, ids=ids)
        self.checkpoints.wait()
        good = f"step {max(saved)}" if (saved := self.checkpoints.steps()) else "none"
        raise DivergedError(
            f"step {step} is not finite (loss {values['loss']}, gradient norm "
            f"{values['grad_norm']}); its update was not applied. Batch: {', '.join(ids[:8])}"
            f"{', ...' if len(ids) > 8 else ''} (all {len(ids)} in events.jsonl). "
            f"Last good checkpoint: {good}"
        )

    def close(self) -> None:
        if self.data.stand_ins:  # of this process
            self.workdir.event("hard_images_missing", step=self.data.step, rows=self.data.stand_ins)
        if self.writer is not None:
            self.writer.close()
        self.progress.close()
