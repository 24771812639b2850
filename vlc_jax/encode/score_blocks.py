"""Scores of many images and texts by calls of one shape, and of no more tokens than count."""

from collections.abc import Callable

import numpy as np

from vlc_jax.evaluators.scorer import take
from vlc_jax.types import NOT_ASKED, ImageFeatures, TextFeatures

COLUMNS = 16  # texts are cut to a multiple of so many tokens
Score = Callable[[ImageFeatures, TextFeatures], np.ndarray]


def on_short_texts(score: Score) -> Score:
    """`score` of a head that reads ids, of texts cut behind the last token that counts of any of
    them, to a multiple of COLUMNS: each length is compiled on its own, and a decoder computes all
    columns."""

    def call(image: ImageFeatures, text: TextFeatures) -> np.ndarray:
        used = np.flatnonzero(text.mask.any(axis=0))
        length = -(-(used[-1] + 1) // COLUMNS) * COLUMNS if len(used) else COLUMNS
        arrays = {"ids": text.ids, "mask": text.mask, "marks": text.marks}
        cut = {name: x if x is None else x[:, :length] for name, x in arrays.items()}
        return score(image, text._replace(**cut))

    return call


def sharing_beginnings(score_options: Score, image: ImageFeatures, text: TextFeatures) -> Score:
    """`score_options`, by a head with `reads_shared`, of parts of these images with their texts:
    what all texts of an image begin with and does not count, such as a question with several
    answers, is read once, where that is less to read.

    The lengths are those of all that is asked, so that one program does.
    """
    ids, mask, counts = _beginnings(image, text)
    options, length = ids.shape[1:]
    ends = length - mask.any(axis=1)[:, ::-1].argmax(axis=1)
    used = np.where(mask.any(axis=(1, 2)), ends - counts, 0).max()
    before = -(-counts.max() // COLUMNS) * COLUMNS
    # of answers: a letter and an end token are far from a whole COLUMNS
    behind = min(length, 1 << int(max(used - 1, 0)).bit_length())
    if before + options * behind >= options * length:
        return score_options

    def call(image: ImageFeatures, text: TextFeatures) -> np.ndarray:
        ids, mask, counts = _beginnings(image, text)
        columns = np.arange(-before, 0)[None] + counts[:, None]
        shared = np.take_along_axis(ids[:, 0], np.maximum(columns, 0), axis=1)
        shared = np.where(columns >= 0, shared, NOT_ASKED).astype(ids.dtype)
        # behind a text is padding: its last column again, which does not count
        columns = counts[:, None, None] + np.arange(behind)[None, None]
        is_there = columns < length
        columns = np.broadcast_to(np.minimum(columns, length - 1), (*ids.shape[:2], behind))
        ids, mask = (np.take_along_axis(x, columns, axis=2) for x in (ids, mask))
        rest = {"ids": ids, "mask": mask & is_there}
        rest = {name: x.reshape(-1, behind) for name, x in rest.items()}
        return score_options(image, text._replace(**rest, marks=None, shared=shared))

    return call


def _beginnings(
    image: ImageFeatures, text: TextFeatures
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Ids and mask of the texts of each image, (images, options, length), and the number of ids
    that all of them begin with and none counts."""
    images, length = len(image.pooled), text.ids.shape[1]
    ids, mask = (x.reshape(images, -1, length) for x in (text.ids, text.mask))
    is_shared = (ids == ids[:, :1]).all(axis=1) & ~mask.any(axis=1)
    is_shared[:, -1] = False  # a text keeps a token, which may not count either
    return ids, mask, is_shared.cumprod(axis=1).sum(axis=1)


def score_in_blocks(
    score: Score,
    image: ImageFeatures,
    text: TextFeatures,
    height: int,
    width: int,
) -> np.ndarray:
    """`score` of every image with every text, float32 (images, texts), in blocks of one shape.

    height, width: rows of images and of texts that `score` gets at a time. The last ones are filled
    up with copies of the last row, so that only this shape is compiled.
    """
    images, texts = len(image.pooled), len(text.pooled)
    scores = np.zeros((images, texts), np.float32)
    for top in range(0, images, height):
        rows = take(image, np.minimum(np.arange(top, top + height), images - 1))
        for left in range(0, texts, width):
            columns = take(text, np.minimum(np.arange(left, left + width), texts - 1))
            part = scores[top : top + height, left : left + width]
            part[:] = score(rows, columns)[: len(part), : part.shape[1]]
    return scores


def score_options_in_blocks(
    score_options: Score,
    image: ImageFeatures,
    text: TextFeatures,
    rows: int,
) -> np.ndarray:
    """`score_options` of n images with their k texts each, (n, k), `rows` images at a time; the
    last ones are filled up with copies of the last image and its texts."""
    images = len(image.pooled)
    options, parts = len(text.pooled) // images, []
    for start in range(0, images, rows):
        own = np.minimum(np.arange(start, start + rows), images - 1)
        of_texts = (own[:, None] * options + np.arange(options)[None]).ravel()
        part = score_options(take(image, own), take(text, of_texts))
        parts.append(part[: images - start])
    return np.concatenate(parts)
