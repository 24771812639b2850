"""Training metrics: metrics.jsonl by step, TensorBoard, throughput and the progress line."""

import json
import logging
import math
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Column

from vlc_jax.run import workdir_files

LINE_EVERY = 5.0  # seconds between lines of the log
BAR_WIDTH = 10  # characters: 60 columns have room for step, ETA and loss beside it


def read_rows(path: Path) -> list[dict]:
    """Rows of a JSONL file; what is no row, as a half-written line of a killed run, is left out."""
    rows = []
    for line in path.read_text(errors="replace").splitlines() if path.exists() else []:
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):  # the latter of a line of brackets
            continue
        if isinstance(row, dict):
            rows.append(row)
    return rows


class MetricsWriter:
    """Writer of metrics.jsonl, one row per logged step, mirrored to TensorBoard.

    start_step: the step that training resumes from. Rows after it are cut. A failing TensorBoard
    is a warning, never the end of a run.
    """

    def __init__(self, workdir: Path, start_step: int):
        self.path = workdir / "metrics.jsonl"
        # A run that died after its last checkpoint wrote rows of steps that are now done again.
        rows = read_rows(self.path)
        kept = [r for r in rows if isinstance(r.get("step"), int) and r["step"] <= start_step]
        # Replaced in one move: a kill in the middle of a rewrite would lose the history.
        workdir_files.replace(self.path, "".join(json.dumps(row) + "\n" for row in kept))
        self._file = self.path.open("a")
        import tensorboardX  # here, because its import is slow and evaluation needs none

        self._board: tensorboardX.SummaryWriter | None = None
        try:
            self._board = tensorboardX.SummaryWriter(
                str(workdir / "tensorboard"), purge_step=start_step + 1 if start_step else None
            )
        except OSError as error:
            logging.warning("no TensorBoard files: %s", error)

    def write(self, step: int, values: Mapping[str, float]) -> None:
        self._file.write(json.dumps({"step": step, **values}) + "\n")
        self._file.flush()  # a killed process leaves all rows but the one being written
        self.mirror(step, values)

    def mirror(self, step: int, values: Mapping[str, float]) -> None:
        """Writes to TensorBoard alone, for evaluation results, which have files of their own."""
        if self._board is None:
            return
        try:
            for name, value in values.items():
                self._board.add_scalar(name, value, step)
        except OSError as error:
            logging.warning("TensorBoard stops here: %s", error)
            self._board = None

    def close(self) -> None:
        try:
            self._file.close()
        finally:
            try:
                if self._board is not None:
                    self._board.close()
            except OSError as error:
                logging.warning("TensorBoard files are incomplete: %s", error)


class StepClock:
    """Throughput since the last reading: examples/s, MFU, fraction of time waiting for data."""

    def __init__(self, batch_size: int, devices: int, train_flops: float, peak_flops: float):
        """train_flops: per example, forward and backward.  peak_flops: FLOP/s of one device."""
        self.batch_size, self.devices = batch_size, devices
        self.train_flops, self.peak_flops = train_flops, peak_flops
        self.elapsed = 0.0  # seconds in steps; evaluations and saves excluded
        self.steps = 0  # in that time
        self.ticks = 0  # finished steps
        self.is_paused = False
        self._reads: Counter[str] = Counter()
        self._reset()

    def _reset(self) -> None:
        self._start, self._steps, self._waited = time.perf_counter(), 0, 0.0
        self._flops = 0.0
        # A name stays: rows without reads, as those of batches that lay ready, have a 0.
        self._reads = Counter(dict.fromkeys(self._reads, 0))

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Context around a wait for data."""
        start = time.perf_counter()
        yield
        self._waited += time.perf_counter() - start

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Context around work that is not training, such as an evaluation or a save."""
        start = time.perf_counter()
        self.is_paused = True
        try:
            yield
        finally:
            self.is_paused = False
        # The start moves, so that a pause lowers neither the speed nor the MFU of the steps.
        self._start += time.perf_counter() - start

    def tick(self, train_flops: float | None = None) -> None:
        """Counts one finished step; train_flops: per example of it, if not those of all others."""
        self._steps += 1
        self._flops += self.batch_size * (train_flops or self.train_flops)
        self.ticks += 1

    def count_reads(self, counts: Mapping[str, int]) -> None:
        """Adds to what this process read from shards (input_pipeline: ReadCounts)."""
        self._reads.update(counts)

    def mean_step(self) -> float:
        """Seconds of a step so far; 0 before the first reading."""
        return self.elapsed / self.steps if self.steps else 0.0

    def read(self) -> dict[str, float]:
        """perf/* values since the last call."""
        seconds = max(time.perf_counter() - self._start, 1e-9)
        self.elapsed += seconds
        self.steps += self._steps
        rate = self._steps * self.batch_size / seconds
        values = {
            "perf/examples_per_s": rate,
            "perf/examples_per_s_per_device": rate / self.devices,
            # FLOPs of the model, not of the hardware: rematerialised blocks count once.
            "perf/mfu": self._flops / seconds / self.devices / self.peak_flops,
            "perf/data_wait_fraction": self._waited / seconds,
            "time/elapsed_s": self.elapsed,
            **self._read_values(),
        }
        self._reset()
        return values

    def _read_values(self) -> dict[str, float]:
        """Reads of this process since the last reading; absent for sources without shards or a
        stage."""
        reads, values = self._reads, {}
        if "bytes_read" in reads:
            values["perf/read_mb"] = reads["bytes_read"] / 1e6
        if "bytes_staged" in reads:
            values["perf/staged_mb"] = reads["bytes_staged"] / 1e6
        if records := reads["stage_hits"] + reads["stage_misses"]:
            values["perf/stage_hit_fraction"] = reads["stage_hits"] / records
        return values

    def eta(self, remaining: int) -> float:
        """Seconds for `remaining` steps at the mean speed so far; nan before the first reading."""
        return remaining * self.elapsed / self.steps if self.steps else math.nan


class ProgressLine:
    """Progress of the run: a live bar on a terminal, else a line every LINE_EVERY seconds.

    A terminal shows what fits into its width, the log every field.
    """

    def __init__(self, total: int, is_shown: bool = True):
        self.total, self.is_shown = total, is_shown
        self._last = -math.inf
        self._bar: Progress | None = None
        # Not a terminal: a log file, where a bar would write its control characters.
        if is_shown and sys.stderr.isatty():
            self._bar = Progress(
                BarColumn(bar_width=BAR_WIDTH),
                TextColumn("{task.description}", table_column=Column(no_wrap=True)),
                console=Console(stderr=True),
            )
            self._task = self._bar.add_task("compiling", total=total)
            self._bar.start()

    def show(self, step: int, values: Mapping[str, float], eta: float) -> None:
        if not self.is_shown:
            return
        if self._bar is not None:
            # asked each time: a terminal may change its width
            width = self._bar.console.width - BAR_WIDTH - 1
            line = progress_text(step, self.total, values, eta, width)
            self._bar.update(self._task, completed=step, description=line)
        if time.monotonic() - self._last >= LINE_EVERY or step == self.total:
            self._last = time.monotonic()
            line = progress_text(step, self.total, values, eta)
            logging.info("%s", line)
            if self._bar is None:
                print(line, file=sys.stderr, flush=True)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.stop()


def progress_text(
    step: int, total: int, values: Mapping[str, float], eta: float, width: int | None = None
) -> str:
    """Text of the progress line; fields that are missing in `values` are left out.

    width: characters that there is room for; fields beyond it are left out, the last ones first.
    """
    remaining = "?" if math.isnan(eta) else str(timedelta(seconds=round(eta)))
    text = f"step {step}/{total} {100 * step // total}% ETA {remaining}"
    fields = (  # the most important first
        ("train/loss", "loss {:.3f}"),
        ("train/loss_over_log_batch", "(/lnB {:.2f})"),
        ("perf/examples_per_s", "{:.0f} ex/s"),
        ("perf/examples_per_s_per_device", "({:.0f}/dev)"),
        ("perf/mfu", "mfu {:.2f}"),
        ("perf/data_wait_fraction", "wait {:.1%}"),
        ("train/learning_rate", "lr {:.1e}"),
        ("train/logit_scale", "scale {:.1f}"),
        ("train/grad_norm", "gn {:.2f}"),
        ("perf/memory_gb", "mem {:.1f}G"),
    )
    for name, field in fields:
        if name not in values:
            continue
        longer = f"{text} {field.format(values[name])}"
        if width is not None and len(longer) > width:
            break
        text = longer
    return text
