"""Train/eval contamination check: evaluation images that are also in the training data.

  vlc-jax leaks --train coco/train_neg_clip.tsv --eval benchmarks --write leaks.txt

Files are annotations: JSON, JSONL, CSV or TSV. Every text in them with the suffix of an image file
counts as an image; each of Karpathy's splits is a separate set, and CREPE's tables name images of
Visual Genome by `image_id`. A folder stands for all such files below it. Images are equal if they
have the same id of COCO or Visual Genome, or else the same file name.

  vlc-jax leaks --pixels --train prepared/cc12m --root benchmarks --write leaks.txt

looks at the pixels instead, whatever the names: for prepared folders or tables of training it finds
images of published sets (--root, --sets) and of folders or tables (--eval) that are the same, or
resized, recompressed, cut by a few percent, brighter, darker or mirrored. --distance is the largest
number of bits, of 64, in which their perceptual hashes differ. The list is of ids of records, for
`prepare --exclude`. --runner distributes the work (docs/data.md).

Exit code 0: no overlap; 1: some; 2: wrong request; 3: a file cannot be read.
"""

import argparse
import contextlib
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from vlc_jax.input_pipeline.commands import addresses, command_line, near_leaks, parts
from vlc_jax.input_pipeline.images import image_ops, perceptual_hash
from vlc_jax.input_pipeline.images.image_key import image_key
from vlc_jax.input_pipeline.record import DataError, ImageLike
from vlc_jax.input_pipeline.sources import json_annotations, tables
from vlc_jax.input_pipeline.sources.image_files import size_of
from vlc_jax.input_pipeline.sources.image_identity import image_identity
from vlc_jax.input_pipeline.stores import text_file

# Karpathy's splits for training, never for evaluation; restval is the part of COCO's val2014 that
# everybody trains on.
_TRAINING = ("train", "restval")
_MAX_PRINTED = 3  # images per set


class Overlap(NamedTuple):
    """Overlap of a set of evaluation images with the training images."""

    name: str
    identities: frozenset[str]  # its images
    shared: dict[str, str]  # image name in training -> image name in the set


def image_names(path: Path) -> dict[str, list[str]]:
    """Image names in an annotation file by split ("" if the file has no splits).

    {} if the file names no image. Raises DataError for a file that cannot be read.
    """
    if path.suffix.lower() == ".json":
        document = _document(path)
        if json_annotations.is_karpathy(document):
            splits: dict[str, list[str]] = {}
            for row in json_annotations.karpathy_rows(path, document):
                splits.setdefault(row["split"], []).append(row["image"])
            return splits
        every = _names(document)
    else:
        table = tables.open_table(path)
        every = (name for index in range(len(table)) for name in _image_names(table[index]))
    names = [*dict.fromkeys(every)]
    return {"": names} if names else {}


def _document(path: Path) -> Any:
    """A JSON document, or a list of the objects of a file with one per line, as POPE's are."""
    try:
        return json_annotations.load(path)
    except DataError:
        with contextlib.suppress(ValueError):
            lines = text_file.read(path).split("\n")
            return [json_annotations.parse(line) for line in lines if line.strip()]
        raise


def _image_names(row: dict[str, Any]) -> Iterator[str]:
    # CREPE's tables name no file; image_id alone would be COCO's in other tables
    if "image_id" in row and any("hard_negs" in column for column in row):
        yield f"VG_100K/{str(row['image_id']).removesuffix('.jpg')}.jpg"
    else:
        yield from _names(row)


def _names(value: Any) -> Iterator[str]:
    """Image file names among the texts of a document, at any depth."""
    if isinstance(value, str):
        if value.lower().endswith(image_ops.suffixes()) and "://" not in value:
            yield value
    elif isinstance(value, Mapping):
        for entry in value.values():
            yield from _names(entry)
    elif isinstance(value, list):
        for entry in value:
            yield from _names(entry)


def identities(name: str, coco_of: Mapping[int, int]) -> list[str]:
    """The canonical id of an image, and its COCO id.   coco_of: Visual Genome's id -> COCO's, for
    images of both."""
    same = [image_identity(name)]
    if same[0].startswith("vg:") and int(same[0][3:]) in coco_of:
        same.append(f"coco:{coco_of[int(same[0][3:])]}")
    return same


def compare(
    train: Iterable[str], sets: Mapping[str, Iterable[str]], coco_of: Mapping[int, int]
) -> list[Overlap]:
    """Overlaps of sets of image names with the image names of training."""
    in_training = {same: name for name in train for same in identities(name, coco_of)}
    overlaps = []
    for title, names in sets.items():
        # an image may have many captions, and each is a row
        different = {image_identity(name): name for name in names}
        shared = {}
        for name in different.values():
            keys = identities(name, coco_of)
            train_name = next((in_training[key] for key in keys if key in in_training), None)
            if train_name is not None:
                shared[train_name] = name
        overlaps.append(Overlap(title, frozenset(different), shared))
    return overlaps


def shared_files(training: Iterable[Path], images: Iterable[ImageLike]) -> tuple[int, int]:
    """(different files among `images`, how many of them are a file of training or have its bytes).

    Only files whose size is one of the other side's are read.
    """
    files = {each for each in map(near_leaks.whole, images) if isinstance(each, Path)}
    sizes, training_sizes = ({path: size_of(path) for path in side} for side in (files, training))
    common = {*sizes.values()} & {*training_sizes.values()} - {None}

    def content(path: Path) -> bytes | None:
        with contextlib.suppress(DataError):  # nobody may read it
            return image_key(path)

    known = {content(path) for path, size in training_sizes.items() if size in common} - {None}
    shared = (content(path) for path, size in sizes.items() if size in common)
    return len(files), sum(each in known for each in shared)


def read_coco_of(path: Path) -> dict[int, int]:
    """Visual Genome's id -> COCO's, from its image_data.json. Raises DataError."""
    document = json_annotations.load(path)
    try:
        return {row["image_id"]: row["coco_id"] for row in document if row["coco_id"] is not None}
    except (TypeError, KeyError) as error:
        raise DataError(f"{path} is not Visual Genome's image_data.json: {error!r}") from error


def _run(words: list[str]) -> int:
    options, engine = parts.parse(_parser(), words)
    if options.pixels:
        return near_leaks.run(options, engine)
    of_pixels = ("root", "sets", "option", "distance", "threads", "runner", "parts", "part_size")
    for flag in (*of_pixels, "train_images", "eval_images"):
        if getattr(options, flag) not in (None, []):
            name = flag.replace("_", "-")
            raise ValueError(f"--{name} belongs to --pixels: names are compared without it")
    if not options.eval:
        raise ValueError("name annotations of evaluations in --eval, or compare --pixels")
    coco_of = read_coco_of(Path(options.vg_image_data)) if options.vg_image_data else {}
    train = _training(options.train, options.train_split)
    overlaps = compare(train, _evaluations(options.eval, options.train), coco_of)
    print(f"training: {len({image_identity(name) for name in train}):,} different images")
    for overlap in overlaps:
        print(f"{len(overlap.shared):>7,} of {len(overlap.identities):>7,}  {overlap.name}")
        for train_name, eval_name in [*overlap.shared.items()][:_MAX_PRINTED]:
            print(f"{'':>20}{eval_name} is {train_name} of training")
    if not coco_of and any(
        name.startswith("vg:") for overlap in overlaps for name in overlap.identities
    ):
        print(
            "images of Visual Genome are compared by its own ids alone; about half of them are "
            "COCO's, too: give --vg-image-data"
        )
    shared = {image_identity(name) for overlap in overlaps for name in overlap.shared}
    print(f"{len(shared):,} images of training are in an evaluation")
    if options.write:
        Path(options.write).write_text("".join(f"{name}\n" for name in sorted(shared)), "utf-8")
        print(f"written to {options.write}")
    return 1 if shared else 0


def _training(paths: Sequence[str], train_split: str) -> list[str]:
    names: list[str] = []
    for path in map(Path, paths):
        splits = image_names(path)
        used = [split for split in splits if split in ("", *train_split.split("+"))]
        if not used:
            raise ValueError(f"{path} names no image of split {train_split!r}; splits: {[*splits]}")
        names += [name for split in used for name in splits[split]]
    return names


def _evaluations(paths: Sequence[str], train: Sequence[str]) -> dict[str, list[str]]:
    """Title -> image names. Files of a folder that name no image are reported, not refused."""
    sets = {}
    training = {Path(path).resolve() for path in train}
    for path in map(Path, paths):
        files = [path]
        if path.is_dir():
            files = sorted(
                file for file in path.rglob("*") if file.suffix.lower() in tables.FORMATS
            )
        for file in files:
            try:
                splits = image_names(file)
            except (DataError, ValueError) as error:
                if file == path:
                    raise
                print(f"not read: {error}")
                continue
            if not splits:
                print(f"names no image: {file}")
            for split, names in splits.items():
                is_training = split in _TRAINING or (not split and file.resolve() in training)
                if not is_training:
                    sets[f"{file} {split}".strip()] = names
    if not sets:
        raise ValueError(f"no evaluation images are named in {', '.join(paths)}")
    return sets


def _parser() -> argparse.ArgumentParser:
    parser = command_line.parser("leaks", __doc__)
    add = parser.add_argument
    add("--train", nargs="+", required=True, metavar="FILE")
    add("--eval", nargs="+", metavar="FILE_OR_FOLDER")
    add("--train-split", default="train+restval", help="of Karpathy's; default: train+restval")
    add("--write", metavar="TXT", help="the shared images, for the option `exclude`")
    text = "image_data.json: which of its images are COCO's"
    add("--vg-image-data", metavar="JSON", help=text)
    text = "of --pixels: where the image names of tables start; default: the table's folder"
    for side in ("train", "eval"):
        add(f"--{side}-images", metavar="FOLDER", help=text)
    add("--pixels", action="store_true", help="compares pixels, not names")
    add("--root", metavar="DIR", help="folder of published sets, for --pixels")
    add("--sets", nargs="+", metavar="SET", help="of --root; default: all")
    text = "of --pixels, of the source `records` that reads tables of training, e.g. image_column=x"
    add("--option", **command_line.PAIRS, help=text)
    text = f"of --pixels, at most {perceptual_hash.MOST}; default: {near_leaks.DISTANCE}"
    bits = command_line.number(int, 0, perceptual_hash.MOST)
    add("--distance", type=bits, metavar="BITS", help=text)
    add("--threads", type=command_line.positive, help="of every process")
    parts.add_arguments(parser)
    return parser


main = addresses.command(_run)

if __name__ == "__main__":
    sys.exit(main())
