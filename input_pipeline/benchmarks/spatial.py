"""COCO-spatial and GQA-spatial: an image, a caption, and the caption with the preposition inverted.

Kamath et al., "What's 'up' with vision-language models?" (EMNLP 2023); read like
github.com/amitakamath/whatsup_vlms, where they are called COCO_QA and VG_QA; in other code cocoone,
cocotwo, vgone and vgtwo, or coco_spatial and vg_subset. Its argmax counts ties as correct:
`tie="first_index"` here. Captions are unchanged.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from vlc_jax.input_pipeline.benchmarks import fields, published
from vlc_jax.input_pipeline.case import Benchmark, Case
from vlc_jax.input_pipeline.record import DataError

_FIELDS, _IMAGE = ("image id", "correct", "wrong"), {"image id": fields.image_id}
SUBSETS = {
    **dict.fromkeys(("left", "right"), "left_right"),
    **dict.fromkeys(("top", "bottom"), "top_bottom"),
    **dict.fromkeys(("above", "below"), "above_below"),
    **dict.fromkeys(("front", "behind"), "front_behind"),
}
# Two objects: phrase -> preposition, and the authors' preposition for all other captions.
_COCO_PHRASES = ({"left of": "left", "right of": "right", "above": "above"}, "below")
_GQA_PHRASES = (
    {"left of": "left", "right of": "right", "front of": "front", "behind": "behind"},
    "top",
)


@published.reader
def coco_spatial_one(files: published.Files) -> Benchmark:
    """2,247 cases of two captions: "A photo of a dog on the left", "A photo of a dog on the right".

    accuracy, the headline: over cases. accuracy/subset=left_right: cases with the prepositions left
    and right; accuracy/preposition=left: of one preposition.
    """
    return _read(files, _last_word)


@published.reader
def coco_spatial_two(files: published.Files) -> Benchmark:
    """440 cases of two captions, "... a dog to the left of a cat"; see `coco_spatial_one`."""
    return _read(files, _phrase(*_COCO_PHRASES))


@published.reader
def gqa_spatial_one(files: published.Files) -> Benchmark:
    """1,160 cases of two captions on images of Visual Genome; see `coco_spatial_one`.

    images: ROOT/vg with VG_100K and VG_100K_2, or the folder of images of the authors' archive.
    """
    return _read(files, _last_word)


@published.reader
def gqa_spatial_two(files: published.Files) -> Benchmark:
    """291 cases of two captions: left, right, front, behind, and "top" for all others, as in the
    authors' code; see `gqa_spatial_one`."""
    return _read(files, _phrase(*_GQA_PHRASES))


def _read(files: published.Files, preposition_of: Callable[[str], str]) -> Benchmark:
    def cases() -> Iterator[Case]:
        for number, row in enumerate(files.lists(files.file, *_FIELDS, **_IMAGE)):
            preposition = preposition_of(row["correct"])
            if preposition not in SUBSETS:
                raise DataError(
                    f"{files.folder / files.file}: case {number} does not end in one of "
                    f"{list(SUBSETS)}; got {row['correct']!r}"
                )
            yield Case(
                published.case_id(number, row["image id"]),
                (_image(files, row["image id"]),),
                (row["correct"], row["wrong"]),
                {"subset": SUBSETS[preposition], "preposition": preposition},
                {"record": str(row["image id"])},
            )

    summary = ("accuracy", "accuracy/subset=left_right")
    return files.benchmark(cases(), summary=summary)


def _last_word(caption: str) -> str:
    return caption.rstrip(" .").rpartition(" ")[2]


def _phrase(phrases: dict[str, str], other: str) -> Callable[[str], str]:
    # the first phrase in the order of the authors' conditions
    return lambda caption: next(
        (preposition for phrase, preposition in phrases.items() if phrase in caption), other
    )


def _image(files: published.Files, image_id: Any) -> Path:
    if files.name.startswith("gqa"):
        return files.genome_image(f"{image_id}.jpg")
    return files.image(f"{str(image_id).zfill(12)}.jpg")
