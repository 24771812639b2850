"""Training metrics: metrics.jsonl by step, its mirrors, throughput and the progress line."""

import importlib
import importlib.util
import json
import logging
import math
import os
import sys
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Column

from vlc_jax.errors import UsageError
from vlc_jax.run import workdir_files

LINE_EVERY = 5.0  # seconds between log lines
BAR_WIDTH = 10  # characters, which leave room for step, ETA and loss in 60 columns


def read_rows(path: Path) -> list[dict]:
    """Rows of a JSONL file, without invalid lines (a killed run may leave a partial one)."""
    rows = []
    for line in path.read_text(errors="replace").splitlines() if path.is_file() else []:
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):  # RecursionError: a line of nested brackets
            continue
        if isinstance(row, dict):
            rows.append(row)
    return rows


class Board(Protocol):
    """A program that shows curves, to which metrics.jsonl is mirrored. Its errors end no run."""

    def write(self, step: int, values: Mapping[str, float]) -> None: ...

    def close(self) -> None: ...


class TensorBoard:
    """A `Board`: event files in WORKDIR/tensorboard."""

    def __init__(self, workdir: Path, start_step: int):
        # here: a slow import that evaluation does not need
        import tensorboardX

        purge = start_step + 1 if start_step else None
        self._writer = tensorboardX.SummaryWriter(str(workdir / "tensorboard"), purge_step=purge)

    def write(self, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        self._writer.close()


class Tracker:
    """A `Board`: a run of the workdir's name in a project of trackio or Weights & Biases.

    Their own variables say where and how: TRACKIO_DIR, TRACKIO_SPACE_ID, WANDB_MODE=offline, ...
    Steps that a killed run repeats cannot be removed: trackio has them twice, wandb keeps the
    first.
    """

    def __init__(self, package: str, project: str, workdir: Path):
        options: dict[str, Any] = {"embed": False}
        if package == "wandb":
            # not the name: equal names of two folders would be one run
            file, config = workdir / "wandb_id", workdir / "config.json"
            if not file.is_file():
                workdir_files.replace(file, uuid.uuid4().hex[:8])
            options = {
                "id": file.read_text().strip(),
                "config": json.loads(config.read_text()) if config.is_file() else None,
                # a resumed run may change fields such as log_every
                "allow_val_change": True,
            }
        init = importlib.import_module(package).init
        self._run = init(project=project, name=workdir.resolve().name, resume="allow", **options)

    def write(self, step: int, values: Mapping[str, float]) -> None:
        self._run.log(dict(values), step=step)

    def close(self) -> None:
        self._run.finish()


# variable with the project of a tracker -> its package, how to install it
TRACKERS = {"TRACKIO_PROJECT": ("trackio", "'vlc_jax[track]'"), "WANDB_PROJECT": ("wandb", "wandb")}


class MetricsWriter:
    """Writer of metrics.jsonl, one row per logged step, mirrored to TensorBoard and `TRACKERS`.

    start_step: the step at which training resumes; rows of later steps are removed.
    A failing board causes a warning, and the run continues without it. Raises UsageError for a
    tracker that is asked for and not installed.
    """

    def __init__(self, workdir: Path, start_step: int):
        kinds = {"TensorBoard": partial(TensorBoard, workdir, start_step)}
        for variable, (package, name) in TRACKERS.items():
            if project := os.environ.get(variable):
                if importlib.util.find_spec(package) is None:
                    raise UsageError(f"{variable} is set: pip install {name}, or unset it")
                kinds[package] = partial(Tracker, package, project, workdir)
        self.path = workdir / "metrics.jsonl"
        # A killed run has rows of steps after its last checkpoint, which are now trained again.
        rows = read_rows(self.path)
        rows = [r for r in rows if isinstance(r.get("step"), int) and r["step"] <= start_step]
        # Atomically: a kill during a rewrite would lose the history.
        workdir_files.replace(self.path, "".join(json.dumps(row) + "\n" for row in rows))
        self._file = self.path.open("a")
        self.boards: dict[str, Board] = {}
        for name, kind in kinds.items():
            with self._warning("no curves in %s: %s", name):
                self.boards[name] = kind()

    @contextmanager
    def _warning(self, message: str, name: str) -> Iterator[None]:
        """Context around a call of a board, which may raise anything: it is then left out."""
        try:
            yield
        except Exception as error:
            logging.warning(message, name, error)
            self.boards.pop(name, None)

    def write(self, step: int, values: Mapping[str, float]) -> None:
        self._file.write(json.dumps({"step": step, **values}) + "\n")
        # a kill then loses no row but the one being written
        self._file.flush()
        self.mirror(step, values)

    def mirror(self, step: int, values: Mapping[str, float]) -> None:
        """Writes to the boards alone, for evaluation results, which have other files."""
        for name, board in [*self.boards.items()]:
            with self._warning("curves in %s stop here: %s", name):
                board.write(step, values)

    def close(self) -> None:
        try:
            self._file.close()
        finally:
            for name, board in [*self.boards.items()]:
                with self._warning("curves in %s are incomplete: %s", name):
                    board.close()


class StepClock:
    """Throughput since the last reading: examples/s, MFU, fraction of time waiting for data."""

    def __init__(self, batch_size: int, devices: int, peak_flops: float):
        """peak_flops: FLOP/s of one device."""
        self.batch_size, self.devices, self.peak_flops = batch_size, devices, peak_flops
        self.elapsed = 0.0  # seconds of training until the last reading, without pauses
        self.steps = 0  # finished in `elapsed`
        self.ticks = 0  # finished steps, up to now
        self.is_paused = False
        self._paused: Counter[str] = Counter()  # kind -> seconds
        self._all_waited = 0.0
        self._reads: Counter[str] = Counter()
        self._epochs: Mapping[str, float] = {}
        self._reset()

    def _reset(self) -> None:
        self._start, self._steps, self._waited = time.perf_counter(), 0, 0.0
        self._flops = 0.0
        # Names stay with 0: rows of batches that were read ahead have the fields, too.
        self._reads = Counter(dict.fromkeys(self._reads, 0))

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Context around a wait for data."""
        start = time.perf_counter()
        yield
        waited = time.perf_counter() - start
        self._waited += waited
        self._all_waited += waited

    @contextmanager
    def paused(self, kind: str, *, is_watched: bool = False) -> Iterator[None]:
        """Context around work that is not training.

        kind: its name in `seconds`: "compilation", "checkpoints" or "evaluation".
        is_watched: for work that the watchdog must end if it hangs.
        """
        start = time.perf_counter()
        self.is_paused = not is_watched
        try:
            yield
        finally:
            self.is_paused = False
        seconds = time.perf_counter() - start
        self._paused[kind] += seconds
        # The start moves by the pause, which must not lower examples/s and MFU.
        self._start += seconds

    def seconds(self) -> dict[str, float]:
        """Seconds up to now in steps, in waits for data ("input"), and in pauses by their kind."""
        training = self.elapsed + time.perf_counter() - self._start
        times = {"steps": training - self._all_waited, "input": self._all_waited, **self._paused}
        return {kind: round(value, 3) for kind, value in times.items()}

    def tick(self, flops: float) -> None:
        """Counts one finished step; flops: of the model in this step, on all devices."""
        self._steps += 1
        self._flops += flops
        self.ticks += 1

    def count_reads(self, counts: Mapping[str, int], epochs: Mapping[str, float] = {}) -> None:
        """Adds counts of this process's shard reads (input_pipeline: ReadCounts).

        epochs: of the parts of a mixture so far.
        """
        self._reads.update(counts)
        self._epochs = epochs

    def mean_step(self) -> float:
        """Mean seconds of a step; 0 before the first reading."""
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
            # MFU counts FLOPs of the model: rematerialised blocks count once.
            "perf/mfu": self._flops / seconds / self.devices / self.peak_flops,
            "perf/data_wait_fraction": self._waited / seconds,
            "time/elapsed_s": self.elapsed,
            **self._read_values(),
        }
        self._reset()
        return values

    def _read_values(self) -> dict[str, float]:
        """perf/* values of this process's shard reads and epochs of the parts of a mixture; {} for
        sources without shards."""
        reads = self._reads
        values = {f"data/epochs/{name}": value for name, value in self._epochs.items()}
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

    A terminal shows the fields that fit into its width, the log shows all fields.
    """

    def __init__(self, total: int, is_shown: bool = True):
        self.total, self.is_shown = total, is_shown
        self._last = -math.inf
        self._bar: Progress | None = None
        # On a terminal only: a bar would write control characters into a log file.
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
            # read each time: the width of a terminal may change
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
    """Text of the progress line, without fields that are missing in `values`.

    width: maximum number of characters; fields beyond it are left out.
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
