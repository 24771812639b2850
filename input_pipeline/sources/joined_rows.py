"""Rows of one image: a table with a row per caption, as Flickr8k's, has many of them."""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from vlc_jax.input_pipeline.record import DataError
from vlc_jax.input_pipeline.sources import row_keys, tables

# a row without an image is damaged, and all of these have the same key
_NO_IMAGE = row_keys.hashes(["", "None"])
_MAX_ROWS = 10_000  # of one image


def one_spelling(keys: np.ndarray, files: np.ndarray) -> np.ndarray:
    """The keys of images, those of one file replaced by that of its first row.

    keys: of the names as they are written.   files: of the files that they name; both uint64, of
    all rows. A row without a file keeps its key.
    """
    _, first, file = np.unique(files, return_index=True, return_inverse=True)
    return np.where(files == row_keys.UNREADABLE, keys, keys[first[file]])


def order(keys: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The rows with those of one image side by side, in the order of the images' first rows, and
    the position of each image's first row, followed by the number of rows; both int64.

    keys: of the images, uint64, of all rows.   rows: int64, increasing. Unreadable rows and rows
    without an image stay alone.
    """
    keys = keys[rows]
    _, first, image = np.unique(keys, return_index=True, return_inverse=True)
    is_alone = (keys == row_keys.UNREADABLE) | np.isin(keys, _NO_IMAGE)
    leaders = np.where(is_alone, np.arange(len(rows)), first[image])
    by_image = np.argsort(leaders, kind="stable")
    starts = np.flatnonzero(np.diff(leaders[by_image], prepend=-1))
    return rows[by_image], np.append(starts, len(rows))


def check_images(table: tables.Table, keys: np.ndarray) -> None:
    """Raises DataError for an image of more rows than a record can be made of.

    keys: of the images, uint64, of the first rows.
    """
    images, numbers = np.unique(keys, return_counts=True)
    large = np.setdiff1d(images[numbers > _MAX_ROWS], [row_keys.UNREADABLE, *_NO_IMAGE])
    if len(large):
        name = table.name(int(np.argmax(keys == large[0])))
        raise DataError(
            f"{name} and at least {_MAX_ROWS:,} others have one image; is image_column another "
            "column? With the option join_rows=False each row is a record"
        )


def num_shared(keys: np.ndarray, chosen: np.ndarray) -> int:
    """Number of images with some rows chosen and others not. keys: uint64; chosen: bool, (rows,)"""
    shared = np.intersect1d(keys[chosen], keys[~chosen])
    return len(np.setdiff1d(shared, [row_keys.UNREADABLE, *_NO_IMAGE]))


def with_different_keys(keys: np.ndarray, rows: np.ndarray, first: np.ndarray) -> np.ndarray:
    """The rows in increasing order, without those that have the key of another one of their image.

    keys: uint64, of all rows.   rows, first: of `order`.
    """
    image = np.repeat(np.arange(len(first) - 1), np.diff(first))
    by_key = np.lexsort((rows, keys[rows], image))
    is_new = np.diff(image[by_key], prepend=-1) != 0
    is_new[1:] |= keys[rows[by_key[1:]]] != keys[rows[by_key[:-1]]]
    return np.sort(rows[by_key[is_new]])


def join(parts: Sequence[dict[str, Any]], name: str) -> dict[str, Any]:
    """Fields of the record of an image, of those of its rows, with the id of the first.

    Hard texts belong to the captions of their row. name: of the first row, for messages. Raises
    DataError for rows of different groups, which a record cannot have, or with kinds for a part of
    their hard texts.
    """
    first = parts[0]
    if len(parts) == 1:
        return first
    for part in parts:
        if part["group"] != first["group"]:
            raise DataError(
                f"{name} and {part['id']} are of one record, but their group (group_column) is "
                f"{first['group']!r} and {part['group']!r}; with the option join_rows=False each "
                "row is a record"
            )
    lists: dict[str, Any] = {
        field: [*itertools.chain.from_iterable(part[field] for part in parts)]
        for field in ("captions", "hard_images", "caption_weights")
    }
    for side in ("negatives", "positives"):
        lists[side] = _per_caption(parts, side)
        kinds = f"{side[:-1]}_kinds"
        lists[kinds] = _per_caption(parts, kinds)
        if lists[kinds] and [*map(len, lists[kinds])] != [*map(len, lists[side])]:
            raise DataError(
                f"{name}: some rows of its image have kinds of their {side} and others none; every "
                "row with hard texts has their kinds, or none has"
            )
    meta = {}
    for column, value in first["meta"].items():
        values = [part["meta"][column] for part in parts]
        meta[column] = value if all(each == value for each in values) else values
    return {**first, "meta": meta, **lists}


def _per_caption(parts: Sequence[dict[str, Any]], field: str) -> list[list[str]]:
    """The lists of all captions, [] for captions of rows without; [] if no row has any."""
    if not any(part[field] for part in parts):
        return []
    return [texts for part in parts for texts in (part[field] or [[] for _ in part["captions"]])]
