"""InfoNCE: the formula, its symmetries, and three implementations that agree."""

import functools

import jax
import numpy as np
import pytest
from scipy import special

from vlc_jax import errors
from vlc_jax.losses import infonce, masks, tiles


def oracle(scores, scale, mask, weights=(0.5, 0.5)):
    """Numpy, float64, one example at a time; weights: of the term over texts, and over images."""
    values = np.zeros(len(scores))
    real = np.flatnonzero(mask)
    logits = scale * np.asarray(scores, np.float64)
    for i in real:
        row, column = logits[i, real], logits[real, i]
        values[i] += weights[0] * (special.logsumexp(row) - logits[i, i])
        values[i] += weights[1] * (special.logsumexp(column) - logits[i, i])
    return values


def pair_masks(mask):
    return masks.pair_masks({"mask": mask})


@functools.partial(jax.jit, static_argnames="direction")
def of_scores(scores, logit_scale, mask, **options):
    return infonce.dense(scores, logit_scale, pair_masks(mask), **options)


def dense(image, text, logit_scale, mask, **options):
    return of_scores(image @ text.T, logit_scale, mask, **options)


def chunked(image, text, logit_scale, mask, **options):
    texts = tiles.Texts(text, None, pair_masks(mask))
    return infonce.chunked(image, texts, logit_scale, **options)


def ring(image, text, logit_scale, mask, **options):
    texts = tiles.Texts(text, None, pair_masks(mask))
    return infonce.ring(image, texts, logit_scale, **options)


@pytest.fixture
def arrays(arrays):
    return {k: v for k, v in arrays.items() if k != "logit_bias"}


def test_dense_equals_numpy(arrays):
    scores = arrays["image"] @ arrays["text"].T
    expected = oracle(scores, 7.0, arrays["mask"])
    np.testing.assert_allclose(dense(**arrays), expected, rtol=1e-5, atol=1e-6)
    assert np.all(expected[:19] > 0)


@pytest.mark.devices
def test_one_direction_is_the_cross_entropy_of_each_image_over_the_texts(
    arrays, value_and_gradient, make_mesh
):
    one_way = {"direction": "image_to_text"}
    scores = arrays["image"] @ arrays["text"].T
    expected = oracle(scores, 7.0, arrays["mask"], weights=(1.0, 0.0))
    np.testing.assert_allclose(dense(**arrays, **one_way), expected, rtol=1e-5, atol=1e-6)
    on_mesh = {"mesh": make_mesh(4, 2), "axes": ("data", "fsdp")}
    expected = value_and_gradient(functools.partial(dense, **one_way))(arrays)
    for implementation, options in ((chunked, {"chunk": 5}), (ring, on_mesh)):
        part = functools.partial(implementation, **options, **one_way)
        assert_close(value_and_gradient(part)(arrays), expected)
    with pytest.raises(errors.UsageError, match="direction of a contrastive loss"):
        dense(**arrays, direction="texts")


def test_equal_scores_give_log_of_the_batch():
    value = of_scores(np.full((8, 8), 0.3, np.float32), np.float32(50.0), np.ones(8, bool))
    np.testing.assert_allclose(value, np.log(8.0), rtol=1e-5)


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


@pytest.mark.devices
def test_ring_refuses_a_batch_the_devices_cannot_share(arrays, make_mesh):
    cut = {k: v[:23] if v.ndim else v for k, v in arrays.items()}
    on_ring = functools.partial(ring, mesh=make_mesh(8, 1), axes=("data", "fsdp"))
    with pytest.raises(errors.UsageError, match="divisible by 8, got 23; use 16 or 24"):
        jax.jit(on_ring)(**cut)


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
    slopes = jax.jit(jax.grad(lambda *given: of_scores(*given).sum()))
    gradient = np.asarray(slopes(scores, np.float32(7.0), np.ones(24, bool)))
    is_pair = np.eye(24, dtype=bool)
    assert np.all(gradient[is_pair] < 0)
    assert np.all(gradient[~is_pair] > 0)
