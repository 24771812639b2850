"""Figures of a report or a comparison as SVG: inline in HTML, separate files for Markdown.

All colours are from THEME and become CSS variables in HTML, so that a figure follows the page into
dark mode. Runs differ in colour, marker and dash, so that figures can be read without colour. No
pyplot, since it has global state.
"""

import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import EngFormatter, MaxNLocator, PercentFormatter

from vlc_jax.report import table
from vlc_jax.report.compare import RUNS
from vlc_jax.run import workdir_files

THEME = {  # CSS variable -> light value, also used in files; report.css has the dark values
    "ink": "#1c2126",
    "muted": "#5d6873",
    "line": "#d9dee3",
    "blue": "#0a68b4",
    "orange": "#a35200",
    "red": "#b3261e",
    "green": "#17744d",
    "purple": "#7a3aa8",
}
MARKERS = ("o", "s", "^", "D", "v", "P")
DASHES = ("-", "--", "-.", ":")
# verdict -> colour
COLOURS = {"at": "orange", "below": "red", "blind": "purple", "below-blind": "purple"}
RC = {
    "axes.edgecolor": THEME["line"],
    "axes.labelcolor": THEME["muted"],
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 11,
    "axes.titlecolor": THEME["ink"],
    "axes.titlepad": 7,
    "font.size": 10,
    "image.composite_image": False,  # images keep their resolution
    "svg.fonttype": "none",  # text stays searchable and has the page's font
    "svg.hashsalt": "vlc_jax",  # makes ids, and so the bytes, reproducible
    "text.color": THEME["ink"],
    "xtick.color": THEME["muted"],
    "ytick.color": THEME["muted"],
    "xtick.major.size": 3,
    "ytick.major.size": 0,
}
# invalid in XML, not in HTML
NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")
PAPER = '<rect width="100%" height="100%" fill="#ffffff"/>'
# per curve; more are averaged in bins
MAX_POINTS = 1500
SMOOTH = 60  # curves with at least as many points get a running mean


@dataclass(frozen=True)
class Picture:
    """A rendered figure; description: its content as text, for screen readers.

    svg: inline SVG that needs the CSS variables of THEME.
    """

    name: str
    title: str
    description: str
    svg: str

    def write(self, folder: Path) -> None:
        """Writes NAME.svg as a stand-alone file: light colours on white."""
        svg = NOT_XML.sub("", self.svg).replace("<defs>", f"{PAPER}\n <defs>", 1)
        for variable, colour in THEME.items():
            svg = svg.replace(f"var(--{variable})", colour)
        workdir_files.without_link(folder / f"{self.name}.svg").write_text(svg, "utf-8")


def draw(
    name: str,
    title: str,
    description: str,
    size: tuple[float, float],
    paint: Callable[[Axes], None],
    margins: tuple[float, float, float, float] | None = None,
) -> Picture:
    """Figure of one panel of `size` inches, painted by `paint`.

    margins: left, bottom, right, top in inches; None: measured from the labels, which doubles the
    time.
    """
    with matplotlib.rc_context(RC):
        layout = "constrained" if margins is None else "none"
        figure = Figure(figsize=size, layout=layout, facecolor="none")
        axes = figure.add_subplot()
        if margins is not None:
            (width, height), (left, bottom, right, top) = size, margins
            x, y = left / width, bottom / height
            axes.set_position((x, y, 1 - (left + right) / width, 1 - (bottom + top) / height))
        axes.set_facecolor("none")
        # y: otherwise Matplotlib measures all labels three times to place the title, a quarter of
        # the time. Only an axis's power of ten could overlap it, so that one goes to the right.
        axes.set_title(plain(title), y=1.0)
        axes.yaxis.set_offset_position("right")
        paint(axes)
        return _rendered(name, title, description, figure)


def panel(
    name: str,
    title: str,
    description: str,
    size: tuple[float, float],
    paint: Callable[[Axes], None],
) -> Picture:
    """Figure filled by one panel; `paint` uses inches from its top left corner."""
    with matplotlib.rc_context(RC):
        figure = Figure(figsize=size, facecolor="none")
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set_axis_off()
        paint(axes)
        axes.set(xlim=(0, size[0]), ylim=(size[1], 0))
        return _rendered(name, title, description, figure)


def _rendered(name: str, title: str, description: str, figure: Figure) -> Picture:
    svg = io.StringIO()
    # not savefig, which draws everything once more to measure it
    FigureCanvasSVG(figure).print_svg(svg)
    return Picture(name, title, description, _themed(svg.getvalue(), name, description))


def plain(text: str) -> str:
    """Text without control characters and with "$" escaped, which would start mathematics."""
    return NOT_XML.sub("", text).replace("$", r"\$")


def _themed(svg: str, name: str, description: str) -> str:
    """Inline SVG: colours as CSS variables, ids prefixed with the figure's name, an aria-label.

    Ids must be unique in a page, where all figures are inline.
    """
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    for variable, colour in THEME.items():
        svg = svg.replace(colour, f"var(--{variable})")
    # a hash: equal images would share it
    svg = re.sub(r'(<image\b[^>]*?) id="[^"]*"', r"\1", svg)
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    svg = re.sub(r'(href="#|url\(#)', rf"\g<1>{name}-", svg)
    label = description.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")
    return svg.replace("<svg ", f'<svg role="img" aria-label="{label}" ', 1)


Curve = tuple[str, Sequence[int], Sequence[float | int]]  # name of the run, steps, values


def curves(
    name: str,
    title: str,
    runs: Sequence[Curve],
    *,
    resumes: Sequence[int] = (),
    ln_batch: float | None = None,
    axis: str = "",
) -> Picture | None:
    """Figure of one training curve of one run or several; None if no run has two finite values.

    Args:
      runs: the only run has no legend; a run without values has no line and keeps its colour.
      resumes: steps at which the run was resumed, drawn as dotted lines.
      ln_batch: the logarithm of the batch size, a dashed line and the unit of a second axis.
      axis: words. percent: values in [0, 1], shown in percent. log: a logarithmic axis, if all
        values are > 0 and span more than a factor 30. zero: the axis starts at 0.
    """
    drawn = [(index, label, *_points(x, y)) for index, (label, x, y) in enumerate(runs)]
    drawn = [one for one in drawn if len(one[2])]
    if all(len(x) < 2 for _, _, x, _ in drawn):
        return None

    def paint(axes: Axes) -> None:
        for step in resumes:
            axes.axvline(step, color=THEME["muted"], linewidth=0.8, linestyle=":")
        for index, _, x, y in drawn:
            colour, _, dash = run_style(index)
            _line(axes, x, y, THEME[colour], dash)
        _finish(axes, "percent" in axis)
        _scale(axes, np.concatenate([y for *_, y in drawn]), axis)
        if ln_batch is not None:
            _paint_ln_batch(axes, ln_batch)
        if len(runs) > 1:
            _legend(axes, [(index, label) for index, label, *_ in drawn], "lower", letters=48)

    ends = (
        f"{label} from {y[0]:.4g} at step {x[0]:.0f} to {y[-1]:.4g} at step {x[-1]:.0f}".strip()
        for _, label, x, y in drawn
    )
    description = f"{title}{':' if len(runs) > 1 else ''} {'; '.join(ends)}."
    # the legend needs a measured layout
    if len(runs) > 1:
        return draw(name, title, description, (4.6, 3.0), paint)
    # the title in one line
    margins = (0.65, 0.5, 0.15 if ln_batch is None else 0.65, 0.5)
    return draw(name, title, description, (4.6, 2.7), paint, margins)


def _paint_ln_batch(axes: Axes, ln_batch: float) -> None:
    colour = THEME["orange"]
    axes.axhline(ln_batch, color=colour, linewidth=1, linestyle="--")
    axes.annotate(
        "ln(batch)", (1, ln_batch), (-2, 3), ("axes fraction", "data"), "offset points",
        ha="right", color=colour,
    )  # fmt: skip
    functions = (lambda loss: loss / ln_batch, lambda share: share * ln_batch)
    second = axes.secondary_yaxis("right", functions=functions)
    second.set_ylabel("loss / ln(batch)")
    second.spines["right"].set_visible(False)
    second.tick_params(right=False)


def along(
    name: str, axis: str, positions: Sequence[float | int], rows: Sequence[table.Row], metric: str
) -> Picture:
    """Figure of one metric over steps (or another axis), with its 95 % band and chance.

    The y axis is always 0 to 1, so that figures of different benchmarks can be compared.
    """
    newest = rows[-1]
    estimates = np.array([[row.value, row.low, row.high] for row in rows], float)  # None: nan
    values, low, high = estimates.T

    def paint(axes: Axes) -> None:
        colour = THEME["blue"]
        axes.fill_between(positions, low, high, color=colour, alpha=0.18, linewidth=0)
        axes.plot(positions, values, color=colour, linewidth=1.6, marker="o", markersize=3)
        if newest.chance is not None:
            axes.axhline(newest.chance, color=THEME["orange"], linewidth=1, linestyle="--")
        axes.set_ylim(-0.03, 1.03)
        _finish(axes, is_fraction=True, axis=axis)
        axes.set_yticks([0, 0.25, 0.5, 0.75, 1])

    description = (
        f"{newest.name}, {metric}: {table.percent(values[0])} percent at {axis} "
        f"{positions[0]}, {table.percent(values[-1])} at {axis} {positions[-1]}, "
        f"chance {table.percent(newest.chance)}."
    )
    # a title of two lines
    margins = (0.65, 0.5, 0.15, 0.7)
    return draw(name, f"{newest.name}\n{metric}", description, (3.2, 2.5), paint, margins)


def bars(
    name: str,
    title: str,
    runs: Sequence[str],
    groups: Sequence[Sequence[table.Row | None]],
    remarks: Sequence[Sequence[str]],
) -> Picture:
    """Bar chart of metrics with 95 % intervals, chance and the blind score: a group of bars per
    metric, one per run.

    Args:
      runs: names of the runs; the bars of a single run have the colour of their verdict.
      groups: rows of each metric, one per run in the same order, None if a run lacks it; all
        fractions.
      remarks: text after the number of each row.
    """
    height = 1 / (len(runs) + 0.8)
    is_single = len(runs) == 1

    def paint(axes: Axes) -> None:
        for group, rows in enumerate(groups):
            for index, row in enumerate(rows):
                if row is not None:
                    y = group + (index - (len(runs) - 1) / 2) * height
                    text = f"{table.percent(row.value)} {remarks[group][index]}".strip()
                    colour, marker, _ = run_style(index)
                    colour = COLOURS.get(row.verdict, "blue") if is_single else colour
                    _bar(axes, y, height, row, text, THEME[colour], marker)
            ends = [group - len(runs) * height / 2, group + len(runs) * height / 2]
            for null, style in (("chance", "-"), ("blind", ":")):
                nulls = {getattr(row, null) for row in rows if row}
                for value in nulls - {None}:
                    axes.plot([value] * 2, ends, style, color=THEME["ink"], linewidth=1.4)
        first = [next(row for row in rows if row is not None) for rows in groups]
        axes.set_yticks(range(len(groups)), [f"{row.name}  {row.label}" for row in first])
        axes.tick_params(axis="y", labelcolor=THEME["ink"])
        axes.set_xlim(0, 1.0)
        axes.set_ylim(len(groups) - 0.4, -0.6)
        axes.xaxis.set_major_formatter(PercentFormatter(1, decimals=0, symbol=" %"))
        axes.grid(axis="x", color=THEME["line"], linewidth=0.7)
        axes.set_axisbelow(True)
        axes.spines["left"].set_visible(False)
        if not is_single:
            _legend(axes, list(enumerate(runs)), "upper", letters=110)

    description = "; ".join(
        " ".join(filter(None, (row.name, row.label, run, table.percent(row.value))))
        + f" percent, chance {table.percent(row.chance)}"
        + (f", blind {table.percent(row.blind)}" if row.blind is not None else "")
        + (f" (paper {table.percent(row.paper)})" if row.paper is not None else "")
        for rows in groups
        for run, row in zip(runs, rows, strict=True)
        if row is not None
    )
    size = (11.0, 1.3 + len(groups) * (0.12 + 0.19 * len(runs)))
    return draw(name, title, description, size, paint)


def _bar(
    axes: Axes, y: float, height: float, row: table.Row, text: str, colour: str, marker: str
) -> None:
    end = row.value
    axes.barh(y, row.value, height=0.86 * height, color=colour, alpha=0.3, linewidth=0)
    if row.low is not None and row.high is not None:
        axes.plot([row.low, row.high], [y, y], color=colour, linewidth=1.6)
        end = row.high
    axes.plot([row.value], [y], marker, color=colour, markersize=3.6)
    if row.paper is not None:
        axes.plot([row.paper], [y], "D", color=THEME["ink"], markersize=4.6, fillstyle="none")
        end = max(end, row.paper) if row.paper - end < 0.06 else end
    # otherwise the text, about .01 of the axis per letter, would cover a tick
    for tick in sorted(each for each in (row.chance, row.blind) if each is not None):
        if 0 <= tick - end < 0.02 + 0.01 * len(text):
            end = tick
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
    names = [" " + plain(label) for _, label in runs]
    columns = max(1, min(len(names), letters // (max(map(len, names)) + 5)))
    axes.figure.legend(
        handles, names, loc=f"outside {side} left", ncols=columns,
        frameon=False, fontsize=9, handlelength=2.6,
    )  # fmt: skip


def _points(steps: Sequence[int], values: Sequence[float | int]) -> tuple[np.ndarray, np.ndarray]:
    """Finite points, averaged in bins if there are more than MAX_POINTS."""
    x, y = np.asarray(steps, float), np.asarray(values, float)
    return _thin(x[np.isfinite(y)], y[np.isfinite(y)])


def _line(axes: Axes, x: np.ndarray, y: np.ndarray, colour: str, dash: str) -> None:
    if len(x) >= SMOOTH:
        axes.plot(x, y, color=colour, alpha=0.25, linewidth=0.8)
        axes.plot(x, _running_mean(y), dash, color=colour, linewidth=1.6)
    else:
        marker = "o" if len(x) <= 12 else None
        axes.plot(x, y, dash, color=colour, linewidth=1.6, marker=marker, markersize=3.5)


def _scale(axes: Axes, y: np.ndarray, axis: str) -> None:
    if "log" in axis and (y > 0).all() and y.max() > 30 * y.min():
        axes.set_yscale("log")
    if "zero" in axis:
        # a curve of zeros would have an axis without height
        axes.set_ylim(0, 1.1 * y.max() or 1)


def _finish(axes: Axes, is_fraction: bool, axis: str = "step") -> None:
    axes.grid(axis="y", color=THEME["line"], linewidth=0.7)
    axes.set_axisbelow(True)
    axes.set_xlabel(axis)
    axes.spines["left"].set_visible(False)
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=axis == "step"))
    if axis == "step":
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    if is_fraction:
        axes.yaxis.set_major_formatter(PercentFormatter(1, symbol=" %"))


def _thin(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """At most MAX_POINTS points: means of equal bins."""
    if len(x) <= MAX_POINTS:
        return x, y
    bins = np.array_split(np.arange(len(x)), MAX_POINTS)
    return tuple(np.array([v[b].mean() for b in bins]) for v in (x, y))


def _running_mean(y: np.ndarray) -> np.ndarray:
    """Centred mean over a fortieth of the curve, shorter at its ends."""
    window = np.ones(2 * max(1, len(y) // 80) + 1)
    # the same sum of ones counts the values, fewer at the ends
    return np.convolve(y, window, "same") / np.convolve(np.ones_like(y), window, "same")
