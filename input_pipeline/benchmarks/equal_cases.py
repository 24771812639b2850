"""Notes on a set whose cases do not differ: one caption, or one image, in all of them."""

import contextlib
import dataclasses
from collections.abc import Sequence

from vlc_jax.input_pipeline.case import Benchmark
from vlc_jax.input_pipeline.images.image_key import ImageKeys
from vlc_jax.input_pipeline.record import DataError, ImageLike


def noted(benchmark: Benchmark, protocol: str) -> Benchmark:
    """The benchmark with a note if all its captions, or all its images, are the same; in retrieval
    also if at most half of the captions are distinct.
    """
    captions = [caption for case in benchmark.cases for caption in case.captions]
    images = [image for case in benchmark.cases for image in case.images]
    distinct, notes = len(set(captions)), []
    few = len(captions) // 2 if protocol == "retrieval" else 1
    if len(captions) > 1 and distinct <= few:
        notes.append(_note("captions", len(captions), distinct))
    if _are_one(images):
        notes.append(_note("images", len(images), 1))
    return dataclasses.replace(benchmark, notes=(*benchmark.notes, *notes)) if notes else benchmark


def _note(kind: str, number: int, distinct: int) -> str:
    return f"{distinct:,} distinct of {number:,} {kind}: equal {kind} have equal scores"


def _are_one(images: Sequence[ImageLike]) -> bool:
    """True if several images all have one content; reads as far as the first other one."""
    key = ImageKeys()
    # an image that cannot be read is refused with the name of its benchmark, when it is encoded
    with contextlib.suppress(DataError):
        return len(images) > 1 and all(key(image) == key(images[0]) for image in images[1:])
    return False
