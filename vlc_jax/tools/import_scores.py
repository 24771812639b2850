"""Scores of benchmark cases that another program computed, as a folder like the workdir of a run:

  vlc-jax import_scores gpt.jsonl --benchmark sugarcrepe --root sets --workdir evals/gpt
  vlc-jax report runs/clip evals/gpt

TABLE: Parquet, CSV, TSV or JSONL with a row per case: `case` (or `id`), the case's id, and
`scores`, a list with one score per caption, the correct caption first, image after image (in CSV
as JSON: "[0.31, 0.27]"). Optional columns: `captions`, compared with the benchmark's; `benchmark`
and `run`, to take the rows of one of each. This is the form that `vlc-jax scores` writes and the
form of evals/<benchmark>/<step>.scores.jsonl. Ids and captions of a benchmark, for the program that
computes the scores: vlc_jax.input_pipeline.benchmarks.sugarcrepe.sugarcrepe(root="sets").cases.
Exit codes: 0 done, 2 usage, 3 data (a case without scores, scores without a case).
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from vlc_jax.errors import usage_errors
from vlc_jax.evaluation import library
from vlc_jax.input_pipeline.commands import command_line
from vlc_jax.input_pipeline.images import parquet_file
from vlc_jax.input_pipeline.record import DataError
from vlc_jax.input_pipeline.sources import tables
from vlc_jax.tools import command


def read(path: Path, benchmark: str, run: str = "") -> dict[str, dict[str, Any]]:
    """Case id -> {"scores", "captions"} of a table, in the form of `score_table.scorer`.

    benchmark, run: the rows to take, if the table has such columns.

    Raises DataError for a missing column, a case that occurs twice, and rows of several runs.
    """
    rows = [row for row in _rows(path) if row.get("benchmark") in (None, "", benchmark)]
    if not rows:
        others = {str(row.get("benchmark")) for row in _rows(path)}
        raise DataError(
            f"{path} has no rows of {benchmark!r}; it has {', '.join(sorted(others)) or 'no rows'}"
        )
    runs = dict.fromkeys(str(row["run"]) for row in rows if row.get("run") is not None)
    if run:
        rows = [row for row in rows if row.get("run") == run]
    elif len(runs) > 1:
        raise DataError(f"{path} has rows of the runs {', '.join(runs)}: choose one with --run")
    if not rows:
        raise DataError(
            f"{path} has no rows of the run {run!r}; it has {', '.join(runs) or 'none'}"
        )
    table: dict[str, dict[str, Any]] = {}
    for number, row in enumerate(rows, 1):
        case = row.get("case", row.get("id"))
        if case is None or row.get("scores") is None:
            raise DataError(
                f"{path}: a row has case (or id) and scores; row {number} has {', '.join(row)}"
            )
        if str(case) in table:
            raise DataError(f"{path}: case {case!r} occurs twice, again in row {number}")
        table[str(case)] = {key: _list(row.get(key)) for key in ("scores", "captions")}
    return table


def _rows(path: Path) -> list[dict[str, Any]]:
    if path.suffix.lower() == ".parquet":
        return parquet_file.read_rows(path)
    table = tables.open_table(path)
    # by index, which raises for a damaged row
    return [table[index] for index in range(len(table))]


def _list(cell: Any) -> Any:
    """A cell as a list; in CSV it is text."""
    if not isinstance(cell, str):
        return cell
    try:
        return json.loads(cell) if cell else None
    except ValueError:
        raise DataError(f"a list is written as JSON, [0.31, 0.27]; got {cell!r:.80}") from None


def _parser() -> argparse.ArgumentParser:
    parser = command_line.parser("import_scores", __doc__)
    parser.add_argument("table", type=Path)
    parser.add_argument("--benchmark", required=True, help="of config.evals, such as sugarcrepe")
    parser.add_argument("--root", type=Path, help="folder of the published sets")
    parser.add_argument("--workdir", required=True, type=Path, help="a folder for this model alone")
    parser.add_argument("--name", default="", help="of the model, for the results")
    parser.add_argument("--run", default="", help="one of several in the column run")
    text = "of the benchmark or its protocol, such as count=100 or tie=half"
    parser.add_argument("--option", **command_line.PAIRS, help=text)
    return parser


def _run(args: argparse.Namespace) -> str:
    with usage_errors():
        options = command_line.parse_options(args.option)
        table = read(args.table, args.benchmark, args.run)
    results = library.evaluate(
        table,
        {args.benchmark: options},
        root=args.root,
        workdir=args.workdir,
        name=args.name or args.table.stem,
    )
    results.print()
    return f"{len(table):,} cases: vlc-jax report {args.workdir}"


main = command.main(_parser, _run)

if __name__ == "__main__":
    sys.exit(main())
