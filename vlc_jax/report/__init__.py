"""HTML and Markdown report of a workdir, or comparison of several.

  vlc-jax report runs/clip runs/hn --out runs

`write` writes report.html and report.md, `write_comparison` comparison.html and comparison.md,
`write_cases` cases.html, a searchable list of the cases of one run or two; `table_text` is the
table of a paper, or every number (--format); `print_table` and `print_comparison` print results in
a terminal. With `published`, the name of a published model, its
values appear next to ours; with `train`, results are split by the bindings of training captions
(`overlap`). Reads files of workdirs only: neither JAX nor the models are imported.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vlc_jax.input_pipeline.commands import command_line
from vlc_jax.report import compare, paired, paper, read_workdir, table, to_terminal
from vlc_jax.report import published as published_values
from vlc_jax.report.blocks import Heading, Table, Text
from vlc_jax.report.published import UnknownModelError
from vlc_jax.report.read_workdir import NoCasesError, NotAWorkdirError

if TYPE_CHECKING:
    from vlc_jax.input_pipeline.hard_texts.bindings import Training

__all__ = [
    "NoCasesError",
    "NotAWorkdirError",
    "UnknownModelError",
    "print_comparison",
    "print_mixtures",
    "print_table",
    "records",
    "table_text",
    "write",
    "write_cases",
    "write_comparison",
    "write_methods",
]


def write(path: Path, published: str = "", train: "Training | None" = None) -> Path:
    """Writes WORKDIR/report.html, WORKDIR/report.md and the figures under WORKDIR/report/.

    Args:
      path: the workdir of a run, finished, failed or running.
      published: a model whose published values appear next to the run's.
      train: of the captions that the run was trained on.

    Returns:
      The path of report.html, which needs no other file and no network.

    Raises:
      NotAWorkdirError: `path` is not a workdir. UnknownModelError: no published values of the
        model. OSError: the files cannot be written.
    """
    run = read_workdir.read(path)
    beside = _add([run], published, train)
    command_line.import_matplotlib()
    from vlc_jax.report import page

    return page.write([run], run.path, "report", beside)


def print_table(
    results: Iterable[dict[str, Any]] | Path, published: str = "", train: "Training | None" = None
) -> None:
    """Prints the result table of contents of evals/*.json, or of the newest results of a workdir.

    published: a model whose published values appear next to ours.   train: only of a workdir.
    """
    beside = []
    if isinstance(results, Path):
        run, results = read_workdir.Run(results), read_workdir.newest_results(results)
        beside = _split(run, results, train)
    results = [*results]
    beside = [*beside, *(published_values.add(published, results) if published else [])]
    published_values.add_human(results)
    rows = table.rows(results)
    tables = [table.to_table(rows)] if rows else []
    to_terminal.show(*tables, *table.notes(results), *beside)


def print_mixtures(path: Path) -> None:
    """Prints the headline metrics of every interpolation of weights in a workdir (WiSE-FT)."""
    rows = [row for rows in table.mixed(read_workdir.mixtures(path)) for row in rows]
    if rows:
        to_terminal.show(table.to_table(rows))


def write_comparison(
    paths: Sequence[Path],
    folder: Path | None = None,
    published: str = "",
    train: "Training | None" = None,
) -> Path:
    """Writes comparison.html, comparison.md and the figures under comparison/ into `folder`.

    paths: the workdirs; the first is the baseline of all differences.
    folder: created if missing; default: the parent of the first workdir.

    Everything else as in `write`. Raises NotAWorkdirError also for a workdir that is given twice.
    """
    runs = _read_all(paths)
    beside = _add(runs, published, train)
    command_line.import_matplotlib()
    from vlc_jax.report import page

    return page.write(runs, folder or paths[0].resolve().parent, "comparison", beside)


def write_cases(
    paths: Sequence[Path], folder: Path | None = None, benchmarks: Sequence[str] = ()
) -> Path:
    """Writes cases.html: all cases of the newest evaluations, with filters and search.

    Args:
      paths: one workdir, or two to compare case by case.
      folder: created if missing; default: the workdir, or the parent of the first of two.
      benchmarks: names of the benchmarks to include; default: all.

    Returns:
      The path of cases.html, which needs no other file and no network.

    Raises:
      NotAWorkdirError: one of `paths` is not a workdir, or a duplicate. NoCasesError: an unknown
        benchmark, or no scores of cases. OSError: the file cannot be written.
    """
    runs = _read_all(paths)
    command_line.import_matplotlib()
    from vlc_jax.report import cases

    default = paths[0] if len(paths) == 1 else paths[0].resolve().parent
    return cases.write(runs, folder or default, benchmarks)


def table_text(
    paths: Sequence[Path], form: str, published: str = "", train: "Training | None" = None
) -> tuple[str, list[str]]:
    """Results of workdirs as one of `paper.FORMATS`, and notes on them.

    Raises as `write_comparison`, and ValueError for a workdir without results.
    """
    runs, names = _read_evaluated(paths), compare.names(paths)
    beside = _add(runs, published, train)
    results = compare.newest_results(runs)
    notes = [*paper.notes(names, runs), *compare.stale(names, results)]
    notes += [*compare.not_same(results), *beside]
    notes += dict.fromkeys(note for each in results for note in table.notes(each.values()))
    return paper.FORMATS[form](names, runs, published), notes


def write_methods(paths: Sequence[Path], folder: Path, missing: int) -> Path:
    """Prints the table of a paper (`paper.to_tables`), and writes comparison.html and comparison.md
    into `folder`; missing: number of trials that are not done."""
    runs, names = _read_all(paths), compare.names(paths)
    notes = paper.notes(names, runs) + ([f"{missing} trials are not done"] if missing else [])
    tables = paper.to_tables(names, runs) if any(run.evaluations for run in runs) else []
    notes += [] if tables else ["No benchmark has been evaluated yet."]
    to_terminal.show(*tables, *notes)
    command_line.import_matplotlib()
    from vlc_jax.report import page

    title = Heading(f"Comparison of {folder.name}", 1)
    return page.write_blocks([title, *tables, *map(Text, notes)], folder, "comparison")


def records(paths: Sequence[Path]) -> list[dict[str, Any]]:
    """`paper.records` of workdirs; raises as `table_text`."""
    runs = _read_evaluated(paths)
    _add(runs, "", None)
    return paper.records(compare.names(paths), runs)


def print_comparison(
    paths: Sequence[Path], published: str = "", train: "Training | None" = None
) -> None:
    """Prints the newest results of several workdirs side by side; raises as `write_comparison`."""
    runs = _read_all(paths)
    beside = _add(runs, published, train)
    names, results = compare.names(paths), compare.newest_results(runs)
    tables: list[Table | str] = ["No benchmark has been evaluated yet."]
    if lines := compare.lines(results):
        tables = [compare.to_table(names, lines, is_narrow=True)]
        differences = paired.lines(runs)
        tables += [paired.to_table(names, differences)] if differences else []
    to_terminal.show(*tables, *compare.stale(names, results), *compare.not_same(results), *beside)


def _add(runs: Sequence[read_workdir.Run], published: str, train: "Training | None") -> list[str]:
    """Adds published values of people and of a model, and groups of bindings, to the newest results
    of all runs; of the last two only those that are given."""
    by_run = [[one.newest for one in run.evaluations] for run in runs]
    results = [each for newest in by_run for each in newest]
    published_values.add_human(results)
    sentences = published_values.add(published, results) if published else []
    added = [_split(run, newest, train) for run, newest in zip(runs, by_run, strict=True)]
    return [*sentences, *dict.fromkeys(sentence for each in added for sentence in each)]


def _split(
    run: read_workdir.Run, results: list[dict[str, Any]], train: "Training | None"
) -> list[str]:
    """`overlap.add`; no effect without training captions."""
    if train is None:
        return []
    # taggers and word lists, which no other report needs
    from vlc_jax.report import overlap

    return overlap.add(run, results, train)


def _read_evaluated(paths: Sequence[Path]) -> list[read_workdir.Run]:
    runs = _read_all(paths)
    for path, run in zip(paths, runs, strict=True):
        if not run.evaluations:
            raise ValueError(f"{path} has no results yet: vlc-jax --mode eval --workdir {path}")
    return runs


def _read_all(paths: Sequence[Path]) -> list[read_workdir.Run]:
    resolved = set()
    for path in paths:
        if path.resolve() in resolved:
            raise NotAWorkdirError(f"{path} is given twice; compare different workdirs")
        resolved.add(path.resolve())
    return [read_workdir.read(path) for path in paths]
