"""HTML and Markdown report of a workdir, or comparison of several.

Command line: python -m vlc_jax.report WORKDIR [WORKDIR ...]

`write` makes report.html and report.md, `write_comparison` comparison.html and comparison.md;
`print_table` and `print_comparison` print results in a terminal. Reads files of workdirs only:
neither JAX nor the models are imported.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import rich.console
import rich.measure

from vlc_jax.report import compare, read_workdir, table
from vlc_jax.report.read_workdir import NotAWorkdirError

__all__ = [
    "NotAWorkdirError",
    "print_comparison",
    "print_mixtures",
    "print_table",
    "write",
    "write_comparison",
]


def write(path: Path, baseline: Path | None = None) -> Path:
    """Writes WORKDIR/report.html, WORKDIR/report.md and the figures under WORKDIR/report/.

    Args:
      path: the workdir of a run that is finished, failed or still running.
      baseline: a config.json, or a workdir with one, to compare the config with; by default
        WORKDIR/default_config.json, if there is one.

    Returns:
      The path of report.html, which needs no other file and no network.

    Raises:
      NotAWorkdirError: `path` is no workdir, or `baseline` holds no config. OSError: the files
        cannot be written.
    """
    run = read_workdir.read(path)
    if baseline is not None:
        run.default_config = read_workdir.read_config(baseline)
    from vlc_jax.report import page  # matplotlib takes a second to import

    return page.write(run)


def print_table(results: Iterable[dict[str, Any]] | Path) -> None:
    """Prints the result table of contents of evals/*.json, or of the newest ones in a workdir."""
    if isinstance(results, Path):
        results = read_workdir.newest_results(results)
    rows = table.rows(results)
    if rows:
        rich.console.Console().print(table.to_rich(rows))


def print_mixtures(path: Path) -> None:
    """Prints the headline metrics of every interpolation of weights in a workdir (WiSE-FT)."""
    rows = [row for rows in table.mixed(read_workdir.mixtures(path)) for row in rows]
    if rows:
        rich.console.Console().print(table.to_rich(rows))


def write_comparison(paths: Sequence[Path], folder: Path | None = None) -> Path:
    """Writes comparison.html, comparison.md and the figures under comparison/ into `folder`.

    Args:
      paths: the workdirs; the first is the baseline of all differences.
      folder: created if missing; by default the parent of the first workdir.

    Returns:
      The path of comparison.html, which needs no other file and no network.

    Raises:
      NotAWorkdirError: one of `paths` is no workdir, or is given twice. OSError: the files cannot
        be written.
    """
    from vlc_jax.report import compare_page

    return compare_page.write(_read_all(paths), folder or paths[0].resolve().parent)


def print_comparison(paths: Sequence[Path]) -> None:
    """Prints the newest results of several workdirs side by side; raises as `write_comparison`."""
    runs = _read_all(paths)
    names, results = compare.names(paths), compare.newest_results(runs)
    console = rich.console.Console()
    if lines := compare.lines(results):
        comparison = compare.to_rich(names, lines)
        # A console narrower than its longest words would cut them.
        minimum = rich.measure.Measurement.get(console, console.options, comparison).minimum
        rich.console.Console(width=max(minimum, console.width)).print(comparison)
    else:
        console.print("No benchmark has been evaluated yet.")
    for sentence in compare.stale(names, results):
        console.print(sentence, markup=False)
    fields: dict[str, list[str]] = {}
    for benchmark, field, _ in compare.other_cases(results):
        fields.setdefault(benchmark, []).append(field)
    for benchmark, differing in fields.items():
        console.print(f"≠ {benchmark}: not the same {', '.join(differing)}", markup=False)


def _read_all(paths: Sequence[Path]) -> list[read_workdir.Run]:
    resolved = set()
    for path in paths:
        if path.resolve() in resolved:
            raise NotAWorkdirError(f"{path} is given twice; compare different workdirs")
        resolved.add(path.resolve())
    return [read_workdir.read(path) for path in paths]
