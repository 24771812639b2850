"""The sigmoid loss: the formula, its symmetries, and three implementations that agree."""

import functools

import jax
import numpy as np
import pytest

from vlc_jax.losses import masks, sigmoid, tiles


def oracle(scores, scale, bias, mask):
    """Numpy, float64, one pair at a time."""
    values = np.zeros(len(scores))
    for i in np.flatnonzero(mask):
        for j in np.flatnonzero(mask):
            sign = 1.0 if i == j else -1.0
            values[i] += np.log1p(np.exp(-sign * (scale * np.float64(scores[i, j]) + bias)))
    return values


def pair_masks(mask):
    return masks.pair_masks({"mask": mask})


@jax.jit
def of_scores(scores, logit_scale, logit_bias, mask):
    return sigmoid.dense(scores, logit_scale, logit_bias, pair_masks(mask))


def dense(image, text, logit_scale, logit_bias, mask):
    return of_scores(image @ text.T, logit_scale, logit_bias, mask)


def chunked(image, text, logit_scale, logit_bias, mask, **options):
    texts = tiles.Texts(text, None, pair_masks(mask))
    return sigmoid.chunked(image, texts, logit_scale, logit_bias, **options)


def ring(image, text, logit_scale, logit_bias, mask, **options):
    texts = tiles.Texts(text, None, pair_masks(mask))
    return sigmoid.ring(image, texts, logit_scale, logit_bias, **options)


def test_dense_equals_numpy(arrays):
    scores = arrays["image"] @ arrays["text"].T
    expected = oracle(scores, 7.0, -3.0, arrays["mask"])
    np.testing.assert_allclose(dense(**arrays), expected, rtol=1e-5, atol=1e-6)
    assert np.all(expected[:19] > 0)


def test_start_of_siglip_costs_about_the_bias_per_image():
    scores = np.zeros((16, 16), np.float32)
    value = of_scores(scores, np.float32(10.0), np.float32(-10.0), np.ones(16, bool))
    np.testing.assert_allclose(value, 10.0, rtol=1e-3)


def assert_close(result, expected):
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-6), result, expected
    )


@pytest.mark.parametrize("chunk", [1, 5, 8, 24, 100])
def test_chunked_equals_dense_whatever_the_chunk(arrays, value_and_gradient, chunk):
    expected = value_and_gradient(dense)(arrays)
    result = value_and_gradient(functools.partial(chunked, chunk=chunk))(arrays)
    assert_close(result, expected)


@pytest.mark.devices
@pytest.mark.parametrize("shape", [(1, 1), (8, 1), (4, 2)])
def test_ring_equals_dense_on_one_and_eight_devices(arrays, value_and_gradient, make_mesh, shape):
    on_ring = functools.partial(ring, mesh=make_mesh(*shape), axes=("data", "fsdp"))
    expected = value_and_gradient(dense)(arrays)
    result = value_and_gradient(on_ring)(arrays)
    assert_close(result, expected)


@pytest.mark.devices
def test_ring_moves_blocks_and_never_gathers(arrays, make_mesh):
    on_ring = functools.partial(ring, mesh=make_mesh(4, 2), axes=("data", "fsdp"))
    gradient = jax.grad(lambda image, others: on_ring(image, **others).sum())
    split = jax.sharding.NamedSharding(make_mesh(4, 2), jax.P(("data", "fsdp")))
    image, text = jax.device_put((arrays.pop("image"), arrays.pop("text")), split)
    hlo = jax.jit(gradient).lower(image, {"text": text, **arrays}).compile().as_text()
    assert "collective-permute" in hlo
    assert "all-gather" not in hlo


def test_permuting_the_examples_permutes_the_values(arrays):
    order = np.random.default_rng(1).permutation(24)
    moved = {k: v[order] if v.ndim else v for k, v in arrays.items()}
    values = np.asarray(dense(**arrays))
    np.testing.assert_allclose(dense(**moved), values[order], rtol=1e-5)


def test_padding_changes_neither_values_nor_gradients(arrays, value_and_gradient):
    other = {**arrays, "image": arrays["image"].copy(), "text": arrays["text"].copy()}
    other["image"][19:] *= -1
    other["text"][19:] = 0.5
    value, gradient = value_and_gradient(dense)(arrays)
    other_value, other_gradient = value_and_gradient(dense)(other)
    np.testing.assert_allclose(value, other_value, rtol=1e-6)
    np.testing.assert_array_equal(gradient["image"][19:], 0.0)
    np.testing.assert_allclose(gradient["text"][:19], other_gradient["text"][:19], rtol=1e-5)
    cut = {k: v[:19] if v.ndim else v for k, v in arrays.items()}
    values = np.asarray(dense(**arrays))
    np.testing.assert_allclose(values[:19], dense(**cut), rtol=1e-5)
    np.testing.assert_array_equal(values[19:], 0.0)


def test_gradient_raises_the_pairs_and_lowers_the_others(arrays):
    scores = arrays["image"] @ arrays["text"].T
    scale, bias = arrays["logit_scale"], arrays["logit_bias"]
    slopes = jax.jit(jax.grad(lambda *given: of_scores(*given).sum()))
    gradient = np.asarray(slopes(scores, scale, bias, np.ones(24, bool)))
    is_pair = np.eye(24, dtype=bool)
    assert np.all(gradient[is_pair] < 0)
    assert np.all(gradient[~is_pair] > 0)
