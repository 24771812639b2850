"""Scores of single cases of several runs in one Parquet file, for statistics elsewhere:

  vlc-jax scores runs/clip runs/hp_hn --out scores.parquet

A row per run, benchmark and case of the newest evaluation: run, benchmark, protocol, step, version
(of the data), case, image (cases may share one), group (JSON), captions (list), scores (list, image
after image), images (their number), correct, tie. Results on different data have different
versions: join on benchmark, version and case.
"""

import argparse
import itertools
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from vlc_jax.input_pipeline.commands import addresses, command_line
from vlc_jax.input_pipeline.record import DataError
from vlc_jax.report import compare, read_workdir
from vlc_jax.report.read_workdir import NotAWorkdirError

# Rows per write: the scores of many runs exceed the memory.
ROWS = 50_000


def rows(name: str, run: read_workdir.Run) -> Iterator[dict[str, Any]]:
    """Yields the rows of a run, without cases that have no scores."""
    for benchmark, result in compare.newest_results([run])[0].items():
        file = Path("evals") / benchmark / f"{result['step']}.scores.jsonl"
        for row in read_workdir.score_rows(run, file):
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
            }


def write(paths: Sequence[Path], out: Path) -> int:
    """Writes the scores of the workdirs to `out`; returns the number of rows.

    Raises DataError for a path that is not a workdir, and if no workdir has scores.
    """
    import pyarrow
    from pyarrow import parquet

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
        }
    )
    written, part = 0, out.with_name(f".{out.name}.writing")
    named = zip(compare.names(paths), runs, strict=True)
    every = (row for name, run in named for row in rows(name, run))
    with parquet.ParquetWriter(part, schema) as writer:
        while batch := list(itertools.islice(every, ROWS)):
            writer.write_table(pyarrow.Table.from_pylist(batch, schema=schema))
            written += len(batch)
    if not written:
        part.unlink()
        raise DataError(f"{', '.join(map(str, paths))}: no benchmark has been evaluated yet")
    # atomic: `out` is complete or absent
    part.replace(out)
    return written


@addresses.allowed
def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="vlc-jax scores",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("workdirs", nargs="+", type=Path, help="of runs with evaluations")
    parser.add_argument("--out", required=True, type=Path, help="the Parquet file")

    def run(options: argparse.Namespace) -> int:
        number = write(options.workdirs, options.out)
        print(f"{number:,} rows of {len(options.workdirs)} runs: {options.out}")
        return 0

    return command_line.exit_code(run, parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
