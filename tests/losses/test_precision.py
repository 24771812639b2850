"""Why products of tiles are float32: what three TF32 products of a GPU lose in a loss.

Tensor cores add 8 products at a time to a float32 sum and round it toward zero: errors grow with
the number of examples, over which the gradients are summed (4,096: 1.1e-5 and 2.7e-5). Emulated; no
GPU has run it.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

from tests.losses.conftest import unit
from tests.losses.test_contrastive import KINDS

BATCH, SCALE, AT_ONCE = 1024, 100.0, 8


def tf32(x):
    """float32 rounded to 10 bits of mantissa, to even."""
    bits = x.view(np.uint32)
    return ((bits + 0xFFF + ((bits >> 13) & 1)) & np.uint32(0xFFFFE000)).view(np.float32)


def toward_zero(x):
    nearest = x.astype(np.float32)
    return np.where(abs(nearest) > abs(x), np.nextafter(nearest, np.float32(0)), nearest)


def three_products(a, b, sums):
    """a @ b from rounded numbers and what rounding left.   sums: 1 for all products, or 3."""
    rounded, rest = zip(*((tf32(x), tf32(x - tf32(x))) for x in (a, b)), strict=True)
    totals = np.zeros((sums, len(a), b.shape[1]), np.float32)
    for start in range(0, a.shape[1], AT_ONCE):
        part = slice(start, start + AT_ONCE)
        pairs = (rounded[0], rest[1]), (rest[0], rounded[1]), rounded
        for number, (left, right) in enumerate(pairs):
            product = left[:, part].astype(np.float64) @ right[part]
            totals[number % sums] = toward_zero(totals[number % sums] + product)
    return totals.sum(axis=0)


@functools.cache
def case():
    """Embeddings, and the gradient of infonce by the images in float64."""
    image, text = unit(np.random.default_rng(0).normal(size=(2, BATCH, 64))).astype(np.float32)
    return image, text, gradient(SCALE * image.astype(np.float64) @ text.T, np.matmul, text)


def gradient(logits, product, text):
    chances = (special.softmax(logits, axis=0) + special.softmax(logits, axis=1)) / 2
    slopes = chances - np.eye(BATCH)
    return SCALE / BATCH * product(slopes.astype(logits.dtype), text)


def error(found):
    exact = case()[2]
    return np.linalg.norm(found - exact) / np.linalg.norm(exact)


def test_a_gradient_of_tiles_errs_by_a_millionth():
    """By 7e-7 in one tile; merging the logarithms of several rounds them, too."""
    image, text, _ = case()
    options = {"mask": jnp.ones(BATCH, bool), "chunk": 512, "logit_scale": SCALE}
    loss = functools.partial(KINDS["infonce"].chunked, text=text, **options)
    assert error(jax.jit(jax.grad(lambda image: loss(image).mean()))(image)) < 1.5e-6


@pytest.mark.parametrize(("sums", "least"), [(3, 2.5e-6), (1, 7e-6)])
def test_three_tf32_products_err_by_several_millionths(sums, least):
    image, text, _ = case()
    product = functools.partial(three_products, sums=sums)
    logits = np.float32(SCALE) * product(image, np.ascontiguousarray(text.T))
    found = gradient(logits, product, text)
    assert found.dtype == np.float32
    assert error(found) > least
