"""NaFlex: a picture of any aspect ratio as patches in an array of fixed shape (SigLIP 2, Tschannen
et al. 2025, arXiv:2502.14786, section 2.4.2).

The array is a mosaic, uint8 (side + 1, side, 3). Below row 0 it has the patches of the picture in
reading order, side / patch_size in each row of the mosaic, then black ones. Row 0 has the grid of
the picture: a black pixel, a white one, then (n // 256, n % 256, 0) for n = rows and n = columns,
then black ones. So the grid can be read after any normalisation, which moves black and white too
(models/naflex.py), and batches, caches and workers treat a mosaic as any other image.
"""

import math

import numpy as np

HEADER = 4  # pixels of row 0


def best_size(height: int, width: int, patch_size: int, patches: int) -> tuple[int, int]:
    """Size (height, width) in whole patches, `patches` at most, nearly with the aspect ratio of the
    picture.

    The authors' rule, to the last step of its binary search: the largest scale, up to 100, at which
    both sides, rounded up to whole patches, give few enough of them.
    """

    def scaled(scale: float) -> tuple[int, int]:
        rows, columns = (max(1, math.ceil(side * scale / patch_size)) for side in (height, width))
        return rows, columns

    low, high = 1e-6, 100.0
    while high - low >= 1e-5:
        scale = (low + high) / 2
        low, high = (scale, high) if math.prod(scaled(scale)) <= patches else (low, scale)
    rows, columns = scaled(low)
    return rows * patch_size, columns * patch_size


def mosaic(pixels: np.ndarray, patch_size: int, side: int) -> np.ndarray:
    """The mosaic, (side + 1, side, 3), of pixels (height, width, 3), uint8.

    Raises ValueError unless both are whole patches, and those of the picture fit into the mosaic.
    """
    height, width = pixels.shape[:2]
    rows, columns, across = (length // patch_size for length in (height, width, side))
    if height % patch_size or width % patch_size or not 0 < rows * columns <= across**2:
        raise ValueError(
            f"a mosaic of side {side} has up to {across**2} whole patches of {patch_size} pixels; "
            f"got a picture of {width} x {height} pixels"
        )
    shape = (rows, patch_size, columns, patch_size, 3)
    patches = np.zeros((across**2, patch_size, patch_size, 3), np.uint8)
    patches[: rows * columns] = pixels.reshape(shape).swapaxes(1, 2).reshape(-1, *shape[1::2], 3)
    shape = (across, across, patch_size, patch_size, 3)
    below = patches.reshape(shape).swapaxes(1, 2).reshape(*2 * (across * patch_size,), 3)
    result = np.zeros((side + 1, side, 3), np.uint8)
    result[1 : 1 + len(below), : len(below)] = below
    result[0, 1] = 255
    result[0, 2:HEADER, :2] = [divmod(rows, 256), divmod(columns, 256)]
    return result


def is_mosaic(pixels: np.ndarray, side: int) -> bool:
    """True for results of `mosaic`: no photo begins with such a row."""
    if pixels.shape != (side + 1, side, 3):
        return False
    header = pixels[0]
    return not header[0].any() and (header[1] == 255).all() and not header[HEADER:].any()
