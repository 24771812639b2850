"""Published evaluation sets below a folder: which are present, which are missing, how to get them.

  vlc-jax benchmarks --root DIR
  vlc-jax benchmarks --root DIR --train coco/train_neg_clip.tsv

Reads the annotations of every set, counts cases against the published number, and looks for the
images. --train: the table of a training set; counts the images that each set shares with it
(vlc-jax leaks lists them). The last line is the `sets` argument of configs/eval/all.py with all
sets that are whole. Exit code 0: some set is whole; 1: none is.
"""

import argparse
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from vlc_jax.input_pipeline.benchmarks import PUBLISHED, Benchmark
from vlc_jax.input_pipeline.commands import addresses, command_line, leaks
from vlc_jax.input_pipeline.record import Crop, DataError, ImageLike, PackedImage, ShuffledImage
from vlc_jax.input_pipeline.sources.image_identity import image_identity


class State(NamedTuple):
    """Availability of a published set.

    problem: why it cannot be read, or "".   cases: number read.   notes: remarks, such as a wrong
    count.   images: number of different image files.   missing: number of these not on disk.
    leaked: number of these in the training table; None without --train.
    """

    problem: str
    cases: int = 0
    notes: tuple[str, ...] = ()
    images: int = 0
    missing: int = 0
    leaked: int | None = None

    @property
    def is_whole(self) -> bool:
        """True if the set can be evaluated on."""
        return not self.problem and not self.missing


def state_of(name: str, root: Path, tagger: str, training: frozenset[str] | None) -> State:
    """The state of a set. training: identities of images that a model is trained on."""
    read, origin = PUBLISHED[name]
    options = {"tagger": tagger} if name.endswith("_order") else {}
    try:
        benchmark = read(root=root, **options)
    except (DataError, ValueError) as error:
        return State(str(error))
    except Exception as error:
        # the other sets are listed all the same
        reason = f"{type(error).__name__}: {error}"
        return State(f"its reader failed, which is an error of vlc_jax: {reason}")
    files = _files(benchmark)
    # os.path: Path.exists raises for names that are too long
    missing = [path for path in files if not os.path.exists(path)]
    leaked = None
    if training is not None:
        is_genome = origin.overlap.startswith("Visual Genome")
        leaked = len({_identity(path, is_genome) for path in files} & training)
    return State("", len(benchmark.cases), benchmark.notes, len(files), len(missing), leaked)


@addresses.allowed
def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code."""
    parser = command_line.parser("benchmarks", __doc__)
    parser.add_argument("--root", required=True, help="folder of all sets, ROOT")
    parser.add_argument("--sets", default="", help="names joined by +; default: all")
    parser.add_argument(
        "--train", help="table of training, whose images are looked for in the sets"
    )
    parser.add_argument(
        "--tagger", default="spacy:en_core_web_sm", help="parts of speech of the order sets"
    )
    return command_line.exit_code(_run, parser.parse_args(arguments))


def _run(options: argparse.Namespace) -> int:
    root = Path(options.root)
    if not root.is_dir():
        raise ValueError(f"there is no folder {root}")
    names = options.sets.split("+") if options.sets else list(PUBLISHED)
    for name in names:
        if name not in PUBLISHED:
            raise ValueError(f"{name!r} is no published set; known: {', '.join(PUBLISHED)}")
    training = None
    if options.train:
        splits = leaks.image_names(Path(options.train))
        used = [image for split in splits if split in ("", "train") for image in splits[split]]
        training = frozenset(image_identity(image) for image in used)
    states = {name: state_of(name, root, options.tagger, training) for name in names}
    _print(states)
    whole = [name for name, state in states.items() if state.is_whole]
    print(f"{len(whole)} of {len(states)} sets are whole")
    if whole:
        print(f"sets={'+'.join(whole)}")
    return 0 if whole else 1


def _print(states: Mapping[str, State]) -> None:
    from rich import box, console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD)
    for column in ("set", "protocol", "cases", "images", "missing", "in training"):
        table.add_column(column, justify="left" if column in ("set", "protocol") else "right")
    for name, state in states.items():
        if not state.problem:
            leaked = "" if state.leaked is None else f"{state.leaked:,}"
            numbers = (f"{state.cases:,}", f"{state.images:,}", f"{state.missing:,}", leaked)
            table.add_row(name, PUBLISHED[name][1].protocol, *numbers)
    console.Console(width=None if sys.stdout.isatty() else 100).print(table)
    for name, state in states.items():
        origin = PUBLISHED[name][1]
        for note in state.notes:
            print(_line(f"{name}: {note}"))
        if state.problem:
            print(_line(f"{name}: not there: {state.problem}"))
        elif state.missing:
            print(
                f"{name}: {state.missing:,} of {state.images:,} images are missing; "
                f"{origin.how_to_get}"
            )
        elif origin.overlap:
            print(f"{name}: its images are of {origin.overlap}")


def _line(text: str) -> str:
    """One printable line: annotation files can hold line breaks, terminal codes and surrogates."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def _files(benchmark: Benchmark) -> list[Path]:
    """Different image files of a benchmark; a Parquet file of many images counts once."""
    paths = (_file(image) for case in benchmark.cases for image in case.images)
    return list(dict.fromkeys(path for path in paths if path is not None))


def _file(image: ImageLike) -> Path | None:
    if isinstance(image, Crop | ShuffledImage):
        return _file(image.image)
    if isinstance(image, PackedImage):
        return image.file
    return image if isinstance(image, Path) else None


def _identity(path: Path, is_genome: bool) -> str:
    """Identity of an image; ARO stores Visual Genome's images by number in a separate folder."""
    if is_genome and re.fullmatch(r"\d+\.jpe?g", path.name):
        return f"vg:{int(path.stem)}"
    return image_identity(str(path))


if __name__ == "__main__":
    sys.exit(main())
