"""Writes training metrics, one step late, to metrics.jsonl, boards and the progress line."""

import math
from collections.abc import Callable
from typing import Any

import jax

from vlc_jax.devices import runtime, sharding
from vlc_jax.errors import DivergedError, PreemptedError
from vlc_jax.run.checkpoint import Checkpoints
from vlc_jax.run.metrics import MetricsWriter, ProgressLine, StepClock
from vlc_jax.run.processes.preemption import StopSignal
from vlc_jax.run.workdir import Workdir
from vlc_jax.types.setup import Setup

GUARD_METRICS = ("spikes_in_a_row", "grad_norm_median")  # of events only
LISTED_IDS = 8  # in a message, and of a skipped step


class MetricsLog:
    """Log of the metrics of each step, read while the next one runs.

    record_ids: step (from 0) -> ids of the batch's records, for the message of a divergence.
    checkpoints: to name the last good one in that message.
    """

    def __init__(
        self,
        setup: Setup,
        workdir: Workdir,
        start: int,
        record_ids: Callable[[int], list[str]],
        checkpoints: Checkpoints,
    ):
        training = setup.training
        self.workdir, self.steps, self.log_every = workdir, training.steps, training.log_every
        peak, _ = runtime.peak_flops()
        self.clock = StepClock(training.batch_size, runtime.count(), peak)
        self.writer = MetricsWriter(workdir.path, start) if workdir.is_writer else None
        self.progress = ProgressLine(self.steps, is_shown=workdir.is_writer)
        self._rows_contrasted = training.batch_size // setup.optimization.sub_batches
        self._spikes = (setup.optimization.spike_guard or (0.0, 0))[1]
        self._record_ids, self._checkpoints = record_ids, checkpoints
        self._pending: tuple[int, dict, float] | None = None
        self._is_stopped = False

    def append(self, step: int, metrics: dict[str, jax.Array], flops: float) -> None:
        """Reads the previous step's metrics and stores those of `step`, which may still run.

        flops: of the model in this step (train.flops.Flops.model).
        """
        self.flush()
        self._pending = (step, metrics, flops)

    def flush(self) -> None:
        """Reads and logs the pending metrics.

        Raises DivergedError if their step was not finite, or one spike too many.
        """
        if self._pending is None:
            return
        (step, metrics, flops), self._pending = self._pending, None
        values = {name: float(value) for name, value in sharding.to_host(metrics).items()}
        self._is_stopped = bool(values.pop("stop"))
        if not values.pop("is_finite"):
            # before a row is written: a resumed run repeats the step, whose update was not applied
            self._raise_diverged(step, values)
        in_a_row, median = (values.pop(name, 0.0) for name in GUARD_METRICS)
        if in_a_row:
            self._report_spike(step, values, int(in_a_row), median)
        self.clock.tick(flops)
        row = {f"train/{name}": value for name, value in values.items()}
        # InfoNCE of a random model is ln B, so that chance is 1 for any batch size
        row["train/loss_over_log_batch"] = values["loss"] / math.log(max(self._rows_contrasted, 2))
        if step % self.log_every == 0 or step == self.steps:
            row |= self.clock.read() | {"perf/memory_gb": runtime.memory_gb()}
            if self.writer is not None:
                self.writer.write(step, row)
            self.progress.show(step, row, self.clock.eta(self.steps - step))

    def evaluated(self, step: int, results: list[dict[str, Any]]) -> None:
        """Writes the headline numbers of an evaluation to the boards."""
        if self.writer is not None:
            for row in results:
                name = row["summary"][0]
                value = row["metrics"][name]["value"]
                self.writer.mirror(step, {f"eval/{row['benchmark']}/{name}": value})

    def raise_if_stopped(self, stop: StopSignal) -> None:
        """Raises PreemptedError, on every process at the same step, once one got a signal."""
        if jax.process_count() == 1:
            stop.check()
        elif self._is_stopped:  # a metric of the previous step, equal on all processes
            raise PreemptedError(stop.name or "a signal to another process")

    def _raise_diverged(self, step: int, values: dict[str, float]) -> None:
        ids = self._record_ids(step - 1)
        self.workdir.event("nonfinite", step=step, values=values, ids=ids)
        problem = f"step {step} is not finite (loss {values['loss']}, gradient norm "
        raise self._diverged(f"{problem}{values['grad_norm']}); its update was not applied", ids)

    def _report_spike(
        self, step: int, values: dict[str, float], in_a_row: int, median: float
    ) -> None:
        """Writes a skipped step as an event; raises DivergedError if it is one too many."""
        ids = self._record_ids(step - 1)
        is_last = in_a_row >= self._spikes
        norm = values["grad_norm"]
        self.workdir.event(
            "loss_spike",
            step=step,
            grad_norm=norm,
            median=median,
            loss=values["loss"],
            in_a_row=in_a_row,
            ids=ids if is_last else ids[:LISTED_IDS],
        )
        if is_last:
            raise self._diverged(
                f"step {step} is the last of {in_a_row} in a row whose update the spike guard "
                f"skipped (gradient norm {norm:.4g}, running median {median:.4g}; "
                "config.optimizer.spike_guard)",
                ids,
            )

    def _diverged(self, problem: str, ids: list[str]) -> DivergedError:
        self._checkpoints.wait()
        good = f"step {max(saved)}" if (saved := self._checkpoints.steps()) else "none"
        return DivergedError(
            f"{problem}. Batch: {', '.join(ids[:LISTED_IDS])}"
            f"{', ...' if len(ids) > LISTED_IDS else ''} (all {len(ids)} in events.jsonl). "
            f"Last good checkpoint: {good}"
        )

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()
        self.progress.close()
