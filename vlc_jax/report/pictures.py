"""The figures of the pages: which bars and curves of runs are drawn, and what they are called."""

from collections.abc import Sequence
from typing import Any

from vlc_jax.report import compare, plot, table
from vlc_jax.report.compare import Line
from vlc_jax.report.read_workdir import Evaluation, Run

WORDS = {verdict: f"{mark.sign} {mark.column}" for verdict, mark in table.MARKS.items()}
CURVES = {  # metric -> title, axis of plot.curves
    "train/loss": ("Loss", ""),
    "train/grad_norm": ("Gradient norm", "log"),
    "train/learning_rate": ("Learning rate", ""),
    "train/logit_scale": ("Logit scale", ""),
    "perf/examples_per_s": ("Examples per second", "zero"),
    "perf/mfu": ("Model FLOPs utilisation", "percent zero"),
    "perf/data_wait_fraction": ("Time waiting for data", "percent zero"),
    "perf/memory_gb": ("Memory, GB", "zero"),
}


def benchmark_bars(names: Sequence[str], runs: Sequence[Run]) -> list[plot.Picture]:
    """Bar charts of headline metrics; benchmarks with `Display.by_group` have a separate figure if
    runs are compared."""
    lines = compare.headlines(compare.newest_results(runs))
    lines = [line for line in lines if line.any_row.unit == "fraction"]
    triplets = [line for line in lines if len(runs) > 1 and line.any_row.display.by_group]
    others = [line for line in lines if line not in triplets]
    bars = [_bars("benchmarks", "Benchmarks", names, others)] if others else []
    title = "Hard negatives and hard positives"
    return bars + ([_bars("triplets", title, names, triplets)] if triplets else [])


def group_bars(names: Sequence[str], lines: Sequence[Line]) -> list[plot.Picture]:
    """Bar charts of the groups of cases, one per benchmark."""
    pictures = []
    for benchmark in dict.fromkeys(line.benchmark for line in lines):
        same = [line for line in lines if line.benchmark == benchmark]
        title = f"{same[0].any_row.name}, group by group"
        pictures.append(_bars(f"groups_{benchmark}", title, names, same))
    return pictures


def _bars(name: str, title: str, names: Sequence[str], lines: Sequence[Line]) -> plot.Picture:
    """Bar chart of lines, with the symbols of the table; of one run in words."""
    rows = [row for line in lines for row in line.rows if row]
    # short: the titles of comparisons go on with the name of a run
    marks = "value, 95 % interval, chance (upright line)"
    if any(row.blind is not None for row in rows):
        marks = "95 % interval, chance (line), blind (dotted)"
    remarks = [[WORDS.get(row.verdict, "")] for row in rows]
    if len(names) > 1:
        indices = range(len(names))
        remarks = [[compare.SYMBOLS[line.verdict(index)] for index in indices] for line in lines]
        marks += f"; ▲▼ against {names[0]}"
    marks += "; diamond: paper" if compare.has_paper(lines) else ""
    return plot.bars(name, f"{title}: {marks}", names, [line.rows for line in lines], remarks)


def training_curves(names: Sequence[str], runs: Sequence[Run]) -> list[plot.Picture]:
    """Training curves, one panel per metric that any run has logged.

    A single run has marks where it was resumed, and its loss a second axis in units of ln(batch).
    """
    pictures = []
    for metric, (title, axis) in CURVES.items():
        curves, options = [], {}
        for name, run in zip(names, runs, strict=True):
            rows = [row for row in run.metrics if isinstance(row.get(metric), int | float)]
            curves.append((name, [row["step"] for row in rows], [row[metric] for row in rows]))
        # ln(batch) and resumes of several runs would cross in one panel
        if len(runs) == 1:
            is_loss = metric == "train/loss"
            ln_batch = _ln_batch(runs[0].metrics) if is_loss else None
            steps = [row.get("step") for row in runs[0].events if row.get("event") == "resume"]
            resumes = [step for step in steps if isinstance(step, int)]
            options = {"resumes": resumes, "ln_batch": ln_batch}
        panel = plot.curves(metric.replace("/", "_"), title, curves, axis=axis, **options)
        pictures += [panel] if panel else []
    return pictures


def _ln_batch(rows: Sequence[dict[str, Any]]) -> float | None:
    """Logarithm of the batch size, the InfoNCE of uniform scores; None if it was not logged."""
    for row in reversed(rows):
        loss, relative = row.get("train/loss"), row.get("train/loss_over_log_batch")
        if all(isinstance(each, int | float) and each > 0 for each in (loss, relative)):
            return loss / relative
    return None


def evaluation_curves(evaluations: list[Evaluation]) -> list[plot.Picture]:
    """Headline metric over steps of each benchmark with several evaluations."""
    pictures = []
    for evaluation in evaluations:
        rows = [row for result in evaluation.results for row in table.headlines([result])[:1]]
        if len(rows) > 1 and rows[-1].unit == "fraction":
            steps = [row.step for row in rows]
            name = f"eval_{evaluation.name}"
            pictures.append(plot.along(name, "step", steps, rows, rows[-1].label))
    return pictures


def mixture_curves(run: Run) -> list[plot.Picture]:
    """Headline metrics over alpha, the weight of this run in interpolated weights."""
    pictures = []
    for rows in table.mixed(run.mixtures):
        if len(rows) == len(run.mixtures) > 1 and rows[-1].unit == "fraction":
            metric, _, _ = rows[-1].label.partition(": alpha")
            name = f"mixture_{rows[-1].benchmark}_{len(pictures)}"
            pictures.append(plot.along(name, "alpha", list(run.mixtures), rows, metric))
    return pictures
