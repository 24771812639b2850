"""Conversion from and to items {"image_options", "caption_options"}, the format of ARO's code.

`from_items` makes a benchmark from a data set of items, `to_items` makes items from a benchmark for
code that expects them. A scorer of such code returns scores (items, image options, caption
options).
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from PIL import Image

from vlc_jax.input_pipeline.case import Benchmark, Case
from vlc_jax.input_pipeline.images import image_ops
from vlc_jax.input_pipeline.record import DataError


class Items(Protocol):
    """A map-style data set of items, such as torch's."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Mapping[str, Any]: ...


class ItemsOf(Sequence):
    """A benchmark as items; images are decoded on access.

    preprocess: Pillow image -> input of the other code, such as a tensor; default: no change.
    """

    def __init__(self, benchmark: Benchmark, preprocess: Any = None) -> None:
        self._cases, self._preprocess = benchmark.cases, preprocess

    def __len__(self) -> int:
        return len(self._cases)

    def __getitem__(self, index: int) -> dict[str, list[Any]]:
        case = self._cases[index]
        pictures = [image_ops.open_rgb(image) for image in case.images]
        if self._preprocess is not None:
            pictures = [self._preprocess(picture) for picture in pictures]
        captions = list(case.captions)
        if isinstance(positive := case.meta.get("positive"), str):
            captions.append(positive)
        return {"image_options": pictures, "caption_options": captions}


def to_items(benchmark: Benchmark, preprocess: Any = None) -> ItemsOf:
    """Items of a benchmark of protocol choice, pairs or triplet, the correct option first."""
    return ItemsOf(benchmark, preprocess)


def from_items(
    items: Items, name: str, correct: int | Sequence[int] = 0, groups: Sequence[Any] | None = None
) -> Benchmark:
    """A benchmark from items; image options are Pillow images, paths, bytes or uint8 arrays.

    correct: index of the correct option, one for all items or one per item; 1 for ARO's Relation
      and Attribution. In items with two images and two captions, caption k belongs to image k.
    groups: `Case.group` per item.
    Raises DataError for an item without options, or a correct index out of range.
    """
    digest, cases = hashlib.sha256(), []
    for number in range(len(items)):
        item = items[number]
        images, captions = (list(item.get(f"{kind}_options", ())) for kind in ("image", "caption"))
        index = correct if isinstance(correct, int) else correct[number]
        options = images if len(captions) == 1 else captions
        if not images or not captions or not 0 <= index < len(options):
            raise DataError(
                f"item {number} of {name} has {len(images)} images and {len(captions)} captions; "
                f"the correct option is {index}"
            )
        # 2 x 2 options are paired by their order
        if len(images) == 1 or len(captions) == 1:
            options.insert(0, options.pop(index))
        digest.update(repr(captions).encode())
        group = None if groups is None else groups[number]
        pictures = tuple(
            np.asarray(image.convert("RGB")) if isinstance(image, Image.Image) else image
            for image in images
        )
        cases.append(Case(f"{number:06d}", pictures, tuple(captions), group))
    return Benchmark(name, tuple(cases), f"{digest.hexdigest()[:16]}/{len(cases)}")
