"""Results of a study's runs: values per seed, means and differences."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import scipy.stats

from vlc_jax.run import workdir_files

VALUES = "results.json"  # in the folder of results.md
GROUPED = ("scenes_replace", "scenes_replace_unseen")  # benchmarks with groups in tables


class Value(NamedTuple):
    """Mean over seeds and half of its 95 % interval.

    The interval is Student's t over seeds; for a single seed it is the interval over cases.
    """

    mean: float
    half: float


class Results:
    """Evaluation results of the runs in `out`, read on demand, and of earlier runs from a file.

    values: JSON file, run with seed -> benchmark -> metric -> [value, low, high].
    """

    def __init__(self, out: Path, seeds: int, values: Path | None = None):
        self.out, self.seeds = out, seeds
        self._values: dict[str, dict] = {}
        if values and values.exists():
            self._values = json.loads(values.read_text())

    def has(self, run: str, benchmark: str = "") -> bool:
        """True if all seeds of a run are done, and evaluated on `benchmark`, if it is set."""
        names = [f"{run}-{seed}" for seed in range(self.seeds)]
        if not all(map(self._has, names)):
            return False
        return not benchmark or all(benchmark in self._of(name) for name in names)

    def value(self, run: str, benchmark: str, metric: str) -> Value:
        estimates = [self._estimate(run, seed, benchmark, metric) for seed in range(self.seeds)]
        # one seed has no spread: the interval over its cases
        if len(estimates) == 1:
            value, low, high = estimates[0]
            return Value(value, (high - low) / 2)
        return _over_seeds([value for value, _, _ in estimates])

    def difference(self, run: str, other: str, benchmark: str, metric: str) -> Value:
        """Mean difference of two runs, paired by seed: equal seeds start from the same weights."""
        pairs = (
            (self._estimate(name, seed, benchmark, metric)[0] for name in (run, other))
            for seed in range(self.seeds)
        )
        return _over_seeds([first - second for first, second in pairs])

    def save(self, path: Path) -> None:
        """Writes the file of values, with all finished runs in `out` added."""
        for done in sorted(self.out.glob("*/DONE")):
            if (done.parent / "evals").is_dir():
                self._values[done.parent.name] = _values(done.parent)
        runs = sorted(self._values.items())
        lines = (f"{json.dumps(run)}: {json.dumps(values)}" for run, values in runs)
        path.write_text("{\n" + ",\n".join(lines) + "\n}\n")

    def _has(self, run: str) -> bool:
        return run in self._values or (self.out / run / "DONE").exists()

    def _of(self, name: str) -> dict[str, dict]:
        """Values of a run with its seed."""
        if name not in self._values:
            self._values[name] = _values(self.out / name)
        return self._values[name]

    def _estimate(self, run: str, seed: int, benchmark: str, metric: str) -> list[float]:
        name = f"{run}-{seed}"
        try:
            return self._of(name)[benchmark][metric]
        except KeyError as error:
            raise ValueError(f"{name} has no {metric} of {benchmark}: evaluate it again") from error


def _values(workdir: Path) -> dict[str, dict[str, list[float]]]:
    """Benchmark -> metric -> [value, low, high] of a run's newest evaluations.

    Raises ValueError for a missing or malformed result."""
    values = {}
    for folder in sorted((workdir / "evals").iterdir()):
        result = newest_result(folder)
        if result is None:
            raise ValueError(f"{folder} holds no results of a run that is done")
        try:
            values[folder.name] = {
                name: [round(float(metric[key]), 5) for key in ("value", "low", "high")]
                for name, metric in result["metrics"].items()
                if "/" not in name or folder.name in GROUPED
            }
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"a metric of {folder} has no value with an interval; remove its results and "
                "evaluate again"
            ) from error
    return values


def _over_seeds(values: Sequence[float]) -> Value:
    spread = np.std(values, ddof=1) / np.sqrt(len(values))
    return Value(np.mean(values), float(scipy.stats.t.ppf(0.975, len(values) - 1)) * spread)


def newest_result(folder: Path) -> dict | None:
    """The result of a benchmark at its last step: {"metrics": ..., "summary": names of metrics}.

    None if there is none. Raises ValueError for a damaged or another file.
    """
    steps = [path for path in folder.glob("*.json") if path.stem.isdecimal()]
    if not steps:
        return None
    newest = max(steps, key=lambda path: int(path.stem))
    try:
        result = workdir_files.parse_json(newest.read_bytes())
        metrics, names = result["metrics"], result.get("summary", ())
        chances = [metrics[name]["chance"] for name in names]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{newest} is damaged ({error}); remove it and evaluate again") from error
    if not all(isinstance(chance, int | float | None) for chance in chances):
        raise ValueError(f"{newest} is no result of a benchmark; remove it and evaluate again")
    return result
