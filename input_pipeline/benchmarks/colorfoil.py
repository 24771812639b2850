"""ColorFoil: a caption of COCO that names colours, and the same one with other colours.

Samin et al., "ColorFoil: Investigating Color Blindness in Large Vision and Language Models" (2024):
made of COCO's captions as github.com/samin9796/ColorFoil does at each start, with unseeded colours;
here they are drawn from a seed. All comparisons strict, as there.
"""

import collections
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import ImageColor

from vlc_jax.input_pipeline.benchmarks.published_files import Origin, PublishedFiles, case_id
from vlc_jax.input_pipeline.case import Benchmark, Case
from vlc_jax.input_pipeline.record import DataError

FILE = "captions_val2017.json"
FOILS = ("blue", "black", "red", "pink", "yellow", "grey", "orange", "white", "green", "brown")
# The names of CSS 3; "snow", "wheat" and "tan" are some. Pillow has one of CSS 4 beside them.
COLOURS = frozenset(ImageColor.colormap) - {"rebeccapurple"}
GREYSCALE = frozenset({550, 1164, 1752, 2236})  # places in the set of images without colours
ORIGIN = Origin(
    protocol="choice",
    folder="coco/annotations",
    files=(FILE,),
    images="coco/val2017",
    source="cocodataset.org (annotations_trainval2017.zip and val2017)",
    licence="CC BY 4.0",
    cases=2_507,
    overlap="COCO val2017",
)


def colorfoil(
    root: str | Path = "",
    count: int | None = None,
    folder: str | Path | None = None,
    images: str | Path | None = None,
    seed: int = 1,
    whole_words: bool = True,
) -> Benchmark:
    """2,507 cases of two captions: the first of an image that has a colour's name in lower case
    between spaces, and its foil.

    seed: of the colours of the foils.
    whole_words: False is the authors' way, which replaces letters inside other words ("covered"),
      and a new colour by the next one, and may exchange "gray" and "grey".
    """
    files = PublishedFiles(ORIGIN, root, folder, images)
    foil = _foil if whole_words else _foil_by_letters

    def cases() -> Iterator[Case]:
        for number, (image, caption) in enumerate(_coloured(files)):
            if number not in GREYSCALE:
                rng = np.random.default_rng((seed, number))  # a part of the set has the same foils
                yield Case(
                    case_id(number, image),
                    (files.image(image),),
                    (caption, foil(caption, rng)),
                    None,
                    {"record": image},
                )

    return files.benchmark("colorfoil", cases(), count)


def _coloured(files: PublishedFiles) -> Iterator[tuple[str, str]]:
    """(image, caption) of every image with a caption that names a colour, of these the first."""
    captions: dict[int, list[str]] = collections.defaultdict(list)
    match files.json(FILE):
        case {"images": list(images), "annotations": list(annotations)}:
            pass
        case _:
            raise DataError(f"{files.folder / FILE} has no images and captions of COCO")
    for row in files.check(FILE, annotations, ("image_id", "caption")):
        captions[row["image_id"]].append(row["caption"])
    for row in files.check(FILE, images, ("id", "file_name")):
        for caption in captions[row["id"]]:
            if COLOURS.intersection(caption.split(" ")):
                yield row["file_name"], caption
                break


def _foil(caption: str, rng: np.random.Generator) -> str:
    """The caption with another of FOILS for each colour."""
    words = [_other(word, rng) if word in COLOURS else word for word in caption.split(" ")]
    return " ".join(words)


def _other(colour: str, rng: np.random.Generator) -> str:
    same = "grey" if colour == "gray" else colour
    return str(rng.choice([foil for foil in FOILS if foil != same]))


def _foil_by_letters(caption: str, rng: np.random.Generator) -> str:
    foiled = caption
    for word in caption.split(" "):
        if word in COLOURS:
            number = int(rng.integers(len(FOILS)))
            if FOILS[number] == word:
                number -= 1
            foiled = foiled.replace(word, FOILS[number])
    return foiled


READERS = {"colorfoil": (colorfoil, ORIGIN)}
