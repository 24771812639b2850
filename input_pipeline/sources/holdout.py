"""Holdout: a share of the images that training does not use, chosen by a hash of their names."""

import math

import numpy as np

from vlc_jax.input_pipeline.sources import row_keys

# Largest table, in rows, whose holdout is an exact number of images; in larger tables a share by
# hash misses that number by a few per cent at most.
EXACT_ROWS = 10_000


def is_exact(rows: int) -> bool:
    """True if the holdout of a table of `rows` rows is an exact number of its images."""
    return rows <= EXACT_ROWS


def held_out(keys: np.ndarray, share: float) -> np.ndarray:
    """Mask of the rows that are held out, bool (rows,), by the keys of their images.

    Up to EXACT_ROWS rows, round(share * n) of the n images are held out, at least one and never
    all; an image that is added later may move one other image across the bound. In larger tables
    the bound is share * 2**64, and no image ever moves. All rows of an image are on the same side.

    keys: uint64 (rows,), of all rows, excluded ones too: training with `exclude` and evaluation
    without it must hold out the same images.
    """
    if not is_exact(len(keys)):
        return keys < np.uint64(math.ceil(share * 2**64))
    images = np.unique(keys[keys != row_keys.UNREADABLE])
    if not len(images):
        return np.zeros(len(keys), bool)
    return keys < images[min(max(round(share * len(images)), 1), len(images) - 1)]
