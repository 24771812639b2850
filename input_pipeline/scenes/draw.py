"""Renderer of scenes: a pure function to pixels in integer arithmetic, the same bytes on every
machine.
"""

import functools

import numpy as np

from vlc_jax.input_pipeline.scenes import shapes
from vlc_jax.input_pipeline.scenes.stream import normal_table, random_bytes
from vlc_jax.input_pipeline.scenes.world import RGB, Scene, SceneObject

# dividing by OPAQUE = 64 is a shift by 6
_SHIFT = shapes.OPAQUE.bit_length() - 1


@functools.cache
def _noise_levels(level: int, sigma: float) -> bytes:
    """256 grey levels around `level`: translates uniform bytes to noisy pixels."""
    return bytes(min(255, max(0, level + z)) for z in normal_table(sigma))


def draw(scene: Scene) -> np.ndarray:
    """uint8 (canvas, canvas, 3), RGB: a flat noisy background, the objects over it in order.

    Only the background has noise, grey (the same for the three channels); an object has one shade,
    and its edges are blended by 8 x 8 subpixels.
    """
    world = scene.world
    side = world.canvas
    noise = random_bytes(f"noise/{scene.noise}", side * side)
    planes = b"".join(
        noise.translate(_noise_levels(level, world.pixel_noise)) for level in scene.background
    )
    # int16 for the blending below, one plane per channel because long rows are fast
    image = np.frombuffer(planes, np.uint8).reshape(3, side, side).astype(np.int16)
    for obj in scene.objects:
        _paint(image, obj)
    return np.ascontiguousarray(image.astype(np.uint8).transpose(1, 2, 0))


def _shade(obj: SceneObject) -> np.ndarray:
    """The RGB of one object, int16 (3, 1, 1)."""
    rgb = [min(255, max(0, c + j)) for c, j in zip(RGB[obj.colour], obj.jitter, strict=True)]
    return np.array(rgb, np.int16).reshape(3, 1, 1)


def _paint(image: np.ndarray, obj: SceneObject) -> None:
    """Blends one object into int16 planes (3, canvas, canvas), in place."""
    region = image[:, obj.y : obj.y + obj.pixels, obj.x : obj.x + obj.pixels]
    shade = _shade(obj)
    pattern = shapes.pattern(obj.texture, obj.pixels)
    if pattern is not None:
        shade = shade + (((_second_tone(shade) - shade) * pattern) >> _SHIFT)
    region += ((shade - region) * shapes.mask(obj.shape, obj.pixels)) >> _SHIFT


def _second_tone(shade: np.ndarray) -> np.ndarray:
    """The tone of stripes and dots: half as bright, or most of the way to white for black."""
    if int(shade.sum()) > 150:
        return shade >> 1
    return shade + ((255 - shade) * 5 >> 3)
