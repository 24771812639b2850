"""VALSE: an image, its caption and a foil that differs in one linguistic phenomenon.

Parcalabescu et al., "VALSE: A Task-Independent Benchmark for Vision and Language Models Centered on
Linguistic Phenomena" (ACL 2022), github.com/Heidelberg-NLP/VALSE (data/). `accuracy` is the paper's
pairwise ranking accuracy, with strict comparison.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vlc_jax.input_pipeline.benchmarks import fields, published
from vlc_jax.input_pipeline.case import Average, Benchmark, Case
from vlc_jax.input_pipeline.record import DataError

SUBSETS = {  # "piece" of the set -> number of cases validated by annotators
    "existence": 505,
    "plurals": 851,
    "counting-hard": 868,  # "balanced" in the paper's tables
    "counting-small-quant": 900,
    "counting-adversarial": 691,
    "relations": 535,
    "action-replacement": 648,
    "actant-swap": 949,
    "coreference-standard": 708,
    "coreference-hard": 104,  # "clean" in the paper's tables
    "foil-it": 943,
}
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
ORIGIN = published.Origin(
    protocol="choice",
    folder="valse",
    files=tuple(f"{subset}.json" for subset in SUBSETS),
    images=".",
    source=(
        "github.com/Heidelberg-NLP/VALSE (data/); images of coco/train2014, coco/val2014, "
        "coco/val2017, swig, visual7w/images and visdial/VisualDialog_val2018 from the sets' sites"
    ),
    licence="MIT",
    cases=SUBSETS,
    overlap="COCO train2014, val2014 and val2017; Visual7W, whose images are COCO's",
)


@published.reader(ORIGIN)
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
    published.check_subsets(subsets, SUBSETS)
    cases = (case for subset in subsets for case in _piece(files, subset, validated))
    averages = {"macro": Average(("subset",)), "phenomena": Average(("phenomenon",))}
    summary = ("accuracy_macro", "accuracy_phenomena", "accuracy")
    return files.benchmark(cases, averages, summary=summary)


def _piece(files: published.Files, subset: str, validated: bool) -> Iterator[Case]:
    name = f"{subset}.json"
    document = files.json(name)
    if not isinstance(document, dict):
        raise DataError(f"{files.folder / name} is no object of cases; {ORIGIN.how_to_get}")
    others = {"image_file": fields.image_name, "mturk": fields.anything}
    rows = files.check(name, list(document.values()), _TEXTS, **others)
    for number, (key, row) in enumerate(zip(document, rows, strict=True)):
        if validated and _votes(files.folder / name, key, row) < VOTES:
            continue
        image = _image(files.folder / name, key, row)
        yield Case(
            f"{subset}_{published.case_id(number, key)}",
            (files.image(image),),
            (row["caption"], row["foil"]),
            {"subset": subset, "phenomenon": row["linguistic_phenomena"]},
            {"record": image},
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
