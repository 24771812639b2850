"""Items {"image_options", "caption_options"} of ARO's code, as many authors' data sets give them.

`from_items` makes a benchmark of such a data set, without any conversion of its files; `to_items`
gives a benchmark to code that expects one. A scorer of theirs returns scores of shape (items, image
options, caption options).
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
    """A data set of items, such as torch's."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Mapping[str, Any]: ...


class ItemsOf(Sequence):
    """A benchmark as items; pictures are decoded when an item is asked for.

    preprocess: picture -> what the other code wants, such as a tensor; by default the Pillow image.
    """

    def __init__(self, benchmark: Benchmark, preprocess: Any = None) -> None:
        self._cases, self._preprocess = benchmark.cases, preprocess

    def __len__(self) -> int:
        return len(self._cases)

    def __getitem__(self, index: int) -> dict[str, list[Any]]:
        case = self._cases[index]
        pictures = [image_ops.open_rgb(image) for image in case.images]
        shown = pictures if self._preprocess is None else [self._preprocess(p) for p in pictures]
        captions = list(case.captions)
        if isinstance(positive := case.meta.get("positive"), str):
            captions.append(positive)
        return {"image_options": shown, "caption_options": captions}


def to_items(benchmark: Benchmark, preprocess: Any = None) -> ItemsOf:
    """Items of a benchmark of choice, pairs or triplets, the correct option first."""
    return ItemsOf(benchmark, preprocess)


def from_items(
    items: Items,
    name: str,
    correct: int | Sequence[int] = 0,
    groups: Sequence[Any] | None = None,
) -> Benchmark:
    """A benchmark of items whose options are Pillow images, paths, bytes or uint8 arrays.

    correct: index of the correct option, of all items or of each; 1 for ARO's Relation and
      Attribution. Of items with two images and two captions caption k belongs to image k.
    groups: `Case.group` of each.
    Raises DataError for an item without options, or with a correct one that it does not have.
    """
    digest, cases = hashlib.sha256(), []
    for number in range(len(items)):
        item = items[number]
        images, captions = (list(item.get(f"{kind}_options", ())) for kind in ("image", "caption"))
        place = correct if isinstance(correct, int) else correct[number]
        options = images if len(captions) == 1 else captions
        if not images or not captions or not 0 <= place < len(options):
            raise DataError(
                f"item {number} of {name} has {len(images)} images and {len(captions)} captions; "
                f"the correct option is {place}"
            )
        if len(images) == 1 or len(captions) == 1:  # else both orders belong together
            options.insert(0, options.pop(place))
        digest.update(repr(captions).encode())
        group = None if groups is None else groups[number]
        pictures = tuple(_image_like(image) for image in images)
        cases.append(Case(f"{number:06d}", pictures, tuple(captions), group))
    return Benchmark(name, tuple(cases), f"{digest.hexdigest()[:16]}/{len(cases)}")


def _image_like(image: Any) -> Any:
    return np.asarray(image.convert("RGB")) if isinstance(image, Image.Image) else image
