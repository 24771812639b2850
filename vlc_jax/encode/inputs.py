"""Images and texts that a user passes to a loaded model, checked."""

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import jax
import numpy as np
from PIL import Image

from vlc_jax.errors import UsageError
from vlc_jax.input_pipeline.images import image_ops
from vlc_jax.input_pipeline.loader.questions import SLOT
from vlc_jax.input_pipeline.record import Conversation, ImageLike, ImageQuestion

T = TypeVar("T")
# A path, encoded bytes, a uint8 array (height, width, 3) or a PIL image; an ImageQuestion is one of
# them with a question, for a model that reads it.
AnyImage = str | os.PathLike | Image.Image | ImageLike


def as_images(images: Sequence[AnyImage]) -> list[ImageLike]:
    """The images as a list. Raises UsageError for one image, and for what is no list."""
    is_pixels = isinstance(images, np.ndarray) and images.ndim == 3
    return [as_image(image) for image in _listed(images, "images", is_one=is_pixels)]


def _listed(items: Any, name: str, is_one: bool = False) -> list[Any]:
    """The items as a list. is_one: it is one item, as a text, a path and a picture are."""
    one = str | bytes | os.PathLike | Image.Image
    if is_one or isinstance(items, one) or not isinstance(items, Iterable):
        raise UsageError(f"{name} are a list, even of one; got {type(items).__name__}")
    return list(items)


def as_image(image: AnyImage) -> ImageLike:
    """The image as the input pipeline reads it."""
    if isinstance(image, ImageQuestion):
        return ImageQuestion(as_image(image.image), image.question)
    if isinstance(image, Image.Image):
        # rotated by EXIF, with 16 bits: as an image from a file
        return np.asarray(image_ops.open_rgb(image))
    return Path(image) if isinstance(image, str | os.PathLike) else image


def as_texts(texts: Sequence[T], name: str = "texts") -> list[T]:
    """The texts as a list. Raises UsageError for one string, and for items that are no texts."""
    texts = _listed(texts, name)
    for index, text in enumerate(texts):
        if not isinstance(text, str | Conversation):
            raise UsageError(
                f"{name}[{index}] is {text!r:.50}, no string: leave it out or write it"
            )
    return texts


def with_question(image: ImageLike, question: str, template: str) -> tuple[ImageLike, str]:
    """(image, question); if config.input.question, the template, has a slot, the image gets the
    question."""
    if SLOT in template and not isinstance(image, ImageQuestion):
        return ImageQuestion(image, question), ""
    return image, question


def check_one_of_each(images: Sequence[Any], others: Sequence[Any], name: str = "texts") -> None:
    """Raises UsageError for another number of texts than images."""
    if len(images) != len(others):
        raise UsageError(f"{len(images)} images and {len(others)} {name}: one of each")


def check_pairs(images: Any, ids: Any, **hard_ids: Any) -> None:
    """Raises UsageError for another number of captions than images, and for hard texts that are not
    a list per caption."""
    if len(images) != len(ids):
        raise UsageError(
            f"apply takes a caption for each image; got {len(images)} images and {len(ids)} "
            "captions (`score` takes any numbers)"
        )
    for name, x in hard_ids.items():
        if x is not None and (np.ndim(x) != np.ndim(ids) + 1 or len(x) != len(ids)):
            raise UsageError(
                f"{name} has the shape (captions, texts of each, length); got {np.shape(x)} "
                f"with {len(ids)} captions; of one text per caption: {name}[:, None]"
            )


def check_arrays(batch: Mapping[str, Any], shape: tuple[int, ...], columns: int) -> None:
    """Raises UsageError for pixels that are not of `preprocess`, and ids that are not of
    `tokenizer`, which the towers would cut or read beyond their end.

    batch: "image", and ids of texts.   shape: of an image.   columns: of the ids of a text.
    """
    for name, x in batch.items():
        found, rule = np.shape(x), f"ids are of tokenizer, (texts, {columns})"
        fits = len(found) > 1 and found[-1] == columns
        if name == "image":
            rule = f"pixels are of preprocess, (images, {', '.join(map(str, shape))})"
            fits = found[1:] == shape
        if not fits:
            raise UsageError(f"{rule}; got the shape {found}")
    x = batch.get("image")
    if isinstance(x, np.ndarray) and x.dtype.kind == "f" and 0 < x.max(initial=0) <= 1:
        raise UsageError("pixels are from 0 to 255; got floats up to 1: multiply them by 255")


def check_params(ours: Any, theirs: Any) -> None:
    """Raises UsageError unless two trees of arrays have the same names and shapes."""
    ours, theirs = (_shapes(each) for each in (ours, theirs))
    for name in [*ours, *theirs]:
        if ours.get(name) != theirs.get(name):
            raise UsageError(
                "with_params takes the arrays of model.params; the shape of "
                f"{name} is {ours.get(name)} there and {theirs.get(name)} here"
            )


def _shapes(params: Any) -> dict[str, tuple[int, ...]]:
    """Path of every array of a tree, "image/blocks/..." -> its shape."""
    leaves = jax.tree_util.tree_leaves_with_path(params)
    return {
        jax.tree_util.keystr(path, simple=True, separator="/"): np.shape(x) for path, x in leaves
    }
