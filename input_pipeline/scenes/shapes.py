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
            # a level edge is never crossed by a level ray
            continue
        crosses = (v0 > v) != (v1 > v)
        inside ^= crosses & (u < u0 + (v - v0) * ((u1 - u0) / (v1 - v0)))
    return inside


def _disc(u: np.ndarray, v: np.ndarray, radius: float = 0.98) -> np.ndarray:
    """A disc around the middle of the box."""
    return u * u + v * v <= radius * radius


def _at(u: np.ndarray, v: np.ndarray, x: float, y: float, radius: float) -> np.ndarray:
    """A disc around (x, y)."""
    return _disc(u - x, v - y, radius)


_TRIANGLE = ((0.0, -1.0), (1.0, 0.95), (-1.0, 0.95))
_STAR = (  # five points on radius 1.05 and five on 0.38, the upper point first, moved down by 0.05
    (0.0, -1.0), (0.223, -0.257), (0.999, -0.274), (0.361, 0.167), (0.617, 0.899),
    (0.0, 0.43), (-0.617, 0.899), (-0.361, 0.167), (-0.999, -0.274), (-0.223, -0.257),
)  # fmt: skip
_HEART_TIP = ((-0.93, -0.2), (0.93, -0.2), (0.0, 0.97))
_ARROW = (
    (-1.0, -0.22), (0.25, -0.22), (0.25, -0.85), (1.0, 0.0), (0.25, 0.85), (0.25, 0.22),
    (-1.0, 0.22),
)  # fmt: skip
_HOUSE = (
    (0.0, -0.95), (0.98, -0.1), (0.7, -0.1), (0.7, 0.92), (-0.7, 0.92), (-0.7, -0.1), (-0.98, -0.1),
)  # fmt: skip
_BOLT = ((0.3, -0.98), (-0.72, 0.2), (-0.05, 0.2), (-0.38, 0.98), (0.74, -0.25), (0.05, -0.25))

# As unlike each other as ten pixels allow: any two of the first ten differ in a fifth of the box.
OUTLINES: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "circle": _disc,
    "square": lambda u, v: np.ones(u.shape, bool),
    "triangle": lambda u, v: _polygon(u, v, _TRIANGLE),
    "diamond": lambda u, v: abs(u) / 0.8 + abs(v) <= 1.0,
    "cross": lambda u, v: (abs(u) <= 0.22) | (abs(v) <= 0.22),
    "star": lambda u, v: _polygon(u, v, _STAR),
    "ring": lambda u, v: _disc(u, v) & ~_disc(u, v, 0.58),
    "heart": lambda u, v: (
        _at(u, v, -0.48, -0.42, 0.5) | _at(u, v, 0.48, -0.42, 0.5) | _polygon(u, v, _HEART_TIP)
    ),
    "moon": lambda u, v: _disc(u, v) & ~_at(u, v, 0.5, 0.0, 0.72),
    "arrow": lambda u, v: _polygon(u, v, _ARROW),
    "house": lambda u, v: _polygon(u, v, _HOUSE),
    "hourglass": lambda u, v: (abs(v) <= 0.95) & (abs(u) <= 0.12 + 0.8 * abs(v)),
    "bolt": lambda u, v: _polygon(u, v, _BOLT),
    "frame": lambda u, v: (abs(u) > 0.62) | (abs(v) > 0.62),
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
    # a subpixel is inside if its middle is
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
    # cached for all scenes: writing into it would change later pictures
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
