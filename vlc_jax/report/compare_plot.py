"""The figures of a comparison, in the style of `plot`: runs are told apart by colour, by marker or
dash, and by their order.
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
    is_share: bool = False,
    is_log: bool = False,
    is_from_zero: bool = False,
) -> Picture | None:
    """The same training curve of several runs, each (its name, steps, values), over each other.

    A run without values has no line, but its colour stays its own. Options as of `plot.curve`;
    None if no run has values.
    """
    found = [(place, label, *plot.points(x, y)) for place, (label, x, y) in enumerate(runs)]
    found = [one for one in found if len(one[2])]
    if not found:
        return None

    def paint(axes: Axes) -> None:
        for place, _, x, y in found:
            colour, _, dash = run_style(place)
            plot.line(axes, x, y, THEME[colour], dash)
        plot.finish(axes, is_share)
        plot.scale(axes, np.concatenate([y for *_, y in found]), is_log, is_from_zero)
        _legend(axes, [(place, label) for place, label, *_ in found], "lower", letters=48)

    words = "; ".join(
        f"{label} from {y[0]:.4g} at step {x[0]:.0f} to {y[-1]:.4g} at step {x[-1]:.0f}"
        for _, label, x, y in found
    )
    return plot.draw(name, title, f"{title}: {words}.", (4.6, 3.0), paint)


def grouped_bars(
    name: str,
    title: str,
    runs: Sequence[str],
    groups: Sequence[Sequence[table.Row | None]],
    marks: Sequence[Sequence[str]],
) -> Picture:
    """Several metrics in several runs: one group of bars per metric, in it a bar per run.

    Args:
      runs: their names. groups: the rows of one metric, one per run in this order, None where a
        run lacks it; fractions. marks: what is written behind the number of each row.
    """
    height = 1 / (len(runs) + 0.8)

    def paint(axes: Axes) -> None:
        for group, rows in enumerate(groups):
            for place, row in enumerate(rows):
                if row is not None:
                    y = group + (place - (len(runs) - 1) / 2) * height
                    text = f"{table.percent(row.value)} {marks[group][place]}".strip()
                    _bar(axes, y, height, place, row, text)
            for chance in {row.chance for row in rows if row and row.chance is not None}:
                ends = [group - len(runs) * height / 2, group + len(runs) * height / 2]
                axes.plot([chance] * 2, ends, color=THEME["ink"], linewidth=1.4)
        first = [next(row for row in rows if row is not None) for rows in groups]
        axes.set_yticks(range(len(groups)), [f"{row.benchmark}  {row.words}" for row in first])
        axes.tick_params(axis="y", labelcolor=THEME["ink"])
        axes.set_xlim(0, 1.0)
        axes.set_ylim(len(groups) - 0.4, -0.6)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{100 * v:.0f} %"))
        axes.grid(axis="x", color=THEME["line"], linewidth=0.7)
        axes.set_axisbelow(True)
        axes.spines["left"].set_visible(False)
        _legend(axes, list(enumerate(runs)), "upper", letters=110)

    words = "; ".join(
        f"{row.benchmark} {row.words} {run} {table.percent(row.value)} percent"
        for rows in groups
        for run, row in zip(runs, rows, strict=True)
        if row is not None
    )
    size = (11.0, 1.3 + len(groups) * (0.12 + 0.19 * len(runs)))
    return plot.draw(name, title, words, size, paint)


def _bar(axes: Axes, y: float, height: float, place: int, row: table.Row, text: str) -> None:
    colour, marker, _ = run_style(place)
    colour, end = THEME[colour], row.value
    axes.barh(y, row.value, height=0.86 * height, color=colour, alpha=0.3, linewidth=0)
    if row.low is not None and row.high is not None:
        axes.plot([row.low, row.high], [y, y], color=colour, linewidth=1.6)
        end = row.high
    axes.plot([row.value], [y], marker, color=colour, markersize=3.6)
    if row.chance is not None and 0 <= row.chance - end < 0.06:  # the number is no place for it
        end = row.chance
    axes.annotate(
        text, (end, y), (5, 0), textcoords="offset points",
        va="center", color=colour, fontsize=8.5,
    )  # fmt: skip


def run_style(place: int) -> tuple[str, str, str]:
    """Colour (of THEME), marker and dash of the run at this place among those compared."""
    dash = DASHES[(place + place // len(RUNS)) % len(DASHES)]  # two rounds of colours differ
    return RUNS[place % len(RUNS)], MARKERS[place % len(MARKERS)], dash


def _legend(axes: Axes, runs: Sequence[tuple[int, str]], side: str, letters: int) -> None:
    """Names the runs (place, name) beside the panel, about `letters` in a line."""
    handles = []
    for place, _ in runs:
        colour, marker, dash = run_style(place)
        line = Line2D([], [], color=THEME[colour], marker=marker, linestyle=dash, markersize=4)
        handles.append(line)
    # Matplotlib would leave out names that begin with an underscore.
    names = [" " + plot.plain(label) for _, label in runs]
    columns = max(1, min(len(names), letters // (max(map(len, names)) + 5)))
    axes.figure.legend(
        handles, names, loc=f"outside {side} left", ncols=columns,
        frameon=False, fontsize=9, handlelength=2.6,
    )  # fmt: skip
