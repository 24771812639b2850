"""A workdir becomes a page: python -m vlc_jax.report WORKDIR

Reads files only; nothing of JAX or of the models is imported. The door for the rest of vlc_jax:
`write` makes report.html and report.md, `print_table` shows results in a terminal.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import rich.console

from vlc_jax.report import page, table, workdir
from vlc_jax.report.workdir import NotAWorkdirError

__all__ = ["NotAWorkdirError", "print_mixtures", "print_table", "write"]


def write(path: Path, baseline: Path | None = None) -> Path:
    """Writes WORKDIR/report.html, WORKDIR/report.md and the figures under WORKDIR/report/.

    Args:
      path: the workdir, of a run that is finished, failed or still going on.
      baseline: a config.json, or a workdir with one, that the config is compared with; without it
        WORKDIR/default_config.json, if a run wrote one.

    Returns:
      The path of report.html, which needs no other file and no network.

    Raises:
      NotAWorkdirError: `path` is no workdir, or `baseline` holds no config. OSError: the files
        cannot be written.
    """
    run = workdir.read(path)
    if baseline is not None:
        run.default_config = workdir.read_config(baseline)
    return page.write(run)


def print_table(results: Iterable[dict[str, Any]] | Path) -> None:
    """Prints the result table of evals/*.json contents, or of the newest ones in a workdir."""
    if isinstance(results, Path):
        results = workdir.newest_results(results)
    rows = table.rows(results)
    if rows:
        rich.console.Console().print(table.to_rich(rows))


def print_mixtures(path: Path) -> None:
    """Prints the headlines of every mixture of weights in a workdir."""
    rows = [row for rows in table.mixed(workdir.mixtures(path)) for row in rows]
    if rows:
        rich.console.Console().print(table.to_rich(rows))
