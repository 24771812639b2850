"""Figures of a comparison, in the style of `plot`.

Runs differ in colour, marker, dash and order, so that the figures can be read without colour.
"""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter

from vlc_jax.report import plot, table
from vlc_jax.report.plot import THEME, Picture

RUNS = ("blue", "orange", "green", "purple", "red", "ink")  # of plot.THEME
MARKERS = ("o", "s", "^", "D", "v", "P")
DASHES = ("-", "--", "-.", ":")


def curves(
    name: str,
    title: str,
    runs: Sequence[tuple[str, Sequence[int], Sequence[float | int]]],
    *,
    is_fraction: bool = False,
    is_log: bool = False,
    is_from_zero: bool = False,
) -> Picture | None:
    """One training curve of several runs, each (name, steps, values), in one panel.

    Options as in `plot.curve`. None if no run has values. A run without values has no line and
    keeps its colour.
    """
    drawn = [(index, label, *plot.points(x, y)) for index, (label, x, y) in enumerate(runs)]
    drawn = [one for one in drawn if len(one[2])]
    if not drawn:
        return None

    def paint(axes: Axes) -> None:
        for index, _, x, y in drawn:
            colour, _, dash = run_style(index)
            plot.line(axes, x, y, THEME[colour], dash)
        plot.finish(axes, is_fraction)
        plot.scale(axes, np.concatenate([y for *_, y in drawn]), is_log, is_from_zero)
        _legend(axes, [(index, label) for index, label, *_ in drawn], "lower", letters=48)

    description = "; ".join(
        f"{label} from {y[0]:.4g} at step {x[0]:.0f} to {y[-1]:.4g} at step {x[-1]:.0f}"
        for _, label, x, y in drawn
    )
    return plot.draw(name, title, f"{title}: {description}.", (4.6, 3.0), paint)


def grouped_bars(
    name: str,
    title: str,
    runs: Sequence[str],
    groups: Sequence[Sequence[table.Row | None]],
    symbols: Sequence[Sequence[str]],
) -> Picture:
    """Bar chart of several metrics in several runs: a group of bars per metric, a bar per run.

    Args:
      runs: names of the runs.
      groups: rows of each metric, one per run in the same order, None if a run lacks it; all
        fractions.
      symbols: text after the number of each row.
    """
    height = 1 / (len(runs) + 0.8)

    def paint(axes: Axes) -> None:
        for group, rows in enumerate(groups):
            for index, row in enumerate(rows):
                if row is not None:
                    y = group + (index - (len(runs) - 1) / 2) * height
                    text = f"{table.percent(row.value)} {symbols[group][index]}".strip()
                    _bar(axes, y, height, index, row, text)
            for chance in {row.chance for row in rows if row and row.chance is not None}:
                ends = [group - len(runs) * height / 2, group + len(runs) * height / 2]
                axes.plot([chance] * 2, ends, color=THEME["ink"], linewidth=1.4)
        first = [next(row for row in rows if row is not None) for rows in groups]
        axes.set_yticks(range(len(groups)), [f"{row.benchmark}  {row.label}" for row in first])
        axes.tick_params(axis="y", labelcolor=THEME["ink"])
        axes.set_xlim(0, 1.0)
        axes.set_ylim(len(groups) - 0.4, -0.6)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{100 * v:.0f} %"))
        axes.grid(axis="x", color=THEME["line"], linewidth=0.7)
        axes.set_axisbelow(True)
        axes.spines["left"].set_visible(False)
        _legend(axes, list(enumerate(runs)), "upper", letters=110)

    description = "; ".join(
        f"{row.benchmark} {row.label} {run} {table.percent(row.value)} percent"
        + (f" (paper {table.percent(row.paper)})" if row.paper is not None else "")
        for rows in groups
        for run, row in zip(runs, rows, strict=True)
        if row is not None
    )
    size = (11.0, 1.3 + len(groups) * (0.12 + 0.19 * len(runs)))
    return plot.draw(name, title, description, size, paint)


def _bar(axes: Axes, y: float, height: float, index: int, row: table.Row, text: str) -> None:
    colour, marker, _ = run_style(index)
    colour, end = THEME[colour], row.value
    axes.barh(y, row.value, height=0.86 * height, color=colour, alpha=0.3, linewidth=0)
    if row.low is not None and row.high is not None:
        axes.plot([row.low, row.high], [y, y], color=colour, linewidth=1.6)
        end = row.high
    axes.plot([row.value], [y], marker, color=colour, markersize=3.6)
    if row.paper is not None:
        axes.plot([row.paper], [y], "D", color=THEME["ink"], markersize=4.6, fillstyle="none")
        end = max(end, row.paper) if row.paper - end < 0.06 else end
    # otherwise the number would cover the tick of chance
    if row.chance is not None and 0 <= row.chance - end < 0.06:
        end = row.chance
    axes.annotate(
        text, (end, y), (5, 0), textcoords="offset points",
        va="center", color=colour, fontsize=8.5,
    )  # fmt: skip


def run_style(index: int) -> tuple[str, str, str]:
    """Colour (of THEME), marker and dash of the run with this index in the comparison."""
    # shifted when the colours repeat, so that each (colour, dash) is unique
    dash = DASHES[(index + index // len(RUNS)) % len(DASHES)]
    return RUNS[index % len(RUNS)], MARKERS[index % len(MARKERS)], dash


def _legend(axes: Axes, runs: Sequence[tuple[int, str]], side: str, letters: int) -> None:
    """Legend of the runs (index, name) beside the panel, about `letters` characters per line."""
    handles = []
    for index, _ in runs:
        colour, marker, dash = run_style(index)
        line = Line2D([], [], color=THEME[colour], marker=marker, linestyle=dash, markersize=4)
        handles.append(line)
    # Matplotlib omits names that start with an underscore
    names = [" " + plot.plain(label) for _, label in runs]
    columns = max(1, min(len(names), letters // (max(map(len, names)) + 5)))
    axes.figure.legend(
        handles, names, loc=f"outside {side} left", ncols=columns,
        frameon=False, fontsize=9, handlelength=2.6,
    )  # fmt: skip
