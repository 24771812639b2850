"""Figures of a report as SVG: inline in HTML, separate files for Markdown.

All colours are from THEME and become CSS variables in HTML, so that a figure follows the page into
dark mode. No pyplot, since it has global state.
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
from matplotlib.ticker import FuncFormatter, MaxNLocator

from vlc_jax.report import table
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
COLOURS = {"above": "blue", "at": "orange", "below": "red", "": "blue"}  # verdict -> colour
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
NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")  # invalid in XML, not in HTML
PAPER = '<rect width="100%" height="100%" fill="#ffffff"/>'
MAX_POINTS = 1500  # per curve; more are averaged in bins
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
    svg = re.sub(r'(<image\b[^>]*?) id="[^"]*"', r"\1", svg)  # a hash: equal images would share it
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    svg = re.sub(r'(href="#|url\(#)', rf"\g<1>{name}-", svg)
    label = description.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")
    return svg.replace("<svg ", f'<svg role="img" aria-label="{label}" ', 1)


def curve(
    name: str,
    title: str,
    steps: Sequence[int],
    values: Sequence[float | int],
    *,
    resumes: Sequence[int] = (),
    level: tuple[float, str] | None = None,
    right: tuple[float, str] | None = None,
    is_fraction: bool = False,
    is_log: bool = False,
    is_from_zero: bool = False,
) -> Picture | None:
    """Figure of one training curve over steps; None without finite values.

    Args:
      resumes: steps at which the run was resumed, drawn as dotted lines.
      level: a horizontal line and its label.
      right: a second axis, the value divided by the factor, and its label.
      is_fraction: values in [0, 1], shown in percent. is_log: a logarithmic axis, if all values
        are > 0 and span more than a factor 30. is_from_zero: the axis starts at 0.
    """
    x, y = points(steps, values)
    if not len(x):
        return None

    def paint(axes: Axes) -> None:
        for step in resumes:
            axes.axvline(step, color=THEME["muted"], linewidth=0.8, linestyle=":")
        line(axes, x, y, THEME["blue"])
        finish(axes, is_fraction)
        scale(axes, y, is_log, is_from_zero)
        if level is not None:
            axes.axhline(level[0], color=THEME["orange"], linewidth=1, linestyle="--")
            axes.annotate(
                level[1], (1, level[0]), (-2, 3), ("axes fraction", "data"), "offset points",
                ha="right", color=THEME["orange"],
            )  # fmt: skip
        if right is not None:
            factor = right[0]
            second = axes.secondary_yaxis(
                "right", functions=(lambda v: v / factor, lambda v: v * factor)
            )
            second.set_ylabel(right[1])
            second.spines["right"].set_visible(False)
            second.tick_params(right=False)

    description = f"{title} from {y[0]:.4g} at step {x[0]:.0f} to {y[-1]:.4g} at step {x[-1]:.0f}."
    margins = (0.65, 0.5, 0.15 if right is None else 0.65, 0.5)  # the title in one line
    return draw(name, title, description, (4.6, 2.7), paint, margins)


def along(
    name: str, axis: str, positions: Sequence[float | int], rows: Sequence[table.Row], metric: str
) -> Picture:
    """Figure of one metric over steps (or another axis), with its 95 % band and chance.

    The y axis is always 0 to 1, so that figures of different benchmarks can be compared.
    """
    newest = rows[-1]
    values, low, high = (
        np.array([np.nan if v is None else v for v in column], float)
        for column in zip(*((row.value, row.low, row.high) for row in rows), strict=True)
    )

    def paint(axes: Axes) -> None:
        colour = THEME["blue"]
        axes.fill_between(positions, low, high, color=colour, alpha=0.18, linewidth=0)
        axes.plot(positions, values, color=colour, linewidth=1.6, marker="o", markersize=3)
        if newest.chance is not None:
            axes.axhline(newest.chance, color=THEME["orange"], linewidth=1, linestyle="--")
        axes.set_ylim(-0.03, 1.03)
        finish(axes, is_fraction=True, axis=axis)
        axes.set_yticks([0, 0.25, 0.5, 0.75, 1])

    description = (
        f"{newest.benchmark}, {metric}: {table.percent(values[0])} percent at {axis} "
        f"{positions[0]}, {table.percent(values[-1])} at {axis} {positions[-1]}, "
        f"chance {table.percent(newest.chance)}."
    )
    margins = (0.65, 0.5, 0.15, 0.7)  # a title of two lines
    return draw(name, f"{newest.benchmark}\n{metric}", description, (3.2, 2.5), paint, margins)


def bars(name: str, rows: Sequence[table.Row]) -> Picture:
    """Bar chart of headline metrics with 95 % intervals, chance as a tick, and the numbers."""
    fractions = [row for row in rows if row.unit == "fraction"]

    def paint(axes: Axes) -> None:
        for y, row in enumerate(reversed(fractions)):
            colour = THEME[COLOURS[row.verdict]]
            axes.barh(y, row.value, height=0.56, color=colour, alpha=0.35, linewidth=0)
            end = row.value
            if row.low is not None and row.high is not None:
                axes.plot([row.low, row.high], [y, y], color=colour, linewidth=2)
                end = row.high
            axes.plot([row.value], [y], "o", color=colour, markersize=4)
            if row.chance is not None:
                axes.plot([row.chance] * 2, [y - 0.4, y + 0.4], color=THEME["ink"], lw=1.4)
                end = max(end, row.chance)
            remark = {"at": "  ≈ chance", "below": "  worse than chance"}.get(row.verdict, "")
            axes.annotate(
                f"{table.percent(row.value)}{remark}", (end, y), (6, 0),
                textcoords="offset points", va="center", color=colour,
            )  # fmt: skip
        axes.set_yticks(range(len(fractions)))
        axes.set_yticklabels([f"{row.benchmark}  {row.label}" for row in reversed(fractions)])
        axes.tick_params(axis="y", labelcolor=THEME["ink"])
        axes.set_xlim(0, 1.0)
        axes.set_ylim(-0.7, len(fractions) - 0.3)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{100 * v:.0f} %"))
        axes.grid(axis="x", color=THEME["line"], linewidth=0.7)
        axes.set_axisbelow(True)
        axes.spines["left"].set_visible(False)

    title = "Benchmarks: value, 95 % interval, chance (upright tick)"
    description = "; ".join(
        f"{row.benchmark} {row.label} {table.percent(row.value)} percent, chance "
        f"{table.percent(row.chance)}"
        for row in fractions
    )
    return draw(name, title, description, (11.0, 0.9 + 0.31 * len(fractions)), paint)


def points(steps: Sequence[int], values: Sequence[float | int]) -> tuple[np.ndarray, np.ndarray]:
    """Finite points, averaged in bins if there are more than MAX_POINTS."""
    x, y = np.asarray(steps, float), np.asarray(values, float)
    return _thin(x[np.isfinite(y)], y[np.isfinite(y)])


def line(axes: Axes, x: np.ndarray, y: np.ndarray, colour: str, dash: str = "-") -> None:
    if len(x) >= SMOOTH:
        axes.plot(x, y, color=colour, alpha=0.25, linewidth=0.8)
        axes.plot(x, _running_mean(y), dash, color=colour, linewidth=1.6)
    else:
        marker = "o" if len(x) <= 12 else None
        axes.plot(x, y, dash, color=colour, linewidth=1.6, marker=marker, markersize=3.5)


def scale(axes: Axes, y: np.ndarray, is_log: bool, is_from_zero: bool) -> None:
    if is_log and (y > 0).all() and y.max() > 30 * y.min():
        axes.set_yscale("log")
    if is_from_zero:
        axes.set_ylim(0, 1.1 * y.max() or 1)


def finish(axes: Axes, is_fraction: bool, axis: str = "step") -> None:
    axes.grid(axis="y", color=THEME["line"], linewidth=0.7)
    axes.set_axisbelow(True)
    axes.set_xlabel(axis)
    axes.spines["left"].set_visible(False)
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=axis == "step"))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: _short(v)))
    if is_fraction:
        axes.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{100 * v:.4g} %"))


def _short(value: float | int) -> str:
    """Short form of a step count: 800, 12k, 1.5M."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            return f"{value / (1e3 if letter == 'k' else size):.4g}{letter}"
    return f"{value:.4g}"


def _thin(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """At most MAX_POINTS points: means of equal bins."""
    if len(x) <= MAX_POINTS:
        return x, y
    bins = np.array_split(np.arange(len(x)), MAX_POINTS)
    return tuple(np.array([v[b].mean() for b in bins]) for v in (x, y))


def _running_mean(y: np.ndarray) -> np.ndarray:
    """Centred mean over a fortieth of the curve, shorter at its ends."""
    half = max(1, len(y) // 80)
    total = np.concatenate([[0.0], np.cumsum(y)])
    low = np.maximum(np.arange(len(y)) - half, 0)
    high = np.minimum(np.arange(len(y)) + half + 1, len(y))
    return (total[high] - total[low]) / (high - low)
