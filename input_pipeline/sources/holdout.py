"""Holdout: the share of the images kept out of training, chosen by a hash of their names."""

import math

import numpy as np

from vlc_jax.input_pipeline.sources import row_keys

# Rows of a table up to which a holdout is an exact number of images; in larger ones a share by hash
# misses it by a few per cent at most.
EXACT_ROWS = 10_000


def is_exact(rows: int) -> bool:
    """True if a holdout of a table of so many rows is an exact number of its images."""
    return rows <= EXACT_ROWS


def held_out(keys: np.ndarray, share: float) -> np.ndarray:
    """Mask of the rows that are held out, bool (rows,); keys: of their images, uint64 (rows,).

    Up to EXACT_ROWS rows they are those of round(share * n) of the n images, at least one, and
    never all: an image that is added later may move one other across the bound. In larger tables
    the bound is share * 2**64, whatever the images: none ever moves. All rows of an image are on
    the same side.

    keys: of all rows, whatever a source excludes: training with `exclude` and evaluation without it
    must agree on the images that are held out.
    """
    if not is_exact(len(keys)):
        return keys < np.uint64(math.ceil(share * 2**64))
    images = np.unique(keys[keys != row_keys.UNREADABLE])
    if not len(images):
        return np.zeros(len(keys), bool)
    return keys < images[min(max(round(share * len(images)), 1), len(images) - 1)]
