"""Probabilities from scores: calibrates a model on labelled pairs, or checks a calibration.

  vlc-jax calibrate --model runs/clip --pairs my_pairs.csv
  vlc-jax calibrate --model runs/clip --check pairs_of_today.csv
  vlc-jax calibrate --model ViT-B-32.pt --pairs photos/val --out calibrated

--pairs, --check: a table with a row per pair (image, text, whether they match: 1, 0, true, false,
yes, no; columns are found by their usual names), or a folder of images per class, where each image
is paired with the prompts of all classes. Writes calibration.json, calibration.html and
calibration.svg into the folder of the model, a run or an exported folder; --out: into a new folder
with a copy of the model. `model.probability(images, texts)` of vlc_jax.load reads it, and
vlc-jax export copies it. --check writes nothing, or a page to --out X.html.
Figures are of five held-out folds, with no image in two. Exit codes are those of vlc_jax.main.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vlc_jax.encode.calibrated import Calibrated
from vlc_jax.errors import UsageError, usage_errors
from vlc_jax.evaluators import calibration
from vlc_jax.input_pipeline import stores
from vlc_jax.input_pipeline.commands import command_line
from vlc_jax.input_pipeline.record import COLUMNS, DataError, find_columns
from vlc_jax.input_pipeline.sources import tables
from vlc_jax.input_pipeline.sources.class_folders import ClassFoldersSource
from vlc_jax.input_pipeline.sources.records import RecordsSource
from vlc_jax.input_pipeline.stores import progress
from vlc_jax.report import calibration as page
from vlc_jax.report import to_html, to_terminal
from vlc_jax.run import workdir_files
from vlc_jax.run.workdir import is_workdir
from vlc_jax.setup import exported_config
from vlc_jax.tools import command

USUAL = {
    "image": COLUMNS["image"],
    "text": COLUMNS["caption"],
    "match": ("match", "matches", "is_match", "matched", "label", "correct", "is_correct", "y"),
}
MATCHES = {
    **dict.fromkeys(("1", "1.0", "true", "yes", "match"), True),
    **dict.fromkeys(("0", "0.0", "false", "no", "mismatch"), False),
}
TEMPLATES = ("a photo of a {}",)


def _parser() -> argparse.ArgumentParser:
    parser = command_line.parser("calibrate", __doc__)
    add = parser.add_argument
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--pairs", type=Path, help="table, or folder of classes, to calibrate on")
    source.add_argument("--check", type=Path, help="the same, to compare the calibration with")
    add("--method", default="platt", choices=calibration.METHODS, help="default: platt")
    add("--image_folder", type=Path, help="of a table; default: its own folder")
    for name, usual in USUAL.items():
        add(f"--{name}_column", help=f"default: the first of {', '.join(usual)}")
    add("--templates", nargs="+", help="prompts of classes, with {}; default: a photo of a {}")
    for name, kind in (("precision", "precision"), ("false_alarms", "false alarms")):
        rates = [rate for each, rate in calibration.WANTED if each == kind]
        share = command_line.number(float, 0, 1)
        add(f"--{name}", nargs="+", type=share, default=rates, help=f"wanted; default: {rates}")
    add("--out", type=Path, help="new folder for the model, too; with --check: a page X.html")
    add("--batch_size", type=command_line.positive, default=64)
    command.add_model(parser)
    return parser


def calibrate(args: argparse.Namespace) -> str:
    """Runs the command; returns the last line of its output."""
    folder = None if args.check else place(args)
    with usage_errors():
        pairs = read(args)
    model = command.model(args)
    if args.check and model.calibration is None:
        raise UsageError(f"{args.model} has no calibration: calibrate it first, with --pairs")
    print(f"{len(pairs['images']):,} images or pairs to score", file=sys.stderr)
    with progress.bar("images or pairs", len(pairs["images"])) as show:
        if args.check:
            pairs.pop("templates", None)
            figures = model.check_calibration(**pairs, progress=show)
        else:
            wanted = [("precision", x) for x in args.precision]
            wanted += [("false alarms", x) for x in args.false_alarms]
            options = {"method": args.method, "wanted": wanted, "progress": show}
            figures = model.calibrate(**pairs, **options).figures
    method = model.calibration.curve.method
    content = page.content(f"Calibration of {args.model}", method, figures)
    shown = [part for part in content if isinstance(part, page.Table)]
    to_terminal.show(*page.sentences(method, figures), *shown)
    if not args.check:
        return write(model, folder, args.out, content)
    if not args.out:
        return f"nothing is written; --out X.html writes {args.check.name} as a page"
    workdir_files.replace(args.out, to_html.page(content[0].content, content))
    return f"{args.out}: the page"


def place(args: argparse.Namespace) -> Path | None:
    """The folder of the model for the files; None with --out. Raises UsageError for another."""
    if args.out:
        workdir_files.check_new(args.out)
        return None
    folder = Path(args.model)
    is_own = is_workdir(folder) or (folder / exported_config.NAME).exists()
    if stores.is_url(str(args.model)) or not is_own:
        raise UsageError(
            f"{args.model} is no local run and no exported folder, where a calibration would lie: "
            "--out FOLDER makes one with a copy of the model"
        )
    return folder


def write(model: Calibrated, folder: Path | None, out: Path | None, content: Sequence[Any]) -> str:
    """Writes calibration.json, .html and .svg; returns their names."""
    if folder is None:
        model.save(folder := out)
    model.calibration.write(folder)
    workdir_files.replace(folder / "calibration.html", to_html.page(content[0].content, content))
    for block in content:
        for picture in getattr(block, "pictures", ()):
            picture.write(folder)
    return f"{folder}: calibration.json, calibration.html, calibration.svg"


def read(args: argparse.Namespace) -> dict[str, Any]:
    """Arguments of `Model.calibrate`. Raises ValueError or DataError for unusable pairs."""
    path = args.pairs or args.check
    if not path.is_dir() or [*path.glob("*.parquet")]:
        if args.templates:
            raise ValueError(f"--templates are prompts of classes, and {path} is a table")
        return table_pairs(args, path)
    source = ClassFoldersSource("all", path=path, templates=args.templates or TEMPLATES)
    classes = [name.replace("_", " ") for name in source.classes]
    texts = [template.format(name) for name in classes for template in source.templates]
    label = np.repeat(np.arange(len(classes)), len(source.templates))
    records = [source[i] for i in range(len(source))]
    matches = np.array([record.meta["label"] for record in records])[:, None] == label
    images = [record.image for record in records]
    return {"images": images, "texts": texts, "matches": matches, "templates": source.templates}


def table_pairs(args: argparse.Namespace, path: Path) -> dict[str, Any]:
    """The pairs of a table, a row each."""
    given = {name: getattr(args, f"{name}_column") for name in USUAL}
    names = find_columns(path, tables.open_table(path).columns(), given, USUAL, [*USUAL])
    # joined rows of an image would lose which of its texts match
    source = RecordsSource(
        "all", path=path, image_folder=args.image_folder, join_rows=False,
        image_column=names["image"], caption_column=names["text"], meta_columns=[names["match"]],
    )  # fmt: skip
    pairs: dict[str, list[Any]] = {"images": [], "texts": [], "matches": []}
    for index in range(len(source)):
        record = source[index]
        cell = record.meta[names["match"]]
        is_match = MATCHES.get(str(cell).strip().lower())
        if is_match is None:
            raise DataError(
                f"row {index + 1} of {path}: {names['match']} is 1 or 0 (true, yes, false, no); "
                f"got {cell!r}"
            )
        for text in record.captions:
            for name, value in zip(pairs, (record.image, text, is_match), strict=True):
                pairs[name].append(value)
    return pairs


main = command.main(_parser, calibrate)

if __name__ == "__main__":
    sys.exit(main())
