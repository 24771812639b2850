"""Readers of What'sUp: two objects in four arrangements, with a caption per preposition.

Kamath et al., "What's 'up' with vision-language models?" (EMNLP 2023); read like
github.com/amitakamath/whatsup_vlms: set A (Controlled_Images; left, right, on, under) and set B
(Controlled_CLEVR, unrelated to CLEVR; left, right, front, behind). An image's name consists of
object, preposition and object. Its argmax counts ties as correct (the correct caption is first):
`tie="first_index"` here. The two-way forms are from "On Erroneous Agreements of CLIP Image
Embeddings" (2024), with strict comparison. Captions are unchanged.
"""

import dataclasses
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import PurePosixPath

from vlc_jax.input_pipeline.benchmarks import fields, published
from vlc_jax.input_pipeline.case import Benchmark, Case
from vlc_jax.input_pipeline.record import DataError

PREPOSITIONS = {  # in names of images -> in captions
    "left": "left",
    "right": "right",
    "on": "on",
    "under": "under",
    "in-front": "front",
    "behind": "behind",
}
SUBSETS = {
    "left_right": ("left", "right"),
    "on_under": ("on", "under"),
    "front_behind": ("front", "behind"),
}
OPPOSITES = {a: b for pair in SUBSETS.values() for a, b in (pair, pair[::-1])}
SIZES = {"pair": 2, "set": 4}  # cases
# Swapped images in the published archive (issue 4 of its repository).
LABEL_FIXES = {
    "pillow_left_of_chair.jpeg": "pillow_right_of_chair.jpeg",
    "pillow_right_of_chair.jpeg": "pillow_left_of_chair.jpeg",
}


@published.reader
def whatsup_a(files: published.Files, label_fixes: bool = False) -> Benchmark:
    """412 cases of four captions, 103 sets of "a mug on a plate" and three more arrangements.

    accuracy, the headline: over cases. pair_accuracy: left and right, or on and under, of the same
    objects are both right. set_accuracy: all four are right. Incomplete pairs and sets, which
    `count` may cause, are not counted.

    label_fixes: swap two images of a pillow left and right of a chair, whose published names are
      the wrong way round.
    """
    return _read(files, (), label_fixes)


@published.reader
def whatsup_b(files: published.Files) -> Benchmark:
    """408 cases of four captions, 102 sets; metrics as in `whatsup_a`."""
    return _read(files, (), False)


@published.reader
def whatsup_a_two_way(files: published.Files, label_fixes: bool = False) -> Benchmark:
    """The 412 cases of `whatsup_a` with two captions each: the correct one, and the one with the
    opposite preposition.

    The paper's numbers are accuracy/subset=left_right, accuracy/subset=on_under, and pair_accuracy
    of these subsets; accuracy and pair_accuracy are over both subsets.
    """
    return _read(files, ("left_right", "on_under"), label_fixes)


@published.reader
def whatsup_b_two_way(files: published.Files) -> Benchmark:
    """The 408 cases of `whatsup_b` with two captions each, as in `whatsup_a_two_way`; subsets
    left_right and front_behind."""
    return _read(files, ("left_right", "front_behind"), False)


def _read(files: published.Files, two_way: tuple[str, ...], label_fixes: bool) -> Benchmark:
    """two_way: subsets of the two-way form; empty: four-way."""
    fixes = LABEL_FIXES if label_fixes else {}
    together = ("pair",) if two_way else ("pair", "set")
    parts = [
        f"{metric}/subset={subset}"
        for subset in two_way
        for metric in ("accuracy", "pair_accuracy", "image_cosine")  # the last with geometry
    ]
    benchmark = files.benchmark(
        _cases(files, files.file, bool(two_way), fixes),
        together=together,
        summary=("accuracy", *(f"{kind}_accuracy" for kind in together), *parts),
    )
    benchmark = dataclasses.replace(benchmark, cases=_without_parts(benchmark.cases, together))
    if not label_fixes:
        return benchmark
    return published.amended(
        benchmark, f"label fixes: images of {', '.join(fixes)}", version="label_fixes"
    )


def _cases(
    files: published.Files, annotations: str, two_way: bool, fixes: dict[str, str]
) -> Iterator[Case]:
    kinds = {"image_path": fields.image_name, "caption_options": fields.texts}
    for number, row in enumerate(files.objects(annotations, **kinds)):
        where = f"{files.folder / annotations}: case {number}"
        # "data/" is the authors' folder.
        path = PurePosixPath(row["image_path"].removeprefix("data/"))
        parts = path.stem.split("_")  # beer-bottle, left, of, armchair
        if len(parts) < 3 or parts[1] not in PREPOSITIONS:
            raise DataError(
                f"{where} is of no image OBJECT_PREPOSITION_..._OBJECT with one of "
                f"{list(PREPOSITIONS)}; got {path.name!r}"
            )
        preposition, objects = PREPOSITIONS[parts[1]], f"{parts[0]}_{parts[-1]}"
        captions = row["caption_options"]
        if len(captions) != 4:
            raise DataError(f"{where} has no four captions; got {captions!r:.80}")
        if two_way:
            both = {preposition, OPPOSITES[preposition]}
            captions = [caption for caption in captions if both & set(_words(caption))]
        if len(captions) != (2 if two_way else 4) or preposition not in _words(captions[0]):
            raise DataError(
                f"{where}, {path.name}: the first caption must say {preposition!r} and one of the "
                f"others {OPPOSITES[preposition]!r}; got {row['caption_options']}"
            )
        (subset,) = (name for name, pair in SUBSETS.items() if preposition in pair)
        labels = {"subset": subset, "preposition": preposition, "pair": f"{objects}_{subset}"}
        yield Case(
            published.case_id(number, path.stem),
            # only the image changes: the names are wrong, not the captions
            (files.image(str(path.with_name(fixes.get(path.name, path.name)))),),
            tuple(captions),
            labels if two_way else labels | {"set": objects},
        )


def _words(caption: str) -> list[str]:
    return re.findall(r"[a-z]+", caption.lower())


def _without_parts(cases: tuple[Case, ...], kinds: tuple[str, ...]) -> tuple[Case, ...]:
    """Removes the labels of incomplete pairs and sets, so that they are not counted."""
    sizes = {kind: Counter(case.group[kind] for case in cases) for kind in kinds}
    return tuple(
        dataclasses.replace(
            case,
            group={
                kind: label
                for kind, label in case.group.items()
                if kind not in kinds or sizes[kind][label] == SIZES[kind]
            },
        )
        for case in cases
    )
