"""DCSM's augmentation of training images: perspective, rotation, and salt and pepper.

Kang et al., "Is CLIP ideal? No. Can we fix it? Yes!" (ICCV 2025), its code: torchvision's
RandomPerspective(.05, p=.2) and RandomRotation(4), then 2 % of the values white and 2 % black, each
channel by itself. No flips: they would exchange left and right.
"""

from collections.abc import Sequence

import numpy as np
from PIL import Image

DISTORTION = 0.05  # share of half a side by which a corner moves
PERSPECTIVES = 0.2  # share of the images
DEGREES = 4.0
NOISE = 0.02  # share of the values that become white, and black

Point = tuple[int, int]


def perturb(picture: Image.Image, rng: np.random.Generator) -> Image.Image:
    """The perturbed RGB picture, of the same size; uncovered corners are black."""
    # always drawn, used or not: the numbers of the steps behind it stay
    corners, is_tilted = moved_corners(picture.size, rng), rng.uniform() < PERSPECTIVES
    if is_tilted:
        picture = perspective(picture, corners)
    picture = picture.rotate(rng.uniform(-DEGREES, DEGREES))
    pixels = np.array(picture)
    is_white, is_black = (rng.random(pixels.shape, np.float32) < NOISE for _ in range(2))
    pixels[is_white] = 255
    # where both are drawn black wins, as there
    pixels[is_black] = 0
    return Image.fromarray(pixels)


def moved_corners(size: Point, rng: np.random.Generator) -> list[Point]:
    """Places of the corners, clockwise from the upper left one, each moved inwards at random."""
    width, height = size
    inwards = [int(DISTORTION * (side // 2)) for side in size]
    xs, ys = (rng.integers(most + 1, size=4) for most in inwards)
    at = [(0, 0), (1, 0), (1, 1), (0, 1)]
    return [
        (int(width - 1 - x if right else x), int(height - 1 - y if low else y))
        for (right, low), x, y in zip(at, xs, ys, strict=True)
    ]


def perspective(picture: Image.Image, corners: Sequence[Point]) -> Image.Image:
    """The picture with its corners at `corners`, clockwise from the upper left one; bilinear."""
    width, height = picture.size
    before = [(0, 0), (width - 1, 0), (width - 1, height - 1), (0, height - 1)]
    # Pillow wants the map from the new picture to the old one
    equations, values = [], []
    for (x, y), (u, v) in zip(corners, before, strict=True):
        equations += [(x, y, 1, 0, 0, 0, -u * x, -u * y), (0, 0, 0, x, y, 1, -v * x, -v * y)]
        values += [u, v]
    solved = np.linalg.solve(np.array(equations, np.float64), np.array(values, np.float64))
    # float32, as there: at the edge a digit decides whether a pixel is black
    coefficients = solved.astype(np.float32)
    how = Image.Transform.PERSPECTIVE
    return picture.transform(picture.size, how, coefficients.tolist(), Image.Resampling.BILINEAR)
