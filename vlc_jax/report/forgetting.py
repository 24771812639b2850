"""Plot of compositional gain against forgetting in zero-shot classification and retrieval.

Training on hard negatives improves compositional benchmarks, often at the cost of general accuracy.
A point is a run: x is the change of its mean over retrieval and zero-shot benchmarks, y over
compositional ones, both relative to the first run, in percentage points. Grey points are published
models relative to the same run.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from vlc_jax.report import compare, plot, published
from vlc_jax.report.compare import Line
from vlc_jax.report.plot import THEME

AXES = ("forgetting", "compositional")  # values of `Display.axis`: horizontal, vertical
# percentage points around the runs; published models cover a far wider range
MARGIN = 10.0
Lines = dict[str, list[Line]]  # benchmark -> the metrics whose mean is its value
Values = dict[tuple[str, str], float]  # (benchmark, metric) -> value of a run or a model


class Forgetting(NamedTuple):
    """Changes from the first run in percentage points, (retrieval and zero-shot, compositional).

    general, compositional: benchmarks of the two means.   runs: index in the comparison -> point;
      runs without results are missing.
    models: one point per published model; empty unless both axes have benchmarks with their values.
    left_out: benchmarks without published values, if there are `models`.
    """

    general: list[str]
    compositional: list[str]
    runs: dict[int, tuple[float, float]]
    models: list[tuple[float, float]]
    left_out: list[str]

    @property
    def sentence(self) -> str:
        """Sentence: benchmarks of the two axes, and the grey models."""
        text = (
            "Change from the first run, in percentage points. Compositional: the mean of "
            f"{', '.join(self.compositional)}; "
            f"retrieval and zero-shot: of {', '.join(self.general)}. "
        )
        if not self.models:
            return text + "No grey points: these benchmarks have no published checkpoints."
        outside = sum(not _is_within(point, limits([*self.runs.values()])) for point in self.models)
        text += f"Grey: {len(self.models)} published checkpoints"
        text += f", {outside} of them outside of the plot. " if outside else ". "
        if self.left_out:
            text += f"Without their values, and so not in the means: {', '.join(self.left_out)}."
        return text.strip()


def measure(results: Sequence[Mapping[str, dict[str, Any]]]) -> Forgetting | None:
    """Points of a comparison; None if an axis has no benchmark that all runs with results share.

    results: `compare.newest_results`. Published values need the runs' metric, protocol and number
    of cases; if both axes have benchmarks with such values, the means are over these only.
    """
    indices = [index for index, of_run in enumerate(results) if of_run]
    # every change is from the first run, so it needs results
    if len(indices) < 2 or indices[0] != 0:
        return None
    every = compare.lines(results, everything=True)
    shared = [line for line in every if _is_shared(line, indices)]
    headlines = _headlines(line for line in compare.headlines(results) if _is_shared(line, indices))
    readers = {name: str(result.get("reader")) for name, result in results[0].items()}
    models = _models(shared, readers)
    with_values = _with_values(headlines, shared, models)
    is_published = all(_axes(with_values))
    axes = _axes(with_values) if is_published else _axes(headlines)
    if not all(axes):
        return None
    runs = {index: {_key(line): line.rows[index].value for line in shared} for index in indices}
    needed = {_key(line) for lines in axes for each in lines.values() for line in each}
    complete = [model for model in models.values() if needed <= model.keys()]
    points = [_change(axes, runs[0], model) for model in complete] if is_published else []
    general, compositional = ([*lines] for lines in axes)
    every = [name for lines in _axes(headlines) for name in lines]
    left_out = [name for name in every if name not in (*general, *compositional)]
    return Forgetting(
        general,
        compositional,
        {index: _change(axes, runs[0], values) for index, values in runs.items()},
        points,
        left_out if points else [],
    )


def picture(names: Sequence[str], measured: Forgetting) -> plot.Picture:
    """The plot of `measure`."""
    low, high = limits([*measured.runs.values()])

    def paint(axes: Axes) -> None:
        grey = np.array([p for p in measured.models if _is_within(p, (low, high))]).reshape(-1, 2)
        axes.plot(*grey.T, "o", color=THEME["muted"], alpha=0.45, markersize=3, linewidth=0)
        axes.axhline(0, color=THEME["line"], linewidth=1.2)
        axes.axvline(0, color=THEME["line"], linewidth=1.2)
        for index, (x, y) in measured.runs.items():
            colour, marker, _ = plot.run_style(index)
            axes.plot([x], [y], marker, color=THEME[colour], markersize=8)
            # in the right half the label is left of the point, so that it stays in the plot
            is_right = x > (low[0] + high[0]) / 2
            axes.annotate(
                plot.plain(names[index]), (x, y), (-8 if is_right else 8, 7),
                textcoords="offset points", ha="right" if is_right else "left",
                color=THEME[colour], fontsize=9,
            )  # fmt: skip
        axes.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]))
        axes.set_xlabel("retrieval and zero-shot, change in points")
        axes.set_ylabel("compositional, change in points")
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:+g}".replace("-", "−")))

    points = "; ".join(
        f"{names[index]} {y:+.1f} compositional, {x:+.1f} retrieval and zero-shot"
        for index, (x, y) in measured.runs.items()
    )
    title = "Compositional gain and forgetting"
    margins = (0.75, 0.6, 0.25, 0.4)
    return plot.draw(
        "forgetting", title, f"{title}, in points: {points}.", (5.4, 3.9), paint, margins
    )


def limits(runs: Sequence[tuple[float, float]]) -> tuple[np.ndarray, np.ndarray]:
    """Lowest and highest values of both axes: the range of the runs plus a margin."""
    points = np.array(runs)
    low, high = points.min(axis=0), points.max(axis=0)
    margin = np.maximum(MARGIN, 0.25 * (high - low))
    return low - margin, high + margin


def _is_within(point: tuple[float, float], ends: tuple[np.ndarray, np.ndarray]) -> bool:
    return bool(np.all((ends[0] <= point) & (point <= ends[1])))


def _is_shared(line: Line, indices: Sequence[int]) -> bool:
    """True for a fraction, higher is better, that these runs have on the same cases."""
    rows = [line.rows[index] for index in indices]
    if None in rows or not all(line.is_comparable):
        return False
    return all(
        row.unit == "fraction" and 0 <= row.value <= 1 and not row.is_better_small for row in rows
    )


def _headlines(lines: Iterable[Line]) -> Lines:
    """Headline of each benchmark; both directions of retrieval."""
    by_benchmark: Lines = {}
    for line in lines:
        of_benchmark = by_benchmark.setdefault(line.benchmark, [])
        if not of_benchmark or line.metric == "text_to_image_r1":
            of_benchmark.append(line)
    return by_benchmark


def _axes(lines: Lines) -> list[Lines]:
    """The benchmarks of each of AXES."""
    return [
        {name: each for name, each in lines.items() if each[0].any_row.display.axis == axis}
        for axis in AXES
    ]


def _models(lines: Sequence[Line], readers: Mapping[str, str]) -> dict[str, Values]:
    """Checkpoint -> its values of the lines with comparable published values."""
    known = {score["benchmark"] for score in published.rows("checkpoint_scores.csv")}
    ours: dict[str, list[Line]] = {}
    for line in lines:
        for name in {line.benchmark.partition("@")[0], readers.get(line.benchmark, "")} & known:
            ours.setdefault(name, []).append(line)
    models: dict[str, Values] = {}
    for value in published.checkpoint_values() if ours else ():
        for line in ours.get(value.benchmark, ()):
            if published.is_same(line.any_row, value):
                models.setdefault(value.model, {})[_key(line)] = value.number
    return models


def _with_values(
    headlines: Lines, everything: Sequence[Line], models: Mapping[str, Values]
) -> Lines:
    """Lines of each benchmark with published values: its headline, else its groups."""
    known = {key for model in models.values() for key in model}
    with_values: Lines = {}
    for name, lines in headlines.items():
        metric = lines[0].metric.partition("/")[0].removesuffix("_macro")
        chosen = lines
        # SugarCrepe has published values of its subsets, none of the whole
        if not all(_key(line) in known for line in lines):
            of_benchmark = [line for line in everything if line.benchmark == name]
            groups = [line for line in of_benchmark if line.metric.partition("/")[0] == metric]
            chosen = [line for line in groups if _key(line) in known]
        if chosen:
            with_values[name] = chosen
    return with_values


def _key(line: Line) -> tuple[str, str]:
    return line.benchmark, line.metric


def _change(axes: Sequence[Lines], first: Values, values: Values) -> tuple[float, float]:
    """Change from `first` to `values` on both axes, in percentage points."""
    x, y = (_mean(lines, values) - _mean(lines, first) for lines in axes)
    return x, y


def _mean(lines: Lines, values: Values) -> float:
    """Mean over benchmarks of the mean over their lines, in percent."""
    means = [np.mean([values[_key(line)] for line in each]) for each in lines.values()]
    return 100 * float(np.mean(means))
