"""Shape outlines and surface textures as small anti-aliased masks.

Coordinates: u to the right, v down, both in [-1, 1] over the box of the object. Only additions,
products and comparisons of doubles occur, so that masks are the same on every machine.
"""

import functools
from collections.abc import Callable

import numpy as np

SUPERSAMPLING = 8  # subpixels per pixel and axis
OPAQUE = SUPERSAMPLING**2  # mask value of a pixel that the shape covers entirely

Point = tuple[float, float]


def _polygon(u: np.ndarray, v: np.ndarray, corners: tuple[Point, ...]) -> np.ndarray:
    """Even-odd rule: a point is inside if a ray to the right crosses the outline oddly often."""
    inside = np.zeros(u.shape, bool)
    for (u0, v0), (u1, v1) in zip(corners, corners[1:] + corners[:1], strict=True):
        if v0 == v1:
            continue  # a level edge is never crossed by a level ray
        crosses = (v0 > v) != (v1 > v)
        inside ^= crosses & (u < u0 + (v - v0) * ((u1 - u0) / (v1 - v0)))
    return inside


def _disc(u: np.ndarray, v: np.ndarray, radius: float = 0.98) -> np.ndarray:
    return u * u + v * v <= radius * radius


def _heart(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    """The sextic (x^2 + y^2 - 1)^3 = x^2 y^3, stretched over the box."""
    x, y = 1.16 * u, 0.12 - 1.13 * v
    ball = x * x + y * y - 1
    return ball * ball * ball - x * x * y * y * y <= 0


def _moon(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    bite = (u - 0.55) * (u - 0.55) + v * v <= 0.78 * 0.78
    return _disc(u, v) & ~bite


_TRIANGLE = ((0.0, -0.95), (0.98, 0.85), (-0.98, 0.85))
_STAR = (  # five points on radius 1.05 and five on 0.44, the upper point first, moved down by 0.05
    (0.0, -1.0), (0.259, -0.306), (0.999, -0.274), (0.418, 0.186), (0.617, 0.899),
    (0.0, 0.49), (-0.617, 0.899), (-0.418, 0.186), (-0.999, -0.274), (-0.259, -0.306),
)  # fmt: skip
_ARROW = (
    (-0.98, -0.3), (0.1, -0.3), (0.1, -0.88), (0.98, 0.0), (0.1, 0.88), (0.1, 0.3), (-0.98, 0.3),
)  # fmt: skip
_HOUSE = (
    (0.0, -0.95), (0.98, -0.1), (0.7, -0.1), (0.7, 0.92), (-0.7, 0.92), (-0.7, -0.1), (-0.98, -0.1),
)  # fmt: skip
_BOLT = ((0.3, -0.98), (-0.72, 0.2), (-0.05, 0.2), (-0.38, 0.98), (0.74, -0.25), (0.05, -0.25))
_DROP_TIP = ((0.0, -0.98), (0.56, 0.08), (-0.56, 0.08))

OUTLINES: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "circle": _disc,
    "square": lambda u, v: (abs(u) <= 0.86) & (abs(v) <= 0.86),
    "triangle": lambda u, v: _polygon(u, v, _TRIANGLE),
    "diamond": lambda u, v: abs(u) / 0.78 + abs(v) <= 0.99,
    "cross": lambda u, v: (
        ((abs(u) <= 0.32) | (abs(v) <= 0.32)) & (abs(u) <= 0.96) & (abs(v) <= 0.96)
    ),
    "star": lambda u, v: _polygon(u, v, _STAR),
    "ring": lambda u, v: _disc(u, v) & ~_disc(u, v, 0.55),
    "heart": _heart,
    "moon": _moon,
    "arrow": lambda u, v: _polygon(u, v, _ARROW),
    "house": lambda u, v: _polygon(u, v, _HOUSE),
    "hourglass": lambda u, v: (abs(v) <= 0.95) & (abs(u) <= 0.12 + 0.8 * abs(v)),
    "bolt": lambda u, v: _polygon(u, v, _BOLT),
    "drop": lambda u, v: (
        (u * u + (v - 0.34) * (v - 0.34) <= 0.63 * 0.63) | _polygon(u, v, _DROP_TIP)
    ),
}


def _stripes(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Slanted bands, six from corner to corner."""
    phase = (u + v) * 1.5
    return phase - np.floor(phase) < 0.45


def _dots(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Round spots on a square grid, three by three to the box."""
    x, y = (u + 1.0) * 1.5, (v + 1.0) * 1.5
    x, y = x - np.floor(x) - 0.5, y - np.floor(y) - 0.5
    return x * x + y * y < 0.085


TEXTURES: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray] | None] = {
    "plain": None,
    "striped": _stripes,
    "dotted": _dots,
}


def _grid(pixels: int) -> tuple[np.ndarray, np.ndarray]:
    n = pixels * SUPERSAMPLING
    axis = (np.arange(n) + 0.5) * (2.0 / n) - 1.0
    return np.broadcast_to(axis[None, :], (n, n)), np.broadcast_to(axis[:, None], (n, n))


def _coverage(inside: np.ndarray) -> np.ndarray:
    """Subpixels -> int16 (pixels, pixels): how many of a pixel's subpixels are inside."""
    n = len(inside) // SUPERSAMPLING
    blocks = inside.reshape(n, SUPERSAMPLING, n, SUPERSAMPLING)
    return blocks.sum(axis=(1, 3)).astype(np.int16)


@functools.cache
def mask(shape: str, pixels: int) -> np.ndarray:
    """int16 (pixels, pixels) in 0..OPAQUE, how much of each pixel the shape covers; read-only."""
    coverage = _coverage(OUTLINES[shape](*_grid(pixels)))
    coverage.flags.writeable = False
    return coverage


@functools.cache
def pattern(texture: str, pixels: int) -> np.ndarray | None:
    """int16 (pixels, pixels) in 0..OPAQUE, how much of each pixel has the second tone; or None."""
    function = TEXTURES[texture]
    if function is None:
        return None
    coverage = _coverage(function(*_grid(pixels)))
    coverage.flags.writeable = False
    return coverage
