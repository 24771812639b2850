"""Blockwise scoring: blocks padded to one shape, texts trimmed to the longest."""

from collections.abc import Callable

import numpy as np

from vlc_jax.evaluators.scorer import take
from vlc_jax.types import NOT_ASKED, ImageFeatures, TextFeatures

# Texts are cut to a multiple of this number of tokens: each length compiles a program.
COLUMNS = 16
Score = Callable[[ImageFeatures, TextFeatures], np.ndarray]


def on_short_texts(score: Score) -> Score:
    """`score` of a head that reads token ids, on texts cut behind the last scored token of all.

    The length is a multiple of COLUMNS: a decoder computes all columns, but each length compiles a
    program.
    """

    def call(image: ImageFeatures, text: TextFeatures) -> np.ndarray:
        used = np.flatnonzero(text.mask.any(axis=0))
        length = -(-(used[-1] + 1) // COLUMNS) * COLUMNS if len(used) else COLUMNS
        arrays = {"ids": text.ids, "mask": text.mask, "marks": text.marks}
        cut = {name: x if x is None else x[:, :length] for name, x in arrays.items()}
        return score(image, text._replace(**cut))

    return call


def sharing_prefixes(score_options: Score, image: ImageFeatures, text: TextFeatures) -> Score:
    """`score_options` that reads the unscored prefix shared by all texts of an image only once.

    For example, answers share the question before them. For a head with `reads_shared`; returns
    `score_options` unchanged if sharing saves no tokens. Lengths are computed from all of `image`
    and `text`, so that the returned function, called on parts of them, compiles once.
    """
    ids, mask, counts = _prefixes(image, text)
    options, length = ids.shape[1:]
    ends = length - mask.any(axis=1)[:, ::-1].argmax(axis=1)
    used = np.where(mask.any(axis=(1, 2)), ends - counts, 0).max()
    before = -(-counts.max() // COLUMNS) * COLUMNS
    # a power of two: an answer of a letter and an end token is much shorter than COLUMNS
    behind = min(length, 1 << int(max(used - 1, 0)).bit_length())
    if before + options * behind >= options * length:
        return score_options

    def call(image: ImageFeatures, text: TextFeatures) -> np.ndarray:
        ids, mask, counts = _prefixes(image, text)
        columns = np.arange(-before, 0)[None] + counts[:, None]
        shared = np.take_along_axis(ids[:, 0], np.maximum(columns, 0), axis=1)
        shared = np.where(columns >= 0, shared, NOT_ASKED).astype(ids.dtype)
        # beyond its end a text is padded with its last column, which the mask leaves out
        columns = counts[:, None, None] + np.arange(behind)[None, None]
        is_token = columns < length
        columns = np.broadcast_to(np.minimum(columns, length - 1), (*ids.shape[:2], behind))
        ids, mask = (np.take_along_axis(x, columns, axis=2) for x in (ids, mask))
        rest = {"ids": ids, "mask": mask & is_token}
        rest = {name: x.reshape(-1, behind) for name, x in rest.items()}
        return score_options(image, text._replace(**rest, marks=None, shared=shared))

    return call


def _prefixes(
    image: ImageFeatures, text: TextFeatures
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Ids and mask of each image's texts, (images, options, length), and lengths of their prefixes.

    The prefix of an image, (images,), is the unscored one shared by all its options.
    """
    images, length = len(image.pooled), text.ids.shape[1]
    ids, mask = (x.reshape(images, -1, length) for x in (text.ids, text.mask))
    is_shared = (ids == ids[:, :1]).all(axis=1) & ~mask.any(axis=1)
    # at least one column of a text stays outside the prefix
    is_shared[:, -1] = False
    return ids, mask, is_shared.cumprod(axis=1).sum(axis=1)


def score_in_blocks(
    score: Score, image: ImageFeatures, text: TextFeatures, height: int, width: int
) -> np.ndarray:
    """`score` of every image with every text, float32 (images, texts), in blocks of one shape.

    height, width: images and texts of a block. The last blocks are padded with copies of the last
    image or text, so that only one shape is compiled.
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
    score_options: Score, image: ImageFeatures, text: TextFeatures, rows: int
) -> np.ndarray:
    """`score_options` of n images with k texts each, (n, k), in blocks of `rows` images.

    The last block is padded with copies of the last image and its texts.
    """
    images = len(image.pooled)
    options, parts = len(text.pooled) // images, []
    for start in range(0, images, rows):
        image_rows = np.minimum(np.arange(start, start + rows), images - 1)
        text_rows = (image_rows[:, None] * options + np.arange(options)[None]).ravel()
        part = score_options(take(image, image_rows), take(text, text_rows))
        parts.append(part[: images - start])
    return np.concatenate(parts)
