"""ColorFoil: a COCO caption with colour words, and the same caption with other colours.

Samin et al., "ColorFoil: Investigating Color Blindness in Large Vision and Language Models" (2024):
generated from COCO's captions as in github.com/samin9796/ColorFoil, which draws unseeded colours at
each start; here a seed fixes them. Strict comparison, as there.
"""

import collections
from collections.abc import Iterator

import numpy as np
from PIL import ImageColor

from vlc_jax.input_pipeline.benchmarks import fields, published
from vlc_jax.input_pipeline.case import Benchmark, Case
from vlc_jax.input_pipeline.record import DataError

FOILS = ("blue", "black", "red", "pink", "yellow", "grey", "orange", "white", "green", "brown")
# The colour names of CSS 3, "snow", "wheat" and "tan" included; Pillow adds one of CSS 4.
COLOURS = frozenset(ImageColor.colormap) - {"rebeccapurple"}
# greyscale images, which the authors leave out, by index
GREYSCALE = frozenset({550, 1164, 1752, 2236})


@published.reader
def colorfoil(files: published.Files, seed: int = 1) -> Benchmark:
    """2,507 cases of two captions: an image's first caption with a lower-case colour word between
    spaces, and its foil.

    seed: of the colours in foils. Whole words are replaced; the authors' code also replaces inside
      words ("covered"), may replace a new colour again, and may swap "gray" and "grey".
    """

    def cases() -> Iterator[Case]:
        for number, (image, caption) in enumerate(_coloured(files)):
            if number not in GREYSCALE:
                # One generator per case: `count` does not change the foils.
                rng = np.random.default_rng((seed, number))
                yield files.case(number, image, (caption, _foil(caption, rng)))

    return files.benchmark(cases())


def _coloured(files: published.Files) -> Iterator[tuple[str, str]]:
    """Yields (image, its first caption with a colour word)."""
    captions: dict[int, list[str]] = collections.defaultdict(list)
    match files.json(files.file):
        case {"images": list(images), "annotations": list(annotations)}:
            pass
        case _:
            raise DataError(f"{files.folder / files.file} has no images and captions of COCO")
    for row in files.check(files.file, annotations, ("caption",), image_id=fields.image_id):
        captions[row["image_id"]].append(row["caption"])
    for row in files.check(files.file, images, (), id=fields.image_id, file_name=fields.image_name):
        for caption in captions[row["id"]]:
            if COLOURS.intersection(caption.split(" ")):
                yield row["file_name"], caption
                break


def _foil(caption: str, rng: np.random.Generator) -> str:
    """The caption with each colour word replaced by another colour of FOILS."""
    words = [_other(word, rng) if word in COLOURS else word for word in caption.split(" ")]
    return " ".join(words)


def _other(colour: str, rng: np.random.Generator) -> str:
    same = "grey" if colour == "gray" else colour
    return str(rng.choice([foil for foil in FOILS if foil != same]))
