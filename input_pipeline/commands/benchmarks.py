"""Published evaluation sets below a folder: which are present, which are missing, how to get them.

  vlc-jax benchmarks --root DIR
  vlc-jax benchmarks --root DIR --train coco/train_neg_clip.tsv
  vlc-jax benchmarks --root DIR --fetch sugarcrepe cola
  vlc-jax benchmarks --root DIR --nulls --sets sugarcrepe valse

Reads the annotations of every set, counts cases against the published number, and looks for the
images. --train: the table of a training set; counts the images that each set shares with it
(vlc-jax leaks lists them). --fetch: downloads what the owners of a set serve, annotations and
images, after a question (--yes: without); a killed command continues. --nulls: prints what the
texts of each set give away without the images (benchmarks/nulls.py), from annotations alone; also
for sets of the embedded world (scenes: all of them). --features: what the images give away without
the captions (benchmarks/image_nulls.py), from features in the form of vlc-jax embed, whose names
are those of an evaluation's images (evals/NAME/images). The last line is the `sets` argument of
configs/eval/all.py with all sets whose images are there, also with fewer cases than published.
Exit code 0: there is one (with --fetch: all are; with --nulls: one can be read); 1: there is none.
"""

import argparse
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from vlc_jax.input_pipeline import lookup
from vlc_jax.input_pipeline.benchmarks import (
    PUBLISHED,
    READERS,
    Benchmark,
    image_nulls,
    nulls,
    protocol_of,
)
from vlc_jax.input_pipeline.benchmarks.downloads import DOWNLOADS, Download
from vlc_jax.input_pipeline.commands import addresses, command_line, fetch_sets, leaks, null_table
from vlc_jax.input_pipeline.record import Crop, DataError, ImageLike, PackedImage, ShuffledImage
from vlc_jax.input_pipeline.sources.image_identity import image_identity
from vlc_jax.input_pipeline.tokenizers import text_vectors

_SCENES = [name for name in READERS if name.startswith("scenes_")]


class State(NamedTuple):
    """Availability of a published set.

    problem: why it cannot be read, or "".   absent: annotations that are not there, then.
    cases: number read.   notes: remarks, such as a wrong count.   images: number of different image
    files.   missing: those of them that are not on disk.   leaked: number of them in the training
    table; None without --train.
    """

    problem: str
    absent: tuple[Path, ...] = ()
    cases: int = 0
    notes: tuple[str, ...] = ()
    images: int = 0
    missing: tuple[Path, ...] = ()
    leaked: int | None = None

    @property
    def lacking(self) -> tuple[Path, ...]:
        """Annotations and images that are not there."""
        return (*self.absent, *self.missing)

    @property
    def is_whole(self) -> bool:
        """True if the set can be evaluated on."""
        return not self.problem and not self.missing


def state_of(name: str, root: Path, tagger: str, training: frozenset[str] | None) -> State:
    """The state of a set. training: identities of images that a model is trained on."""
    read, origin = PUBLISHED[name]
    try:
        benchmark = read(**_options(name, root, tagger))
    except (DataError, ValueError) as error:
        absent = _absent(name, root)
        problem = str(error).removesuffix(f"; {origin.how_to_get}")
        return State(f"there is no {absent[0]}" if absent else problem, absent)
    except Exception as error:
        return State(_failure(error))
    files = _files(benchmark)
    # os.path: Path.exists raises for names that are too long
    missing = tuple(path for path in files if not os.path.exists(path))
    leaked = None
    if training is not None:
        is_genome = origin.overlap.startswith("Visual Genome")
        leaked = len({_identity(path, is_genome) for path in files} & training)
    return State("", (), len(benchmark.cases), benchmark.notes, len(files), missing, leaked)


def _absent(name: str, root: Path) -> tuple[Path, ...]:
    """Annotation files of a published set that are not there."""
    origin = PUBLISHED[name][1]
    folder = root / origin.folder
    return tuple(folder / file for file in origin.files if not any(folder.glob(file)))


def _failure(error: Exception) -> str:
    """The line of a set whose reader raised an unexpected error; other sets are listed."""
    return f"its reader failed, which is an error of vlc_jax: {type(error).__name__}: {error}"


def _unread(absent: Sequence[Path]) -> str:
    return "not there" if absent else "cannot be read"


def _run(words: list[str]) -> int:
    options = _parser().parse_args(words)
    root = Path(options.root)
    names = _names(options.sets) if any(options.sets or ()) else list(PUBLISHED)
    if options.fetch and options.fetch != ["all"]:
        names = _names(options.fetch)
    for flag in ("out", "features"):
        if getattr(options, flag) and not options.nulls:
            raise ValueError(f"--{flag} {getattr(options, flag)} belongs to --nulls: add --nulls")
    if options.nulls:
        names = [each for name in names for each in (_SCENES if name == "scenes" else [name])]
    known = PUBLISHED if not options.nulls else (*PUBLISHED, *_SCENES)
    lookup.check_known("published set", names, known)
    if options.fetch:
        root.mkdir(parents=True, exist_ok=True)
        _fetch(names, root, options)
    if not root.is_dir():
        raise ValueError(f"there is no folder {root}")
    if options.nulls:
        return _nulls(names, root, options)
    training = None
    if options.train:
        splits = leaks.image_names(Path(options.train))
        used = [image for split in splits if split in ("", "train") for image in splits[split]]
        training = frozenset(image_identity(image) for image in used)
    states = {name: state_of(name, root, options.tagger, training) for name in names}
    _print(states, root)
    whole = [name for name, state in states.items() if state.is_whole]
    noted = sum(bool(states[name].notes) for name in whole)
    notes = f", {noted} of them with the notes above" if noted else ""
    print(f"{len(whole)} of {len(states)} sets can be evaluated{notes}")
    if whole:
        print(f"sets={'+'.join(whole)}")
    return 0 if (len(whole) == len(states) if options.fetch else whole) else 1


def _nulls(names: Sequence[str], root: Path, options: argparse.Namespace) -> int:
    """Prints the nulls of the sets whose annotations can be read; returns the exit code.

    Raises DataError, after that, if --features holds the images of none of the sets.
    """
    if options.out and options.out.is_dir():
        raise ValueError(f"--out {options.out} is a folder; name a file")
    if options.out and not options.out.parent.is_dir():
        raise ValueError(f"--out {options.out}: there is no folder {options.out.parent}; make it")
    rows, image_rows, lines, refused = [], [], [], []
    features = _features(options.features) if options.features else None
    for name in names:
        try:
            benchmark = READERS[name](**_options(name, root, options.tagger))
        except (DataError, ValueError) as error:
            absent = _absent(name, root) if name in PUBLISHED else ()
            lines.append(f"{name}: {_unread(absent)}: {error}")
            continue
        except Exception as error:
            lines.append(f"{name}: {_unread(())}: {_failure(error)}")
            continue
        text_rows = nulls.benchmark_nulls(benchmark, protocol_of(name), root / nulls.CACHE)
        lines += [f"{name}: {note}" for note in benchmark.notes]
        lines += (
            [] if text_rows else [f"{name}: {protocol_of(name)} has no wrong texts, so no nulls"]
        )
        if text_rows and all(len(case.captions) == 1 for case in benchmark.cases):
            lines.append(f"{name}: the options are images, on which text alone is at chance")
        if text_rows and nulls.gives_away(benchmark.cases):
            lines.append(f"{name}: its subsets tell the correct caption: nulls of all cases")
        rows += text_rows
        try:
            image_rows += [image_nulls.image_null(benchmark, features)] if features else []
        except DataError as error:
            refused.append(error)
    if rows or image_rows:
        null_table.print_nulls(rows, image_rows)
    for line in (*lines, *map(str, refused if image_rows else refused[1:])):
        print(command_line.one_line(line))
    if options.out and rows:
        nulls.write(options.out, rows)
    elif options.out:
        print(f"{options.out} is not written: there are no nulls")
    if refused and not image_rows:
        raise refused[0]
    return 0 if rows else 1


def _features(path: Path) -> text_vectors.TextVectors:
    try:
        return text_vectors.TextVectors(path)
    except (DataError, ValueError) as error:
        raise type(error)(
            f"--features takes X.npy and X.jsonl as vlc-jax embed writes them: {error}"
        ) from error


def _options(name: str, root: Path, tagger: str) -> dict[str, Any]:
    """Options of a set's reader: of a published one its folder, of the scenes none."""
    if name not in PUBLISHED:
        return {}
    return {"root": root} | ({"tagger": tagger} if name.endswith("_order") else {})


def _names(words: Sequence[str]) -> list[str]:
    """Names separated by spaces, commas or "+", each once. Raises ValueError if there is none."""
    names = list(dict.fromkeys(filter(None, re.split(r"[\s,+]+", " ".join(words)))))
    if not names:
        raise ValueError(f"{' '.join(words)!r} names no set; names are separated by spaces")
    return names


def _fetch(names: Sequence[str], root: Path, options: argparse.Namespace) -> None:
    """Downloads what is missing of the sets and has an address, after a question."""
    tried = set[Download]()
    # images may be missing of which only the annotations tell
    while True:
        downloads, parts = dict[Download, str](), []
        for name in names:
            state = state_of(name, root, options.tagger, None)
            needed = fetch_sets.needed(
                root, DOWNLOADS.get(name, ()), state.lacking, knows_images=not state.problem
            )
            downloads |= {
                source: name for source in needed if source not in tried | downloads.keys()
            }
        for source, name in downloads.items():
            try:
                parts += fetch_sets.parts(root, source)
            except ValueError as error:  # such as a gated repository
                print(f"{name}: {error}")
        tried |= downloads.keys()
        if not parts or not fetch_sets.confirm(root, parts, options.yes):
            return
        fetch_sets.fetch(root, parts)


def _instruction(name: str, state: State, root: Path) -> str:
    """Advice on the missing files of a set; "" if its files are there, but damaged."""
    origin = PUBLISHED[name][1]
    if state.problem and not state.absent:
        return ""
    folder, images = root / origin.folder, root / origin.images
    # a folder of annotations too: only these tell whether it has the images
    has_images = not state.missing and images not in (folder, root) and images.is_dir()
    absent = [path.relative_to(folder).as_posix() for path in state.absent]
    text = f"; {origin.instruction(absent, has_images and any(images.iterdir()))}"
    if name in DOWNLOADS:
        text += f"; --fetch {name} downloads {'a part' if origin.by_hand else 'them'}"
    return f"{text}; by hand: {origin.by_hand}" if origin.by_hand else text


def _print(states: Mapping[str, State], root: Path) -> None:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD)
    for column in ("set", "protocol", "cases", "images", "missing", "in training"):
        table.add_column(column, justify="left" if column in ("set", "protocol") else "right")
    for name, state in states.items():
        if not state.problem:
            leaked = "" if state.leaked is None else f"{state.leaked:,}"
            numbers = (f"{state.cases:,}", f"{state.images:,}", f"{len(state.missing):,}", leaked)
            table.add_row(name, PUBLISHED[name][1].protocol, *numbers)
    command_line.console(None if sys.stdout.isatty() else 100).print(table)
    for name, state in states.items():
        origin = PUBLISHED[name][1]
        for note in state.notes:
            print(command_line.one_line(f"{name}: {note}"))
        if state.problem:
            problem = f"{state.problem}{_instruction(name, state, root)}"
            print(command_line.one_line(f"{name}: {_unread(state.absent)}: {problem}"))
        elif state.missing:
            count = f"{len(state.missing):,} of {state.images:,} images are missing"
            first = f"the first is {state.missing[0]}{_instruction(name, state, root)}"
            print(command_line.one_line(f"{name}: {count}, {first}"))
        elif origin.overlap:
            print(f"{name}: its images are of {origin.overlap}")


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


def _parser() -> argparse.ArgumentParser:
    parser = command_line.parser("benchmarks", __doc__)
    parser.add_argument("--root", required=True, help="folder of all sets, ROOT")
    parser.add_argument("--sets", nargs="+", metavar="SET", help="sets to list; default: all")
    text = "table of training, whose images are looked for in the sets"
    parser.add_argument("--train", help=text)
    text = "parts of speech of the order sets"
    parser.add_argument("--tagger", default="spacy:en_core_web_sm", help=text)
    parser.add_argument("--fetch", nargs="+", metavar="SET", help="sets to download; or all")
    parser.add_argument("--nulls", action="store_true", help="scores without the images")
    parser.add_argument("--out", type=Path, metavar="X.csv", help="table of --nulls")
    parser.add_argument("--features", type=Path, metavar="X.npy", help="image features for --nulls")
    parser.add_argument("--yes", action="store_true", help="download without a question")
    return parser


main = addresses.command(_run)

if __name__ == "__main__":
    sys.exit(main())
