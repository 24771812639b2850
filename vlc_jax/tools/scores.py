"""Scores of single cases of several runs in one file, Parquet, CSV or JSONL by its suffix, for
statistics elsewhere:

  vlc-jax scores runs/clip runs/hp_hn --out scores.parquet

A row per run, benchmark and case of the newest evaluation: run, benchmark, protocol, step, version
(of the data), case, image (cases may share one), group (JSON), captions (list), scores (list, image
after image), images (their number), correct, tie; of the metric behind correct: blind and ceiling,
the credit of this case without the image (a classifier of the texts, the best bag of words), and
chance and human, the same for all cases of a benchmark. In CSV the lists are JSON. Results on
different data have different versions: join on benchmark, version and case.
Exit codes: 0 done, 2 usage, 3 data (no scores, a damaged or truncated file of results).
"""

import csv
import dataclasses
import itertools
import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from vlc_jax.input_pipeline.commands import addresses, command_line
from vlc_jax.input_pipeline.record import DataError
from vlc_jax.report import compare, display, published, read_workdir, table
from vlc_jax.report.read_workdir import NotAWorkdirError

# Rows per write: the scores of many runs exceed the memory.
ROWS = 50_000
# Suffixes of the files that are written; import_scores reads them, too.
FORMS = (".parquet", ".csv", ".jsonl")


def rows(name: str, run: read_workdir.Run) -> Iterator[dict[str, Any]]:
    """Yields the rows of a run, without cases that have no scores.

    Raises DataError for a damaged result, and for a file of scores that is not whole.
    """
    for note in run.notes:
        if re.match(r"evals/[^/]+/\d+\.json ", note):
            raise DataError(f"{run.path}/{note}; restore it, or remove it and evaluate again")
    for benchmark, result in compare.newest_results([run])[0].items():
        beside = _beside(result)
        for row in _whole(run, benchmark, result):
            scores = row.get("scores")
            if not isinstance(scores, list) or not scores:
                continue
            by_image = scores if isinstance(scores[0], list) else [scores]
            yield {
                "run": name,
                "benchmark": benchmark,
                "protocol": result.get("protocol"),
                "step": result["step"],
                "version": result.get("version"),
                "case": str(row.get("id")),
                "image": str(row.get("image", row.get("id"))),
                "group": json.dumps(row.get("group")),
                "captions": [str(caption) for caption in row.get("captions", ())],
                "scores": [float(score) for each in by_image for score in each],
                "images": len(by_image),
                "correct": bool(row.get("correct")),
                "tie": bool(row.get("tie")),
                **beside,
                **{name: _share(row.get(name)) for name in ("blind", "ceiling")},
            }


def _beside(result: dict[str, Any]) -> dict[str, float | None]:
    """Chance and the published value of people for the metric behind `correct`."""
    label = display.of(result).correct
    for row in table.rows([result], everything=True):
        if row.label == label:
            name, reader = str(result.get("benchmark")), str(result.get("reader"))
            macro = dataclasses.replace(row, metric=f"{row.metric}_macro")
            people = [published.human(name, reader, each) for each in (row, macro)]
            return {"chance": row.chance, "human": next(filter(None, people), None)}
    return {"chance": None, "human": None}


def _share(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _whole(
    run: read_workdir.Run, benchmark: str, result: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    """Yields all rows of a scores.jsonl. Raises DataError, at its end, if some are missing."""
    run.notes.clear()
    count, expected = 0, result.get("score_rows", "an unknown number")
    for row in read_workdir.score_rows(run, benchmark, result):
        count += 1
        yield row
    file = run.path / "evals" / benchmark / f"{result['step']}.scores.jsonl"
    if run.notes or count != expected:
        problem = "".join(f" ({note})" for note in run.notes if "it was cut" not in note)
        raise DataError(
            f"{file} is damaged: it has {count} whole rows of {expected}{problem}; restore "
            f"it, or remove {result['step']}.json beside it and evaluate again"
        )


@contextmanager
def _writer(path: Path, form: str, schema: Any) -> Iterator[Callable[[list[dict[str, Any]]], None]]:
    """A function that appends rows to a new file of the form .parquet, .csv or .jsonl."""
    import pyarrow
    from pyarrow import parquet

    if form == ".parquet":
        with parquet.ParquetWriter(path, schema) as writer:
            yield lambda batch: writer.write_table(pyarrow.Table.from_pylist(batch, schema=schema))
        return
    with path.open("w", newline="", encoding="utf-8") as file:
        if form == ".jsonl":
            yield lambda batch: file.writelines(json.dumps(row) + "\n" for row in batch)
            return
        writer = csv.DictWriter(file, schema.names)
        writer.writeheader()
        yield lambda batch: writer.writerows(
            {k: json.dumps(v) if isinstance(v, list | bool) else v for k, v in row.items()}
            for row in batch
        )


def write(paths: Sequence[Path], out: Path) -> int:
    """Writes the scores of the workdirs to `out`; returns the number of rows.

    Raises ValueError for another suffix of `out` than those of FORMS, DataError for a path that is
    not a workdir, for damaged files in one, and if no workdir has scores.
    """
    import pyarrow

    form = out.suffix.lower()
    if form not in FORMS:
        raise ValueError(f"--out ends in {', '.join(FORMS)}, the form of the file; got {out}")
    try:
        runs = [read_workdir.read(path) for path in paths]
    except NotAWorkdirError as error:
        raise DataError(str(error)) from error
    text, number = pyarrow.string(), pyarrow.int64()
    # not inferred: a first part in which a column is all None would have another type
    schema = pyarrow.schema(
        {
            **dict.fromkeys(("run", "benchmark", "protocol"), text),
            "step": number,
            **dict.fromkeys(("version", "case", "image", "group"), text),
            "captions": pyarrow.list_(text),
            "scores": pyarrow.list_(pyarrow.float64()),
            "images": number,
            **dict.fromkeys(("correct", "tie"), pyarrow.bool_()),
            **dict.fromkeys(("chance", "human", "blind", "ceiling"), pyarrow.float64()),
        }
    )
    written, part = 0, out.with_name(f".{out.name}.writing")
    named = zip(compare.names(paths), runs, strict=True)
    every = (row for name, run in named for row in rows(name, run))
    try:
        with _writer(part, form, schema) as append:
            while batch := list(itertools.islice(every, ROWS)):
                append(batch)
                written += len(batch)
        if not written:
            raise DataError(f"{', '.join(map(str, paths))}: no benchmark has been evaluated yet")
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    # atomic: `out` is complete or absent
    part.replace(out)
    return written


def _run(words: list[str]) -> int:
    parser = command_line.parser("scores", __doc__)
    add = parser.add_argument
    add("workdirs", nargs="+", type=Path, help="of runs with evaluations")
    add("--out", required=True, type=Path, help="the file: .parquet, .csv or .jsonl")
    options = parser.parse_args(words)
    number, runs = write(options.workdirs, options.out), len(options.workdirs)
    rows_of = f"{number:,} row{'s' * (number != 1)} of {runs} run{'s' * (runs != 1)}"
    print(f"{rows_of}: {options.out}")
    return 0


main = addresses.command(_run)

if __name__ == "__main__":
    sys.exit(main())
