"""Results of a study's runs: values per seed, means and differences.

VALUES is one long table: run, seed, device, config, benchmark, metric, value, low, high, chance.
The benchmark RECORD holds the seconds of a run and the milliseconds of its training step. A run of
two devices has rows of both: rows of one page's table come from one device where they can.
"""

import contextlib
import datetime
import json
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow
import pyarrow.parquet
import scipy.stats

from studies import study_columns
from vlc_jax.report import paper, read_workdir

VALUES = "results.parquet"  # in the folder of results.md
SCHEMA = pyarrow.schema(
    [(name, pyarrow.string()) for name in ("run", "device", "config", "benchmark", "metric")]
    + [(name, pyarrow.float64()) for name in ("value", "low", "high", "chance")]
).insert(1, pyarrow.field("seed", pyarrow.int16()))
RECORD, RATE = "run", "perf/examples_per_s"
UNRESOLVED = 0.2  # half of an interval that says nothing
REQUEST = "asked.json"  # settings of a run, in its folder
# beginnings of the names of benchmarks whose groups are kept
GROUPED = (
    "scenes_replace", "scenes_conditions", "scenes_relation_swap", "scenes_spatial",
    "reporting_bias", "photographs_balance",
)  # fmt: skip
OF_GEOMETRY = ("scenes_conditions", "scenes_superposition", "scenes_pair_geometry")


class Estimate(NamedTuple):
    """A metric of a run with its interval; chance: where it is measured (OF_GEOMETRY)."""

    value: float
    low: float | None = None
    high: float | None = None
    chance: float | None = None


class Kept(NamedTuple):
    """Values of a run with its seed. config: of the plan; device: short name; "": unknown."""

    metrics: dict[str, dict[str, Estimate]]  # benchmark -> metric -> estimate
    config: str = ""
    device: str = ""


Values = dict[str, dict[str, Kept]]  # run with seed -> device, in the order of their addition


class Value(NamedTuple):
    """Mean over seeds and half of its 95 % interval.

    The interval is Student's t over seeds; for a single seed it is the interval over cases.
    """

    mean: float
    half: float

    @property
    def low(self) -> float:
        return self.mean - self.half

    @property
    def high(self) -> float:
        return self.mean + self.half


class MissingValueError(ValueError):
    """A value that the runs do not have."""


class Results:
    """Values of runs by name, with their means over seeds.

    seeds: of every run but those of study_columns.SEEDS. prefer: the device whose values are taken
    where there are several.
    """

    def __init__(self, values: Values, seeds: int) -> None:
        self._values, self.seeds, self.prefer = values, seeds, ""

    def has(self, run: str, benchmark: str = "", metric: str = "") -> bool:
        """True if all seeds of a run have values, of `metric` of `benchmark` if these are set."""
        names = self._names(run)
        if not all(name in self._values for name in names):
            return False
        return not benchmark or all(metric in self._of(n).metrics.get(benchmark, {}) for n in names)

    def value(self, run: str, benchmark: str, metric: str) -> Value:
        """Mean of a metric over seeds, with its interval."""
        return summary(self.estimates(run, benchmark, metric))

    def percent(self, run: str, title: str) -> str:
        """The mean of a column: "82"."""
        value = self.value(run, *study_columns.column(title)[1:3])
        return shown(f"{100 * value.mean:.0f}", value.half)

    def by_seed(self, run: str, benchmark: str, metric: str) -> list[float]:
        """The value of every seed."""
        return [estimate.value for estimate in self.estimates(run, benchmark, metric)]

    def difference(self, run: str, other: str, benchmark: str, metric: str) -> Value:
        """Mean difference of two runs, paired by seed: equal seeds start from the same weights.

        Not paired (Welch's interval) if different devices trained them, from weights of their own.
        """
        first, second = (self.by_seed(name, benchmark, metric) for name in (run, other))
        if min(len(first), len(second)) == 1:  # no interval
            return Value(np.mean(first) - np.mean(second), float("nan"))
        if self.device(run) == self.device(other):
            return Value(*paper.over_seeds([a - b for a, b in zip(first, second, strict=False)]))
        interval = scipy.stats.ttest_ind(first, second, equal_var=False).confidence_interval(0.95)
        return Value(np.mean(first) - np.mean(second), (interval.high - interval.low) / 2)

    @contextlib.contextmanager
    def beside(self, run: str) -> Iterator[None]:
        """Inside, values of the device that trained `run` are taken where there are several."""
        before = self.prefer
        self.prefer = self.device(run) if run and self.has(run) else before
        yield
        self.prefer = before

    def device(self, run: str) -> str:
        """Device that trained a run's first seed; "" if unknown."""
        return self._of(f"{run}-0").device

    def by_device(self, name: str) -> dict[str, Kept]:
        """The values of a run with its seed, by the device that trained it."""
        return self._values.get(name, {})

    def titles(self, runs: Sequence[str]) -> list[str]:
        """Names of the runs of a table, with their seeds if their number is not that of others,
        and with their devices if these are several."""
        devices, titles = [self.device(run) for run in runs], []
        for run, device in zip(runs, devices, strict=True):
            seeds, title = len(self._names(run)), study_columns.label(run)
            title += f", {seeds} seed{'s' * (seeds > 1)}" if seeds != self.seeds else ""
            titles.append(f"{title}, {device}" if len({*devices}) > 1 and device else title)
        return titles

    def estimates(self, run: str, benchmark: str, metric: str) -> list[Estimate]:
        """The estimate of every seed."""
        found = []
        for name in self._names(run):
            found.append(self._of(name).metrics.get(benchmark, {}).get(metric))
            if found[-1] is None:
                raise MissingValueError(f"{name} has no {metric} of {benchmark}: evaluate it again")
        return found

    def _names(self, run: str) -> list[str]:
        return [f"{run}-{seed}" for seed in range(study_columns.seeds_of(run, self.seeds))]

    def _of(self, name: str) -> Kept:
        """Values of a run with its seed: of the preferred device, else of the first."""
        if name not in self._values:
            raise MissingValueError(f"{name} has no values")
        by_device = self._values[name]
        return by_device.get(self.prefer) or next(iter(by_device.values()))


def read_values(path: Path) -> Values:
    """The file of values; {} if there is none."""
    values: Values = {}
    columns = pyarrow.parquet.read_table(path).to_pydict().values() if path.exists() else ()
    for run, seed, device, config, benchmark, metric, *estimate in zip(*columns, strict=True):
        by_device = values.setdefault(f"{run}-{seed}", {})
        metrics = by_device.setdefault(device, Kept({}, config, device)).metrics
        metrics.setdefault(benchmark, {})[metric] = Estimate(*estimate)
    return values


def write_values(path: Path, values: Values) -> None:
    """Writes a file of values, sorted by run: the order of runs leaves no trace."""
    rows = [
        (*name.rpartition("-")[::2], kept.device, kept.config, benchmark, metric, *estimate)
        for name, by_device in sorted(values.items())
        for kept in by_device.values()
        for benchmark, metrics in kept.metrics.items()
        for metric, estimate in metrics.items()
    ]
    columns = zip(*((run, int(seed), *rest) for run, seed, *rest in rows), strict=True)
    data = dict(zip(SCHEMA.names, columns, strict=True)) if rows else {}
    table = pyarrow.table(data, SCHEMA) if rows else SCHEMA.empty_table()
    path.parent.mkdir(parents=True, exist_ok=True)
    # replaced at once: a study that is killed while writing keeps all earlier values
    written = path.with_name(f"{path.name}.{os.getpid()}")
    pyarrow.parquet.write_table(table, written, compression="zstd", compression_level=9)
    written.replace(path)


def add(values: Values, *workdirs: Path) -> Values:
    """The values with those of finished runs, in place of earlier ones of their device.

    Raises ValueError for a malformed result."""
    for workdir in workdirs:
        kept = values_of(workdir)
        values.setdefault(workdir.name, {})[kept.device] = kept
    return values


def finished(out: Path) -> list[Path]:
    """The finished runs in a folder."""
    return [done.parent for done in sorted(out.glob("*/DONE"))]


def values_of(workdir: Path) -> Kept:
    """Values of a run's newest evaluations; of a run of a study also its record: config, device,
    seconds and, of training, milliseconds of a step (median).

    Raises ValueError for a malformed result."""
    run, metrics = read_workdir.read(workdir), dict[str, dict[str, Estimate]]()
    if wrong := [note for note in run.notes if note.startswith("evals/")]:
        raise ValueError(f"{workdir}: {wrong[0]}; remove it and evaluate again")
    for evaluation in run.evaluations:
        keys = Estimate._fields[: 4 if evaluation.name in OF_GEOMETRY else 3]
        try:
            metrics[evaluation.name] = {
                name: Estimate(*(_rounded(metric[key], key == "chance") for key in keys))
                for name, metric in evaluation.newest["metrics"].items()
                if "/" not in name or evaluation.name.startswith(GROUPED)
            }
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"a metric of {workdir}/evals/{evaluation.name} has no value with an interval; "
                "remove its results and evaluate again"
            ) from error
    request = workdir / REQUEST
    if not (request.exists() and run.env and run.events):
        return Kept(metrics)
    first, last = (datetime.datetime.fromisoformat(run.events[n]["time"]) for n in (0, -1))
    numbers = {"seconds": round((last - first).total_seconds())}
    if rates := [row[RATE] for row in run.metrics if row.get(RATE)]:
        # the median: the first rows have the compilation in them
        milliseconds = 1000 * run.config["batch_size"] / float(np.median(rates))
        numbers["step_ms"] = round(milliseconds, 1)
    metrics[RECORD] = {name: Estimate(number) for name, number in numbers.items()}
    config = json.loads(request.read_text())["config"]
    device = run.env["hardware"]["devices"][0]
    short = re.search(r"[A-Z]+\d+\w*", device)  # H100
    return Kept(metrics, config, short[0] if short else device.upper())


def _rounded(number: object, is_optional: bool) -> float | None:
    return None if number is None and is_optional else round(float(number), 5)


def summary(estimates: Sequence[Sequence[float]]) -> Value:
    """Mean of (value, low, high, ...) of seeds with its interval."""
    # one seed has no spread: the interval over its cases
    if len(estimates) == 1:
        value, low, high, *_ = estimates[0]
        return Value(value, (high - low) / 2)
    return Value(*paper.over_seeds([value for value, *_ in estimates]))


def is_unresolved(half: float) -> bool:
    """True if an interval of this half, as it is printed, covers half of the scale."""
    return round(half, 3) >= UNRESOLVED


def shown(text: str, half: float) -> str:
    """The text of a mean, wherever it is printed; one that is not resolved says so."""
    return f"{text} (not resolved)" if is_unresolved(half) else text


def cell(value: Value) -> str:
    """Mean and half interval in percent."""
    return shown(f"{percent(value.mean)} ±{percent(value.half)}", value.half)


def signed(value: Value) -> str:
    """A difference in points, with its half interval."""
    return shown(f"{100 * value.mean:+.1f} ±{percent(value.half)}", value.half)


def percent(fraction: float) -> str:
    return "–" if np.isnan(fraction) else f"{100 * fraction:.1f}"


def unnested(text: str) -> str:
    """A text whose marks within parentheses have none of their own: "(78, not resolved)"."""
    return re.sub(r"(\([^()]*) \(not resolved\)", r"\1, not resolved", text)
