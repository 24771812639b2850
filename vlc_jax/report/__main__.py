"""vlc-jax report WORKDIR ... [--published MODEL] [--out FOLDER] [--train TABLE]
[--cases [BENCHMARK ...]] [--format csv|json|latex|markdown]"""

import argparse
import sys
from pathlib import Path

from vlc_jax import report
from vlc_jax.input_pipeline import stores
from vlc_jax.input_pipeline.commands import addresses, command_line
from vlc_jax.input_pipeline.record import DataError
from vlc_jax.report import paper


@addresses.allowed
def main(arguments: list[str] | None = None) -> int:
    """Writes the report or comparison and prints its path; returns 0, or 2 after an error."""
    options = _parser().parse_args(arguments)
    if not options.train and (options.column or options.tagger):
        return _refuse("--column and --tagger belong to --train TABLE, the training captions")
    is_comparison = len(options.workdirs) > 1
    if options.out and not (is_comparison or options.format):
        return _refuse("--out belongs to several workdirs; the report of one goes into it")
    if options.cases is not None and (reason := _not_with_cases(options)):
        return _refuse(reason)
    if options.format and options.out and options.out.is_dir():
        return _refuse(f"--format writes a table, and --out {options.out} is a folder: name a file")
    try:
        train = None
        if options.train:
            from vlc_jax.input_pipeline.hard_texts import bindings

            train = bindings.Training(options.train, options.column or "caption", options.tagger)
        beside = options.published, train
        if options.format:
            page, notes = report.table_text(options.workdirs, options.format, *beside)
            print("".join(f"{note}\n" for note in notes), end="", file=sys.stderr)
            if options.out:
                options.out.parent.mkdir(parents=True, exist_ok=True)
                stores.replace(options.out, f"{page}\n".encode())
                page = options.out
        elif options.cases is not None:
            page = report.write_cases(options.workdirs, options.out, options.cases)
        elif is_comparison:
            page = report.write_comparison(options.workdirs, options.out, *beside)
            report.print_comparison(options.workdirs, *beside)
        else:
            page = report.write(options.workdirs[0], *beside)
            if options.published or options.train:
                report.print_table(options.workdirs[0], *beside)
    except (report.NotAWorkdirError, report.NoCasesError, ValueError, DataError) as error:
        return _refuse(str(error))
    except OSError as error:
        return _refuse(f"the report cannot be written: {error}")
    print(page)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = command_line.parser("report", report.__doc__)
    parser.add_argument(
        "workdirs",
        metavar="workdir",
        nargs="+",
        type=Path,
        help="the --workdir of a run; several are compared with the first",
    )
    parser.add_argument(
        "--out",
        type=Path,
        help="folder of comparison.html, default: beside the first workdir; with --format its file",
    )
    parser.add_argument(
        "--format",
        choices=paper.FORMATS,
        help="print results instead: the table of a paper (latex, markdown), seeds as one row, or"
        " every metric of every run with interval, chance and blind (csv, json)",
    )
    parser.add_argument(
        "--published",
        metavar="MODEL",
        default="",
        help='a model of vlc_jax/report/published whose values stand beside ours: "CLIP ViT-B/32"',
    )
    parser.add_argument(
        "--train",
        metavar="TABLE",
        type=Path,
        help="training captions (JSONL, TSV, CSV, COCO captions JSON, .txt, a prepared folder):"
        " results are split by whether these hold the bindings of a case's captions",
    )
    parser.add_argument("--column", default="", help="of --train; default: caption")
    parser.add_argument(
        "--tagger",
        default="",
        help="of --train: KIND:ARGUMENT, or words; default: spacy:en_core_web_sm if it is"
        " installed, else words",
    )
    parser.add_argument(
        "--cases",
        metavar="BENCHMARK",
        nargs="*",
        help="write cases.html instead: every case of one run or two, to be filtered and searched;"
        " with names, of these benchmarks",
    )
    return parser


def _not_with_cases(options: argparse.Namespace) -> str:
    """Reason why --cases is incompatible with the other options; "" if it is compatible."""
    if len(options.workdirs) > 2:
        return f"--cases shows one run or two side by side; {len(options.workdirs)} are given"
    if options.published or options.train or options.format:
        return "--cases has no --published, --train or --format: they are of other pages"
    return ""


def _refuse(reason: str) -> int:
    print(f"error: {reason}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
