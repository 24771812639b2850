"""Results of a study's runs: values per seed, means and differences.

The file of values is JSON: run with seed -> benchmark -> metric -> [value, low, high], and a fourth
number, chance, where it is measured (OF_GEOMETRY). RECORD, beside the benchmarks, is the record of
the run: its config, the device that trained it and the seconds that it took. The key of a run that
a second device trained, too, is NAME@DEVICE: rows of one table come from one device where they can.
"""

import contextlib
import datetime
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import scipy.stats

from studies import study_columns
from vlc_jax.input_pipeline import stores

VALUES = "results.json"  # in the folder of results.md
RECORD = "run"
UNRESOLVED = 0.2  # half of an interval that says nothing
REQUEST = "asked.json"  # settings of a run, in its folder
# beginnings of the names of benchmarks whose groups are kept
GROUPED = (
    "scenes_replace",
    "scenes_conditions",
    "scenes_relation_swap",
    "scenes_spatial",
    "scenes_half_truths",
)
OF_GEOMETRY = ("scenes_conditions", "scenes_superposition", "scenes_pair_geometry")


class Value(NamedTuple):
    """Mean over seeds and half of its 95 % interval.

    The interval is Student's t over seeds; for a single seed it is the interval over cases.
    """

    mean: float
    half: float


class Results:
    """Evaluation results of the runs in `out`, read on demand, and of earlier runs from a file.

    seeds: of every run but those of study_columns.SEEDS.
    values: file of values. prefer: the device whose values are taken where there are several.
    """

    def __init__(self, out: Path, seeds: int, values: Path | None = None):
        self.out, self.seeds, self.prefer = out, seeds, ""
        self._values = read_values(values) if values else {}

    def has(self, run: str, benchmark: str = "", metric: str = "") -> bool:
        """True if all seeds of a run are done, and evaluated on `benchmark` with `metric`, if
        these are set."""
        names = [f"{run}-{seed}" for seed in range(self.seeds_of(run))]
        if not all(map(self._has, names)):
            return False
        if not benchmark:
            return True
        of_benchmark = [self._of(name).get(benchmark) for name in names]
        return None not in of_benchmark and all(not metric or metric in of for of in of_benchmark)

    def seeds_of(self, run: str) -> int:
        """Number of seeds behind a row."""
        return study_columns.seeds_of(run, self.seeds)

    def value(self, run: str, benchmark: str, metric: str) -> Value:
        """Mean of a metric over seeds, with its interval."""
        estimates = self._estimates(run, benchmark, metric)
        return summary(estimates)

    def by_seed(self, run: str, benchmark: str, metric: str) -> list[float]:
        """The value of every seed."""
        return [value for value, *_ in self._estimates(run, benchmark, metric)]

    def chance(self, run: str, benchmark: str, metric: str) -> float:
        """Mean of the measured chance over seeds, for a benchmark of OF_GEOMETRY; NaN without."""
        # values that were kept before chance was end with their interval
        chances = [(*of, None)[3] for of in self._estimates(run, benchmark, metric)]
        return float("nan") if None in chances else float(np.mean(chances))

    def difference(self, run: str, other: str, benchmark: str, metric: str) -> Value:
        """Mean difference of two runs, paired by seed: equal seeds start from the same weights.

        Not paired (Welch's interval) if different devices trained them, from weights of their own.
        """
        first, second = (self.by_seed(name, benchmark, metric) for name in (run, other))
        if self.device(run) == self.device(other):
            return over_seeds([a - b for a, b in zip(first, second, strict=False)])
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
        return device_of(self._of(f"{run}-0"))

    def by_device(self, name: str) -> dict[str, dict]:
        """Record of a run with its seed, of each device that trained it."""
        return {
            device_of(of): of.get(RECORD, {})
            for key, of in self._values.items()
            if run_of(key) == name
        }

    def title(self, run: str) -> str:
        """Name of a run in tables, with its seeds if it has fewer than others."""
        seeds, name = self.seeds_of(run), study_columns.label(run)
        return name if seeds == self.seeds else f"{name}, {seeds} seed{'s' if seeds > 1 else ''}"

    def titles(self, runs: Sequence[str]) -> list[str]:
        """Names of the runs of a table, with their devices if these are several."""
        devices = [self.device(run) for run in runs]
        several = len({*devices}) > 1
        return [
            f"{self.title(run)}{f', {device}' if several and device else ''}"
            for run, device in zip(runs, devices, strict=True)
        ]

    def record(self, name: str) -> dict:
        """The record of a run with its seed; {} if there is none."""
        return self._of(name).get(RECORD, {}) if self._has(name) else {}

    def save(self, path: Path) -> None:
        """Writes the file of values, with all finished runs in `out` added."""
        for done in sorted(self.out.glob("*/DONE")):
            if (done.parent / "evals").is_dir():
                add(self._values, done.parent.name, values_of(done.parent))
        write_values(path, self._values)

    def _has(self, run: str) -> bool:
        return self._key(run) in self._values or (self.out / run / "DONE").exists()

    def _of(self, name: str) -> dict[str, dict]:
        """Values of a run with its seed."""
        key = self._key(name)
        if key not in self._values:
            self._values[key] = values_of(self.out / name)
        return self._values[key]

    def _key(self, name: str) -> str:
        preferred = f"{name}@{self.prefer}"
        is_other = preferred in self._values and device_of(self._values.get(name)) != self.prefer
        return preferred if is_other else name

    def _estimates(self, run: str, benchmark: str, metric: str) -> list[list[float]]:
        estimates = []
        for seed in range(self.seeds_of(run)):
            name = f"{run}-{seed}"
            try:
                estimates.append(self._of(name)[benchmark][metric])
            except KeyError as error:
                raise ValueError(
                    f"{name} has no {metric} of {benchmark}: evaluate it again"
                ) from error
        return estimates


def run_of(key: str) -> str:
    """Name of the run, with its seed, of a key of the file."""
    return key.partition("@")[0]


def device_of(values: Mapping[str, dict] | None) -> str:
    """Short name of the device that trained a run: CPU, H100; "" if unknown."""
    device = (values or {}).get(RECORD, {}).get("device", "")
    named = re.search(r"[A-Z]+\d+\w*", device)
    return named[0] if named else device.upper()


def add(values: dict[str, dict], name: str, of: dict[str, dict]) -> None:
    """Adds the values of a run, in place of those of its device; a run with equal values keeps its
    record."""
    earlier = values.get(name)
    if earlier is not None and device_of(earlier) != device_of(of):
        name = f"{name}@{device_of(of)}"
    if name not in values or values[name] | {RECORD: 0} != of | {RECORD: 0}:
        values[name] = of


def read_values(path: Path) -> dict[str, dict]:
    """The file of values; {} if there is none."""
    return json.loads(path.read_text()) if path.exists() else {}


def write_values(path: Path, values: Mapping[str, dict]) -> None:
    """Writes a file of values, one run per line, sorted: the order of runs leaves no trace."""
    lines = (f"{json.dumps(run)}: {json.dumps(of)}" for run, of in sorted(values.items()))
    # replaced at once: a study that is killed while writing keeps all earlier values
    written = path.with_name(f"{path.name}.{os.getpid()}")
    written.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    written.replace(path)


def keep(path: Path, workdir: Path) -> None:
    """Adds the values of a finished run to the file, in place of earlier ones of its device.

    Raises ValueError for a missing or malformed result."""
    if (workdir / "evals").is_dir():
        path.parent.mkdir(parents=True, exist_ok=True)
        values = read_values(path)
        add(values, workdir.name, values_of(workdir))
        write_values(path, values)


def values_of(workdir: Path) -> dict[str, dict]:
    """Benchmark -> metric -> [value, low, high] of a run's newest evaluations, and its record.

    Raises ValueError for a missing or malformed result."""
    values: dict[str, dict] = {}
    for folder in sorted((workdir / "evals").iterdir()):
        result = newest_result(folder)
        if result is None:
            raise ValueError(f"{folder} holds no results of a run that is done")
        keys = ("value", "low", "high", *(["chance"] if folder.name in OF_GEOMETRY else []))
        try:
            values[folder.name] = {
                name: [_rounded(metric[key], is_optional=key == "chance") for key in keys]
                for name, metric in result["metrics"].items()
                if "/" not in name or folder.name.startswith(GROUPED)
            }
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"a metric of {folder} has no value with an interval; remove its results and "
                "evaluate again"
            ) from error
    if record := record_of(workdir):
        values[RECORD] = record
    return values


def _rounded(number: object, is_optional: bool) -> float | None:
    return None if number is None and is_optional else round(float(number), 5)


def record_of(workdir: Path) -> dict[str, object]:
    """Config, device, seconds and, of training, milliseconds of a step (median) of a run of a
    study; {} of another run."""
    request, env, events = (workdir / name for name in (REQUEST, "env.json", "events.jsonl"))
    if not all(path.exists() for path in (request, env, events)):
        return {}
    times = [json.loads(line)["time"] for line in events.read_text().splitlines()]
    first, last = (datetime.datetime.fromisoformat(time) for time in (times[0], times[-1]))
    return {
        "config": json.loads(request.read_text())["config"],
        "device": json.loads(env.read_text())["hardware"]["devices"][0],
        "seconds": round((last - first).total_seconds()),
        **_step_time(workdir),
    }


def _step_time(workdir: Path) -> dict[str, float]:
    """{"step_ms": ...} of a run that trained."""
    metrics, config = workdir / "metrics.jsonl", workdir / "config.json"
    if not (metrics.exists() and config.exists()):
        return {}
    rates = [
        json.loads(line).get("perf/examples_per_s") for line in metrics.read_text().splitlines()
    ]
    rates = [rate for rate in rates if rate]
    batch = json.loads(config.read_text())["batch_size"]
    # the median: the first rows have the compilation in them
    return {"step_ms": round(1000 * batch / float(np.median(rates)), 1)} if rates else {}


def summary(estimates: Sequence[Sequence[float]]) -> Value:
    """Mean of (value, low, high, ...) of seeds with its interval."""
    # one seed has no spread: the interval over its cases
    if len(estimates) == 1:
        value, low, high, *_ = estimates[0]
        return Value(value, (high - low) / 2)
    return over_seeds([value for value, *_ in estimates])


def over_seeds(values: Sequence[float]) -> Value:
    """Mean of the values of seeds, with its interval."""
    spread = np.std(values, ddof=1) / np.sqrt(len(values))
    return Value(np.mean(values), float(scipy.stats.t.ppf(0.975, len(values) - 1)) * spread)


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


def measure(value: Value, digits: int = 3) -> str:
    """A mean that is no share, with its half interval."""
    return shown(f"{value.mean:.{digits}f} ±{value.half:.{digits}f}", value.half)


def percent(fraction: float) -> str:
    return "–" if np.isnan(fraction) else f"{100 * fraction:.1f}"


def newest_result(folder: Path) -> dict | None:
    """The result of a benchmark at its last step: {"metrics": ..., "summary": names of metrics}.

    None if there is none. Raises ValueError for a damaged or another file.
    """
    steps = [path for path in folder.glob("*.json") if path.stem.isdecimal()]
    if not steps:
        return None
    newest = max(steps, key=lambda path: int(path.stem))
    try:
        result = stores.parse_json(newest.read_bytes())
        metrics, names = result["metrics"], result.get("summary", ())
        chances = [metrics[name]["chance"] for name in names]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{newest} is damaged ({error}); remove it and evaluate again") from error
    if not all(isinstance(chance, int | float | None) for chance in chances):
        raise ValueError(f"{newest} is no result of a benchmark; remove it and evaluate again")
    return result
