"""Nulls of evaluation sets, as `vlc-jax benchmarks --nulls` prints them."""

import sys
from collections.abc import Sequence

from vlc_jax.input_pipeline.benchmarks import image_nulls, nulls


def print_nulls(
    rows: Sequence[nulls.Null], image_rows: Sequence[image_nulls.ImageNull] = ()
) -> None:
    """Prints a line per set, subset and metric, in percent, and remarks on the sets."""
    from rich import box, console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD)
    for column in ("set", "metric", "cases", *nulls.SHARES):
        table.add_column(column, justify="left" if column in ("set", "metric") else "right")
    for row in rows:
        shares = (f"{100 * getattr(row, name):.1f}" for name in nulls.SHARES)
        name = f"  {row.subset}" if row.subset else row.benchmark
        table.add_row(name, row.metric, f"{row.cases:,}", *shares)
    console.Console(width=None if sys.stdout.isatty() else 120).print(table)
    for line in (*remarks(rows), *map(_image_line, image_rows)):
        print(line)


def _image_line(null: image_nulls.ImageNull) -> str:
    line = (
        f"{null.benchmark}: images alone: the first is told apart in {100 * null.image:.1f} % of "
        f"{null.cases:,} cases (chance {100 * null.chance:.1f})"
    )
    if null.matched is not None:
        line += f"; image and caption in the same direction in {100 * null.matched:.1f} %"
    return line


def remarks(rows: Sequence[nulls.Null]) -> list[str]:
    """Sentences on the sets, "NAME: ..."."""
    totals = {(row.benchmark, row.metric): row for row in rows if not row.subset}
    lines = []
    for name, metric in totals:
        row = totals[name, metric]
        if metric == "individual_accuracy":
            first = totals[name, nulls.FIRST_CAPTION]
            lines.append(
                f"{name}: text bias cancels by design: blind {100 * row.blind:.1f} % individual "
                f"accuracy, {100 * totals[name, 'pair_accuracy'].blind:.1f} % pair accuracy; the "
                f"two captions are told apart in {100 * first.blind:.1f} %"
            )
    return lines
