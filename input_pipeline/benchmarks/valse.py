"""VALSE: an image, its caption and a foil that differs in one linguistic phenomenon.

Parcalabescu et al., "VALSE: A Task-Independent Benchmark for Vision and Language Models Centered on
Linguistic Phenomena" (ACL 2022), github.com/Heidelberg-NLP/VALSE (data/). `accuracy` is the paper's
pairwise ranking accuracy, with strict comparison.
"""

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vlc_jax.input_pipeline.benchmarks import fields, published
from vlc_jax.input_pipeline.case import Average, Benchmark, Case
from vlc_jax.input_pipeline.record import DataError

# "Piece" of the set -> number of cases validated by annotators. In the paper's tables counting-hard
# is "balanced", coreference-hard "clean".
SUBSETS = published.ORIGINS["valse"].cases
_TEXTS = ("dataset", "caption", "foil", "linguistic_phenomena")
# of three annotators, for the caption and against the foil
VOTES = 2
# Prefix of an image's name, or its data set -> folder.
_BY_NAME = {
    "COCO_train2014_": "coco/train2014",
    "COCO_val2014_": "coco/val2014",
    "VisualDialog_val2018_": "visdial/VisualDialog_val2018",
}
_BY_DATASET = {
    "coco2017": "coco/val2017",
    "coco_2017": "coco/val2017",
    "SWiG": "swig",
    "visual7w": "visual7w/images",
}


@published.reader
def valse(
    files: published.Files, subsets: tuple[str, ...] = tuple(SUBSETS), validated: bool = True
) -> Benchmark:
    """7,702 cases of two captions.

    accuracy_macro, the headline: mean over the eleven pieces, the paper's average.
    accuracy_phenomena: mean over phenomena (the three counting pieces are one).
    accuracy: over cases.
    count: number of cases per piece.
    validated: True: the published set, where two of three annotators chose the caption over the
      foil; False: all 8,782 cases, 24 of them with two equal captions.
    """
    read = functools.partial(_piece, validated=validated)
    averages = published.SUBSET_MACRO | {"phenomena": Average(("phenomenon",))}
    summary = ("accuracy_macro", "accuracy_phenomena", "accuracy")
    return files.by_subset(subsets, SUBSETS, read, averages=averages, summary=summary)


def _piece(files: published.Files, subset: str, validated: bool) -> Iterator[Case]:
    name = f"{subset}.json"
    others = {"image_file": fields.image_name, "mturk": fields.anything}
    for number, (key, row) in enumerate(files.named(name, *_TEXTS, **others)):
        if validated and _votes(files.folder / name, key, row) < VOTES:
            continue
        image = _image(files.folder / name, key, row)
        group = {"subset": subset, "phenomenon": row["linguistic_phenomena"]}
        yield files.case(
            number, image, (row["caption"], row["foil"]), group, name=key, prefix=subset
        )


def _votes(file: Path, key: str, row: dict[str, Any]) -> int:
    """Number of annotators who chose the caption over the foil."""
    match row["mturk"]:
        case {"caption": int(votes)}:
            return votes
    raise DataError(f"{file}: case {key!r} has no number of votes, mturk: caption")


def _image(file: Path, key: str, row: dict[str, Any]) -> str:
    name = row["image_file"]
    # by name first: pieces from VisDial and FOIL name their data set, not that of the image
    for start, folder in _BY_NAME.items():
        if name.startswith(start):
            return f"{folder}/{name}"
    if row["dataset"] not in _BY_DATASET:
        raise DataError(
            f"{file}: case {key!r} is of the data set {row['dataset']!r}; known are "
            f"{list(_BY_DATASET)}, and images that begin with {list(_BY_NAME)}"
        )
    return f"{_BY_DATASET[row['dataset']]}/{name}"
