"""Data check before training: counts, caption lengths, four pictures, damaged records.

  python -m input_pipeline.check captions.jsonl --image-folder images --picture check.png

Training runs the same check on its first records (`preview`). Exit code 0: training would accept
the data; 3: it would not, or they cannot be read; 2: wrong request.
"""

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import input_pipeline
from input_pipeline import command_line, inspection, record_validation
from input_pipeline.record import DataError, Source
from input_pipeline.sources import shards, tables
from input_pipeline.sources.records import RecordsSource

HOLDOUT = 0.2  # share of the images for validation, the default of configs/records.py


def draw_samples(samples: Sequence[tuple[str, np.ndarray, list[str]]], path: Path) -> None:
    """Writes a picture file with the images, their ids and first captions."""
    import textwrap
    import warnings

    from matplotlib import figure

    sheet = figure.Figure(figsize=(3.2 * len(samples), 4.2))
    for axes, (name, pixels, captions) in zip(
        sheet.subplots(1, len(samples), squeeze=False)[0], samples, strict=True
    ):
        axes.imshow(pixels)
        axes.set_axis_off()
        text = "\n".join(textwrap.fill(caption[:200], 36) for caption in captions[:3])
        axes.set_title(textwrap.shorten(name, 40).replace("$", r"\$"), fontsize=7)
        axes.text(
            0, -0.04, text.replace("$", r"\$"), transform=axes.transAxes, fontsize=8, va="top"
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of letters that the font lacks: they become boxes
        sheet.savefig(path, dpi=110, bbox_inches="tight")


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code."""
    return command_line.exit_code(_run, _parser().parse_args(arguments))


def _run(options: argparse.Namespace) -> int:
    path = Path(options.path)
    if path.is_dir():
        source: Source = _open_prepared(path)
    else:
        given = command_line.parse_options(options.option)
        for column in ("image_folder", "image_column", "caption_column"):
            if getattr(options, column) is not None:
                given[column] = getattr(options, column)
        source = _open_table(path, given)
    number = len(source) if options.count is None else min(options.count, len(source))
    with command_line.bar("checking", number) as advance:
        report = inspection.inspect(
            source, count=options.count, threads=options.threads, progress=advance
        )
    print(report)
    if isinstance(source, RecordsSource):
        counts = source.images_per_split().items()
        print("different images:", ", ".join(f"{split} {number:,}" for split, number in counts))
    if options.picture and report.samples:
        draw_samples(report.samples, Path(options.picture))
        print(f"samples: {options.picture}")
    if options.words:
        _write_words(source, number, Path(options.words), options.min_count)
    inspection.check_report(report, options.max_bad_share)
    return 0


def _open_table(path: Path, given: dict[str, Any]) -> Source:
    if not path.exists():
        raise ValueError(f"{path} does not exist; expected a table ({tables.FORMATS}) or a folder")
    defaults = {"split": "all", "path": path, "holdout": HOLDOUT}
    return input_pipeline.make_source("records", **{**defaults, **given})


def _open_prepared(path: Path) -> Source:
    manifest = shards.read_manifest(path)
    wrong = shards.damaged_shards(path, manifest)
    if wrong:
        name, reason = next(iter(wrong.items()))
        raise DataError(
            f"{len(wrong)} of {len(manifest['shards'])} shards: {path / name}: {reason}"
        )
    print(f"sha256 of {len(manifest['shards'])} shards: as in the manifest")
    if manifest["skipped"]:
        print(f"{len(manifest['skipped'])} records were left out when it was prepared")
    return shards.ShardsSource(path=path)


def _write_words(source: Source, number: int, path: Path, min_count: int) -> None:
    """A word list for the tokenizer "words", from the captions of the usable records."""
    from input_pipeline.tokenizers import word_level

    words = word_level.words_of(_captions(source, number), min_count)
    path.write_text("\n".join(words) + "\n", "utf-8")
    print(f"{len(words):,} words: {path}")


def _captions(source: Source, number: int) -> Iterator[str]:
    for index in range(number):
        try:
            record = source[index]
            yield from (
                record.captions[position] for position in record_validation.captions(record)
            )
        except DataError:
            continue


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m input_pipeline.check",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "path",
        help="a JSONL, TSV, CSV or JSON table, COCO captions JSON, or a folder that "
        "input_pipeline.prepare wrote",
    )
    parser.add_argument(
        "--image-folder", help="where image names start; default: the table's folder"
    )
    parser.add_argument("--image-column", help="default: image")
    parser.add_argument("--caption-column", help="default: caption")
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="any other option of the source `records`, e.g. split_column=split; of holdout, the "
        f"share of the images for validation, the default is {HOLDOUT}",
    )
    parser.add_argument(
        "--count", type=command_line.positive, help="look at the first COUNT records; default: all"
    )
    parser.add_argument("--picture", metavar="PNG", help="write four decoded samples to this file")
    parser.add_argument(
        "--words", metavar="TXT", help="write the words of the captions, for tokenizer `words`"
    )
    parser.add_argument(
        "--min-count", type=int, default=1, help="rarest word to write, in occurrences; default: 1"
    )
    parser.add_argument("--max-bad-share", type=float, default=0.01, help="default: 0.01")
    parser.add_argument("--threads", type=command_line.positive, default=os.cpu_count() or 1)
    return parser


if __name__ == "__main__":
    sys.exit(main())
