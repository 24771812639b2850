"""Tiny models of both families, their parameters and a batch."""

import functools

import jax
import numpy as np

from tests.support import small_models
from vlc_jax import models, types

SMALL = {"width": 16, "heads": 2, "depth": 2, "mlp_width": 24}
TEXT = {"vocab_size": 30, "context_length": 7, "eos_id": 2}
TINY = small_models.families(SMALL, TEXT, heads=2) | {
    "resnet": {
        "variant": "RN50",
        "image": {"width": 4, "stages": (1,) * 4, "heads": 2, "image_size": 64, "projection": 8},
        "text": {**SMALL, **TEXT, "projection": 8},
    },
    "swin": {
        "variant": "Swin-B/32",
        "image": {"width": 4, "stages": (1, 2), "heads": 2, "window": 2, "patch_size": 8}
        | {"image_size": 32, "projection": 8},
        "text": {**SMALL, **TEXT, "projection": 8},
    },
    "mini": {
        "variant": "mini",
        "image": {**SMALL, "depth": 1, "image_size": 16, "stem": (4, 8, 16), "projection": 8},
        "text": {**SMALL, "depth": 1, **TEXT, "projection": 8},
    },
}


@functools.cache
def build(family, image=(), text=(), **overrides):
    options = dict(TINY[family])
    options["image"] = {**options["image"], **dict(image)}
    options["text"] = {**options["text"], **dict(text)}
    model = models.build("clip", **options, **overrides)

    same = ("remat", "scan_layers", "dtype")  # which change no parameter
    shapes = {key: value for key, value in overrides.items() if key not in same}
    params = parameters(models.build("clip", **options, **shapes))
    return model, params, batch(model.image.image_size)


@functools.cache
def parameters(model):
    rng = np.random.default_rng(0)
    shapes = jax.eval_shape(functools.partial(models.init, model), jax.random.key(0))
    params = jax.tree.map_with_path(
        lambda path, x: np.float32(
            0.2 * rng.normal(size=x.shape) + (path[-1].key in ("scale", "variance"))
        ),
        shapes,
    )
    return jax.device_put(params)


def make(family, image=None, text=None, **overrides):
    """A model, its parameters and a batch; image, text: options of the towers.

    No parameter is zero, lest a part that does nothing go unnoticed.
    """
    options = (tuple((part or {}).items()) for part in (image, text))
    return build(family, *options, **overrides)


@functools.partial(jax.jit, static_argnums=(0, 2), static_argnames=("tokens", "is_unit"))
def encode(model, params, part, array, *, tokens="none", is_unit=True):
    """Features of the tower "image" or "text"."""

    def tower(module, array):
        return getattr(module, part)(array, types.FeatureRequest(tokens, is_unit=is_unit))

    return model.apply({"params": params}, array, method=tower)


def batch(side):
    rng = np.random.default_rng(0)
    text = rng.integers(3, 30, (4, 7))
    for row, end in enumerate((2, 4, 6, 3)):
        text[row, end:] = [2] + [0] * (6 - end)
    image = rng.normal(size=(4, side, side, 3))
    return jax.device_put({"image": np.float32(image), "text": np.int32(text)})


def assert_close(result, expected, tolerance=1e-5):
    assert jax.tree.structure(result) == jax.tree.structure(expected)
    for (path, a), b in zip(
        jax.tree.leaves_with_path(result), jax.tree.leaves(expected), strict=True
    ):
        name = jax.tree_util.keystr(path)
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance, err_msg=name)
