"""Comparison of the points of a grid: a row per point, mean and 95 % interval over its seeds."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from vlc_jax.report import compare, page, read_workdir, table, to_terminal
from vlc_jax.report.blocks import Content, Heading, Span, Table, Text

LEGEND = (
    "Values in percent (ranks and scores as they are). ±: half of the 95 % interval over seeds "
    "(Student's t); of one seed, the interval over test cases."
)


class Point(NamedTuple):
    """Values of a point by name, and workdirs of its seeds, finished and others."""

    values: Mapping[str, str]
    done: list[Path]
    missing: list[Path]


def write(points: Sequence[Point], folder: Path) -> Path:
    """Writes comparison.html and comparison.md into `folder`, and prints the table."""
    runs = [run for point in points for run in point.done]
    results = [{each["benchmark"]: each for each in read_workdir.newest_results(p)} for p in runs]
    lines = compare.headlines(results)
    notes = compare.not_same(results) if lines else ["No benchmark has been evaluated yet."]
    made = to_table(points, lines)
    to_terminal.show(made, *notes)
    title = Heading(f"Comparison of {folder.name}", 1)
    return page.write_blocks([title, made, *map(Text, notes)], folder, "comparison")


def to_table(points: Sequence[Point], lines: Sequence[compare.Line]) -> Table:
    """Table with a row per point and a column per metric; lines: of the runs of all points."""
    names = [*dict.fromkeys(name for point in points for name in point.values)]
    header = [*names, "seeds", *(f"{line.any_row.name} {line.any_row.label}" for line in lines)]
    rows, end = list[list[Content]](), 0
    for values, done, missing in points:
        start, end = end, end + len(done)
        number = str(len(done)) + (f" of {len(done) + len(missing)}" if missing else "")
        cells = (_cell(line.rows[start:end]) for line in lines)
        rows.append([*(values[name] for name in names), number, *cells])
    return Table(header, rows, len(names), "runs", LEGEND)


def _cell(rows: Sequence[table.Row | None]) -> Content:
    known = [row for row in rows if row is not None]
    if not known:
        return "–"
    mean, around = known[0].value, table.interval(known[0])
    if len(known) > 1:
        mean, half = over_seeds([row.value for row in known])
        around = f"±{table.number(known[0], half)}"
    return [Span(table.number(known[0], mean), "bold"), " ", Span(around, "muted")]


def over_seeds(values: Sequence[float]) -> tuple[float, float]:
    """Mean of several values, and half of its 95 % interval (Student's t)."""
    # here, because its import is slow
    from scipy import stats

    spread = float(np.std(values, ddof=1)) / len(values) ** 0.5
    return float(np.mean(values)), float(stats.t.ppf(0.975, len(values) - 1)) * spread
